"""What all learners share: read, propose features, fit weights. They are scikit-learn estimators.

scikit-learn calls columns features; ``n_features_in_`` below counts columns, everywhere else a feature is a conjunction.
"""

from __future__ import annotations

import functools
import itertools
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from undirected.data.arrays import is_frame
from undirected.data.dataset import LEARN, Dataset
from undirected.data.readers import read_data
from undirected.data.variables import Domain
from undirected.errors import DataError, ParameterError, TableWarning, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.inference.gaps import fill_by_shares
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.structure.gaps import Gaps, learn_with_gaps
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.trials import WEIGHT_SETTINGS, Tuner
from undirected.weights.fit import WeightFit, WeightPath
from undirected.weights.penalty import check_prior
from undirected.weights.pseudo_likelihood import choose_affordable
from undirected.work import MEMORY, StoppedBy, Work

Grid = dict[str, list[Any]]
STRUCTURE_SHARE = 0.5  # of the time, by which a learner that does not move from network to network should have its features

# For the docstrings of learners without parameters of their own.
SHARED_PARAMETERS = """
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`; ``missing="learn"``, the default, learns from rows with gaps by drawing completions of them in turn
        with weights (Monte-Carlo EM), and scores their known cells.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        The variables and states to code tables with, so that rows with states that the training rows lack can be scored.
"""


