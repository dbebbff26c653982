"""Weights for features: one setting or a path of them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from undirected.data.readers import read_data
from undirected.errors import ParameterError, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.weights.coordinate_descent import CoordinateDescent
from undirected.weights.objective import CurvedObjective
from undirected.weights.outcome import Judge, Outcome
from undirected.weights.penalty import Penalty, check_prior
from undirected.weights.plain import solve_plain
from undirected.weights.pseudo_likelihood import PseudoLikelihood, find_independent_start
from undirected.weights.quasi_newton import QuasiNewton
from undirected.work import MEMORY, Listener, Stopped, StoppedBy, Work

SOLVERS = ("auto", "descent", "quasi-newton", "plain")
MAX_ITERATIONS = 10_000
Setting = tuple[float, float]  # l1 and sd
Solver = Callable[[Penalty, Array, float, Work, int], Outcome]


@dataclass
class WeightFit:
    """Learned weights with their certificate.

    ``objective`` is the minimised sum without constants; ``violation`` the largest entry of the smallest subgradient divided
    by the sum of row weights, which is what ``tol`` bounds.
    """

    features: FeatureSet
    weights: Array
    l1: float
    sd: float
    objective: float
    violation: float
    stopped_by: StoppedBy
    iterations: int
    seconds: float
    threads: int

    @property
    def converged(self) -> bool:
        return self.stopped_by == StoppedBy.TOLERANCE

    @property
    def n_nonzero(self) -> int:
        return int((self.weights != 0).sum())

    def network(self, prune: bool = False) -> MarkovNetwork:
        """The features with these weights; ``prune`` leaves out weights that are zero."""
        network = MarkovNetwork(self.features, self.weights)
        return network.pruned() if prune else network

    def find_weights_for(self, features: FeatureSet) -> Array | None:
        """The weights, if these are the features they belong to."""
        return self.weights if self.features == features else None

    def describe_end(self, tol: float) -> str:
        """Say why the solver ended, and how far from the tolerance."""
        far = f", above the tolerance {tol:g}" if self.violation > tol else ""
        return f"stopped by {self.stopped_by} at a violation of {self.violation:.2g}{far}"

    def report(self) -> dict[str, Any]:
        """The figures, under the names of the command line's ``--json``."""
        return {
            "objective": self.objective,
            "violation": self.violation,
            "converged": self.converged,
            "stopped_by": self.stopped_by,
            "n_features": len(self.features),
            "n_nonzero": self.n_nonzero,
            "iterations": self.iterations,
            "seconds": self.seconds,
            "threads": self.threads,
        }


def fit_weights(
    features: FeatureSet,
    data: Any,
    l1: float = 0.0,
    sd: float = 1.0,
    *,
    tol: float = 1e-5,
    start: Array | None = None,
    threads: int | None = None,
    memory: int = MEMORY,
    time_budget: float | None = None,
    max_iterations: int = MAX_ITERATIONS,
    progress: Listener | None = None,
    solver: str = "auto",
    objective: PseudoLikelihood | None = None,
) -> WeightFit:
    """Learn the weights of exactly the features given, by regularised pseudo-likelihood.

    Minimises ``-sum_r c_r PLL(x_r; w) + l1 sum|w| + sum w^2 / (2 sd^2)``, with c_r the row weights; nothing is divided by the
    number of rows. ``sd=float("inf")`` means no Gaussian prior.

    Parameters
    ----------
    features, data
        What to weigh, and on which table (anything `read_data` takes, coded with the features' domain).
    l1, sd
        The two penalties.
    tol
        Largest violation of the optimality conditions, divided by the sum of row weights.
    start
        Weights to start from; by default those of the model of independent variables.
    threads, memory
        Cores to use (all), and bytes that row lists may take. The result is the same to the bit for any number of threads.
    time_budget, max_iterations
        Seconds and steps after which the best weights so far are returned, with a warning. Ctrl-C does the same. Where either comes
        before the features are prepared, these are ``start`` or the weights of independent variables, and ``violation`` (of a start
        ``objective``, too) is infinite: unknown.
    progress
        Called with an `Event` after every step: a ``SolverStep`` with iteration, objective and violation. Where preparing the features
        takes more than a second, called with ``Ongoing`` meanwhile.
    solver
        ``auto`` takes ``descent`` (coordinate descent) for thousands of features with three literals or more, unless they hardly overlap
        and have no L1, and for hundreds of any under L1 with a wide prior; ``quasi-newton`` for others, and ``descent`` where that takes
        many steps. ``plain``: L-BFGS or
        OWL-QN without scaling, as in the papers.
    objective
        What an earlier fit has prepared, if its features and table are the same: preparing very many features takes long.

    Examples
    --------
    >>> import undirected
    >>> truth = undirected.datasets.grid_ising(3, 3, seed=1)
    >>> data = undirected.datasets.exact_sample(truth, 20_000, seed=2)
    >>> fit = undirected.fit_weights(truth.features, data, sd=10)
    >>> fit.converged, bool(abs(fit.weights - truth.weights).max() < 0.3)
    (True, True)
    """
    settings = [(l1, sd)]
    return fit_path(
        features, data, settings, tol=tol, start=start, threads=threads, memory=memory, time_budget=time_budget,
        max_iterations=max_iterations, progress=progress, solver=solver, objective=objective,
    )[0]  # fmt: skip


