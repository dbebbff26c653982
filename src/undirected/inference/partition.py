"""The partition function: exactly, or by annealed importance sampling from both ends.

Forward runs start from an independent distribution whose partition function is known and are led to the network in small steps;
the mean of their log weights is, up to chance, a lower bound. Reverse runs start from states of the network and are led back; they
give an upper bound in the same sense, as far as those states are truly drawn from the network (exact samples where the network
allows them; else chains of Gibbs sampling, whose upper bound is only as good as their mixing). The gap between the two is shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.readers import read_data
from undirected.errors import ParameterError
from undirected.inference import belief_propagation, junction_tree
from undirected.inference import mean_field as mean_field_engine
from undirected.inference.engine import check_method
from undirected.inference.evidence import Evidence
from undirected.inference.gibbs import make_sampler
from undirected.inference.problem import TRIES, Problem
from undirected.kernels.types import Array
from undirected.network.network import MEMORY

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

METHODS = ("auto", "exact", "ais", "bp", "trw", "mean-field")


@dataclass
class LogPartition:
    """log Z: a value with bounds (equal to it where exact) and a standard error."""

    value: float
    lower: float
    upper: float
    standard_error: float
    method: str
    exact: bool
    seconds: float

    def __float__(self) -> float:
        return self.value

    @property
    def gap(self) -> float:
        """Between the bounds; small if the estimate can be trusted."""
        return self.upper - self.lower

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __str__(self) -> str:
        trust = "exact" if self.exact else f"between {self.lower:.4f} and {self.upper:.4f}, standard error {self.standard_error:.2g}"
        return f"{self.value:.6f} ({self.method}: {trust}; {self.seconds:.2g} s)"


def log_partition(
    network: MarkovNetwork,
    evidence: Evidence = None,
    method: str = "auto",
    *,
    chains: int = 256,
    steps: int = 2000,
    data: Any = None,
    memory: int = MEMORY,
    threads: int | None = None,
    seed: int = 0,
) -> LogPartition:
    """See `MarkovNetwork.log_partition`."""
    began = time.monotonic()
    check_method(method, METHODS)
    if chains < 2 or steps < 1:
        raise ParameterError(f"chains={chains}, steps={steps}: at least 2 and 1")
    problem = Problem(network, evidence, memory, threads, seed)
    problem.check_feasible()
    if method in ("auto", "exact"):
        limit = problem.max_cells if method == "exact" else problem.cheap_cells()
        if method == "exact":
            problem.require_exact("the exact partition function")
        value = junction_tree.marginals(problem, limit)[1]
        if np.isfinite(value):
            return LogPartition(value, value, value, 0.0, "exact", True, time.monotonic() - began)
    if method in ("auto", "ais"):
        rows = None if data is None else read_data(data, domain=network.domain).codes
        lower, upper, value, error = annealed(problem, chains, steps, rows)
        return LogPartition(value, lower, upper, error, "ais", False, time.monotonic() - began)
    if method == "mean-field":
        value = mean_field_engine.mean_field(problem).log_z
        return LogPartition(value, value, np.inf, np.nan, method, False, time.monotonic() - began)
    found = belief_propagation.propagate(problem, reweighted=method == "trw")
    upper = found.log_z if method == "trw" and found.converged else np.inf
    return LogPartition(found.log_z, -np.inf, upper, np.nan, method, False, time.monotonic() - began)


def annealed(problem: Problem, chains: int, steps: int, data: Array | None = None) -> tuple[float, float, float, float]:
    """Lower and upper bound, estimate and its standard error, by forward and reverse annealing."""
    rng = np.random.default_rng(problem.seed)
    reference, first = _independent(problem, chains, rng)
    beta = _schedule(steps)
    forward = make_sampler(problem, first)
    forward.run(len(beta), beta, reference, False, True, False, problem.threads)
    log_w = np.asarray(forward.log_weights())
    top = log_w.max()
    weights = np.exp(log_w - top)
    value = float(top + np.log(weights.mean()))
    error = float(weights.std(ddof=1) / weights.mean() / np.sqrt(chains))
    back = make_sampler(problem, _from_network(problem, chains, rng, data))
    down = np.ascontiguousarray(beta[::-1])
    # A run at beta 1 sets the place from which the way back is counted; its own weight is taken out again.
    back.run(1, np.ones(1, dtype=np.float32), reference, False, True, False, problem.threads)
    offset = np.asarray(back.log_weights())
    back.run(len(down), down, reference, False, True, False, problem.threads)
    back.run(1, np.zeros(1, dtype=np.float32), reference, False, True, False, problem.threads)
    reverse = offset - np.asarray(back.log_weights())
    constant = problem.constant
    return float(log_w.mean()) + constant, float(reverse.mean()) + constant, value + constant, error


def _schedule(steps: int) -> Array:
    """Inverse temperatures that rise slowly at both ends, where most is lost."""
    x = 1 / (1 + np.exp(-6 * np.linspace(-1, 1, steps + 1)))
    return np.asarray((x[1:] - x[0]) / (x[-1] - x[0]), dtype=np.float32)


def _independent(problem: Problem, chains: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """A normalised independent distribution near the network's: logarithms by literal, and samples of it."""
    domain, allowed = problem.domain, problem.given.allowed
    sampler = make_sampler(problem, problem.random_states(64, rng))
    sampler.run(20, None, None, False, False, False, problem.threads)
    sampler.run(30, None, None, True, False, False, problem.threads)
    means = np.asarray(sampler.sums()).mean(axis=0) / 30
    logits = np.full(domain.n_literals, -1e30, dtype=np.float32)
    states = np.empty((chains, len(domain)), dtype=np.int16)
    for v in range(len(domain)):
        mine = np.arange(domain.base[v], domain.base[v + 1])[allowed[domain.base[v] : domain.base[v + 1]] > 0]
        p = np.maximum(means[mine], 0) + 0.02 if len(mine) > 1 else np.ones(1)
        logits[mine] = np.log(p / p.sum())
        logits[mine] -= np.log(np.exp(logits[mine].astype(float)).sum())
        states[:, v] = rng.choice(mine, chains, p=p / p.sum()) - domain.base[v]
    return logits, states


