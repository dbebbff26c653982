"""Settings chosen on validation data: every structure once, weights along warm-started paths, a ledger of what is done."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.readers import read_data
from undirected.data.splits import holdout
from undirected.errors import ParameterError, Unconverged, check_work
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.weights.fit import WeightFit, fit_path
from undirected.weights.ledger import Ledger, Rows, digest
from undirected.weights.solver import GiveUp

GRIDS = ("quick", "paper")
MEASURED = ("valid_pll", "n_features", "n_nonzero", "mean_length", "violation", "structure_seconds", "weights_seconds")
LOOSE = 1e-3  # the search is never looser than this
CLOSE = 0.005  # settings whose validation scores differ by less than this share of the best are settled at the full tolerance
REFINEMENTS = 2  # rounds in which sd is moved halfway to its neighbours
LAST = 0.1  # of the time budget, for the weights of a search that used it up, and for the best ones at the end
LOOK, HOPELESS = 10, 0.01  # at so many times the tolerance a setting is scored, and given up if this share below the best

Progress = Callable[[int, int, dict[str, Any]], None]


@dataclass
class Tuned:
    """The outcome of `tune`: ``learner`` is fitted with the best ``settings``, ``fit`` holds its weights; ``rows`` are all that were
    tried, each with its settings, ``valid_pll``, ``n_features`` and seconds; ``features`` are those of the best. Not ``complete`` if
    the time budget ended the search."""

    learner: Any
    settings: dict[str, Any]
    valid_pll: float
    rows: Rows
    features: FeatureSet = field(repr=False)
    fit: WeightFit = field(repr=False)
    complete: bool = True

    def to_frame(self) -> Any:
        """The rows as a pandas frame (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        names = [name for name in self.rows[0] if name not in ("structure_seconds", "weights_seconds")]
        ranked = sorted(self.rows, key=lambda row: -row["valid_pll"])
        return "\n".join(aligned([names, *([_shown(row[name]) for name in names] for row in ranked)]))


def aligned(lines: list[list[str]]) -> list[str]:
    """Columns of equal width, all but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([c.rjust(w) if k else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True))] for line in lines)
    return ["  ".join(line).rstrip() for line in padded]


@dataclass
class Search:
    """Every setting tried, and the features of the best; not ``complete`` if the time budget ended it. ``found`` is what was learned
    beside the best features, by attribute; None if that is not known, as when a finished ledger tells the rest."""

    rows: Rows
    features: FeatureSet
    complete: bool = True
    found: dict[str, Any] | None = None
    fit: WeightFit | None = None  # of the best setting, as far as it was solved here
    interrupted: bool = False

    def unless_interrupted(self) -> Search:
        """This search; raises again the interruption that cut it."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self

    @property
    def best(self) -> dict[str, Any]:
        return max(self.rows, key=lambda row: row["valid_pll"])

    @property
    def structure_seconds(self) -> float:
        """Finding the features of all structural settings."""
        return float(sum({_structure(row): row["structure_seconds"] for row in self.rows}.values()))

    @property
    def weights_seconds(self) -> float:
        return float(sum(row["weights_seconds"] for row in self.rows))

    @property
    def seconds(self) -> float:
        return self.structure_seconds + self.weights_seconds


def tune(
    learner: Any,
    grid: dict[str, list[Any]] | str = "quick",
    train: Any = None,
    valid: Any = None,
    *,
    ledger: str | os.PathLike[str] | None = None,
    search_tol: float | None = None,
    refine: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Try every setting of a grid and keep the one with the best validation pseudo-likelihood.

    Parameters
    ----------
    learner
        Any learner; the parameters that the grid does not name stay as they are. Once its ``time_budget`` is spent no further
        structure is tried.
    grid
        Lists of values by parameter name, or ``"quick"`` or ``"paper"`` for the learner's own.
    train, valid
        Tables, as `read_data` takes them. Without ``valid`` a tenth of the rows is set aside, drawn with ``seed``.
    ledger
        A file that keeps finished settings: an interrupted run, started again with the same file, goes on where it stopped
        and ends with the same result.
    search_tol
        Tolerance of the weights while settings are compared: by default one over the number of rows (a gradient of one row),
        at most 1e-3 and never below the learner's ``tol``. A setting that scores one percent below the best so far, at ten
        times this tolerance or earlier with its score falling, is given up, and that is its score. The best structure's
        settings that come within half a percent of the best score are then settled at ``tol``. ``search_tol=0`` fits every
        setting to ``tol``.
    refine
        At the end also try the values of ``sd`` halfway, in proportion, between the best and its neighbours in the grid, and
        once more with those among the neighbours; they are taken if clearly better, by two standard errors.
    progress
        Called after each structure as ``progress(done, settings tried, best row so far)``.

    Examples
    --------
    >>> from undirected import AllPairs, datasets, tune
    >>> tuned = tune(AllPairs(), {"l1": [5.0, 20.0], "sd": [1.0]}, datasets.load("digits"), datasets.load("digits", "valid"))
    >>> tuned.settings["l1"]
    5.0
    """
    if train is None:
        raise ParameterError("tune needs training data")
    train = read_data(train, bins=learner.bins, missing=learner.missing)
    if valid is None:
        train, valid = holdout(train, 0.1, seed)
    valid = read_data(valid, domain=train.domain, missing=learner.missing)
    found = search(learner, grid, train, valid, ledger, search_tol, progress)
    row, fit = _best_so_far(learner, found, train, valid) if found.interrupted else settle(learner, found, train, valid, refine)
    settings = settings_of(row)
    fitted = type(learner)(**{**learner.get_params(), **settings})
    fitted.adopt(train, fit, fitted.recall(train, ledger) if found.found is None and not found.interrupted else found.found or {})
    if not fit.converged:
        warnings.warn(f"the best weights were stopped by {fit.stopped_by}, violation {fit.violation:.2g}", Unconverged, stacklevel=2)
    return Tuned(fitted, settings, row["valid_pll"], found.rows, found.features, fit, found.complete)


def search(
    learner: Any,
    grid: dict[str, list[Any]] | str,
    train: Dataset,
    valid: Dataset,
    ledger: str | os.PathLike[str] | None = None,
    search_tol: float | None = None,
    progress: Progress | None = None,
) -> Search:
    """A row per setting, with weights at the search's tolerance; see `tune`. Ctrl-C ends it with what there is."""
    chosen = check_grid(learner, grid)
    check_work(learner.threads, learner.memory, learner.time_budget)
    tol = max(learner.tol, min(LOOSE, 1 / train.total_weight) if search_tol is None else search_tol)
    book = None if ledger is None else Ledger(Path(ledger), _owner(learner, chosen, train, valid, tol, search_tol))
    finished = None if book is None else book.finished(train.domain)
    if finished is not None:
        return Search(*finished)
    pairs = list(itertools.product(chosen.get("l1", [learner.l1]), chosen.get("sd", [learner.sd])))
    rows: Rows = []
    weighed: dict[int, Rows] = {}
    best: dict[str, Any] = {"valid_pll": -np.inf}
    features = atoms = FeatureSet.atomic(train.domain)
    beside: dict[str, Any] | None = None
    best_fit: WeightFit | None = None
    complete, interrupted = True, False
    began = time.monotonic()
    for done, proposal in enumerate(_until_interrupted(learner.proposals(train, valid, chosen, ledger, search_tol)), 1):
        if proposal is None:
            complete, interrupted = False, True
            break
        seconds = time.monotonic() - began if proposal.seconds is None else proposal.seconds
        complete = complete and proposal.complete
        left = None if learner.time_budget is None else learner.time_budget - Search(rows, features).seconds - seconds
        if left is not None and proposal.cut:  # it used up the time, and may still be the best
            left = max(left, LAST * learner.time_budget)
        elif left is not None and left <= 0 and rows:
            complete = False
            break
        candidates = proposal.features.union(atoms)
        found = book.find(proposal.settings) if book is not None and proposal.complete else None
        fits: list[WeightFit] = []
        if found is None:
            same = weighed.get(_fingerprint(candidates))
            if same is not None:  # another setting gave these features
                found = [{**row, **proposal.settings, "structure_seconds": seconds, "weights_seconds": 0.0} for row in same]
            else:
                race = None if search_tol == 0 else Race(learner, candidates, valid, best["valid_pll"], LOOK * tol)
                try:
                    fits = _fit(learner, candidates, train, pairs, tol, None if left is None else max(0.0, left), race, proposal.weights)
                except KeyboardInterrupt:
                    complete, interrupted = False, True
                    break
                found = [_row(learner, proposal.settings, fit, valid, seconds) for fit in fits]
                complete = complete and all(fit.stopped_by != "time" for fit in fits)
            if book is not None and complete:
                book.add(proposal.settings, found)
        weighed.setdefault(_fingerprint(candidates), found)
        rows += found
        leader = max(found, key=lambda row: row["valid_pll"])
        if leader["valid_pll"] > best["valid_pll"]:
            best, features, beside = leader, candidates, proposal.found
            best_fit = fits[found.index(leader)] if len(fits) == len(found) else None
        if progress is not None:
            progress(done, len(rows), best)
        if proposal.cut:
            break
        began = time.monotonic()
    if book is not None and complete:
        book.finish(rows, features)
    return Search(rows, features, complete, beside, best_fit, interrupted)


def _until_interrupted(proposals: Iterable[Any]) -> Iterator[Any]:
    """The proposals, and None at the end where Ctrl-C cut the search for them."""
    try:
        yield from proposals
    except KeyboardInterrupt:
        yield None


def _best_so_far(learner: Any, found: Search, train: Dataset, valid: Dataset) -> tuple[dict[str, Any], WeightFit]:
    """After an interruption: the best setting that was weighed, or, if there is none, independent variables."""
    if found.rows and found.fit is not None:
        row, fit = found.best, found.fit
    else:
        found.features = FeatureSet.atomic(train.domain)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unconverged)
            fit = fit_path(found.features, train, [(learner.l1, learner.sd)], threads=learner.threads)[0]
        row = _row(learner, {}, fit, valid, 0.0)
        found.rows.append(row)
    fit.stopped_by = "interrupt"
    return row, fit


def settle(learner: Any, found: Search, train: Dataset, valid: Dataset, refine: bool = True) -> tuple[dict[str, Any], WeightFit]:
    """The best structure's promising settings at the learner's tolerance, best first; their rows are brought up to date.

    Returns the row and the weights of the best of them.

    With ``refine``, then also between the best ``sd`` and its neighbours, twice.
    """
    budget = learner.time_budget
    deadline = None if budget is None else time.monotonic() + max(budget - found.seconds, LAST * budget)

    def left() -> float | None:
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    structure = _structure(found.best)
    rivals = [row for row in found.rows if _structure(row) == structure]
    fits: dict[int, WeightFit] = {}
    while True:
        bar = max(row["valid_pll"] for row in rivals)
        todo = [k for k, row in enumerate(rivals) if k not in fits and row["valid_pll"] >= bar - CLOSE * abs(bar)]
        if not todo:
            break
        pairs = [(rivals[k]["l1"], rivals[k]["sd"]) for k in todo]
        for k, fit in zip(todo, _fit(learner, found.features, train, pairs, learner.tol, left()), strict=True):
            fits[k] = fit
            spent = rivals[k]["weights_seconds"] + fit.seconds
            rivals[k].update(_row(learner, {}, fit, valid, rivals[k]["structure_seconds"]), weights_seconds=spent)
    first = max(fits, key=lambda k: rivals[k]["valid_pll"])
    best, row = fits[first], rivals[first]
    tried = [rival["sd"] for rival in rivals]
    for _ in range(REFINEMENTS if refine and best.converged else 0):
        pairs = [(best.l1, sd) for sd in _between(best.sd, tried)]
        for fit in _fit(learner, found.features, train, pairs, learner.tol, left(), start=best.weights) if pairs else []:
            new = _row(learner, settings_of(row) | {"sd": fit.sd}, fit, valid, row["structure_seconds"])
            found.rows.append(new)
            tried.append(fit.sd)
            if _clearly_better(fit, best, valid, learner.threads):
                best, row = fit, new
    return row, best


def _clearly_better(new: WeightFit, old: WeightFit, valid: Dataset, threads: int | None) -> bool:
    """By more than two standard errors of the mean difference over the validation rows: chance alone does not leave the grid."""
    counted = valid.weights > 0
    terms = [fit.network().pll_terms(valid, threads)[0][counted] for fit in (new, old)]
    gain, weights = terms[0] - terms[1], valid.weights[counted]
    mean = float(np.average(gain, weights=weights))
    variance = float(np.average((gain - mean) ** 2, weights=weights))
    return bool(mean > 2 * np.sqrt(variance / valid.total_weight))


def _between(value: float, grid: list[float]) -> list[float]:
    """Geometric means of a value and its neighbours in the grid; infinity has no place between."""
    below, above = (max((g for g in grid if g < value), default=0.0), min((g for g in grid if g > value), default=np.inf))
    return [float(f"{np.sqrt(value * other):.3g}") for other in (below, above) if 0 < value * other < np.inf]


def _fingerprint(features: FeatureSet) -> int:
    return hash((features.start.tobytes(), features.literals.tobytes()))


def settings_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in MEASURED}


