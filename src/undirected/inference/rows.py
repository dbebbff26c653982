"""Marginals for many rows of evidence at once: each distinct row once, exactly where that is cheap, by Gibbs sampling elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.data.literals import get_slice
from undirected.errors import ParameterError
from undirected.inference.junction_tree import TRIES, count_cells
from undirected.inference.protocols import Sampler
from undirected.inference.reduced import ReducedNetwork
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import Counted, Work

EXACT_CELLS = 1 << 14  # table cells a row may take: then elimination is cheaper than a thousand sweeps
BATCH_BYTES = 64 << 20
TABLE_BYTES = 512 << 20  # marginals held at a time
WARMEST = 0.05  # inverse temperature at the start of burn-in
PRIOR = 0.01  # sweeps' worth of even odds, so that a state no chain has seen is not impossible
WHAT = "rows answered"  # in events


def find_distinct(marks: Array) -> tuple[Array, Array]:
    """Each row of evidence once, sorted, and where each given row is among them."""
    _, first, place = np.unique(np.packbits(marks, axis=1), axis=0, return_index=True, return_inverse=True)
    return np.ascontiguousarray(marks[first]), place.ravel()


def cut_rows(n: int, width: int) -> list[Array]:
    """Row numbers in consecutive pieces, such that marginals of ``width`` literals for each of a piece's rows take bounded memory."""
    return np.array_split(np.arange(n), max(1, -(-n * width * 40 // TABLE_BYTES)))


@dataclass
class RowMarginals:
    """By distinct row of evidence: marginals ``[rows][literals]``, the same from two halves of the chains (equal where exact), whether
    exact; ``place`` is where each given row is among the distinct ones."""

    marginals: Array
    halves: tuple[Array, Array]
    exact: Array
    place: Array


def find_row_marginals(
    reduced: ReducedNetwork,
    marks: Array,
    work: Work,
    *,
    method: str = "auto",
    burn_in: int = 100,
    sweeps: int = 1000,
    exact_cells: float = EXACT_CELLS,
) -> RowMarginals:
    """Marginals under each row of evidence (marks by literal). ``method`` is ``auto``, ``exact`` or ``gibbs``.

    Events count the distinct rows that are done.
    """
    distinct, place = find_distinct(marks)  # sorted, so that rows that are alike share a block of chains
    n, width = distinct.shape
    p = np.full((n, width), np.nan)
    if method != "gibbs":
        _solve_rows(reduced, distinct, work, p, method == "exact", exact_cells)
    missing = np.isnan(p)
    exact = np.asarray(~missing.any(axis=1))
    todo = np.flatnonzero(~exact)
    a, b = (p.copy(), p.copy()) if len(todo) else (p, p)
    for k, rows in enumerate(np.array_split(todo, max(1, -(-len(todo) * width * 32 // BATCH_BYTES)))):
        if len(rows):
            low, high = _sample_rows(reduced, distinct[rows], work, burn_in, sweeps, k)
            fill = missing[rows]
            a[rows] = np.where(fill, low, a[rows])
            b[rows] = np.where(fill, high, b[rows])
            p[rows] = np.where(fill, (low + high) / 2, p[rows])
            work.emit(Counted(WHAT, int(exact.sum() + np.searchsorted(todo, rows[-1]) + 1), n))
    return RowMarginals(p, (a, b), exact, place)


def _solve_rows(reduced: ReducedNetwork, distinct: Array, work: Work, out: Array, must: bool, exact_cells: float) -> None:
    """Fill in the marginals of rows that can be answered exactly; NaN stays elsewhere, and is an error where exact answers are a must."""
    n, width = distinct.shape
    fitting = count_cells(work) / work.threads
    limit, tries = (fitting, TRIES) if must else (min(exact_cells, fitting), 1)
    for rows in np.array_split(np.arange(n), max(1, -(-n * width * 8 // BATCH_BYTES))):
        out[rows], log_z = reduced.model.solve(np.ascontiguousarray(distinct[rows]), limit, tries, work.seed, work.threads)
        for value in log_z[np.isfinite(log_z)] if reduced.rules is not None else ():
            reduced.check_possible(float(value) + reduced.constant)
        work.emit(Counted(WHAT, int(rows[-1]) + 1 if len(rows) else 0, n))
    if must and np.isnan(out).any():
        reduced.under(distinct[int(np.isnan(out).any(axis=1).argmax())]).plan_exact("exact inference", work)
        raise ParameterError("exact inference for many rows at once does not fit into memory; use fewer threads or more memory")


def _sample_rows(reduced: ReducedNetwork, marks: Array, work: Work, burn_in: int, sweeps: int, batch: int) -> tuple[Array, Array]:
    """Marginals from two chains a row, each with half of the sweeps."""
    domain = reduced.domain
    rows = np.repeat(np.arange(len(marks), dtype=np.int32), 2)
    seed = int(np.random.SeedSequence((work.seed, batch)).generate_state(1)[0])
    first = _draw_first(reduced, marks[rows], np.random.default_rng(seed))
    order = np.arange(len(domain), dtype=np.int32)
    sampler: Sampler = backend().module.Sampler(reduced.model, np.ascontiguousarray(marks), rows, first, order, seed)
    half = max(1, sweeps // 2)
    warm = np.ones(burn_in, dtype=np.float32)
    warm[: burn_in // 2] = np.geomspace(WARMEST, 1, burn_in // 2)  # from random assignments: cooled down first, so that fewer get stuck
    sampler.run(burn_in, warm, None, False, False, False, work.threads)
    sampler.run(half, None, None, True, False, False, work.threads)
    left = np.add.reduceat(marks, domain.base[:-1], axis=1, dtype=float)
    prior = np.repeat(PRIOR * marks / np.repeat(left, domain.n_states, axis=1), 2, axis=0)
    p = (np.asarray(sampler.sums(), dtype=float) + prior) / (half + PRIOR)
    return p[0::2], p[1::2]


def _draw_first(reduced: ReducedNetwork, marks: Array, rng: np.random.Generator) -> Array:
    """A random assignment for each row of evidence."""
    domain = reduced.domain
    out = np.empty((len(marks), len(domain)), dtype=np.int16)
    for v in range(len(domain)):
        keys = rng.random((len(marks), int(domain.n_states[v])))
        out[:, v] = np.argmax(np.where(marks[:, get_slice(domain, v)] > 0, keys, -1.0), axis=1)
    return out
