"""Rows of a table as conjunctions, from which features are generated."""

from __future__ import annotations

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError
from undirected.kernels.types import Array

INITIAL = ("auto", "all", "positive")


def list_row_conjunctions(data: Dataset, initial: str) -> tuple[Array, Array]:
    """The distinct rows as flat lists of literals."""
    table = data.distinct
    domain = data.domain
    if initial == "auto":
        density = float(table.weights @ (table.codes == 1).mean(axis=1)) / max(table.total_weight, 1e-300)
        initial = "positive" if domain.is_binary and density < 0.5 else "all"
    if initial == "positive" and not domain.is_binary:
        v = next(v for v in domain.variables if len(v.states) != 2)
        raise ParameterError(f"initial='positive' needs two states everywhere, but {v.name!r} has {len(v.states)}; use 'all'")
    literals = table.codes.astype(np.int32) + domain.base[:-1]
    if initial == "all":
        n, width = literals.shape
        return np.arange(n + 1, dtype=np.int64) * width, np.ascontiguousarray(literals.ravel())
    held = table.codes == 1
    start = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64)
    return start, np.ascontiguousarray(literals[held])