def _structure(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in row.items() if name not in (*MEASURED, "l1", "sd"))


class Race:
    """Gives up settings far below the best validation score so far, over this structure's settings and those before it: those
    whose score keeps falling, and, near the end, all."""

    def __init__(self, learner: Any, features: FeatureSet, valid: Dataset, best: float, tol: float) -> None:
        self.tol = tol
        self._features, self._valid, self._threads = features, valid, learner.threads
        self._best = best
        self._last, self._falls = -np.inf, 0

    def _score(self, weights: Array) -> float:
        return MarkovNetwork(self._features, weights).pll(self._valid, self._threads)

    def begin(self, weights: Array) -> None:
        self._last, self._falls = self._score(weights), 0

    def hopeless(self, weights: Array, near: bool) -> bool:
        score = self._score(weights)
        self._falls = self._falls + 1 if score < self._last else 0
        self._last = score
        if near:
            self._best = max(self._best, score)
        return (near or self._falls > 1) and score < self._best - HOPELESS * abs(self._best)


def _fit(
    learner: Any,
    features: FeatureSet,
    train: Dataset,
    pairs: list[tuple[float, float]],
    tol: float,
    budget: float | None,
    give_up: GiveUp | None = None,
    start: Array | None = None,
) -> list[WeightFit]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)  # told by the row
        fits = fit_path(
            features, train, pairs, tol=tol, start=start, threads=learner.threads, memory=learner.memory, time_budget=budget,
            give_up=give_up,
        )  # fmt: skip
    if any(fit.stopped_by == "interrupt" for fit in fits):
        raise KeyboardInterrupt
    return fits


