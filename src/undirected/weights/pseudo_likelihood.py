"""The objective: minus the pseudo-log-likelihood of a feature set on a table, as a function of the weights."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import DataError, FeatureError
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend, default_threads
from undirected.kernels.types import Array
from undirected.network.network import MEMORY

FEW_FEATURES = 5000  # that are always prepared
SAMPLE = 1000  # features whose preparing is timed
PREPARING = 0.4  # of the time that is left may go into preparing features


def affordable(features: FeatureSet, data: Dataset, seconds: float | None, threads: int | None, memory: int) -> Array | None:
    """Where preparing all features would take too much of the seconds that are left, the positions of the shortest of them; else None.

    Preparing is one long call; how long is told by timing a sample. Features share contexts, so that all together take less than the
    sample says: half of that is reckoned with.
    """
    if seconds is None or len(features) <= FEW_FEATURES:
        return None
    table = data.distinct
    args = (table.columns, features.domain.n_states, table.weights)
    some = features.subset(np.linspace(0, len(features) - 1, SAMPLE).astype(np.int64))
    began = time.monotonic()
    backend().module.PseudoLikelihoodTables(*args, some.start, some.literals, memory, threads or default_threads(), None)
    each = (time.monotonic() - began) / SAMPLE / 2
    n = max(FEW_FEATURES, int(PREPARING * seconds / max(each, 1e-9)))
    return None if n >= len(features) else np.sort(np.argsort(features.lengths, kind="stable")[:n])


class PseudoLikelihood:
    """``-sum_r c_r * sum_i log P(x_ri | rest of row r)``, with derivatives; the penalties belong to the solver.

    Everything that does not depend on the weights is prepared once: distinct rows, shared contexts, row lists. ``memory``
    bounds the row lists in bytes; contexts that do not fit are found anew in each evaluation. With ``targets``, one variable
    per feature, a feature enters that variable's conditional alone: a set of separate regressions, evaluated together.
    """

    def __init__(
        self,
        features: FeatureSet,
        data: Dataset,
        threads: int | None = None,
        memory: int = MEMORY,
        targets: Array | None = None,
    ) -> None:
        if features.domain != data.domain:
            raise FeatureError("the features and the table have different domains; read the table with domain=features.domain")
        data.require_complete("fitting weights")
        self.features = features
        self.table = data.distinct
        if not len(self.table):
            raise DataError(f"{data.source}: no row has a weight above zero")
        self.threads = threads or default_threads()
        self.memory = memory
        self.total_weight = self.table.total_weight
        args = (self.table.columns, features.domain.n_states, self.table.weights, features.start, features.literals)
        self.targets = None if targets is None else np.ascontiguousarray(targets, dtype=np.int32)
        self.problem: Any = backend().module.PseudoLikelihoodTables(*args, memory, self.threads, self.targets)
        self.evaluations = 0

    def __len__(self) -> int:
        return len(self.features)

    def serves(self, features: FeatureSet, data: Dataset) -> bool:
        """Whether this is the objective of these features on this table."""
        return self.table is data.distinct and self.targets is None and self.features == features

    def evaluate(self, weights: Array, single: bool = False, curvature: bool = False) -> tuple[float, Array, Array | None]:
        """Value, gradient and, if asked for, the diagonal of the Hessian; ``single`` precision is about twice as fast."""
        self.evaluations += 1
        loss, gradient, diagonal = self.problem.evaluate(np.ascontiguousarray(weights), True, curvature, single, self.threads)
        return loss, gradient, diagonal

    def restrict(self, active: Array | None) -> None:
        """From now on compute the gradient of these features only (zero for the others); None lifts this."""
        self.problem.set_active(None if active is None else np.ascontiguousarray(active, dtype=np.uint8))

    @functools.cached_property
    def independent_start(self) -> Array:
        """Weights of the model of independent variables: log-odds on the features with one literal, zero on the others."""
        weights = np.zeros(len(self))
        domain = self.features.domain
        counts = self.table.literal_counts() + 0.5
        single = np.flatnonzero(self.features.lengths == 1)
        literals = self.features.literals[self.features.start[single]]
        single, literals = single[literals < domain.n_literals], literals[literals < domain.n_literals]
        literals, first = np.unique(literals, return_index=True)  # of equal features the first
        absent = np.ones(domain.n_literals, dtype=bool)
        absent[literals] = False
        # A reference state without a feature of its own, the first of each variable: the others are measured against it.
        free = np.flatnonzero(absent)
        owners, at = np.unique(domain.literal_variable[free], return_index=True)
        reference = np.full(len(domain), -1)
        reference[owners] = free[at]
        mine = reference[domain.literal_variable[literals]]
        known = mine >= 0
        weights[single[first[known]]] = np.log(counts[literals[known]] / counts[mine[known]])
        return weights
