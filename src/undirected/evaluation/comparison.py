"""Learners against learners on many data sets, with the published values beside them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undirected.data.readers import SPLITS, read_data
from undirected.data.splits import holdout
from undirected.errors import DataError, ParameterError
from undirected.evaluation.cell import Job, Tables
from undirected.evaluation.results import Comparison, add_published
from undirected.evaluation.runs import CellRunner, Row, find_finished, lock_folder, make_file_name
from undirected.store import check_writable
from undirected.structure.learner import Learner
from undirected.structure.names import DEFAULT_LEARNERS, LEARNERS, find_learner_class
from undirected.tuning.grids import check_grid
from undirected.work import Listener, Milestone, Work, count_cores

QUICK_TOL = 1e-3  # of weights under the quick grids, in searches too; scores move little
VALID_SHARE, TEST_SHARE = 0.1, 0.15  # of a table that comes without splits, as in the papers


@dataclass(frozen=True)
class CellFilled(Milestone):
    """One more cell of a comparison is filled, or has failed; ``row`` is what there is to tell of it."""

    done: int
    total: int
    row: Row

    def __str__(self) -> str:
        row = self.row
        name = f"{row['dataset']} {row['learner']}" + (f" on {row['fraction']:g} of the rows" if row["fraction"] != 1 else "")
        if "error" in row:
            return f"{self.done}/{self.total}  {name}: failed: {row['error']}"
        conditional = f", NCMLL {row['ncmll']:.4f}" if row.get("ncmll") is not None else ""
        scores = f"test NPLL {row['npll']:.4f}{conditional}, {row['seconds']:.1f} s, {row['n_settings']} settings"
        return f"{self.done}/{self.total}  {name}: {scores}"


def compare(
    learners: Sequence[Any] | Mapping[str, Any] = DEFAULT_LEARNERS,
    datasets: Iterable[Any] | Mapping[str, Any] = ("digits",),
    *,
    grid: str | Mapping[str, Any] = "quick",
    sizes: Sequence[float] = (1.0,),
    folder: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    threads: int | None = None,
    time_budget: float | None = None,
    cmll_splits: int = 1,
    seed: int = 0,
    progress: Listener | None = None,
) -> Comparison:
    """Tune every learner on every data set, and score the test rows once.

    Settings are chosen by the pseudo-likelihood of the validation rows alone. Each cell runs in a process of its own, which is
    how its peak memory is measured.

    Parameters
    ----------
    learners
        Names (``"dtsl"``), learners, or a mapping of labels to either. Classes of your own must be importable. All must agree
        on ``bins`` and ``missing``, by which tables are read.
    datasets
        Names, files, folders with a train, a valid and a test file, ``(train, valid, test)``, or a mapping of labels to any of these. A
        table without splits is divided at random,
        15 % for testing and 10 % for validation.
    grid
        ``"quick"``, ``"paper"``, or a mapping of labels to grids; see `tune`. With ``"quick"`` weights are learned to a tolerance of
        1e-3 and priors are not refined.
    sizes
        Shares of the training rows, for learning curves; smaller ones are parts of larger ones.
    folder
        Keeps finished cells and settings: a comparison that was killed, started again with the same folder, goes on where it
        stopped and ends with the same results. ``results.json``, ``.csv`` and ``.md`` are written there after every cell.
        Ctrl-C returns the cells that are done.
    jobs, threads
        Data sets worked on at a time, and cores for each (all cores divided by ``jobs``).
    time_budget
        Seconds after which a cell's search tries no further structure; bringing the best to its tolerance comes after.
    cmll_splits
        Random splits of the variables for which the test rows' CMLL is measured (see `cmll`); 0 leaves it out.
    progress
        Called with a ``CellFilled`` after every cell.

    Examples
    --------
    >>> import undirected
    >>> results = undirected.compare(["chow-liu", "atomic"], ["digits"])
    >>> results.row("chow-liu", "digits")["npll"] > results.row("atomic", "digits")["npll"]
    True
    """
    _check(sizes, jobs, cmll_splits)
    quick = grid == "quick"
    makers = _label_learners(learners)
    for learner in makers.values():
        budget = learner.time_budget if time_budget is None else time_budget
        tol = max(learner.tol, QUICK_TOL) if quick else learner.tol
        learner.set_params(threads=threads or max(1, count_cores() // jobs), time_budget=budget, tol=tol)
    grids = _choose_grids(grid, makers)
    tables = _label_tables(datasets, seed, makers)
    with tempfile.TemporaryDirectory() if folder is None else contextlib.nullcontext(folder) as place:
        target = Path(place)
        _make_folders(target)
        lanes = [
            [
                Job(label, made, grids[label], each, size, seed, *_choose_files(target, each.name, label, size), cmll_splits, not quick)
                for label, made in makers.items()
            ]
            for each in tables
            for size in dict.fromkeys(sizes)
        ]
        with lock_folder(target) as lock:
            return _fill_cells(lanes, target, jobs, lock, Work.start(progress=progress))


def _check(sizes: Sequence[float], jobs: int, cmll_splits: int) -> None:
    if cmll_splits < 0:
        raise ParameterError(f"cmll_splits={cmll_splits}: zero or more")
    if jobs < 1:
        raise ParameterError(f"jobs={jobs}: at least one")
    bad = [share for share in sizes if not 0 < share <= 1]
    if bad or not sizes:
        raise ParameterError(f"sizes are shares of the training rows above 0 and at most 1, not {bad or 'nothing'}")


def _fill_cells(lanes: list[list[Job]], target: Path, jobs: int, lock: int | None, work: Work) -> Comparison:
    """Run the cells that are missing, and write the results after each."""
    order = [job for lane in lanes for job in lane]
    rows = {id(job): add_published(row) for job in order if (row := find_finished(job)) is not None}
    by_name = {(job.label, job.tables.name, job.fraction): id(job) for job in order}

    def so_far(complete: bool) -> Comparison:
        found = Comparison([rows[id(job)] for job in order if id(job) in rows], complete)
        found.save(target)
        return found

    def report(row: Row) -> None:
        row = add_published(row)
        rows[by_name[row["learner"], row["dataset"], row["fraction"]]] = row
        so_far(len(rows) == len(order))
        work.emit(CellFilled(len(rows), len(order), row))

    todo = [missing for lane in lanes if (missing := [job for job in lane if id(job) not in rows])]
    try:
        CellRunner(todo, report, lock).run(min(jobs, len(todo)))
    except KeyboardInterrupt:
        if not rows:
            raise
        return so_far(False)
    return so_far(True)


def _make_folders(target: Path) -> None:
    try:
        for part in ("cells", "ledgers", "networks"):
            (target / part).mkdir(parents=True, exist_ok=True)
            check_writable(target / part / "new")
    except OSError as error:
        raise DataError(f"the folder {target} cannot be used: {error}") from None


def _choose_files(target: Path, dataset: str, label: str, size: float) -> tuple[Path, Path, Path]:
    parts = (dataset,) if size == 1 else (dataset, repr(size))
    cell = f"{make_file_name(*parts, label)}.json"
    return target / "cells" / cell, target / "ledgers" / f"{make_file_name(*parts)}.jsonl", target / "networks" / cell


def _label_learners(learners: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(learners, str):
        learners = [learners]
    pairs = list(learners.items()) if isinstance(learners, Mapping) else [(_label(given), given) for given in learners]
    if not pairs:
        raise ParameterError("compare needs at least one learner")
    found: dict[str, Any] = {}
    for label, given in pairs:
        if label in found:
            raise ParameterError(f"two learners are called {label!r}; give a mapping of labels to learners")
        made = find_learner_class(given)() if isinstance(given, str) else given() if isinstance(given, type) else given
        if not isinstance(made, Learner):
            raise ParameterError(f"{given!r} is not a learner; choose one of {', '.join(LEARNERS)}, or give one of the classes")
        found[label] = type(made)(**made.get_params())
    return found


def _label(given: Any) -> str:
    return given if isinstance(given, str) else (given if isinstance(given, type) else type(given)).__name__


def _choose_grids(grid: str | Mapping[str, Any], makers: dict[str, Any]) -> dict[str, dict[str, list[Any]]]:
    if not isinstance(grid, str):
        unknown = [label for label in grid if label not in makers]
        if unknown:
            raise ParameterError(f"grid names {unknown[0]!r}, which is not one of {', '.join(makers)}")
    return {label: check_grid(made, grid if isinstance(grid, str) else grid.get(label, "quick")) for label, made in makers.items()}


def _label_tables(datasets: Iterable[Any] | Mapping[str, Any], seed: int, makers: dict[str, Any]) -> list[Tables]:
    if isinstance(datasets, str):
        datasets = [datasets]
    if isinstance(datasets, Mapping):
        pairs = list(datasets.items())
    else:
        pairs = [(os.fspath(d) if isinstance(d, str | os.PathLike) else f"table {k}", d) for k, d in enumerate(datasets, 1)]
    if not pairs:
        raise ParameterError("compare needs at least one data set")
    names = [name for name, _ in pairs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ParameterError(f"the data set {sorted(twice)[0]!r} is named twice")
    ways = {(made.bins, made.missing) for made in makers.values()}
    if len(ways) > 1:
        raise ParameterError("the learners differ in bins or missing; a comparison reads each table one way for all")
    bins, missing = ways.pop()
    how = {"bins": bins, "missing": missing}
    return [_read_tables(name, given, seed, how) for name, given in pairs]


def _find_splits(folder: Path) -> list[Path]:
    """The files of a folder that are named after splits: train.csv, valid.csv, test.csv, or with other suffixes."""
    found = []
    for split in SPLITS:
        files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.split(".")[0] == split]
        if len(files) != 1:
            told = f"{len(files)} files named {split}" if files else f"no file named {split}"
            raise DataError(f"{folder}: {told}; a folder holds one table each of {', '.join(SPLITS)}, such as {split}.csv")
        found += files
    return found


def _read_tables(name: str, given: Any, seed: int, how: dict[str, Any]) -> Tables:
    from undirected.data.catalog import has_splits

    if isinstance(given, str | os.PathLike) and has_splits(os.fspath(given)):
        given = [f"{os.fspath(given)}:{split}" for split in SPLITS]
    elif isinstance(given, str | os.PathLike) and Path(given).is_dir():
        given = _find_splits(Path(given))
    if isinstance(given, list | tuple):
        if len(given) != len(SPLITS):
            raise ParameterError(f"{name}: three tables are needed ({', '.join(SPLITS)}), or one that is divided at random")
        train = read_data(given[0], **how)
        valid, test = (read_data(table, domain=train.domain, missing=how["missing"]) for table in given[1:])
    else:
        rest, test = holdout(read_data(given, **how), TEST_SHARE, seed)
        train, valid = holdout(rest, VALID_SHARE / (1 - TEST_SHARE), seed + 1)
    for table in (train, valid, test):
        table.require_complete("comparing")
    return Tables(name, train, valid, test)
