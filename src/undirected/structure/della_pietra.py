"""The top-down search of Della Pietra, Della Pietra and Lafferty."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from undirected.errors import ParameterError
from undirected.features.feature_set import FeatureSet
from undirected.structure.greedy import Candidate, grow
from undirected.structure.learner import Grid
from undirected.structure.search_learner import ALPHAS, SDS, SEARCH_SDS, SearchLearner, check_price, check_rows
from undirected.structure.search_state import Feature, SearchState
from undirected.work import MEMORY

SCREENED = 256  # features extended in one call
BLOCK = 128  # features that are joined with others together
JOINED = 10_000_000_000  # pairs of features joined in one call, times rows
SLACK = 0.25  # a candidate is scored exactly if its quadratic gain is at least this part of its price


class DellaPietra(SearchLearner):
    """Start with the atomic features and add, one by one, the conjunction of two features that improves the score most.

    Candidates join a feature of the network with an atomic feature, and, where no such extension is of use, with another feature
    of the network. All extensions of a feature by an atomic one are screened in one pass over its rows; only the promising are
    scored exactly, and scored again only when they come up.

    Parameters
    ----------
    alpha : float
        Price of a literal in the score; the larger, the smaller the network.
    surcharge : float
        Added to the price of each literal beyond a feature's second. There are far more long conjunctions than there are pairs,
        so that more of them look useful by chance.
    search_sd : float or None
        Standard deviation of the weights' prior during the search, the only penalty there; None takes ``l1`` and ``sd``. `tune`
        always sets it (to 1 where ``sd`` is infinite), so that one search serves all penalties of the weights.
    max_length : int or None
        Features have at most so many literals; None sets no limit.
    min_rows : float
        Features match at least so many rows. With 0, states that exclude each other can be joined, which weights below zero
        then forbid; 1 is the rule of the later paper.
    relearn_every : int or "auto"
        Features added until all weights are learned anew; ``auto``: a thirtieth as many as there are features.
    checkpoint : path or None
        A file that keeps the search: killed and started again with the same file, it goes on and ends with the same result.
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

    Notes
    -----
    Della Pietra, Della Pietra and Lafferty, "Inducing Features of Random Fields", IEEE PAMI 19, 1997, with the
    pseudo-likelihood and positive features, as in Davis and Domingos, ICML 2010, Section 5.

    Deviations: (1) the score is minus the objective of weight learning minus ``alpha`` a literal, the gain with all other weights
    held; the KL-divergence of the first paper needs the likelihood. (2) Weights are relearned after a thirtieth as many additions
    as there are features; ``relearn_every=1`` restores the paper. (3) Candidates whose quadratic gain is below a quarter of their
    price are not scored exactly. (4) With more than two states, atomic features name the states that are not a variable's first.
    (5) Features of two literals or more are joined with each other only where no extension improves the score, there being very
    many such pairs. (6) Davis and Domingos, for the sake of time, ask that candidates match a row, which hides states that
    exclude each other; ``min_rows=1`` restores that.

    Examples
    --------
    >>> from undirected import DellaPietra, datasets
    >>> learner = DellaPietra(alpha=20, max_length=3).fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -20)
    True
    """

    relearn_share: ClassVar[float] = 0.03
    paper_grid: ClassVar[Grid] = {
        "search_sd": SEARCH_SDS,
        "alpha": [*ALPHAS, 0.2],
        "surcharge": [15.0, 0.0],
        "l1": [0.0, 4.0],
        "sd": SDS,
    }
    quick_grid: ClassVar[Grid] = {"alpha": [2.0], "search_sd": [1.0], "sd": [0.3, 1.0]}

    def __init__(
        self,
        alpha: float = 5.0,
        surcharge: float = 0.0,
        search_sd: float | None = None,
        max_length: int | None = None,
        min_rows: float = 0,
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
        self.surcharge = surcharge
        self.max_length = max_length
        self.min_rows = min_rows

    def list_rules(self) -> dict[str, Any]:
        return {"surcharge": self.surcharge, "min_rows": self.min_rows}

    def explore(self, search: SearchState, state: dict[str, Any] | None) -> None:
        grow(search, state, Conjunctions(search, self.max_length))

    def _check(self) -> None:
        super()._check()
        check_length(self.max_length)
        check_rows(self.min_rows)
        check_price("surcharge", self.surcharge)


class Conjunctions:
    """Features of the network joined with atomic ones, and with each other."""

    def __init__(self, search: SearchState, max_length: int | None) -> None:
        self.extra = np.array([f[0] for f in search.atoms], dtype=np.int32)
        self.variable: list[int] = search.domain.literal_variable.tolist()
        self.most = len(search.domain) if max_length is None else max_length

    def list_stages(self, search: SearchState) -> Iterable[Iterable[Candidate]]:
        yield self._extend(search, list(search.weights))
        yield self._join(search)

    def list_after(self, search: SearchState, new: Feature) -> Iterable[Candidate]:
        return self._extend(search, [new])

    def _extend(self, search: SearchState, features: list[Feature]) -> Iterable[Candidate]:
        """Extensions by one literal that match enough rows and whose quadratic gain is not far below their price, with a hopeful
        guess: the quadratic gain minus that part of the price."""
        features = [f for f in features if len(f) < self.most]
        for at in range(0, len(features), SCREENED):
            some = features[at : at + SCREENED]
            flat = FeatureSet.from_normalised(some, search.domain)
            gradient, curvature, support = search.kernel.screen(flat.start, flat.literals, self.extra, search.work.threads)
            search.trace.n_scored += gradient.size
            search.work.check()
            pull = np.maximum(np.abs(gradient) - search.l1, 0)
            gain = 0.5 * pull**2 / (curvature + search.ridge + 1e-12)
            guess = gain - SLACK * search.price[flat.lengths + 1][:, None]
            promising = (guess > 0) & (support >= search.min_rows)
            for j, k in zip(*(where.tolist() for where in np.nonzero(promising)), strict=True):
                literal = int(self.extra[k])
                if self.variable[literal] not in {self.variable[own] for own in some[j]}:
                    yield Candidate(tuple(sorted((*some[j], literal))), float(guess[j, k]))

    def _join(self, search: SearchState) -> Iterable[Candidate]:
        """Features of the network joined with each other; where one adds a single literal to the other, that is an extension."""
        long = [f for f in search.weights if len(f) > 1]
        flat = FeatureSet.from_normalised(long, search.domain)
        step = BLOCK * max(1, JOINED // max(1, search.data.n_distinct * len(long) * BLOCK))
        for at in range(0, len(long), step):
            these = (at, min(at + step, len(long)), self.most, search.min_rows)
            found = search.kernel.join(flat.start, flat.literals, *these, search.l1, search.ridge, search.price, search.work.threads)
            start, literals, weights, gains, n = found
            search.trace.n_scored += n
            search.work.check()
            for j, (weight, gain) in enumerate(zip(weights.tolist(), gains.tolist(), strict=True)):
                yield Candidate(tuple(literals[start[j] : start[j + 1]].tolist()), gain, weight)


def check_length(max_length: int | None, bounded: bool = False) -> None:
    if max_length is None and not bounded:
        return
    if not isinstance(max_length, int | np.integer) or max_length < 2:
        raise ParameterError(f"max_length={max_length!r}: a whole number from 2 on{'' if bounded else ' (None: no limit)'}")
