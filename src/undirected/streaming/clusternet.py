"""ClusterNet on a stream: centroids from the first chunk, clusters that grow with every one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import check_number
from undirected.features.feature_set import FeatureSet
from undirected.streaming.learner import SHARED_PARAMETERS, StreamLearner
from undirected.streaming.packing import Arrays, check_array
from undirected.streaming.widening import spread_by_literal, widen_features
from undirected.structure.clusternet import check_clustering
from undirected.structure.clusters import Clusters
from undirected.work import MEMORY, Work


class StreamedClusterNet(StreamLearner):
    __doc__ = f"""`ClusterNet` chunk by chunk: every chunk's rows join their clusters, and new conjunctions are made there.

    Parameters
    ----------
    n_clusters, alpha, support, with_initial
        As in `ClusterNet`; the clusters are those of the first chunk.
    max_initial, max_generated : int
        Most rows, as conjunctions, and most conjunctions made of them that the clusters hold. Of rows those leave that came least often,
        of conjunctions the oldest that are not in the network.{SHARED_PARAMETERS}

    Notes
    -----
    Chandra, Karande and Khan, "A Comparative Study of Markov Network Structure Learning Methods Over Data Streams". Deviations beside
    those of `ClusterNet`: (1) only candidates that would come out with a weight enter (``screen=False`` restores the paper). (2) Weights
    remember earlier chunks (``remember="none"``). (3) Sets are bounded, where the paper's grow for ever.

    Examples
    --------
    >>> from undirected import StreamedClusterNet, datasets
    >>> learner = StreamedClusterNet(n_clusters=10, alpha=100)
    >>> for chunk in datasets.load("digits").shards(3):
    ...     learner = learner.learn_many(chunk)
    >>> learner.n_chunks_, bool(learner.last_.npll > -0.6)
    (3, True)
    """

    kind: ClassVar[str] = "clusternet"

    def __init__(
        self,
        n_clusters: int = 100,
        alpha: int = 1000,
        support: str = "union",
        with_initial: bool = False,
        max_initial: int = 50_000,
        max_generated: int = 50_000,
        l1: float = 5.0,
        sd: float = 0.5,
        tol: float = 1e-4,
        remember: str = "curvature",
        decay: float = 1.0,
        window: int = 10,
        max_features: int = 50_000,
        screen: bool = True,
        patience: int = 2,
        chunk_rows: int = 2000,
        watch: str = "auto",
        delta: float = 0.002,
        drift: str = "none",
        missing: str = "drop",
        unknown: str = "skip",
        bins: int = 4,
        reading: Mapping[str, Any] | None = None,
        threads: int | None = None,
        memory: int = MEMORY,
        progress: Any = None,
        domain: Any = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            l1, sd, tol, remember, decay, window, max_features, screen, patience, chunk_rows, watch, delta, drift, missing, unknown, bins,
            reading, threads, memory, progress, domain, random_state,
        )  # fmt: skip
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.support = support
        self.with_initial = with_initial
        self.max_initial = max_initial
        self.max_generated = max_generated

    def check_parameters(self) -> None:
        check_clustering(self.n_clusters, self.alpha, self.support)
        for name in ("max_initial", "max_generated"):
            check_number(name, getattr(self, name), 1, whole=True)

    def start_structure(self, chunk: Dataset) -> Clusters:
        return Clusters.start(chunk, int(self.n_clusters), self.seed_)

    def update_structure(self, structure: Clusters, chunk: Dataset, work: Work) -> FeatureSet:
        structure.counts = self.decay * structure.counts
        structure.add_rows(chunk)
        extra = len(structure.rows) - self.max_initial
        if extra > 0:  # those that came least often, the oldest of them first
            structure.keep_rows(np.sort(np.argsort(structure.counts, kind="stable")[extra:]))
        structure.generate(int(self.alpha), self.support, self.seed_)
        self._trim(structure)
        return structure.list_features(self.with_initial)

    def _trim(self, structure: Clusters) -> None:
        """Let the oldest conjunctions go that are not in the network."""
        made = structure.made
        extra = len(made) - self.max_generated
        if extra <= 0:
            return
        used = np.isin(made.hashes, self.features_now.hashes)
        order = np.lexsort((np.arange(len(made)), used))
        structure.keep_made(np.sort(order[extra:]))

    def widen_structure(self, structure: Clusters, domain: Domain) -> None:
        old = structure.rows.domain
        centroids = structure.centroids.T
        if old.is_binary:  # a column for each variable becomes one for each literal
            whole = np.empty((old.n_literals, centroids.shape[1]))
            whole[old.base[:-1]], whole[old.base[:-1] + 1] = 1 - centroids, centroids
            centroids = whole
        structure.centroids = np.ascontiguousarray(spread_by_literal(centroids, old, domain).T)
        structure.rows, structure.made = widen_features(structure.rows, domain), widen_features(structure.made, domain)

    def pack_structure(self, structure: Clusters) -> tuple[dict[str, Any], Arrays]:
        return {}, {
            "centroids": structure.centroids, "common": structure.common, "row_start": structure.rows.start,
            "row_literals": structure.rows.literals, "row_cluster": structure.row_cluster, "counts": structure.counts,
            "start": structure.made.start, "literals": structure.made.literals, "cluster": structure.made_cluster,
        }  # fmt: skip

    def unpack_structure(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> Clusters:
        rows, made = (
            FeatureSet.from_arrays(domain, check_array(arrays, start, "i", None), check_array(arrays, literals, "i", None))
            for start, literals in (("row_start", "row_literals"), ("start", "literals"))
        )
        centroids = arrays["centroids"]
        width = len(domain) if domain.is_binary else domain.n_literals
        if centroids.dtype.kind != "f" or centroids.ndim != 2 or centroids.shape[1] != width or not np.isfinite(centroids).all():
            raise ValueError("the centroids do not fit")
        for name, n, below in (("row_cluster", len(rows), len(centroids)), ("cluster", len(made), len(centroids))):
            check_array(arrays, name, "i", n, least=0, below=below)
        check_array(arrays, "counts", "f", len(rows), least=0)
        if (check_array(arrays, "common", "i", len(domain), least=0) >= domain.n_states).any():
            raise ValueError("the common states do not fit")
        return Clusters(arrays["centroids"], arrays["common"], rows, arrays["row_cluster"], arrays["counts"], made, arrays["cluster"])
