"""BUSL for tables: blankets by independence tests, conjunctions within cliques, greedy choice by score."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any, ClassVar

import networkx as nx

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError
from undirected.structure.blankets import find_blankets
from undirected.structure.della_pietra import check_length
from undirected.structure.greedy import Candidate, grow
from undirected.structure.learner import Grid
from undirected.structure.search_learner import ALPHAS, SDS, SEARCH_SDS, SearchLearner
from undirected.structure.search_state import Feature, SearchState
from undirected.work import MEMORY


class BUSL(SearchLearner):
    """Find each variable's Markov blanket by tests of independence, and choose among conjunctions within cliques of the graph.

    Blankets are grown and shrunk by chi-square tests on the table. Two variables are joined where either is in the other's
    blanket. Candidates are the conjunctions of non-reference states within each maximal clique; the best enters, again and
    again, while the score rises. Blankets take seconds for a hundred variables, an hour for 1,500 on 300,000 rows; if the time
    budget ends among them, the network has atomic features only.

    Parameters
    ----------
    test_level : float
        Significance level of the tests.
    max_length : int
        Features have at most so many literals.
    alpha, search_sd, relearn_every, checkpoint
        As in `DellaPietra`.
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`; the budget is for the search and the weights together.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        The variables and states to code tables with, so that rows with states that the training rows lack can be scored.

    Attributes
    ----------
    network_ : MarkovNetwork
    fit_ : WeightFit
    trace_ : Trace
        The score against time; ``trace_.plot()`` draws it.
    blankets_ : list of list of int

    Notes
    -----
    Mihalkova and Mooney, "Bottom-Up Learning of Markov Logic Network Structure", ICML 2007; blankets by Bromberg, Margaritis and
    Honavar's grow-shrink tests.

    Deviations: (1) a table takes the place of the relational database, so that the template is the graph of its variables.
    (2) Cells in which less than one row is expected and fewer than five are seen are left out of a test, with a degree of
    freedom each; where none is left there is no test. (3) Conjunctions are bounded by ``max_length``, cliques having
    exponentially many. (4) Positive literals only, as for the other searches of Davis and Domingos (2010).

    Examples
    --------
    >>> from undirected import BUSL, datasets
    >>> learner = BUSL(alpha=10, max_length=2).fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -20)
    True
    """

    relearn_share: ClassVar[float] = 0.03
    paper_grid: ClassVar[Grid] = {"search_sd": SEARCH_SDS, "alpha": ALPHAS, "sd": SDS}
    quick_grid: ClassVar[Grid] = {"alpha": [2.0], "search_sd": [1.0], "sd": [0.3, 1.0]}

    def __init__(
        self,
        test_level: float = 0.01,
        max_length: int = 4,
        alpha: float = 5.0,
        search_sd: float | None = None,
        relearn_every: int | str = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        l1: float = 0.0,
        sd: float = 1.0,
        tol: float = 1e-5,
        prune: bool = False,
        bins: int = 4,
        missing: str = "learn",
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        progress: Any = None,
        domain: Any = None,
    ) -> None:
        super().__init__(
            alpha, search_sd, relearn_every, checkpoint, l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain,
        )  # fmt: skip
        self.test_level = test_level
        self.max_length = max_length

    def explore(self, search: SearchState, state: dict[str, Any] | None) -> None:
        if state is None:
            search.begin()  # something to return if time runs out among the tests
            if self.test_level not in search.common:
                search.common[self.test_level] = find_blankets(search.data, self.test_level, search.work)
            self.blankets_ = search.common[self.test_level]
        else:
            self.unpack(state)
        grow(search, state, CliqueConjunctions(search.data, self.blankets_, self.max_length), self.pack())

    def pack(self) -> dict[str, Any]:
        return {"blankets": self.blankets_}

    def unpack(self, state: dict[str, Any]) -> None:
        self.blankets_ = state["blankets"]

    def list_learned(self) -> dict[str, Any]:
        return {"blankets_": self.blankets_} if hasattr(self, "blankets_") else {}

    def _check(self) -> None:
        super()._check()
        check_length(self.max_length, bounded=True)
        if not isinstance(self.test_level, float) or not 0 < self.test_level < 1:
            raise ParameterError(f"test_level={self.test_level!r}: a significance level lies between 0 and 1")


class CliqueConjunctions:
    """Conjunctions of non-reference states over two or more variables of a clique, each once."""

    def __init__(self, data: Dataset, blankets: list[list[int]], max_length: int) -> None:
        graph = nx.Graph((i, j) for i, own in enumerate(blankets) for j in own)
        domain = data.domain
        seen: set[tuple[int, ...]] = set()
        for clique in nx.find_cliques(graph):
            for size in range(2, min(max_length, len(clique)) + 1):
                seen.update(itertools.combinations(sorted(clique), size))
        literals = [range(int(domain.base[v]) + 1, int(domain.base[v + 1])) for v in range(len(domain))]
        self.features = [f for variables in sorted(seen) for f in itertools.product(*(literals[v] for v in variables))]

    def list_stages(self, search: SearchState) -> Iterable[Iterable[Candidate]]:
        yield (Candidate(f) for f in self.features)

    def list_after(self, search: SearchState, new: Feature) -> Iterable[Candidate]:
        return ()
