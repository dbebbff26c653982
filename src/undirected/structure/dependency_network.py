"""A set of trees as a model of its own: a dependency network."""

from __future__ import annotations

from typing import Any

import numpy as np

from undirected.data.readers import read_data
from undirected.kernels.types import Array
from undirected.structure.trees import Trees


class DependencyNetwork:
    """The conditional distribution of each variable given the others, one tree each.

    The conditionals need not fit one joint distribution; their product is nevertheless scored like a pseudo-likelihood
    (Heckerman et al., "Dependency Networks for Inference, Collaborative Filtering, and Data Visualization", JMLR 1, 2000).
    A `DTSL` learner keeps one as ``dependency_network_``.
    """

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.domain = trees.domain

    def __repr__(self) -> str:
        return f"<DependencyNetwork of {len(self.domain)} variables, {self.trees.n_leaves:,} leaves>"

    def pll_rows(self, data: Any) -> Array:
        """The sum of the log-conditionals of each row."""
        return self.trees.walk(read_data(data, domain=self.domain))[1]

    def pll(self, data: Any) -> float:
        """The mean over rows, weighted; comparable with `MarkovNetwork.pll`."""
        table = read_data(data, domain=self.domain)
        return float(np.average(self.pll_rows(table), weights=table.weights))
