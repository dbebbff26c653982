"""BUSL for tables: blankets by independence tests, conjunctions within cliques, greedy choice by score."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import networkx as nx
import numpy as np
from scipy.special import chdtrc

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError
from undirected.kernels.types import Array
from undirected.network.network import MEMORY
from undirected.structure.della_pietra import check_length
from undirected.structure.greedy import Candidate, grow
from undirected.structure.learner import Grid
from undirected.structure.search import Feature, Search
from undirected.structure.search_learner import ALPHAS, SDS, SEARCH_SDS, SearchLearner

AT_ONCE = 1_000_000  # cells counted in one call
LEAST_EXPECTED, ENOUGH_SEEN = 1.0, 5.0  # a cell with fewer rows expected and fewer seen says nothing
NOTHING = 1e-9  # of a count, after rounding


class BUSL(SearchLearner):
    """Find each variable's Markov blanket by tests of independence, and choose among conjunctions within cliques of the graph.

    Blankets are grown and shrunk by chi-square tests on the table. Two variables are joined where either is in the other's
    blanket. Candidates are the conjunctions of non-reference states within each maximal clique; the best enters, again and
    again, while the score rises.

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
    ) -> None:
        super().__init__(
            alpha, search_sd, relearn_every, checkpoint, l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress
        )
        self.test_level = test_level
        self.max_length = max_length

    def explore(self, search: Search, state: dict[str, Any] | None) -> None:
        if state is None:
            search.begin()  # something to return if time runs out among the tests
            if self.test_level not in search.common:
                search.common[self.test_level] = blankets(search.data, self.test_level, search.check_time)
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


def blankets(data: Dataset, level: float, check: Callable[[], None] = lambda: None) -> list[list[int]]:
    """Grow-shrink: variables that depend on the target given those found so far, strongest first; then out with the needless.

    Variables that are independent of the target to begin with are looked at only when the others have nothing more to add.
    ``check`` is called between tests, and may end the work by raising.
    """
    tests = Independence(data)
    return [_blanket(tests, v, level, check) for v in range(len(data.domain))]


def _blanket(tests: Independence, target: int, level: float, check: Callable[[], None]) -> list[int]:
    found: list[int] = []
    everyone = np.setdiff1d(np.arange(tests.n_variables), [target])
    p, strength = tests.alone(target, everyone)
    others, p, strength = (values[p < level] for values in (everyone, p, strength))
    all_looked_at = False
    while True:
        if (p < level).any():
            best = int(np.argmax(np.where(p < level, strength, -1.0)))
            found.append(int(others[best]))
            others = np.delete(others, best)
        elif all_looked_at:
            break
        else:
            others, all_looked_at = np.setdiff1d(everyone, found), True
        check()
        p, strength = tests.given(target, found, others)
    for v in list(found):
        check()
        rest = [u for u in found if u != v]
        p, strength = tests.given(target, rest, np.array([v]))
        if p[0] >= level and strength[0] > 0:  # where no test can be made, that by which it came in stands
            found = rest
    return sorted(found)


class Independence:
    """Chi-square tests of one variable against others, in the strata of some variables: p-values, and chi-square over its degrees of
    freedom; 1 and 0 where the rows do not suffice for a test."""

    def __init__(self, data: Dataset) -> None:
        table, self.domain = data.distinct, data.domain
        self.codes, self.weights = np.asfortranarray(table.codes), table.weights
        self.n_variables = len(data.domain)
        self.together = data.pair_counts()

    def alone(self, target: int, others: Array) -> tuple[Array, Array]:
        """Without strata, from the counts of pairs."""
        base = self.domain.base
        counts = self.together[None, base[target] : base[target + 1]]
        by_target = np.diagonal(self.together)[base[target] : base[target + 1]].reshape(1, -1, 1)
        p, strength = _chi_square(counts, by_target, base[:-1])
        return p[others], strength[others]

    def given(self, target: int, strata: list[int], others: Array) -> tuple[Array, Array]:
        n_states = self.domain.n_states
        own = int(n_states[target])
        stratum = np.zeros(len(self.codes), dtype=np.int64)
        for v in strata:
            stratum = _numbered(stratum * int(n_states[v]) + self.codes[:, v])
        group = stratum * own + self.codes[:, target]
        by_target = np.bincount(group, weights=self.weights, minlength=own * (int(stratum.max()) + 1)).reshape(-1, own)
        # Whatever the other variable is, no count is expected to be more than half of the rarer state's.
        useful = (by_target >= 2 * LEAST_EXPECTED).sum(axis=1) > 1
        rows = np.flatnonzero(useful[stratum])
        out = np.ones(len(others)), np.zeros(len(others))
        if not len(rows):
            return out
        group = (np.cumsum(useful) - 1)[stratum[rows]] * own + self.codes[rows, target]
        by_target = by_target[useful][:, :, None]
        weights = self.weights[rows]
        at_once = max(1, AT_ONCE // len(rows))
        for n in np.unique(n_states[others]).tolist():
            places = np.flatnonzero(n_states[others] == n)
            for some in np.array_split(places, -(-len(places) // at_once)):
                cell = (group[:, None] * len(some) + np.arange(len(some))) * n + self.codes[np.ix_(rows, others[some])]
                counts = np.bincount(cell.ravel(), weights=np.repeat(weights, len(some)), minlength=by_target.size * len(some) * n)
                out[0][some], out[1][some] = _chi_square(counts.reshape(-1, own, len(some) * n), by_target, n * np.arange(len(some)))
        return out


def _numbered(values: Array) -> Array:
    """Small whole numbers in the place of the values that occur."""
    used = np.bincount(values) > 0
    return np.asarray((np.cumsum(used) - 1)[values])


def _chi_square(counts: Array, by_target: Array, base: Array) -> tuple[Array, Array]:
    """For each run of literals that begins at ``base``: p-value, and chi-square over its degrees of freedom, which count the states
    seen in each stratum. Cells that say nothing are left out, with a degree of freedom each."""
    by_literal = counts.sum(axis=1, keepdims=True)
    expected = by_target * by_literal / by_target.sum(axis=1, keepdims=True)
    there = (by_target > NOTHING) & (by_literal > NOTHING)
    mute = there & (expected < LEAST_EXPECTED) & (counts < ENOUGH_SEEN)
    terms = np.divide((counts - expected) ** 2, expected, out=np.zeros_like(counts), where=there & ~mute).sum(axis=1)
    seen = np.add.reduceat((by_literal[:, 0] > NOTHING).astype(np.int64), base, axis=1)
    free = (seen - 1) * ((by_target > NOTHING).sum(axis=1) - 1) - np.add.reduceat(mute.sum(axis=1), base, axis=1)
    used = free > 0
    chi = (np.add.reduceat(terms, base, axis=1) * used).sum(axis=0)
    total = (free * used).sum(axis=0)
    tested, total = total > 0, np.maximum(total, 1)
    return np.where(tested, chdtrc(total, chi), 1.0), np.where(tested, chi / total, 0.0)