class _WithNames:
    """A method that is there once a learner has been fitted to a table with names. Before, it is an error that says so and counts as a
    missing attribute, too; scikit-learn's own ``available_if`` would hide the reason."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, learner: Any, owner: type) -> Any:
        if learner is None:
            return self.function
        check_is_fitted(learner, "network_")
        if not learner.domain_.named:
            raise AttributeError(f"{owner.__name__} learned from a table without names; use network_.predict_proba")
        return functools.partial(self.function, learner)


class Learner(BaseEstimator):  # type: ignore[misc]
    """Base of the learners: a subclass has `propose` and its own parameters beside those kept here."""

    paper_grid: ClassVar[Grid] = {}  # what the paper tuned over
    quick_grid: ClassVar[Grid] = {}  # a small grid for every day

    def __init__(
        self,
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
    ) -> None:
        self.l1 = l1
        self.sd = sd
        self.tol = tol
        self.prune = prune
        self.bins = bins
        self.missing = missing
        self.threads = threads
        self.memory = memory
        self.time_budget = time_budget
        self.progress = progress
        self.domain = domain

    network_: MarkovNetwork
    fit_: WeightFit
    gaps_: Gaps  # where the rows had such

    @abstractmethod
    def propose(self, data: Dataset, work: Work) -> Structure:
        """Candidate features from the training table."""

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """Candidate features for every structural setting of a grid; a learner may compute once what settings share.

        ``tuner`` serves learners that are built on others and tune these first.
        """
        for settings in list_structural(grid):
            one = clone(self).set_params(**settings)
            structure = one.propose(data, work)
            yield Proposal(settings, structure)

    def start_work(self) -> Work:
        """The limits of this learner's own parameters, from now on."""
        return Work.start(self.threads, self.memory, self.time_budget, progress=self.progress)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, start: WeightFit | None = None, work: Work | None = None) -> Self:
        """Learn a network.

        Parameters
        ----------
        X
            A table: anything `undirected.read_data` takes.
        y
            A named series is one more column of ``X``, a frame. There is no target: anything else is left out, with a warning.
        sample_weight
            One weight a row; a weight of two equals a repeated row.
        start
            An earlier fit: if it has the same features, its weights are the start. A learner that searches takes its features,
            too, and does not search again.
        work
            Limits, clock and listener of a larger task that this fit is a part of, in place of the learner's own ``threads``,
            ``memory``, ``time_budget`` and ``progress``.
        """
        work = self.start_work() if work is None else work
        check_prior(self.l1, self.sd, self.tol)
        data = self._take_training_table(X, y, sample_weight)
        if data.has_missing:
            return self._learn_with_gaps(data, work)
        structure = self._find_structure(data, work, start)
        path = WeightPath(structure.features, data, work, structure.objective)
        factors = self.find_l1_factors(structure.features)
        fit = path.solve([(self.l1, self.sd)], self.tol, structure.weights, factors=factors)[0]
        self._warn_if_early(fit, structure.stopped_by)
        self._adopt(data.domain, fit, structure.learned)
        return self

    def _learn_with_gaps(self, data: Dataset, work: Work, **how: Any) -> Self:
        """Learn from rows with gaps, by completions of them; ``how`` is for `fit` on completed rows."""

        def learn(table: Dataset, share: Work) -> Learner:
            one: Learner = clone(self).set_params(missing="error")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Unconverged)  # what counts is how the last weights come out
                return one.fit(table, work=share, **how)

        seed = self.get_params().get("random_state", 0)
        seed = seed if isinstance(seed, int | np.integer) else 0
        try:
            learner, fit, gaps = learn_with_gaps(data, learn, self.tol, int(seed), work)
        except KeyboardInterrupt:
            atoms, table = FeatureSet.atomic(data.domain), fill_by_shares(data)
            fit = WeightPath(atoms, table, work.extend().silent()).solve([(0.0, 1.0)], self.tol)[0]
            fit.stopped_by = StoppedBy.INTERRUPT
            self._warn_if_early(fit, None)
            self._adopt(data.domain, fit, {})
            return self
        self._warn_if_early(fit, None)
        own = ("n_features_in_", "feature_names_in_")
        self._adopt(data.domain, fit, {name: value for name, value in vars(learner).items() if name.endswith("_") and name not in own})
        self.fit_, self.network_ = fit, self._make_network(fit)
        self.gaps_ = gaps
        return self

    def find_l1_factors(self, features: FeatureSet) -> Array | None:
        """What the L1 penalty of each feature is multiplied by; None where all have the same."""
        return None

    def _take_training_table(self, X: Any, y: Any, sample_weight: Any) -> Dataset:
        """The table to learn from; raises where there is nothing to learn from."""
        self.__dict__.pop("gaps_", None)  # of an earlier table
        data = self._training_table(_add_target(X, y), sample_weight)
        if self.missing != LEARN:
            data.require_complete("learning")
        if not data.total_weight > 0:
            raise DataError(f"{data.source}: no row has a weight above zero")
        return data

    def _find_structure(self, data: Dataset, work: Work, start: WeightFit | None) -> Structure:
        """The features to weigh, the atomic ones among them, as many as can be prepared in the time; Ctrl-C leaves the atomic ones."""
        atoms = FeatureSet.atomic(data.domain)
        try:
            structure = self._propose_from(data, work, start)
        except KeyboardInterrupt:  # the best there is: variables that know nothing of each other
            return Structure(atoms, stopped_by=StoppedBy.INTERRUPT)
        structure.features = structure.features.union(atoms)
        if structure.weights is None and start is not None:
            structure.weights = start.find_weights_for(structure.features)
        kept = choose_affordable(structure.features, data, work) if structure.objective is None else None
        if kept is not None:
            structure.features, structure.stopped_by = structure.features.subset(kept), StoppedBy.TIME
            structure.weights = None if structure.weights is None else structure.weights[kept]
            structure.learned = self.trim_learned(structure.learned, kept)
        return structure

    def _propose_from(self, data: Dataset, work: Work, start: WeightFit | None) -> Structure:
        """`propose`; a learner that searches takes an earlier fit instead."""
        return self.propose(data, work)

    def _warn_if_early(self, fit: WeightFit, cut: StoppedBy | None) -> None:
        """Warn where weights or features are not what more time would give; early features count, however well the weights came out."""
        if not fit.converged:
            warnings.warn(fit.describe_end(self.tol), Unconverged, stacklevel=3)
        elif cut is not None:
            fit.stopped_by = cut
            warnings.warn(f"the features are not all there: stopped by {cut}", Unconverged, stacklevel=3)

    def trim_learned(self, learned: dict[str, Any], kept: Array) -> dict[str, Any]:
        """What was learned beside the features, in line with those of them that are kept."""
        return learned

    def recall(self, data: Dataset, work: Work, tuner: Tuner) -> dict[str, Any]:
        """What `propose` learns beside features, by attribute, for a tuning that finds its features in a ledger."""
        return self.propose(data, work).learned

    def adopt(self, X: Any, fit: WeightFit, learned: dict[str, Any]) -> Self:
        """Be fitted to a table with features and weights that were learned elsewhere, with this learner's settings."""
        self._adopt(self._training_table(X, None).domain, fit, learned)
        return self

    def _adopt(self, domain: Domain, fit: WeightFit, learned: dict[str, Any]) -> None:
        self.fit_, self.network_, self.domain_ = fit, self._make_network(fit), domain
        for name, value in learned.items():
            setattr(self, name, value)

    def _make_network(self, fit: WeightFit) -> MarkovNetwork:
        """The network; pruning leaves out zero weights, but never an atomic feature."""
        network = fit.network()
        if not self.prune:
            return network
        keep = (fit.weights != 0) | (fit.features.lengths == 1)
        return MarkovNetwork(fit.features.subset(keep), fit.weights[keep])

    def _training_table(self, X: Any, sample_weight: Any) -> Dataset:
        domain = find_domain(self.domain)
        if isinstance(X, Dataset | str | os.PathLike):
            data = read_data(X, domain=domain, bins=self.bins, missing=self.missing)
            if sample_weight is not None:
                data = Dataset(data.domain, data.codes, sample_weight, data.source, data.lines)
            self.n_features_in_ = len(data.domain)
            return data
        array = self._check_columns(X, reset=True)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, array, dtype=float, ensure_non_negative=True)
            keep = weights > 0
            if not keep.any():
                raise DataError("all sample weights are zero; at least one row must count")
            array = array.tocsr() if hasattr(array, "tocsr") else array.iloc if hasattr(array, "iloc") else array
            array, weights = array[np.flatnonzero(keep)], weights[keep]
        return read_data(array, domain=domain, bins=self.bins, missing=self.missing, weights=weights)

    def _check_columns(self, X: Any, reset: bool) -> Any:
        """Hold an array or frame against the columns learned from, or remember its own with ``reset``; a frame stays as it is, since it
        knows its names and categories, and is looked at when it is coded."""
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        finite = True if self.missing == "error" else "allow-nan"
        return validate_data(self, X, reset=reset, dtype=None, accept_sparse=True, ensure_all_finite=finite, ensure_min_samples=1)

    def _test_table(self, X: Any) -> Dataset:
        check_is_fitted(self, "network_")
        if not isinstance(X, Dataset | str | os.PathLike):
            X = self._check_columns(X, reset=False)
        return read_data(X, domain=self.domain_, missing=self.missing)

    def score_samples(self, X: Any) -> Array:
        """The pseudo-log-likelihood of each row."""
        table = self._test_table(X)
        return self.network_.pll_terms(table, self.threads)[0]

    def score(self, X: Any, y: Any = None) -> float:
        """The mean pseudo-log-likelihood of the rows; higher is better."""
        table = self._test_table(_add_target(X, y))
        return self.network_.pll(table, self.threads)

    @_WithNames
    def predict_proba(self, X: Any, target: str | None = None) -> Array:
        """P(target = state | the other cells of the row), by row and state; the target is the last column if not given.

        The target's own cells are not looked at. There once a network has been learned from a table with column names; without
        them use ``network_.predict_proba``. (scikit-learn takes whatever has this method for a classifier with classes of its own.)
        """
        check_is_fitted(self, "network_")
        name = self.domain_.names[-1] if target is None else target
        return self.network_.predict_proba(self._test_table(X), name, threads=self.threads)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.missing != "error"
        return tags