def fit_path(
    features: FeatureSet,
    data: Any,
    settings: Sequence[Setting],
    *,
    tol: float = 1e-5,
    start: Array | None = None,
    threads: int | None = None,
    memory: int = MEMORY,
    time_budget: float | None = None,
    max_iterations: int = MAX_ITERATIONS,
    progress: Listener | None = None,
    solver: str = "auto",
    objective: PseudoLikelihood | None = None,
) -> list[WeightFit]:
    """`fit_weights` for several ``(l1, sd)``: prepared once, with warm starts.

    The strongest penalties are solved first, each from the nearest setting already solved; results come in the order of
    ``settings``. The time budget is for all.
    """
    work = Work.start(threads, memory, time_budget, progress=progress)
    _check_settings(settings, tol, solver)
    table = read_data(data, domain=features.domain)
    path = WeightPath(features, table, work, objective)
    fits = path.solve(settings, tol, start, max_iterations=max_iterations, solver=solver)
    for fit in fits:
        if not fit.converged:
            warnings.warn(fit.describe_end(tol), Unconverged, stacklevel=2)
    return fits


class WeightPath:
    """The weights of some features on a table for several settings: the objective is prepared once, and each setting starts from the
    nearest one that is solved."""

    def __init__(self, features: FeatureSet, data: Any, work: Work, objective: PseudoLikelihood | None = None) -> None:
        self.features, self.data, self.work, self.objective = features, data, work, objective
        self.began = work.now()
        self._solvers: dict[str, Solver] = {}  # by name: what they have prepared serves the next call

    def solve(
        self,
        settings: Sequence[Setting],
        tol: float,
        start: Array | None = None,
        *,
        judge: Judge | None = None,
        max_iterations: int = MAX_ITERATIONS,
        solver: str = "auto",
        factors: Array | None = None,
    ) -> list[WeightFit]:
        """A fit for each setting, in their order. Once Ctrl-C is pressed, those that are left get the nearest weights there are.

        ``judge`` ends settings early that cannot win (``auto`` solver only). ``factors``, one a feature, are what ``l1`` is multiplied by.
        """
        _check_settings(settings, tol, solver)
        with use_one_blas_thread():
            try:
                objective = self._prepare()
            except (Stopped, KeyboardInterrupt) as stop:
                why = stop.why if isinstance(stop, Stopped) else StoppedBy.INTERRUPT
                return [self._fall_back(l1, sd, start, why, factors) for l1, sd in settings]
            first = objective.independent_start if start is None else _check_start(start, len(self.features))
            solve = _choose_solver(objective, solver, judge) if judge is not None else self._keep_solver(objective, solver)
            fits: dict[int, WeightFit] = {}
            steps, work = max_iterations, self.work
            for k in sorted(range(len(settings)), key=lambda k: (settings[k][1], -settings[k][0])):
                l1, sd = settings[k]
                w = min(fits.values(), key=lambda fit: _measure_distance(fit, l1, sd)).weights if fits else first
                out = solve(Penalty.from_prior(_scale(l1, factors), sd), w, tol, work, steps)
                fits[k] = self._make_fit(out, l1, sd)
                if out.stopped_by is StoppedBy.INTERRUPT:
                    steps, work = 0, work.silent()
                elif steps == 0 and out.stopped_by is StoppedBy.ITERATIONS:
                    fits[k].stopped_by = StoppedBy.INTERRUPT
        return [fits[k] for k in range(len(settings))]

    def _keep_solver(self, objective: PseudoLikelihood, solver: str) -> Solver:
        if solver not in self._solvers:
            self._solvers[solver] = _choose_solver(objective, solver, None)
        return self._solvers[solver]

    def _prepare(self) -> PseudoLikelihood:
        if self.objective is None or not self.objective.serves(self.features, self.data):
            watch = self.work.watch(f"preparing {len(self.features):,} features")
            self.objective = PseudoLikelihood(self.features, self.data, self.work.threads, self.work.memory, watch=watch)
            self._solvers.clear()
        return self.objective

    def _fall_back(self, l1: float, sd: float, start: Array | None, why: StoppedBy, factors: Array | None) -> WeightFit:
        """Where there was no time to prepare the features: the start, of which nothing is known, or the model of independent variables, of
        which the objective is."""
        if start is not None:
            return self._make_fit(Outcome(_check_start(start, len(self.features)), np.inf, np.inf, why, 0), l1, sd)
        table = self.data.distinct
        weights = find_independent_start(self.features, table.literal_counts())
        atomic = self.features.lengths == 1
        loss = -table.total_weight * MarkovNetwork(self.features.subset(atomic), weights[atomic]).pll(table)
        value = Penalty.from_prior(_scale(l1, factors), sd).add_value(loss, weights)
        return self._make_fit(Outcome(weights, value, np.inf, why, 0), l1, sd)

    def _make_fit(self, out: Outcome, l1: float, sd: float) -> WeightFit:
        """The outcome of a setting, with the seconds since the last one."""
        began, self.began = self.began, self.work.now()
        return WeightFit(
            self.features, out.weights, l1, sd, out.objective, out.violation, out.stopped_by, out.iterations,
            self.began - began, self.work.threads if self.objective is None else self.objective.threads,
        )  # fmt: skip


