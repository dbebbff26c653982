"""Weights for features: one setting or a path of them."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from undirected.data.readers import read_data
from undirected.errors import ParameterError, Unconverged, check_number, check_work
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.weights.plain import quasi_newton
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.weights.solver import Callback, ElasticNet, GiveUp, Outcome
from undirected.work import MEMORY

SOLVERS = ("auto", "plain")


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
    stopped_by: str
    iterations: int
    seconds: float
    threads: int

    @property
    def converged(self) -> bool:
        return self.stopped_by == "tolerance"

    @property
    def n_nonzero(self) -> int:
        return int((self.weights != 0).sum())

    def network(self, prune: bool = False) -> MarkovNetwork:
        """The features with these weights; ``prune`` leaves out weights that are zero."""
        network = MarkovNetwork(self.features, self.weights)
        return network.pruned() if prune else network

    def weights_for(self, features: FeatureSet) -> Array | None:
        """The weights, if these are the features they belong to."""
        return self.weights if self.features == features else None

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
    max_iterations: int = 10_000,
    progress: Callback | None = None,
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
        Seconds and steps after which the best weights so far are returned, with a warning. Ctrl-C does the same.
    progress
        Called as ``progress(iteration, objective, violation)``.
    solver
        ``auto``, or ``plain``: L-BFGS or OWL-QN without scaling, as in the papers.
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
    settings: Sequence[tuple[float, float]],
    *,
    tol: float = 1e-5,
    start: Array | None = None,
    threads: int | None = None,
    memory: int = MEMORY,
    time_budget: float | None = None,
    max_iterations: int = 10_000,
    progress: Callback | None = None,
    solver: str = "auto",
    give_up: GiveUp | None = None,
    objective: PseudoLikelihood | None = None,
) -> list[WeightFit]:
    """`fit_weights` for several ``(l1, sd)``: prepared once, with warm starts.

    The strongest penalties are solved first, each from the nearest setting already solved; results come in the order of
    ``settings``. The time budget is for all. ``give_up`` ends hopeless settings early (``auto`` solver only).
    """
    for l1, sd in settings:
        check_penalties(l1, sd, tol)
    if solver not in SOLVERS:
        raise ParameterError(f"solver={solver!r} is not known; choose one of {', '.join(SOLVERS)}")
    check_work(threads, memory, time_budget)
    began = time.monotonic()
    deadline = None if time_budget is None else began + time_budget
    data = read_data(data, domain=features.domain)
    with one_blas_thread():
        if objective is None or not objective.serves(features, data):
            objective = PseudoLikelihood(features, data, threads, memory)
        first = objective.independent_start if start is None else _check_start(start, len(features))
        elastic = ElasticNet(objective)
        fits: dict[int, WeightFit] = {}
        steps = max_iterations
        for k in sorted(range(len(settings)), key=lambda k: (settings[k][1], -settings[k][0])):
            l1, sd = settings[k]
            w = min(fits.values(), key=lambda fit: _distance(fit, l1, sd)).weights if fits else first
            if solver == "plain":
                out = _solve_plain(objective, l1, sd, w, tol, steps, deadline, progress)
            else:
                out = elastic.solve(l1, sd, w, tol, steps, deadline, progress, give_up)
            seconds = time.monotonic() - began
            fits[k] = WeightFit(
                features,
                out.weights,
                l1,
                sd,
                out.objective,
                out.violation,
                out.stopped_by,
                out.iterations,
                seconds,
                objective.threads,
            )
            began = time.monotonic()
            if out.stopped_by == "interrupt":
                steps, progress = 0, None  # the settings that are left get the nearest weights there are
            elif steps == 0 and out.stopped_by == "iterations":
                fits[k].stopped_by = "interrupt"
    for fit in fits.values():
        if not fit.converged and fit.stopped_by != "given up":
            warnings.warn(
                f"stopped by {fit.stopped_by} at a violation of {fit.violation:.2g}, above the tolerance {tol:g}",
                Unconverged,
                stacklevel=2,
            )
    return [fits[k] for k in range(len(settings))]


def one_blas_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: the solver's own threads share the work, and sums come out the same everywhere."""
    limit: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return limit


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looking for the libraries takes longer than a small fit


def _distance(fit: WeightFit, l1: float, sd: float) -> float:
    """How far a solved setting is from another: the nearest one makes the best start."""
    ridge, other = (0.0 if np.isinf(s) else 1 / s**2 for s in (sd, fit.sd))
    return float(abs(np.log((1 + l1) / (1 + fit.l1))) + abs(np.log((1e-3 + ridge) / (1e-3 + other))))


def _solve_plain(
    objective: PseudoLikelihood,
    l1: float,
    sd: float,
    start: Array,
    tol: float,
    max_iterations: int,
    deadline: float | None,
    progress: Callback | None,
) -> Outcome:
    ridge = 0.0 if np.isinf(sd) else 1 / sd**2

    def smooth(w: Array) -> tuple[float, Array]:
        loss, gradient, _ = objective.evaluate(w)
        return loss + 0.5 * ridge * float(w @ w), gradient + ridge * w

    return quasi_newton(smooth, start, l1, 6, tol, objective.total_weight, max_iterations, progress, deadline)


def check_penalties(l1: float, sd: float, tol: float) -> None:
    check_number("l1", l1, 0)
    check_number("sd", sd, 0, above=True)
    check_number("tol", tol, 0, above=True)
    if math.isinf(l1):
        raise ParameterError(f"l1={l1}: the L1 penalty must be finite")
    if sd < 1e-9:
        raise ParameterError(f"sd={sd:g}: a Gaussian prior this narrow leaves every weight at zero; try 0.1")


def _check_start(start: Array, n: int) -> Array:
    start = np.array(start, dtype=float)
    if start.shape != (n,) or not np.isfinite(start).all():
        raise ParameterError(f"start must be {n} finite weights, one a feature")
    return start
