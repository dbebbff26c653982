"""The search for penalties on held-out rows: those of pairs, of longer features, and the deviation of all weights' prior."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.weights.fit import WeightFit, WeightPath
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import Event, StoppedBy, Work

SETS = ("pairs", "surer", "all")
STRONGEST, WEAKEST = 40.0, 0.5  # l1 of pairs: where the search starts, and ends
FIRST_RATIO = 16.0  # that longer features come in with
WIDEST_RATIO = 64.0  # of the penalty of longer features to that of pairs
NARROWEST, WIDEST = 0.1, 100.0  # sd
BEYOND_ANY = 1e9  # in place of an infinite ratio
PAIRS_SHARE, LONGER_SHARE = 0.4, 0.5  # of the time that is left: for pairs alone, and for each set of longer features
SEARCH_TOL = 10.0  # rows' worth of slope at which a fit is good enough to be compared, over all rows
LOOSEST_TOL = 1e-3
MOST_LOST = 0.002  # of the score, for the sake of fewer features
WORTH = 1e-5  # gain, as a share of the score, below which a setting is no better


@dataclass(frozen=True)
class Penalties:
    """Which features are in (``pairs``; ``surer``: the paths of splits that gain much, too; ``all``), ``l1`` for pairs and ``ratio`` times
    that for longer features, ``sd`` for all."""

    features: str
    l1: float
    ratio: float
    sd: float

    def __str__(self) -> str:
        longer = "" if self.features == "pairs" else f", {self.l1 * self.ratio:.3g} for longer ones ({self.features})"
        return f"l1 {self.l1:g} for pairs{longer}, sd {self.sd:g}"


@dataclass(frozen=True)
class PenaltiesTried(Event):
    """Weights were learned with some penalties and scored on the held-out rows."""

    penalties: Penalties
    score: float
    n_nonzero: int

    def __str__(self) -> str:
        return f"{self.penalties}: held-out PLL {self.score:.6f}, {self.n_nonzero:,} weights not zero"


@dataclass
class Candidates:
    """Features to choose from: atomic ones, pairs and longer ones that are no chance; and ``others``, of which that is not known. How many
    there are of each kind, and what ended the search for more."""

    sure: FeatureSet
    others: FeatureSet
    counts: dict[str, int]
    stopped_by: StoppedBy | None

    def take(self, name: str) -> FeatureSet:
        """The features of one of the sets, in canonical order."""
        if name == "all":
            return self.sure.union(self.others)
        return self.sure.canonical() if name == "surer" else self.sure.subset(self.sure.n_variables <= 2).canonical()


def find_l1_factors(features: FeatureSet, ratio: float) -> Array:
    """What the L1 penalty of each feature is multiplied by: none for single states, 1 for pairs, ``ratio`` for longer features."""
    return np.asarray(np.array([0.0, 1.0, min(ratio, BEYOND_ANY)])[np.clip(features.n_variables - 1, 0, 2)])


Propose = Callable[[Dataset, Work], Candidates]


@dataclass
class _Tried:
    """Penalties with the mean score of held-out rows and that of each distinct one, and the weights of each fold, zero for features that
    are not in."""

    penalties: Penalties
    score: float
    rows: Array
    weights: list[Array]


class FoldSearch:
    """The candidates of one fold, and what is prepared to weigh them and to score the weights."""

    def __init__(self, list_candidates: Propose, train: Dataset, held_out: Dataset, work: Work) -> None:
        self.train, self.held_out, self.work = train, held_out, work
        found = list_candidates(train, work)
        self.counts, self.complete = found.counts, found.stopped_by is None
        both = found.sure.concatenate(found.others)
        order = both.first_of_each()
        self.features = both.subset(order)
        short = self.features.n_variables <= 2
        self.members = {"pairs": short, "surer": short | (order < len(found.sure)), "all": np.ones(len(order), dtype=bool)}
        self.weights: Array | None = None  # the best
        self._prepared: dict[str, tuple[WeightPath, PseudoLikelihood]] = {}

    def weigh(self, wanted: Penalties, tol: float, start: Array | None) -> tuple[WeightFit, Array, Array]:
        """The fit under some penalties, the weights of all candidates, and the score of each distinct held-out row."""
        if wanted.features not in self._prepared:
            features = self.features.subset(np.flatnonzero(self.members[wanted.features]))
            judge = PseudoLikelihood(features, self.held_out, self.work.threads, self.work.memory)
            self._prepared = {wanted.features: (WeightPath(features, self.train, self.work), judge)}  # the last one is let go
        path, judge = self._prepared[wanted.features]
        path.work = self.work
        members = self.members[wanted.features]
        factors = find_l1_factors(path.features, wanted.ratio)
        fit = path.solve([(wanted.l1, wanted.sd)], tol, None if start is None else start[members], factors=factors)[0]
        weights = np.zeros(len(self.features))
        weights[members] = fit.weights
        return fit, weights, judge.score_terms(fit.weights)[0]

    def make_network(self) -> MarkovNetwork:
        """The network of the best weights."""
        assert self.weights is not None
        kept = (self.weights != 0) | (self.features.lengths == 1)
        return MarkovNetwork(self.features.subset(kept), self.weights[kept])


class PenaltySearch:
    """The search for penalties: pairs alone first, from strong penalties to where the score falls; then with longer features, whose penalty
    is strong at first; then steps in one direction as long as they help, and in the next, until none does.

    ``wanted`` has a number for each of ``l1``, ``sd`` and ``ratio`` that is given, and ``auto`` for those that are free.
    """

    def __init__(
        self, list_candidates: Propose, wanted: dict[str, float | str], folds: Sequence[tuple[Dataset, Dataset]], work: Work
    ) -> None:
        self.list_candidates, self.wanted, self.given, self.work = list_candidates, wanted, folds, work
        self.folds: list[FoldSearch] = []
        self.counts: dict[str, int] = {}
        self.row_weights, self.tol = np.zeros(0), LOOSEST_TOL
        self.scores: dict[Penalties, float] = {}
        self.best: _Tried | None = None
        self.complete = True

    def run(self) -> None:
        for k, (train, held_out) in enumerate(self.given):
            self.folds.append(FoldSearch(self.list_candidates, train, held_out, self.work.share(1 / (len(self.given) - k))))
        for fold in self.folds:
            fold.work = self.work
        self.row_weights = np.concatenate([fold.held_out.distinct.weights for fold in self.folds])
        self.counts, self.complete = self.folds[0].counts, all(fold.complete for fold in self.folds)
        rows = sum(fold.train.total_weight for fold in self.folds) / len(self.folds)
        self.tol = min(LOOSEST_TOL, SEARCH_TOL / rows)
        free = {name: value == "auto" for name, value in self.wanted.items()}
        l1, ratio, sd = (
            start if free[name] else float(self.wanted[name]) for name, start in (("l1", STRONGEST), ("ratio", FIRST_RATIO), ("sd", 1.0))
        )
        whole = self.work
        self._use(whole.share(PAIRS_SHARE))
        self._try(Penalties("pairs", l1, ratio, sd))
        shorter = [_scale(l1=0.5, patience=2)] * free["l1"] + [_scale(sd=3.0), _scale(sd=1 / 3)] * free["sd"]
        self._go(shorter)
        for name in SETS[1:]:
            more = any(fold.members[name].sum() > fold.members["pairs"].sum() for fold in self.folds)
            self._use(whole.share(LONGER_SHARE))
            if more and (free["ratio"] or math.isfinite(ratio)):
                self._add_longer(name, free)
        self._use(whole)
        assert self.best is not None
        moves = list(_list_moves(free, self.best.penalties.features != "pairs"))
        while self._go(moves):
            pass
        if free["l1"]:
            self._simplify()

    def _add_longer(self, name: str, free: dict[str, bool]) -> None:
        """Bring in longer features, from a strong penalty to where the score falls; they stay if they help."""
        assert self.best is not None
        at = self.best
        began = FIRST_RATIO if at.penalties.features == "pairs" else min(4 * at.penalties.ratio, WIDEST_RATIO)
        wanted: Penalties | None = replace(at.penalties, features=name, ratio=began if free["ratio"] else at.penalties.ratio)
        last, falls = at, 0
        while wanted is not None and falls < 2 and not self._is_over():
            tried = self._try(wanted, last.weights)
            falls = falls + 1 if tried.score < last.score else 0
            last = tried
            wanted = _scale(ratio=0.5).step(wanted, 0) if free["ratio"] else None

    def _go(self, moves: list[_Move]) -> bool:
        """Step in each direction as long as that helps, and say whether any step did."""
        helped = False
        for move in moves:
            misses = 0
            while misses < move.patience:
                assert self.best is not None
                wanted = move.step(self.best.penalties, misses)
                if wanted is None or wanted in self.scores:
                    break
                if self._is_over():
                    return False
                self._try(wanted)
                took = self.best.penalties == wanted
                misses = 0 if took else misses + 1
                helped = helped or took
        return helped

    def _use(self, work: Work) -> None:
        """Work within these limits from now on."""
        self.work = work
        for fold in self.folds:
            fold.work = work

    def _is_over(self) -> bool:
        self.complete = self.complete and not self.work.is_over
        return self.work.is_over

    def _try(self, wanted: Penalties, start: list[Array] | None = None) -> _Tried:
        """Learn weights under some penalties, and keep them if they predict better than any before."""
        if start is None and self.best is not None:
            start = self.best.weights
        rows, found, n_nonzero = list[Array](), list[Array](), 0
        for k, fold in enumerate(self.folds):
            fit, weights, scores = fold.weigh(wanted, self.tol, None if start is None else start[k])
            if fit.stopped_by is StoppedBy.INTERRUPT:
                raise KeyboardInterrupt
            self.complete = self.complete and fit.stopped_by is not StoppedBy.TIME
            rows.append(scores)
            found.append(weights)
            n_nonzero += fit.n_nonzero
        scores = np.concatenate(rows)
        tried = _Tried(wanted, float(np.average(scores, weights=self.row_weights)), scores, found)
        self.scores[wanted] = tried.score
        self.work.emit(PenaltiesTried(wanted, tried.score, n_nonzero // len(self.folds)))
        if self.best is None or tried.score > self.best.score + WORTH * abs(self.best.score):
            self._take(tried)
        return tried

    def _take(self, tried: _Tried) -> None:
        self.best = tried
        for fold, weights in zip(self.folds, tried.weights, strict=True):
            fold.weights = weights

    def _simplify(self) -> None:
        """Make the penalty stronger as long as the score is no worse than chance may make it: by one standard error of the difference."""
        best = self.best
        assert best is not None
        now = best
        while not self._is_over():
            wanted = _scale(l1=math.sqrt(2)).step(now.penalties, 0)
            if wanted is None:
                return
            tried = self._try(wanted, now.weights)
            lost = best.rows - tried.rows
            mean = float(np.average(lost, weights=self.row_weights))
            spread = float(np.average((lost - mean) ** 2, weights=self.row_weights))
            if mean > math.sqrt(spread / max(1.0, float(self.row_weights.sum()) - 1)) or mean > MOST_LOST * abs(best.score):
                return
            now = tried
            self._take(now)


@dataclass(frozen=True)
class _Move:
    """A direction in which penalties may go: ``step`` gives those after so many steps that did not help, None where the way ends;
    ``patience`` says how many of these there may be."""

    step: Callable[[Penalties, int], Penalties | None]
    patience: int = 1


def _scale(l1: float = 1.0, ratio: float = 1.0, sd: float = 1.0, patience: int = 1) -> _Move:
    """A direction in which penalties are multiplied."""

    def step(at: Penalties, misses: int) -> Penalties | None:
        n = misses + 1
        there = Penalties(at.features, _round(at.l1 * l1**n), _round(at.ratio * ratio**n), _round(at.sd * sd**n))
        inside = (l1 == 1 or WEAKEST <= there.l1 <= 4 * STRONGEST) and NARROWEST <= there.sd <= WIDEST
        return there if inside and (ratio == 1 or 1 / WIDEST_RATIO <= there.ratio <= WIDEST_RATIO) else None

    return _Move(step, patience)


def _list_moves(free: dict[str, bool], longer: bool) -> Iterator[_Move]:
    """The directions in which free penalties may go."""
    if free["ratio"] and longer:
        if free["l1"]:
            yield _scale(l1=0.5, ratio=2.0)
            yield _scale(l1=2.0, ratio=0.5)
        yield _scale(ratio=2.0)
        yield _scale(ratio=0.5)
    if free["sd"]:
        yield _scale(sd=3.0)
        yield _scale(sd=1 / 3)
    if free["l1"]:
        yield _scale(l1=math.sqrt(2))
        yield _scale(l1=math.sqrt(0.5))


def _round(value: float) -> float:
    """A penalty with few digits, so that ways that lead to the same place end at the same number."""
    return float(f"{value:.3g}")
