"""Learning from rows with gaps: Monte-Carlo EM, around any learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import DataError
from undirected.features.feature_set import FeatureSet
from undirected.inference.gaps import FIRST_SWEEPS, MORE_SWEEPS, Completer
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.structure.candidates import screen_pairs
from undirected.weights.fit import WeightFit, WeightPath
from undirected.work import Event, Stopped, StoppedBy, Work

COMPLETIONS = 5  # of each row with gaps, in each round
FINAL_COMPLETIONS = 20
LEAST_ROUNDS, MOST_ROUNDS = 6, 40
MOST_CELLS = 50_000_000  # of all completions together
FIRST_ROUNDS = 5  # with pairs alone, before there is a structure
FIRST_PAIRS = 3000
FIRST_PENALTY = 3.0, 1.0  # l1 and sd
ROUGH_TOL = 1e-4
SETTLED = 1e-4  # change of the mean score of a row, as a share of it, from three rounds to the next three
FIRST_SHARE, STRUCTURE_SHARE = 0.15, 0.7  # of the time: for the first rounds, and of what is left then for the learner itself


@dataclass(frozen=True)
class GapsFilled(Event):
    """A round of completions and weights is over: the mean score of a completed row under the weights it led to."""

    round: int
    score: float

    def __str__(self) -> str:
        return f"gaps, round {self.round}: PLL of completed rows {self.score:.4f}"


@dataclass(frozen=True)
class Gaps:
    """How a table with gaps was learned from: cells missing, rows that have such; rounds, by how much the mean score of a row changed from
    the last three but three to the last three, and whether that is no more than drawing completions anew changes it."""

    n_cells: int
    n_rows: int
    rounds: int
    change: float
    settled: bool

    def __str__(self) -> str:
        how = "settled" if self.settled else "NOT settled"
        told = f"the last three changed the score of a row by {self.change:.4f}" if np.isfinite(self.change) else "too few to tell"
        rounds = f"{self.rounds} rounds of completions, {how}: {told}"
        return f"{self.n_cells:,} cells are missing, in {self.n_rows:,} rows; {rounds}"


class Learner(Protocol):
    """A fitted learner, as far as it is needed here."""

    fit_: WeightFit

    def find_l1_factors(self, features: FeatureSet) -> Array | None:
        """What the L1 penalty of each feature is multiplied by."""


class _Table:
    """Complete rows, and rows with gaps together with their completions."""

    def __init__(self, data: Dataset, seed: int) -> None:
        rows = data.distinct
        known = (rows.codes >= 0).any(axis=1)
        whole = (rows.codes >= 0).all(axis=1)
        self.domain, self.source = data.domain, data.source
        self.whole, self.open = rows.subset(np.flatnonzero(whole)), rows.subset(np.flatnonzero(known & ~whole))
        if not len(self.whole) and not len(self.open):
            raise DataError(f"{data.source}: no cell is known, so that there is nothing to learn from")
        self.seed = seed
        self.completer = Completer(self.open.codes, self.limit(COMPLETIONS), self.domain, seed)

    def limit(self, n: int) -> int:
        """So many completions of each row, or as many as there is room for, but two at least."""
        return int(np.clip(MOST_CELLS // max(1, self.open.codes.size), 2, n))

    def complete(self, states: Array) -> Dataset:
        """All rows, those with gaps in each of their completions, which share their weight."""
        codes = np.concatenate([self.whole.codes, *states.astype(self.whole.codes.dtype)])
        weights = np.concatenate([self.whole.weights, np.tile(self.open.weights / len(states), len(states))])
        return Dataset(self.domain, codes, weights, self.source)

    def score(self, completed: Dataset, terms: Array) -> tuple[float, float]:
        """The mean score of a completed row, from those of the distinct ones, and how much it scatters from completion to completion."""
        of_rows = terms[completed.group] * completed.weights
        chains = of_rows[len(self.whole) :].reshape(-1, len(self.open)).sum(axis=1)
        total = completed.total_weight
        return float(of_rows.sum() / total), float(chains.std(ddof=1) * np.sqrt(len(chains)) / total)

    def use_more(self, n: int) -> None:
        """More chains from now on, that begin where those so far are."""
        old = self.completer.states.reshape(self.completer.n, len(self.open), -1)
        self.completer = Completer(self.open.codes, n, self.domain, self.seed + 1)
        self.completer.states = np.concatenate([old[k % len(old)] for k in range(n)])


def learn_with_gaps(
    data: Dataset, learn: Callable[[Dataset, Work], Learner], tol: float, seed: int, work: Work
) -> tuple[Learner, WeightFit, Gaps]:
    """Learn from a table with gaps: the learner that ``learn`` has fitted to one completion of the table, weights for its features, and how
    it went.

    First pairs alone are weighed, and gaps filled by drawing from them; then the learner finds features on a completed table; then
    completions are drawn, and weights learned from them, in turn, until the score of a row no longer changes.
    """
    table = _Table(data, seed)
    n_cells, n_rows = int((data.codes < 0).sum()), int((data.codes < 0).any(axis=1).sum())
    network = _fill_by_pairs(table, work.share(FIRST_SHARE))
    states = table.completer.draw(network, MORE_SWEEPS, work)
    learner = learn(table.complete(states[:1]), work.share(STRUCTURE_SHARE))
    turns = _Turns(table, learner, tol, work)
    if turns.fit.stopped_by is not StoppedBy.INTERRUPT:
        try:
            turns.run()
        except KeyboardInterrupt:
            turns.fit.stopped_by = StoppedBy.INTERRUPT
    return learner, turns.fit, Gaps(n_cells, n_rows, len(turns.scores), turns.change, turns.settled)


class _Turns:
    """Completions and weights in turn, for the features of a fitted learner; ``fit`` holds the latest weights."""

    def __init__(self, table: _Table, learner: Learner, tol: float, work: Work) -> None:
        self.table, self.tol, self.work = table, tol, work
        self.fit = learner.fit_
        self.factors = learner.find_l1_factors(self.fit.features)
        self.penalties = [(self.fit.l1, self.fit.sd)]
        self.scores: list[float] = []
        self.change, self.settled = float("inf"), False

    def run(self) -> None:
        """Until the score of a row no longer changes, and once more with many completions; Ctrl-C raises."""
        while not self.settled and len(self.scores) < MOST_ROUNDS and not self.work.is_over:
            completed, path = self._learn(MORE_SWEEPS, max(self.tol, ROUGH_TOL))
            if path.objective is None:
                return  # there was no time to prepare it
            score, noise = self.table.score(completed, path.objective.score_terms(self.fit.weights)[0])
            self.scores.append(score)
            self.change, self.settled = _judge_change(self.scores, noise)
            self.work.emit(GapsFilled(len(self.scores), score))
        self.table.use_more(self.table.limit(FINAL_COMPLETIONS))
        self._learn(4 * MORE_SWEEPS, self.tol)

    def _learn(self, sweeps: int, tol: float) -> tuple[Dataset, WeightPath]:
        """Draw completions, and learn weights from them."""
        states = self.table.completer.draw(MarkovNetwork(self.fit.features, self.fit.weights), sweeps, self.work)
        completed = self.table.complete(states)
        path = WeightPath(self.fit.features, completed, self.work)
        self.fit = path.solve(self.penalties, tol, self.fit.weights, factors=self.factors)[0]
        if self.fit.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        return completed, path


def _judge_change(scores: Sequence[float], noise: float) -> tuple[float, bool]:
    """By how much the last three scores differ from the three before, and whether that is no more than drawing anew would change them."""
    if len(scores) < LEAST_ROUNDS:
        return np.inf, False
    change = float(abs(np.mean(scores[-3:]) - np.mean(scores[-6:-3])))
    return change, change <= max(2 * noise, SETTLED * abs(scores[-1]))


def _fill_by_pairs(table: _Table, work: Work) -> MarkovNetwork:
    """Weights for the pairs that the completions so far suggest, learned and drawn from in turn."""
    states = table.completer.states.reshape(table.completer.n, len(table.open), -1)
    first = table.complete(states)
    features = FeatureSet.atomic(table.domain).union(_screen(first, work))
    fit = _weigh(features, first, None, work)
    for k in range(FIRST_ROUNDS):
        states = table.completer.draw(fit.network(), MORE_SWEEPS if k else FIRST_SWEEPS, work)
        if work.is_over:
            break
        completed, start = table.complete(states), fit.weights
        if k == 1:  # what the first completions have hidden shows now
            more = features.union(_screen(completed, work))
            start = np.zeros(len(more))
            start[np.isin(more.hashes, features.hashes)] = fit.weights
            features = more
        fit = _weigh(features, completed, start, work)
    return fit.network()


def _screen(table: Dataset, work: Work) -> FeatureSet:
    """The pairs to begin with; none where there is no time to look for them."""
    try:
        return screen_pairs(table, FIRST_PAIRS, work)
    except Stopped:
        return FeatureSet.from_lists([], table.domain)


def _weigh(features: FeatureSet, table: Dataset, start: Array | None, work: Work) -> WeightFit:
    fit = WeightPath(features, table, work.silent()).solve([FIRST_PENALTY], ROUGH_TOL, start)[0]
    if fit.stopped_by is StoppedBy.INTERRUPT:
        raise KeyboardInterrupt
    return fit
