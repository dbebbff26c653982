"""Learners against learners on many data sets, with the published values beside them."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.files import check_writable, write_whole
from undirected.data.readers import SPLITS, read_data
from undirected.data.splits import holdout
from undirected.errors import DataError, ParameterError
from undirected.evaluation.cell import Job, Tables
from undirected.evaluation.published import published
from undirected.evaluation.runs import Row, Work, file_name, finished, locked
from undirected.evaluation.significance import mean_ranks, wilcoxon_p
from undirected.kernels import default_threads
from undirected.kernels.types import Array
from undirected.structure.learner import Learner
from undirected.structure.names import DEFAULT_LEARNERS, LEARNERS, learner_class
from undirected.weights.tuning import aligned, check_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALID_SHARE, TEST_SHARE = 0.1, 0.15  # of a table that comes without splits, as in the papers
PUBLISHED = ("npll", "seconds", "structure_seconds", "weights_seconds", "n_features", "n_nonzero", "mean_length")


@dataclass
class Comparison:
    """The outcome of `compare`: one row per learner, data set and share of the training rows. Not ``complete`` if it was stopped."""

    rows: list[Row]
    complete: bool = True

    @property
    def learners(self) -> list[str]:
        return list(dict.fromkeys(row["learner"] for row in self.rows))

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(row["dataset"] for row in self.rows))

    @property
    def errors(self) -> list[Row]:
        return [row for row in self.rows if "error" in row]

    @property
    def largest(self) -> float:
        """The largest share of the training rows: the one the tables show."""
        return float(max((row["fraction"] for row in self.rows), default=1.0))

    def row(self, learner: str, dataset: str, fraction: float | None = None) -> Row | None:
        """The row of a cell, or None where it failed or was not asked for."""
        share = self.largest if fraction is None else fraction
        for row in self.rows:
            if (row["learner"], row["dataset"], row["fraction"]) == (learner, dataset, share) and "error" not in row:
                return row
        return None

    def scores(self) -> tuple[list[str], Array]:
        """The data sets on which every learner has a score, and a matrix of NPLLs with a column per learner."""
        lines = {name: [self.row(learner, name) for learner in self.learners] for name in self.datasets}
        full = {name: [row["npll"] for row in line if row] for name, line in lines.items() if all(line)}
        return list(full), np.array(list(full.values()), dtype=float).reshape(len(full), len(self.learners))

    def ranks(self) -> dict[str, float]:
        """Each learner's mean rank over the data sets; 1 would be the best everywhere."""
        names, scores = self.scores()
        return dict(zip(self.learners, mean_ranks(scores).tolist(), strict=True)) if names else {}

    def p_values(self) -> dict[tuple[str, str], float]:
        """Wilcoxon's signed-rank test between every two learners over the data sets, two-sided."""
        names, scores = self.scores()
        pairs = itertools.combinations(range(len(self.learners)), 2) if names else ()
        return {(self.learners[i], self.learners[j]): wilcoxon_p(scores[:, i], scores[:, j]) for i, j in pairs}

    def table(self) -> tuple[list[str], list[list[tuple[str, bool]]]]:
        """The heading, and per data set the cells as text with whether they are the best: test NPLL (published NPLL)."""
        failed = {(row["learner"], row["dataset"]) for row in self.errors if row["fraction"] == self.largest}
        lines = []
        for name in self.datasets:
            cells = {learner: self.row(learner, name) for learner in self.learners}
            best = max((row["npll"] for row in cells.values() if row), default=0.0)
            line = [(name, False)]
            for learner, row in cells.items():
                value = published("npll", learner, name)
                beside = f" ({value[0].value:.3f})" if value else ""
                text = f"{row['npll']:.4f}{beside}" if row else "failed" if (learner, name) in failed else "-"
                line.append((text, row is not None and row["npll"] == best))
            lines.append(line)
        return ["data set", *self.learners], lines

    def summary(self) -> list[list[str]]:
        """Lines below the table: seconds, mean ranks."""
        seconds = dict.fromkeys(self.learners, 0.0)
        for row in self.rows:
            if "error" not in row:
                seconds[row["learner"]] += row["seconds"]
        ranks = self.ranks()
        lines = [["seconds, all", *(f"{value:,.0f}" for value in seconds.values())]]
        if len(self.learners) > 1 and len(self.datasets) > 1 and ranks:
            lines.append(["mean rank", *(f"{rank:.2f}" for rank in ranks.values())])
        return lines

    def p_table(self) -> list[list[str]]:
        """The p-values as a table with wins and losses of the learner on the left; nothing for fewer than two data sets."""
        names, scores = self.scores()
        if len(names) < 2 or len(self.learners) < 2:
            return []
        p = self.p_values()
        lines = [["Wilcoxon p", *self.learners[1:]]]
        for i, a in enumerate(self.learners[:-1]):
            line = [a]
            for j, b in enumerate(self.learners[1:], 1):
                difference = scores[:, i] - scores[:, j]
                line.append(f"{p[a, b]:.3g} ({int((difference > 0).sum())}:{int((difference < 0).sum())})" if i < j else "")
            lines.append(line)
        return lines

    def notes(self) -> list[str]:
        """What the tables mean, and what is missing from them."""
        out = ["test NPLL, higher is better, * the best; in brackets the published value"]
        if self.p_table():
            out.append("Wilcoxon's signed-rank test over data sets, two-sided; in brackets wins and losses of the learner on the left")
        cut = [f"{row['learner']} on {row['dataset']}" for row in self.rows if not row.get("complete", True)]
        if cut:
            out.append(f"ended by the time budget before all settings were tried: {', '.join(cut)}")
        if not self.complete:
            out.append("stopped before all cells were done")
        return out

    def to_text(self, mark: Callable[[str], str] = str) -> str:
        """The tables for a terminal; ``mark`` may make the lines' best cells stand out."""
        head, lines = self.table()
        plain = [[text + (" *" if best else "") for text, best in line] for line in lines]
        shown = aligned([head, *plain, *self.summary()])
        for k, line in enumerate(lines, 1):
            for text, best in line:
                shown[k] = shown[k].replace(text + " *", mark(text + " *")) if best else shown[k]
        blocks = [shown, aligned(self.p_table()) if self.p_table() else [], self.notes()]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def __str__(self) -> str:
        return self.to_text()

    def to_frame(self) -> Any:
        """The rows as a pandas frame, a column per setting (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame([_flat(row) for row in self.rows])

    def to_markdown(self) -> str:
        """The table with the best in bold, seconds, mean ranks and p-values."""
        head, lines = self.table()
        cells = [head, *([f"**{text}**" if best else text for text, best in line] for line in lines), *self.summary()]
        blocks = [_markdown(block) for block in (cells, self.p_table()) if block]
        return "\n\n".join([*blocks, "\n".join(self.notes()).replace("* the best", "the best in bold")]) + "\n"

    def to_csv(self) -> str:
        flat = [_flat(row) for row in self.rows]
        out = io.StringIO()
        writer = csv.DictWriter(out, list(dict.fromkeys(name for row in flat for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return out.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Rows, mean ranks and p-values, as written to ``results.json``."""
        p_values = [{"learner": a, "other": b, "p": p} for (a, b), p in self.p_values().items()]
        return {"rows": self.rows, "mean_ranks": self.ranks(), "wilcoxon": p_values}

    def plot(self, kind: str = "relative", **options: Any) -> Figure:
        """A figure: ``relative`` scores per data set, ``runtime`` against run time, or learning ``curves`` (see `plots.comparison`)."""
        from undirected.plots.comparison import draw_comparison

        return draw_comparison(self, kind, **options)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``results.json``, ``results.csv`` and ``results.md`` into a folder."""
        target = Path(folder)
        write_whole(target / "results.json", json.dumps(self.to_dict(), indent=1) + "\n")
        write_whole(target / "results.csv", self.to_csv())
        write_whole(target / "results.md", self.to_markdown())


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
    seed: int = 0,
    progress: Callable[[int, int, Row], None] | None = None,
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
        Names or files, ``(train, valid, test)``, or a mapping of labels to either. A table without splits is divided at random,
        15 % for testing and 10 % for validation.
    grid
        ``"quick"``, ``"paper"``, or a mapping of labels to grids; see `tune`.
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
    progress
        Called as ``progress(cells done, cells, row)``.

    Examples
    --------
    >>> import undirected
    >>> results = undirected.compare(["chow-liu", "atomic"], ["digits"])
    >>> results.row("chow-liu", "digits")["npll"] > results.row("atomic", "digits")["npll"]
    True
    """
    if jobs < 1:
        raise ParameterError(f"jobs={jobs}: at least one")
    bad = [share for share in sizes if not 0 < share <= 1]
    if bad or not sizes:
        raise ParameterError(f"sizes are shares of the training rows above 0 and at most 1, not {bad or 'nothing'}")
    makers = _labelled_learners(learners)
    for learner in makers.values():
        learner.set_params(threads=threads or max(1, default_threads() // jobs))
        if time_budget is not None:
            learner.set_params(time_budget=time_budget)
    grids = _grids(grid, makers)
    tables = _labelled_tables(datasets, seed, makers)
    with tempfile.TemporaryDirectory() if folder is None else contextlib.nullcontext(folder) as place:
        target = Path(place)
        _make(target)
        lanes = [
            [Job(label, made, grids[label], each, size, seed, *_places(target, each.name, label, size)) for label, made in makers.items()]
            for each in tables
            for size in dict.fromkeys(sizes)
        ]
        with locked(target) as lock:
            return _filled(lanes, target, jobs, lock, progress)


def _filled(
    lanes: list[list[Job]], target: Path, jobs: int, lock: int | None, progress: Callable[[int, int, Row], None] | None
) -> Comparison:
    order = [job for lane in lanes for job in lane]
    rows = {id(job): _with_published(row) for job in order if (row := finished(job)) is not None}
    by_name = {(job.label, job.tables.name, job.fraction): id(job) for job in order}

    def so_far(complete: bool) -> Comparison:
        found = Comparison([rows[id(job)] for job in order if id(job) in rows], complete)
        found.save(target)
        return found

    def tell(row: Row) -> None:
        row = _with_published(row)
        rows[by_name[row["learner"], row["dataset"], row["fraction"]]] = row
        so_far(len(rows) == len(order))
        if progress is not None:
            progress(len(rows), len(order), row)

    todo = [missing for lane in lanes if (missing := [job for job in lane if id(job) not in rows])]
    try:
        Work(todo, tell, lock).run(min(jobs, len(todo)))
    except KeyboardInterrupt:
        if not rows:
            raise
        return so_far(False)
    return so_far(True)


def load_comparison(folder: str | os.PathLike[str]) -> Comparison:
    """The results that `compare` wrote into a folder."""
    path = Path(folder) / "results.json"
    try:
        return Comparison(json.loads(path.read_text("utf8"))["rows"])
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; run compare with this folder first") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a result of compare: {error}") from None


def _make(target: Path) -> None:
    try:
        for part in ("cells", "ledgers", "networks"):
            (target / part).mkdir(parents=True, exist_ok=True)
            check_writable(target / part / "new")
    except OSError as error:
        raise DataError(f"the folder {target} cannot be used: {error}") from None


def _places(target: Path, dataset: str, label: str, size: float) -> tuple[Path, Path, Path]:
    parts = (dataset,) if size == 1 else (dataset, repr(size))
    cell = f"{file_name(*parts, label)}.json"
    return target / "cells" / cell, target / "ledgers" / f"{file_name(*parts)}.jsonl", target / "networks" / cell


def _labelled_learners(learners: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(learners, str):
        learners = [learners]
    pairs = list(learners.items()) if isinstance(learners, Mapping) else [(_label(given), given) for given in learners]
    if not pairs:
        raise ParameterError("compare needs at least one learner")
    found: dict[str, Any] = {}
    for label, given in pairs:
        if label in found:
            raise ParameterError(f"two learners are called {label!r}; give a mapping of labels to learners")
        made = learner_class(given)() if isinstance(given, str) else given() if isinstance(given, type) else given
        if not isinstance(made, Learner):
            raise ParameterError(f"{given!r} is not a learner; choose one of {', '.join(LEARNERS)}, or give one of the classes")
        found[label] = type(made)(**made.get_params())
    return found


def _label(given: Any) -> str:
    return given if isinstance(given, str) else (given if isinstance(given, type) else type(given)).__name__


def _grids(grid: str | Mapping[str, Any], makers: dict[str, Any]) -> dict[str, dict[str, list[Any]]]:
    if not isinstance(grid, str):
        unknown = [label for label in grid if label not in makers]
        if unknown:
            raise ParameterError(f"grid names {unknown[0]!r}, which is not one of {', '.join(makers)}")
    return {label: check_grid(made, grid if isinstance(grid, str) else grid.get(label, "quick")) for label, made in makers.items()}


def _labelled_tables(datasets: Iterable[Any] | Mapping[str, Any], seed: int, makers: dict[str, Any]) -> list[Tables]:
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
    return [_tables(name, given, seed, how) for name, given in pairs]


def _tables(name: str, given: Any, seed: int, how: dict[str, Any]) -> Tables:
    from undirected.data.catalog import has_splits

    if isinstance(given, str | os.PathLike) and has_splits(os.fspath(given)):
        given = [f"{os.fspath(given)}:{split}" for split in SPLITS]
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


def _with_published(row: Row) -> Row:
    if "error" in row:
        return row
    row = dict(row)
    for metric in PUBLISHED:
        values = published(metric, row["learner"], row["dataset"]) if row["fraction"] == 1 else []
        row[f"published_{metric}"] = values[0].value if values else None
        if values and metric == "npll":
            row["published_source"] = values[0].source
    return row


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], ["---"] * len(lines[0]), *lines[1:]))


def _flat(row: Row) -> Row:
    settings = row.get("settings", {})
    return {**{k: v for k, v in row.items() if k != "settings"}, **{f"setting_{k}": v for k, v in settings.items()}}
