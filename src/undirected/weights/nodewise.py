"""Separate L1 regressions for all variables, solved together: proximal Newton steps, one block per variable.

Where no feature is shared by two conditionals, the Hessian falls into one block per variable, so a Newton step costs little: each
block's quadratic model with its L1 penalty is minimised by coordinate descent over the coefficients that are not at rest, and each
variable has a line search of its own. A handful of steps per penalty reaches the optimum, nearly separable tables included.

A shortcut for large tables: above ``MAX_SAMPLE`` conditional probabilities the Hessian is estimated from every n-th run of 64 rows.
Steps are then less good; value, gradient and certificate stay exact.
"""

from __future__ import annotations

import numpy as np

from undirected.kernels.types import Array
from undirected.weights.objective import SeparableObjective, check_needs
from undirected.weights.outcome import Outcome
from undirected.weights.penalty import Penalty
from undirected.work import StoppedBy, Work

SINGLE_UNTIL = 30  # times the tolerance: from here on in double precision
MAX_SAMPLE = 1 << 28  # conditional probabilities kept for the Hessian
MAX_HALVINGS = 30  # of a step


def solve_nodewise(
    objective: SeparableObjective, l1: Array, start: Array, tol: float, work: Work, n_literals: int, max_iterations: int = 200
) -> Outcome:
    """Minimise ``loss(w) + sum l1 |w|`` for an objective of separate terms; ``violation`` as in the other solvers.

    ``n_literals``, the conditional probabilities that a row has, decides how many rows the Hessian is estimated from.
    """
    check_needs(objective, SeparableObjective, "separate regressions")
    targets, penalty = objective.targets, Penalty(l1)
    assert targets is not None
    sample_rows = max(1, objective.n_rows // max(1, objective.n_rows * n_literals // MAX_SAMPLE))
    w = np.array(start, dtype=float)
    value, iteration = _find_losses(objective, targets, w, l1), 0
    single = True
    while True:
        _, gradient, _ = objective.evaluate(w, single=single)
        slope = penalty.subgradient(w, gradient)
        by_term = np.zeros(objective.n_terms)
        np.maximum.at(by_term, targets, np.abs(slope))
        violation = float(by_term.max(initial=0)) / objective.total_weight
        if single and violation <= SINGLE_UNTIL * tol:
            single = False  # rounding is no longer far below what is left
            continue
        stopped_by = StoppedBy.TOLERANCE if violation <= tol else StoppedBy.ITERATIONS
        if violation <= tol or iteration == max_iterations:
            break
        if work.is_over:
            stopped_by = StoppedBy.TIME
            break
        iteration += 1
        todo = by_term > 0.5 * tol * objective.total_weight
        objective.sample_curvature(w, sample_rows)
        found = _step(objective, targets, w, value, gradient, slope, l1, todo)
        if found is None:
            if single:
                single = False
                continue
            break  # no term can be improved: the limit of the arithmetic
        w, value = found
    return Outcome(w, float(value.sum()), violation, stopped_by, iteration)


def _find_losses(objective: SeparableObjective, targets: Array, weights: Array, l1: Array) -> Array:
    """The value of each term with the penalty of its own features."""
    own = np.bincount(targets, weights=l1 * np.abs(weights), minlength=objective.n_terms)
    return np.asarray(objective.term_losses(weights) + own)


def _step(
    objective: SeparableObjective, targets: Array, w: Array, value: Array, gradient: Array, slope: Array, l1: Array, todo: Array
) -> tuple[Array, Array] | None:
    """A proximal Newton step of the terms in ``todo``, each as long as its own line search allows; None where none moves."""
    free = np.flatnonzero(((w != 0) | (slope != 0)) & todo[targets])
    members = free[np.argsort(targets[free], kind="stable")].astype(np.int32)
    step = np.zeros(len(w))
    step[members] = objective.newton_steps(members, gradient, w, l1)
    expected = np.bincount(targets, weights=gradient * step + l1 * (np.abs(w + step) - np.abs(w)), minlength=objective.n_terms)
    t = np.where(todo, 1.0, 0.0)
    for _ in range(MAX_HALVINGS):
        new = w + t[targets] * step
        new_value = _find_losses(objective, targets, new, l1)
        poor = (new_value > value + 1e-4 * t * np.minimum(expected, 0) + 1e-13 * np.abs(value)) & (t > 0)
        if not poor.any():
            break
        t[poor] *= 0.5
    t[poor] = 0
    if not (t > 0).any():
        return None
    new = w + t[targets] * step
    new[(t[targets] == 1) & (np.abs(new) < 1e-14)] = 0
    return new, _find_losses(objective, targets, new, l1) if poor.any() else new_value
