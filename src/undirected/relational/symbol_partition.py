"""Clusters of symbols (entities and predicates) that tell which facts are true: counts, moves with their gain, and a greedy search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undirected.kernels.types import Array
from undirected.work import Work

LEAST_GAIN = 1e-9  # of a move, relative to what it moves: less may be rounding
MOST_SWEEPS = 30  # over all symbols before merging and splitting is tried again
MOST_COMBINATIONS = 1 << 22  # of clusters in one block; where there are more, no new cluster is made
SCRATCH = 1 << 21  # counts that are held at once while targets of a move are compared


@dataclass(frozen=True)
class Block:
    """Atoms of one type: ``true`` and ``known`` counts, tuples of entities by predicates.

    ``symbols[r, j]`` is the symbol at place ``j`` of tuple ``r``, on axis ``axes[j]``; the predicates are on an axis of their own.
    ``table``, ``rows`` and ``columns`` tell where in the data the atoms are.
    """

    true: Array
    known: Array
    symbols: Array
    axes: tuple[int, ...]
    predicates: int
    table: int
    rows: Array
    columns: Array


@dataclass(frozen=True)
class Share:
    """What some symbols add to the counts of a block once they have a label: at ``keys + label * step``, none of which comes twice."""

    block: int
    keys: Array
    step: int
    true: Array
    known: Array


class Partition:
    """Clusters of the symbols of each axis, the counts of all combinations of clusters, and moves of symbols with their gain.

    The objective is the log-likelihood of the known atoms, where each combination of clusters predicts its own with the weight
    ``log((t + pseudo) / (f + pseudo))``, less ``penalty`` for every combination that has a known atom.
    """

    def __init__(self, blocks: Sequence[Block], labels: Sequence[Array], penalty: float, pseudo: float) -> None:
        self.blocks, self.penalty, self.pseudo = blocks, penalty, pseudo
        self.labels = [np.array(label, dtype=np.intp) for label in labels]
        self._rows = [{a: _list_rows(block, a, len(self.labels[a])) for a in set(block.axes)} for block in blocks]
        self._scratch = np.zeros((2, 0), dtype=np.intp)
        counts = np.arange(max((int(block.known.sum()) for block in blocks), default=0) + 1)
        self._of_one = counts * np.log(counts + pseudo)  # logarithms of counts, which are whole numbers, are taken once
        self._of_both = counts * np.log(counts + 2 * pseudo) + penalty * (counts > 0)
        self.count()

    def count(self) -> None:
        """Number the clusters anew, with room for some more, and count all combinations."""
        self.labels = [np.unique(label, return_inverse=True)[1].astype(np.intp) for label in self.labels]
        used = [int(label.max(initial=-1)) + 1 for label in self.labels]
        self.room = [min(len(label), n + n // 2 + 4) for n, label in zip(used, self.labels, strict=True)]
        for block in self.blocks:
            if math.prod(self.room[a] for a in (*block.axes, block.predicates)) > MOST_COMBINATIONS:
                for a in (*block.axes, block.predicates):
                    self.room[a] = used[a]
        self.sizes = [np.bincount(label, minlength=room) for label, room in zip(self.labels, self.room, strict=True)]
        self.steps = [np.cumprod([self.room[b.predicates], *(self.room[a] for a in b.axes)])[:-1].tolist() for b in self.blocks]
        self.keys: list[Array] = []  # of the tuples' combinations, predicates aside
        self.true, self.known, self.values = [], [], []
        self._by_predicate: list[tuple[Array, Array] | None] = [None] * len(self.blocks)
        self._by_tuple: list[tuple[Array, Array] | None] = [None] * len(self.blocks)
        for k, block in enumerate(self.blocks):
            places = [self.labels[a][block.symbols[:, j]] * self.steps[k][j] for j, a in enumerate(block.axes)]
            self.keys.append(np.sum(places, axis=0))
            at = (self.keys[k][:, None] + self.labels[block.predicates]).ravel()
            size = math.prod(self.room[a] for a in (*block.axes, block.predicates))
            self.true.append(np.bincount(at, block.true.ravel(), size).astype(np.intp))
            self.known.append(np.bincount(at, block.known.ravel(), size).astype(np.intp))
            self.values.append(self.value(self.true[k], self.known[k]))

    def value(self, true: Array, known: Array) -> Array:
        """What combinations with these counts add to the objective."""
        return np.asarray(self._of_one[true] + self._of_one[known - true] - self._of_both[known])

    @property
    def score(self) -> float:
        """The objective."""
        return float(sum(values.sum() for values in self.values))

    # -- moves
    def collect(self, axis: int, members: Array) -> list[Share]:
        """What ``members``, all of one cluster, add to the counts."""
        old, shares = int(self.labels[axis][members[0]]), []
        for k, block in enumerate(self.blocks):
            if block.predicates == axis:
                keys, sums = self._sum_tuples(k)
                shares.append(Share(k, keys, 1, *sums[:, :, members].sum(axis=2)))
            elif axis in block.axes:
                columns, counts = self._sum_predicates(k)
                for step, rows in self._find_rows(k, axis, members):
                    keys, sums = _sum_by_key(self.keys[k][rows] - old * step, counts[:, rows])
                    shares.append(Share(k, (keys[:, None] + columns).ravel(), step, *sums.reshape(2, -1)))
        return shares

    def _find_rows(self, k: int, axis: int, members: Array) -> list[tuple[int, Array]]:
        """The tuples of a block at which members stand, apart by the places where, with what a label counts there."""
        if len(members) == 1:
            steps = self.steps[k]
            return [(sum([steps[j] for j in places]), rows) for places, rows in self._rows[k][axis][members[0]]]
        block, inside = self.blocks[k], np.zeros(len(self.labels[axis]), dtype=bool)
        inside[members] = True
        met = [rows for member in members for _, rows in self._rows[k][axis][member]]
        rows = np.concatenate([np.zeros(0, dtype=np.intp), *met])
        if block.axes.count(axis) > 1:
            rows = np.unique(rows)
        step = np.zeros(len(rows), dtype=np.intp)
        for j, a in enumerate(block.axes):
            if a == axis:
                step += inside[block.symbols[rows, j]] * self.steps[k][j]
        return [(one, rows[step == one]) for one in np.unique(step).tolist()]

    def _sum_predicates(self, k: int) -> tuple[Array, Array]:
        """The clusters of predicates and the true and known counts of each tuple in them."""
        found = self._by_predicate[k]
        if found is None:
            block = self.blocks[k]
            columns, of = np.unique(self.labels[block.predicates], return_inverse=True)
            marks = (of[:, None] == np.arange(len(columns))).astype(float)
            found = self._by_predicate[k] = (columns, np.stack([block.true @ marks, block.known @ marks]).astype(np.intp))
        return found

    def _sum_tuples(self, k: int) -> tuple[Array, Array]:
        """The combinations of tuples and the true and known counts of each predicate in them."""
        found = self._by_tuple[k]
        if found is None:
            keys, sums = _sum_by_key(self.keys[k], np.stack([self.blocks[k].true, self.blocks[k].known]))
            found = self._by_tuple[k] = (keys, sums.astype(np.intp))
        return found

    def add(self, shares: Sequence[Share], label: int, sign: int = 1) -> None:
        """Add shares at a label, or take them away."""
        for share in shares:
            at = share.keys + label * share.step
            true = self.true[share.block][at] + sign * share.true
            known = self.known[share.block][at] + sign * share.known
            self.true[share.block][at], self.known[share.block][at] = true, known
            self.values[share.block][at] = self.value(true, known)

    def compare(self, shares: Sequence[Share], labels: Array) -> Array:
        """How much the objective rises if shares that were taken away are added at each of the labels."""
        gains = np.zeros(len(labels))
        for k in sorted({share.block for share in shares}):
            own = [share for share in shares if share.block == k]
            width = len(labels) if len(own) == 1 else max(1, SCRATCH // len(self.true[k]))
            for first in range(0, len(labels), width):
                part = slice(first, first + width)
                gains[part] += self._compare_part(k, own, labels[part])
        return gains

    def _compare_part(self, k: int, shares: Sequence[Share], labels: Array) -> Array:
        """`compare` within one block. Shares may meet in a combination; each is added upon those before it."""
        gains, size = np.zeros(len(labels)), len(self.true[k])
        if len(shares) > 1 and self._scratch.shape[1] < len(labels) * size:
            self._scratch = np.zeros((2, len(labels) * size), dtype=np.intp)
        held = []
        for n, share in enumerate(shares):
            at = share.keys + labels[:, None] * share.step
            true, known, before = self.true[k][at], self.known[k][at], self.values[k][at]
            if len(shares) > 1:
                held.append(at + size * np.arange(len(labels))[:, None])
                if n:
                    true, known = true + self._scratch[0][held[n]], known + self._scratch[1][held[n]]
                    before = self.value(true, known)
            true, known = true + share.true, known + share.known
            gains += (self.value(true, known) - before).sum(axis=1)
            if n + 1 < len(shares):
                self._scratch[0][held[n]] += share.true
                self._scratch[1][held[n]] += share.known
        for places in held[:-1]:
            self._scratch[:, places] = 0
        return gains

    def move(self, axis: int, members: Array, labels: Array | None = None) -> bool:
        """Bring ``members``, all of one cluster, to the cluster that gains most: one of ``labels``, by default any or a new one.
        Tells whether that is another than theirs."""
        old = int(self.labels[axis][members[0]])
        if labels is None:
            free = np.flatnonzero(self.sizes[axis] == 0)[:1]
            labels = np.concatenate([np.flatnonzero(self.sizes[axis]), free])
        shares = self.collect(axis, members)
        places = [share.keys + old * share.step for share in shares]
        held = [(self.true[s.block][at], self.known[s.block][at], self.values[s.block][at]) for s, at in zip(shares, places, strict=True)]
        self.add(shares, old, -1)
        gains = self.compare(shares, labels)
        best, stay = int(gains.argmax()), float(gains[labels == old][0])
        new = int(labels[best]) if gains[best] - stay > LEAST_GAIN * max(1.0, abs(stay)) else old
        if new == old:  # as most often: what was there is quicker than adding up again
            for share, at, (true, known, values) in zip(shares, places, held, strict=True):
                self.true[share.block][at], self.known[share.block][at], self.values[share.block][at] = true, known, values
            return False
        self.add(shares, new)
        self._label(axis, members, new)
        return True

    def put(self, axis: int, members: Array, label: int) -> None:
        """Bring ``members``, all of one cluster, to another, whatever that does to the objective."""
        shares = self.collect(axis, members)
        self.add(shares, int(self.labels[axis][members[0]]), -1)
        self.add(shares, label)
        self._label(axis, members, label)

    def _label(self, axis: int, members: Array, label: int) -> None:
        old = int(self.labels[axis][members[0]])
        if label == old:
            return
        for k, block in enumerate(self.blocks):
            if block.predicates == axis:
                self._by_predicate[k] = None
            elif axis in block.axes:
                for step, rows in self._find_rows(k, axis, members):
                    self.keys[k][rows] += (label - old) * step
                self._by_tuple[k] = None
        self.labels[axis][members] = label
        self.sizes[axis][old] -= len(members)
        self.sizes[axis][label] += len(members)

    # -- search
    def climb(self, rng: np.random.Generator, work: Work) -> None:
        """Move single symbols, merge clusters and split them, until nothing gains. Labels are in order wherever this is broken off."""
        axes = [a for a, label in enumerate(self.labels) if len(label) > 1]
        changed = True
        while changed:
            for _ in range(MOST_SWEEPS):
                if not sum(self.sweep(axis, rng, work) for axis in axes):
                    break
                self.count()
            changed = sum(self.merge(axis, work) for axis in axes) > 0
            self.count()
            changed |= sum(self.split(axis, rng, work) for axis in axes) > 0

    def sweep(self, axis: int, rng: np.random.Generator, work: Work) -> int:
        """Offer each symbol, in random order, all clusters and one of its own; how many moved."""
        moved = 0
        for symbol in rng.permutation(len(self.labels[axis])):
            work.check()
            moved += self.move(axis, np.array([symbol]))
        return moved

    def merge(self, axis: int, work: Work) -> bool:
        """Merge clusters with the one that gains most, if any does."""
        merged = False
        for label in np.flatnonzero(self.sizes[axis]):
            work.check()
            members = np.flatnonzero(self.labels[axis] == label)
            if len(members):
                merged |= self.move(axis, members)
        return merged

    def split(self, axis: int, rng: np.random.Generator, work: Work) -> bool:
        """Try to split each cluster: a random symbol leaves it, others may follow, and all return unless that gained."""
        any_split = False
        for label in np.flatnonzero(self.sizes[axis] > 1).tolist():
            free = np.flatnonzero(self.sizes[axis] == 0)
            if not len(free):
                break
            work.check()
            before, pair = self.score, np.array([label, free[0]])
            members = np.flatnonzero(self.labels[axis] == label)
            self.put(axis, rng.choice(members, 1), int(free[0]))
            for symbol in rng.permutation(np.tile(members, 2)):
                self.move(axis, np.array([symbol]), pair)
            if self.score - before > LEAST_GAIN * max(1.0, abs(before)):
                any_split = True
            elif self.sizes[axis][free[0]]:
                self.put(axis, np.flatnonzero(self.labels[axis] == free[0]), label)
        return any_split


def _list_rows(block: Block, axis: int, n: int) -> list[list[tuple[list[int], Array]]]:
    """For each of ``n`` symbols of an axis the tuples it is in, apart by the places at which it stands there."""
    places = [j for j, a in enumerate(block.axes) if a == axis]
    out: list[list[tuple[list[int], Array]]] = [[] for _ in range(n)]
    for j in places:
        same = block.symbols[:, places] == block.symbols[:, [j]]
        code = same @ (1 << np.arange(len(places)))
        first = same.argmax(axis=1) == places.index(j)  # a tuple counts once for a symbol that stands in it twice
        for one in np.unique(code[first]).tolist():
            rows = np.flatnonzero(first & (code == one))
            rows = rows[np.argsort(block.symbols[rows, j], kind="stable")]
            symbols, starts = np.unique(block.symbols[rows, j], return_index=True)
            standing = [p for i, p in enumerate(places) if one >> i & 1]
            for symbol, part in zip(symbols.tolist(), np.split(rows, starts[1:]), strict=True):
                out[symbol].append((standing, part))
    return out


def _sum_by_key(keys: Array, counts: Array) -> tuple[Array, Array]:
    """The different keys and, for each, the sums of its rows of counts (which are: kinds by rows by columns)."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), dtype=bool), ordered[1:] != ordered[:-1]]))
    return ordered[first], np.add.reduceat(counts[:, order], first, axis=1)
