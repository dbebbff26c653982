"""The searches BLM and Della Pietra on a stream: on every chunk they go on from the network there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import ParameterError, check_number
from undirected.features.feature_set import FeatureSet
from undirected.streaming.learner import SHARED_PARAMETERS, StreamLearner
from undirected.streaming.packing import Arrays
from undirected.structure.blm import BLM
from undirected.structure.della_pietra import DellaPietra
from undirected.structure.search_learner import SearchLearner, check_price
from undirected.work import MEMORY, Work

METHODS: dict[str, type[SearchLearner]] = {"blm": BLM, "dp": DellaPietra}


@dataclass
class Nothing:
    """A search has no state but the network."""

    def copy(self) -> Nothing:
        return self


class StreamedSearch(StreamLearner):
    __doc__ = f"""`BLM` or `DellaPietra` chunk by chunk: each search starts from the network so far and ends with its time.

    Parameters
    ----------
    method : {{"blm", "dp"}}
        Which of the two searches.
    alpha : float
        Price of a literal in the score of a search; see `BLM`.
    search_sd : float
        Standard deviation of the weights' prior during a search.
    time_budget : float or None
        Seconds that the search may take on a chunk; None for no limit. A search that time ended does not come out alike in two runs,
        so that a stream which was cut and resumed equals one that was not only without a limit.{SHARED_PARAMETERS}

    Notes
    -----
    Chandra, Karande and Khan, "A Comparative Study of Markov Network Structure Learning Methods Over Data Streams", Section III, A and B.
    Deviations: (1) a search looks at its chunk alone, but starts from all features of the network; those that it lets go stay in the
    network until their weights are zero. (2) As in `StreamedGSSL`, (1) and (2).

    Examples
    --------
    >>> from undirected import StreamedSearch, datasets
    >>> learner = StreamedSearch("dp", alpha=20, time_budget=5)
    >>> for chunk in datasets.load("digits").shards(3):
    ...     learner = learner.learn_many(chunk)
    >>> learner.n_chunks_, bool(learner.last_.npll > -0.6)
    (3, True)
    """

    def __init__(
        self,
        method: str = "blm",
        alpha: float = 5.0,
        search_sd: float = 0.3,
        time_budget: float | None = 10.0,
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
        self.method = method
        self.alpha = alpha
        self.search_sd = search_sd
        self.time_budget = time_budget

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.method

    def check_parameters(self) -> None:
        if self.method not in METHODS:
            raise ParameterError(f"method={self.method!r} is not known; choose one of {', '.join(METHODS)}")
        check_price("alpha", self.alpha)
        check_number("search_sd", self.search_sd, 0, above=True)
        if self.time_budget is not None:
            check_number("time_budget", self.time_budget, 0)

    def start_structure(self, chunk: Dataset) -> Nothing:
        return Nothing()

    def update_structure(self, structure: Nothing, chunk: Dataset, work: Work) -> FeatureSet:
        learner = METHODS[self.method](alpha=self.alpha, search_sd=self.search_sd)
        limited = work.silent() if self.time_budget is None else work.silent().limit(float(self.time_budget))
        return learner.improve(self.features_now, chunk, limited)

    def widen_structure(self, structure: Nothing, domain: Domain) -> None:
        """There is nothing that could follow."""

    def pack_structure(self, structure: Nothing) -> tuple[dict[str, Any], Arrays]:
        return {}, {}

    def unpack_structure(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> Nothing:
        return Nothing()
