"""Entities in clusters, and the counts of their attributes by combinations of clusters: what models of blocks are learned from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from undirected.kernels.types import Array
from undirected.relational.data import Entities, RelationalData
from undirected.relational.schema import Schema
from undirected.work import MEMORY, Work

MEMORY_SHARE = 0.25  # of the memory, that the counts of all combinations of clusters may take
ABSENT = -(1 << 40)  # the slot of an entity that is in none for now: a combination with it has a number below 0
MOST_MOVED = 400  # entities in two clusters that are split or merged; larger ones are left to single moves
SPLITS_A_SWEEP = 4  # proposals to split or merge clusters of each type, in a sweep
COLDEST = 1e-3  # what temperature 0 is taken for
PSEUDO = 0.5  # count of each state, for its share of an attribute


@dataclass(frozen=True)
class Prior:
    """What is expected before anything is seen: ``alpha`` is the appetite for new clusters, ``beta`` the weight of a state under each
    combination of clusters: the same for all of an attribute's (``base`` "uniform"), or in proportion to their shares ("marginal")."""

    alpha: float = 1.0
    beta: float = 0.1
    base: str = "uniform"


Partitions = list[Array]  # for each type the slot of each entity, from 1; empty for types without clusters


@dataclass(frozen=True)
class _Relation:
    """The rows of one type that know an attribute, and the entities whose clusters these depend on.

    ``cells[r]`` names, for each attribute, the column of its state and the column of its total; unknown ones go to a last column that
    nobody reads. ``lookup`` holds what a count adds to the log-likelihood; the part of column ``c`` begins at ``starts[c]``.
    """

    type: int
    places: tuple[int, ...]  # the type of each entity
    entities: Array
    cells: Array
    lookup: Array
    starts: Array
    weights: Array  # the prior weight of the state of each column

    @property
    def width(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class _Seat:
    """The rows of a relation in which an entity stands at certain places and at no others."""

    relation: int
    held: tuple[int, ...]  # these places
    rows: Array  # of the first entity, then of the second ...
    ends: Array


@dataclass(frozen=True)
class _Part:
    """What one entity adds to the counts: ``added[i]`` to combination ``base[i] + step * slot`` if it is in that slot."""

    relation: int
    base: Array
    step: int
    added: Array


def list_places(schema: Schema) -> list[tuple[int, ...]]:
    """For each type the types whose clusters its attributes depend on: those of its arguments, or its own if it is no link."""
    kinds = enumerate(schema.types)
    return [tuple(schema.index(a.target) for a in kind.arguments) if kind.is_link else (k,) for k, kind in kinds]


def list_kinds(schema: Schema) -> list[int]:
    """The types whose entities have clusters: those without several arguments, and links that are arguments themselves."""
    return sorted({k for places in list_places(schema) for k in places})


def find_entities(table: Entities) -> Array:
    """For each row the entities whose clusters it depends on, -1 for none."""
    return table.arguments if table.type.is_link else np.arange(len(table), dtype=np.int32)[:, None]


def _read_relation(table: Entities, k: int, places: tuple[int, ...], prior: Prior) -> _Relation:
    """The known cells of a type, as columns to count in."""
    codes = table.cells.codes
    rows = np.flatnonzero((codes >= 0).any(axis=1))
    codes, states = codes[rows].astype(np.int32), table.type.attributes.n_states.astype(np.int32)
    n_states, n = int(states.sum()), len(states)
    first = np.cumsum(states) - states
    trash = n_states + n
    cells = np.concatenate([np.where(codes >= 0, codes + first, trash), np.where(codes >= 0, np.arange(n) + n_states, trash)], axis=1)
    seen = np.bincount(cells.ravel(), minlength=trash + 1)[:-1]
    totals = np.repeat(states * prior.beta, states)
    weights = np.repeat(np.full(n, prior.beta), states)
    if prior.base == "marginal":
        weights = totals * (seen[:n_states] + PSEUDO) / np.repeat(seen[n_states:] + PSEUDO * states, states)
    lookup, starts = _tabulate(np.concatenate([weights, states * prior.beta]), np.repeat([1, -1], [n_states, n]), seen)
    return _Relation(k, places, find_entities(table)[rows], cells.astype(np.int32), lookup, starts, weights)


def _tabulate(weights: Array, signs: Array, most: Array) -> tuple[Array, Array]:
    """What counts from 0 to ``most`` add to the log-likelihood, one table after another, and where that of each column begins."""
    kinds, which = np.unique(np.stack([signs, weights], axis=1), axis=0, return_inverse=True)
    which = which.ravel()
    tables = []
    for i, (sign, weight) in enumerate(kinds.tolist()):
        counts = np.arange(most[which == i].max() + 1)
        tables.append(sign * (gammaln(weight + counts) - gammaln(weight)))
    ends = np.cumsum([len(table) for table in tables])
    return np.concatenate(tables), (ends - [len(table) for table in tables])[which]


def _find_seats(relation: _Relation, r: int, kind: int, n: int) -> Iterator[_Seat]:
    """Where the entities of a type stand in a relation: seats of all its rows."""
    entities = relation.entities
    own = [p for p, place in enumerate(relation.places) if place == kind]
    for p in own:
        same = np.stack([entities[:, q] == entities[:, p] for q in own], axis=1) & (entities[:, p] >= 0)[:, None]
        first = same[:, own.index(p)] & ~same[:, : own.index(p)].any(axis=1)
        patterns, which = np.unique(same, axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            rows = np.flatnonzero((which.ravel() == i) & first)
            if len(rows):
                rows = rows[np.argsort(entities[rows, p], kind="stable")]
                held = tuple(q for q, holds in zip(own, pattern.tolist(), strict=True) if holds)
                yield _Seat(r, held, rows, np.searchsorted(entities[rows, p], np.arange(n + 1)))


class Blocks:
    """A partition of the entities of each type, the counts of the known cells under it, and their posterior probability.

    Slot 0 stands for an argument that names nothing. Empty slots have no entities and count nothing.
    """

    def __init__(self, data: RelationalData, partitions: Partitions, prior: Prior, memory: float = MEMORY) -> None:
        self.prior = prior
        places = list_places(data.schema)
        self.relations = [_read_relation(t, k, places[k], prior) for k, t in enumerate(data.tables) if len(t.type.attributes)]
        self.kinds = list_kinds(data.schema)
        self.n = [len(table) for table in data.tables]
        self.seats: list[list[_Seat]] = [[] for _ in data.tables]
        for r, relation in enumerate(self.relations):
            for k in sorted(set(relation.places)):
                self.seats[k].extend(_find_seats(relation, r, k, self.n[k]))
        self.most = [self._limit_slots(memory)] * len(self.n)
        self.assign(partitions)

    def _limit_slots(self, memory: float) -> int:
        """The largest number of slots of each type for which there is room."""
        room = MEMORY_SHARE * memory / max(1, len(self.relations))
        sizes = [(room / (8 * (r.width + 1))) ** (1 / len(r.places)) for r in self.relations]
        return max(4, int(min(sizes)))

    def assign(self, partitions: Partitions) -> None:
        """Take these clusters, and count anew."""
        tops = [int(p.max(initial=0)) for p in partitions]
        self.slots = [min(top + 2 + top // 4, self.n[k] + 2, self.most[k]) for k, top in enumerate(tops)]
        self.of = [np.append(np.minimum(p, s - 1), 0).astype(np.int64) for p, s in zip(partitions, self.slots, strict=True)]
        self.sizes = [np.bincount(of[:-1], minlength=s) for of, s in zip(self.of, self.slots, strict=True)]
        self.strides, self.counts, self.gains = [], [], []
        for relation in self.relations:
            shape = [self.slots[k] for k in relation.places]
            self.strides.append([int(np.prod(shape[p + 1 :])) for p in range(len(shape))])
            at = self.locate(relation.places, relation.entities, self.strides[-1])
            size, width = int(np.prod(shape)), relation.width + 1
            counts = np.bincount((at[:, None] * width + relation.cells).ravel(), minlength=size * width)
            self.counts.append(counts.reshape(size, width)[:, :-1] + relation.starts)
            self.gains.append(relation.lookup.take(self.counts[-1]).sum(axis=1))

    def locate(self, places: tuple[int, ...], entities: Array, strides: Sequence[int]) -> Array:
        """The number of the combination of the clusters of some entities."""
        at = np.zeros(len(entities), np.int64)
        for p, k in enumerate(places):
            at += self.of[k][entities[:, p]] * strides[p]
        return at

    def copy_partitions(self) -> Partitions:
        return [of[:-1].copy() for of in self.of]

    @property
    def log_posterior(self) -> float:
        """The logarithm of the probability of the partitions and of the known cells."""
        total = sum(float(gains.sum()) for gains in self.gains)
        for k in self.kinds:
            sizes = self.sizes[k][self.sizes[k] > 0]
            total += (
                len(sizes) * np.log(self.prior.alpha)
                + gammaln(sizes).sum()
                + gammaln(self.prior.alpha)
                - gammaln(self.prior.alpha + self.n[k])
            )
        return float(total)

    # -- one entity
    def describe(self, k: int, e: int) -> list[_Part]:
        """What an entity adds to the counts, wherever it is."""
        parts = []
        for seat in self.seats[k]:
            rows = seat.rows[seat.ends[e] : seat.ends[e + 1]]
            if not len(rows):
                continue
            relation, strides = self.relations[seat.relation], self.strides[seat.relation]
            others = [0 if p in seat.held else s for p, s in enumerate(strides)]
            at = self.locate(relation.places, relation.entities[rows], others)
            if len(at) and at.min() < 0:  # an entity of these rows is in no slot
                rows, at = rows[at >= 0], at[at >= 0]
            base, which = np.unique(at, return_inverse=True)
            width = relation.width + 1
            added = np.bincount((which[:, None] * width + relation.cells[rows]).ravel(), minlength=len(base) * width)
            parts.append(_Part(seat.relation, base, sum(strides[p] for p in seat.held), added.reshape(-1, width)[:, :-1]))
        return parts

    def put(self, k: int, e: int, slot: int, parts: Sequence[_Part], sign: int = 1) -> None:
        """Put an entity into a slot, or take it out of it (``sign`` -1)."""
        self.of[k][e] = slot if sign > 0 else ABSENT
        self.sizes[k][slot] += sign
        for part in parts:
            at = part.base + part.step * slot
            counts = self.counts[part.relation][at] + sign * part.added
            self.counts[part.relation][at] = counts
            self.gains[part.relation][at] = self.relations[part.relation].lookup.take(counts).sum(axis=1)

    def weigh(self, parts: Sequence[_Part], slots: Array) -> Array:
        """By how much the log-likelihood of the cells rises if an entity that is in no slot is put into each of these."""
        rises = np.zeros(len(slots))
        for r in sorted({part.relation for part in parts}):
            own = [part for part in parts if part.relation == r]
            at = [part.base + part.step * slots[:, None] for part in own]
            each = [self._measure_rise(r, a, part.added) for a, part in zip(at, own, strict=True)]
            if len(own) > 1:
                rises += self._join_equal(r, at, own, each)
            for rise in each:
                rises += rise.sum(axis=1)
        return rises

    def _measure_rise(self, r: int, at: Array, added: Array) -> Array:
        counts = self.counts[r][at]
        counts += added
        return np.asarray(self.relations[r].lookup.take(counts).sum(axis=-1) - self.gains[r][at])

    def _join_equal(self, r: int, at: Sequence[Array], parts: Sequence[_Part], each: Sequence[Array]) -> Array:
        """What combinations add that an entity reaches from several seats, as (k, k) from both sides of a pair. They leave ``each``."""
        n = len(at[0])
        size = len(self.gains[r])
        keys = np.concatenate([(a + size * np.arange(n)[:, None]).ravel() for a in at])
        ordered = np.sort(keys)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if not len(twice):
            return np.zeros(n)
        sums = np.zeros((len(twice), self.relations[r].width), np.int64)
        for a, part, rise in zip(at, parts, each, strict=True):
            key = a + size * np.arange(n)[:, None]
            place = np.minimum(np.searchsorted(twice, key), len(twice) - 1)
            slot, column = np.nonzero(twice[place] == key)
            sums[place[slot, column]] += part.added[column]  # each of a part's combinations is there once
            rise[slot, column] = 0
        return np.bincount(twice // size, self._measure_rise(r, twice % size, sums), minlength=n)

    def list_slots(self, k: int) -> Array:
        """The slots that an entity may go to: those in use, and an empty one if there is."""
        empty = self.sizes[k][1:] == 0
        return np.concatenate([np.flatnonzero(~empty), np.flatnonzero(empty)[:1]]) + 1

    def make_room(self, k: int) -> None:
        """See that there is an empty slot, unless memory does not allow for it."""
        if self.sizes[k][1:].all() and len(self.sizes[k]) < self.most[k]:
            self.assign(self.copy_partitions())

    def weigh_slots(self, k: int, parts: Sequence[_Part], slots: Array) -> Array:
        """By how much the log-posterior rises, up to a constant, if an entity that is in no slot is put into each of these."""
        sizes = self.sizes[k][slots]
        return np.asarray(np.log(np.where(sizes > 0, sizes, self.prior.alpha)) + self.weigh(parts, slots))

    # -- prediction
    def predict(self, data: RelationalData, partitions: Partitions) -> list[Array]:
        """The chance of each active state of the attributes of each type, from the counts, for entities of such clusters. Rows without
        unknown attributes are left at zero."""
        out = [np.zeros((len(table), table.type.n_active)) for table in data.tables]
        of = [np.append(np.minimum(p, s - 1), 0) for p, s in zip(partitions, self.slots, strict=True)]
        for relation, counts, strides in zip(self.relations, self.counts, self.strides, strict=True):
            table = data.tables[relation.type]
            rows = np.flatnonzero((table.cells.codes < 0).any(axis=1))
            entities, at = find_entities(table)[rows], np.zeros(len(rows), np.int64)
            for p, k in enumerate(relation.places):
                at += of[k][entities[:, p]] * strides[p]
            states = table.type.attributes.n_states
            seen, column = counts - relation.starts, np.arange(states.sum())
            active = np.delete(column, np.cumsum(states) - states)
            total = len(column) + np.repeat(np.arange(len(states)), states - 1)
            weight = np.repeat(states * self.prior.beta, states - 1)
            chances = (seen[:, active] + relation.weights[active]) / (seen[:, total] + weight)
            out[relation.type][rows] = chances[at]
        return out


class Chain:
    """Gibbs sampling of the clusters of one entity after another, with splits and merges of whole clusters between."""

    def __init__(self, blocks: Blocks, rng: np.random.Generator, work: Work) -> None:
        self.blocks, self.rng, self.work = blocks, rng, work

    def sweep(self, temperature: float = 1.0) -> None:
        """Visit every entity once in random order, and propose some splits and merges."""
        blocks = self.blocks
        for k in blocks.kinds:
            for e in self.rng.permutation(blocks.n[k]).tolist():
                self.work.check()
                self.visit(k, e, temperature)
            for _ in range(SPLITS_A_SWEEP if blocks.n[k] > 1 else 0):
                self.work.check()
                self.split_or_merge(k, temperature)

    def visit(self, k: int, e: int, temperature: float) -> None:
        """Draw the cluster of an entity given those of all others; at temperature 0 take the most probable one."""
        blocks = self.blocks
        blocks.make_room(k)
        parts = blocks.describe(k, e)
        blocks.put(k, e, int(blocks.of[k][e]), parts, -1)
        slots = blocks.list_slots(k)
        chosen, _ = self._draw(blocks.weigh_slots(k, parts, slots), temperature)
        blocks.put(k, e, int(slots[chosen]), parts)

    def _draw(self, weights: Array, temperature: float) -> tuple[int, Array]:
        """One of some choices of these log-probabilities, and the logarithms of the chances that each had."""
        scaled = (weights - weights.max()) / max(temperature, COLDEST)
        sums = np.cumsum(np.exp(scaled))
        chosen = int(np.searchsorted(sums, self.rng.random() * sums[-1], side="right"))
        return min(chosen, len(weights) - 1), scaled - np.log(sums[-1])

    def split_or_merge(self, k: int, temperature: float) -> None:
        """Take two entities. If they are in one cluster, propose to split it between them; otherwise, to merge their clusters.

        The members go to the two sides one by one in random order, each with its probability given those before it. Accepted as in
        Metropolis and Hastings.
        """
        blocks = self.blocks
        blocks.make_room(k)
        of = blocks.of[k][:-1]
        i, j = (int(e) for e in self.rng.choice(len(of), 2, replace=False))
        a, b = int(of[i]), int(of[j])
        joined = a == b
        free = np.flatnonzero(blocks.sizes[k][1:] == 0) + 1
        rest = np.flatnonzero((of == a) | (of == b))
        if len(rest) > MOST_MOVED or (joined and not len(free)):
            return
        if joined:
            b = int(free[0])
        rest = self.rng.permutation(rest[(rest != i) & (rest != j)])
        members = [i, j, *rest.tolist()]
        before = dict(zip(members, of[members].tolist(), strict=True))
        self._take_out(k, members)
        together, _, _ = self._place(k, members, dict.fromkeys(members, a), (a, b), temperature)
        self._take_out(k, members)
        wanted = {i: a, j: b} if joined else before
        apart, chance, split = self._place(k, members, wanted, (a, b), temperature)
        rise = (apart - together) / max(temperature, COLDEST) - chance
        accepted = np.log(self.rng.random()) < (rise if joined else -rise)
        after = (split if joined else dict.fromkeys(members, a)) if accepted else before
        if after != split:
            self._take_out(k, members)
            for e in members:
                blocks.put(k, e, after[e], blocks.describe(k, e))

    def _take_out(self, k: int, members: Sequence[int]) -> None:
        for e in members:
            self.blocks.put(k, e, int(self.blocks.of[k][e]), self.blocks.describe(k, e), -1)

    def _place(
        self, k: int, members: Sequence[int], wanted: dict[int, int], sides: tuple[int, int], temperature: float
    ) -> tuple[float, float, dict[int, int]]:
        """Put entities into two slots, where it is ``wanted`` or else by chance: what that adds to the log-posterior, and its chance."""
        slots, total, chance, where = np.array(sides), 0.0, 0.0, {}
        for at, e in enumerate(members):
            parts = self.blocks.describe(k, e)
            weights = self.blocks.weigh_slots(k, parts, slots)
            chosen, chances = self._draw(weights, temperature) if e not in wanted else (slots.tolist().index(wanted[e]), None)
            if at > 1:
                if chances is None:
                    scaled = (weights - weights.max()) / max(temperature, COLDEST)
                    chances = scaled - np.log(np.exp(scaled).sum())
                chance += float(chances[chosen])
            total += float(weights[chosen])
            where[e] = int(slots[chosen])
            self.blocks.put(k, e, where[e], parts)
        return total, chance, where
