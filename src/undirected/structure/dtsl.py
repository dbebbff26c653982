"""DTSL: decision trees turned into features."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from undirected.data.dataset import Dataset
from undirected.data.literals import holds_for_reference
from undirected.data.splits import holdout
from undirected.errors import GenerationStopped, ParameterError, check_number
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.structure.dependency_network import DependencyNetwork
from undirected.structure.learner import STRUCTURE_SHARE, Grid, Learner
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.trees import Trees, grow_trees
from undirected.structure.trials import Tuner
from undirected.work import MEMORY, StoppedBy, Work

CONVERSIONS = ("default", "prune", "prune-10", "prune-5", "nonzero")
TIE = 1e-3  # values of kappa are equally good if their log-likelihoods differ by less than this share
KAPPAS = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
LEAVES = ("default", "nonzero")  # conversions that make features of leaves only
DEPTHS = {"prune-10": 10, "prune-5": 5}  # most literals of a feature
MOST_CONTEXTS = 5e9  # rows in which contexts of features hold, added up: what can be weighed within about half an hour


class DTSL(Learner):
    """Grow a probability tree for each variable on all others, turn the paths into features, weigh them.

    A split tests one state of one variable and is made while the best gain in log-likelihood exceeds ``-log(kappa)`` for each
    parameter it adds. Trees of all variables take about half a second on the plants data; nearly all the time goes into the
    weights.

    Parameters
    ----------
    conversion : {"prune", "default", "prune-10", "prune-5", "nonzero"}
        ``default``: the path to each leaf with each state of the target. ``prune``: the paths to inner nodes too.
        ``prune-10``, ``prune-5``: of those, features of at most 10 or 5 literals. ``nonzero``: ``default`` without the literals
        that the reference states satisfy.
    kappa : float or "auto"
        The smaller, the smaller the trees; at most 1. ``auto`` takes, of the paper's five, the one whose trees give the highest
        log-likelihood to validation data: in `tune` the data given there, in `fit` a tenth of the rows, drawn with
        ``random_state``; the trees are then grown on all rows.
    min_rows : float
        Weight of rows that each side of a split needs.
    max_features : int, "auto" or None
        Where trees would give more features, equal ones counted each, the splits that gain least are left out, as a smaller ``kappa`` would
        do, and a warning says so. ``auto`` allows as many as can be weighed in about half an hour: the more rows they hold in, the fewer.
        None: no limit.
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        The variables and states to code tables with, so that rows with states that the training rows lack can be scored.
    random_state : int, RandomState or None
        For the rows set aside by ``kappa="auto"``.

    Attributes
    ----------
    network_ : MarkovNetwork
    fit_ : WeightFit
    trees_ : Trees
        ``trees_.text("variable")`` draws one.
    dependency_network_ : DependencyNetwork
        The trees as a model of their own.
    kappa_ : float
        Below ``kappa`` where splits were left out for the sake of ``max_features``; never below 1e-300.

    Notes
    -----
    Lowd and Davis, "Improving Markov Network Structure Learning Using Decision Trees", JMLR 15, 2014, Section 4.

    Deviations: (1) with more than two states a false branch excludes a state (``X!=v``), and ``nonzero`` drops the literals that
    the variable's first state satisfies; on two states this is the paper's rule. (2) Weights are learned to the optimum, not to
    Libra's early stop; ``time_budget`` stops early. (3) ``fit`` on its own uses ``kappa=0.01``; ``kappa="auto"`` or `tune`
    restores the choice on validation data. (4) Where several ``kappa`` give trees whose validation log-likelihoods differ by less
    than a thousandth, `tune` tries them all and lets the pseudo-likelihood decide, chance having decided in the paper; a grid
    with a number restores one. (5) Where the features would be too many to be weighed, splits that gain least are left out;
    ``max_features=None`` restores the paper.

    Examples
    --------
    >>> from undirected import DTSL, datasets
    >>> learner = DTSL(conversion="prune-5", sd=0.5).fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -20)
    True
    """

    paper_grid: ClassVar[Grid] = {"kappa": ["auto"], "conversion": list(CONVERSIONS), "sd": [0.1, 1.0, 10.0, 100.0]}
    quick_grid: ClassVar[Grid] = {"kappa": ["best"], "conversion": ["prune", "nonzero"], "sd": [0.1, 0.5]}

    def __init__(
        self,
        conversion: str = "prune",
        kappa: float | str = 0.01,
        min_rows: float = 10,
        max_features: int | str | None = "auto",
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
        random_state: Any = 0,
    ) -> None:
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)
        self.conversion = conversion
        self.kappa = kappa
        self.min_rows = min_rows
        self.max_features = max_features
        self.random_state = random_state

    def propose(self, data: Dataset, work: Work) -> Structure:
        self._check()
        growing = work.share(STRUCTURE_SHARE)
        kappa = self._choose_kappa(data, growing) if self.kappa == "auto" else float(self.kappa)
        trees = grow_trees(data, self.min_rows, kappa, growing)
        return self._make_structure(trees, kappa, self.conversion, data)

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """One growing of trees serves every ``kappa``, and one ``kappa`` every conversion. In a grid ``auto`` stands for the value with
        the best trees and those as good, ``best`` for the first of these alone."""
        given, conversions = grid.get("kappa", [self.kappa]), grid.get("conversion", [self.conversion])
        words = {"auto": slice(None), "best": slice(1)}
        others = {name: values for name, values in grid.items() if name in ("min_rows", "max_features")}
        makers = [clone(self).set_params(**dict(zip(others, values, strict=True))) for values in itertools.product(*others.values())]
        for maker, kappa, conversion in itertools.product(makers, given, conversions):
            clone(maker).set_params(kappa="auto" if kappa in words else kappa, conversion=conversion)._check()
        growing = work.share(STRUCTURE_SHARE)
        grown = {rows: grow_trees(data, rows, 1.0, growing) for rows in dict.fromkeys(maker.min_rows for maker in makers)}
        for maker in makers:
            whole = grown[maker.min_rows]
            kappas = [k for value in given for k in (_rank_kappas(whole, valid)[words[value]] if value in words else [float(value)])]
            for chosen, conversion in itertools.product(dict.fromkeys(kappas), conversions):
                structure = maker._make_structure(whole.cut(chosen), chosen, conversion, data)
                settings = {"kappa": chosen, "conversion": conversion} | {name: getattr(maker, name) for name in others}
                yield Proposal(settings, structure, complete=whole.finished)

    def _choose_kappa(self, data: Dataset, work: Work) -> float:
        """The value whose trees do best on a tenth of the rows."""
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        train, valid = holdout(data, 0.1, seed)
        return grow_trees(train, self.min_rows, 1.0, work).choose_kappa(KAPPAS, valid)[0]

    def _make_structure(self, trees: Trees, kappa: float, conversion: str, data: Dataset) -> Structure:
        """The features of trees, as many as can be weighed, and the trees themselves."""
        least = self._find_least_gain(trees, conversion, data)
        if least > -np.log(kappa):
            whole, trees, kappa = len(trees.test), trees.cut_at(least), _find_kappa(least)
            many = (
                f"too many to be weighed on {len(data.distinct):,} distinct rows"
                if self.max_features == "auto"
                else "more than max_features"
            )
            warnings.warn(
                f"the trees have {whole:,} nodes, whose features would be {many}: splits that gain no more than {least:.3g} a parameter "
                f"are left out (kappa {kappa:.2g}), which leaves {len(trees.test):,} nodes; max_features sets the limit",
                GenerationStopped, stacklevel=6,
            )  # fmt: skip
        learned = {"trees_": trees, "kappa_": kappa, "dependency_network_": DependencyNetwork(trees)}
        return Structure(convert(trees, conversion), learned, None if trees.finished else StoppedBy.TIME)

    def _find_least_gain(self, trees: Trees, conversion: str, data: Dataset) -> float:
        """The gain per parameter that splits must exceed for the features to be few enough, equal ones counted each."""
        if self.max_features is None:
            return 0.0
        costs = trees.domain.n_states[trees.targets][trees.tree].astype(float)
        costs[trees.depth >= DEPTHS.get(conversion, np.inf)] = 0
        budget = MOST_CONTEXTS if self.max_features == "auto" else float(self.max_features)
        if self.max_features == "auto":  # the rows of each node, literal by literal: contexts of the variables on the way hold in more
            costs *= (trees.depth + 1) * trees.weight * (len(data.distinct) / data.distinct.total_weight)
        if conversion in LEAVES:  # a node whose two children are there gives no feature of its own
            below = np.flatnonzero(trees.parent >= 0)
            costs[below] -= costs[trees.parent[below]] / 2
        return trees.find_least_gain(costs, budget)

    def _check(self) -> None:
        if self.conversion not in CONVERSIONS:
            raise ParameterError(f"conversion={self.conversion!r} is not known; choose one of {', '.join(CONVERSIONS)}")
        if self.kappa != "auto" and (isinstance(self.kappa, str) or not 0 < self.kappa <= 1):
            raise ParameterError(f"kappa={self.kappa!r}: a number above 0 and at most 1, or 'auto'")
        if not self.min_rows > 0:
            raise ParameterError(f"min_rows={self.min_rows}: it must be above zero")
        if self.max_features is not None and self.max_features != "auto":
            check_number("max_features", self.max_features, 1, whole=True)


def _find_kappa(least: float) -> float:
    """The ``kappa`` that leaves out splits that gain no more than this per parameter; the smallest there is where that is too small."""
    least = min(least, 690.0)
    kappa = float(np.exp(-least))
    while -np.log(kappa) < least:
        kappa *= 1 - 1e-13  # the logarithm was rounded
    return kappa


def _rank_kappas(trees: Trees, valid: Dataset) -> list[float]:
    """The best of the paper's values, and those whose trees are as good but for a thousandth of the log-likelihood."""
    best, values = trees.choose_kappa(KAPPAS, valid)
    close = [k for k, value in zip(KAPPAS, values, strict=True) if value >= max(values) - TIE * abs(max(values))]
    return [best, *(k for k in close if k != best)]


