"""L-BFGS and OWL-QN as the papers used them: no scaling, no working set. Kept as oracles and as rivals in benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from undirected.kernels.types import Array
from undirected.weights.solver import Callback, Outcome, pseudo_gradient


def quasi_newton(
    smooth: Callable[[Array], tuple[float, Array]],
    start: Array,
    l1: float = 0.0,
    memory: int = 6,
    tol: float = 1e-5,
    total_weight: float = 1.0,
    max_iterations: int = 10_000,
    callback: Callback | None = None,
    deadline: float | None = None,
) -> Outcome:
    """Minimise ``smooth(w) + l1 * sum|w|``: OWL-QN (Andrew and Gao, 2007), which without ``l1`` is L-BFGS.

    ``smooth`` returns value and gradient. Stops when the largest entry of the smallest subgradient, divided by
    ``total_weight``, is at most ``tol``, when no step decreases the objective, at the deadline, or on Ctrl-C.
    """
    w = np.array(start, dtype=float)
    value, gradient = smooth(w)
    value += l1 * float(np.abs(w).sum())
    pairs: list[tuple[Array, Array, float]] = []
    iteration, violation, stopped_by = 0, float("inf"), "iterations"
    try:
        while True:
            slope = pseudo_gradient(w, gradient, l1)
            violation = float(np.abs(slope).max(initial=0.0)) / total_weight
            if callback is not None:
                callback(iteration, value, violation)
            if violation <= tol or iteration == max_iterations:
                stopped_by = "tolerance" if violation <= tol else "iterations"
                break
            if deadline is not None and time.monotonic() > deadline:
                stopped_by = "time"
                break
            iteration += 1
            found = _step(smooth, w, value, slope, l1, pairs)
            if found is None:
                break
            new, new_value, new_gradient = found
            s, y = new - w, new_gradient - gradient
            if float(s @ y) > 0:
                pairs.append((s, y, float(s @ y)))
                del pairs[:-memory]
            w, value, gradient = new, new_value, new_gradient
    except KeyboardInterrupt:
        stopped_by = "interrupt"
    return Outcome(w, value, violation, stopped_by, iteration)


def _step(
    smooth: Callable[[Array], tuple[float, Array]],
    w: Array,
    value: float,
    slope: Array,
    l1: float,
    pairs: list[tuple[Array, Array, float]],
) -> tuple[Array, float, Array] | None:
    """A step with sufficient decrease along the quasi-Newton direction, within one orthant if there is a penalty."""
    d = _direction(slope, pairs)
    if l1 > 0:
        d[d * slope >= 0] = 0
    orthant = np.where(w != 0, np.sign(w), -np.sign(slope))
    t = 1.0 if pairs else 1.0 / max(1.0, float(np.linalg.norm(slope)))
    for _ in range(60):
        new = w + t * d
        if l1 > 0:
            new[new * orthant < 0] = 0
        new_value, new_gradient = smooth(new)
        new_value += l1 * float(np.abs(new).sum())
        if new_value <= value + 1e-4 * float(slope @ (new - w)):
            return new, new_value, new_gradient
        t *= 0.5
    return None


def _direction(slope: Array, pairs: list[tuple[Array, Array, float]]) -> Array:
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
