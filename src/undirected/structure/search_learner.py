"""The base of the learners that search: their common parameters, checkpoints, and tuning."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.store import OwnedFile, check_writable, digest_text
from undirected.structure.learner import Grid, Learner, describe_params, list_structural
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.search_state import Feature, SearchState
from undirected.structure.trace import Trace
from undirected.structure.trials import Tuner
from undirected.weights.fit import WeightFit
from undirected.weights.penalty import NARROWEST_SD, check_prior
from undirected.work import MEMORY, Stopped, StoppedBy, Work

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
        missing: str = "learn",
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
    def explore(self, search: SearchState, state: dict[str, Any] | None) -> None:
        """Search until nothing improves the score; ``state`` is what was saved with the checkpoint that is being taken up."""

    def list_rules(self) -> dict[str, Any]:
        """What a subclass asks of the features that enter, as `Search` takes it."""
        return {}

    def propose(self, data: Dataset, work: Work) -> Structure:
        search, learned = self._run(data, self.checkpoint, work)
        stopped_by = search.trace.stopped_by
        if stopped_by is not StoppedBy.CONVERGED:
            warnings.warn(f"the search was stopped by {stopped_by} after {search.n_moves:,} moves", Unconverged, stacklevel=5)
        return _make_structure(search, learned)

    def _propose_from(self, data: Dataset, work: Work, start: WeightFit | None) -> Structure:
        """An earlier fit is not searched for again."""
        if start is not None and start.features.domain == data.domain:
            return Structure(start.features, weights=start.weights)
        return self.propose(data, work)

    def recall(self, data: Dataset, work: Work, tuner: Tuner) -> dict[str, Any]:
        kept = tuner.find_checkpoint(self._make_owner(data))
        return {} if kept is None or not kept.exists() else self._run(data, kept, work)[1]

    def pack(self) -> dict[str, Any]:
        """What a subclass has found beside the network, for the checkpoint of a finished search."""
        return {}

    def unpack(self, state: dict[str, Any]) -> None:
        """Take up what `pack` gave."""

    def list_learned(self) -> dict[str, Any]:
        """What a subclass has found beside the network, by attribute."""
        return {}

    def improve(self, features: FeatureSet, data: Dataset, work: Work) -> FeatureSet:
        """Search from a network with these features until nothing improves the score or the time is up; returns the features then."""
        search, _ = self._run(data, None, work, first=tuple(features))
        if search.trace.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        return search.features.canonical()

    def _run(
        self,
        data: Dataset,
        checkpoint: str | os.PathLike[str] | None,
        work: Work,
        common: dict[Any, Any] | None = None,
        first: Iterable[Feature] = (),
    ) -> tuple[SearchState, dict[str, Any]]:
        """Search to the end, or until time or Ctrl-C ends it; what was learned beside the network, by attribute."""
        self._check()
        if checkpoint is not None:
            check_writable(checkpoint)
        search = SearchState(
            data, self.alpha, *((self.l1, self.sd) if self.search_sd is None else (0.0, self.search_sd)), **self.list_rules(),
            tol=self.tol, relearn_every=None if self.relearn_every == "auto" else int(self.relearn_every), relearn_share=self.relearn_share,
            checkpoint=None if checkpoint is None else OwnedFile(Path(checkpoint), self._make_owner(data), "a checkpoint of a search"),
            work=work, common=common, first=first,
        )  # fmt: skip
        one: SearchLearner = clone(self)  # what it finds on its way stays out of this learner until it is fitted
        try:
            state = search.resume()
            if state is None or not state.pop("finished"):
                one.explore(search, state)
                search.trace.stopped_by = StoppedBy.CONVERGED
                search.note()
                search.save(one.pack(), finished=True)
            else:
                one.unpack(state)
        except (Stopped, KeyboardInterrupt) as stopped:
            search.trace.stopped_by = stopped.why if isinstance(stopped, Stopped) else StoppedBy.INTERRUPT
            search.work = search.work.silent()  # a listener that keeps interrupting must not cost what was found
            if search.weights:
                search.note()
            else:  # there was no time for a network
                search.begin_bare()
            search.flush()
        return search, {"trace_": search.trace, **one.list_learned()}

    def _make_owner(self, data: Dataset) -> str:
        """What a checkpoint depends on, as a fingerprint."""
        params = describe_params(self, {"checkpoint", "time_budget", "prune", "bins", "missing"})
        if self.search_sd is not None:
            del params["l1"], params["sd"]
        return digest_text(repr((FORMAT, type(self).__name__, sorted(params.items()), data.digest())))

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """A search for every structural setting; beside a ledger, searches are kept in a folder and go on where they stopped."""
        common: dict[Any, Any] = {}
        for settings in list_structural(grid):
            if settings.setdefault("search_sd", self.search_sd) is None:
                settings["search_sd"] = 1.0 if self.sd == float("inf") else self.sd
            one = clone(self).set_params(**settings)
            search, learned = one._run(data, tuner.find_checkpoint(one._make_owner(data)), work, common)
            if search.trace.stopped_by is StoppedBy.INTERRUPT:
                raise KeyboardInterrupt
            done = search.trace.stopped_by is StoppedBy.CONVERGED
            yield Proposal(settings, _make_structure(search, learned), search.trace.points[-1].seconds, done, last=not done)

    def _check(self) -> None:
        check_price("alpha", self.alpha)
        check_prior(self.l1, self.sd, self.tol)
        if self.search_sd is not None and (not isinstance(self.search_sd, Real) or not self.search_sd >= NARROWEST_SD):
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


def _make_structure(search: SearchState, learned: dict[str, Any]) -> Structure:
    """The features in canonical order, with the search's weights if it has come to learn any."""
    features = search.features.canonical()
    weights = np.array([search.weights[f] for f in features])
    stopped_by = search.trace.stopped_by
    cut = None if stopped_by is StoppedBy.CONVERGED else stopped_by
    return Structure(features, learned, cut, weights if weights.any() else None, search.objective)
