"""Atomic: independent variables."""

from __future__ import annotations

from typing import ClassVar

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.structure.learner import SHARED_PARAMETERS, Grid, Learner
from undirected.structure.proposal import Structure
from undirected.work import Work


class Atomic(Learner):
    __doc__ = f"""Independent variables: one feature per variable and state but the first. The floor for every other learner.

    Parameters
    ----------{SHARED_PARAMETERS}
    Examples
    --------
    >>> from undirected import Atomic, datasets
    >>> Atomic(sd=10).fit(datasets.load("digits")).network_
    <MarkovNetwork of 64 variables, 64 features>
    """

    paper_grid: ClassVar[Grid] = {"sd": [0.1, 1.0, 10.0, 100.0]}
    quick_grid: ClassVar[Grid] = {"sd": [1.0, 10.0]}

    def propose(self, data: Dataset, work: Work) -> Structure:
        return Structure(FeatureSet.atomic(data.domain))
