"""The network of a stream as it is fitted to chunk after chunk: which candidates enter, the weights, and which features leave."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass, field, replace

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.streaming.memory import Memory
from undirected.streaming.packing import Arrays
from undirected.streaming.widening import widen_features
from undirected.weights.fit import minimise
from undirected.weights.outcome import Outcome
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import StoppedBy, Work

ROUNDS = 10  # of letting candidates in and fitting, for a chunk
LEAST_ENTERING = 500  # candidates that may enter in a round, or a half of the features there are if that is more
LOOSE = 30.0  # times the tolerance, while candidates may still enter
MOST_REPLACED = 0.1  # of the cap may leave for candidates of a chunk though their weights are not zero


@dataclass(frozen=True)
class Limits:
    """What a network in a stream is held to."""

    l1: float
    sd: float
    tol: float
    screened: bool
    patience: int
    max_features: int


class View:
    """A chunk as features see it."""

    def __init__(self, features: FeatureSet, rows: Dataset, work: Work) -> None:
        self.objective = PseudoLikelihood(features, rows, work.threads, work.memory)
        self.table = self.objective.table

    @functools.cached_property
    def _held(self) -> Array:
        """Whether each literal holds in each distinct row: ``[rows][literals]``."""
        domain = self.table.domain
        variable = domain.literal_variable
        return np.asarray(self.table.codes[:, variable] == np.arange(domain.n_literals) - domain.base[variable])

    def find_slopes(self, features: FeatureSet, weights: Array) -> Array:
        """The derivative of the pseudo-log-likelihood by the weights of features that are not in the network, which has these weights."""
        residual = self.table.weights[:, None] * (self._held - self.objective.probabilities(weights))
        return self._measure(features, np.ascontiguousarray(residual.T))[0]

    def find_support(self, features: FeatureSet) -> Array:
        """The weight of the rows in which features hold."""
        return self._measure(features, np.zeros(self._held.T.shape))[1]

    def _measure(self, features: FeatureSet, residual: Array) -> tuple[Array, Array]:
        table = self.table
        args = (table.columns, table.domain.n_states, table.weights, features.start, features.literals, residual)
        found: tuple[Array, Array] = backend().module.find_slopes(*args, self.objective.threads)
        return found


@dataclass
class Fitting:
    """Features with weights, decayed support, and for how many chunks each weight has been zero; and the memory of earlier chunks."""

    features: FeatureSet
    memory: Memory
    weights: Array = field(default_factory=lambda: np.zeros(0))
    support: Array = field(default_factory=lambda: np.zeros(0))
    idle: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    started: bool = False  # whether a chunk has been fitted

    @classmethod
    def start(cls, domain: Domain, memory: Memory) -> Fitting:
        """The atomic features, without weights yet."""
        out = cls(FeatureSet.from_normalised([], domain), memory)
        out._join(FeatureSet.atomic(domain))
        return out

    def learn(self, chunk: Dataset, candidates: FeatureSet, limits: Limits, work: Work, view: View | None = None) -> Outcome:
        """Fit the weights to a chunk and to what is remembered, and let in those of the candidates that matter.

        Where candidates are ``screened``, those enter whose slope exceeds the L1 penalty, the steepest first and never many at a time,
        until none is left or the rounds are over; under an L1 penalty the others would come out with a weight of zero.
        """
        rows = self.memory.choose_rows(chunk)
        if view is None or rows is not chunk:
            view = View(self.features, rows, work)
        if not self.started:
            self.weights = view.objective.independent_start
            self.started = True
        waiting = candidates.difference(self.features)
        for _ in range(ROUNDS if limits.screened else 1):
            new = self._choose(view, waiting, limits)
            if not len(new):
                break
            self._join(waiting.subset(new))
            waiting = waiting.subset(np.setdiff1d(np.arange(len(waiting)), new))
            view = View(self.features, rows, work)
            if limits.screened and len(waiting):
                self._fit(view, limits, LOOSE * limits.tol, work)
        if view.objective.features is not self.features:
            view = View(self.features, rows, work)
        outcome = self._fit(view, limits, limits.tol, work)
        if rows is not chunk:
            view = View(self.features, chunk, work)
        self.memory.add_chunk(view.objective, self.weights, chunk)
        self.support = self.memory.decay * self.support + view.find_support(self.features)
        self.idle = np.where((self.weights == 0) & (self.features.lengths > 1), self.idle + 1, 0)
        if limits.screened:
            self._keep(self.idle < limits.patience)
        return outcome

    def _choose(self, view: View, waiting: FeatureSet, limits: Limits) -> Array:
        """The candidates that enter now, by position; where there is no room, the features that matter least make some."""
        if not len(waiting):
            return np.zeros(0, dtype=np.int64)
        if not limits.screened and len(waiting) <= limits.max_features - len(self.features):
            return np.arange(len(waiting))
        steep = np.abs(view.find_slopes(waiting, self.weights))
        new = np.flatnonzero(steep > limits.l1) if limits.screened else np.arange(len(waiting))
        if limits.screened:
            new = new[np.argsort(-steep[new], kind="stable")[: max(LEAST_ENTERING, len(self.features) // 2)]]
        room = self._make_room(len(new), limits.max_features)
        return np.sort(new[np.argsort(-steep[new], kind="stable")[:room]])

    def _make_room(self, wanted: int, most: int) -> int:
        """Let features leave for candidates: of weight zero first, then of the smallest weight times support. Returns the room there is."""
        short = wanted - (most - len(self.features))
        if short > 0:
            longer = self.features.lengths > 1
            zero = longer & (self.weights == 0)
            leaving = min(short, int(zero.sum()) + int(MOST_REPLACED * most), int(longer.sum()))
            order = np.lexsort((self.support, np.abs(self.weights) * self.support, ~zero, ~longer))
            self._keep(np.sort(order[leaving:]))
        return max(0, min(wanted, most - len(self.features)))

    def _fit(self, view: View, limits: Limits, tol: float, work: Work) -> Outcome:
        outcome = minimise(view.objective, self.memory.make_penalty(limits.l1, limits.sd), self.weights, tol=tol, work=work)
        if outcome.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt  # weights that depend on the moment of Ctrl-C could not be learned again
        self.weights = outcome.weights
        return outcome

    def copy(self) -> Fitting:
        """The same network, to be fitted on its own."""
        return replace(self, memory=copy.copy(self.memory))

    def restart(self) -> None:
        """Drop all but the atomic features, and what is remembered."""
        self._keep(self.features.lengths == 1)
        self.memory.clear()

    def _join(self, new: FeatureSet) -> None:
        """Add features with a weight of zero; those there are stay as they are."""
        both = self.features.concatenate(new)
        self._take(both, both.first_of_each(), len(new))

    def _keep(self, which: Array) -> None:
        self._take(self.features, np.flatnonzero(which) if which.dtype == bool else which, 0)

    def _take(self, features: FeatureSet, order: Array, n_new: int) -> None:
        self.features = features.subset(order)
        for name in ("weights", "support", "idle"):
            values = getattr(self, name)
            setattr(self, name, np.concatenate([values, np.zeros(n_new, dtype=values.dtype)])[order])
        self.memory.align(order, n_new)

    def widen(self, domain: Domain) -> None:
        """Follow the domain to more states, which get atomic features."""
        self.features = widen_features(self.features, domain)
        self.memory.widen(domain)
        self._join(FeatureSet.atomic(domain))

    def pack(self) -> Arrays:
        """The network, for a checkpoint; the memory has its own."""
        return {
            "start": self.features.start, "literals": self.features.literals, "weights": self.weights, "support": self.support,
            "idle": self.idle, "started": np.array([self.started]),
        }  # fmt: skip

    @classmethod
    def unpack(cls, arrays: Arrays, domain: Domain, memory: Memory) -> Fitting:
        """Take up what `pack` gave."""
        features = FeatureSet.from_arrays(domain, arrays["start"], arrays["literals"])
        return cls(features, memory, arrays["weights"], arrays["support"], arrays["idle"], bool(arrays["started"][0]))
