"""The network of a stream as it is fitted to chunk after chunk: which candidates enter, the weights, and which features leave."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.streaming.memory import Memory
from undirected.streaming.packing import Arrays, check_array
from undirected.streaming.widening import widen_features
from undirected.weights.fit import minimise
from undirected.weights.outcome import Outcome
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import StoppedBy, Work

FIRST_ROUNDS, LATER_ROUNDS = 10, 1  # of letting candidates in and fitting, for the first chunk and for a later one
MOST_ENTERING = 200  # candidates that may enter in a round
MOST_OVERLAP = 12  # contexts of a variable that hold in a row, on average, up to which quasi-Newton steps are faster than sweeps
SURE = 1.0  # standard errors by which a slope exceeds the L1 penalty where a candidate enters; later in a stream more are asked for
DOUBT = 1.0  # times the curvature that a chunk gives a new feature hold it back: of many candidates the luckiest have entered
STILL_STEEP = 0.5  # of the L1 penalty is the slope that a candidate needs to be looked at again in the next round
LOOSE = 100.0  # times the tolerance, between two rounds
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

    def find_slopes(self, features: FeatureSet, weights: Array) -> tuple[Array, Array]:
        """The derivative of the pseudo-log-likelihood by the weights of features that are not in the network, which has these weights, and
        its standard error."""
        residual = self.table.weights[:, None] * (self._held - self.objective.probabilities(weights))
        table = self.table
        args = (table.columns, table.domain.n_states, table.weights, features.start, features.literals, np.ascontiguousarray(residual.T))
        slope, square = backend().module.find_slopes(*args, self.objective.threads)
        return slope, np.sqrt(square)


@dataclass
class Fitting:
    """Features with weights, decayed support, and for how many chunks each weight has been zero; and the memory of earlier chunks.

    ``before`` are the weights with which the present chunk began.
    """

    features: FeatureSet
    memory: Memory
    weights: Array = field(default_factory=lambda: np.zeros(0))
    support: Array = field(default_factory=lambda: np.zeros(0))
    idle: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    before: Array = field(default_factory=lambda: np.zeros(0))
    n_chunks: int = 0  # that have been fitted

    @property
    def started(self) -> bool:
        """Whether a chunk has been fitted."""
        return self.n_chunks > 0

    @classmethod
    def start(cls, domain: Domain, memory: Memory) -> Fitting:
        """The atomic features, without weights yet."""
        out = cls(FeatureSet.from_normalised([], domain), memory)
        out._join(FeatureSet.atomic(domain))
        return out

    def learn(self, chunk: Dataset, candidates: FeatureSet, limits: Limits, work: Work, view: View | None = None) -> Outcome:
        """Fit the weights to a chunk and to what is remembered, and let in those of the candidates that matter.

        Where candidates are ``screened``, those enter whose slope exceeds the L1 penalty by more than chance explains, the steepest first
        and never many at a time, until none is left or the rounds are over; under an L1 penalty most others would come out with a weight
        of zero. The longer the stream, the more candidates have had their chance, and the steeper a slope must be.
        """
        if len(self.features) > limits.max_features:  # new states have brought features along
            self._make_room(0, limits.max_features)
            view = None
        rows = self.memory.choose_rows(chunk)
        if view is None or rows is not chunk:
            view = View(self.features, rows, work)
        waiting = candidates.subset(~np.isin(candidates.hashes, self.features.hashes))
        rounds = (LATER_ROUNDS if self.started else FIRST_ROUNDS) if limits.screened else 1
        doubt = DOUBT if self.started and limits.screened else 0.0
        self._start(view)
        tried = min(self.n_chunks + 1.0, 1 / max(1 - self.memory.decay, 1e-300))  # chunks that still count
        sure = math.sqrt(SURE**2 + 2 * math.log(tried))
        for later_rounds in reversed(range(rounds)):
            new, curvature, waiting = self._choose(view, waiting, limits, sure)
            if not len(new):
                break
            self._join(new, doubt * curvature)
            view = View(self.features, rows, work)
            if limits.screened and len(waiting) and later_rounds:
                self._fit(view, limits, LOOSE * limits.tol, work)
        if view.objective.features is not self.features:
            view = View(self.features, rows, work)
        outcome = self._fit(view, limits, limits.tol, work)
        if rows is not chunk:
            view = View(self.features, chunk, work)
        self.memory.add_chunk(view.objective, self.before, self.weights, chunk)
        self.n_chunks += 1
        self.support = self.memory.decay * self.support + self.features.support(chunk, work.threads)
        self.idle = np.where((self.weights == 0) & (self.features.lengths > 1), self.idle + 1, 0)
        if limits.screened:
            self._keep(self.idle < limits.patience)
        return outcome

    def _start(self, view: View) -> None:
        """Before the first chunk, take the weights of independent variables."""
        if not self.started:
            self.weights = view.objective.independent_start
        self.before = self.weights

    def _choose(self, view: View, waiting: FeatureSet, limits: Limits, sure: float) -> tuple[FeatureSet, Array, FeatureSet]:
        """The candidates that enter now, with their curvature, and those that may do so in a later round. Where there is no room, the
        features that matter least make some."""
        none = waiting.subset(np.zeros(0, dtype=np.int64))
        if not len(waiting) or (not limits.screened and len(waiting) <= limits.max_features - len(self.features)):
            return waiting, np.zeros(len(waiting)), none
        slope, error = view.find_slopes(waiting, self.weights)
        steep = np.abs(slope) - sure * error
        order = np.argsort(-steep, kind="stable")
        n_steep = int((steep > limits.l1).sum()) if limits.screened else len(waiting)
        wanted = min(n_steep, MOST_ENTERING) if limits.screened else n_steep
        room = self._make_room(wanted, limits.max_features)
        later = order[room:][steep[order[room:]] > STILL_STEEP * limits.l1] if limits.screened else order[:0]
        now = np.sort(order[:room])
        return waiting.subset(now), np.square(error[now]), waiting.subset(np.sort(later))

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
        objective, penalty = view.objective, self.memory.make_penalty(limits.l1, limits.sd)
        overlap = objective.density * float(objective.term_sizes.mean())
        outcome = minimise(objective, penalty, self.weights, tol=tol, work=work, solver="auto" if overlap <= MOST_OVERLAP else "descent")
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
        self.n_chunks = 0
        self.memory.clear()

    def _join(self, new: FeatureSet, precision: Array | None = None) -> None:
        """Add features with a weight of zero, and a precision there; those there are stay as they are."""
        both = self.features.concatenate(new)
        self._take(both, both.first_of_each(), np.zeros(len(new)) if precision is None else precision)

    def _keep(self, which: Array) -> None:
        self._take(self.features, np.flatnonzero(which) if which.dtype == bool else which, np.zeros(0))

    def _take(self, features: FeatureSet, order: Array, new_precision: Array) -> None:
        n_new = len(new_precision)
        self.features = features.subset(order)
        for name in ("weights", "support", "idle", "before"):
            values = getattr(self, name)
            setattr(self, name, np.concatenate([values, np.zeros(n_new, dtype=values.dtype)])[order])
        self.memory.align(order, new_precision)

    def widen(self, domain: Domain) -> None:
        """Follow the domain to more states, which get atomic features."""
        self.features = widen_features(self.features, domain)
        self.memory.widen(domain)
        self._join(FeatureSet.atomic(domain))

    def pack(self) -> Arrays:
        """The network, for a checkpoint; the memory has its own."""
        return {
            "start": self.features.start, "literals": self.features.literals, "weights": self.weights, "support": self.support,
            "idle": self.idle, "chunks": np.array([self.n_chunks]),
        }  # fmt: skip

    @classmethod
    def unpack(cls, arrays: Arrays, domain: Domain, memory: Memory) -> Fitting:
        """Take up what `pack` gave."""
        features = FeatureSet.from_arrays(domain, check_array(arrays, "start", "i", None), check_array(arrays, "literals", "i", None))
        n = len(features)
        for name, kind, least in (("weights", "f", None), ("support", "f", 0), ("idle", "i", 0)):
            check_array(arrays, name, kind, n, least=least)
        if len(memory.centre) != n or not 0 <= int(arrays["chunks"][0]) < 1 << 53:
            raise ValueError("the memory does not fit the features")
        state = (arrays["weights"], arrays["support"], arrays["idle"], arrays["weights"])
        return cls(features, memory, *state, int(arrays["chunks"][0]))
