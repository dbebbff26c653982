"""Rows set aside for validation."""

from __future__ import annotations

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import DataError, ParameterError


def holdout(data: Dataset, fraction: float, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Set a random ``fraction`` of the rows apart from the others: (the others, the fraction). The same seed, the same rows."""
    if not 0 < fraction < 1:
        raise ParameterError(f"a validation fraction of {fraction} is not between 0 and 1; try 0.1")
    if seed < 0:
        raise ParameterError(f"seed={seed}: a seed is zero or more")
    n = round(len(data) * fraction)
    if n == 0 or n == len(data):
        raise DataError(f"{data.source}: {len(data)} rows are too few to set {fraction:g} of them aside")
    order = np.random.default_rng(seed).permutation(len(data))
    return data.subset(np.sort(order[n:])), data.subset(np.sort(order[:n]))
