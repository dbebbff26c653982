"""DT+L1: the features of DTSL and of L1 together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.structure.dtsl import DTSL
from undirected.structure.l1 import L1
from undirected.structure.learner import WEIGHT_SETTINGS, Grid, Learner, LedgerPath, Proposal
from undirected.weights.tuning import Search, search, settings_of
from undirected.work import MEMORY


class DTL1(Learner):
    """Join the features of `DTSL` with the pairs of `L1`, and weigh them together.

    Parameters
    ----------
    conversion, kappa, min_rows, random_state
        As in `DTSL`.
    C, consistency, gamma
        As in `L1`.
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`.
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

    Notes
    -----
    Lowd and Davis, "Improving Markov Network Structure Learning Using Decision Trees", JMLR 15, 2014, Section 6. `tune` first
    tunes both learners on their own and joins the features of the best settings, as in the paper.

    Examples
    --------
    >>> from undirected import DTL1, datasets
    >>> learner = DTL1(conversion="prune-5", C=0.05, sd=0.5).fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -20)
    True
    """

    paper_grid: ClassVar[Grid] = {**DTSL.paper_grid, **L1.paper_grid}
    quick_grid: ClassVar[Grid] = {**DTSL.quick_grid, **L1.quick_grid}

    def __init__(
        self,
        conversion: str = "prune",
        kappa: float | str = 0.01,
        min_rows: float = 10,
        C: float | str = "ebic",
        consistency: str = "and",
        gamma: float = 0.25,
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
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)
        self.conversion = conversion
        self.kappa = kappa
        self.min_rows = min_rows
        self.C = C
        self.consistency = consistency
        self.gamma = gamma
        self.random_state = random_state

    def propose(self, data: Dataset) -> FeatureSet:
        began = time.monotonic()
        trees, pairs = self._part(DTSL), self._part(L1)
        features = trees.propose(data)
        pairs.time_budget = self._left(began)
        features = features.union(pairs.propose(data))
        self._cut = trees._cut or pairs._cut
        return features

    def proposals(
        self, data: Dataset, valid: Dataset, grid: Grid, ledger: LedgerPath = None, search_tol: float | None = None
    ) -> Iterator[Proposal]:
        """The best features of each, by validation pseudo-likelihood over its own part of the grid.

        Where several ``kappa`` are equally good for the trees, the features of each are joined in turn. What `DTSL` and `L1` have
        in the ledger is not done again; the seconds count all their work, weights included.
        """
        began = time.monotonic()
        parts: dict[type[Learner], Search] = {}
        for kind in (DTSL, L1):
            part = self._part(kind)
            if self.time_budget is not None:
                part.time_budget = max(0.0, self.time_budget - sum(found.seconds for found in parts.values()))
            own = {name: values for name, values in grid.items() if name in part.get_params()}
            parts[kind] = search(part, own, data, valid, ledger, search_tol).unless_interrupted()
        pairs = _structural(parts[L1].best)
        best = {row["kappa"]: row for row in sorted(parts[DTSL].rows, key=lambda row: row["valid_pll"])}  # the best of each
        seconds, complete = sum(found.seconds for found in parts.values()), all(found.complete for found in parts.values())
        for row in sorted(best.values(), key=lambda row: -row["valid_pll"]):
            trees = _structural(row)
            if row is parts[DTSL].best:
                features = parts[DTSL].features
            else:
                part = self._part(DTSL).set_params(**trees, time_budget=self._left(began))
                features = part.propose(data)
                complete = complete and part._cut is None
            yield Proposal({**trees, **pairs}, features.union(parts[L1].features), seconds, complete, found={})
            seconds = 0.0

    def recall(self, data: Dataset, ledger: LedgerPath) -> dict[str, Any]:
        return {}

    def _part(self, kind: type[Learner]) -> Learner:
        return kind(**{name: value for name, value in self.get_params().items() if name in kind._get_param_names()})


def _structural(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings_of(row).items() if name not in WEIGHT_SETTINGS}
