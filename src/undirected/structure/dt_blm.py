"""DT-BLM: BLM's search started from the features of DTSL."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from sklearn.base import clone

from undirected.data.dataset import Dataset
from undirected.structure.blm import NEAREST, bottom_up, check_generalising
from undirected.structure.dtsl import DTSL
from undirected.structure.learner import WEIGHT_SETTINGS, Grid, LedgerPath, Proposal
from undirected.structure.search import Feature, Search, Stopped
from undirected.structure.search_learner import SearchLearner
from undirected.weights.tuning import search, settings_of
from undirected.work import MEMORY

LARGER = 10.0  # times kappa, for a second start from larger trees


class DTBLM(SearchLearner):
    """Grow trees as `DTSL` does, turn them into features, and generalise these as `BLM` does.

    Parameters
    ----------
    alpha, search_sd, nearest, distance, power, relearn_every, checkpoint
        As in `BLM`; a literal's price and the prior of the search are smaller here, trees giving many features that each do a little.
    start : {"learned", "waiting"}
        As in `BLM`; here the trees' features are in the network from the beginning, as in the paper.
    conversion, kappa, min_rows, random_state
        As in `DTSL`.
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
    Lowd and Davis, "Improving Markov Network Structure Learning Using Decision Trees", JMLR 15, 2014, Section 5, Algorithms 3
    and 4. `tune` first tunes `DTSL` on its own and starts from the features of its best setting, as in the paper, and, where
    ``kappa`` is ``auto``, also from those of larger trees (ten times the ``kappa`` chosen) converted the same way. Where that takes
    the whole time budget, the trees' features are what it ends with.

    Deviations: besides the larger trees, those of `BLM` but the first; a literal that excludes a state stays or goes with the
    other literals on its variable.

    Examples
    --------
    >>> from undirected import DTBLM, datasets
    >>> learner = DTBLM(alpha=20, conversion="prune-5", sd=0.5).fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -20)
    True
    """

    # The price of a literal is small beside that of the other searches: trees give many features that each do a little.
    paper_grid: ClassVar[Grid] = {"search_sd": [0.1, 0.3, 1.0, 10.0], "alpha": [0.5, 2.0, 0.1, 5.0], **DTSL.paper_grid}
    quick_grid: ClassVar[Grid] = {"search_sd": [0.1], "alpha": [0.5], **DTSL.quick_grid}

    def __init__(
        self,
        alpha: float = 0.5,
        search_sd: float | None = 0.1,
        nearest: Sequence[int] = NEAREST,
        distance: str = "gvdm",
        power: int = 1,
        start: str = "learned",
        conversion: str = "prune",
        kappa: float | str = 0.01,
        min_rows: float = 10,
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
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            alpha, search_sd, relearn_every, checkpoint, l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain,
        )  # fmt: skip
        self.nearest = nearest
        self.distance = distance
        self.power = power
        self.start = start
        self.conversion = conversion
        self.kappa = kappa
        self.min_rows = min_rows
        self.random_state = random_state

    def explore(self, search: Search, state: dict[str, Any] | None) -> None:
        waiting = self.start == "waiting"
        bottom_up(search, state, lambda: self._initial_features(search), waiting, self.nearest, self.distance, self.power)

    def _initial_features(self, search: Search) -> Iterable[Feature]:
        trees = self._trees()
        features = trees.propose(search.data)
        features = features.subset(features.lengths > 1)
        if trees._cut is not None:  # a search from here is not the one that was asked for
            search.begin(features)
            raise Stopped(trees._cut)
        return features

    def _trees(self) -> DTSL:
        return DTSL(**{name: value for name, value in self.get_params().items() if name in DTSL._get_param_names()})

    def proposals(
        self, data: Dataset, valid: Dataset, grid: Grid, ledger: LedgerPath = None, search_tol: float | None = None
    ) -> Iterator[Proposal]:
        """`DTSL` is tuned first, over its own part of the grid; the searches start from its best features, and from those of larger
        trees: it is for the search, not for weight learning, to choose among them."""
        trees = self._trees()
        own = {name: values for name, values in grid.items() if name in trees.get_params()}
        began = time.monotonic()
        found = search(trees, own, data, valid, ledger, search_tol).unless_interrupted()
        best = {name: [value] for name, value in settings_of(found.best).items() if name not in WEIGHT_SETTINGS}
        chosen = any(isinstance(value, str) for value in own.get("kappa", [self.kappa]))
        if chosen and best["kappa"][0] * LARGER <= 1:
            best["kappa"].append(best["kappa"][0] * LARGER)
        seconds = found.seconds
        if self._left(began) == 0:  # not a moment for a search: what it would have started from
            first = {name: values[0] for name, values in {**grid, **best}.items() if name not in WEIGHT_SETTINGS}
            yield Proposal(first, found.features, seconds, complete=False, cut=True)
            return
        rest = clone(self).set_params(time_budget=self._left(began))  # what a ledger has saved is left for the searches
        for proposal in SearchLearner.proposals(rest, data, valid, {**grid, **best}, ledger, search_tol):
            spent = None if proposal.seconds is None else proposal.seconds + seconds
            yield proposal._replace(seconds=spent, complete=proposal.complete and found.complete)
            seconds = 0.0

    def _check(self) -> None:
        super()._check()
        check_generalising(self.nearest, self.distance, self.power, self.start)
