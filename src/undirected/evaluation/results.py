"""What a comparison found: rows, tables, ranks and tests."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import DataError
from undirected.evaluation.published import published
from undirected.evaluation.runs import Row
from undirected.evaluation.significance import compute_mean_ranks, compute_wilcoxon_p
from undirected.kernels.types import Array
from undirected.store import write_whole
from undirected.tuning.tune import align_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED = ("npll", "ncmll", "cmll", "seconds", "structure_seconds", "weights_seconds", "n_features", "n_nonzero", "mean_length")


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

    @property
    def metrics(self) -> list[str]:
        """What the cells were scored by: ``npll``, and ``ncmll`` if it was asked for."""
        return ["npll", *(["ncmll"] if any(row.get("ncmll") is not None for row in self.rows) else [])]

    def scores(self, metric: str = "npll") -> tuple[list[str], Array]:
        """The data sets on which every learner has a score, and a matrix of scores with a column per learner."""
        lines = {name: [self.row(learner, name) for learner in self.learners] for name in self.datasets}
        found = {name: [row.get(metric) for row in line if row] for name, line in lines.items() if all(line)}
        full = {name: values for name, values in found.items() if None not in values}
        return list(full), np.array(list(full.values()), dtype=float).reshape(len(full), len(self.learners))

    def ranks(self, metric: str = "npll") -> dict[str, float]:
        """Each learner's mean rank over the data sets; 1 would be the best everywhere."""
        names, scores = self.scores(metric)
        return dict(zip(self.learners, compute_mean_ranks(scores).tolist(), strict=True)) if names else {}

    def p_values(self, metric: str = "npll") -> dict[tuple[str, str], float]:
        """Wilcoxon's signed-rank test between every two learners over the data sets, two-sided."""
        names, scores = self.scores(metric)
        pairs = itertools.combinations(range(len(self.learners)), 2) if names else ()
        return {(self.learners[i], self.learners[j]): compute_wilcoxon_p(scores[:, i], scores[:, j]) for i, j in pairs}

    def table(self, metric: str = "npll") -> tuple[list[str], list[list[tuple[str, bool]]]]:
        """The heading, and per data set the cells as text with whether they are the best: test score (published score)."""
        failed = {(row["learner"], row["dataset"]) for row in self.errors if row["fraction"] == self.largest}
        lines = []
        for name in self.datasets:
            cells = {learner: self.row(learner, name) for learner in self.learners}
            scores = {learner: row.get(metric) if row else None for learner, row in cells.items()}
            best = max((score for score in scores.values() if score is not None), default=0.0)
            line = [(name, False)]
            for learner, row in cells.items():
                value = row.get(f"published_{metric}") if row else None
                beside = f" ({value:.3f})" if value is not None else ""
                score = scores[learner]
                text = f"{score:.4f}{beside}" if score is not None else "failed" if (learner, name) in failed else "-"
                line.append((text, score is not None and score == best))
            lines.append(line)
        return [f"test {metric.upper()}", *self.learners], lines

    def summary(self, metric: str = "npll") -> list[list[str]]:
        """Lines below the table: seconds of tuning (or of scoring by CMLL), mean ranks."""
        which = "seconds" if metric == "npll" else "cmll_seconds"
        seconds = dict.fromkeys(self.learners, 0.0)
        for row in self.rows:
            if "error" not in row:
                seconds[row["learner"]] += row.get(which) or 0.0
        ranks = self.ranks(metric)
        lines = [["seconds, all", *(f"{value:,.0f}" for value in seconds.values())]]
        if len(self.learners) > 1 and len(self.datasets) > 1 and ranks:
            lines.append(["mean rank", *(f"{rank:.2f}" for rank in ranks.values())])
        return lines

    def p_table(self, metric: str = "npll") -> list[list[str]]:
        """The p-values as a table with wins and losses of the learner on the left; nothing for fewer than two data sets."""
        names, scores = self.scores(metric)
        if len(names) < 2 or len(self.learners) < 2:
            return []
        p = self.p_values(metric)
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
        out = ["per variable and row, higher is better, * the best; in brackets the published value"]
        if "ncmll" in self.metrics:
            splits = max(row.get("cmll_splits") or 0 for row in self.rows)
            drawn = "one random split" if splits == 1 else f"the mean of {splits} random splits"
            out.append(f"NCMLL: {drawn} of the variables into four groups (the papers' split is not known, and matters)")
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
        blocks: list[list[str]] = []
        for metric in self.metrics:
            head, lines = self.table(metric)
            plain = [[text + (" *" if best else "") for text, best in line] for line in lines]
            shown = align_columns([head, *plain, *self.summary(metric)])
            for k, line in enumerate(lines, 1):
                for text, best in line:
                    shown[k] = shown[k].replace(text + " *", mark(text + " *")) if best else shown[k]
            blocks += [shown, align_columns(self.p_table(metric)) if self.p_table(metric) else []]
        blocks.append(self.notes())
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def __str__(self) -> str:
        return self.to_text()

    def to_frame(self) -> Any:
        """The rows as a pandas frame, a column per setting (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame([_flat(row) for row in self.rows])

    def to_markdown(self) -> str:
        """The table with the best in bold, seconds, mean ranks and p-values."""
        blocks = []
        for metric in self.metrics:
            head, lines = self.table(metric)
            cells = [head, *([f"**{text}**" if best else text for text, best in line] for line in lines), *self.summary(metric)]
            blocks += [_markdown(block) for block in (cells, self.p_table(metric)) if block]
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
        out: dict[str, Any] = {"rows": self.rows}
        for metric in self.metrics:
            end = "" if metric == "npll" else f"_{metric}"
            out[f"mean_ranks{end}"] = self.ranks(metric)
            out[f"wilcoxon{end}"] = [{"learner": a, "other": b, "p": p} for (a, b), p in self.p_values(metric).items()]
        return out

    def plot(self, kind: str = "relative", **options: Any) -> Figure:
        """A figure: ``relative`` scores per data set, ``runtime`` against run time, or learning ``curves`` (see `plots.comparison`)."""
        from undirected.plots import draw_comparison

        return draw_comparison(self, kind, **options)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``results.json``, ``results.csv`` and ``results.md`` into a folder."""
        target = Path(folder)
        write_whole(target / "results.json", json.dumps(self.to_dict(), indent=1) + "\n")
        write_whole(target / "results.csv", self.to_csv())
        write_whole(target / "results.md", self.to_markdown())


def load_comparison(folder: str | os.PathLike[str]) -> Comparison:
    """The results that `compare` wrote into a folder."""
    path = Path(folder) / "results.json"
    try:
        return Comparison(json.loads(path.read_text("utf8"))["rows"])
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; run compare with this folder first") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a result of compare: {error}") from None


def add_published(row: Row) -> Row:
    if "error" in row:
        return row
    row = dict(row)
    for metric in PUBLISHED:
        values = published(metric, row["learner"], row["dataset"]) if row["fraction"] == 1 else []
        row[f"published_{metric}"] = values[0].value if values else None
        if values and metric == "npll":
            row["published_source"] = values[0].source
    if row["published_ncmll"] is None and row["published_cmll"] is not None:  # papers that print sums over variables
        row["published_ncmll"] = row["published_cmll"] / row["n_variables"]
    return row


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], ["---"] * len(lines[0]), *lines[1:]))


def _flat(row: Row) -> Row:
    settings = row.get("settings", {})
    return {**{k: v for k, v in row.items() if k != "settings"}, **{f"setting_{k}": v for k, v in settings.items()}}
