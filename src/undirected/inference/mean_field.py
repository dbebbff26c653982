"""Mean field: the independent distribution closest to the network, found one variable at a time."""

from __future__ import annotations

import numpy as np

from undirected.inference.belief_propagation import Propagated
from undirected.inference.reduced import ReducedNetwork
from undirected.work import Work


def approximate(reduced: ReducedNetwork, work: Work, *, tol: float = 1e-8, max_rounds: int = 2000, tries: int = 3) -> Propagated:
    """The best independent distribution of several starts; ``log_z`` is a lower bound on the log partition function."""
    q, log_z, _, updates, converged = reduced.model.mean_field(reduced.evidence, tol, max_rounds, tries, work.seed)
    return Propagated(np.asarray(q), float(log_z) + reduced.constant, bool(converged), int(updates), 0.0)
