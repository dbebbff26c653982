"""Beam search over first-order clauses for a Markov logic network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from undirected.kernels.types import Array
from undirected.relational.clause_weights import Differences, WeightedPseudoLikelihood
from undirected.relational.clauses import Clause, Literal
from undirected.work import Work

LONGEST_STEP = 2.0  # by which a new clause may move a logit before all weights are learned again
PER_PLACE = 10  # extensions of one clause by a literal in one place that are looked at
LEAST_CHILDREN = 3  # of one clause that are scored, if they are good enough; more where there are few clauses
ADDED_AT_ONCE = 10  # clauses, before all weights are learned again
LEAST_SHARE = 0.1  # of the first one's gain, that the others of them need


@dataclass(frozen=True)
class Limits:
    """How far the search goes: see the parameters of `MSL`."""

    max_literals: int = 4
    max_variables: int = 3
    beam: int = 20
    n_scored: int = 200
    length_penalty: float = 1.0


@dataclass
class Candidate:
    """A clause that may be added, with its count differences and how much it would raise the objective."""

    clause: Clause
    differences: Differences
    gain: float = -math.inf
    weight: float = 0.0


class ClauseSearch:
    """Rounds of beam search, each of which adds the best clauses, with provisional weights, to a model that begins with unit clauses."""

    def __init__(self, model: WeightedPseudoLikelihood, limits: Limits, sd: float) -> None:
        self.model, self.atoms, self.limits, self.sd = model, model.atoms, limits, sd
        self.predicates = self.atoms.vocabulary.predicates
        self.weights = np.zeros(0)
        self.units: list[Clause] = []
        self.others: list[Clause] = []  # unit clauses with one variable in several places
        for k, predicate in enumerate(self.predicates):
            unit = Clause.of([Literal(k, tuple(range(len(predicate.kinds))))])
            self.units.append(unit)
            self.model.add(unit, self.atoms.count_differences(unit))
            for names in itertools.product(range(len(predicate.kinds)), repeat=len(predicate.kinds)):
                other = Clause.of([Literal(k, names)])
                if other != unit and self._is_sound(other) and other not in self.others:
                    self.others.append(other)

    def run_round(self, work: Work, room: int) -> int:
        """Search once and add at most ``room`` clauses; how many were added."""
        self._refresh()
        pool: dict[Clause, Candidate] = {}
        self._score(self.others, pool, work)
        starts = [Clause.of([literal]) for unit in self.units for literal in (unit.literals[0], unit.literals[0].flip())]
        parents = [clause for clause in starts if clause.n_variables <= self.limits.max_variables]
        for length in range(2, self.limits.max_literals + 1):
            self._score(self._screen(parents, work), pool, work)
            beam = self._pick(pool, length)
            self._score(itertools.chain.from_iterable(self._vary(clause) for clause in beam), pool, work)
            recent = [clause for clause in self.model.clauses[len(self.units) :] if len(clause) == length][-self.limits.beam :]
            parents = list(dict.fromkeys([*self._pick(pool, length), *recent]))
            for candidate in sorted(pool.values(), key=_rank)[self.limits.n_scored :]:
                candidate.differences = {}  # it will not be added, and many take much memory
        return self._add_best(pool, room, work)

    # -- where things stand
    def _refresh(self) -> None:
        """Compute slopes and curvatures of all atoms, and the same as tensors over their arguments."""
        chances = self.model.find_chances(self.weights)
        self.slopes = [s * (h - p) for s, h, p in zip(self.model.shares, self.model.holds, chances, strict=True)]
        self.spreads = [s * p * (1 - p) for s, p in zip(self.model.shares, chances, strict=True)]
        self.pulls, self.curves = ([self._spread(t, part) for t, part in enumerate(parts)] for parts in (self.slopes, self.spreads))

    def _spread(self, table: int, values: Array) -> Array:
        shape = self.atoms.exists[table].shape
        out = np.zeros((len(values), math.prod(shape)), np.float32)
        if len(values):
            out[:, self.atoms.rows[table]] = values
        return out.reshape(len(values), *shape)

    def _find(self, predicate: int) -> tuple[int, int]:
        table = self.predicates[predicate].table
        return table, predicate - self.atoms.vocabulary.slices[table].start

    def _is_sound(self, clause: Clause) -> bool:
        """Whether variables have one type each and no two literals speak of one cell."""
        kinds: dict[int, str] = {}
        cells = set()
        for literal in clause.literals:
            predicate = self.predicates[literal.predicate]
            cells.add((predicate.table, predicate.attribute, literal.arguments))
            for variable, kind in zip(literal.arguments, predicate.kinds, strict=True):
                if kinds.setdefault(variable, kind) != kind:
                    return False
        return len(cells) == len(clause) and clause.is_connected and clause.n_variables <= self.limits.max_variables

    # -- candidates
    def _vary(self, clause: Clause) -> Iterator[Clause]:
        """Flip the sign of each literal, and remove each."""
        for k, literal in enumerate(clause.literals):
            rest = [*clause.literals[:k], *clause.literals[k + 1 :]]
            yield Clause.of([*rest, literal.flip()])
            if len(rest) > 1 and self._is_sound(shorter := Clause.of(rest)):
                yield shorter

    def _screen(self, parents: Sequence[Clause], work: Work) -> list[Clause]:
        """The extensions of clauses by a literal that promise most, by a rough estimate that takes all predicates of a type at once."""
        promised: list[tuple[float, int, int, tuple[int, ...], bool]] = []
        for number, clause in enumerate(parents):
            if work.is_over:
                break
            kinds = self.atoms.vocabulary.find_kinds(clause)
            firm = self._measure_curvature(clause)
            for table in range(len(self.pulls)):
                if len(self.pulls[table]):
                    for places in self._list_places(kinds, table):
                        for gain, predicate, positive in self._screen_place(clause, kinds, firm, table, places):
                            promised.append((gain, number, predicate, places, positive))
        most = max(LEAST_CHILDREN, -(-self.limits.n_scored // max(1, len(parents))))
        children = [0] * len(parents)
        found: dict[Clause, None] = {}
        for _, number, predicate, places, positive in sorted(promised, key=lambda one: (-one[0], one[1:])):
            if len(found) >= self.limits.n_scored:
                break
            if children[number] < most:
                longer = Clause.of([*parents[number].literals, Literal(predicate, places, positive)])
                if (
                    len(longer) == len(parents[number]) + 1
                    and longer not in found
                    and longer not in self.model.known
                    and self._is_sound(longer)
                ):
                    found[longer] = None
                    children[number] += 1
        return list(found)

    def _list_places(self, kinds: dict[int, str], table: int) -> Iterator[tuple[int, ...]]:
        """Variables that the arguments of a type may be: one of the clause at least, and new ones in order."""
        wanted = self.predicates[self.atoms.vocabulary.slices[table].start].kinds
        room = self.limits.max_variables - len(kinds)
        for places in itertools.product(range(len(kinds) + room), repeat=len(wanted)):
            new = list(dict.fromkeys(a for a in places if a not in kinds))
            fits = all(kinds.get(a, kind) == kind for a, kind in zip(places, wanted, strict=True))
            if fits and any(a in kinds for a in places) and new == list(range(len(kinds), len(kinds) + len(new))):
                yield places

    def _screen_place(
        self, clause: Clause, kinds: dict[int, str], firm: float, table: int, places: tuple[int, ...]
    ) -> list[tuple[float, int, bool]]:
        """The best of all predicates of a type, and their negations, in one place: their estimated gains and what they are."""
        first = self.atoms.vocabulary.slices[table].start
        all_kinds = dict(kinds) | dict(zip(places, self.predicates[first].kinds, strict=True))
        axes = tuple(dict.fromkeys(places))
        false = [(self.atoms.find_falsehood(one), one.arguments) for one in clause.literals]
        open_ = self.atoms.contract(false, axes, all_kinds).ravel()  # groundings that hang on the new literal
        lever = np.zeros_like(open_)  # what the clause's own atoms would gain if it were false
        for k, literal in enumerate(clause.literals):
            other, number = self._find(literal.predicate)
            pull = self.pulls[other][number]
            part = self.atoms.contract([*false[:k], (pull, literal.arguments), *false[k + 1 :]], axes, all_kinds).ravel()
            lever += part if literal.positive else -part
        true, pulls, curves = (self._view(stack[table], places) for stack in (self.atoms.true, self.pulls, self.curves))
        exists = self._view(self.atoms.exists[table][None], places)[0]
        levered, own, spread = true @ lever, pulls @ open_, curves @ np.square(open_)
        density = true.mean(axis=1)
        times = float(self.atoms.exists[table].shape[0]) if len(axes) and any(a not in kinds for a in places) else 1.0
        slope = np.concatenate([exists @ lever - levered + own, levered - own])
        share = np.concatenate([exists.mean() - density, density]) * times
        curvature = np.concatenate([spread, spread]) + firm * np.where(times > 1, np.square(share), share)
        gain = np.square(slope) / (2 * (curvature + 1 / self.sd**2))
        best = np.argsort(-gain, kind="stable")[:PER_PLACE].tolist()
        return [(float(gain[k]), first + k % len(true), k < len(true)) for k in best]

    def _view(self, stack: Array, places: tuple[int, ...]) -> Array:
        """Tensors over the different variables among ``places``, flattened."""
        axes = tuple(dict.fromkeys(places))
        if len(axes) < len(places):
            stack = np.einsum(stack, [0, *(a + 1 for a in places)], [0, *(a + 1 for a in axes)])
        return stack.reshape(len(stack), -1)

    def _measure_curvature(self, clause: Clause) -> float:
        """How much the clause's weight bends the objective."""
        total = 0.0
        for k, column in self.atoms.count_differences(clause).items():
            table, place = self._find(k)
            total += float(self.spreads[table][place] @ np.square(column))
        return total

    # -- scores
    def _score(self, clauses: Iterable[Clause], pool: dict[Clause, Candidate], work: Work) -> None:
        """Put clauses into the pool with the gain that a Newton step of their weight promises."""
        for clause in clauses:
            if clause in pool or clause in self.model.known:
                continue
            if work.is_over:
                break
            pool[clause] = candidate = Candidate(clause, self.atoms.count_differences(clause))
            self._rate(candidate)

    def _rate(self, candidate: Candidate) -> None:
        slope, curvature, longest = 0.0, 1 / self.sd**2, 1e-9
        for k, column in candidate.differences.items():
            table, place = self._find(k)
            slope += float(self.slopes[table][place] @ column)
            curvature += float(self.spreads[table][place] @ np.square(column))
            longest = max(longest, float(np.abs(column).max(initial=0)))
        bound = LONGEST_STEP / longest
        step = min(max(slope / curvature, -bound), bound)
        candidate.weight = step
        candidate.gain = slope * step - 0.5 * curvature * step**2 - self.limits.length_penalty * len(candidate.clause)

    def _pick(self, pool: dict[Clause, Candidate], length: int) -> list[Clause]:
        """The best clauses of a length."""
        rivals = sorted((c for c in pool.values() if len(c.clause) == length), key=_rank)
        return [candidate.clause for candidate in rivals[: self.limits.beam]]

    def _add_best(self, pool: dict[Clause, Candidate], room: int, work: Work) -> int:
        """Add the best clause, rate the others anew, and so on."""
        added, least = 0, 0.0
        rest = sorted(pool.values(), key=_rank)[: self.limits.n_scored]
        while rest and added < min(room, ADDED_AT_ONCE) and not work.is_over:
            best = min(rest, key=_rank)
            least = max(least, LEAST_SHARE * best.gain)
            if best.gain <= least:
                break
            rest.remove(best)
            self.model.add(best.clause, best.differences)
            self.weights = np.append(self.weights, best.weight)
            added += 1
            self._move(best)
            for candidate in rest:
                if candidate.differences.keys() & best.differences.keys():
                    self._rate(candidate)
        return added

    def _move(self, candidate: Candidate) -> None:
        """Let the slopes and curvatures of atoms know of a clause that was added."""
        for table in {self._find(k)[0] for k in candidate.differences}:
            chances = self.model.find_chances(self.weights)[table]
            shares = self.model.shares[table]
            self.slopes[table] = shares * (self.model.holds[table] - chances)
            self.spreads[table] = shares * chances * (1 - chances)


def _rank(candidate: Candidate) -> tuple[float, tuple[Literal, ...]]:
    return -candidate.gain, candidate.clause.literals
