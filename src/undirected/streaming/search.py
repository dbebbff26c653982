"""Searches on a stream: BLM or Della Pietra, from the network as it is, within a time for each chunk."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import ParameterError, check_number
from undirected.features.feature_set import FeatureSet
from undirected.streaming.learner import SHARED_PARAMETERS, StreamLearner
from undirected.streaming.packing import Arrays
from undirected.structure.names import find_learner_class
from undirected.structure.search_learner import SearchLearner
from undirected.work import MEMORY, Work

SEARCHES = ("blm", "dp")


class Nothing:
    """The state of a structure that is the network itself."""

    def copy(self) -> Nothing:
        """Itself: there is nothing to change."""
        return self


class StreamedSearch(StreamLearner):
    __doc__ = f"""A search from the network as it is, on each chunk: bottom-up (`BLM`) or by joining features (`DellaPietra`).

    Parameters
    ----------
    search : {{"blm", "dp"}}
        Which one.
    alpha : float
        Price of a literal in the search's score, against the rows of one chunk.
    search_budget : float or None
        Seconds that a chunk's search may take; None: until nothing improves the score. What is found in a given time depends
        on the machine, so that only without a budget two runs give the same network.{SHARED_PARAMETERS}

    Notes
    -----
    Chandra, Karande and Khan, "A Comparative Study of Markov Network Structure Learning Methods Over Data Streams", Section III. What a
    search finds on a chunk joins the features of the network. Deviations: as in `StreamedGSSL`, (1) and (2).

    Examples
    --------
    >>> from undirected import StreamedSearch, datasets
    >>> learner = StreamedSearch(search="dp", alpha=20, search_budget=None)
    >>> for chunk in datasets.load("digits").shards(3):
    ...     learner = learner.learn_many(chunk)
    >>> learner.n_chunks_, bool(learner.last_.npll > -0.6)
    (3, True)
    """

    kind: ClassVar[str] = "search"

    def __init__(
        self,
        search: str = "blm",
        alpha: float = 5.0,
        search_budget: float | None = 10.0,
        l1: float = 1.0,
        sd: float = 1.0,
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
        self.search = search
        self.alpha = alpha
        self.search_budget = search_budget

    def check_parameters(self) -> None:
        if self.search not in SEARCHES:
            raise ParameterError(f"search={self.search!r} is not known; choose one of {', '.join(SEARCHES)}")
        check_number("alpha", self.alpha, 0)
        if self.search_budget is not None:
            check_number("search_budget", self.search_budget, 0, above=True)

    def start_structure(self, chunk: Dataset) -> Nothing:
        return Nothing()

    def update_structure(self, structure: Nothing, chunk: Dataset, work: Work) -> FeatureSet:
        learner = find_learner_class(self.search)(alpha=float(self.alpha), l1=self.l1, sd=self.sd)
        assert isinstance(learner, SearchLearner)
        network = FeatureSet.from_normalised([], chunk.domain)
        if self._fitting is not None and self._fitting.features.domain == chunk.domain:
            network = self._fitting.features.subset(np.flatnonzero(self._fitting.weights != 0))
        limited = work.silent() if self.search_budget is None else work.silent().limit(self.search_budget)
        return learner.improve(network, chunk, limited)

    def widen_structure(self, structure: Nothing, domain: Domain) -> None:
        """There is nothing to follow."""

    def pack_structure(self, structure: Nothing) -> tuple[dict[str, Any], Arrays]:
        return {}, {}

    def unpack_structure(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> Nothing:
        return Nothing()
