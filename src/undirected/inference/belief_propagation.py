"""Loopy belief propagation, sum- or max-product, plain or tree-reweighted, on features directly.

Features with the same variables are one factor, and features whose variables lie within a larger factor's join it, so trees are
answered exactly however many features an edge has. Factors are updated in the order of how much has changed around them. Long
conjunctions are never expanded into tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.inference.reduced import ReducedNetwork
from undirected.kernels.types import Array
from undirected.work import Work

DAMPINGS = (0.0, 0.5, 0.9)  # tried in turn until it converges


@dataclass
class Propagated:
    """Beliefs by literal, an estimate of (or bound on) the log partition function, and whether the messages came to rest."""

    marginals: Array
    log_z: float
    converged: bool
    updates: int
    damping: float


def propagate(
    reduced: ReducedNetwork,
    work: Work,
    *,
    maximum: bool = False,
    reweighted: bool = False,
    damping: float | None = None,
    tol: float = 1e-8,
    max_rounds: int = 200,
) -> Propagated:
    """Pass messages until the largest change is below ``tol``, damped more if they do not settle.

    Parameters
    ----------
    maximum
        Max-product: beliefs are then max-marginals.
    reweighted
        Tree-reweighted: once converged, ``log_z`` is an upper bound.
    damping
        Share of the old message that is kept; None tries 0, 0.5 and 0.9.
    """
    best: Propagated | None = None
    for share in DAMPINGS if damping is None else (damping,):
        found = reduced.model.propagate(reduced.evidence, maximum, reweighted, share, tol, max_rounds, work.seed)
        beliefs, log_z, _, updates, converged = found
        best = Propagated(np.asarray(beliefs), float(log_z) + reduced.constant, bool(converged), int(updates), share)
        if best.converged:
            break
    assert best is not None
    return best
