"""BUSL for tables: blankets by independence tests, conjunctions within cliques, greedy choice by score."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import networkx as nx
import numpy as np
from scipy.special import chdtrc

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.structure.della_pietra import check_length
from undirected.structure.greedy import Candidate, grow
from undirected.structure.learner import Grid, tell
from undirected.structure.search import Feature, Search, Stopped
from undirected.structure.search_learner import ALPHAS, SDS, SEARCH_SDS, SearchLearner
from undirected.work import MEMORY

LEAST_EXPECTED, ENOUGH_SEEN = 1.0, 5.0  # a cell with fewer rows expected and fewer seen says nothing


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
        missing: str = "error",
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

    def explore(self, search: Search, state: dict[str, Any] | None) -> None:
        if state is None:
            search.begin()  # something to return if time runs out among the tests
            if self.test_level not in search.common:
                search.common[self.test_level] = blankets(search.data, self.test_level, search.check_time, search.threads, self.progress)
            self.blankets_ = search.common[self.test_level]
        else:
            self.restore(state)
        grow(search, state, CliqueConjunctions(search.data, self.blankets_, self.max_length), self.kept())

    def kept(self) -> dict[str, Any]:
        return {"blankets": self.blankets_}

    def restore(self, state: dict[str, Any]) -> None:
        self.blankets_ = state["blankets"]

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

    def stages(self, search: Search) -> Iterable[Iterable[Candidate]]:
        yield (Candidate(f) for f in self.features)

    def after(self, search: Search, new: Feature) -> Iterable[Candidate]:
        return ()


def blankets(
    data: Dataset, level: float, check: Callable[[], None] = lambda: None, threads: int = 1, progress: Any = None
) -> list[list[int]]:
    """Grow-shrink: variables that depend on the target given those found so far, strongest first; then out with the needless.

    Variables that are independent of the target to begin with are looked at only when the others have nothing more to add.
    ``check`` is called between tests, and may end the work by raising.
    """
    tests = Independence(data)
    n = len(data.domain)
    found: list[list[int]] = []
    ended = threading.Event()

    def asked() -> None:
        if ended.is_set():
            raise Stopped("interrupt")
        check()

    with ThreadPoolExecutor(threads) as pool:
        try:
            for own in pool.map(lambda v: _blanket(tests, v, level, asked), range(n)):
                found.append(own)
                tell(progress, "blankets", len(found), n)
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _blanket(tests: Independence, target: int, level: float, check: Callable[[], None]) -> list[int]:
    found: list[int] = []
    everyone = np.setdiff1d(np.arange(tests.n_variables), [target])
    strata = tests.all_rows
    p, strength = tests.given(target, strata, everyone)
    others, p, strength = (values[p < level] for values in (everyone, p, strength))
    all_looked_at = False
    while True:
        if (p < level).any():
            best = int(np.argmax(np.where(p < level, strength, -1.0)))
            found.append(int(others[best]))
            strata = tests.split(strata, found[-1])
            others = np.delete(others, best)
        elif all_looked_at:
            break
        else:
            others, all_looked_at = np.setdiff1d(everyone, found), True
        check()
        p, strength = tests.given(target, strata, others)
    return sorted(_shrunk(tests, target, found, level, check))


def _shrunk(tests: Independence, target: int, found: list[int], level: float, check: Callable[[], None]) -> list[int]:
    """Those that the target depends on given all others that are left, one after another."""
    later = [tests.all_rows]  # the strata of those that come after
    for v in reversed(found[1:]):
        later.append(tests.split(later[-1], v))
    kept: list[int] = []
    earlier = tests.all_rows
    for v in found:
        check()
        p, strength = tests.given(target, tests.both(earlier, later.pop()), np.array([v]))
        if p[0] < level or strength[0] == 0:  # where no test can be made, that by which it came in stands
            kept.append(v)
            earlier = tests.split(earlier, v)
    return kept


class Grouped(NamedTuple):
    """A division of the rows: for each row the number of its stratum."""

    stratum: Array
    n: int


class Independence:
    """Chi-square tests of one variable against others, in strata of the rows: p-values, and chi-square over its degrees of freedom; 1
    and 0 where the rows do not suffice for a test."""

    def __init__(self, data: Dataset) -> None:
        table, self.n_states = data.distinct, data.domain.n_states.astype(np.int32)
        self.kernels: Any = backend().module
        self.codes = np.ascontiguousarray(table.codes.T, dtype=np.int16)
        self.tests: Any = self.kernels.Strata(self.codes, self.n_states, table.weights)
        self.n_variables = len(data.domain)
        self.all_rows = Grouped(np.zeros(len(table), dtype=np.int32), 1)

    def both(self, a: Grouped, b: Grouped) -> Grouped:
        """The strata of both together, those that occur."""
        return Grouped(*self.kernels.combine(a.stratum, a.n, b.stratum, b.n))

    def split(self, strata: Grouped, v: int) -> Grouped:
        """Each stratum by the states of one more variable."""
        return self.both(strata, Grouped(self.codes[v].astype(np.int32), int(self.n_states[v])))

    def given(self, target: int, strata: Grouped, others: Array) -> tuple[Array, Array]:
        chi, free = self.tests.test(strata.stratum, strata.n, target, others.astype(np.int32), LEAST_EXPECTED, ENOUGH_SEEN)
        tested, free = free > 0, np.maximum(free, 1)
        return np.where(tested, chdtrc(free, chi), 1.0), np.where(tested, chi / free, 0.0)
