"""What the learners that search share: the current network with its logits, the score, moves, relearning, a checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import CheckpointFailed, DataError, FormatError
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.store import OwnedFile
from undirected.structure.trace import Point, SearchStep, Trace
from undirected.weights.fit import WeightPath
from undirected.weights.pseudo_likelihood import PseudoLikelihood, choose_affordable
from undirected.work import Stopped, StoppedBy, Work

Feature = tuple[int, ...]
LEAST_GAIN = 1e-6  # a move must gain more than this: rounding is no progress
SECONDS_BETWEEN_POINTS = 1.0  # of the trace, and of events
SECONDS_BETWEEN_SAVES = 10.0  # of checkpoints


class SearchState:
    """The network of a structure search, and what moves would do to its score.

    The score is minus the objective of weight learning (minus PLL plus penalties) minus ``alpha`` for each literal, and minus
    ``surcharge`` for each beyond a feature's second, so that relearning all weights never lowers it. The logits of every (variable,
    distinct row) are kept up to date; the gain of a feature is found from the rows that its contexts touch, with all other weights held.
    """

    def __init__(
        self,
        data: Dataset,
        alpha: float,
        l1: float = 0.0,
        sd: float = 1.0,
        *,
        surcharge: float = 0.0,
        min_rows: float = 0,
        tol: float = 1e-5,
        relearn_every: int | None = None,
        relearn_share: float = 0.1,
        work: Work,
        checkpoint: OwnedFile | None = None,
        common: dict[Any, Any] | None = None,
        first: Iterable[Feature] = (),
    ) -> None:
        self.first = tuple(first)  # features that are in the network from the start
        self.common: dict[Any, Any] = {} if common is None else common  # what searches of the same table can share
        self.data, self.domain = data, data.domain
        lengths = np.arange(len(self.domain.literal_variable) + 1.0)
        self.price = alpha * lengths + surcharge * np.maximum(lengths - 2, 0)  # of a feature, by its length
        self.min_rows = min_rows  # that a feature matches to enter
        self.l1, self.sd = l1, sd
        self.ridge = 0.0 if np.isinf(sd) else 1 / sd**2
        self.tol = max(tol, min(1e-3, 1 / data.total_weight))
        self.relearn_every, self.relearn_share = relearn_every, relearn_share
        self.work, self.checkpoint = work, checkpoint
        table = data.distinct
        self.kernel: Any = backend().module.Search(table.columns, self.domain.n_states, table.weights)
        self.atoms = tuple(FeatureSet.atomic(self.domain))
        self.weights: dict[Feature, float] = {}
        self.score = -np.inf
        self.n_literals = self.n_moves = self.changes = 0
        self.version = 0  # grows with every change of a weight
        self.trace = Trace()
        self.seconds_before = 0.0  # of earlier runs, whose checkpoint this one took up
        self.objective: PseudoLikelihood | None = None  # of the weights when they were last learned together
        self._began = self._noted = self._saved = work.now()
        self._unsaved: dict[str, Any] | None = None
        self._warned = False  # that the checkpoint cannot be written

    # -- the network
    @property
    def features(self) -> FeatureSet:
        return FeatureSet.from_normalised(list(self.weights), self.domain)

    @property
    def seconds(self) -> float:
        """Seconds of the search, earlier runs included."""
        return self.seconds_before + self.work.now() - self._began

    def begin(self, features: Iterable[Feature] = ()) -> None:
        """Start from the atomic features, those given with the search, and these, with all weights learned."""
        both = FeatureSet.from_normalised([*self.first, *features], self.domain).union(FeatureSet.atomic(self.domain))
        kept = choose_affordable(both, self.data, self.work)
        both = both if kept is None else both.subset(kept)
        self.weights = dict.fromkeys((f for f in both if f), 0.0)
        self.relearn(cold=True)

    def admit(self, features: Sequence[Feature]) -> Iterable[Feature]:
        """Those that match enough rows to enter."""
        if self.min_rows <= 0:
            return features
        support = FeatureSet.from_normalised(list(features), self.domain).support(self.data)
        return (f for f, n in zip(features, support.tolist(), strict=True) if n >= self.min_rows)

    def begin_bare(self) -> None:
        """The atomic features with weights of zero, at no cost."""
        self.weights, self.n_literals = dict.fromkeys(self.atoms, 0.0), len(self.atoms)
        self.score = -self.kernel.loss(self.work.threads) - float(self.price[1]) * self.n_literals
        self.note()

    def relearn(self, cold: bool = False) -> None:
        """All weights together, from where they are; the logits are computed anew, so that rounding does not pile up."""
        features = self.features
        start = None if cold else np.fromiter(self.weights.values(), float, len(self.weights))
        self.objective = None  # two at a time would take twice the memory
        self.objective = PseudoLikelihood(features, self.data, self.work.threads, self.work.memory)
        path = WeightPath(features, self.data, self.work.silent(), self.objective)
        fit = path.solve([(self.l1, self.sd)], self.tol, start)[0]
        self.n_literals = int(features.lengths.sum())
        self.weights = dict(zip(self.weights, fit.weights.tolist(), strict=True))
        self.score = -fit.objective - float(self.price[features.lengths].sum())
        self.kernel.load(features.start, features.literals, fit.weights, self.work.threads)
        self.changes = 0
        self.version += 1
        self.note()
        if fit.stopped_by is StoppedBy.INTERRUPT:
            raise Stopped(StoppedBy.INTERRUPT)
        self.work.check()

    @property
    def relearning_due(self) -> bool:
        """After so many changes of features, or, where none are said, after a share of the number of features."""
        return self.changes >= (self.relearn_every or max(1, int(self.relearn_share * len(self.weights))))

    # -- gains
    def find_gains(self, candidates: Sequence[Feature]) -> tuple[Array, Array]:
        """Best weight, and gain in score, of adding each candidate on its own."""
        return self._score_gains(candidates, np.full(len(candidates), -1, dtype=np.int32), [])[:2]

    def find_replacements(
        self, features: Sequence[Feature], candidates: Sequence[Sequence[Feature]]
    ) -> list[tuple[float, Feature | None, float]]:
        """For each feature the best of: one of its candidates in its place, or nothing there. Gain in score, the candidate (None
        for nothing), and its weight. Candidates that the network already has are left out. A feature that is not in the
        network itself leaves nothing behind: its candidates would be added."""
        fresh = [[c for c in own if c not in self.weights] for own in candidates]
        inside = [f for f in features if f in self.weights]
        number = {f: k for k, f in enumerate(inside)}
        owner = np.repeat(np.array([number.get(f, -1) for f in features], dtype=np.int32), [len(own) for own in fresh])
        flat = [c for own in fresh for c in own]
        weights, gains, present = self._score_gains(flat, owner, inside)
        out: list[tuple[float, Feature | None, float]] = []
        at = 0
        for f, own in zip(features, fresh, strict=True):
            held = float(present[number[f]]) if f in number else 0.0
            best: tuple[float, Feature | None, float] = (-held, None, 0.0)
            for k in range(at, at + len(own)):
                if gains[k] - held > best[0]:
                    best = (float(gains[k]) - held, flat[k], float(weights[k]))
            at += len(own)
            out.append(best)
        return out

    def _score_gains(self, candidates: Sequence[Feature], owner: Array, owners: Sequence[Feature]) -> tuple[Array, Array, Array]:
        new, old = FeatureSet.from_normalised(list(candidates), self.domain), FeatureSet.from_normalised(list(owners), self.domain)
        held = np.array([self.weights[f] for f in owners], dtype=float)
        weights, gains, present = self.kernel.gains(
            new.start, new.literals, owner, old.start, old.literals, held,
            self.min_rows, self.l1, self.ridge, self.price, False, self.work.threads,
        )  # fmt: skip
        self.trace.n_scored += len(candidates) + len(owners)
        return weights, gains, present

    # -- moves
    def move(self, feature: Feature | None, other: Feature | None, weight: float, gain: float) -> None:
        """Take one feature out, put another in, or both."""
        if feature is not None:
            self._change(feature, -self.weights.pop(feature))
            self.n_literals -= len(feature)
        if other is not None:
            self._change(other, weight)
            self.weights[other] = weight
            self.n_literals += len(other)
        self.score += gain
        self.n_moves += 1
        self.version += 1
        if self.work.now() - self._noted >= SECONDS_BETWEEN_POINTS:
            self.note()

    def _change(self, feature: Feature, by: float) -> None:
        self.changes += by != 0
        self.kernel.change(np.array(feature, dtype=np.int32), by)

    # -- the course
    def note(self) -> None:
        """Put down where the search stands, and tell who listens."""
        self._noted = self.work.now()
        point = Point(self.seconds, self.score, len(self.weights), self.n_literals, self.n_moves)
        self.trace.points.append(point)
        self.work.emit(SearchStep(point, self.trace.n_scored))

    def save(self, state: dict[str, Any], finished: bool = False) -> None:
        """Keep the network and the learner's own state; only right after relearning, when the logits follow from the weights."""
        if self.checkpoint is None:
            return
        self._unsaved = self._pack(state, finished)
        if finished or self.work.now() - self._saved >= SECONDS_BETWEEN_SAVES:
            self.flush()

    def flush(self) -> None:
        """Write what `save` was last told, if it is not written yet."""
        if self.checkpoint is not None and self._unsaved is not None:
            try:
                self.checkpoint.save(self._unsaved)
            except DataError as error:  # a full disk is no reason to lose the search
                if not self._warned:
                    warnings.warn(f"the search goes on without its checkpoint: {error}", CheckpointFailed, stacklevel=2)
                self._warned = True
            self._unsaved, self._saved = None, self.work.now()

    def _pack(self, state: dict[str, Any], finished: bool) -> dict[str, Any]:
        return {
            "features": [list(f) for f in self.weights],
            "weights": list(self.weights.values()),
            "score": self.score,
            "n_moves": self.n_moves,
            "version": self.version,
            "n_scored": self.trace.n_scored,
            "trace": [list(point) for point in self.trace.points],
            "seconds": self.seconds,
            "stopped_by": self.trace.stopped_by or "",
            "finished": finished,
            "state": {name: list(value) if isinstance(value, list) else value for name, value in state.items()},
        }

    def resume(self) -> dict[str, Any] | None:
        """Take up what `save` kept: the learner's own state, or None where there is nothing."""
        found = None if self.checkpoint is None else self.checkpoint.load()
        if found is None:
            return None
        try:
            return self._take_up(found)
        except (KeyError, TypeError, ValueError) as error:
            assert self.checkpoint is not None
            raise FormatError(f"{self.checkpoint.path} is damaged ({error}); delete it") from None

    def _take_up(self, found: dict[str, Any]) -> dict[str, Any]:
        self.weights = dict(zip(map(tuple, found["features"]), found["weights"], strict=True))
        features = self.features
        self.kernel.load(features.start, features.literals, np.array(found["weights"], dtype=float), self.work.threads)
        self.n_literals = int(features.lengths.sum())
        self.score, self.n_moves, self.version = found["score"], found["n_moves"], found["version"]
        stopped_by = StoppedBy(found["stopped_by"]) if found["stopped_by"] else None
        self.trace = Trace([Point(*point) for point in found["trace"]], stopped_by, found["n_scored"])
        self.seconds_before = found["seconds"]
        return dict(found["state"], finished=found["finished"])