def _row(learner: Any, settings: dict[str, Any], fit: WeightFit, valid: Dataset, structure_seconds: float) -> dict[str, Any]:
    return {
        **settings,
        "l1": fit.l1,
        "sd": fit.sd,
        "valid_pll": fit.network().pll(valid, learner.threads),
        "n_features": len(fit.features),
        "n_nonzero": fit.n_nonzero,
        "mean_length": float(fit.features.lengths.mean()),
        "violation": fit.violation,
        "structure_seconds": structure_seconds,
        "weights_seconds": fit.seconds,
    }


def check_grid(learner: Any, grid: dict[str, list[Any]] | str) -> dict[str, list[Any]]:
    """A grid by parameter name, from the name of one of the learner's own or from lists."""
    if isinstance(grid, str):
        if grid not in GRIDS:
            raise ParameterError(f"grid={grid!r} is not known; choose one of {', '.join(GRIDS)}, or give lists by parameter name")
        chosen: dict[str, list[Any]] = learner.paper_grid if grid == "paper" else learner.quick_grid
    else:
        chosen = grid
    for name, values in chosen.items():
        if name not in learner.get_params():
            raise ParameterError(f"the grid names {name!r}, but {type(learner).__name__} has {', '.join(learner.get_params())}")
        if not isinstance(values, list | tuple) or not len(values):
            raise ParameterError(f"the grid's {name!r} must be a list of at least one value, not {values!r}")
    return {name: [v.item() if isinstance(v, np.generic) else v for v in values] for name, values in chosen.items()}


def lasting_params(learner: Any, ignored: Collection[str] = ()) -> dict[str, str]:
    """The parameters that a result depends on, as texts."""
    without = {"progress", "threads", "memory", "domain", *ignored}
    return {name: repr(value) for name, value in learner.get_params().items() if name not in without}


def _owner(
    learner: Any, grid: dict[str, list[Any]], train: Dataset, valid: Dataset, tol: float, search_tol: float | None
) -> dict[str, Any]:
    params = lasting_params(learner, {"time_budget", *grid})
    tables = {"train": digest(train), "valid": digest(valid)}
    return {"learner": type(learner).__name__, "params": params, "grid": grid, "tol": tol, "all": search_tol == 0, **tables}


def _shown(value: Any) -> str:
    return (
        f"{value:.5g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else str(value)
    )
