"""Learners chunk by chunk against the same learners on all rows at once: the tables of the paper on streams."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.readers import SPLITS, read_data
from undirected.errors import ParameterError, check_number
from undirected.evaluation.cmll import cmll
from undirected.evaluation.published import published
from undirected.evaluation.runs import Row, make_file_name, run_kept
from undirected.network.network import MarkovNetwork
from undirected.store import OwnedFile, write_whole
from undirected.streaming.names import find_stream_learner
from undirected.structure.names import find_learner_class
from undirected.tuning.tune import align_columns
from undirected.work import Listener, Milestone, Work

DEFAULT = ("clusternet", "gssl", "dtsl")
MODES = ("batch", "stream")
SCORED_ROWS = 2000  # of a chunk, for CMLL
NEAR = 0.25  # the share by which a published value may differ from ours and still be on its scale


@dataclass(frozen=True)
class StreamCompared(Milestone):
    """One learner has gone over one data set, in one of the two modes."""

    done: int
    total: int
    row: Row

    def __str__(self) -> str:
        row = self.row
        score = "" if row["cmll"] is None else f", CMLL {row['cmll']:.3f}"
        name = f"{row['dataset']} {row['learner']} {row['mode']}"
        return f"{self.done}/{self.total}  {name}: NPLL {row['npll']:.4f}{score}, {row['n_features']:,} features, {row['seconds']:.1f} s"


@dataclass
class StreamComparison:
    """The outcome of `compare_streams`: two rows for each learner and data set."""

    rows: list[Row]
    complete: bool = True
    notes: list[str] = field(default_factory=list)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """A line for each row: scores, the published value, features, seconds."""
        head = [
            "data set",
            "learner",
            "mode",
            "NPLL",
            "NPLL last",
            "CMLL",
            "CMLL/4",
            "published",
            "its scale",
            "features",
            "published",
            "s",
        ]
        return head, [_make_line(row) for row in self.rows]

    def chunk_table(self) -> tuple[list[str], list[list[str]]]:
        """NPLL of each chunk before it was learned."""
        chunked = [row for row in self.rows if row["mode"] == "stream"]
        most = max((len(row["npll_by_chunk"]) for row in chunked), default=0)
        head = ["NPLL by chunk", "learner", *(str(k) for k in range(2, most + 2))]
        return head, [[row["dataset"], row["learner"], *(f"{value:.4f}" for value in row["npll_by_chunk"])] for row in chunked]

    def describe(self) -> list[str]:
        """What the tables mean, and what can be compared."""
        out = [
            "stream: each chunk is scored before it is learned, the first one not at all; means over the scored chunks",
            "batch: all rows but the last chunk's are learned at once, and the last chunk is scored: compare it with NPLL last",
            "CMLL: four random groups of variables, the sum over groups; on at most "
            f"{SCORED_ROWS:,} rows of each chunk. The paper's split is not known",
            "published: Chandra, Karande and Khan, Tables IV and V. Their values are on mixed scales: beside each stands which of our "
            f"CMLL, CMLL/4 and PLL is nearest, if one is within {NEAR:.0%}; only values on one scale can be compared, none with 'none'",
        ]
        return [*out, *self.notes, *([] if self.complete else ["stopped before all was done"])]

    def to_text(self) -> str:
        """The tables for a terminal."""
        blocks = [align_columns([head, *lines]) for head, lines in (self.table(), self.chunk_table()) if lines]
        return "\n\n".join("\n".join(block) for block in (*blocks, self.describe()))

    __str__ = to_text

    def to_markdown(self) -> str:
        """The tables as Markdown."""
        blocks = []
        for head, lines in (self.table(), self.chunk_table()):
            blocks.append("\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines)))
        return "\n\n".join([*blocks, "\n".join(f"- {note}" for note in self.describe())]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """The rows, as written to ``streams.json``."""
        return {"rows": self.rows, "complete": self.complete}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``streams.json`` and ``streams.md`` into a folder."""
        write_whole(Path(folder) / "streams.json", json.dumps(self.to_dict(), indent=1) + "\n")
        write_whole(Path(folder) / "streams.md", self.to_markdown())


