"""AllPairs: one joint fit over every pair."""

from __future__ import annotations

from typing import Any, ClassVar

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.structure.learner import SHARED_PARAMETERS, Grid, Learner
from undirected.structure.proposal import Structure
from undirected.work import MEMORY, Work


class AllPairs(Learner):
    __doc__ = f"""All pairs at once, without a choice beforehand: one joint fit, in which the L1 penalty leaves out what is not needed.

    Parameters
    ----------{SHARED_PARAMETERS}
    Examples
    --------
    >>> from undirected import AllPairs, datasets
    >>> learner = AllPairs(l1=20, prune=True).fit(datasets.load("digits"))
    >>> 64 < len(learner.network_.features) < 2080
    True
    """

    paper_grid: ClassVar[Grid] = {"l1": [0.5, 1.0, 2.0, 5.0, 10.0, 20.0], "sd": [0.1, 0.5, 1.0, 10.0]}
    quick_grid: ClassVar[Grid] = {"l1": [1.0, 5.0], "sd": [0.5, 1.0]}

    def __init__(
        self,
        l1: float = 1.0,
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
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)

    def propose(self, data: Dataset, work: Work) -> Structure:
        return Structure(FeatureSet.all_pairs(data.domain))
