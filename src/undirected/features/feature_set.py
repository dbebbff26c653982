"""Many features in flat arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import get_variable, is_literal, is_negated, make_literal, name_other_state
from undirected.data.variables import Domain
from undirected.errors import FeatureError
from undirected.features.conjunction import format_feature, normalise, parse_feature
from undirected.kernels import backend
from undirected.kernels.types import Array


class FeatureSet:
    """Conjunctions over a domain, in the order given: feature ``j`` has the literals ``literals[start[j]:start[j + 1]]``.

    Use `from_lists`, `from_texts` or `from_arrays` to make one; they bring each feature into its shortest form. Set
    operations return canonical order: by length, then by literals. All arrays are read-only: a set never changes, so that many may
    share it.

    >>> from undirected import Domain, FeatureSet, Variable
    >>> domain = Domain([Variable("smoker", ("no", "yes")), Variable("age", ("young", "old"))])
    >>> features = FeatureSet.from_texts(["smoker=yes & age=old", "age=old"], domain)
    >>> features.canonical().texts()
    ['age=old', 'smoker=yes & age=old']
    """

    def __init__(self, domain: Domain, start: Array, literals: Array) -> None:
        self.domain = domain
        self.start = protect(np.ascontiguousarray(start, dtype=np.int64))
        self.literals = protect(np.ascontiguousarray(literals, dtype=np.int32))

    @classmethod
    def from_lists(cls, rows: Iterable[Iterable[int]], domain: Domain) -> FeatureSet:
        """From lists of literals."""
        given = [tuple(row) for row in rows]
        start = np.concatenate([[0], np.cumsum([len(row) for row in given], dtype=np.int64)])
        try:
            literals = np.fromiter(itertools.chain.from_iterable(given), dtype=np.int64, count=int(start[-1]))
        except OverflowError:
            j, literal = next((j, x) for j, row in enumerate(given) for x in row if not is_literal(domain, x))
            raise _refuse_literal(j, literal, domain) from None
        return cls.from_arrays(domain, start, literals)

    @classmethod
    def from_normalised(cls, rows: list[tuple[int, ...]], domain: Domain) -> FeatureSet:
        """From features known to be in their shortest form; nothing is checked."""
        start = np.concatenate([[0], np.cumsum([len(r) for r in rows], dtype=np.int64)])
        return cls(domain, start, np.array([x for r in rows for x in r], dtype=np.int32))

    @classmethod
    def from_texts(cls, texts: Iterable[str], domain: Domain) -> FeatureSet:
        """From texts such as ``smoker=yes & age=old``."""
        return cls.from_lists((parse_feature(t, domain) for t in texts), domain)

    @classmethod
    def from_arrays(cls, domain: Domain, start: Array, literals: Array) -> FeatureSet:
        """From flat arrays of literals; work for single features is done only where a variable has more literals than it needs."""
        start, literals = np.asarray(start), np.asarray(literals)
        if (np.diff(start) < 0).any() or start[0] != 0 or start[-1] != len(literals):
            raise FeatureError("the offsets of the features do not fit their literals")
        known = is_literal(domain, literals)
        if not known.all():
            at = int(np.argmin(known))
            raise _refuse_literal(int(np.searchsorted(start, at, side="right")) - 1, int(literals[at]), domain)
        features = cls(domain, start, name_other_state(domain, literals))
        variable = features.variables
        if features._is_plain(variable):
            return features
        order = np.lexsort((features.literals, variable, features.owner))
        features, variable = cls(domain, start, features.literals[order]), variable[order]
        rough = features._find_rough(variable)
        if not len(rough):
            return features
        rows = list(features)
        for j in rough.tolist():
            try:
                rows[j] = normalise(rows[j], domain)
            except FeatureError as error:
                raise FeatureError(f"feature {j}: {error}") from None
        return cls.from_normalised(rows, domain)

    def _is_plain(self, variable: Array) -> bool:
        """Whether all literals are positive and their variables rise, the commonest case."""
        follows = (variable[1:] <= variable[:-1]) & (self.owner[1:] == self.owner[:-1])
        return not follows.any() and not is_negated(self.domain, self.literals).any()

    def _find_rough(self, variable: Array) -> Array:
        """The features that are not in their shortest form, though their literals are sorted by variable."""
        flat, owner = self.literals, self.owner
        negated = is_negated(self.domain, flat)
        first = np.ones(len(flat), dtype=bool)  # of the literals on one variable
        first[1:] = (variable[1:] != variable[:-1]) | (owner[1:] != owner[:-1])
        again = np.zeros(len(flat), dtype=bool)
        again[1:] = ~first[1:] & ((flat[1:] == flat[:-1]) | ~negated[:-1])
        group = np.flatnonzero(first)
        excluded = np.add.reduceat(negated.astype(np.int64), group)
        again[group] |= (excluded > 0) & (excluded >= self.domain.n_states[variable[group]] - 1)
        return np.unique(owner[again])

    @classmethod
    def atomic(cls, domain: Domain) -> FeatureSet:
        """One feature per variable and non-reference state."""
        literals = np.setdiff1d(np.arange(domain.n_literals), domain.base[:-1])
        return cls(domain, np.arange(len(literals) + 1), literals)

    @classmethod
    def all_pairs(cls, domain: Domain) -> FeatureSet:
        """The atomic features, and one per pair of indicators of two variables: states other than the first, or, of variables with an
        order, being at or above such a state."""
        return cls.atomic(domain).concatenate(Indicators(domain).join_all()[0]).canonical()

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, j: int) -> tuple[int, ...]:
        if not 0 <= j < len(self):
            raise IndexError(j)
        return tuple(self.literals[self.start[j] : self.start[j + 1]].tolist())

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        flat, start = self.literals.tolist(), self.start.tolist()
        return (tuple(flat[a:b]) for a, b in zip(start, start[1:], strict=False))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FeatureSet)
            and self.domain == other.domain
            and np.array_equal(self.start, other.start)
            and np.array_equal(self.literals, other.literals)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<FeatureSet of {len(self):,} features over {len(self.domain)} variables>"

    @functools.cached_property
    def lengths(self) -> Array:
        """How many literals each feature has."""
        return protect(np.diff(self.start))

    @functools.cached_property
    def n_variables(self) -> Array:
        """Of how many variables each feature speaks."""
        variable, owner = self.variables, self.owner
        first = np.ones(len(owner), dtype=bool)
        first[1:] = (variable[1:] != variable[:-1]) | (owner[1:] != owner[:-1])
        return protect(np.bincount(owner[first], minlength=len(self)))

    @functools.cached_property
    def owner(self) -> Array:
        """The feature that each literal belongs to."""
        return protect(np.repeat(np.arange(len(self)), self.lengths))

    @property
    def variables(self) -> Array:
        """The variable of each literal."""
        return np.asarray(get_variable(self.domain, self.literals))

    def texts(self) -> list[str]:
        """The features as texts such as ``smoker=yes & age=old``."""
        return [format_feature(row, self.domain) for row in self]

    def subset(self, which: Array) -> FeatureSet:
        """The features at the given positions (or where a mask is true), in that order."""
        which = np.asarray(which)
        if which.dtype == bool:
            which = np.flatnonzero(which)
        lengths = self.lengths[which]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        at = np.repeat(self.start[which] - start[:-1], lengths) + np.arange(start[-1])
        out = FeatureSet(self.domain, start, self.literals[at])
        if "hashes" in self.__dict__:
            out.hashes = protect(self.hashes[which])
        return out

    def _sort(self) -> Array:
        """The positions of the features in canonical order."""
        pieces = []
        for length in np.unique(self.lengths):
            which = np.flatnonzero(self.lengths == length)
            if length:
                rows = self.literals[self.start[which][:, None] + np.arange(length)]
                which = which[np.lexsort(rows.T[::-1])]
            pieces.append(which)
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)

    def _find_repeats(self) -> tuple[Array, Array]:
        """Positions in canonical order, those of equal features rising, and whether each repeats the one before it."""
        order = self._sort()
        same = np.zeros(len(order), dtype=bool)
        lengths = self.lengths[order]
        for length in np.unique(lengths):
            at = np.flatnonzero(lengths == length)
            rows = self.literals[self.start[order[at]][:, None] + np.arange(length)]
            same[at[1:]] = (rows[1:] == rows[:-1]).all(axis=1)
        return order, same

    def first_of_each(self) -> Array:
        """Positions of the distinct features in canonical order, the first of equal ones."""
        order, same = self._find_repeats()
        return order[~same]

    def group_equal(self) -> tuple[Array, Array]:
        """Positions of the distinct features in the order in which they first come, and for each feature its place among them."""
        order, same = self._find_repeats()
        first = order[~same]
        place = np.empty(len(first), dtype=np.int64)
        place[np.argsort(first)] = np.arange(len(first))
        group = np.empty(len(self), dtype=np.int64)
        group[order] = place[np.cumsum(~same) - 1]
        return np.sort(first), group

    def canonical(self) -> FeatureSet:
        """Each feature once, by length, then by literals."""
        return self.subset(self.first_of_each())

    def concatenate(self, other: FeatureSet) -> FeatureSet:
        """The features of this set, then those of the other."""
        if other.domain != self.domain:
            raise FeatureError("the two feature sets are over different domains")
        start = np.concatenate([self.start, self.start[-1] + other.start[1:]])
        out = FeatureSet(self.domain, start, np.concatenate([self.literals, other.literals]))
        if "hashes" in self.__dict__:
            out.hashes = protect(np.concatenate([self.hashes, other.hashes]))
        return out

    def union(self, other: FeatureSet) -> FeatureSet:
        """The features of either, each once."""
        return self.concatenate(other).canonical()

    @functools.cached_property
    def hashes(self) -> Array:
        """A number for each feature; equal features have equal ones, and others hardly ever."""
        keys = np.random.default_rng(20_100_412).integers(1 << 63, size=2 * self.domain.n_literals, dtype=np.uint64)
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(keys[self.literals])])
        return protect(sums[self.start[1:]] - sums[self.start[:-1]])

    def difference(self, other: FeatureSet) -> FeatureSet:
        """The features of this set that the other does not have, each once."""
        both = other.concatenate(self).first_of_each()  # an equal feature of `other` comes first
        return self.subset(both[both >= len(other)] - len(other))

    def support(self, data: Dataset, threads: int = 1) -> Array:
        """In how many rows each feature is true, weights counted."""
        if data.domain != self.domain:
            raise FeatureError("the features and the table have different domains")
        table = data.distinct
        args = (table.columns, self.domain.n_states, table.weights, self.start, self.literals)
        return np.asarray(backend().module.find_support(*args, threads))


class Indicators:
    """What pairs are made of: that a variable is in a state other than the first or, where its three or more states have an order, that it
    is at or above one. Both ways, what can be said of two variables together is the same; but where the one rises with the other, a few
    of the latter say it.

    Indicator ``i`` speaks of ``variable[i]`` and ``state[i]``; it is ``upward[i]`` if it holds above the state, too.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        states = np.setdiff1d(np.arange(domain.n_literals), domain.base[:-1])
        self.variable = domain.literal_variable[states]
        self.state = states - domain.base[self.variable]
        rising = np.array([len(v.states) > 2 and v.has_order for v in domain.variables], dtype=bool)
        self.upward = rising[self.variable] if len(states) else np.zeros(0, dtype=bool)
        last = self.state == domain.n_states[self.variable] - 1
        below = np.where(self.upward & ~last, self.state, 1)  # as many literals: each state below is excluded
        self.start = np.concatenate([[0], np.cumsum(below)]).astype(np.int64)
        of = np.repeat(np.arange(len(states)), below)
        at = np.arange(self.start[-1]) - self.start[of]
        excluded = make_literal(domain, self.variable[of], at, True)
        self.literals = np.where(self.upward[of] & ~last[of], excluded, states[of]).astype(np.int32)

    def __len__(self) -> int:
        return len(self.variable)

    def join(self, a: Array, b: Array) -> FeatureSet:
        """The conjunctions of indicators ``a`` and ``b``, where the variables of the former come first."""
        pairs = np.stack([a, b], axis=1).ravel()
        lengths = np.diff(self.start)[pairs]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(self.start[pairs] - ends[:-1], lengths) + np.arange(ends[-1])
        return FeatureSet(self.domain, ends[::2], self.literals[at])

    def join_all(self) -> tuple[FeatureSet, Array, Array]:
        """The conjunctions of all pairs of indicators of different variables, and the two indicators of each."""
        a, b = np.triu_indices(len(self), 1)
        apart = self.variable[a] != self.variable[b]
        return self.join(a[apart], b[apart]), a[apart], b[apart]

    def hold(self, codes: Array) -> Array:
        """Whether each indicator holds: by row and indicator."""
        given = codes[:, self.variable]
        return np.asarray(np.where(self.upward, given >= self.state, given == self.state))

    def add_up(self, by_literal: Array) -> Array:
        """For each indicator the sum of a number that is kept by literal, over the states in which it holds."""
        sums = np.concatenate([[0.0], np.cumsum(by_literal)])
        first = self.domain.base[self.variable] + self.state
        return np.asarray(sums[np.where(self.upward, self.domain.base[self.variable + 1], first + 1)] - sums[first])


def protect(values: Array) -> Array:
    """The same numbers, through a view that cannot be written to; whoever made the array keeps the right to."""
    view = values.view()
    view.flags.writeable = False
    return view


def _refuse_literal(j: int, literal: int, domain: Domain) -> FeatureError:
    return FeatureError(f"feature {j} has literal {literal}, outside of the domain's {domain.n_literals} and their negations")
