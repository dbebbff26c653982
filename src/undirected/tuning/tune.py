"""`tune`: settings of a learner chosen on validation data."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import Any

from undirected.data.readers import read_data
from undirected.data.splits import holdout
from undirected.errors import ParameterError, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.structure.learner import Grid, Learner
from undirected.structure.trials import Trial
from undirected.tuning.run import Tuning
from undirected.tuning.settle import choose_settings
from undirected.weights.fit import WeightFit
from undirected.work import Listener, Work


@dataclass
class Tuned:
    """The outcome of `tune`: ``learner`` is fitted with the best ``settings``, ``fit`` holds its weights; ``trials`` are all settings
    that were tried with what was measured of them; ``features`` are those of the best. Not ``complete`` if the time budget or Ctrl-C
    ended the tuning."""

    learner: Learner
    settings: dict[str, Any]
    valid_pll: float
    trials: list[Trial]
    features: FeatureSet = field(repr=False)
    fit: WeightFit = field(repr=False)
    complete: bool = True

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The trials as dictionaries: settings, ``valid_pll``, ``n_features``, seconds and the other measures side by side."""
        return [trial.to_row() for trial in self.trials]

    def to_frame(self) -> Any:
        """The trials as a pandas frame (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        rows = sorted(self.rows, key=lambda row: -row["valid_pll"])
        names = [name for name in rows[0] if name not in ("structure_seconds", "weights_seconds")]
        return "\n".join(align_columns([names, *([_format(row[name]) for name in names] for row in rows)]))


def align_columns(lines: list[list[str]]) -> list[str]:
    """Lines with columns of equal width, all but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([c.rjust(w) if k else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True))] for line in lines)
    return ["  ".join(line).rstrip() for line in padded]


def tune(
    learner: Learner,
    grid: Grid | str = "quick",
    train: Any = None,
    valid: Any = None,
    *,
    ledger: str | os.PathLike[str] | None = None,
    search_tol: float | None = None,
    refine: bool = True,
    seed: int = 0,
    progress: Listener | None = None,
    work: Work | None = None,
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
        at most 1e-3 and never below the learner's ``tol``; with very many features also where only a ten-thousandth of the objective
        is left to gain, as far as the last steps tell. A setting that scores one percent below the best so far, at ten
        times this tolerance or earlier with its score falling, is given up, and that is its score. The best structure's
        settings that come within half a percent of the best score are then settled at ``tol``. ``search_tol=0`` fits every
        setting to ``tol``.
    refine
        At the end also try the values of ``sd`` halfway, in proportion, between the best and its neighbours in the grid, and
        once more with those among the neighbours; they are taken if clearly better, by two standard errors.
    progress
        Called with every `Event`; a ``StructureTried`` comes after each structure. The learner's own ``progress`` by default.
    work
        Limits, clock and listener of a larger task, in place of the learner's own and of ``progress``.

    Examples
    --------
    >>> from undirected import AllPairs, datasets, tune
    >>> tuned = tune(AllPairs(), {"l1": [5.0, 20.0], "sd": [1.0]}, datasets.load("digits"), datasets.load("digits", "valid"))
    >>> tuned.settings["l1"]
    5.0
    """
    if train is None:
        raise ParameterError("tune needs training data")
    if work is None:
        work = Work.start(learner.threads, learner.memory, learner.time_budget, progress=progress or learner.progress)
    train = read_data(train, bins=learner.bins, missing=learner.missing)
    if valid is None:
        train, valid = holdout(train, 0.1, seed)
    valid = read_data(valid, domain=train.domain, missing=learner.missing)
    tuning = Tuning(learner, grid, train, valid, work, ledger, search_tol)
    found, choice = choose_settings(tuning, refine)
    trial, fit = choice.trial, choice.fit
    fitted: Learner = type(learner)(**{**learner.get_params(), **trial.settings})
    learned = fitted.recall(train, work.extend(), tuning) if found.learned is None and not found.interrupted else found.learned or {}
    fitted.adopt(train, fit, learned)
    if not fit.converged:
        warnings.warn(f"the best weights were stopped by {fit.stopped_by}, violation {fit.violation:.2g}", Unconverged, stacklevel=2)
    return Tuned(fitted, trial.settings, trial.valid_pll, found.trials, found.features, fit, found.complete)


def _format(value: Any) -> str:
    """A setting or measure as a short text."""
    if isinstance(value, float):
        return f"{value:.5g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
