"""GSSL on a stream: conjunctions drawn from the network's features and the chunk's rows, counted over chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import ParameterError, check_number
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.streaming.learner import SHARED_PARAMETERS, StreamLearner
from undirected.streaming.packing import Arrays
from undirected.streaming.widening import widen_features
from undirected.structure.row_conjunctions import INITIAL, list_row_conjunctions
from undirected.work import MEMORY, Work


@dataclass
class Counter:
    """Conjunctions and how often they were drawn, decayed; in the order in which they first came."""

    features: FeatureSet
    counts: Array

    def add(self, new: FeatureSet, counts: Array, decay: float) -> None:
        """Add what a chunk has drawn."""
        both = self.features.concatenate(new)
        _, first, group = np.unique(both.hashes, return_index=True, return_inverse=True)
        totals = np.bincount(group, weights=np.concatenate([decay * self.counts, counts]), minlength=len(first))
        order = np.argsort(first)
        self.features, self.counts = both.subset(first[order]), totals[order]

    def trim(self, most: int) -> None:
        """Keep those of the highest counts, the newest of equal ones."""
        if len(self.features) > most:
            kept = np.sort(np.lexsort((np.arange(len(self.counts)), self.counts))[-most:])
            self.features, self.counts = self.features.subset(kept), self.counts[kept]

    def copy(self) -> Counter:
        """The same counts, to be added to on their own."""
        return replace(self)


class StreamedGSSL(StreamLearner):
    __doc__ = f"""`GSSL` chunk by chunk: literals are dropped at random from the chunk's rows and the network's features; counts add up.

    Parameters
    ----------
    n_generated : int
        Length of each chunk's list, its rows and the network's features included.
    threshold : int
        A conjunction is a candidate once it was drawn more often than this, in all chunks together.
    initial : {{"auto", "all", "positive"}}
        As in `GSSL`; ``auto`` is settled by the first chunk.
    max_generated : int
        Most conjunctions that are counted; those drawn least often leave first.{SHARED_PARAMETERS}

    Notes
    -----
    Chandra, Karande and Khan, "A Comparative Study of Markov Network Structure Learning Methods Over Data Streams", Section III, of Van
    Haaren and Davis, AAAI 2012. Deviations: (1) only candidates that would come out with a weight enter (``screen=False``). (2) Weights
    remember earlier chunks (``remember="none"``). (3) The counter is bounded.

    Examples
    --------
    >>> from undirected import StreamedGSSL, datasets
    >>> learner = StreamedGSSL(n_generated=20_000)
    >>> for chunk in datasets.load("digits").shards(3):
    ...     learner = learner.learn_many(chunk)
    >>> learner.n_chunks_, bool(learner.last_.npll > -0.6)
    (3, True)
    """

    kind: ClassVar[str] = "gssl"

    def __init__(
        self,
        n_generated: int = 50_000,
        threshold: int = 1,
        initial: str = "auto",
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
        unknown: str = "error",
        bins: int = 4,
        threads: int | None = None,
        memory: int = MEMORY,
        progress: Any = None,
        domain: Any = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            l1, sd, tol, remember, decay, window, max_features, screen, patience, chunk_rows, watch, delta, drift, missing, unknown, bins,
            threads, memory, progress, domain, random_state,
        )  # fmt: skip
        self.n_generated = n_generated
        self.threshold = threshold
        self.initial = initial
        self.max_generated = max_generated

    def check_parameters(self) -> None:
        check_number("n_generated", self.n_generated, 1, (1 << 31) - 1, whole=True)
        check_number("threshold", self.threshold, 0, whole=True)
        check_number("max_generated", self.max_generated, 1, whole=True)
        if self.initial not in INITIAL:
            raise ParameterError(f"initial={self.initial!r} is not known; choose one of {', '.join(INITIAL)}")

    def start_structure(self, chunk: Dataset) -> Counter:
        return Counter(FeatureSet.from_normalised([], chunk.domain), np.zeros(0))

    def update_structure(self, structure: Counter, chunk: Dataset, work: Work) -> FeatureSet:
        start, literals = list_row_conjunctions(chunk, self.initial)
        pool = FeatureSet(chunk.domain, start, literals)
        if self._fitting is not None and self._fitting.features.domain == chunk.domain:
            network = self._fitting.features
            plain = np.add.reduceat(network.literals >= chunk.domain.n_literals, network.start[:-1]) == 0
            pool = network.subset(plain & (network.lengths > 1)).concatenate(pool)
        start, literals, counts, _, _ = backend().module.gssl_generate(
            pool.start, pool.literals, max(int(self.n_generated), len(pool)), 0, self.seed_, work.threads
        )
        structure.add(FeatureSet.from_arrays(chunk.domain, start, literals), counts.astype(float), self.decay)
        structure.trim(int(self.max_generated))
        return structure.features.subset(structure.counts > self.threshold)

    def widen_structure(self, structure: Counter, domain: Domain) -> None:
        structure.features = widen_features(structure.features, domain)

    def pack_structure(self, structure: Counter) -> tuple[dict[str, Any], Arrays]:
        return {}, {"start": structure.features.start, "literals": structure.features.literals, "counts": structure.counts}

    def unpack_structure(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> Counter:
        return Counter(FeatureSet.from_arrays(domain, arrays["start"], arrays["literals"]), arrays["counts"])
