"""The base of the learners that search: their common parameters, checkpoints, and tuning."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.store import check_writable
from undirected.structure.learner import WEIGHT_SETTINGS, Grid, Learner, LedgerPath, Proposal
from undirected.structure.search import Checkpoint, Search, Stopped, Trace
from undirected.weights.fit import WeightFit, check_penalties
from undirected.weights.ledger import digest
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.weights.tuning import lasting_params
from undirected.work import MEMORY

FORMAT = 2  # of checkpoints; those of another are not taken up
# For the papers' grids, likely and cheap values first, for the sake of time budgets.
ALPHAS = [5.0, 2.0, 1.0, 10.0, 20.0, 0.5]
SEARCH_SDS = [1.0, 0.3, 0.1, 10.0]
SDS = [0.1, 0.3, 1.0, 10.0]


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
        domain: Any = None,
    ) -> None:
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)
        self.alpha = alpha
        self.search_sd = search_sd
        self.relearn_every = relearn_every
        self.checkpoint = checkpoint

    relearn_share: ClassVar[float] = 0.1  # changes until weights are relearned, as a share of the number of features
    trace_: Trace

    @abstractmethod
    def explore(self, search: Search, state: dict[str, Any] | None) -> None:
        """Search until nothing improves the score; ``state`` is what was saved with the checkpoint that is being taken up."""

    def rules(self) -> dict[str, Any]:
        """What a subclass asks of the features that enter, as `Search` takes it."""
        return {}

    def propose(self, data: Dataset) -> FeatureSet:
        return self._run(data, self.checkpoint, self.time_budget).features

    def _proposed(self, data: Dataset, start: WeightFit | None) -> tuple[FeatureSet, Array | None, PseudoLikelihood | None]:
        """An earlier fit is not searched for again."""
        if start is not None and start.features.domain == data.domain:
            return start.features, start.weights, None
        search = self._run(data, self.checkpoint, self.time_budget)
        return *_canonical(search), search.objective

    def recall(self, data: Dataset, ledger: LedgerPath) -> dict[str, Any]:
        kept = _kept_beside(ledger, self._owner(data))
        if kept is None or not kept.exists():
            return {}
        one: Self = clone(self)
        one._run(data, kept, None)
        return one.learned()

    def kept(self) -> dict[str, Any]:
        """What a subclass has found beside the network, for the checkpoint of a finished search."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `kept` gave."""

    def _run(
        self, data: Dataset, checkpoint: str | os.PathLike[str] | None, time_budget: float | None, common: dict[Any, Any] | None = None
    ) -> Search:
        self._check()
        if checkpoint is not None:
            check_writable(checkpoint)
        search = Search(
            data, self.alpha, *((self.l1, self.sd) if self.search_sd is None else (0.0, self.search_sd)), **self.rules(),
            tol=self.tol, relearn_every=None if self.relearn_every == "auto" else int(self.relearn_every), relearn_share=self.relearn_share,
            threads=self.threads, memory=self.memory, time_budget=time_budget, progress=self.progress,
            checkpoint=None if checkpoint is None else Checkpoint(Path(checkpoint), self._owner(data)), common=common,
        )  # fmt: skip
        try:
            state = search.resume()
            if state is None or not state.pop("finished"):
                self.explore(search, state)
                search.trace.stopped_by = "converged"
                search.note()
                search.save(self.kept(), finished=True)
            else:
                self.restore(state)
        except (Stopped, KeyboardInterrupt) as stopped:
            search.trace.stopped_by = stopped.why if isinstance(stopped, Stopped) else "interrupt"
            if search.weights:
                search.note()
            else:  # there was no time for a network
                search.begin_bare()
            search.flush()
        self.trace_ = search.trace
        if search.trace.stopped_by != "converged":
            self._cut = search.trace.stopped_by
            warnings.warn(f"the search was stopped by {search.trace.stopped_by} after {search.n_moves:,} moves", Unconverged, stacklevel=4)
        return search

    def _owner(self, data: Dataset) -> str:
        """What a checkpoint depends on."""
        params = lasting_params(self, {"checkpoint", "time_budget", "prune", "bins", "missing"})
        if self.search_sd is not None:
            del params["l1"], params["sd"]
        return hashlib.sha256(repr((FORMAT, type(self).__name__, sorted(params.items()), digest(data))).encode()).hexdigest()[:32]

    def proposals(
        self, data: Dataset, valid: Dataset, grid: Grid, ledger: LedgerPath = None, search_tol: float | None = None
    ) -> Iterator[Proposal]:
        """A search for every structural setting; beside a ledger, searches are kept in a folder and go on where they stopped."""
        structural = {name: values for name, values in grid.items() if name not in WEIGHT_SETTINGS}
        began = time.monotonic()
        common: dict[Any, Any] = {}
        for values in itertools.product(*structural.values()):
            settings = dict(zip(structural, values, strict=True))
            left = self._left(began)
            if settings.setdefault("search_sd", self.search_sd) is None:
                settings["search_sd"] = 1.0 if self.sd == float("inf") else self.sd
            one = clone(self).set_params(**settings, time_budget=left)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Unconverged)  # told by the proposal
                search = one._run(data, _kept_beside(ledger, one._owner(data)), left, common)
            if search.trace.stopped_by == "interrupt":
                raise KeyboardInterrupt
            features, weights = _canonical(search)
            done = search.trace.stopped_by == "converged"
            yield Proposal(settings, features, search.trace.points[-1].seconds, done, weights, not done, one.learned())

    def _check(self) -> None:
        check_price("alpha", self.alpha)
        check_penalties(self.l1, self.sd, self.tol)
        if self.search_sd is not None and (not isinstance(self.search_sd, Real) or not self.search_sd >= 1e-9):
            raise ParameterError(f"search_sd={self.search_sd!r}: a number above zero (inf for no prior, None for that of the weights)")
        every = self.relearn_every
        if every != "auto" and (not isinstance(every, int | np.integer) or isinstance(every, bool) or every < 1):
            raise ParameterError(f"relearn_every={self.relearn_every!r}: a whole number of moves from 1 on, or 'auto'")


def check_price(name: str, price: float) -> None:
    if not isinstance(price, Real) or not 0 <= price < float("inf"):
        raise ParameterError(f"{name}={price!r}: the price of a literal must be a number, zero or more")


def check_rows(min_rows: float) -> None:
    if not isinstance(min_rows, Real) or not min_rows >= 0:
        raise ParameterError(f"min_rows={min_rows!r}: a number of rows, zero or more")


def _canonical(search: Search) -> tuple[FeatureSet, Array | None]:
    """The features in canonical order, with the search's weights if it has come to learn any."""
    features = search.features.canonical()
    weights = np.array([search.weights[f] for f in features])
    return features, weights if weights.any() else None


def _kept_beside(ledger: LedgerPath, name: str) -> Path | None:
    if ledger is None:
        return None
    folder = Path(ledger).with_suffix(".searches")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.json"
