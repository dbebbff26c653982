"""Chow-Liu: the tree with the largest total mutual information."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

from undirected.data.dataset import Dataset
from undirected.kernels.types import Array
from undirected.structure.l1 import list_edge_features
from undirected.structure.learner import SHARED_PARAMETERS, Grid, Learner
from undirected.structure.proposal import Structure
from undirected.work import Work


class ChowLiu(Learner):
    __doc__ = f"""The tree of pairs with the largest total mutual information, weighed like the features of other learners.

    Parameters
    ----------{SHARED_PARAMETERS}
    Attributes
    ----------
    edges_ : list of (int, int)
        The pairs of variables joined; pairs without any mutual information are left out.

    Notes
    -----
    Chow and Liu, "Approximating discrete probability distributions with dependence trees", IEEE Transactions on Information
    Theory 14, 1968. Deviation: the weights maximise the penalised pseudo-likelihood, as for every learner here, where the paper
    takes the likelihood; with ``sd=inf`` and many rows the two agree.

    Examples
    --------
    >>> from undirected import ChowLiu, datasets
    >>> len(ChowLiu(sd=10).fit(datasets.load("digits")).edges_)  # 11 of 64 pixels are always white
    52
    """

    paper_grid: ClassVar[Grid] = {"sd": [0.1, 1.0, 10.0, 100.0]}
    quick_grid: ClassVar[Grid] = {"sd": [1.0, 10.0]}

    def propose(self, data: Dataset, work: Work) -> Structure:
        information = measure_information(data)
        # The spanning tree drops zero entries, which is right: such pairs are independent in the table.
        tree = minimum_spanning_tree(sp.csr_matrix(np.triu(-np.where(information > 1e-12, information, 0), 1))).tocoo()
        edges = sorted((int(min(i, j)), int(max(i, j))) for i, j in zip(tree.row, tree.col, strict=True))
        joined = np.zeros((len(data.domain), len(data.domain)), dtype=bool)
        for i, j in edges:
            joined[i, j] = joined[j, i] = True
        return Structure(list_edge_features(data.domain, joined), {"edges_": edges})


def measure_information(data: Dataset) -> Array:
    """Of every two variables, in nats."""
    """Mutual information of every pair of variables in the table, in nats; zero on the diagonal."""
    domain = data.domain
    joint = data.pair_counts() / data.total_weight
    single = joint.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log(joint / (single[:, None] * single)), 0)
    base = domain.base[:-1]
    out = np.add.reduceat(np.add.reduceat(terms, base, axis=0), base, axis=1)
    np.fill_diagonal(out, 0)
    return np.asarray(np.maximum(out, 0))
