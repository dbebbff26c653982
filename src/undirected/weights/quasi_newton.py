"""The quasi-Newton solver: steps in the metric of `VariableBlocks` or of one whole matrix, to a certificate.

Minimises an objective with a penalty. With L1 a step stays in one orthant, as in OWL-QN: weights that would change sign stop at zero,
so zeros are exact. Most work is done in single precision; the end, and the certificate, in double. Nothing depends on the clock or on
the number of threads but the place where a time budget ends the work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from undirected.kernels.types import Array
from undirected.weights.objective import CurvedObjective, check_needs
from undirected.weights.outcome import Judge, Outcome, SolverStep
from undirected.weights.penalty import Penalty
from undirected.weights.preconditioner import (
    MAX_WHOLE,
    MAX_WHOLE_LATE,
    Diagonal,
    VariableBlocks,
    WholeMatrix,
    estimate_build_cost,
    make_metric,
    suits_main_matrix,
)
from undirected.work import StoppedBy, Work

MEMORY_PAIRS = 12  # steps from which the quasi-Newton matrix is made
FULL_GRADIENT_EVERY = 8  # steps between choices of the features that are left out for a while
JUDGE_EVERY = 12  # steps between questions whether to give up
REFRESH_DIAGONAL_AFTER = 10  # steps after which the diagonal of the start is computed anew
FAR_STEPS, FAR_GAIN = 5, 1e-3  # while so many steps gain more than this part of the objective, the end is far
BUILDS_BEFORE_LATE_WHOLE = 4  # builds of blocks, after which a larger whole matrix is allowed
SINGLE_NOISE, DOUBLE_NOISE = 1e-8, 1e-14  # relative rounding of the objective


class Waits(NamedTuple):
    """Steps before a metric is built while the end is far, while it is near, and before it is built anew."""

    first: int
    late: int
    again: int


class QuasiNewton:
    """A solver for one objective and several penalties: what it learns about curvature carries over."""

    def __init__(self, objective: CurvedObjective) -> None:
        check_needs(objective, CurvedObjective, "the quasi-Newton solver")
        self.objective = objective
        self.metric: WholeMatrix | VariableBlocks | Diagonal | None = None
        self.unbuilt = 0  # steps taken without, in all settings
        self.builds = 0

    def choose_waits(self, main: bool) -> Waits:
        """How long to wait for a metric that costs more than a few steps; ``main``: for a matrix of the main features."""
        ratio = estimate_build_cost(self.objective, main) / self.objective.evaluation_cost
        if main:  # says so much more than the diagonal that it is worth having before the end is near
            first = int(np.clip(ratio / 2.5, 4, 60))
            return Waits(first, first, 2 * int(np.clip(ratio, 12, 400)))
        # One matrix for all features is worth building early; blocks once as much has been spent on steps without them, and
        # much later where those steps are nearly there.
        first = int(np.clip(ratio / 6 if len(self.objective) <= MAX_WHOLE else ratio, 4, 60))
        return Waits(first, 4 * int(np.clip(ratio, first, 100)), int(np.clip(ratio, 12, 400)))

    def solve(
        self, penalty: Penalty, start: Array, tol: float, work: Work, max_iterations: int = 10_000, judge: Judge | None = None
    ) -> Outcome:
        """Minimise the objective with this penalty from these weights."""
        if judge is not None:
            judge.begin(start)
        return _Run(self, penalty, tol).run(np.array(start, dtype=float), max_iterations, work, judge)


class _Run:
    """One minimisation: from a start, with one penalty, to a tolerance."""

    def __init__(self, owner: QuasiNewton, penalty: Penalty, tol: float) -> None:
        self.owner = owner
        self.objective = owner.objective
        self.penalty, self.tol = penalty, tol
        self.has_l1 = penalty.has_l1
        self.single = True
        self.steps: list[tuple[Array, Array, float]] = []  # step, change of gradient, their product
        self.since_build = 0
        self.main = not self.has_l1 and suits_main_matrix(owner.objective)
        self.waits = owner.choose_waits(self.main)
        self.rebuild_after = self.waits.again
        self.active: Array | None = None
        self.values: list[float] = []  # the objective, step by step, as far as the last five
        self.been_near = False

    # -- the penalised objective
    def evaluate(self, weights: Array, curvature: bool = False) -> tuple[float, Array, Array | None]:
        loss, gradient, diagonal = self.objective.evaluate(weights, self.single, curvature)
        value = self.penalty.add_value(loss, weights)
        gradient = self.penalty.add_gradient(gradient, weights)
        if self.active is not None:
            gradient[~self.active] = 0
        return value, gradient, None if diagonal is None else diagonal + self.penalty.ridge

    def measure_violation(self, slope: Array) -> float:
        return float(np.abs(slope).max(initial=0.0)) / self.objective.total_weight

    def restrict(self, active: Array | None) -> None:
        self.active = active
        self.objective.restrict(active)

    # -- the loop
    def run(self, w: Array, max_iterations: int, work: Work, judge: Judge | None) -> Outcome:
        """Step until the tolerance, the limit of the arithmetic, or something else ends it; then certify."""
        stopped_by, iteration = StoppedBy.ITERATIONS, 0
        try:
            self.restrict(None)
            value, gradient, diagonal = self.evaluate(w, curvature=self.owner.metric is None)
            if diagonal is not None:
                self.owner.metric = Diagonal(self.floor(diagonal))
            while iteration < max_iterations:
                slope = self.penalty.subgradient(w, gradient)
                violation = self.measure_violation(slope)
                work.emit(SolverStep(iteration, value, violation))
                if judge is not None and self.is_hopeless(judge, w, violation, iteration):
                    stopped_by = StoppedBy.GIVEN_UP
                    break
                if violation <= self.tol:
                    if not self.single and self.active is None:
                        stopped_by = StoppedBy.TOLERANCE
                        break
                    if self.active is None:
                        self.single = False
                    self.restrict(None)
                    value, gradient, _ = self.evaluate(w)
                    continue
                if work.is_over:
                    stopped_by = StoppedBy.TIME
                    break
                iteration += 1
                self.values = [*self.values[-FAR_STEPS:], value]
                self.refresh_metric(w, slope)
                found = self.step(w, value, gradient, slope)
                if found is None:
                    if not self.loosen():
                        break  # no descent in double precision: the limit of the arithmetic
                    value, gradient, _ = self.evaluate(w)
                    continue
                drowned = self.single and value - found[1] < abs(value) * SINGLE_NOISE
                w, value, gradient = found
                if drowned:
                    self.single = False
                    value, gradient, _ = self.evaluate(w)
                if self.has_l1 and iteration % FULL_GRADIENT_EVERY == 0:
                    value, gradient = self.choose_active(w, value, gradient)
        except KeyboardInterrupt:
            stopped_by = StoppedBy.INTERRUPT
        return self.certify(w, stopped_by, iteration)

    def is_hopeless(self, judge: Judge, w: Array, violation: float, iteration: int) -> bool:
        """Ask the judge every few steps, and once when the end is near."""
        near = violation <= judge.tol
        if not (near and not self.been_near) and iteration % JUDGE_EVERY != JUDGE_EVERY - 1:
            return False
        self.been_near = self.been_near or near
        return judge.is_hopeless(w, near)

    def loosen(self) -> bool:
        """Where no step was found, lift one more restriction: of features, of precision, of the memory; False where none is left."""
        if self.active is not None:
            self.restrict(None)
        elif self.single:
            self.single = False
        elif self.steps:
            self.steps.clear()
        else:
            return False
        return True

    def certify(self, w: Array, stopped_by: StoppedBy, iteration: int) -> Outcome:
        """Value and violation in double precision over all features."""
        self.restrict(None)
        self.single = False
        value, gradient, _ = self.evaluate(w)
        violation = self.measure_violation(self.penalty.subgradient(w, gradient))
        if violation <= self.tol and stopped_by is not StoppedBy.INTERRUPT:  # Ctrl-C ends what comes after, too
            stopped_by = StoppedBy.TOLERANCE
        return Outcome(w, value, violation, stopped_by, iteration)

    def choose_active(self, w: Array, value: float, gradient: Array) -> tuple[float, Array]:
        """A full gradient, after which features that rest at zero well inside the penalty are left out for a while."""
        if self.active is not None:
            self.restrict(None)
            value, gradient, _ = self.evaluate(w)
        active = (w != 0) | (np.abs(gradient) > 0.9 * self.penalty.l1)
        if active.mean() < 0.9:
            self.restrict(active)
            gradient = np.where(active, gradient, 0)
        return value, gradient

    def refresh_metric(self, w: Array, slope: Array) -> None:
        """Scale by the diagonal at first; build something better once its cost is small against the steps already taken."""
        owner = self.owner
        self.since_build += 1
        built = isinstance(owner.metric, WholeMatrix | VariableBlocks)
        if not built and self.since_build == REFRESH_DIAGONAL_AFTER:
            _, _, diagonal = self.evaluate(w, curvature=True)
            assert diagonal is not None
            owner.metric = Diagonal(self.floor(diagonal))
        owner.unbuilt += not built
        far = self.values[0] - self.values[-1] > FAR_GAIN * abs(self.values[-1])
        if built:
            wait = self.since_build <= self.rebuild_after
        else:
            wait = owner.unbuilt <= (self.waits.first if far else self.waits.late)
        if wait:
            return
        _, _, diagonal = self.evaluate(w, curvature=True)
        assert diagonal is not None
        if built:  # the nearer the end, the less the curvature changes
            self.rebuild_after = min(2 * self.rebuild_after, 4 * self.waits.again)
        free = (w != 0) | (slope != 0)
        limit = MAX_WHOLE if owner.builds < BUILDS_BEFORE_LATE_WHOLE else MAX_WHOLE_LATE  # where blocks do not do, one matrix is worth more
        owner.metric = make_metric(self.objective, w, self.floor(diagonal), self.penalty.least_ridge, free, limit, self.main)
        owner.builds += 1
        self.since_build = 0

    def floor(self, diagonal: Array) -> Array:
        """Kept away from zero, where a feature's contexts hardly ever hold and there is no ridge."""
        return np.maximum(diagonal, 1e-8 * self.objective.total_weight)

    def find_direction(self, slope: Array, free: Array) -> Array:
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
        q, scaled_last = metric.multiply_both(q, last)
        if pairs:
            q *= pairs[-1][2] / float(last @ scaled_last)
        for (s, y, sy), a in zip(pairs, reversed(used), strict=True):
            blas.daxpy(s, q, a=a - float(y @ q) / sy)
        return -np.where(free, q, 0)

    def step(self, w: Array, value: float, gradient: Array, slope: Array) -> tuple[Array, float, Array] | None:
        """One step with sufficient decrease, or None where none is found."""
        free = (w != 0) | (slope != 0)
        orthant = np.where(w != 0, np.sign(w), -np.sign(slope))
        d = self.find_direction(slope, free)
        if self.has_l1:
            d[self.penalty.stop_at_zero((w == 0) & (d * slope >= 0))] = 0
        if float(d @ slope) >= 0:
            self.steps.clear()
            d = self.find_direction(slope, free)
            if self.has_l1:
                d[self.penalty.stop_at_zero((w == 0) & (d * slope >= 0))] = 0
        t = 1.0
        # Near the end a decrease drowns in rounding: then the double precision takes over. Not before the first step, which is scaled by
        # the diagonal alone and may need many halvings.
        slack = abs(value) * (SINGLE_NOISE if self.single else DOUBLE_NOISE)
        for _ in range(20 if self.single else 30):
            new = w + t * d
            if self.has_l1:
                new[self.penalty.stop_at_zero(new * orthant < 0)] = 0
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
