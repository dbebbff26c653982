"""Sums along paths: for each entity, the attributes of the entities that a path leads to, added up.

A path is cut in two. Its first steps out name one entity each, so they are a lookup. What is left begins with a step in, a *reach*: for
each entity of the type where it begins, the entities where it ends, as a sparse matrix of zeros and ones. Many paths share a reach. So
no matrix over pairs of links is built for paths such as ``pair -a-> nation <-a- pair``: their reach is ``nation <-a- pair``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from undirected.errors import DataError
from undirected.kernels.types import Array
from undirected.relational.data import RelationalData
from undirected.relational.paths import OUT, TWIN, Path, Step

BYTES_PER_ENTRY = 9  # of a sparse matrix and its transposed: a row number and a share of a mark


@dataclass(frozen=True)
class Lookup:
    """How a path's sums are found for the entities of its start: row ``rows[e]`` of the sums of reach ``reach`` (-1 for none; no ``rows``
    for the entity itself), less the entity's own attributes where ``own`` says that the path leads back to it."""

    reach: int
    rows: Array | None
    own: Array | None


@dataclass(frozen=True)
class Reach:
    """The entities of type ``source`` that each entity of type ``start`` reaches; without a ``matrix``, each reaches itself."""

    start: int
    source: int
    matrix: sp.csr_matrix | None


