"""Exact answers by summing out variables one after the other, with the cheapest of several greedy orders."""

from __future__ import annotations

import numpy as np

from undirected.inference.problem import TRIES, Problem
from undirected.kernels.types import Array


def marginals(problem: Problem, max_cells: float | None = None) -> tuple[Array, float]:
    """Marginals by literal and the log partition function; NaN for parts that need more than ``max_cells`` table cells."""
    limit = problem.max_cells if max_cells is None else max_cells
    found, log_z = problem.model.solve(problem.evidence, limit, TRIES, problem.seed, problem.threads)
    total = float(log_z[0]) + problem.constant
    if np.isfinite(total):
        problem.check_possible(total)
    return np.asarray(found[0]), total


def expectations(problem: Problem) -> Array:
    """The probability of each feature of the network."""
    problem.require_exact("exact inference")
    problem.check_feasible(problem.max_cells)
    found = problem.model.expectations(problem.evidence, problem.max_cells, TRIES, problem.seed)
    return np.asarray(found[: len(problem.network.features)])


def draw(problem: Problem, n: int) -> Array:
    """Exact samples as codes, -1 for parts that are too expensive."""
    return np.asarray(problem.model.draw(problem.evidence, n, problem.max_cells, TRIES, problem.seed, problem.threads))
