"""Marginals for many rows of evidence at once: each distinct row once, exactly where that is cheap, by Gibbs sampling elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from undirected.errors import ParameterError
from undirected.inference.problem import TRIES, Problem
from undirected.kernels import backend
from undirected.kernels.types import Array

EXACT_CELLS = 1 << 14  # table cells a row may take: then elimination is cheaper than a thousand sweeps
BATCH_BYTES = 64 << 20
TABLE_BYTES = 512 << 20  # marginals held at a time
WARMEST = 0.05  # inverse temperature at the start of burn-in
PRIOR = 0.01  # sweeps' worth of even odds, so that a state no chain has seen is not impossible


def distinct_rows(marks: Array) -> tuple[Array, Array]:
    """Each row of evidence once, sorted, and where each given row is among them."""
    _, first, place = np.unique(np.packbits(marks, axis=1), axis=0, return_index=True, return_inverse=True)
    return np.ascontiguousarray(marks[first]), place.ravel()


def batches(n: int, width: int) -> list[Array]:
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


def row_marginals(
    problem: Problem,
    marks: Array,
    *,
    method: str = "auto",
    burn_in: int = 100,
    sweeps: int = 1000,
    exact_cells: float = EXACT_CELLS,
    progress: Callable[[int, int], None] | None = None,
) -> RowMarginals:
    """Marginals under each row of evidence (marks by literal). ``method`` is ``auto``, ``exact`` or ``gibbs``."""
    distinct, place = distinct_rows(marks)  # sorted, so that rows that are alike share a block of chains
    n, width = distinct.shape
    p = np.full((n, width), np.nan)
    if method != "gibbs":
        limit = problem.max_cells / problem.threads if method == "exact" else min(exact_cells, problem.max_cells / problem.threads)
        tries = TRIES if method == "exact" else 1
        for rows in np.array_split(np.arange(n), max(1, -(-n * width * 8 // BATCH_BYTES))):
            p[rows], log_z = problem.model.solve(np.ascontiguousarray(distinct[rows]), limit, tries, problem.seed, problem.threads)
            for value in log_z[np.isfinite(log_z)] if np.isfinite(problem.hard) else ():
                problem.check_possible(float(value) + problem.constant)
            if progress is not None:
                progress(int(rows[-1]) + 1 if len(rows) else 0, n)
        if method == "exact" and np.isnan(p).any():
            bad = int(np.isnan(p).any(axis=1).argmax())
            problem.under(distinct[bad]).require_exact("exact inference")
            raise ParameterError("exact inference for many rows at once does not fit into memory; use fewer threads or more memory")
    missing = np.isnan(p)
    exact = np.asarray(~missing.any(axis=1))
    todo = np.flatnonzero(~exact)
    a, b = (p.copy(), p.copy()) if len(todo) else (p, p)
    for k, rows in enumerate(np.array_split(todo, max(1, -(-len(todo) * width * 32 // BATCH_BYTES)))):
        if len(rows):
            low, high = _sampled(problem, distinct[rows], burn_in, sweeps, k)
            fill = missing[rows]
            a[rows] = np.where(fill, low, a[rows])
            b[rows] = np.where(fill, high, b[rows])
            p[rows] = np.where(fill, (low + high) / 2, p[rows])
        if progress is not None and len(rows):
            progress(int(exact.sum() + np.searchsorted(todo, rows[-1]) + 1), n)
    return RowMarginals(p, (a, b), exact, place)


def _sampled(problem: Problem, marks: Array, burn_in: int, sweeps: int, batch: int) -> tuple[Array, Array]:
    """Two chains a row, each with half of the sweeps."""
    rows = np.repeat(np.arange(len(marks), dtype=np.int32), 2)
    seed = int(np.random.SeedSequence((problem.seed, batch)).generate_state(1)[0])
    states = _random_states(problem, marks[rows], np.random.default_rng(seed))
    order = np.arange(len(problem.domain), dtype=np.int32)
    sampler = backend().module.Sampler(problem.model, np.ascontiguousarray(marks), rows, states, order, seed)
    half = max(1, sweeps // 2)
    warm = np.ones(burn_in, dtype=np.float32)
    warm[: burn_in // 2] = np.geomspace(WARMEST, 1, burn_in // 2)  # from random states: cooled down first, so that fewer get stuck
    sampler.run(burn_in, warm, None, False, False, False, problem.threads)
    sampler.run(half, None, None, True, False, False, problem.threads)
    left = np.add.reduceat(marks, problem.domain.base[:-1], axis=1, dtype=float)
    prior = np.repeat(PRIOR * marks / np.repeat(left, problem.domain.n_states, axis=1), 2, axis=0)
    p = (np.asarray(sampler.sums(), dtype=float) + prior) / (half + PRIOR)
    return p[0::2], p[1::2]


def _random_states(problem: Problem, marks: Array, rng: np.random.Generator) -> Array:
    domain = problem.domain
    states = np.empty((len(marks), len(domain)), dtype=np.int16)
    for v in range(len(domain)):
        keys = rng.random((len(marks), int(domain.n_states[v])))
        states[:, v] = np.argmax(np.where(marks[:, domain.base[v] : domain.base[v + 1]] > 0, keys, -1.0), axis=1)
    return states
