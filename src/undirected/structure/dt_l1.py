"""DT+L1: the features of DTSL and of L1 together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from undirected.data.dataset import Dataset
from undirected.structure.dtsl import DTSL
from undirected.structure.l1 import L1
from undirected.structure.learner import Grid, Learner
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.trials import Trials, Tuner
from undirected.work import MEMORY, Work


class DTL1(Learner):
    """Join the features of `DTSL` with the pairs of `L1`, and weigh them together.

    Parameters
    ----------
    conversion, kappa, min_rows, max_features, random_state
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
        max_features: int | str | None = "auto",
        C: float | str = "ebic",
        consistency: str = "and",
        gamma: float = 0.25,
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
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)
        self.conversion = conversion
        self.kappa = kappa
        self.min_rows = min_rows
        self.max_features = max_features
        self.C = C
        self.consistency = consistency
        self.gamma = gamma
        self.random_state = random_state

    def propose(self, data: Dataset, work: Work) -> Structure:
        trees = self._make_part(DTSL).propose(data, work)
        pairs = self._make_part(L1).propose(data, work)
        return Structure(trees.features.union(pairs.features), stopped_by=trees.stopped_by or pairs.stopped_by)

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """The best features of each, by validation pseudo-likelihood over its own part of the grid.

        Where several ``kappa`` are equally good for the trees, the features of each are joined in turn. What `DTSL` and `L1` have
        in the ledger is not done again; the seconds count all their work, weights included.
        """
        budget = work.left()
        parts: dict[type[Learner], Trials] = {}
        for kind in (DTSL, L1):
            part = self._make_part(kind)
            own = {name: values for name, values in grid.items() if name in part.get_params()}
            spent = sum(found.seconds for found in parts.values())
            parts[kind] = tuner.tune_part(part, own, work.limit(budget - spent))
        trees, pairs = parts[DTSL], parts[L1]
        by_kappa = {trial.settings["kappa"]: trial for trial in sorted(trees.trials, key=lambda trial: trial.valid_pll)}
        seconds, complete = sum(found.seconds for found in parts.values()), all(found.complete for found in parts.values())
        for trial in sorted(by_kappa.values(), key=lambda trial: -trial.valid_pll):
            if trial is trees.best:
                features = trees.features
            else:
                structure = self._make_part(DTSL).set_params(**trial.structural).propose(data, work)
                features = structure.features
                complete = complete and structure.stopped_by is None
            joined = Structure(features.union(pairs.features))
            yield Proposal({**trial.structural, **pairs.best.structural}, joined, seconds, complete)
            seconds = 0.0

    def recall(self, data: Dataset, work: Work, tuner: Tuner) -> dict[str, Any]:
        return {}

    def _make_part(self, kind: type[Learner]) -> Learner:
        return kind(**{name: value for name, value in self.get_params().items() if name in kind._get_param_names()})