def compare_streams(
    learners: Sequence[str] = DEFAULT,
    datasets: Iterable[Any] | Mapping[str, Any] = ("digits",),
    chunks: int = 10,
    *,
    folder: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    time_budget: float | None = None,
    cmll_splits: int = 1,
    seed: int = 0,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Listener | None = None,
) -> StreamComparison:
    """Run stream learners over data sets in chunks, and their batch learners over the same rows at once.

    Parameters
    ----------
    learners
        Names of stream learners: ``clusternet``, ``gssl``, ``dtsl``, ``blm``, ``dp``.
    datasets
        Names, files or tables, or a mapping of labels to them. Of a data set with splits all rows count: training, validation, test.
    chunks
        How many chunks the rows are cut into.
    folder
        Keeps finished rows, and the tables: started again with it, the work goes on.
    time_budget
        Seconds for one batch learner.
    cmll_splits
        Random splits of the variables for CMLL; 0 leaves it out.
    params
        By learner, parameters of the stream learner other than the defaults; ``l1`` and ``sd`` count for its batch learner, too.
    progress
        Called with a ``StreamCompared`` after every row.
    """
    check_number("chunks", chunks, 2, whole=True)
    check_number("cmll_splits", cmll_splits, 0, whole=True)
    names = list(dict.fromkeys(learners))
    for name in names:
        find_stream_learner(name)
    tables = _label(datasets)
    work = Work.start(threads, progress=progress)
    jobs = [
        _Job(mode, name, label, table, chunks, seed, cmll_splits, threads, time_budget, dict((params or {}).get(name, {})))
        for label, table in tables
        for name in names
        for mode in MODES
    ]
    found = StreamComparison([])
    run_kept(found, jobs, None if folder is None else Path(folder), "streams", lambda k, row: work.emit(StreamCompared(k, len(jobs), row)))
    return found


def _label(datasets: Iterable[Any] | Mapping[str, Any]) -> list[tuple[str, Dataset]]:
    """The tables with their labels: all rows of each, in their order."""
    if isinstance(datasets, str):
        datasets = [datasets]
    pairs = datasets.items() if isinstance(datasets, Mapping) else [(str(d), d) for d in datasets]
    return [(str(label), read_all_rows(given)) for label, given in pairs]


def read_all_rows(given: Any) -> Dataset:
    """All rows of a data set: of one with splits those for training, validation and test, one after another."""
    from undirected.data.catalog import has_splits

    if isinstance(given, str | os.PathLike) and has_splits(os.fspath(given)):
        train = read_data(f"{os.fspath(given)}:{SPLITS[0]}")
        parts = [train, *(read_data(f"{os.fspath(given)}:{split}", domain=train.domain) for split in SPLITS[1:])]
        codes, weights = np.concatenate([part.codes for part in parts]), np.concatenate([part.weights for part in parts])
        return Dataset(train.domain, codes, weights, os.fspath(given))
    data = read_data(given)
    data.require_complete("comparing")
    return data