def _from_network(problem: Problem, chains: int, rng: np.random.Generator, data: Array | None) -> Array:
    states = np.array(problem.model.draw(problem.evidence, chains, problem.max_cells / 4, TRIES, problem.seed, problem.threads))
    if (states >= 0).all():
        return states
    first = problem.random_states(chains, rng) if data is None else problem.fitted(data[rng.integers(len(data), size=chains)], rng)
    sampler = make_sampler(problem, first)
    sampler.run(1000, None, None, False, False, False, problem.threads)
    return np.asarray(sampler.states())


@dataclass
class LogLikelihood:
    """The mean log-likelihood of rows, with the error that log Z brings in."""

    value: float
    standard_error: float
    partition: LogPartition


def log_likelihood(network: MarkovNetwork, data: Any, **options: Any) -> LogLikelihood:
    """The mean over rows of log P(row), by `log_partition` with the same options."""
    table = read_data(data, domain=network.domain)
    table.require_complete("scoring")
    found = log_partition(network, data=table if "data" not in options else options.pop("data"), **options)
    distinct = table.distinct
    hard = np.isinf(network.weights)
    scores = type(network)(network.features.subset(~hard), network.weights[~hard]).log_score(distinct)
    if hard.any():
        rules = type(network)(network.features.subset(hard), np.sign(network.weights[hard]))
        scores[rules.log_score(distinct) < (network.weights == np.inf).sum()] = -np.inf  # a row that breaks a rule
    return LogLikelihood(float(np.average(scores, weights=distinct.weights)) - found.value, found.standard_error, found)
