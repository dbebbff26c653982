"""DT-BLM: BLM's search started from the features of DTSL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from undirected.data.dataset import Dataset
from undirected.structure.blm import NEAREST, check_generalising, search_bottom_up
from undirected.structure.dtsl import DTSL
from undirected.structure.learner import Grid, list_structural
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.search_learner import SearchLearner
from undirected.structure.search_state import Feature, SearchState
from undirected.structure.trials import Tuner
from undirected.work import MEMORY, Stopped, Work

LARGER = 10.0  # times kappa, for a second start from larger trees


class DTBLM(SearchLearner):
    """Grow trees as `DTSL` does, turn them into features, and generalise these as `BLM` does.

    Parameters
    ----------
    alpha, search_sd, nearest, distance, power, relearn_every, checkpoint
        As in `BLM`; a literal's price and the prior of the search are smaller here, trees giving many features that each do a little.
    start : {"learned", "waiting"}
        As in `BLM`; here the trees' features are in the network from the beginning, as in the paper.
    conversion, kappa, min_rows, max_features, random_state
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
        max_features: int | str | None = "auto",
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
        self.max_features = max_features
        self.random_state = random_state

    def explore(self, search: SearchState, state: dict[str, Any] | None) -> None:
        waiting = self.start == "waiting"
        search_bottom_up(search, state, lambda: self._grow_features(search), waiting, self.nearest, self.distance, self.power)

    def _grow_features(self, search: SearchState) -> Iterable[Feature]:
        """The features of the trees; where time cut the trees, a search from here is not the one that was asked for."""
        structure = self._make_trees().propose(search.data, search.work)
        features = structure.features.subset(structure.features.lengths > 1)
        if structure.stopped_by is not None:
            search.begin(features)
            raise Stopped(structure.stopped_by)
        return features

    def _make_trees(self) -> DTSL:
        return DTSL(**{name: value for name, value in self.get_params().items() if name in DTSL._get_param_names()})

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """`DTSL` is tuned first, over its own part of the grid; the searches start from its best features, and from those of larger
        trees: it is for the search, not for weight learning, to choose among them."""
        trees = self._make_trees()
        own = {name: values for name, values in grid.items() if name in trees.get_params()}
        found = tuner.tune_part(trees, own, work)
        best = {name: [value] for name, value in found.best.structural.items()}
        chosen = any(isinstance(value, str) for value in own.get("kappa", [self.kappa]))
        if chosen and best["kappa"][0] * LARGER <= 1:
            best["kappa"].append(best["kappa"][0] * LARGER)
        seconds = found.seconds
        if work.left() == 0:  # not a moment for a search: what it would have started from
            first = next(list_structural({**grid, **best}))
            yield Proposal(first, Structure(found.features), seconds, complete=False, last=True)
            return
        for proposal in super().proposals(data, valid, {**grid, **best}, work, tuner):
            spent = None if proposal.seconds is None else proposal.seconds + seconds
            yield replace(proposal, seconds=spent, complete=proposal.complete and found.complete)
            seconds = 0.0

    def _check(self) -> None:
        super()._check()
        check_generalising(self.nearest, self.distance, self.power, self.start)