def convert(trees: Trees, conversion: str) -> FeatureSet:
    """The features of a set of trees, each once."""
    domain = trees.domain
    nodes = np.flatnonzero(trees.test < 0) if conversion in LEAVES else np.arange(len(trees.test))
    limit = DEPTHS.get(conversion)
    if limit is not None:
        nodes = nodes[trees.depth[nodes] < limit]
    start, literals = trees.paths(nodes)
    # Each path once per state of the target, whose literal comes last.
    target = trees.targets[trees.tree[nodes]]
    copies = domain.n_states[target].astype(np.int64)
    path = np.repeat(np.arange(len(nodes)), copies)
    state = np.arange(len(path)) - np.repeat(np.cumsum(copies) - copies, copies)
    lengths = np.diff(start)[path]
    new_start = np.concatenate([[0], np.cumsum(lengths + 1)]).astype(np.int64)
    flat = np.empty(new_start[-1], dtype=np.int64)
    last = new_start[1:] - 1
    inside = np.ones(len(flat), dtype=bool)
    inside[last] = False
    flat[inside] = literals[np.repeat(start[path] - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))]
    flat[last] = domain.base[target][path] + state
    owner = np.repeat(np.arange(len(path)), lengths + 1)
    if conversion == "nonzero":
        keep = ~holds_for_reference(domain, flat)
        flat, owner = flat[keep], owner[keep]
    return _make_features(domain, flat, owner).canonical()


def _make_features(domain: Any, flat: Array, owner: Array) -> FeatureSet:
    lengths = np.bincount(owner, minlength=int(owner[-1]) + 1 if len(owner) else 0)
    lengths = lengths[lengths > 0]
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return FeatureSet.from_arrays(domain, start, flat)
