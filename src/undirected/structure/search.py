"""What the learners that search share: the current network with its logits, the score, moves, relearning, a trace, a checkpoint."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import CheckpointFailed, DataError, FormatError, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.store import write_whole
from undirected.weights.fit import fit_weights
from undirected.weights.pseudo_likelihood import PseudoLikelihood, affordable
from undirected.work import MEMORY, count_cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Feature = tuple[int, ...]
LEAST = 1e-6  # a move must gain more than this: rounding is no progress
EVERY = 1.0  # seconds between points of the trace, and calls of the progress function
SAVE_EVERY = 10.0  # seconds between checkpoints


class Point(NamedTuple):
    """Where a search stood."""

    seconds: float
    score: float
    n_features: int
    n_literals: int
    n_moves: int


@dataclass
class Trace:
    """The course of a search: its points, and why it ended (``converged``, ``time`` or ``interrupt``)."""

    points: list[Point] = field(default_factory=list)
    stopped_by: str = ""
    n_scored: int = 0  # candidates

    def plot(self) -> Figure:
        """The score against time."""
        from undirected.plots import draw_trace

        return draw_trace(self)

    def __str__(self) -> str:
        last = self.points[-1]
        return (
            f"{last.n_moves:,} moves, {self.n_scored:,} candidates scored in {last.seconds:.1f} s ({self.stopped_by}); "
            f"score {last.score:.4f}, {last.n_features:,} features"
        )


class Stopped(Exception):
    """The time is up or the user has interrupted; ``why`` says which."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Search:
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
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        progress: Any = None,
        checkpoint: Checkpoint | None = None,
        common: dict[Any, Any] | None = None,
    ) -> None:
        self.common: dict[Any, Any] = {} if common is None else common  # what searches of the same table can share
        self.data, self.domain = data, data.domain
        lengths = np.arange(len(self.domain.literal_variable) + 1.0)
        self.price = alpha * lengths + surcharge * np.maximum(lengths - 2, 0)  # of a feature, by its length
        self.min_rows = min_rows  # that a feature matches to enter
        self.l1, self.sd = l1, sd
        self.ridge = 0.0 if np.isinf(sd) else 1 / sd**2
        self.tol = max(tol, min(1e-3, 1 / data.total_weight))
        self.relearn_every, self.relearn_share = relearn_every, relearn_share
        self.threads, self.memory = threads or count_cores(), memory
        self.progress, self.checkpoint = progress, checkpoint
        table = data.distinct
        self.kernel: Any = backend().module.Search(table.columns, self.domain.n_states, table.weights)
        self.atoms = tuple(FeatureSet.atomic(self.domain))
        self.weights: dict[Feature, float] = {}
        self.score = -np.inf
        self.n_literals = self.n_moves = self.changes = 0
        self.version = 0  # grows with every change of a weight
        self.trace = Trace()
        self.seconds_before = 0.0  # of earlier runs, whose checkpoint this one took up
        self._began = self._shown = time.monotonic()
        self._saved = self._began
        self._unsaved: dict[str, Any] | None = None
        self.objective: PseudoLikelihood | None = None  # of the weights when they were last learned together
        self._warned = False  # that the checkpoint cannot be written
        self._deadline = None if time_budget is None else self._began + time_budget

    # -- the network
    @property
    def features(self) -> FeatureSet:
        return FeatureSet.from_normalised(list(self.weights), self.domain)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self._began

    def begin(self, features: Iterable[Feature] = ()) -> None:
        """Start from the atomic features and these, with all weights learned."""
        both = FeatureSet.from_normalised(list(features), self.domain).union(FeatureSet.atomic(self.domain))
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        kept = affordable(both, self.data, left, self.threads, self.memory)
        both = both if kept is None else both.subset(kept)
        self.weights = dict.fromkeys((f for f in both if f), 0.0)
        self.relearn(cold=True)

    def admitted(self, features: Sequence[Feature]) -> Iterable[Feature]:
        """Those that match enough rows to enter."""
        if self.min_rows <= 0:
            return features
        support = FeatureSet.from_normalised(list(features), self.domain).support(self.data)
        return (f for f, n in zip(features, support.tolist(), strict=True) if n >= self.min_rows)

    def begin_bare(self) -> None:
        """The atomic features with weights of zero, at no cost."""
        self.weights, self.n_literals = dict.fromkeys(self.atoms, 0.0), len(self.atoms)
        self.score = -self.kernel.loss(self.threads) - float(self.price[1]) * self.n_literals
        self.note()

    def relearn(self, cold: bool = False) -> None:
        """All weights together, from where they are; the logits are computed anew, so that rounding does not pile up."""
        features = self.features
        start = None if cold else np.fromiter(self.weights.values(), float, len(self.weights))
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unconverged)
            self.objective = None  # two at a time would take twice the memory
            self.objective = PseudoLikelihood(features, self.data, self.threads, self.memory)
            fit = fit_weights(
                features, self.data, self.l1, self.sd, tol=self.tol, start=start, threads=self.threads, memory=self.memory,
                time_budget=left, objective=self.objective,
            )  # fmt: skip
        self.n_literals = int(features.lengths.sum())
        self.weights = dict(zip(self.weights, fit.weights.tolist(), strict=True))
        self.score = -fit.objective - float(self.price[features.lengths].sum())
        self.kernel.load(features.start, features.literals, fit.weights, self.threads)
        self.changes = 0
        self.version += 1
        self.note()
        if fit.stopped_by == "interrupt":
            raise Stopped("interrupt")
        self.check_time()

    @property
    def relearning_due(self) -> bool:
        """After so many changes of features, or, where none are said, after a share of the number of features."""
        return self.changes >= (self.relearn_every or max(1, int(self.relearn_share * len(self.weights))))

    # -- gains
    def gains(self, candidates: Sequence[Feature]) -> tuple[Array, Array]:
        """Best weight, and gain in score, of adding each candidate on its own."""
        return self._gains(candidates, np.full(len(candidates), -1, dtype=np.int32), [])[:2]

    def replacements(
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
        weights, gains, present = self._gains(flat, owner, inside)
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

    def _gains(self, candidates: Sequence[Feature], owner: Array, owners: Sequence[Feature]) -> tuple[Array, Array, Array]:
        new, old = FeatureSet.from_normalised(list(candidates), self.domain), FeatureSet.from_normalised(list(owners), self.domain)
        held = np.array([self.weights[f] for f in owners], dtype=float)
        weights, gains, present = self.kernel.gains(
            new.start, new.literals, owner, old.start, old.literals, held,
            self.min_rows, self.l1, self.ridge, self.price, False, self.threads,
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
        if time.monotonic() - self._shown >= EVERY:
            self.note()

    def _change(self, feature: Feature, by: float) -> None:
        self.changes += by != 0
        self.kernel.change(np.array(feature, dtype=np.int32), by)

    # -- the course
    def note(self) -> None:
        """Put down where the search stands, and tell who wants to know."""
        self._shown = time.monotonic()
        self.trace.points.append(Point(self.seconds, self.score, len(self.weights), self.n_literals, self.n_moves))
        if hasattr(self.progress, "searching"):
            self.progress.searching(self.trace)

    def check_time(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise Stopped("time")

    def save(self, state: dict[str, Any], finished: bool = False) -> None:
        """Keep the network and the learner's own state; only right after relearning, when the logits follow from the weights."""
        if self.checkpoint is None:
            return
        self._unsaved = self._content(state, finished)
        if finished or time.monotonic() - self._saved >= SAVE_EVERY:
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
            self._unsaved, self._saved = None, time.monotonic()

    def _content(self, state: dict[str, Any], finished: bool) -> dict[str, Any]:
        return {
            "features": [list(f) for f in self.weights],
            "weights": list(self.weights.values()),
            "score": self.score,
            "n_moves": self.n_moves,
            "version": self.version,
            "n_scored": self.trace.n_scored,
            "trace": [list(point) for point in self.trace.points],
            "seconds": self.seconds,
            "stopped_by": self.trace.stopped_by,
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
        self.kernel.load(features.start, features.literals, np.array(found["weights"], dtype=float), self.threads)
        self.n_literals = int(features.lengths.sum())
        self.score, self.n_moves, self.version = found["score"], found["n_moves"], found["version"]
        self.trace = Trace([Point(*point) for point in found["trace"]], found["stopped_by"], found["n_scored"])
        self.seconds_before = found["seconds"]
        return dict(found["state"], finished=found["finished"])


class Checkpoint:
    """A file that holds one search, written whole; ``owner`` says which, and another's is not taken up."""

    def __init__(self, path: Path, owner: str) -> None:
        self.path, self.owner = path, owner

    def save(self, content: dict[str, Any]) -> None:
        write_whole(self.path, json.dumps({"owner": self.owner, **content}))

    def load(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self.path.read_text("utf8"))
            if not isinstance(content["owner"], str):
                raise TypeError("owner")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{self.path} is not a checkpoint of a search ({error}); name another file or delete it") from None
        if content["owner"] != self.owner:
            raise FormatError(f"{self.path} belongs to a search on other data or with other settings; name another file or delete it")
        return dict(content)