class Wiring:
    """The reaches of some paths over some data, shared among the paths."""

    def __init__(self, data: RelationalData, paths: Sequence[Path], memory: int = 2 << 30) -> None:
        self.data, self.memory = data, memory
        self.reaches: list[Reach] = []
        self._places: dict[tuple[str, tuple[Step, ...]], int] = {}
        self._used = 0
        self.lookups = {path: self._find_lookup(path) for path in dict.fromkeys(paths)}

    def add_up(self, values: Sequence[Array], path: Path, first: int = 0, last: int | None = None) -> Array:
        """The sums along a path of columns ``first`` to ``last`` of ``values``, an array for each type."""
        lookup = self.lookups[path]
        matrix = self.reaches[lookup.reach].matrix
        end = values[self.data.schema.index(path.end)][:, first:last]
        sums = end if matrix is None else matrix @ end
        if lookup.rows is not None:
            sums = np.where((lookup.rows >= 0)[:, None], sums[lookup.rows], 0) if len(sums) else np.zeros((len(lookup.rows), end.shape[1]))
        return sums if lookup.own is None else sums - lookup.own[:, None] * end

    def _find_lookup(self, path: Path) -> Lookup:
        """Follow the steps out, and share or build the reach of the rest."""
        schema, steps = self.data.schema, list(path.steps)
        rows: Array | None = None
        here = path.start
        while steps and steps[0].way == OUT:
            step = steps.pop(0)
            named = self.data[step.type].arguments[:, step.argument]
            rows = named if rows is None else _follow(named, rows)
            here = schema[step.type].arguments[step.argument].target
        if steps and steps[0].way == TWIN:
            twins = self._find_twins(steps[0].type)
            if twins is not None:
                rows, steps = twins, []
        place = self._share_reach(here, tuple(steps), path.end)
        if path.start != path.end or not path.steps:
            return Lookup(place, rows, None)
        return self._leave_out_own(place, rows, len(self.data[path.start]))

    def _leave_out_own(self, place: int, rows: Array | None, n: int) -> Lookup:
        """An entity is not among those that a path leads to from it."""
        matrix = self.reaches[place].matrix
        each = np.arange(n)
        if matrix is None:
            assert rows is not None
            return Lookup(place, np.where(rows == each, -1, rows).astype(np.int32), None)
        start = each if rows is None else rows
        own = start >= 0
        if own.any():
            own[own] = np.asarray(matrix[start[own], each[own]]).ravel() > 0
        return Lookup(place, rows, own if own.any() else None)

    def _number_pairs(self, kind: str) -> tuple[Array, Array]:
        """A number for the pair (a, b) of each entity, and that of (b, a); -1 where an argument is missing."""
        table = self.data[kind]
        first, second = table.arguments.T.astype(np.int64)
        n = np.int64(len(self.data[table.type.arguments[0].target]))
        whole = (first >= 0) & (second >= 0)
        return np.where(whole, first * n + second, -1), np.where(whole, second * n + first, -1)

    def _find_twins(self, kind: str) -> Array | None:
        """For each pair (a, b) the row of (b, a), or None where pairs repeat, so that there may be several."""
        pairs, turned = self._number_pairs(kind)
        order = np.argsort(pairs, kind="stable")
        ordered = pairs[order]
        if ((np.diff(ordered) == 0) & (ordered[1:] >= 0)).any():
            return None
        if not len(ordered):
            return np.zeros(0, np.int32)
        at = np.minimum(np.searchsorted(ordered, turned), len(ordered) - 1)
        return np.where((ordered[at] == turned) & (turned >= 0), order[at], -1).astype(np.int32)

    def _share_reach(self, start: str, steps: tuple[Step, ...], end: str) -> int:
        key = (start, steps)
        if key not in self._places:
            schema = self.data.schema
            matrix = self._build_reach(start, steps) if steps else None
            self._places[key] = len(self.reaches)
            self.reaches.append(Reach(schema.index(start), schema.index(end), matrix))
        return self._places[key]

    def _build_reach(self, start: str, steps: tuple[Step, ...]) -> sp.csr_matrix:
        """The zeros and ones of a path, the last steps first; two ways to one entity count once."""
        matrix: sp.csr_matrix | None = None
        for step in reversed(steps):
            relation = self._build_step(step)
            if matrix is None:
                matrix = relation
                continue
            self._check_memory(relation, matrix, start, steps)
            matrix = (relation @ matrix).tocsr()
            matrix.data[:] = 1
        assert matrix is not None
        matrix.sort_indices()
        self._used += matrix.nnz * BYTES_PER_ENTRY
        return matrix

    def _build_step(self, step: Step) -> sp.csr_matrix:
        """The zeros and ones of one relation."""
        table = self.data[step.type]
        n = len(table)
        if step.way == TWIN:
            pairs, turned = self._number_pairs(step.type)
            numbers, place = np.unique(np.concatenate([pairs, turned]), return_inverse=True)
            whole, shape = (pairs >= 0).astype(np.float32), (n, len(numbers))
            is_pair, is_turned = (sp.csr_matrix((whole, (np.arange(n), at)), shape=shape) for at in (place[:n], place[n:]))
            twins = (is_turned @ is_pair.T).tocsr()
            twins.eliminate_zeros()
            return twins
        target = table.type.arguments[step.argument].target
        named = table.arguments[:, step.argument]
        kept = np.flatnonzero(named >= 0)
        out = sp.csr_matrix((np.ones(len(kept), np.float32), (kept, named[kept])), shape=(n, len(self.data[target])))
        return out if step.way == OUT else out.T.tocsr()

    def _check_memory(self, left: sp.csr_matrix, right: sp.csr_matrix, start: str, steps: tuple[Step, ...]) -> None:
        """Raise before a product that would not fit."""
        products = int(np.diff(left.tocsc().indptr).astype(np.int64) @ np.diff(right.indptr).astype(np.int64))
        most = min(products, left.shape[0] * right.shape[1])
        ways = Path(start, steps, "").write(self.data.schema)
        self.check_room(most * BYTES_PER_ENTRY, f"the path {ways} leads to as many as {most:,} pairs of entities")

    def check_room(self, n_bytes: int, what: str) -> None:
        """Raise where there is no room for so many bytes beside the reaches."""
        if self._used + n_bytes > self.memory:
            raise DataError(
                f"{self.data.source}: {what}, more than fit into {self.memory / (1 << 30):.1f} GiB; choose a smaller order or allow more "
                "memory"
            )


def _follow(named: Array, rows: Array) -> Array:
    """The entities that those in ``rows`` name, -1 where there is none."""
    return np.where(rows >= 0, named[rows], -1).astype(np.int32) if len(named) else np.full(len(rows), -1, np.int32)
