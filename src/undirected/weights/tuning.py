"""Settings chosen on validation data: every structure once, weights along warm-started paths, a ledger of what is done."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.readers import read_data
from undirected.data.splits import holdout
from undirected.errors import FormatError, ParameterError, Unconverged
from undirected.features.feature_set import FeatureSet
from undirected.weights.fit import fit_path

GRIDS = ("quick", "paper")


@dataclass
class Tuned:
    """The outcome of `tune`: ``learner`` is fitted with the best ``settings``; ``rows`` are all that were tried, each with its
    settings, ``valid_pll``, ``n_features`` and seconds."""

    learner: Any
    settings: dict[str, Any]
    valid_pll: float
    rows: list[dict[str, Any]]
    features: FeatureSet = field(repr=False)

    def to_frame(self) -> Any:
        """The rows as a pandas frame (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        names = [name for name in self.rows[0] if name not in ("structure_seconds", "weights_seconds")]
        ranked = sorted(self.rows, key=lambda row: -row["valid_pll"])
        cells = [names, *([_shown(row[name]) for name in names] for row in ranked)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(names))]
        return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in cells)


def tune(
    learner: Any,
    grid: dict[str, list[Any]] | str = "quick",
    train: Any = None,
    valid: Any = None,
    *,
    ledger: str | os.PathLike[str] | None = None,
    seed: int = 0,
    refit: bool = True,
    progress: Callable[[int, int, dict[str, Any]], None] | None = None,
) -> Tuned:
    """Try every setting of a grid and keep the one with the best validation pseudo-likelihood.

    Parameters
    ----------
    learner
        Any learner; the parameters that the grid does not name stay as they are.
    grid
        Lists of values by parameter name, or ``"quick"`` or ``"paper"`` for the learner's own.
    train, valid
        Tables, as `read_data` takes them. Without ``valid`` a tenth of the rows is set aside, drawn with ``seed``.
    ledger
        A file that keeps finished settings: an interrupted run, started again with the same file, goes on where it stopped
        and ends with the same result.
    refit
        Whether to fit the learner with the best settings at the end.
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
    chosen = _grid(learner, grid)
    train = read_data(train, bins=learner.bins, missing=learner.missing)
    if valid is None:
        train, valid = holdout(train, 0.1, seed)
    valid = read_data(valid, domain=train.domain, missing=learner.missing)
    book = None if ledger is None else Ledger(Path(ledger), _identity(learner, chosen, train, valid))
    rows, features = _try_all(learner, chosen, train, valid, book, progress)
    best = max(rows, key=lambda row: row["valid_pll"])
    settings = {name: value for name, value in best.items() if name not in MEASURED}
    fitted = type(learner)(**{**learner.get_params(), **settings})
    if refit:
        fitted.fit(train)
    return Tuned(fitted, settings, best["valid_pll"], rows, features)


def _try_all(
    learner: Any,
    grid: dict[str, list[Any]],
    train: Dataset,
    valid: Dataset,
    book: Ledger | None,
    progress: Callable[[int, int, dict[str, Any]], None] | None,
) -> tuple[list[dict[str, Any]], FeatureSet]:
    """A row per setting, and the features of the best."""
    pairs = list(itertools.product(grid.get("l1", [learner.l1]), grid.get("sd", [learner.sd])))
    rows: list[dict[str, Any]] = []
    best: dict[str, Any] = {"valid_pll": -np.inf}
    features = atoms = FeatureSet.atomic(train.domain)
    began = time.monotonic()
    for done, proposal in enumerate(learner.proposals(train, valid, grid), 1):
        candidates = proposal.features.union(atoms)
        seconds = time.monotonic() - began
        found = None if book is None else book.find(proposal.settings)
        if found is None:
            found = _weigh(learner, candidates, train, valid, proposal.settings, pairs, seconds)
            if book is not None:
                book.add(proposal.settings, found)
        rows += found
        leader = max(found, key=lambda row: row["valid_pll"])
        if leader["valid_pll"] > best["valid_pll"]:
            best, features = leader, candidates
        if progress is not None:
            progress(done, len(rows), best)
        began = time.monotonic()
    return rows, features


MEASURED = ("valid_pll", "n_features", "n_nonzero", "mean_length", "converged", "structure_seconds", "weights_seconds")


def _weigh(
    learner: Any,
    features: FeatureSet,
    train: Dataset,
    valid: Dataset,
    settings: dict[str, Any],
    pairs: list[tuple[float, float]],
    structure_seconds: float,
) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)  # told by the row
        fits = fit_path(
            features, train, pairs, tol=learner.tol, threads=learner.threads, memory=learner.memory, time_budget=learner.time_budget
        )
    if any(fit.stopped_by == "interrupt" for fit in fits):
        raise KeyboardInterrupt
    return [
        {
            **settings,
            "l1": fit.l1,
            "sd": fit.sd,
            "valid_pll": fit.network().pll(valid, learner.threads),
            "n_features": len(features),
            "n_nonzero": fit.n_nonzero,
            "mean_length": float(features.lengths.mean()),
            "converged": fit.converged,
            "structure_seconds": structure_seconds,
            "weights_seconds": fit.seconds,
        }
        for fit in fits
    ]


class Ledger:
    """Finished settings, one JSON line each; the first line says what they belong to."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path = path
        self.done: dict[str, list[dict[str, Any]]] = {}
        try:
            if path.exists():
                self._read(identity)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._append(identity)
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{path} cannot serve as a ledger: {error}") from None

    def _read(self, identity: dict[str, Any]) -> None:
        text = self.path.read_text(encoding="utf-8")
        whole, _, cut = text.rpartition("\n")
        if cut:  # a line that a kill cut short counts for nothing
            with self.path.open("r+", encoding="utf-8") as file:
                file.truncate(len((whole + "\n").encode() if whole else b""))
        lines = [line for line in whole.split("\n") if line]
        if not lines:
            self._append(identity)
            return
        try:
            first, *entries = (json.loads(line) for line in lines)
            self.done = {entry["key"]: entry["rows"] for entry in entries}
        except (ValueError, KeyError, TypeError):
            raise FormatError(f"{self.path} is not a ledger of tune; name another file or delete it") from None
        if first != json.loads(json.dumps(identity)):
            raise FormatError(f"{self.path} belongs to another learner, grid or table; name another file or delete it")

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def find(self, settings: dict[str, Any]) -> list[dict[str, Any]] | None:
        return self.done.get(_key(settings))

    def add(self, settings: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self.done[_key(settings)] = rows
        self._append({"key": _key(settings), "rows": rows})


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _grid(learner: Any, grid: dict[str, list[Any]] | str) -> dict[str, list[Any]]:
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
    return {name: list(values) for name, values in chosen.items()}


def _identity(learner: Any, grid: dict[str, list[Any]], train: Dataset, valid: Dataset) -> dict[str, Any]:
    ignored = {"progress", "threads", "memory", "time_budget", *grid}
    params = {name: repr(value) for name, value in learner.get_params().items() if name not in ignored}
    return {"learner": type(learner).__name__, "params": params, "grid": grid, "train": digest(train), "valid": digest(valid)}


def digest(data: Dataset) -> str:
    """A fingerprint of a table's contents."""
    out = hashlib.sha256(repr([(v.name, v.states) for v in data.domain.variables]).encode())
    out.update(np.ascontiguousarray(data.codes, dtype=np.int16).tobytes())
    out.update(np.ascontiguousarray(data.weights).tobytes())
    return out.hexdigest()[:32]


def _shown(value: Any) -> str:
    return (
        f"{value:.5g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else str(value)
    )
