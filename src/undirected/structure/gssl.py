"""GSSL: randomised feature generation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from undirected.data.dataset import Dataset
from undirected.errors import GenerationStopped, ParameterError
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.structure.learner import Grid, Learner
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.row_conjunctions import INITIAL, list_row_conjunctions
from undirected.structure.trials import Tuner
from undirected.work import MEMORY, Work


class GSSL(Learner):
    """Generate many conjunctions by dropping literals from training rows at random, keep those made often, weigh them.

    The list starts with the distinct training rows as conjunctions. Until it holds ``n_generated``, a member with at least
    three literals is drawn uniformly, between one and all but two of its literals are dropped at random, and the result is
    appended. Conjunctions that occur more than ``threshold`` times become features; one feature per variable and state but
    the first is added; all weights are learned together. A million conjunctions
    take about half a second on the plants data; nearly all the time goes into the weights.

    Parameters
    ----------
    n_generated : int
        Length of the list, the training rows included.
    threshold : int
        Conjunctions that occur this often or less are dropped.
    initial : {"auto", "all", "positive"}
        Rows as all their literals, or only those in the second state (binary tables only). ``auto``: ``positive`` if the
        table is binary and less than half full, else ``all``.
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`. So many features need strong ones: with ``l1=0, sd=1`` the network
        of a small table is worse than none.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        The variables and states to code tables with, so that rows with states that the training rows lack can be scored.
    random_state : int, RandomState or None
        The same seed gives the same features for any number of threads.

    Attributes
    ----------
    network_ : MarkovNetwork
    fit_ : WeightFit
        Weights of all features with objective and certificate.
    counts_ : ndarray
        How often each feature of ``fit_.features`` was generated.
    n_listed_, n_unique_ : int
        Length of the list and how many distinct conjunctions it held.
    generation_seconds_ : float

    Notes
    -----
    Van Haaren and Davis, "Markov Network Structure Learning: A Randomized Feature Generation Approach", AAAI 2012,
    Algorithms 1 and 2.

    Deviations: (1) members with fewer than three literals cannot be drawn, where the paper would draw n from an empty range;
    there is nothing to restore. (2) Weights are learned to the optimum, not to Libra's early stop; ``time_budget`` stops early.

    Examples
    --------
    >>> from undirected import GSSL, datasets
    >>> learner = GSSL(n_generated=20_000, l1=5, sd=0.5).fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -20)
    True
    """

    paper_grid: ClassVar[Grid] = {
        "threshold": [5, 2, 1],  # strict ones first: a time budget then leaves out the largest models
        "n_generated": [500_000, 1_000_000, 2_000_000, 5_000_000],
        "initial": ["positive", "all"],
        "l1": [1.0, 5.0, 10.0],
        "sd": [0.1, 0.5, 1.0],
    }
    quick_grid: ClassVar[Grid] = {"n_generated": [500_000], "threshold": [5], "l1": [1.0, 5.0], "sd": [0.5]}

    def __init__(
        self,
        n_generated: int = 1_000_000,
        threshold: int = 1,
        initial: str = "auto",
        l1: float = 5.0,
        sd: float = 0.5,
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
        self.n_generated = n_generated
        self.threshold = threshold
        self.initial = initial
        self.random_state = random_state

    def propose(self, data: Dataset, work: Work) -> Structure:
        self._check()
        began = work.now()
        start, literals = list_row_conjunctions(data, self.initial)
        seed = self.random_state if isinstance(self.random_state, int | np.integer) else None
        if seed is None:
            seed = check_random_state(self.random_state).randint(1 << 31)
        out_start, out_literals, counts, n_listed, n_unique = backend().module.gssl_generate(
            start, literals, self.n_generated, self.threshold, int(seed) & ((1 << 63) - 1), work.threads
        )
        if n_listed < self.n_generated:
            warnings.warn(
                f"generation stopped at {n_listed:,} of {self.n_generated:,}: no row has three literals to drop from",
                GenerationStopped, stacklevel=5,
            )  # fmt: skip
        features = FeatureSet.from_arrays(data.domain, out_start, out_literals)
        keep = features.lengths > 0
        features, counts = features.subset(keep), counts[keep]
        learned = {"counts_": _align_counts(features, counts), "n_listed_": n_listed, "n_unique_": n_unique}
        return Structure(features, learned | {"generation_seconds_": work.now() - began})

    def trim_learned(self, learned: dict[str, Any], kept: Array) -> dict[str, Any]:
        return learned | {"counts_": learned["counts_"][kept]}

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """Without ``initial="positive"`` where variables have more than two states, if the grid has another."""
        ways = [way for way in grid.get("initial", []) if way != "positive" or data.domain.is_binary]
        return super().proposals(data, valid, {**grid, "initial": ways} if ways else grid, work, tuner)

    def _check(self) -> None:
        for name in ("n_generated", "threshold"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise ParameterError(f"{name}={getattr(self, name)!r} is not a whole number")
        if self.n_generated < 1:
            raise ParameterError(f"n_generated={self.n_generated}: at least one is needed")
        if self.n_generated >= 1 << 31:
            raise ParameterError(f"n_generated={self.n_generated}: more than two billion do not fit")
        if self.threshold < 0:
            raise ParameterError(f"threshold={self.threshold}: it cannot be negative")
        if self.initial not in INITIAL:
            raise ParameterError(f"initial={self.initial!r} is not known; choose one of {', '.join(INITIAL)}")


def _align_counts(features: FeatureSet, counts: Array) -> Array:
    """Counts in the order of the canonical union with the atomic features, which were generated zero times or more."""
    atoms = FeatureSet.atomic(features.domain)
    joined = features.concatenate(atoms)
    order = joined.first_of_each()
    return np.concatenate([counts, np.zeros(len(atoms), dtype=counts.dtype)])[order]
