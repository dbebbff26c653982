"""Templates: which weights there are, and where each stands in the designs of the types.

The conditional distribution of an entity's attributes is a softmax whose logits are a product: the entity's row of its type's *design* (a
one, its own attributes, and the sums along each path) times a matrix. Every entry of that matrix is a weight, or zero; weights stand in
several places, once for each end of a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from undirected.errors import ParameterError
from undirected.kernels.types import Array
from undirected.relational.paths import Path, list_paths
from undirected.relational.schema import Schema

TEMPLATES = ("full", "unary")
MAX_ORDER = 6
MAX_WEIGHTS = 20_000_000


@dataclass(frozen=True)
class Block:
    """Columns ``at`` to ``at + last - first`` of a design: the sums along a path of columns ``first`` to ``last`` of its end."""

    path: Path
    at: int
    first: int
    last: int


@dataclass
class Design:
    """What the logits of a type's attributes are made of: column 0 is a one; each block follows.

    ``index[k, a]`` is the weight by which column ``k`` counts for active state ``a``, -1 for none, and ``scale`` how often it counts.
    """

    width: int
    blocks: list[Block]
    index: Array
    scale: Array


@dataclass(frozen=True)
class Family:
    """Weights ``offset`` and on, one for each entry of a matrix: active states of the path's start by those of its end.

    ``kind`` is ``unary``, ``pair`` or ``hidden`` (whose rows are categories of a hidden variable). ``symmetric``: only entries on or above
    the diagonal, row by row. For pairs of attributes of one entity (no steps), entries of different attributes, above the diagonal.
    """

    kind: str
    path: Path
    offset: int
    rows: Array  # active state (or category) of the start, for each weight
    columns: Array  # and of the end


@dataclass
class Templates:
    """All weights of a model on a schema.

    ``hidden`` says how many categories of hidden variables each type has (the first category of each variable not counted).
    ``templates`` is ``full``, or ``unary`` for no pairs of observed attributes.
    """

    schema: Schema
    order: int
    templates: str = "full"
    hidden: Sequence[int] = ()
    families: list[Family] = field(init=False, default_factory=list)
    designs: list[Design] = field(init=False, default_factory=list)
    n_weights: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.templates not in TEMPLATES:
            raise ParameterError(f"templates={self.templates!r} is not known; choose one of {', '.join(TEMPLATES)}")
        if not 0 <= self.order <= MAX_ORDER:
            raise ParameterError(f"order={self.order}: a whole number from 0 to {MAX_ORDER} is needed")
        self.hidden = tuple(self.hidden) or (0,) * len(self.schema)
        self.active = [kind.n_active for kind in self.schema.types]
        self.segments = [np.repeat(np.arange(len(kind.attributes)), kind.attributes.n_states - 1) for kind in self.schema.types]
        self.trees = {name: list_paths(self.schema, name, self.order) for name in self.schema.names}
        self._number_weights()
        self.designs = [self._make_design(k) for k in range(len(self.schema))]

    @property
    def paths(self) -> list[Path]:
        """All paths along which sums may be needed."""
        return [path for tree in self.trees.values() for path in tree]

    def list_candidates(self, name: str) -> list[Path]:
        """The paths by which a hidden variable of a type would be connected: those that end at attributes."""
        return [path for path in self.trees[name] if self.active[self.schema.index(path.end)]]

    def carry(self, other: Templates, weights: Array) -> Array:
        """The weights that ``other`` templates have for the same features, zero for features that are new."""
        out = np.zeros(self.n_weights)
        mine = {(family.kind, family.path): family for family in self.families}
        for family in other.families:
            place = mine.get((family.kind, family.path))
            if place is not None:  # hidden variables that came later stand behind those that were there
                n = min(len(family.rows), len(place.rows))
                out[place.offset : place.offset + n] = weights[family.offset : family.offset + n]
        return out

    def mark_weights(self, states: Sequence[Array]) -> Array:
        """The weights of which one end is an active state that ``states`` marks, in an array for each type."""
        marks = np.zeros(self.n_weights, dtype=bool)
        for family in self.families:
            start, end = (states[self.schema.index(name)] for name in (family.path.start, family.path.end))
            touched = end[family.columns] if family.kind != "unary" else start[family.rows]
            if family.kind == "pair":
                touched = touched | start[family.rows]
            marks[family.offset : family.offset + len(family.rows)] = touched
        return marks

    def hidden_numbers(self, name: str, first: int, last: int) -> Array:
        """The weights of hidden categories ``first`` to ``last`` of a type: categories by active states, one path after another."""
        return np.concatenate([self._hidden[path][first:last] for path in self.list_candidates(name)], axis=1)

    def _number_weights(self) -> None:
        """List the families of weights, one after another."""
        self._pairs: dict[Path, Array] = {}  # for each path between observed attributes the matrix of weights, -1 for none
        self._hidden: dict[Path, Array] = {}
        self._unary = []
        for k, name in enumerate(self.schema.names):
            n = self.active[k]
            self._unary.append(np.arange(self.n_weights, self.n_weights + n))
            self._add("unary", Path(name, (), name), np.arange(n), np.zeros(n, np.int64))
        if self.templates == "full":
            for name in self.schema.names:
                for path in self.trees[name]:
                    if path not in self._pairs:
                        self._number_pairs(path)
        for k, name in enumerate(self.schema.names):
            for path in self.trees[name] if self.hidden[k] else ():
                shape = self.hidden[k], self.active[self.schema.index(path.end)]
                if shape[1]:
                    self._check_size(shape[0] * shape[1])
                    self._hidden[path] = self.n_weights + np.arange(shape[0] * shape[1]).reshape(shape)
                    rows, columns = np.indices(shape).reshape(2, -1)
                    self._add("hidden", path, rows, columns)

    def _number_pairs(self, path: Path) -> None:
        start, end = self.schema.index(path.start), self.schema.index(path.end)
        shape = self.active[start], self.active[end]
        self._check_size(shape[0] * shape[1])
        if not path.steps:
            segment = self.segments[start]
            rows, columns = np.nonzero(np.triu(segment[:, None] != segment[None, :]))
        elif path.is_own_inverse:
            rows, columns = np.triu_indices(shape[0])
        else:
            rows, columns = np.indices(shape).reshape(2, -1)
        numbers = np.full(shape, -1, dtype=np.int64)
        numbers[rows, columns] = self.n_weights + np.arange(len(rows))
        if not path.steps or path.is_own_inverse:
            numbers = np.maximum(numbers, numbers.T)
        self._pairs[path] = numbers
        self._pairs[path.invert()] = numbers.T
        self._add("pair", path, rows, columns)

    def _add(self, kind: str, path: Path, rows: Array, columns: Array) -> None:
        if len(rows):
            self.families.append(Family(kind, path, self.n_weights, rows, columns))
        self.n_weights += len(rows)

    def _check_size(self, n: int) -> None:
        """Raise before so many weights more are too many."""
        if self.n_weights + n > MAX_WEIGHTS:
            raise ParameterError(
                f"order={self.order} makes more than {MAX_WEIGHTS:,} weights; choose a smaller order, or templates='unary'"
            )

    def _make_design(self, place: int) -> Design:
        """The columns of a type's design and the weights in it."""
        n, name = self.active[place], self.schema.names[place]
        index, scale = [self._unary[place][None, :]], [np.ones((1, n))]
        blocks: list[Block] = []
        width = 1
        for path in self.trees[name] if n else ():
            end = self.schema.index(path.end)
            seen = self._pairs.get(path)
            back = self._hidden.get(path.invert())
            first = 0 if seen is not None else self.active[end]
            last = self.active[end] + (self.hidden[end] if back is not None else 0)
            if last <= first:
                continue
            parts = [part for part in (None if seen is None else seen.T, back) if part is not None]
            index.append(np.concatenate(parts))
            scale.append(np.ones((last - first, n)))
            if seen is not None and path.steps and path.is_own_inverse:
                scale[-1][np.arange(n), np.arange(n)] = 2
            blocks.append(Block(path, width, first, last))
            width += last - first
        return Design(width, blocks, np.concatenate(index), np.concatenate(scale))
