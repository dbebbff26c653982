"""Learners of relational data against each other: the table of the paper on hidden variables."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undirected.errors import check_number
from undirected.evaluation.published import published
from undirected.evaluation.runs import Row, make_file_name, run_kept
from undirected.relational.data import RelationalData
from undirected.relational.measures import rank_facts, score_cells
from undirected.relational.names import make_relational_learner
from undirected.store import OwnedFile, write_whole
from undirected.tuning.tune import align_columns
from undirected.work import MEMORY, Listener, Milestone, Work

DEFAULT = ("rmn0", "rmn1", "rmn2", "cvi", "treermn", "irm", "mrc", "msl")
FOLDS = 10
HEAD = [
    "data set", "learner", "CLL", "published", "binary CLL", "published", "AUC", "published", "MRR", "weights", "published", "s a fold",
    "published",
]  # fmt: skip


@dataclass(frozen=True)
class FoldScored(Milestone):
    """A learner has predicted one fold of one data set."""

    done: int
    total: int
    row: Row

    def __str__(self) -> str:
        row = self.row
        name = f"{row['dataset']} {row['learner']} fold {row['fold']}"
        cll, auc = (float("nan") if row[score] is None else row[score] for score in ("cll", "auc"))
        return f"{self.done}/{self.total}  {name}: CLL {cll:.4f}, AUC {auc:.3f}, {row['seconds']:.1f} s"


@dataclass
class RelationalComparison:
    """The outcome of `compare_relations`: a row for each fold, learner and data set."""

    rows: list[Row]
    complete: bool = True
    notes: list[str] = field(default_factory=list)

    def summary(self) -> list[Row]:
        """Mean and standard deviation over folds for each learner and data set."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            groups.setdefault((row["dataset"], row["learner"]), []).append(row)
        out = []
        for (dataset, learner), rows in groups.items():
            line: Row = {"dataset": dataset, "learner": learner, "folds": len(rows), "dim_theta": rows[0]["dim_theta"]}
            for name in ("cll", "binary_cll", "auc", "mrr", "seconds"):
                values = [row[name] for row in rows if row[name] is not None]
                line[name] = float(np.mean(values)) if values else None
                line[f"{name}_sd"] = float(np.std(values)) if values else None
            out.append(line)
        return out

    def table(self) -> tuple[list[str], list[list[str]]]:
        """A line for each learner and data set, with the published values."""
        return HEAD, [_make_line(line) for line in self.summary()]

    def describe(self) -> list[str]:
        """What the table means."""
        out = [
            f"all known attributes are cut at random into {FOLDS} folds; one is hidden while learning and predicted then: mean ± standard "
            "deviation over folds",
            "CLL: mean log-probability of the hidden values, cut off at log 1e-6; binary CLL: each state of an attribute of several states "
            "counts as an attribute of its own",
            "AUC: area under the precision-recall curve of all hidden atoms of a fold together, as average precision",
            "MRR: of hidden true facts among the hidden false ones of the same relation and entity",
            "published: Lao, Zhu, Liu, Liu and Cohen, NIPS 2010, Table 4, on other folds; rows of irm, mrc and msl are quoted from Kok "
            "and Domingos (2007), whose methods were given 10 to 24 hours on 2.8 GHz; seconds of the others on one core of 2.33 GHz",
        ]
        return [*out, *self.notes, *([] if self.complete else ["stopped before all was done"])]

    def to_text(self) -> str:
        """The table for a terminal."""
        head, lines = self.table()
        return "\n\n".join("\n".join(block) for block in (align_columns([head, *lines]), self.describe()))

    __str__ = to_text

    def to_markdown(self) -> str:
        """The table as Markdown."""
        head, lines = self.table()
        block = "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))
        return block + "\n\n" + "\n".join(f"- {note}" for note in self.describe()) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """As written to ``relations.json``: a row for each learner and data set, with published values, and all folds."""
        rows = []
        for line in self.summary():
            quoted = {
                f"published_{metric}": published(f"relational_{metric}", line["learner"], line["dataset"]) for metric in ("cll", "auc")
            }
            rows.append({**line, **{name: found[0].value if found else None for name, found in quoted.items()}})
        return {"rows": rows, "folds": self.rows, "complete": self.complete}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``relations.json`` and ``relations.md`` into a folder."""
        write_whole(Path(folder) / "relations.json", json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        write_whole(Path(folder) / "relations.md", self.to_markdown())


def compare_relations(
    learners: Sequence[str] = DEFAULT,
    datasets: Mapping[str, RelationalData] | Iterable[tuple[str, RelationalData]] = (),
    *,
    folds: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    time_budget: float | None = None,
    memory: int = MEMORY,
    seed: int = 0,
    progress: Listener | None = None,
) -> RelationalComparison:
    """Hide each tenth of the known attributes in turn, learn from the rest, and predict it.

    Parameters
    ----------
    learners
        Of ``rmn0``, ``rmn1``, ``rmn2``, ``cvi``, ``treermn``, ``irm``, ``mrc``, ``msl``. Settings are those of the paper on its data sets;
        ``treermn`` has the defaults, which choose by themselves.
    datasets
        A mapping of labels to relational data.
    folds
        How many of the ten folds are done; by default all.
    folder
        Keeps finished folds, and the table: started again with it, the work goes on.
    time_budget, memory
        Seconds for one learner on one fold, and bytes that its tables may take.
    """
    check_number("folds", FOLDS if folds is None else folds, 1, FOLDS, whole=True)
    pairs = list(datasets.items() if isinstance(datasets, Mapping) else datasets)
    for name in learners:
        make_relational_learner(name, "")
    work = Work.start(threads, progress=progress)
    jobs = [
        _Job(name, label, data, k, seed, threads, time_budget, memory)
        for label, data in pairs
        for name in dict.fromkeys(learners)
        for k in range(folds or FOLDS)
    ]
    found = RelationalComparison([])
    run_kept(found, jobs, None if folder is None else Path(folder), "relations", lambda k, row: work.emit(FoldScored(k, len(jobs), row)))
    return found


@dataclass
class _Job:
    """One learner on one fold of one data set."""

    name: str
    label: str
    data: RelationalData
    fold: int
    seed: int
    threads: int | None
    time_budget: float | None
    memory: int

    def find_file(self, folder: Path) -> OwnedFile:
        owner = {
            "learner": self.name, "settings": repr(self._make().set_params(threads=None, memory=MEMORY)),
            "data": digest_data(self.data), "fold": self.fold, "seed": self.seed, "time_budget": self.time_budget,
        }  # fmt: skip
        return OwnedFile(folder / "relations" / f"{make_file_name(self.label, self.name, str(self.fold))}.json", owner, "a finished fold")

    def _make(self) -> Any:
        return make_relational_learner(self.name, self.label, threads=self.threads, memory=self.memory, time_budget=self.time_budget)

    def run(self) -> Row:
        """Learn and score."""
        marks = self.data.draw_fold(FOLDS, self.fold, self.seed)
        learner = self._make()
        learner.fit(self.data.hide(marks))
        clock = Work.start()
        began = clock.now()
        predicted = learner.predict_proba()
        scores, ranks = score_cells(self.data, marks, predicted), rank_facts(self.data, marks, predicted)
        return {
            "dataset": self.label, "learner": self.name, "fold": self.fold, "cll": _clean(scores.cll), "auc": _clean(scores.auc),
            "binary_cll": _clean(scores.binary_cll), "n": scores.n, "mrr": _clean(ranks.mrr),
            "hits": {str(k): v for k, v in ranks.hits.items()} if ranks.n else None, "dim_theta": getattr(learner, "dim_theta_", None),
            "hidden": [h.n_categories for h in getattr(learner, "hidden_", [])], "l1": getattr(learner, "l1_", None),
            "beta": getattr(learner, "beta_", None),
            "stopped_by": str(learner.stopped_by_), "seconds": learner.seconds_, "predict_seconds": clock.now() - began,
        }  # fmt: skip


def _clean(value: float) -> float | None:
    """A number as JSON has it: nothing in place of one that is none."""
    return None if np.isnan(value) else value


def digest_data(data: RelationalData) -> str:
    """A fingerprint of types, attributes and links."""
    sums = hashlib.sha256(repr(data.schema.types).encode())
    for table in data.tables:
        sums.update(str(table.cells.codes.shape).encode())
        sums.update(table.cells.codes.astype("<i4").tobytes())
        sums.update(table.arguments.astype("<i4").tobytes())
    return sums.hexdigest()[:32]


def _make_line(line: Row) -> list[str]:
    dataset, learner = line["dataset"], line["learner"]

    def quote(metric: str, digits: int) -> str:
        found = published(metric, learner, dataset)
        spread = published(f"{metric}_sd", learner, dataset)
        if not found:
            return "-"
        return f"{found[0].value:.{digits}f}" + (f" ± {spread[0].value:.{digits}f}" if spread else "")

    def show(name: str, digits: int) -> str:
        return "-" if line[name] is None else f"{line[name]:.{digits}f} ± {line[f'{name}_sd']:.{digits}f}"

    count = "-" if line["dim_theta"] is None else f"{line['dim_theta']:,}"
    dims = [f"{int(v.value):,}" for v in published("dim_theta", learner, dataset)[:1]] or ["-"]
    seconds = [f"{v.value:,.0f}" for v in published("relational_seconds", learner, dataset)[:1]] or ["-"]
    return [
        dataset, learner, show("cll", 4), quote("relational_cll", 3), show("binary_cll", 4), quote("relational_binary_cll", 3),
        show("auc", 3), quote("relational_auc", 2), "-" if line["mrr"] is None else f"{line['mrr']:.3f}", count, dims[0],
        f"{line['seconds']:.1f}", seconds[0],
    ]  # fmt: skip
