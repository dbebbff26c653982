"""The base of the learners that search: their common parameters, checkpoints, and tuning."""

from __future__ import annotations

import hashlib
import itertools
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MEMORY
from undirected.structure.learner import WEIGHT_SETTINGS, Grid, Learner, LedgerPath, Proposal
from undirected.structure.search import Checkpoint, Search, Stopped, Trace
from undirected.weights.fit import WeightFit
from undirected.weights.ledger import digest
from undirected.weights.tuning import lasting_params

ALPHAS = [5.0, 2.0, 1.0, 10.0, 20.0, 0.5]  # likely and cheap ones first, for the sake of time budgets


class SearchLearner(Learner):
    """A learner that moves from network to network by their score; a subclass has `explore`."""

    def __init__(
        self,
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
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress)
        self.alpha = alpha
        self.search_sd = search_sd
        self.relearn_every = relearn_every
        self.checkpoint = checkpoint

    relearn_share: ClassVar[float] = 0.1  # changes until weights are relearned, as a share of the number of features
    trace_: Trace

    @abstractmethod
    def explore(self, search: Search, state: dict[str, Any] | None) -> None:
        """Search until nothing improves the score; ``state`` is what was saved with the checkpoint that is being taken up."""

    def propose(self, data: Dataset) -> FeatureSet:
        return self._run(data, self.checkpoint, self.time_budget).features

    def _proposed(self, data: Dataset, start: WeightFit | None) -> tuple[FeatureSet, Array | None]:
        """An earlier fit is not searched for again."""
        if start is not None and start.features.domain == data.domain:
            return start.features, start.weights
        search = self._run(data, self.checkpoint, self.time_budget)
        return _canonical(search)

    def _run(self, data: Dataset, checkpoint: str | os.PathLike[str] | None, time_budget: float | None) -> Search:
        self._check()
        search = Search(
            data, self.alpha, self.l1, self.sd if self.search_sd is None else self.search_sd,
            tol=self.tol, relearn_every=None if self.relearn_every == "auto" else int(self.relearn_every), relearn_share=self.relearn_share,
            threads=self.threads, memory=self.memory, time_budget=time_budget, progress=self.progress,
            checkpoint=None if checkpoint is None else Checkpoint(Path(checkpoint), self._owner(data)),
        )  # fmt: skip
        try:
            state = search.resume()
            if state is None or not state.pop("finished"):
                self.explore(search, state)
                search.trace.stopped_by = "converged"
                search.save({}, finished=True)
        except Stopped as stopped:
            search.trace.stopped_by = stopped.why
        except KeyboardInterrupt:
            search.trace.stopped_by = "interrupt"
        if not search.trace.points:  # stopped before there was a network
            search.begin_bare()
        self.trace_ = search.trace
        if search.trace.stopped_by != "converged":
            warnings.warn(f"the search was stopped by {search.trace.stopped_by} after {search.n_moves:,} moves", Unconverged, stacklevel=4)
        return search

    def _owner(self, data: Dataset) -> str:
        """What a checkpoint depends on."""
        params = lasting_params(self, {"checkpoint", "time_budget", "prune", "bins", "missing"})
        if self.search_sd is not None:
            del params["sd"]
        return hashlib.sha256(repr((type(self).__name__, sorted(params.items()), digest(data))).encode()).hexdigest()[:32]

    def proposals(
        self, data: Dataset, valid: Dataset, grid: Grid, ledger: LedgerPath = None, search_tol: float | None = None
    ) -> Iterator[Proposal]:
        """A search for every structural setting; beside a ledger, searches are kept in a folder and go on where they stopped."""
        structural = {name: values for name, values in grid.items() if name not in WEIGHT_SETTINGS}
        spent = 0.0
        for values in itertools.product(*structural.values()):
            settings = dict(zip(structural, values, strict=True))
            left = None if self.time_budget is None else self.time_budget - spent
            if left is not None and left <= 0 and spent:
                break
            one = clone(self).set_params(**settings)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Unconverged)  # told by the proposal
                search = one._run(data, _kept_beside(ledger, one._owner(data)), left)
            if search.trace.stopped_by == "interrupt":
                raise KeyboardInterrupt
            self.trace_ = search.trace
            spent += search.seconds
            features, weights = _canonical(search)
            yield Proposal(settings, features, search.trace.points[-1].seconds, search.trace.stopped_by == "converged", weights)

    def _check(self) -> None:
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise ParameterError(f"alpha={self.alpha}: the penalty of a literal must be zero or more")
        if self.search_sd is not None and not self.search_sd > 0:
            raise ParameterError(f"search_sd={self.search_sd}: a standard deviation must be above zero (None: that of the weights)")
        every = self.relearn_every
        if every != "auto" and (not isinstance(every, int | np.integer) or isinstance(every, bool) or every < 1):
            raise ParameterError(f"relearn_every={self.relearn_every!r}: a whole number of moves from 1 on, or 'auto'")


def _canonical(search: Search) -> tuple[FeatureSet, Array]:
    """The features in canonical order, with the search's weights."""
    features = search.features.canonical()
    return features, np.array([search.weights[f] for f in features])


def _kept_beside(ledger: LedgerPath, name: str) -> Path | None:
    if ledger is None:
        return None
    folder = Path(ledger).with_suffix(".searches")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.json"
