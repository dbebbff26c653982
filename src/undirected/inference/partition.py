"""The partition function: exactly, or by annealed importance sampling from both ends.

Forward runs start from an independent distribution whose partition function is known and are led to the network in small steps; the mean
of their weights estimates Z without bias, so that it is far too high with small probability only: less what chance may add, it is a lower
bound, whatever the network. Mean field gives another. Reverse runs start at states of the network and are led back; they give an upper
bound only as far as those states are truly drawn from the network: exact samples where the network allows them; else the ends of Gibbs
chains, which count only if the chains are seen to have mixed and the two ends meet. Tree-reweighted messages that have converged bound
log Z from above without any chance. Where none of these holds, the bound is not known, and says so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.readers import read_data
from undirected.errors import ParameterError, check_work
from undirected.inference import belief_propagation, gibbs, junction_tree
from undirected.inference import mean_field as mean_field_engine
from undirected.inference.engine import check_method, literals_of
from undirected.inference.evidence import Evidence
from undirected.inference.problem import TRIES, Problem
from undirected.inference.starts import make_sampler, run_schedule
from undirected.kernels.types import Array
from undirected.work import MEMORY

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

METHODS = ("auto", "exact", "ais", "bp", "trw", "mean-field")
SIGMAS = 4.0  # standard errors that a bound from a mean stays clear of it
LUCK = float(np.log(1000))  # an estimate without bias is this much too high in one of a thousand cases at most
MEET = 1.0  # nats between the two ends from which reverse runs from Gibbs chains count
TRW_ROUNDS = 100


@dataclass
class LogPartition:
    """log Z: a value with bounds (equal to it where exact, infinite where they are not known) and a standard error (NaN where it is not
    known). ``why`` says what the bounds rest on."""

    value: float
    lower: float
    upper: float
    standard_error: float
    method: str
    exact: bool
    seconds: float
    why: str = ""

    def __float__(self) -> float:
        return self.value

    @property
    def gap(self) -> float:
        """Between the bounds; small if the estimate can be trusted."""
        return self.upper - self.lower

    def to_dict(self) -> dict[str, Any]:
        """The fields; what is not known is None."""
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in self.__dict__.items()}

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:.6f} ({self.method}: exact; {self.seconds:.2g} s)"
        low = f"at least {self.lower:.4f}" if np.isfinite(self.lower) else "no lower bound is known"
        high = f"at most {self.upper:.4f}" if np.isfinite(self.upper) else "no upper bound is known"
        error = f", standard error {self.standard_error:.2g}" if np.isfinite(self.standard_error) else ", error not known"
        return f"{self.value:.6f} ({self.method}: {low}, {high}{error}; {self.seconds:.2g} s). {self.why}".rstrip()


def log_partition(
    network: MarkovNetwork,
    evidence: Evidence = None,
    method: str = "auto",
    *,
    chains: int = 256,
    steps: int = 2000,
    data: Any = None,
    time_budget: float | None = 10.0,
    memory: int = MEMORY,
    threads: int | None = None,
    seed: int = 0,
) -> LogPartition:
    """See `MarkovNetwork.log_partition`."""
    began = time.monotonic()
    check_method(method, METHODS)
    check_work(threads, memory, time_budget, seed)
    if chains < 2 or steps < 1:
        raise ParameterError(f"chains={chains}, steps={steps}: at least 2 and 1")
    problem = Problem(network, evidence, memory, threads, seed)
    problem.check_feasible()
    if method in ("auto", "exact"):
        if method == "exact":
            problem.require_exact("the exact partition function")
        cheap = problem.cheap_cells() if time_budget is None else problem.cheap_cells(time_budget)
        value = junction_tree.marginals(problem, problem.max_cells if method == "exact" else cheap)[1]
        if np.isfinite(value):
            return LogPartition(value, value, value, 0.0, "exact", True, time.monotonic() - began)
    if method in ("auto", "ais"):
        rows = None if data is None else read_data(data, domain=network.domain).codes
        found = annealed(problem, chains, steps, rows, None if time_budget is None else began + time_budget)
    elif method == "mean-field":
        value = mean_field_engine.mean_field(problem).log_z
        found = LogPartition(value, value, np.inf, np.nan, method, False, 0.0, "Mean field is a lower bound.")
    else:
        sent = belief_propagation.propagate(problem, reweighted=method == "trw")
        upper = sent.log_z if method == "trw" and sent.converged else np.inf
        found = LogPartition(sent.log_z, -np.inf, upper, np.nan, method, False, 0.0)
    found.seconds = time.monotonic() - began
    return found


@dataclass
class _Ends:
    """What forward and reverse runs tell: the estimate, its error, a lower bound, and the mean of reverse runs with its error."""

    value: float
    error: float
    lower: float
    reverse: float
    reverse_error: float


def annealed(problem: Problem, chains: int, steps: int, data: Array | None, deadline: float | None) -> LogPartition:
    """log Z by forward and reverse annealing, with more and more steps until the two ends meet or time is up."""
    rng = np.random.default_rng(problem.seed)
    left = np.inf if deadline is None else max(0.5, deadline - time.monotonic())
    states, exact = _from_network(problem, chains, data, min(10.0, left / 3))
    while True:
        began = time.monotonic()
        ends = _both_ways(problem, chains, steps, states, rng, np.inf if deadline is None else deadline)
        gap = abs(ends.reverse - ends.value)
        meets = np.isfinite(gap) and gap <= MEET
        if meets and ends.error <= 0.1:
            break
        if deadline is None or time.monotonic() + 2.2 * (time.monotonic() - began) > deadline:
            break
        steps *= 2
    late = deadline is not None and time.monotonic() > deadline
    lower = ends.lower if late else max(ends.lower, mean_field_engine.mean_field(problem, max_rounds=200).log_z)
    upper, why = _upper(problem, ends, exact, meets, late)
    if upper < lower:  # the ends contradict each other: the way back did not start at the network's own states
        upper, why = np.inf, "The way back contradicts the way there, so no upper bound is known."
    error = ends.error if meets and states is not None else np.nan
    return LogPartition(max(ends.value, lower) if np.isfinite(ends.value) else lower, lower, upper, error, "ais", False, 0.0, why)


def _upper(problem: Problem, ends: _Ends, exact: bool, meets: bool, late: bool) -> tuple[float, str]:
    """An upper bound, infinite if none is known, and what it rests on."""
    if np.isfinite(ends.reverse) and exact:
        return ends.reverse + SIGMAS * ends.reverse_error, "The way back started at exact samples."
    if np.isfinite(ends.reverse) and meets:
        return (
            ends.reverse + SIGMAS * ends.reverse_error + LUCK,
            "The way back started at Gibbs chains that agree with each other, and meets the way there.",
        )
    if problem.rules is None and not late:
        sent = belief_propagation.propagate(problem, reweighted=True, damping=0.5, max_rounds=TRW_ROUNDS)
        if sent.converged:
            return sent.log_z, "The ends of annealing do not meet; the upper bound is that of tree-reweighted messages."
    return np.inf, "The ends of annealing do not meet, so no upper bound is known."


def _both_ways(problem: Problem, chains: int, steps: int, states: Array | None, rng: np.random.Generator, deadline: float) -> _Ends:
    """Forward runs, and reverse ones from states of the network if there are any; fewer steps where time is short."""
    half = deadline - (deadline - time.monotonic()) / 2 if np.isfinite(deadline) else np.inf
    reference, first = _independent(problem, chains, rng)
    beta = _schedule(steps)
    forward = make_sampler(problem, first)
    run_schedule(forward, beta, problem.threads, half, reference, True)
    log_w = np.asarray(forward.log_weights(), dtype=float) + problem.constant
    if problem.rules is not None:
        log_w = np.where(problem.keeps_rules(np.asarray(forward.states())), log_w, -np.inf)  # a broken rule is worth nothing
    top = float(log_w.max())
    if not np.isfinite(top):
        return _Ends(np.nan, np.nan, -np.inf, np.nan, np.nan)
    weights = np.exp(log_w - top)
    value = top + float(np.log(weights.mean()))
    error = float(weights.std(ddof=1) / weights.mean() / np.sqrt(chains))
    lower = value - LUCK
    if np.isfinite(log_w).all():
        lower = max(lower, float(log_w.mean() - SIGMAS * log_w.std(ddof=1) / np.sqrt(chains)))
    reverse = np.full(2, np.nan) if states is None else _reverse(problem, states, beta, reference, deadline)
    deviation = float(reverse.std(ddof=1) / np.sqrt(len(reverse))) if len(reverse) > 1 else np.nan
    return _Ends(value, error, lower, float(reverse.mean()), deviation)


def _reverse(problem: Problem, states: Array, beta: Array, reference: Array, deadline: float) -> Array:
    back = make_sampler(problem, states)
    down = np.ascontiguousarray(beta[::-1])
    # A run at beta 1 sets the place from which the way back is counted; its own weight is taken out again.
    back.run(1, np.ones(1, dtype=np.float32), reference, False, True, False, problem.threads)
    offset = np.asarray(back.log_weights())
    run_schedule(back, down, problem.threads, deadline, reference, True)
    back.run(1, np.zeros(1, dtype=np.float32), reference, False, True, False, problem.threads)
    return np.asarray(offset - np.asarray(back.log_weights()) + problem.constant)


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


def _from_network(problem: Problem, chains: int, data: Array | None, seconds: float) -> tuple[Array | None, bool]:
    """States drawn from the network and whether exactly so; None where Gibbs chains do not mix or rules stand in their way."""
    states = np.array(problem.model.draw(problem.evidence, chains, problem.cheap_cells(seconds), TRIES, problem.seed, problem.threads))
    if (states >= 0).all():
        return states, True
    if problem.rules is not None:
        return None, False
    literals = literals_of(problem, problem.open_variables())
    found = gibbs.marginals(problem, literals, precision=0.02, time_budget=seconds, chains=max(256, chains), data=data)
    assert found.states is not None
    return (np.ascontiguousarray(found.states[:chains]), False) if found.mixed else (None, False)


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
    scores = network.log_score(distinct)
    return LogLikelihood(float(np.average(scores, weights=distinct.weights)) - found.value, found.standard_error, found)
