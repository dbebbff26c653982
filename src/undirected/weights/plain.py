"""L-BFGS and OWL-QN as the papers used them: no scaling, no working set. Kept as oracles and as rivals in benchmarks."""

from __future__ import annotations

import numpy as np

from undirected.kernels.types import Array
from undirected.weights.objective import Objective, check_needs
from undirected.weights.outcome import Outcome, SolverStep
from undirected.weights.penalty import Penalty
from undirected.work import StoppedBy, Work

MEMORY_PAIRS = 6  # as in the papers' code


def solve_plain(objective: Objective, penalty: Penalty, start: Array, tol: float, work: Work, max_iterations: int = 10_000) -> Outcome:
    """Minimise an objective with a penalty by OWL-QN (Andrew and Gao, 2007), which without L1 is L-BFGS.

    Stops when the largest entry of the smallest subgradient, divided by the total weight, is at most ``tol``, when no step decreases
    the value, at the deadline, or on Ctrl-C.
    """
    check_needs(objective, Objective, "L-BFGS")
    w = np.array(start, dtype=float)
    value, gradient = _evaluate(objective, penalty, w)
    pairs: list[tuple[Array, Array, float]] = []
    iteration, violation, stopped_by = 0, float("inf"), StoppedBy.ITERATIONS
    try:
        while True:
            slope = penalty.subgradient(w, gradient)
            violation = float(np.abs(slope).max(initial=0.0)) / objective.total_weight
            work.emit(SolverStep(iteration, value, violation))
            if violation <= tol or iteration == max_iterations:
                stopped_by = StoppedBy.TOLERANCE if violation <= tol else StoppedBy.ITERATIONS
                break
            if work.is_over:
                stopped_by = StoppedBy.TIME
                break
            iteration += 1
            found = _step(objective, penalty, w, value, slope, pairs)
            if found is None:
                break
            new, new_value, new_gradient = found
            s, y = new - w, new_gradient - gradient
            if float(s @ y) > 0:
                pairs.append((s, y, float(s @ y)))
                del pairs[:-MEMORY_PAIRS]
            w, value, gradient = new, new_value, new_gradient
    except KeyboardInterrupt:
        stopped_by = StoppedBy.INTERRUPT
    return Outcome(w, value, violation, stopped_by, iteration)


def _evaluate(objective: Objective, penalty: Penalty, w: Array) -> tuple[float, Array]:
    """The value with the whole penalty, and the gradient with the ridge's part."""
    loss, gradient, _ = objective.evaluate(w)
    return penalty.add_value(loss, w), penalty.add_gradient(gradient, w)


def _step(
    objective: Objective, penalty: Penalty, w: Array, value: float, slope: Array, pairs: list[tuple[Array, Array, float]]
) -> tuple[Array, float, Array] | None:
    """A step with sufficient decrease along the quasi-Newton direction, within one orthant if there is L1."""
    d = _find_direction(slope, pairs)
    has_l1 = penalty.has_l1
    if has_l1:
        d[penalty.stop_at_zero(d * slope >= 0)] = 0
    orthant = np.where(w != 0, np.sign(w), -np.sign(slope))
    t = 1.0 if pairs else 1.0 / max(1.0, float(np.linalg.norm(slope)))
    for _ in range(60):
        new = w + t * d
        if has_l1:
            new[penalty.stop_at_zero(new * orthant < 0)] = 0
        new_value, new_gradient = _evaluate(objective, penalty, new)
        if new_value <= value + 1e-4 * float(slope @ (new - w)):
            return new, new_value, new_gradient
        t *= 0.5
    return None


def _find_direction(slope: Array, pairs: list[tuple[Array, Array, float]]) -> Array:
    q = slope.copy()
    used = []
    for s, y, sy in reversed(pairs):
        a = float(s @ q) / sy
        q -= a * y
        used.append(a)
    if pairs:
        _, y, sy = pairs[-1]
        q *= sy / float(y @ y)
    for (s, y, sy), a in zip(pairs, reversed(used), strict=True):
        q += s * (a - float(y @ q) / sy)
    return -q
