"""Clusters of rows and the conjunctions that are made of them: the state of ClusterNet, which grows with every chunk of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from threadpoolctl import threadpool_limits

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.weights.fit import use_one_blas_thread

SUPPORTS = ("union", "init", "feature")  # in the order of the kernel's numbers
MANY_ROWS = 10_000  # distinct rows from which centroids are found on random batches
AT_ONCE = 4096  # rows whose distances are computed together


@dataclass
class Clusters:
    """Fixed centroids, and in each cluster its rows as conjunctions and the conjunctions made of them.

    A row's conjunction leaves out the variables in their ``common`` state: the first of two where all variables have two, else
    the most frequent of the first rows. ``counts`` tells how much weight the rows of a conjunction have had.
    """

    centroids: Array  # [clusters][columns of `make_points`]
    common: Array  # [variables]
    rows: FeatureSet
    row_cluster: Array
    counts: Array
    made: FeatureSet  # in the order in which they came; one may be in several clusters
    made_cluster: Array

    @classmethod
    def start(cls, data: Dataset, n_clusters: int, seed: int) -> Clusters:
        """Find the centroids among the rows of a table; the clusters are empty."""
        table, domain = data.distinct, data.domain
        if domain.is_binary:
            common = np.zeros(len(domain), dtype=np.int32)
        else:
            counts = data.literal_counts()
            common = np.array([np.argmax(counts[a:b]) for a, b in zip(domain.base, domain.base[1:], strict=False)], dtype=np.int32)
        points = make_points(table)
        k = min(n_clusters, len(table))
        kind = KMeans if len(table) <= MANY_ROWS else MiniBatchKMeans
        with threadpool_limits(1):  # sums over rows come out the same for any number of cores
            found = kind(k, n_init=1, random_state=seed % (1 << 32)).fit(points, sample_weight=table.weights)
        none, nowhere = FeatureSet.from_normalised([], domain), np.zeros(0, dtype=np.int32)
        return cls(found.cluster_centers_.astype(float), common, none, nowhere, np.zeros(0), none, nowhere)

    def add_rows(self, data: Dataset) -> None:
        """Put the rows of a table into the clusters of the nearest centroids."""
        table = data.distinct
        held = table.codes != self.common
        lengths = held.sum(axis=1)
        start = np.concatenate([[0], np.cumsum(lengths)])
        literals = (table.codes.astype(np.int32) + data.domain.base[:-1])[held]
        some = lengths > 0
        new = FeatureSet(data.domain, start, literals).subset(some)
        nearest = self._find_nearest(make_points(table)[some])
        both = self.rows.concatenate(new)
        first, group = both.group_equal()
        self.rows = both.subset(first)
        self.row_cluster = np.concatenate([self.row_cluster, nearest])[first]
        self.counts = np.bincount(group, weights=np.concatenate([self.counts, table.weights[some]]), minlength=len(first))

    def _find_nearest(self, points: Array) -> Array:
        """The cluster of each point: the first of those at the least Euclidean distance."""
        sizes = np.square(self.centroids).sum(axis=1)
        out = np.zeros(len(points), dtype=np.int32)
        with use_one_blas_thread():
            for at in range(0, len(points), AT_ONCE):
                some = points[at : at + AT_ONCE]
                out[at : at + AT_ONCE] = np.argmin(sizes - 2 * some @ self.centroids.T, axis=1)
        return out

    def generate(self, alpha: int, support: str, seed: int) -> None:
        """Make conjunctions in every cluster by leaving out literals, a round for each variable."""
        args = (self.row_cluster, self.rows.start, self.rows.literals, self.made_cluster, self.made.start, self.made.literals)
        domain = self.rows.domain
        cluster, start, literals = backend().module.clusternet_generate(
            len(self.centroids), domain.n_literals, *args, len(domain), alpha, SUPPORTS.index(support), seed
        )
        self.made = self.made.concatenate(FeatureSet(domain, start, literals))
        self.made_cluster = np.concatenate([self.made_cluster, cluster])

    def list_features(self, with_initial: bool) -> FeatureSet:
        """The conjunctions made in all clusters, some of them several times; ``with_initial`` those of the rows, too."""
        return self.made.concatenate(self.rows) if with_initial else self.made

    def keep_rows(self, kept: Array) -> None:
        """Forget all rows' conjunctions but these."""
        self.rows, self.row_cluster, self.counts = self.rows.subset(kept), self.row_cluster[kept], self.counts[kept]

    def keep_made(self, kept: Array) -> None:
        """Forget all made conjunctions but these."""
        self.made, self.made_cluster = self.made.subset(kept), self.made_cluster[kept]

    def copy(self) -> Clusters:
        """The same clusters, to be grown on their own."""
        return replace(self)


def make_points(data: Dataset) -> Array:
    """Rows as points of zeros and ones: a column for each variable where all have two states, else one for each literal."""
    if data.domain.is_binary:
        return np.asarray(data.codes == 1, dtype=float)
    variable = data.domain.literal_variable
    states = np.arange(data.domain.n_literals) - data.domain.base[variable]
    return np.asarray(data.codes[:, variable] == states, dtype=float)
