"""Enumeration of all assignments: the oracle that other engines are held against."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from undirected.data.literals import get_slice, get_state, get_variable, split_literals
from undirected.errors import ParameterError
from undirected.inference.reduced import ReducedNetwork
from undirected.kernels.types import Array

MAX_ASSIGNMENTS = 1 << 20
FEW_ASSIGNMENTS = 50_000  # up to which a plain product is the quicker way to list them


@dataclass
class Enumerated:
    """Every assignment that evidence leaves, as codes, with its log-probability (not normalised)."""

    assignments: Array
    scores: Array

    @property
    def log_z(self) -> float:
        """The log partition function."""
        top = float(self.scores.max())
        return top + float(np.log(np.exp(self.scores - top).sum()))

    @property
    def probabilities(self) -> Array:
        """The probability of each assignment."""
        p = np.exp(self.scores - self.scores.max())
        return np.asarray(p / p.sum())


def enumerate_assignments(reduced: ReducedNetwork) -> Enumerated:
    """Score all assignments one by one; up to a million of them."""
    domain, allowed = reduced.domain, reduced.given.allowed
    choices = [np.flatnonzero(allowed[get_slice(domain, v)]) for v in range(len(domain))]
    n = float(np.prod([float(len(c)) for c in choices]))
    if n > MAX_ASSIGNMENTS:
        raise ParameterError(f"enumeration of {n:.3g} states is too much (up to {MAX_ASSIGNMENTS:,}); choose junction-tree or gibbs")
    if n < FEW_ASSIGNMENTS:
        rows = np.array(list(itertools.product(*choices)), dtype=np.int16).reshape(int(n), len(domain))
    else:
        rows = np.stack([grid.ravel() for grid in np.meshgrid(*choices, indexing="ij")], axis=1).astype(np.int16)
    scores = np.full(len(rows), reduced.constant)
    weights = np.clip(reduced.network.weights, -reduced.hard, reduced.hard)
    for literals, weight in zip(reduced.network.features, weights, strict=True):
        holds = np.ones(len(rows), dtype=bool)
        for v, state, is_negated in split_literals(domain, literals):
            holds &= (rows[:, v] == state) != is_negated
        scores[holds] += weight
    for literal, value in reduced.given.likelihood.items():
        scores[rows[:, get_variable(domain, literal)] == get_state(domain, literal)] += value
    found = Enumerated(rows, scores)
    reduced.check_possible(found.log_z)
    return found


def find_marginals(reduced: ReducedNetwork) -> tuple[Array, float]:
    """Marginals by literal, and the log partition function."""
    found = enumerate_assignments(reduced)
    p, domain = found.probabilities, reduced.domain
    out = np.zeros(domain.n_literals)
    for v in range(len(domain)):
        out[get_slice(domain, v)] = np.bincount(found.assignments[:, v], weights=p, minlength=int(domain.n_states[v]))
    return out, found.log_z
