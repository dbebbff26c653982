"""Rows set aside for validation."""

from __future__ import annotations

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import DataError, ParameterError
from undirected.kernels.types import Array


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


def count_cases(data: Dataset) -> Array:
    """How many cases each distinct row is: its weight, or one where weights are not whole numbers."""
    weights = data.distinct.weights
    return weights.astype(np.int64) if np.all(weights == np.round(weights)) else np.ones(len(weights), dtype=np.int64)


def hold_out_cases(data: Dataset, fraction: float, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Set a random ``fraction`` of the cases apart: (the others, the fraction), each with every distinct row once.

    A row of weight two is two cases, so that it makes no difference whether rows are repeated or weighted, nor in which order they stand.
    Where weights are not whole numbers every distinct row is one case.
    """
    rows, counts = data.distinct, count_cases(data)
    whole = bool(np.all(rows.weights == counts))
    n = round(int(counts.sum()) * fraction)
    if n == 0 or n == counts.sum():
        raise DataError(f"{data.source}: {int(counts.sum())} rows are too few to set {fraction:g} of them aside")
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(counts, n, method="marginals")
    parts = []
    for part in (counts - drawn, drawn):
        kept = np.flatnonzero(part > 0)
        if whole and counts.sum() == len(data):  # one case a row, and so it stays
            parts.append(Dataset(rows.domain, np.repeat(rows.codes, part, axis=0), source=data.source))
        else:
            parts.append(Dataset(rows.domain, rows.codes[kept], part[kept] if whole else rows.weights[kept], data.source))
    return parts[0], parts[1]
