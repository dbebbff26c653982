"""The partition function: exactly, or by annealed importance sampling from both ends.

Forward runs start from an independent distribution whose partition function is known and are led to the network in small steps; the mean
of their weights estimates Z without bias, so that it is far too high with small probability only: less what chance may add, it is a lower
bound, whatever the network. Mean field gives another. Reverse runs start at assignments of the network and are led back; they give an upper
bound only as far as those are truly drawn from the network: exact samples where the network allows them; else the ends of Gibbs
chains, which count only if the chains are seen to have mixed and the two ends meet. Tree-reweighted messages that have converged bound
log Z from above without any chance. Where none of these holds, the bound is not known, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.data.literals import get_slice, get_state
from undirected.inference import belief_propagation, gibbs, mean_field
from undirected.inference.engine import find_literals
from undirected.inference.gibbs import Sampling
from undirected.inference.junction_tree import count_cheap_cells
from undirected.inference.reduced import ReducedNetwork
from undirected.inference.starts import make_sampler, run_schedule
from undirected.kernels.types import Array
from undirected.work import Work

METHODS = ("auto", "exact", "ais", "bp", "trw", "mean-field")
SIGMAS = 4.0  # standard errors that a bound from a mean stays clear of it
LUCK_MARGIN = float(np.log(1000))  # an estimate without bias is this much too high in one of a thousand cases at most
MEETING_GAP = 1.0  # nats between the two ends up to which reverse runs from Gibbs chains count
GOOD_ERROR = 0.1  # standard error of forward runs that is small enough
TRW_ROUNDS = 100
MAX_DRAW_SECONDS = 10.0  # for assignments of the network, at which reverse runs start
LEAST_SECONDS = 0.5  # that are taken to be left, however late it is


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


def find_log_partition(
    reduced: ReducedNetwork, method: str, work: Work, *, chains: int, steps: int, data: Array | None = None
) -> LogPartition:
    """log Z by one of the methods."""
    may_draw = True
    if method in ("auto", "exact"):
        is_must = method == "exact"
        plan = reduced.plan_exact("the exact partition function", work) if is_must else reduced.plan(count_cheap_cells(work), work)
        may_draw = bool(plan.solvable.all())
        value = reduced.solve(plan)[1] if may_draw else np.nan
        if np.isfinite(value):
            return LogPartition(value, value, value, 0.0, "exact", True, 0.0)
    if method in ("auto", "ais"):
        return anneal(reduced, chains, steps, data, work, may_draw)
    if method == "mean-field":
        value = mean_field.approximate(reduced, work).log_z
        return LogPartition(value, value, np.inf, np.nan, method, False, 0.0, "Mean field is a lower bound.")
    sent = belief_propagation.propagate(reduced, work, reweighted=method == "trw")
    upper = sent.log_z if method == "trw" and sent.converged else np.inf
    return LogPartition(sent.log_z, -np.inf, upper, np.nan, method, False, 0.0)


@dataclass
class _Ends:
    """What forward and reverse runs tell: the estimate, its error, a lower bound, and the mean of reverse runs with its error."""

    value: float
    error: float
    lower: float
    reverse: float
    reverse_error: float


def anneal(reduced: ReducedNetwork, chains: int, steps: int, data: Array | None, work: Work, may_draw: bool = True) -> LogPartition:
    """log Z by forward and reverse annealing, with more and more steps until the two ends meet or time is up.

    ``may_draw`` is False where it is known that exact samples are too dear.
    """
    rng = np.random.default_rng(work.seed)
    seconds = min(MAX_DRAW_SECONDS, max(LEAST_SECONDS, work.left()) / 3)
    drawn, exact = _draw_from_network(reduced, chains, data, work.extend(seconds), may_draw)
    while True:
        began = work.now()
        ends = _run_both_ways(reduced, chains, steps, drawn, rng, work)
        gap = abs(ends.reverse - ends.value)
        meets = bool(np.isfinite(gap) and gap <= MEETING_GAP)
        if (meets and ends.error <= GOOD_ERROR) or not work.limited or 2.2 * (work.now() - began) > work.left():
            break
        steps *= 2
    is_late = work.is_over
    lower = ends.lower if is_late else max(ends.lower, mean_field.approximate(reduced, work, max_rounds=200).log_z)
    upper, why = _bound_above(reduced, ends, exact, meets, work)
    if upper < lower:  # the ends contradict each other: the way back did not start at the network's own assignments
        upper, why = np.inf, "The way back contradicts the way there, so no upper bound is known."
    error = ends.error if meets and drawn is not None else np.nan
    return LogPartition(max(ends.value, lower) if np.isfinite(ends.value) else lower, lower, upper, error, "ais", False, 0.0, why)


def _bound_above(reduced: ReducedNetwork, ends: _Ends, exact: bool, meets: bool, work: Work) -> tuple[float, str]:
    """An upper bound, infinite if none is known, and what it rests on."""
    if np.isfinite(ends.reverse) and exact:
        return ends.reverse + SIGMAS * ends.reverse_error, "The way back started at exact samples."
    if np.isfinite(ends.reverse) and meets:
        return (
            ends.reverse + SIGMAS * ends.reverse_error + LUCK_MARGIN,
            "The way back started at Gibbs chains that agree with each other, and meets the way there.",
        )
    if reduced.rules is None and not work.is_over:
        sent = belief_propagation.propagate(reduced, work, reweighted=True, damping=0.5, max_rounds=TRW_ROUNDS)
        if sent.converged:
            return sent.log_z, "The ends of annealing do not meet; the upper bound is that of tree-reweighted messages."
    return np.inf, "The ends of annealing do not meet, so no upper bound is known."


def _run_both_ways(reduced: ReducedNetwork, chains: int, steps: int, drawn: Array | None, rng: np.random.Generator, work: Work) -> _Ends:
    """Forward runs, and reverse ones from assignments of the network if there are any; fewer steps where time is short."""
    half = work.share(0.5)
    reference, first = _draw_independent(reduced, chains, rng, work)
    beta = _make_schedule(steps)
    forward = make_sampler(reduced, first, work)
    run_schedule(forward, beta, half, reference, True)
    log_w = np.asarray(forward.log_weights(), dtype=float) + reduced.constant
    if reduced.rules is not None:
        log_w = np.where(reduced.keeps_rules(np.asarray(forward.states())), log_w, -np.inf)  # a broken rule is worth nothing
    top = float(log_w.max())
    if not np.isfinite(top):
        return _Ends(np.nan, np.nan, -np.inf, np.nan, np.nan)
    weights = np.exp(log_w - top)
    value = top + float(np.log(weights.mean()))
    error = float(weights.std(ddof=1) / weights.mean() / np.sqrt(chains))
    lower = value - LUCK_MARGIN
    if np.isfinite(log_w).all():
        lower = max(lower, float(log_w.mean() - SIGMAS * log_w.std(ddof=1) / np.sqrt(chains)))
    reverse = np.full(2, np.nan) if drawn is None else _run_back(reduced, drawn, beta, reference, work)
    deviation = float(reverse.std(ddof=1) / np.sqrt(len(reverse))) if len(reverse) > 1 else np.nan
    return _Ends(value, error, lower, float(reverse.mean()), deviation)


def _run_back(reduced: ReducedNetwork, drawn: Array, beta: Array, reference: Array, work: Work) -> Array:
    """Estimates of log Z from runs that lead assignments of the network back to the independent distribution."""
    back = make_sampler(reduced, drawn, work)
    down = np.ascontiguousarray(beta[::-1])
    # A run at beta 1 sets the place from which the way back is counted; its own weight is taken out again.
    back.run(1, np.ones(1, dtype=np.float32), reference, False, True, False, work.threads)
    offset = np.asarray(back.log_weights())
    run_schedule(back, down, work, reference, True)
    back.run(1, np.zeros(1, dtype=np.float32), reference, False, True, False, work.threads)
    return np.asarray(offset - np.asarray(back.log_weights()) + reduced.constant)


def _make_schedule(steps: int) -> Array:
    """Inverse temperatures that rise slowly at both ends, where most is lost."""
    x = 1 / (1 + np.exp(-6 * np.linspace(-1, 1, steps + 1)))
    return np.asarray((x[1:] - x[0]) / (x[-1] - x[0]), dtype=np.float32)


def _draw_independent(reduced: ReducedNetwork, chains: int, rng: np.random.Generator, work: Work) -> tuple[Array, Array]:
    """A normalised independent distribution near the network's: logarithms by literal, and samples of it."""
    domain, allowed = reduced.domain, reduced.given.allowed
    sampler = make_sampler(reduced, reduced.draw_assignments(64, rng), work)
    sampler.run(20, None, None, False, False, False, work.threads)
    sampler.run(30, None, None, True, False, False, work.threads)
    means = np.asarray(sampler.sums()).mean(axis=0) / 30
    logits = np.full(domain.n_literals, -1e30, dtype=np.float32)
    drawn = np.empty((chains, len(domain)), dtype=np.int16)
    for v in range(len(domain)):
        mine = get_slice(domain, v).start + np.flatnonzero(allowed[get_slice(domain, v)])
        p = np.maximum(means[mine], 0) + 0.02 if len(mine) > 1 else np.ones(1)
        logits[mine] = np.log(p / p.sum())
        logits[mine] -= np.log(np.exp(logits[mine].astype(float)).sum())
        drawn[:, v] = get_state(domain, rng.choice(mine, chains, p=p / p.sum()))
    return logits, drawn


def _draw_from_network(reduced: ReducedNetwork, chains: int, data: Array | None, work: Work, may_draw: bool) -> tuple[Array | None, bool]:
    """Assignments drawn from the network and whether exactly so; None where Gibbs chains do not mix or rules stand in their way."""
    if may_draw:
        plan = reduced.plan(count_cheap_cells(work), work)
        if plan.solvable.all():
            return plan.draw(chains, work).copy(), True
    if reduced.rules is not None:
        return None, False
    literals = find_literals(reduced, reduced.open_variables())
    sampling = Sampling(precision=0.02, chains=max(256, chains), data=data)
    found = gibbs.find_marginals(reduced, literals, work.extend(work.budget), sampling)
    return (np.ascontiguousarray(found.assignments[:chains]), False) if found.mixed else (None, False)


@dataclass
class LogLikelihood:
    """The mean log-likelihood of rows, with the error that log Z brings in."""

    value: float
    standard_error: float
    partition: LogPartition
