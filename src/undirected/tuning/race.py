"""Scores of weights on validation rows, and the race between settings that gives up those that cannot win."""

from __future__ import annotations

import functools

import numpy as np

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import Work

ABANDON_MARGIN = 0.01  # a setting is given up if its score is this share below the best
CLOSE_ENOUGH = 1e-4  # part of the objective: this near to its end a setting's score is compared (one percent of the margin)
FALLS_BEFORE_ABANDONING = 1  # looks with a falling score, beyond which a setting far below the best is given up before its end is near


class Validation:
    """The validation rows, prepared once for all weights of the same features."""

    def __init__(self, features: FeatureSet, valid: Dataset, work: Work) -> None:
        self.features, self.valid, self._work = features, valid, work

    @functools.cached_property
    def _objective(self) -> PseudoLikelihood:
        return PseudoLikelihood(self.features, self.valid, self._work.threads, self._work.memory)

    def pll(self, weights: Array) -> float:
        """The mean pseudo-log-likelihood of the rows, as `MarkovNetwork.pll` gives it."""
        return self._objective.pll(weights)


class Race:
    """Gives up settings far below the best validation score so far, over this structure's settings and those before it: those whose
    score keeps falling, and, near the end, all."""

    def __init__(self, validation: Validation, best: float, tol: float, gap: float = CLOSE_ENOUGH) -> None:
        self.tol, self.gap = tol, gap
        self._validation, self._best = validation, best
        self._last, self._falls = -np.inf, 0

    def begin(self, weights: Array) -> None:
        self._last, self._falls = self._validation.pll(weights), 0

    def is_hopeless(self, weights: Array, near: bool) -> bool:
        score = self._validation.pll(weights)
        self._falls = self._falls + 1 if score < self._last else 0
        self._last = score
        if near:
            self._best = max(self._best, score)
        return (near or self._falls > FALLS_BEFORE_ABANDONING) and score < self._best - ABANDON_MARGIN * abs(self._best)
