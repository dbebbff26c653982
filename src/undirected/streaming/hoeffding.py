"""Hoeffding trees: one per variable, which grow over a whole stream from counts kept at their leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.streaming.packing import Arrays, check_array
from undirected.streaming.widening import spread_by_literal, translate_literals
from undirected.structure.trees import Trees, lay_out
from undirected.work import Work

NONE = -math.inf


@dataclass(frozen=True)
class Growth:
    """When a leaf splits: the rows between two looks, the chance of a wrong split, the bound below which tests count as equally good, the
    gain in log-likelihood per parameter and the rows on each side that every split needs, and what all leaves may come to."""

    grace: int
    delta: float
    tau: float
    least_gain: float
    min_rows: float
    max_leaves: int
    memory: int


@dataclass
class Forest:
    """Trees as `Trees` lays them out, and what their leaves have seen.

    A leaf that looks for a split has a block of ``seen``, from ``block`` on: the weight of its rows by literal and by state of the target.
    Literals of ``common`` states are left out, since the others leave theirs over. The first rows of a leaf were counted above it: what
    it was ``given`` is in ``count``, but not in its block.
    """

    domain: Domain
    common: Array
    targets: Array
    start: Array
    test: Array
    yes: Array
    no: Array
    gain: Array
    count_start: Array
    count: Array
    given: Array
    block: Array
    looked: Array  # the weight in the block of each leaf when it last looked for a split
    seen: Array

    @classmethod
    def plant(cls, chunk: Dataset, memory: int) -> Forest:
        """Start with a single leaf for each variable of more than one state."""
        domain = chunk.domain
        counts = chunk.literal_counts()
        common = np.array([np.argmax(counts[a:b]) for a, b in zip(domain.base, domain.base[1:], strict=False)], dtype=np.int32)
        targets = np.flatnonzero(domain.n_states > 1).astype(np.int32)
        n, states = len(targets), domain.n_states[targets].astype(np.int64)
        count_start = np.concatenate([[0], np.cumsum(states)])
        empty, leaf = np.zeros(count_start[-1]), np.full(n, -1, dtype=np.int32)
        forest = cls(
            domain, common, targets, np.arange(n + 1), leaf, leaf.copy(), leaf.copy(), np.full(n, NONE), count_start, empty, empty.copy(),
            np.full(n, -1, dtype=np.int64), np.zeros(n), np.zeros(0),
        )  # fmt: skip
        forest._give_blocks(np.arange(n), memory)
        return forest

    @property
    def tree(self) -> Array:
        """The tree of each node."""
        return np.repeat(np.arange(len(self.targets)), np.diff(self.start))

    def learn(self, chunk: Dataset, growth: Growth, work: Work) -> None:
        """Send the rows of a chunk down the trees, ``grace`` at a time, and let leaves split in between."""
        for at in range(0, len(chunk), growth.grace):
            some = Dataset(chunk.domain, chunk.codes[at : at + growth.grace], chunk.weights[at : at + growth.grace])
            backend().module.count_at_leaves(
                *lay_out(some.distinct), self.common, self.targets, self.start, self.test, self.yes, self.no, self.count_start, self.block,
                self.count, self.seen, work.threads,
            )  # fmt: skip
            self._split(growth)

    def fade(self, decay: float) -> None:
        """Let all that was counted weigh less."""
        self.count, self.given, self.looked, self.seen = (decay * x for x in (self.count, self.given, self.looked, self.seen))

    # -- splitting
    def _split(self, growth: Growth) -> None:
        """Split the leaves that have seen enough."""
        leaves = self._find_ready(growth)
        states = self.domain.n_states[self.targets[self.tree[leaves]]]
        chosen: list[Array] = []
        made: list[tuple[Array, Array, list[Array]]] = []
        for k in np.unique(states):
            own = leaves[states == k]
            found = self._find_splits(own, int(k), growth)
            chosen.append(own[found[0]])
            made.append(found[1:])
        if not chosen:
            return
        nodes = np.concatenate(chosen)
        if len(nodes):
            order = np.argsort(nodes)
            literal, gain = np.concatenate([one[0] for one in made])[order], np.concatenate([one[1] for one in made])[order]
            sides = [side for one in made for side in one[2]]
            self._make_children(nodes[order], literal, gain, [sides[i] for i in order], growth)
        self._rest_full_trees(growth.max_leaves)

    def _find_ready(self, growth: Growth) -> Array:
        """The leaves with enough new rows, of more than one state of the target."""
        first = self.count_start[:-1]
        weight = np.add.reduceat(self.count - self.given, first) if len(first) else np.zeros(0)
        several = np.add.reduceat((self.count > 0).astype(np.int64), first) > 1 if len(first) else np.zeros(0, dtype=bool)
        ready = (self.block >= 0) & several & (weight - self.looked >= growth.grace)
        self.looked = np.where(ready, weight, self.looked)
        return np.flatnonzero(ready)

    def _find_splits(self, leaves: Array, k: int, growth: Growth) -> tuple[Array, Array, Array, list[Array]]:
        """Which of some leaves, whose targets have ``k`` states, split; by what literal, with what gain; and the rows on the side where it
        holds, by state of the target."""
        domain = self.domain
        total = np.stack(
            [self.count[self.count_start[n] : self.count_start[n] + k] - self.given[self.count_start[n] :][:k] for n in leaves]
        )
        held = self._complete(leaves, k, total)
        rest = total[:, None, :] - held
        n, n_held = total.sum(axis=1), held.sum(axis=2)
        gain = _measure(held) + _measure(rest) - _measure(total)[:, None]
        variable = domain.literal_variable
        small = (n_held < growth.min_rows) | (n[:, None] - n_held < growth.min_rows)
        repeated = (domain.n_states[variable] == 2) & (np.arange(domain.n_literals) == domain.base[variable])  # the other state's test
        gain[small | repeated | (domain.n_states[variable] < 2) | (variable == self.targets[self.tree[leaves]][:, None])] = NONE
        by_variable = np.maximum.reduceat(gain, domain.base[:-1], axis=1)
        best = np.argmax(gain, axis=1)
        rows = np.arange(len(leaves))
        top = gain[rows, best]
        by_variable[rows, variable[best]] = NONE
        second = np.maximum(by_variable.max(axis=1), 0.0)  # not to split gains nothing
        bound = math.log(k) * np.sqrt(math.log(1 / growth.delta) / (2 * np.maximum(n, 1e-300)))
        sure = ((top - second) / np.maximum(n, 1e-300) > bound) | (bound < growth.tau)
        which = np.flatnonzero(sure & (top > max(growth.least_gain * (k - 1), 0.0)))
        return which, best[which], top[which], list(held[which, best[which]])

    def _complete(self, leaves: Array, k: int, total: Array) -> Array:
        """What leaves have seen by literal and state of the target, common states among the literals: ``[leaves][literals][k]``."""
        domain = self.domain
        size = domain.n_literals * k
        held = self.seen[self.block[leaves][:, None] + np.arange(size)].reshape(len(leaves), domain.n_literals, k)
        own = domain.base[:-1] + self.common
        held[:, own] = 0
        held[:, own] = np.maximum(total[:, None, :] - np.add.reduceat(held, domain.base[:-1], axis=1), 0.0)
        return held

    def _make_children(self, nodes: Array, literal: Array, gain: Array, held: list[Array], growth: Growth) -> None:
        """Give nodes two children each, behind the nodes of their trees."""
        tree, sizes = self.tree, np.diff(self.start)
        rank = np.zeros(len(nodes), dtype=np.int64)  # among the nodes of its tree that split
        for i in range(1, len(nodes)):
            rank[i] = rank[i - 1] + 1 if tree[nodes[i]] == tree[nodes[i - 1]] else 0
        self.test[nodes], self.gain[nodes] = literal, gain
        self.yes[nodes] = sizes[tree[nodes]] + 2 * rank
        self.no[nodes] = self.yes[nodes] + 1
        blocks, self.block[nodes] = self.block[nodes].copy(), -1
        owner = np.repeat(tree[nodes], 2)
        order = np.argsort(np.concatenate([tree, owner]), kind="stable")
        parts = [self.count[a:b] for a, b in zip(self.count_start, self.count_start[1:], strict=False)]
        given = [self.given[a:b] for a, b in zip(self.count_start, self.count_start[1:], strict=False)]
        for node, yes in zip(nodes, held, strict=True):
            share = _share_out(parts[node], yes, parts[node] - given[node])
            for side in (share, parts[node] - share):
                parts.append(side)
                given.append(side)
        n_new = len(owner)
        grown = np.full(n_new, -1, dtype=np.int32)
        self.test, self.yes, self.no = (np.concatenate([x, grown])[order] for x in (self.test, self.yes, self.no))
        self.gain = np.concatenate([self.gain, np.full(n_new, NONE)])[order]
        self.looked = np.concatenate([self.looked, np.zeros(n_new)])[order]
        taken = np.full(n_new, -1, dtype=np.int64)
        taken[::2] = blocks  # the child where the literal holds takes over its parent's block
        self.block = np.concatenate([self.block, taken])[order]
        self.count, self.given = (np.concatenate([flat[i] for i in order]) for flat in (parts, given))
        self.count_start = np.concatenate([[0], np.cumsum([len(parts[i]) for i in order])])
        self.start = np.concatenate([[0], np.cumsum(sizes + np.bincount(owner, minlength=len(sizes)))])
        place = np.argsort(order)[len(tree) :]
        for at, node in zip(blocks, place[::2], strict=True):
            self.seen[at : at + self._size_block(node)] = 0
        self._give_blocks(place[1::2], growth.memory)

    def _size_block(self, node: Any) -> int:
        return int(self.domain.n_literals * (self.count_start[node + 1] - self.count_start[node]))

    def _give_blocks(self, nodes: Array, memory: int) -> None:
        """Give leaves blocks to count in, as far as memory allows."""
        at, wanted = len(self.seen), len(self.seen)
        for node in np.sort(nodes).tolist():
            size = self._size_block(node)
            if 8 * (wanted + size) > memory:
                break
            self.block[node] = wanted
            wanted += size
        self.seen = np.concatenate([self.seen, np.zeros(wanted - at)])

    def _rest_full_trees(self, max_leaves: int) -> None:
        """Take the blocks of trees that have as many leaves as they may, and close the gaps between the others."""
        leaves = np.bincount(self.tree[self.test < 0], minlength=len(self.targets))
        resting = (leaves[self.tree] >= max_leaves) & (self.block >= 0)
        if not resting.any():
            return
        self.block[resting] = -1
        self._rebuild_blocks(
            {int(node): self.seen[self.block[node] :][: self._size_block(node)] for node in np.flatnonzero(self.block >= 0)}
        )

    def _rebuild_blocks(self, contents: dict[int, Array]) -> None:
        nodes = sorted(contents)
        sizes = np.array([len(contents[node]) for node in nodes], dtype=np.int64)
        self.block[nodes] = np.cumsum(sizes) - sizes
        self.seen = np.concatenate([contents[node] for node in nodes]) if nodes else np.zeros(0)

    # -- reading, widening, keeping
    def read_trees(self, threads: int | None = None) -> Trees:
        """The trees as they are now."""
        own = self.copy()
        return Trees(self.domain, own.targets, own.start, own.test, own.yes, own.no, own.gain, own.count_start, own.count, threads)

    def widen(self, domain: Domain) -> None:
        """Follow the domain to more states."""
        old = self.domain
        blocks = {
            int(node): self.seen[self.block[node] :][: self._size_block(node)].reshape(old.n_literals, -1)
            for node in np.flatnonzero(self.block >= 0)
        }
        grown = (domain.n_states - old.n_states)[self.targets[self.tree]]
        split = self.test >= 0
        self.test[split] = translate_literals(self.test[split], old, domain)
        ends = np.repeat(self.count_start[1:], grown)
        self.count, self.given = np.insert(self.count, ends, 0.0), np.insert(self.given, ends, 0.0)
        self.count_start = self.count_start + np.concatenate([[0], np.cumsum(grown)])
        self.domain = domain
        wider = {n: np.pad(spread_by_literal(b, old, domain), ((0, 0), (0, int(grown[n])))).ravel() for n, b in blocks.items()}
        self._rebuild_blocks(wider)
        # A variable that had a single state has no tree, and no rows to grow one from: it stays without.

    def copy(self) -> Forest:
        """The same trees, to be grown on their own."""
        return replace(self, **{f.name: getattr(self, f.name).copy() for f in fields(self) if f.name != "domain"})

    def pack(self) -> Arrays:
        """The trees, for a checkpoint."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "domain"}

    @classmethod
    def unpack(cls, arrays: Arrays, domain: Domain) -> Forest:
        """Take up what `pack` gave."""
        out = cls(domain, **{f.name: arrays[f.name] for f in fields(cls) if f.name != "domain"})
        out._check(arrays)
        return out

    def _check(self, arrays: Arrays) -> None:
        """Raise ``ValueError`` where the arrays do not make trees."""
        n_trees, n = len(self.targets), len(self.test)
        check_array(arrays, "targets", "i", None, least=0, below=len(self.domain))
        start = check_array(arrays, "start", "i", n_trees + 1, least=0, below=n + 1)
        if start[-1] != n or (np.diff(start) < 1).any() or (check_array(arrays, "common", "i", len(self.domain)) < 0).any():
            raise ValueError("the trees do not fit")
        if (self.common >= self.domain.n_states).any():
            raise ValueError("the common states do not fit")
        check_array(arrays, "test", "i", n, least=-1, below=self.domain.n_literals)
        split, sizes = self.test >= 0, np.diff(start)[self.tree]
        for name in ("yes", "no"):
            child = check_array(arrays, name, "i", n, least=-1)
            if (child[split] < 1).any() or (child >= sizes).any():
                raise ValueError(f"{name} does not fit")
        states = self.domain.n_states[self.targets[self.tree]]
        if not np.array_equal(check_array(arrays, "count_start", "i", n + 1), np.concatenate([[0], np.cumsum(states)])):
            raise ValueError("count_start does not fit")
        for name in ("count", "given"):
            check_array(arrays, name, "f", int(self.count_start[-1]), least=0)
        check_array(arrays, "looked", "f", n, least=0)
        check_array(arrays, "seen", "f", None, least=0)
        block = check_array(arrays, "block", "i", n, least=-1)
        room = len(self.seen) - states.astype(np.int64) * self.domain.n_literals
        if self.gain.shape != (n,) or np.isnan(self.gain).any() or (block > room)[block >= 0].any() or (block[split] >= 0).any():
            raise ValueError("the counts at leaves do not fit")


def _measure(counts: Array) -> Array:
    """The log-likelihood of counts under their own shares, along the last axis; no counts have none."""
    n = counts.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(counts > 0, counts * np.log(counts), 0.0).sum(axis=-1)
        return np.asarray(parts - np.where(n > 0, n * np.log(n), 0.0))


def _share_out(count: Array, held: Array, of: Array) -> Array:
    """The part of a node's counts that goes to the child where the test holds: what was seen there, and of rows that were counted above
    the node the same share, state by state."""
    share = np.where(of > 0, held / np.maximum(of, 1e-300), held.sum() / max(float(of.sum()), 1e-300))
    return np.asarray(count * np.clip(share, 0.0, 1.0))
