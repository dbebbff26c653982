"""Auto: pairs and longer conjunctions in one fit, with penalties chosen on rows that are held out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
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
from undirected.structure.penalty_search import LOOSEST_TOL, Candidates, Penalties, PenaltySearch, find_l1_factors
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.trees import grow_trees
from undirected.structure.trials import Tuner
from undirected.weights.fit import MAX_ITERATIONS, WeightFit, WeightPath
from undirected.work import MEMORY, Stopped, StoppedBy, Work

DEFAULT_SECONDS = 60.0
SEARCH_SHARE = 0.65  # of the time, for candidates and penalties; the rest is for learning from all rows
STRUCTURE_SHARE = 0.35  # of that, after which no more trees are grown
FEW_ROWS = 20  # of a table from which none are held out
MANY_ROWS, FOLDS = 3000, 5  # below so many rows each of the folds is held out in turn, beyond a share once
SURE_GAIN = -np.log(1e-4)  # of log-likelihood, for each parameter that a split of a tree adds, beyond which it is no chance
CAUTIOUS = Penalties("pairs", 5.0, math.inf, 1.0)  # where nothing can be held out


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
    """Weigh pairs and longer conjunctions together, with penalties that held-out rows choose: the default.

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
        """The rows that penalties are chosen on. Gaps in them are filled by shares of states alone, a shortcut that makes pairs look weaker
        than they are."""
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

    def list_candidates(self, data: Dataset, work: Work) -> Candidates:
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
        return Candidates(atoms.union(pairs).union(sure), others, counts, stopped_by)

    # -- penalties
    def choose(self, folds: Sequence[tuple[Dataset, Dataset]], work: Work) -> Choice:
        """Choose penalties on held-out rows, one step after another from strong ones to where the score falls; Ctrl-C, or the end of the
        time, leaves the best so far."""
        wanted = {"l1": self.l1, "sd": self.sd, "ratio": self.ratio}
        search = PenaltySearch(self.list_candidates, wanted, folds, work)
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
        return find_l1_factors(features, CAUTIOUS.ratio if self.choice_ is None else self.choice_.penalties.ratio)

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
