"""GSSL on a stream: conjunctions are generated from the network's features and each chunk's rows, and counted over chunks."""

from __future__ import annotations

from collections.abc import Mapping
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
from undirected.streaming.packing import Arrays, check_array
from undirected.streaming.widening import widen_features
from undirected.structure.row_conjunctions import INITIAL, list_row_conjunctions
from undirected.work import MEMORY, Work


@dataclass
class Counter:
    """How often conjunctions were generated: the newest last, each once, and never more than a given number."""

    features: FeatureSet
    counts: Array

    def add(self, new: FeatureSet, counts: Array, most: int) -> None:
        """Count more; where there are too many, the rarest leave, the oldest of them first."""
        both, counted = self.features.concatenate(new), np.concatenate([self.counts, counts])
        _, last, group = np.unique(both.hashes[::-1], return_index=True, return_inverse=True)
        total = np.bincount(group[::-1], weights=counted, minlength=len(last))
        last = len(both) - 1 - last  # where each comes last
        kept = np.lexsort((last, total))[max(0, len(last) - most) :]
        kept = kept[np.argsort(last[kept])]
        self.features, self.counts = both.subset(last[kept]), total[kept]

    def drop(self, gone: FeatureSet) -> None:
        """Forget how often some were generated."""
        self.keep(~np.isin(self.features.hashes, gone.hashes))

    def keep(self, which: Array) -> None:
        """Forget all but these."""
        self.features, self.counts = self.features.subset(which), self.counts[which]

    def copy(self) -> Counter:
        """The same counts, to be added to on their own."""
        return replace(self)


class StreamedGSSL(StreamLearner):
    __doc__ = f"""`GSSL` chunk by chunk: conjunctions come from the network's features and the chunk's rows, and are counted over chunks.

    Parameters
    ----------
    n_generated : int
        Length of a chunk's list: the network's features, the chunk's distinct rows, and what is drawn from them.
    threshold : float
        Conjunctions that were generated more often than this are candidates.
    initial : {{"auto", "all", "positive"}}
        As in `GSSL`; ``auto`` is settled by the first chunk.
    max_counted : int
        Most conjunctions that are counted at a time. The rarest leave, the oldest of them first.{SHARED_PARAMETERS}

    Notes
    -----
    Chandra, Karande and Khan, "A Comparative Study of Markov Network Structure Learning Methods Over Data Streams", Section III, D.
    Deviations: (1) only candidates that would come out with a weight enter (``screen=False`` restores the paper). (2) Weights remember
    earlier chunks (``remember="none"``). (3) How often a conjunction was made adds up over chunks.

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
        n_generated: int = 100_000,
        threshold: float = 1,
        initial: str = "auto",
        max_counted: int = 200_000,
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
        self.n_generated = n_generated
        self.threshold = threshold
        self.initial = initial
        self.max_counted = max_counted

    def check_parameters(self) -> None:
        check_number("n_generated", self.n_generated, 1, (1 << 31) - 1, whole=True)
        check_number("threshold", self.threshold, 0)
        check_number("max_counted", self.max_counted, 1, whole=True)
        if self.initial not in INITIAL:
            raise ParameterError(f"initial={self.initial!r} is not known; choose one of {', '.join(INITIAL)}")

    @property
    def first_seed(self) -> int:
        return int(self.random_state)  # as the batch learner has it

    def start_structure(self, chunk: Dataset) -> Counter:
        return Counter(FeatureSet.from_normalised([], chunk.domain), np.zeros(0))

    def update_structure(self, structure: Counter, chunk: Dataset, work: Work) -> FeatureSet:
        domain = chunk.domain
        rows = FeatureSet(domain, *list_row_conjunctions(chunk, self.initial if domain.is_binary else "all"))
        longer = self.features_now.subset(self.features_now.lengths > 1)
        pool = longer.concatenate(rows)
        start, literals, counts, _, _ = backend().module.gssl_generate(
            pool.start, pool.literals, int(self.n_generated), 0, self.seed_, work.threads
        )
        new = FeatureSet.from_arrays(domain, start, literals)
        some = new.lengths > 0
        structure.counts = self.decay * structure.counts
        structure.add(new.subset(some), counts[some], int(self.max_counted))
        return structure.features.subset(structure.counts > self.threshold)

    def drop_features(self, structure: Counter, gone: FeatureSet) -> None:
        structure.drop(gone)

    def widen_structure(self, structure: Counter, domain: Domain) -> None:
        structure.features = widen_features(structure.features, domain)

    def pack_structure(self, structure: Counter) -> tuple[dict[str, Any], Arrays]:
        return {}, {"start": structure.features.start, "literals": structure.features.literals, "counts": structure.counts}

    def unpack_structure(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> Counter:
        features = FeatureSet.from_arrays(domain, check_array(arrays, "start", "i", None), check_array(arrays, "literals", "i", None))
        return Counter(features, check_array(arrays, "counts", "f", len(features), least=0))
