"""Many features in flat arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.packed import count, unpack
from undirected.data.variables import Domain
from undirected.errors import FeatureError
from undirected.features.conjunction import format_feature, normalise, parse_feature
from undirected.kernels.types import Array


class FeatureSet:
    """Conjunctions over a domain, in the order given: feature ``j`` has the literals ``literals[start[j]:start[j + 1]]``.

    Use `from_lists`, `from_texts` or `from_arrays` to make one; they bring each feature into its shortest form. Set
    operations return canonical order: by length, then by literals.

    >>> from undirected import Domain, FeatureSet, Variable
    >>> domain = Domain([Variable("smoker", ("no", "yes")), Variable("age", ("young", "old"))])
    >>> features = FeatureSet.from_texts(["smoker=yes & age=old", "age=old"], domain)
    >>> features.canonical().texts()
    ['age=old', 'smoker=yes & age=old']
    """

    def __init__(self, domain: Domain, start: Array, literals: Array) -> None:
        self.domain = domain
        self.start = np.ascontiguousarray(start, dtype=np.int64)
        self.literals = np.ascontiguousarray(literals, dtype=np.int32)

    @classmethod
    def from_lists(cls, rows: Iterable[Iterable[int]], domain: Domain) -> FeatureSet:
        """From lists of literals."""
        given = [tuple(row) for row in rows]
        n = domain.n_literals
        for j, row in enumerate(given):
            for literal in row:
                if not 0 <= literal < 2 * n:
                    raise FeatureError(f"feature {j} has literal {literal}, but the domain has {n} and their negations")
        features = cls.from_normalised(given, domain)
        flat = features.literals
        if len(flat) == 0:
            return features
        # Most are in their shortest form already: positive literals, variables rising.
        variable = features.variables
        rough = flat >= n
        rough[1:] |= (variable[1:] <= variable[:-1]) & (features.owner[1:] == features.owner[:-1])
        for j in np.unique(features.owner[rough]):
            given[j] = normalise(given[j], domain)
        return cls.from_normalised(given, domain) if rough.any() else features

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
        """From flat arrays of positive literals with at most one a variable; checked without a loop over features."""
        features = cls(domain, start, literals)
        n = domain.n_literals
        if len(features.literals) and (features.literals.min() < 0 or features.literals.max() >= n):
            raise FeatureError(f"a literal is outside 0..{n - 1}")
        if (np.diff(features.start) < 0).any() or features.start[0] != 0 or features.start[-1] != len(features.literals):
            raise FeatureError("the offsets of the features do not fit their literals")
        variable = domain.literal_variable[features.literals]
        order = np.lexsort((features.literals, features.owner))
        features.literals = features.literals[order]
        variable = variable[order]
        same = (variable[1:] == variable[:-1]) & (features.owner[1:] == features.owner[:-1])
        if same.any():
            j = int(features.owner[1:][same][0])
            raise FeatureError(f"feature {j} has two literals on variable {domain[int(variable[1:][same][0])].name!r}")
        return features

    @classmethod
    def atomic(cls, domain: Domain) -> FeatureSet:
        """One feature per variable and non-reference state."""
        literals = np.setdiff1d(np.arange(domain.n_literals), domain.base[:-1])
        return cls(domain, np.arange(len(literals) + 1), literals)

    @classmethod
    def all_pairs(cls, domain: Domain) -> FeatureSet:
        """The atomic features, and one per pair of non-reference states of two variables."""
        atoms = cls.atomic(domain)
        i, k = np.triu_indices(len(atoms), 1)
        a, b = atoms.literals[i], atoms.literals[k]
        apart = domain.literal_variable[a] != domain.literal_variable[b]
        pairs = np.stack([a[apart], b[apart]], axis=1)
        start = np.concatenate([atoms.start, atoms.start[-1] + 2 * np.arange(1, len(pairs) + 1)])
        return cls(domain, start, np.concatenate([atoms.literals, pairs.ravel()]))

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
        return np.diff(self.start)

    @functools.cached_property
    def owner(self) -> Array:
        """The feature that each literal belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def variables(self) -> Array:
        """The variable of each literal."""
        return self.domain.literal_variable[self.literals % max(1, self.domain.n_literals)]

    def texts(self) -> list[str]:
        return [format_feature(row, self.domain) for row in self]

    def subset(self, which: Array) -> FeatureSet:
        """The features at the given positions (or where a mask is true), in that order."""
        which = np.asarray(which)
        if which.dtype == bool:
            which = np.flatnonzero(which)
        lengths = self.lengths[which]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        at = np.repeat(self.start[which] - start[:-1], lengths) + np.arange(start[-1])
        return FeatureSet(self.domain, start, self.literals[at])

    def _order(self) -> Array:
        """Positions in canonical order."""
        pieces = []
        for length in np.unique(self.lengths):
            which = np.flatnonzero(self.lengths == length)
            if length:
                rows = self.literals[self.start[which][:, None] + np.arange(length)]
                which = which[np.lexsort(rows.T[::-1])]
            pieces.append(which)
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)

    def first_of_each(self) -> Array:
        """Positions of the distinct features in canonical order, the first of equal ones."""
        order = self._order()
        same = np.zeros(len(order), dtype=bool)
        lengths = self.lengths[order]
        for length in np.unique(lengths):
            at = np.flatnonzero(lengths == length)
            rows = self.literals[self.start[order[at]][:, None] + np.arange(length)]
            same[at[1:]] = (rows[1:] == rows[:-1]).all(axis=1)
        return order[~same]

    def canonical(self) -> FeatureSet:
        """Each feature once, by length, then by literals."""
        return self.subset(self.first_of_each())

    def _joined(self, other: FeatureSet) -> FeatureSet:
        if other.domain != self.domain:
            raise FeatureError("the two feature sets are over different domains")
        start = np.concatenate([self.start, self.start[-1] + other.start[1:]])
        return FeatureSet(self.domain, start, np.concatenate([self.literals, other.literals]))

    def union(self, other: FeatureSet) -> FeatureSet:
        """The features of either, each once."""
        return self._joined(other).canonical()

    def difference(self, other: FeatureSet) -> FeatureSet:
        """The features of this set that the other does not have, each once."""
        both = other._joined(self).first_of_each()  # an equal feature of `other` comes first
        return self.subset(both[both >= len(other)] - len(other))

    def support(self, data: Dataset) -> Array:
        """In how many rows each feature is true, weights counted."""
        if data.domain != self.domain:
            raise FeatureError("the features and the table have different domains")
        table = data.distinct
        plain = bool((table.weights == 1).all())
        out = np.empty(len(self))
        everywhere = np.packbits(np.ones(len(table), dtype=bool), bitorder="little")
        full = np.zeros(table.columns.shape[1] * 8, dtype=np.uint8)
        full[: len(everywhere)] = everywhere
        n = self.domain.n_literals
        for j, row in enumerate(self):
            bits = full.view(np.uint64)
            for literal in row:
                column = table.columns[literal % n]
                bits = bits & (column if literal < n else ~column)
            out[j] = count(bits) if plain else table.weights[unpack(bits, len(table))].sum()
        return out
