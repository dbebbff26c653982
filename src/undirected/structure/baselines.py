"""The cheap learners that others are compared with: independent variables, a tree, all pairs at once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MEMORY
from undirected.structure.l1 import edge_features
from undirected.structure.learner import Grid, Learner

_SHARED = """
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`.
"""


class _Baseline(Learner):
    """What the three share: no parameters of their own."""

    def __init__(
        self,
        l1: float = 0.0,
        sd: float = 1.0,
        tol: float = 1e-5,
        prune: bool = False,
        bins: int = 4,
        missing: str = "error",
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        progress: Any = None,
    ) -> None:
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress)


class Atomic(_Baseline):
    __doc__ = f"""Independent variables: one feature per variable and state but the first. The floor for every other learner.

    Parameters
    ----------{_SHARED}
    Examples
    --------
    >>> from undirected import Atomic, datasets
    >>> Atomic(sd=10).fit(datasets.load("digits")).network_
    <MarkovNetwork of 64 variables, 64 features>
    """

    paper_grid: ClassVar[Grid] = {"sd": [0.1, 1.0, 10.0, 100.0]}
    quick_grid: ClassVar[Grid] = {"sd": [1.0, 10.0]}

    def propose(self, data: Dataset) -> FeatureSet:
        return FeatureSet.atomic(data.domain)


class ChowLiu(_Baseline):
    __doc__ = f"""The tree of pairs with the largest total mutual information, weighed like the features of other learners.

    Parameters
    ----------{_SHARED}
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
    >>> len(ChowLiu(sd=10).fit(datasets.load("digits")).edges_)
    63
    """

    paper_grid: ClassVar[Grid] = {"sd": [0.1, 1.0, 10.0, 100.0]}
    quick_grid: ClassVar[Grid] = {"sd": [1.0, 10.0]}

    def propose(self, data: Dataset) -> FeatureSet:
        information = mutual_information(data)
        # The spanning tree drops zero entries, which is right: such pairs are independent in the table.
        tree = minimum_spanning_tree(sp.csr_matrix(np.triu(-np.where(information > 1e-12, information, 0), 1))).tocoo()
        self.edges_ = sorted((int(min(i, j)), int(max(i, j))) for i, j in zip(tree.row, tree.col, strict=True))
        joined = np.zeros((len(data.domain), len(data.domain)), dtype=bool)
        for i, j in self.edges_:
            joined[i, j] = joined[j, i] = True
        return edge_features(data.domain, joined)


class AllPairs(_Baseline):
    __doc__ = f"""All pairs at once, without a choice beforehand: one joint fit, in which the L1 penalty leaves out what is not needed.

    Parameters
    ----------{_SHARED}
    Examples
    --------
    >>> from undirected import AllPairs, datasets
    >>> learner = AllPairs(l1=20, prune=True).fit(datasets.load("digits"))
    >>> 64 < len(learner.network_.features) < 2080
    True
    """

    paper_grid: ClassVar[Grid] = {"l1": [0.5, 1.0, 2.0, 5.0, 10.0, 20.0], "sd": [0.1, 0.5, 1.0, 10.0]}
    quick_grid: ClassVar[Grid] = {"l1": [1.0, 5.0], "sd": [0.5, 1.0]}

    def __init__(
        self,
        l1: float = 1.0,
        sd: float = 1.0,
        tol: float = 1e-5,
        prune: bool = False,
        bins: int = 4,
        missing: str = "error",
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        progress: Any = None,
    ) -> None:
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress)

    def propose(self, data: Dataset) -> FeatureSet:
        return FeatureSet.all_pairs(data.domain)


def mutual_information(data: Dataset) -> Array:
    """Mutual information of every pair of variables in the table, in nats; zero on the diagonal."""
    table, domain = data.distinct, data.domain
    n, width = table.codes.shape
    literals = (table.codes.astype(np.int64) + domain.base[:-1]).ravel()
    held = sp.csr_matrix((np.ones(len(literals)), literals, np.arange(n + 1) * width), shape=(n, domain.n_literals))
    joint = np.asarray((held.T @ sp.diags(table.weights / table.total_weight) @ held).todense())
    single = joint.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log(joint / (single[:, None] * single)), 0)
    base = domain.base[:-1]
    out = np.add.reduceat(np.add.reduceat(terms, base, axis=0), base, axis=1)
    np.fill_diagonal(out, 0)
    return np.asarray(np.maximum(out, 0))
