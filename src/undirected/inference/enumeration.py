"""Enumeration of all states: the oracle that other engines are held against."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from undirected.errors import ParameterError
from undirected.inference.problem import Problem
from undirected.kernels.types import Array

MAX_STATES = 1 << 20


@dataclass
class Enumerated:
    """Every state that evidence leaves, as codes, with its log-probability (not normalised)."""

    states: Array
    scores: Array

    @property
    def log_z(self) -> float:
        top = float(self.scores.max())
        return top + float(np.log(np.exp(self.scores - top).sum()))

    @property
    def probabilities(self) -> Array:
        p = np.exp(self.scores - self.scores.max())
        return np.asarray(p / p.sum())


def enumerate_states(problem: Problem) -> Enumerated:
    """Score all states one by one; up to a million of them."""
    domain, allowed = problem.domain, problem.given.allowed
    choices = [np.flatnonzero(allowed[domain.base[v] : domain.base[v + 1]]) for v in range(len(domain))]
    n = float(np.prod([float(len(c)) for c in choices]))
    if n > MAX_STATES:
        raise ParameterError(f"enumeration of {n:.3g} states is too much (up to {MAX_STATES:,}); choose junction-tree or gibbs")
    if n < 50_000:
        states = np.array(list(itertools.product(*choices)), dtype=np.int16).reshape(int(n), len(domain))
    else:
        states = np.stack([grid.ravel() for grid in np.meshgrid(*choices, indexing="ij")], axis=1).astype(np.int16)
    scores = np.full(len(states), problem.constant)
    features, weights = problem.network.features, np.clip(problem.network.weights, -problem.hard, problem.hard)
    n_literals = domain.n_literals
    for row, weight in zip(features, weights, strict=True):
        holds = np.ones(len(states), dtype=bool)
        for literal in row:
            v = int(domain.literal_variable[literal % n_literals])
            holds &= (states[:, v] == literal % n_literals - domain.base[v]) == (literal < n_literals)
        scores[holds] += weight
    for literal, value in problem.given.likelihood.items():
        v = int(domain.literal_variable[literal])
        scores[states[:, v] == literal - domain.base[v]] += value
    found = Enumerated(states, scores)
    problem.check_possible(found.log_z)
    return found


def marginals(problem: Problem) -> tuple[Array, float]:
    """Marginals by literal, and the log partition function."""
    found = enumerate_states(problem)
    p = found.probabilities
    out = np.zeros(problem.domain.n_literals)
    for v in range(len(problem.domain)):
        out[problem.domain.base[v] : problem.domain.base[v + 1]] = np.bincount(
            found.states[:, v], weights=p, minlength=int(problem.domain.n_states[v])
        )
    return out, found.log_z
