"""What all learners share: read, propose features, fit weights. They are scikit-learn estimators.

scikit-learn calls columns features; ``n_features_in_`` below counts columns, everywhere else a feature is a conjunction.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from undirected.data.arrays import is_frame
from undirected.data.dataset import Dataset
from undirected.data.readers import read_data
from undirected.data.variables import Domain
from undirected.errors import DataError, ParameterError, TableWarning, Unconverged, check_work
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MEMORY, MarkovNetwork
from undirected.weights.fit import WeightFit, check_penalties, fit_weights
from undirected.weights.pseudo_likelihood import PseudoLikelihood, affordable

Grid = dict[str, list[Any]]
LedgerPath = str | os.PathLike[str] | None
WEIGHT_SETTINGS = ("l1", "sd")

FITTED = ("network_", "fit_", "domain_", "n_features_in_", "feature_names_in_")  # what `fit` itself sets

# For the docstrings of learners without parameters of their own.
SHARED_PARAMETERS = """
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
"""


def tell(progress: Any, what: str, done: int, n: int) -> None:
    """Of work before the weights, to whoever wants to know: so many of so many are done."""
    if hasattr(progress, "counting"):
        progress.counting(what, done, n)


class Proposal(NamedTuple):
    """A structural setting and the features it gives, atomic ones not yet added; ``seconds`` if the clock cannot tell them, parts
    of the work having been found in a ledger; not ``complete`` if a time budget cut the search for it, or for what it is made of;
    ``cut`` if the former. ``weights``, where the search has learned some, are those of the features with the atomic ones, in
    canonical order. ``found`` is what a learner with these settings would have learned beside the features, by attribute; None if
    that is not known."""

    settings: dict[str, Any]
    features: FeatureSet
    seconds: float | None = None
    complete: bool = True
    weights: Array | None = None
    cut: bool = False
    found: dict[str, Any] | None = None


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
        missing: str = "error",
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
    _cut: str | None = None  # what ended the last search for features early, if anything did

    @abstractmethod
    def propose(self, data: Dataset) -> FeatureSet:
        """Candidate features from the training table."""

    def proposals(
        self, data: Dataset, valid: Dataset, grid: Grid, ledger: LedgerPath = None, search_tol: float | None = None
    ) -> Iterator[Proposal]:
        """Candidate features for every structural setting of a grid; what settings share is computed once.

        The last two are for a learner that tunes others on its way; see `undirected.tune`.
        """
        structural = {name: values for name, values in grid.items() if name not in WEIGHT_SETTINGS}
        for values in itertools.product(*structural.values()):
            settings = dict(zip(structural, values, strict=True))
            one = clone(self).set_params(**settings)
            features = one.propose(data)
            yield Proposal(settings, features, found=one.learned())

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, start: WeightFit | None = None) -> Self:
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
        """
        began = time.monotonic()
        check_work(self.threads, self.memory, self.time_budget)
        check_penalties(self.l1, self.sd, self.tol)
        data = self._training_table(_with_target(X, y), sample_weight)
        data.require_complete("learning")
        if not data.total_weight > 0:
            raise DataError(f"{data.source}: no row has a weight above zero")
        self._cut = None
        try:
            features, weights, prepared = self._proposed(data, start)
        except KeyboardInterrupt:  # the best there is: variables that know nothing of each other
            features, weights, prepared, self._cut = FeatureSet.atomic(data.domain), None, None, "interrupt"
        left = self._left(began)
        if prepared is None:
            features, weights = self._within_time(features, weights, data, left)
        self.fit_ = fit_weights(
            features, data, self.l1, self.sd, tol=self.tol, threads=self.threads, memory=self.memory,
            start=weights, time_budget=left, progress=self.progress, objective=prepared,
        )  # fmt: skip
        if self._cut is not None and self.fit_.converged:  # an early stop, however well the weights came out
            self.fit_.stopped_by = self._cut
            warnings.warn(f"the features are not all there: stopped by {self._cut}", Unconverged, stacklevel=2)
        self.network_ = self._kept(self.fit_)
        self.domain_ = data.domain
        return self

    def _within_time(
        self, features: FeatureSet, weights: Array | None, data: Dataset, left: float | None
    ) -> tuple[FeatureSet, Array | None]:
        """The features that can be prepared in the time that is left, the shortest first; the search for them then counts as cut."""
        kept = affordable(features, data, left, self.threads, self.memory)
        if kept is None:
            return features, weights
        self._cut = "time"
        self.keep_features(kept)
        return features.subset(kept), None if weights is None else weights[kept]

    def keep_features(self, kept: Array) -> None:
        """Bring what was learned beside the features into line with those that are kept."""

    def learned(self) -> dict[str, Any]:
        """What `propose` has learned beside features, by attribute."""
        return {name: value for name, value in vars(self).items() if name.endswith("_") and name not in FITTED}

    def recall(self, data: Dataset, ledger: LedgerPath) -> dict[str, Any]:
        """What `propose` learns beside features, by attribute, for a tuning that finds its features in a ledger."""
        one: Self = clone(self).set_params(time_budget=None)
        one.propose(data)
        return one.learned()

    def adopt(self, X: Any, fit: WeightFit, learned: dict[str, Any]) -> Self:
        """Be fitted to a table with features and weights that were learned elsewhere, with this learner's settings."""
        data = self._training_table(X, None)
        self.fit_, self.network_, self.domain_ = fit, self._kept(fit), data.domain
        for name, value in learned.items():
            setattr(self, name, value)
        return self

    def _proposed(self, data: Dataset, start: WeightFit | None) -> tuple[FeatureSet, Array | None, PseudoLikelihood | None]:
        """The features to weigh, weights to start from, and the objective where it has been prepared on the way."""
        features = self.propose(data).union(FeatureSet.atomic(data.domain))
        return features, None if start is None else start.weights_for(features), None

    def _left(self, began: float) -> float | None:
        """Of the time budget, for work that began at that moment."""
        return None if self.time_budget is None else max(0.0, float(self.time_budget) - (time.monotonic() - began))

    def _structure_deadline(self) -> float | None:
        """By when a learner that does not move from network to network should have its features: the weights need time, too."""
        return None if self.time_budget is None else time.monotonic() + float(self.time_budget) / 2

    def _kept(self, fit: WeightFit) -> MarkovNetwork:
        """The network; pruning leaves out zero weights, but never an atomic feature."""
        network = fit.network()
        if not self.prune:
            return network
        keep = (fit.weights != 0) | (fit.features.lengths == 1)
        return MarkovNetwork(fit.features.subset(keep), fit.weights[keep])

    def _training_table(self, X: Any, sample_weight: Any) -> Dataset:
        domain = as_domain(self.domain)
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
        table = self._test_table(_with_target(X, y))
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


def as_domain(value: Any) -> Domain | None:
    """The domain that a parameter names: one itself, that of a table or network, or of a network in a file."""
    if value is None or isinstance(value, Domain):
        return value
    if isinstance(value, str | os.PathLike):
        from undirected import formats

        return formats.load(value).domain
    if isinstance(value, Dataset | MarkovNetwork):
        return value.domain
    raise ParameterError(f"domain={value!r}: a Domain, a Dataset, a network or the path of one is needed")


def _with_target(X: Any, y: Any) -> Any:
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
