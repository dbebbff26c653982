"""The elastic-net solver: quasi-Newton steps in the metric of `VariableBlocks`, to a certificate.

Minimises ``loss(w) + l1 * sum|w| + sum w^2 / (2 sd^2)``. With ``l1`` a step stays in one orthant, as in OWL-QN: weights that
would change sign stop at zero, so zeros are exact. Most work is done in single precision; the end, and the certificate, in
double. Nothing depends on the clock or on the number of threads but the place where a time budget ends the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import blas

from undirected.kernels.types import Array
from undirected.weights.preconditioner import (
    LATE_WHOLE,
    MAX_WHOLE,
    Diagonal,
    VariableBlocks,
    WholeMatrix,
    build_cost,
    evaluation_cost,
    fits_whole,
)
from undirected.weights.pseudo_likelihood import PseudoLikelihood

MEMORY_PAIRS = 12
FULL_GRADIENT_EVERY = 8
LOOK_EVERY = 12  # steps between questions whether to give up
REFRESH_DIAGONAL = 10  # steps after which the diagonal is that of the start no more
FEW, FAR = 5, 1e-3  # while a few steps gain more than this part of the objective, the end is far
PATIENCE = 4  # builds of blocks
SINGLE_NOISE, DOUBLE_NOISE = 1e-8, 1e-14  # relative rounding of the objective


@dataclass
class Outcome:
    """Where a solver stopped: ``tolerance``, ``time``, ``interrupt``, ``iterations``, or ``given up``."""

    weights: Array
    objective: float
    violation: float
    stopped_by: str
    iterations: int


Callback = Callable[[int, float, float], None]  # iteration, objective, violation


class GiveUp(Protocol):
    """Ends hopeless work early."""

    tol: float

    def begin(self, weights: Array) -> None:
        """A setting is about to be solved from these weights."""

    def hopeless(self, weights: Array, near: bool) -> bool:
        """Asked every few steps, and when the violation first falls to ``tol``; ``near`` if it is there."""


def pseudo_gradient(weights: Array, gradient: Array, l1: float | Array) -> Array:
    """The subgradient of smallest norm of ``f + sum l1 * |w|``."""
    if not np.any(l1):
        return gradient
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0)
    return np.where(weights != 0, gradient + l1 * np.sign(weights), at_zero)


class ElasticNet:
    """A solver for one objective and several settings: what it learns about curvature carries over."""

    def __init__(self, objective: PseudoLikelihood) -> None:
        self.objective = objective
        self.metric: WholeMatrix | VariableBlocks | Diagonal | None = None
        ratio = build_cost(objective) / evaluation_cost(objective)
        # One matrix for all features is worth building early; blocks once as much has been spent on steps without them, and
        # much later where those steps are nearly there.
        self.first_build = int(np.clip(ratio / 6 if len(objective) <= MAX_WHOLE else ratio, 4, 60))
        self.late_build = 4 * int(np.clip(ratio, self.first_build, 100))
        self.rebuild_after = int(np.clip(ratio, 12, 400))
        self.unbuilt = 0  # steps taken without, in all settings
        self.builds = 0

    def solve(
        self,
        l1: float,
        sd: float,
        start: Array,
        tol: float = 1e-5,
        max_iterations: int = 10_000,
        deadline: float | None = None,
        callback: Callback | None = None,
        give_up: GiveUp | None = None,
    ) -> Outcome:
        if give_up is not None:
            give_up.begin(start)
        run = _Run(self, l1, 0.0 if np.isinf(sd) else 1 / sd**2, tol)
        return run.run(np.array(start, dtype=float), max_iterations, deadline, callback, give_up)


class _Run:
    def __init__(self, owner: ElasticNet, l1: float, ridge: float, tol: float) -> None:
        self.owner = owner
        self.objective = owner.objective
        self.l1, self.ridge, self.tol = l1, ridge, tol
        self.single = True
        self.steps: list[tuple[Array, Array, float]] = []  # step, change of gradient, their product
        self.since_build = 0
        self.rebuild_after = owner.rebuild_after
        self.active: Array | None = None
        self.values: list[float] = []  # the objective, step by step, as far as the last five

    # -- the penalised objective
    def evaluate(self, weights: Array, curvature: bool = False) -> tuple[float, Array, Array | None]:
        loss, gradient, diagonal = self.objective.evaluate(weights, self.single, curvature)
        value = loss + self.l1 * float(np.abs(weights).sum()) + 0.5 * self.ridge * float(weights @ weights)
        gradient = gradient + self.ridge * weights
        if self.active is not None:
            gradient[~self.active] = 0
        return value, gradient, None if diagonal is None else diagonal + self.ridge

    def violation(self, slope: Array) -> float:
        return float(np.abs(slope).max(initial=0.0)) / self.objective.total_weight

    def restrict(self, active: Array | None) -> None:
        self.active = active
        self.objective.restrict(active)

    # -- the loop
    def run(self, w: Array, max_iterations: int, deadline: float | None, callback: Callback | None, give_up: GiveUp | None) -> Outcome:
        stopped_by = "iterations"
        iteration = 0
        been_near = False
        try:
            self.restrict(None)
            value, gradient, diagonal = self.evaluate(w, curvature=self.owner.metric is None)
            if diagonal is not None:
                self.owner.metric = Diagonal(self.floored(diagonal))
            while iteration < max_iterations:
                slope = pseudo_gradient(w, gradient, self.l1)
                violation = self.violation(slope)
                if callback is not None:
                    callback(iteration, value, violation)
                near = give_up is not None and violation <= give_up.tol
                if give_up is not None and ((near and not been_near) or iteration % LOOK_EVERY == LOOK_EVERY - 1):
                    been_near = been_near or near
                    if give_up.hopeless(w, near):
                        stopped_by = "given up"
                        break
                if violation <= self.tol:
                    if not self.single and self.active is None:
                        stopped_by = "tolerance"
                        break
                    if self.active is None:
                        self.single = False
                    self.restrict(None)
                    value, gradient, _ = self.evaluate(w)
                    continue
                if deadline is not None and time.monotonic() > deadline:
                    stopped_by = "time"
                    break
                iteration += 1
                self.values = [*self.values[-FEW:], value]
                self.refresh_metric(w, slope)
                found = self.step(w, value, gradient, slope)
                if found is None:
                    if self.active is not None:
                        self.restrict(None)
                    elif self.single:
                        self.single = False
                    elif self.steps:
                        self.steps.clear()
                    else:
                        break  # no descent in double precision: the limit of the arithmetic
                    value, gradient, _ = self.evaluate(w)
                    continue
                drowned = self.single and value - found[1] < abs(value) * SINGLE_NOISE
                w, value, gradient = found
                if drowned:
                    self.single = False
                    value, gradient, _ = self.evaluate(w)
                if self.l1 > 0 and iteration % FULL_GRADIENT_EVERY == 0:
                    value, gradient = self.choose_active(w, value, gradient)
        except KeyboardInterrupt:
            stopped_by = "interrupt"
        return self.certify(w, stopped_by, iteration)

    def certify(self, w: Array, stopped_by: str, iteration: int) -> Outcome:
        self.restrict(None)
        self.single = False
        value, gradient, _ = self.evaluate(w)
        violation = self.violation(pseudo_gradient(w, gradient, self.l1))
        return Outcome(w, value, violation, "tolerance" if violation <= self.tol else stopped_by, iteration)

    def choose_active(self, w: Array, value: float, gradient: Array) -> tuple[float, Array]:
        """A full gradient, after which features that rest at zero well inside the penalty are left out for a while."""
        if self.active is not None:
            self.restrict(None)
            value, gradient, _ = self.evaluate(w)
        active = (w != 0) | (np.abs(gradient) > 0.9 * self.l1)
        if active.mean() < 0.9:
            self.restrict(active)
            gradient = np.where(active, gradient, 0)
        return value, gradient

    def refresh_metric(self, w: Array, slope: Array) -> None:
        """Scale by the diagonal at first; build something better once its cost is small against the steps already taken."""
        owner = self.owner
        self.since_build += 1
        built = isinstance(owner.metric, WholeMatrix | VariableBlocks)
        if not built and self.since_build == REFRESH_DIAGONAL:
            _, _, diagonal = self.evaluate(w, curvature=True)
            assert diagonal is not None
            owner.metric = Diagonal(self.floored(diagonal))
        owner.unbuilt += not built
        far = self.values[0] - self.values[-1] > FAR * abs(self.values[-1])
        if built:
            wait = self.since_build <= self.rebuild_after
        else:
            wait = owner.unbuilt <= (owner.first_build if far else owner.late_build)
        if wait:
            return
        _, _, diagonal = self.evaluate(w, curvature=True)
        assert diagonal is not None
        if built:  # the nearer the end, the less the curvature changes
            self.rebuild_after = min(2 * self.rebuild_after, 4 * owner.rebuild_after)
        free = (w != 0) | (slope != 0)
        limit = MAX_WHOLE if owner.builds < PATIENCE else LATE_WHOLE  # where blocks do not do, one matrix is worth more
        kind = WholeMatrix if fits_whole(self.objective, free, limit) else VariableBlocks
        owner.metric = kind(self.objective, w, self.floored(diagonal), self.ridge, free)
        owner.builds += 1
        self.since_build = 0

    def floored(self, diagonal: Array) -> Array:
        """Kept away from zero, where a feature's contexts hardly ever hold and there is no ridge."""
        return np.maximum(diagonal, 1e-8 * self.objective.total_weight)

    def direction(self, slope: Array, free: Array) -> Array:
        """Minus the quasi-Newton inverse times the slope, within the free features."""
        # Zero outside the free features: the vector, and the changes of gradient that enter it. Steps need no mask.
        pairs = self.steps
        if not free.all():
            inside = free.astype(float)
            masked = ((s, y * inside, sy) for s, y, sy in self.steps)
            pairs = [(s, y, product) for s, y, sy in masked if (product := float(s @ y)) > 1e-6 * sy]
        q = np.where(free, slope, 0)
        used = []
        for s, y, sy in reversed(pairs):
            a = float(s @ q) / sy
            blas.daxpy(y, q, a=-a)
            used.append(a)
        metric = self.owner.metric
        assert metric is not None
        last = pairs[-1][1] if pairs else q
        q, scaled_last = metric.both(q, last)
        if pairs:
            q *= pairs[-1][2] / float(last @ scaled_last)
        for (s, y, sy), a in zip(pairs, reversed(used), strict=True):
            blas.daxpy(s, q, a=a - float(y @ q) / sy)
        return -np.where(free, q, 0)

    def step(self, w: Array, value: float, gradient: Array, slope: Array) -> tuple[Array, float, Array] | None:
        """One step with sufficient decrease, or None where none is found."""
        free = (w != 0) | (slope != 0)
        orthant = np.where(w != 0, np.sign(w), -np.sign(slope))
        d = self.direction(slope, free)
        if self.l1 > 0:
            d[(w == 0) & (d * slope >= 0)] = 0
        if float(d @ slope) >= 0:
            self.steps.clear()
            d = self.direction(slope, free)
            if self.l1 > 0:
                d[(w == 0) & (d * slope >= 0)] = 0
        t = 1.0
        # Near the end a decrease drowns in rounding: a few tries in single precision, then the double one takes over.
        slack = abs(value) * (SINGLE_NOISE if self.single else DOUBLE_NOISE)
        for _ in range(6 if self.single else 30):
            new = w + t * d
            if self.l1 > 0:
                new[new * orthant < 0] = 0
            new_value, new_gradient, _ = self.evaluate(new)
            if new_value <= value + 1e-4 * float(slope @ (new - w)) + slack:
                break
            t *= 0.5
        else:
            return None
        s, y = new - w, new_gradient - gradient
        sy = float(s @ y)
        if sy > 1e-10 * float(np.sqrt((s @ s) * (y @ y))):
            self.steps.append((s, y, sy))
            del self.steps[:-MEMORY_PAIRS]
        return new, new_value, new_gradient
