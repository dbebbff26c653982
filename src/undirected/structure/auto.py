"""Auto: pairs and longer conjunctions in one fit, with penalties chosen on rows that are held out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from undirected.data.dataset import Dataset
from undirected.data.readers import read_data
from undirected.data.splits import count_cases, hold_out_cases
from undirected.errors import check_number
from undirected.features.feature_set import FeatureSet
from undirected.inference.gaps import fill_by_shares
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.structure.candidates import find_exclusive_groups, list_group_conjunctions, screen_pairs
from undirected.structure.dtsl import convert
from undirected.structure.learner import Grid, Learner
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.trees import grow_trees
from undirected.structure.trials import Tuner
from undirected.weights.fit import MAX_ITERATIONS, WeightFit, WeightPath
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import MEMORY, Event, Stopped, StoppedBy, Work

DEFAULT_SECONDS = 60.0
SEARCH_SHARE = 0.65  # of the time, for candidates and penalties; the rest is for learning from all rows
STRUCTURE_SHARE = 0.35  # of that, after which no more trees are grown
FEW_ROWS = 20  # of a table from which none are held out
MANY_ROWS, FOLDS = 3000, 5  # below so many rows each of the folds is held out in turn, beyond a share once
SETS = ("pairs", "surer", "all")
STRONGEST, WEAKEST = 40.0, 0.5  # l1 of pairs: where the search starts, and ends
FIRST_RATIO = 16.0  # that longer features come in with
WIDEST_RATIO = 64.0  # of the penalty of longer features to that of pairs
NARROWEST, WIDEST = 0.1, 100.0  # sd
BEYOND_ANY = 1e9  # in place of an infinite ratio
SEARCH_TOL = 10.0  # rows' worth of slope at which a fit is good enough to be compared, over all rows
LOOSEST_TOL = 1e-3
SURE_GAIN = -np.log(1e-4)  # of log-likelihood, for each parameter that a split of a tree adds, beyond which it is no chance
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


CAUTIOUS = Penalties("pairs", 5.0, math.inf, 1.0)  # where nothing can be held out


@dataclass(frozen=True)
class PenaltiesTried(Event):
    """Weights were learned with some penalties and scored on the held-out rows."""

    penalties: Penalties
    score: float
    n_nonzero: int

    def __str__(self) -> str:
        return f"{self.penalties}: held-out PLL {self.score:.6f}, {self.n_nonzero:,} weights not zero"


@dataclass
class Fold:
    """Rows to learn from and rows held out, and the network of the former under the chosen penalties."""

    train: Dataset = field(repr=False)
    held_out: Dataset = field(repr=False)
    network: MarkovNetwork


@dataclass
class Choice:
    """What was chosen on held-out rows: penalties; the mean ``score`` of a held-out row, and those of all that was tried; how many
    candidates of each kind there were. Not ``complete`` if time or Ctrl-C ended the search."""

    penalties: Penalties
    score: float
    scores: dict[Penalties, float]
    candidates: dict[str, int]
    folds: list[Fold]
    complete: bool = True
    interrupted: bool = False

    def find_best(self, longer: bool) -> float | None:
        """The best score with, or without, longer features."""
        return max((score for tried, score in self.scores.items() if (tried.features != "pairs") == longer), default=None)


class Auto(Learner):
    """Weigh pairs and longer conjunctions together, with penalties that hold-out rows choose: the default.

    Candidates are the pairs that are not independent, the paths of probability trees, and for groups of states that exclude each other
    the conjunctions that none holds and that one holds alone. They get their weights in one fit with two L1 penalties, one for pairs and
    one for longer features. Penalties, and whether longer features are in at all, are chosen on held-out rows; then weights are learned
    from all rows. It takes a minute at most, unless ``time_budget`` says otherwise.

    Parameters
    ----------
    l1, sd, ratio : float or "auto"
        The L1 penalty of pairs, the deviation of the Gaussian prior of all weights, and how many times the penalty of pairs that of longer
        features is (infinite: there are none). Weights of single states have no L1 penalty. Where all three are numbers, nothing is chosen.
    n_pairs, n_longer : int
        The most candidates of each kind.
    min_rows : float
        Weight of rows that each side of a split of a tree needs.
    validation : float
        The share of the rows that is held out while penalties are chosen, where there are 3,000 or more; with fewer, each fifth is held out
        in turn.
    tol, threads, memory, progress
        As in `undirected.fit_weights`.
    time_budget : float, optional
        Seconds for all; a minute where it is not given.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        The variables and states to code tables with, so that rows with states that the training rows lack can be scored.
    random_state : int
        For the rows that are held out.

    Attributes
    ----------
    network_ : MarkovNetwork
    fit_ : WeightFit
    choice_ : Choice or None
        What was chosen, and the scores of all that was tried; None where nothing was.

    Examples
    --------
    >>> from undirected import Auto, datasets
    >>> learner = Auto().fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -18)
    True
    """

    paper_grid: ClassVar[Grid] = {"ratio": ["auto"]}
    quick_grid: ClassVar[Grid] = {"ratio": ["auto"]}

    def __init__(
        self,
        l1: Any = "auto",
        sd: Any = "auto",
        ratio: Any = "auto",
        n_pairs: int = 150_000,
        n_longer: int = 60_000,
        min_rows: float = 10,
        validation: float = 0.1,
        tol: float = 1e-5,
        prune: bool = True,
        bins: int = 4,
        missing: str = "learn",
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        progress: Any = None,
        domain: Any = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)
        self.ratio = ratio
        self.n_pairs = n_pairs
        self.n_longer = n_longer
        self.min_rows = min_rows
        self.validation = validation
        self.random_state = random_state

    choice_: Choice | None = None

    def start_work(self) -> Work:
        budget = DEFAULT_SECONDS if self.time_budget is None else self.time_budget
        return Work.start(self.threads, self.memory, budget, progress=self.progress)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        valid: Any = None,
        start: WeightFit | None = None,
        work: Work | None = None,
    ) -> Self:
        """Learn a network, as `Learner.fit` says.

        With ``valid``, a table, penalties are chosen on its rows, and the weights learned from those of ``X`` alone.
        """
        self._check()
        work = self.start_work() if work is None else work
        if "auto" not in (self.l1, self.sd, self.ratio):
            self.choice_ = None
            super().fit(X, y, sample_weight, start=start, work=work)
            return self
        data = self._take_training_table(X, y, sample_weight)
        if data.has_missing:
            return self._learn_with_gaps(data, work, valid=None if valid is None else self._test_rows(valid, data))
        if valid is None and count_cases(data).sum() < FEW_ROWS:
            features = FeatureSet.atomic(data.domain).union(self._list_pairs(data, work.extend()))
            self._settle(data, Structure(features), CAUTIOUS, work)
            self.choice_ = None
            return self
        folds = self._cut_folds(data) if valid is None else [(data, self._test_rows(valid, data))]
        choice = self.choose(folds, work.share(SEARCH_SHARE))
        if len(folds) == 1 or choice.interrupted or work.is_over:
            network = choice.folds[0].network
            structure = Structure(network.features, weights=network.weights)
        else:
            structure = Structure(self.list_candidates(data, work).take(choice.penalties.features))
        self._settle(data, structure, choice.penalties, work, choice.interrupted)
        self.choice_ = choice
        return self

    def _cut_folds(self, data: Dataset) -> list[tuple[Dataset, Dataset]]:
        """Rows to learn from and rows held out: a share once where there are many, otherwise each of some parts in turn."""
        if count_cases(data).sum() >= MANY_ROWS:
            return [hold_out_cases(data, self.validation, self.random_state)]
        parts, rest = [], data
        for k in range(FOLDS - 1):
            rest, part = hold_out_cases(rest, 1 / (FOLDS - k), self.random_state + k)
            parts.append(part)
        parts.append(rest)
        return [(Dataset.merge(part for part in parts if part is not held_out).distinct, held_out) for held_out in parts]

    def _test_rows(self, valid: Any, data: Dataset) -> Dataset:
        return fill_by_shares(read_data(valid, domain=data.domain, missing=self.missing))

    def _settle(self, data: Dataset, structure: Structure, penalties: Penalties, work: Work, interrupted: bool = False) -> None:
        """Learn the weights of chosen features, under chosen penalties, from all rows; after Ctrl-C take them as they are."""
        path = WeightPath(structure.features, data, work.silent() if interrupted else work)
        factors = find_l1_factors(structure.features, penalties.ratio)
        most = 0 if interrupted else MAX_ITERATIONS
        setting = (penalties.l1, penalties.sd)
        fit = path.solve([setting], self.tol, structure.weights, factors=factors, max_iterations=most)[0]
        if interrupted:
            fit.stopped_by = StoppedBy.INTERRUPT
        self._warn_if_early(fit, None)
        if self.prune:
            kept = np.flatnonzero((fit.weights != 0) | (fit.features.lengths == 1))
            fit.features, fit.weights = fit.features.subset(kept), fit.weights[kept]
        self._adopt(data.domain, fit, {})

    # -- candidates
    def propose(self, data: Dataset, work: Work) -> Structure:
        found = self.list_candidates(data, work)
        return Structure(found.sure.union(found.others), stopped_by=found.stopped_by)

    def _list_pairs(self, data: Dataset, work: Work) -> FeatureSet:
        return screen_pairs(data, self.n_pairs, work)

    def list_candidates(self, data: Dataset, work: Work) -> _Candidates:
        """Candidates of all kinds, as far as the time goes."""
        atoms = FeatureSet.atomic(data.domain)
        pairs = groups = sure = others = FeatureSet.from_lists([], data.domain)
        stopped_by = None
        try:
            pairs = self._list_pairs(data, work)
            if self.ratio == "auto" or not math.isinf(self.ratio):
                groups = list_group_conjunctions(data.domain, find_exclusive_groups(data, work))
                sure, others = list_tree_conjunctions(data, self.n_longer, self.min_rows, work.share(STRUCTURE_SHARE))
        except Stopped as stop:
            stopped_by = stop.why
        sure = groups.union(sure)
        others = others.difference(sure)
        counts = {"pairs": len(pairs), "groups": len(groups), "surer": len(sure) - len(groups), "others": len(others)}
        return _Candidates(atoms.union(pairs).union(sure), others, counts, stopped_by)

    # -- penalties
    def choose(self, folds: Sequence[tuple[Dataset, Dataset]], work: Work) -> Choice:
        """Choose penalties on held-out rows, one step after another from strong ones to where the score falls; Ctrl-C, or the end of the
        time, leaves the best so far."""
        search = _Search(self, folds, work)
        complete, interrupted = True, False
        try:
            search.run()
        except KeyboardInterrupt:
            complete, interrupted = False, True
        except Stopped:
            complete = False
        if search.best is None:  # no time for a single fit
            made = [Fold(train, valid, self._weigh_atoms(train, work)) for train, valid in folds]
            score = made[0].network.pll(made[0].held_out, work.threads)
            return Choice(CAUTIOUS, score, {}, search.counts, made, False, interrupted)
        made = [Fold(fold.train, fold.held_out, fold.make_network()) for fold in search.folds]
        best = search.best
        used = any((fold.network.features.n_variables > 2).any() for fold in made)
        penalties = best.penalties if used else replace(best.penalties, features="pairs")
        return Choice(penalties, best.score, search.scores, search.counts, made, complete and search.complete, interrupted)

    def _weigh_atoms(self, train: Dataset, work: Work) -> MarkovNetwork:
        path = WeightPath(FeatureSet.atomic(train.domain), train, work.extend().silent())
        return path.solve([(0.0, 1.0)], LOOSEST_TOL)[0].network()

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """What is chosen on the validation rows, for each setting of the grid: one proposal each, with penalties of its own."""
        work = work if work.limited else work.limit(DEFAULT_SECONDS)
        settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        for k, given in enumerate(settings):
            one = clone(self).set_params(**given)
            one._check()
            if "auto" in (one.l1, one.sd, one.ratio):
                choice = one.choose([(data, valid)], work.share(SEARCH_SHARE / (len(settings) - k)))
                if choice.interrupted:
                    raise KeyboardInterrupt
                network, chosen = choice.folds[0].network, choice.penalties
                structure = Structure(network.features, {"choice_": choice}, weights=network.weights)
            else:
                structure, chosen = one.propose(data, work), Penalties("all", one.l1, one.ratio, one.sd)
                structure.learned = {"choice_": None}
            yield Proposal({**given, "ratio": chosen.ratio}, structure, penalties=[(chosen.l1, chosen.sd)])

    def recall(self, data: Dataset, work: Work, tuner: Tuner) -> dict[str, Any]:
        return {"choice_": None}

    def find_l1_factors(self, features: FeatureSet) -> Array | None:
        if self.ratio != "auto":
            return find_l1_factors(features, self.ratio)
        choice = getattr(self, "choice_", None)
        return find_l1_factors(features, CAUTIOUS.ratio if choice is None else choice.penalties.ratio)

    def _check(self) -> None:
        for name in ("l1", "sd", "ratio"):
            if getattr(self, name) != "auto":
                check_number(name, getattr(self, name), 0, above=name != "l1")
        for name in ("n_pairs", "n_longer"):
            check_number(name, getattr(self, name), 0, whole=True)
        check_number("min_rows", self.min_rows, 0, above=True)
        check_number("validation", self.validation, 0, 0.9, above=True)


def list_tree_conjunctions(data: Dataset, most: int, min_rows: float, work: Work) -> tuple[FeatureSet, FeatureSet]:
    """The paths of probability trees, one for each variable, to all nodes, of three literals and more: those of splits that gain much, and
    the others. Of the latter, those that gain least are left out until there are about ``most`` in all."""
    trees = grow_trees(data, min_rows, 1.0, work)
    costs = trees.domain.n_states[trees.targets][trees.tree].astype(float)
    least = trees.find_least_gain(costs, float(most))
    sure, all_of_them = (convert(trees.cut_at(bar), "prune") for bar in (max(least, SURE_GAIN), least))
    sure, all_of_them = (found.subset(found.n_variables > 2) for found in (sure, all_of_them))
    return sure, all_of_them.difference(sure)


def find_l1_factors(features: FeatureSet, ratio: float) -> Array:
    """What the L1 penalty of each feature is multiplied by: none for single states, 1 for pairs, ``ratio`` for longer features."""
    return np.asarray(np.array([0.0, 1.0, min(ratio, BEYOND_ANY)])[np.clip(features.n_variables - 1, 0, 2)])


@dataclass
class _Candidates:
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


@dataclass
class _Tried:
    """Penalties with the mean score of held-out rows and that of each distinct one, and the weights of each fold, zero for features that
    are not in."""

    penalties: Penalties
    score: float
    rows: Array
    weights: list[Array]


class _FoldSearch:
    """The candidates of one fold, and what is prepared to weigh them and to score the weights."""

    def __init__(self, learner: Auto, train: Dataset, held_out: Dataset, work: Work) -> None:
        self.train, self.held_out, self.work = train, held_out, work
        found = learner.list_candidates(train, work)
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


class _Search:
    """The search for penalties: pairs alone first, from strong penalties to where the score falls; then with longer features, whose penalty
    is strong at first; then steps in one direction as long as they help, and in the next, until none does."""

    def __init__(self, learner: Auto, folds: Sequence[tuple[Dataset, Dataset]], work: Work) -> None:
        self.learner, self.given, self.work = learner, folds, work
        self.folds: list[_FoldSearch] = []
        self.counts: dict[str, int] = {}
        self.row_weights = np.zeros(0)
        self.scores: dict[Penalties, float] = {}
        self.best: _Tried | None = None
        self.complete = True

    def run(self) -> None:
        for k, (train, held_out) in enumerate(self.given):
            self.folds.append(_FoldSearch(self.learner, train, held_out, self.work.share(1 / (len(self.given) - k))))
        for fold in self.folds:
            fold.work = self.work
        self.row_weights = np.concatenate([fold.held_out.distinct.weights for fold in self.folds])
        self.counts, self.complete = self.folds[0].counts, all(fold.complete for fold in self.folds)
        rows = sum(fold.train.total_weight for fold in self.folds) / len(self.folds)
        self.tol = max(self.learner.tol, min(LOOSEST_TOL, SEARCH_TOL / rows))
        free = {name: getattr(self.learner, name) == "auto" for name in ("l1", "sd", "ratio")}
        l1, ratio, sd = (
            start if free[name] else getattr(self.learner, name) for name, start in (("l1", STRONGEST), ("ratio", FIRST_RATIO), ("sd", 1.0))
        )
        self._try(Penalties("pairs", l1, ratio, sd))
        shorter = [_scale(l1=0.5, patience=2)] * free["l1"] + [_scale(sd=3.0), _scale(sd=1 / 3)] * free["sd"]
        self._go(shorter)
        for name in SETS[1:]:
            more = any(fold.members[name].sum() > fold.members["pairs"].sum() for fold in self.folds)
            if more and (free["ratio"] or math.isfinite(ratio)):
                self._add_longer(name, free)
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