@dataclass
class _Job:
    """One learner on one data set in one mode."""

    mode: str
    name: str
    label: str
    data: Dataset
    chunks: int
    seed: int
    splits: int
    threads: int | None
    time_budget: float | None
    params: dict[str, Any]

    def find_file(self, folder: Path) -> OwnedFile:
        owner = {
            "mode": self.mode, "learner": self.name, "table": self.data.digest(), "chunks": self.chunks, "seed": self.seed,
            "splits": self.splits, "time_budget": self.time_budget, "params": self.params,
        }  # fmt: skip
        path = folder / "streams" / f"{make_file_name(self.label, self.name, self.mode)}.json"
        return OwnedFile(path, owner, "a finished row", remedy="delete it")

    def run(self) -> Row:
        """Learn and score."""
        size = -(-len(self.data) // self.chunks)
        pieces = [self._cut(at, at + size) for at in range(0, len(self.data), size)]
        if len(pieces) < 2:
            raise ParameterError(f"{self.label} has {len(self.data):,} rows: too few for chunks")
        learned = self._run_stream(pieces) if self.mode == "stream" else self._run_batch(size * (len(pieces) - 1), pieces[-1])
        found = [published(metric, self.name, self.label) for metric in (f"{self.mode}_cmll", "n_collected")]
        score, collected = (values[0].value if values else None for values in found)
        if self.mode == "stream":
            collected = None  # the paper counts those of all rows at once
        return {
            "learner": self.name, "dataset": self.label, "mode": self.mode, "chunks": len(pieces), "rows": len(self.data),
            "n_variables": len(self.data.domain), **learned, "published_cmll": score,
            "published_n_features": None if collected is None else int(collected),
            "published_scale": None if score is None else find_scale(score, learned, len(self.data.domain)),
        }  # fmt: skip

    def _cut(self, a: int, b: int) -> Dataset:
        return Dataset(self.data.domain, self.data.codes[a:b], self.data.weights[a:b], self.data.source)

    def _score(self, network: MarkovNetwork, rows: Dataset) -> float | None:
        some = Dataset(rows.domain, rows.codes[:SCORED_ROWS], rows.weights[:SCORED_ROWS])
        found = [cmll(network, some, seed=seed, threads=self.threads).value for seed in range(self.splits)]
        return float(np.mean(found)) if found else None

    def _run_stream(self, pieces: list[Dataset]) -> Row:
        make, fixed = find_stream_learner(self.name)
        own = {"threads": self.threads, "random_state": self.seed, "watch": "none", "domain": self.data.domain}
        learner = make(**{**own, **fixed, **self.params})
        work = Work.start()
        nplls: list[float] = []
        cmlls: list[float] = []
        stages = {"structure": 0.0, "weights": 0.0, "score": 0.0}
        began, scoring = work.now(), 0.0
        for k, piece in enumerate(pieces):
            if k and self.splits:
                at = work.now()
                cmlls.append(self._score(learner.network_, piece) or 0.0)
                scoring += work.now() - at
            learner.learn_many(piece)
            assert learner.last_ is not None
            if k:
                nplls.append(learner.last_.npll)
            for stage, seconds in learner.last_.seconds.items():
                stages[stage] += seconds
        return {
            "npll": float(np.mean(nplls)), "npll_last": nplls[-1], "cmll": float(np.mean(cmlls)) if cmlls else None,
            "npll_by_chunk": nplls, "cmll_by_chunk": cmlls, "n_features": len(learner.network_.features),
            "n_nonzero": int((learner.network_.weights != 0).sum()), "structure_seconds": stages["structure"],
            "weights_seconds": stages["weights"], "seconds": work.now() - began - scoring,
        }  # fmt: skip

    def _run_batch(self, n_train: int, last: Dataset) -> Row:
        make, fixed = find_stream_learner(self.name)
        stream = make(**fixed, **self.params)
        batch: Any = find_learner_class(self.name)
        learner = batch(l1=stream.l1, sd=stream.sd, threads=self.threads, time_budget=self.time_budget)
        if "random_state" in learner.get_params():
            learner.set_params(random_state=self.seed)
        work = Work.start()
        began = work.now()
        learner.fit(self._cut(0, n_train))
        seconds = work.now() - began
        npll = learner.network_.pll(last, self.threads) / len(last.domain)
        score = self._score(learner.network_, last)
        return {
            "npll": npll, "npll_last": npll, "cmll": score, "npll_by_chunk": [npll], "cmll_by_chunk": [] if score is None else [score],
            "n_features": len(learner.fit_.features), "n_nonzero": learner.fit_.n_nonzero,
            "structure_seconds": max(0.0, seconds - learner.fit_.seconds), "weights_seconds": learner.fit_.seconds, "seconds": seconds,
        }  # fmt: skip


def find_scale(value: float, ours: Row, n_variables: int) -> str:
    """On which scale a published value seems to be, judged by our scores."""
    scales = {"PLL": ours["npll"] * n_variables}
    if ours["cmll"] is not None:
        scales |= {"CMLL": ours["cmll"], "CMLL/4": ours["cmll"] / 4}
    distance, name = min((abs(value / score - 1), name) for name, score in scales.items())
    return name if distance <= NEAR else "none"


def _make_line(row: Row) -> list[str]:
    score = row["cmll"]
    return [
        row["dataset"], row["learner"], row["mode"], f"{row['npll']:.4f}", f"{row['npll_last']:.4f}",
        *(["-", "-"] if score is None else [f"{score:.3f}", f"{score / 4:.3f}"]),
        "-" if row["published_cmll"] is None else f"{row['published_cmll']:.2f}", row["published_scale"] or "-", f"{row['n_features']:,}",
        "-" if row["published_n_features"] is None else f"{row['published_n_features']:,}", f"{row['seconds']:.1f}",
    ]  # fmt: skip