def minimise(
    objective: CurvedObjective,
    penalty: Penalty,
    start: Array,
    *,
    tol: float = 1e-5,
    work: Work | None = None,
    max_iterations: int = MAX_ITERATIONS,
    solver: str = "auto",
) -> Outcome:
    """Minimise any objective with any penalty to a certificate: what `fit_weights` does for a table and one pair of settings.

    Examples
    --------
    >>> import numpy as np, undirected
    >>> from undirected.weights.fit import minimise
    >>> from undirected.weights.penalty import Penalty
    >>> truth = undirected.datasets.grid_ising(3, 3, seed=1)
    >>> data = undirected.datasets.exact_sample(truth, 2_000, seed=2)
    >>> objective = undirected.PseudoLikelihood(truth.features, data)
    >>> drawn = Penalty(ridge=1e6, centre=truth.weights)  # a prior so strong that the weights hardly move
    >>> bool(np.allclose(minimise(objective, drawn, np.zeros(len(objective))).weights, truth.weights, atol=0.01))
    True
    """
    penalty.check(len(objective))
    with use_one_blas_thread():
        solve = _choose_solver(objective, solver, None)
        return solve(penalty, _check_start(start, len(objective)), tol, work or Work.start(), max_iterations)


def _choose_solver(objective: CurvedObjective, solver: str, judge: Judge | None) -> Solver:
    """A function that solves for one penalty; what it learns of the objective carries over to the next."""
    if solver == "plain":
        return functools.partial(solve_plain, objective)
    if solver == "quasi-newton" or (solver == "auto" and not hasattr(objective, "start_descent")):
        return functools.partial(QuasiNewton(objective).solve, judge=judge)
    descent = CoordinateDescent(objective)  # type: ignore[arg-type]
    return functools.partial(descent.solve if solver == "descent" else descent.solve_either_way, judge=judge)


def use_one_blas_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: the solver's own threads share the work, and sums come out the same everywhere."""
    limit: AbstractContextManager[Any] = _find_blas().limit(limits=1, user_api="blas")
    return limit


@functools.cache
def _find_blas() -> ThreadpoolController:
    return ThreadpoolController()  # looking for the libraries takes longer than a small fit


def _scale(l1: float, factors: Array | None) -> float | Array:
    return l1 if factors is None else l1 * factors


def _measure_distance(fit: WeightFit, l1: float, sd: float) -> float:
    """How far a solved setting is from another: the nearest one makes the best start."""
    ridge, other = (0.0 if np.isinf(s) else 1 / s**2 for s in (sd, fit.sd))
    return float(abs(np.log((1 + l1) / (1 + fit.l1))) + abs(np.log((1e-3 + ridge) / (1e-3 + other))))


def _check_settings(settings: Sequence[Setting], tol: float, solver: str) -> None:
    """Raise where penalties, tolerance or solver make no sense, before any table is read."""
    for l1, sd in settings:
        check_prior(l1, sd, tol)
    if solver not in SOLVERS:
        raise ParameterError(f"solver={solver!r} is not known; choose one of {', '.join(SOLVERS)}")


def _check_start(start: Array, n: int) -> Array:
    start = np.array(start, dtype=float)
    if start.shape != (n,) or not np.isfinite(start).all():
        raise ParameterError(f"start must be {n} finite weights, one a feature")
    return start