def list_structural(grid: Grid) -> Iterator[dict[str, Any]]:
    """Every combination of a grid's settings that decide features."""
    structural = {name: values for name, values in grid.items() if name not in WEIGHT_SETTINGS}
    for values in itertools.product(*structural.values()):
        yield dict(zip(structural, values, strict=True))


def describe_params(learner: Learner, ignored: Collection[str] = ()) -> dict[str, str]:
    """The parameters that a result depends on, as texts."""
    without = {"progress", "threads", "memory", "domain", *ignored}
    return {name: repr(value) for name, value in learner.get_params().items() if name not in without}


def find_domain(value: Any) -> Domain | None:
    """The domain that a parameter names: one itself, that of a table or network, or of a network in a file."""
    if value is None or isinstance(value, Domain):
        return value
    if isinstance(value, str | os.PathLike):
        from undirected import formats

        return formats.load(value).domain
    if isinstance(value, Dataset | MarkovNetwork):
        return value.domain
    raise ParameterError(f"domain={value!r}: a Domain, a Dataset, a network or the path of one is needed")


def _add_target(X: Any, y: Any) -> Any:
    """The frame with a named series as one more column."""
    if y is None:
        return X
    name = getattr(y, "name", None)
    if is_frame(X) and isinstance(name, str) and name:
        if len(y) != len(X):
            raise DataError(f"y has {len(y):,} entries for {len(X):,} rows")
        if name in list(X.columns):
            raise DataError(f"y is called {name!r}, but X has a column of that name already; rename one, or leave out y")
        return X.assign(**{name: y.set_axis(X.index)}) if hasattr(X, "assign") and hasattr(y, "set_axis") else X.with_columns(y)
    if isinstance(X, Dataset | str | os.PathLike):
        raise ParameterError("y cannot be added to this table, and there is no target; make it a column of the table")
    warnings.warn(
        "y is left out: there is no target. To learn it together with X, make it a column of X, or give a frame and a named series",
        TableWarning, stacklevel=3,
    )  # fmt: skip
    return X
