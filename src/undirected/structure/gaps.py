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
from undirected.work import Event, StoppedBy, Work

COMPLETIONS = 5  # of each row with gaps, in each round
FINAL_COMPLETIONS = 20
LEAST_ROUNDS, MOST_ROUNDS = 6, 40
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
        rounds = f"{self.rounds} rounds of completions, {how}: the last three changed the score of a row by {self.change:.4f}"
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
        self.completer = Completer(self.open.codes, COMPLETIONS, self.domain, seed, guide=rows)

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
    fit: WeightFit = learner.fit_
    if fit.stopped_by is StoppedBy.INTERRUPT:
        return learner, fit, Gaps(n_cells, n_rows, 0, np.inf, False)
    factors = learner.find_l1_factors(fit.features)
    penalties = [(fit.l1, fit.sd)]
    scores: list[float] = []
    settled, change = False, np.inf
    while not settled and len(scores) < MOST_ROUNDS and not work.is_over:
        states = table.completer.draw(MarkovNetwork(fit.features, fit.weights), MORE_SWEEPS, work)
        completed = table.complete(states)
        path = WeightPath(fit.features, completed, work)
        fit = path.solve(penalties, max(tol, ROUGH_TOL), fit.weights, factors=factors)[0]
        if fit.stopped_by is StoppedBy.INTERRUPT:
            break
        assert path.objective is not None
        score, noise = table.score(completed, path.objective.score_terms(fit.weights)[0])
        scores.append(score)
        change, settled = _judge_change(scores, noise)
        work.emit(GapsFilled(len(scores), scores[-1]))
    if fit.stopped_by is not StoppedBy.INTERRUPT:
        table.use_more(FINAL_COMPLETIONS)
        states = table.completer.draw(MarkovNetwork(fit.features, fit.weights), 4 * MORE_SWEEPS, work)
        fit = WeightPath(fit.features, table.complete(states), work).solve(penalties, tol, fit.weights, factors=factors)[0]
    return learner, fit, Gaps(n_cells, n_rows, len(scores), float(change), settled)


def _judge_change(scores: Sequence[float], noise: float) -> tuple[float, bool]:
    """By how much the last three scores differ from the three before, and whether that is no more than drawing anew would change them."""
    if len(scores) < LEAST_ROUNDS:
        return np.inf, False
    change = float(abs(np.mean(scores[-3:]) - np.mean(scores[-6:-3])))
    return change, change <= max(2 * noise, SETTLED * abs(scores[-1]))


def _fill_by_pairs(table: _Table, work: Work) -> MarkovNetwork:
    """Weights for the pairs that the completions so far suggest, learned and drawn from in turn."""
    states = table.completer.states.reshape(COMPLETIONS, len(table.open), -1)
    whole = work.extend()
    first = table.complete(states)
    features = FeatureSet.atomic(table.domain).union(screen_pairs(first, FIRST_PAIRS, whole))
    fit = WeightPath(features, first, whole.silent()).solve([FIRST_PENALTY], ROUGH_TOL)[0]
    for k in range(FIRST_ROUNDS):
        states = table.completer.draw(fit.network(), MORE_SWEEPS if k else FIRST_SWEEPS, work)
        if work.is_over:
            break
        completed = table.complete(states)
        if k == 1:  # what the first completions have hidden shows now
            more = features.union(screen_pairs(completed, FIRST_PAIRS, whole))
            start = np.zeros(len(more))
            start[np.isin(more.hashes, features.hashes)] = fit.weights
            features, fit.weights = more, start
        fit = WeightPath(features, completed, whole.silent()).solve([FIRST_PENALTY], ROUGH_TOL, fit.weights)[0]
        if fit.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
    return fit.network()
