"""Are learners different, over data sets: mean ranks, and Wilcoxon's signed-rank test as in the papers."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata, wilcoxon

from undirected.kernels.types import Array


def compute_mean_ranks(scores: Array) -> Array:
    """The mean rank of each column over the rows; 1 is the highest score, ties share their ranks."""
    return np.asarray(rankdata(-np.asarray(scores, dtype=float), axis=1).mean(axis=0))


def compute_wilcoxon_p(a: Array, b: Array) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test for paired scores; 1 where no pair differs."""
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    if not difference.any():
        return 1.0
    return float(wilcoxon(difference).pvalue)
