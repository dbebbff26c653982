"""One cell of a comparison: a learner tuned on one data set, in a process of its own.

The process reads a pickled `Job` from standard input and writes the cell's row into a file. It ends when its standard input
does, so that nothing goes on behind the back of a comparison that was killed.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undirected import formats
from undirected.data.dataset import Dataset
from undirected.data.splits import holdout
from undirected.errors import DataError, UndirectedError
from undirected.evaluation.cmll import cmll
from undirected.store import OwnedFile
from undirected.structure.learner import Grid, Learner, describe_params
from undirected.tuning.run import Tuning
from undirected.tuning.settle import choose_settings

CMLL_BURN_IN, CMLL_SWEEPS = 100, 1000  # as in gssl-2012
HEADER_BYTES = 8  # before the job on standard input: how long it is


@dataclass
class Tables:
    """A data set's three splits."""

    name: str
    train: Dataset
    valid: Dataset
    test: Dataset


@dataclass
class Job:
    """What a cell is made of, and where its row, its ledger and its network go."""

    label: str
    learner: Learner
    grid: Grid
    tables: Tables
    fraction: float
    seed: int
    row_file: Path
    ledger: Path
    network_file: Path
    splits: int = 0  # of the variables, for CMLL
    refine: bool = True  # the prior, as `tune` does

    def describe(self) -> dict[str, Any]:
        """What the row depends on."""
        return {
            "label": self.label,
            "dataset": self.tables.name,
            "learner": f"{type(self.learner).__module__}.{type(self.learner).__qualname__}",
            "params": describe_params(self.learner),
            "grid": json.loads(json.dumps(self.grid)),
            "tables": [table.digest() for table in (self.tables.train, self.tables.valid, self.tables.test)],
            "fraction": self.fraction,
            "seed": self.seed,
            "refine": self.refine,
        }

    @property
    def file(self) -> OwnedFile:
        """Where the row is kept with what it was made of."""
        return OwnedFile(self.row_file, self.describe(), "a finished cell", "identity", "delete it")

    def make_failure(self, why: str) -> dict[str, Any]:
        """The row of a cell that could not be filled."""
        return {"learner": self.label, "dataset": self.tables.name, "fraction": self.fraction, "error": why}


def run(job: Job) -> dict[str, Any]:
    """Tune on the training and validation rows, score the test rows once; a cell that lacks its CMLL only is not tuned again."""
    row = find_tuned(job)
    if row is None:
        row = fill(job)
        keep(job, row)
    if not is_scored(job, row):
        try:
            row.update(score_conditionals(job))
        except (UndirectedError, MemoryError) as error:  # what was tuned is not lost
            row["cmll_error"] = str(error) or type(error).__name__
    return row


def keep(job: Job, row: dict[str, Any]) -> None:
    """Write the row with what it was made of."""
    job.file.save({"row": row})


def is_scored(job: Job, row: dict[str, Any]) -> bool:
    """Whether a row has the CMLL that was asked for."""
    return not job.splits or (row.get("cmll_splits"), row.get("cmll_sweeps")) == (job.splits, CMLL_SWEEPS)


def find_tuned(job: Job) -> dict[str, Any] | None:
    """The row of a cell, with or without CMLL, if it is there with its network and was made of the same things."""
    found = job.file.load_own()
    if found is None:
        return None
    row = found.get("row")
    if not isinstance(row, dict):
        raise DataError(f"{job.row_file} is not a finished cell (it has no row); delete it")
    row.setdefault("n_variables", len(job.tables.train.domain))  # older files do not tell
    return row if job.network_file.exists() and "error" not in row else None


def score_conditionals(job: Job) -> dict[str, Any]:
    """CMLL of the test rows: its mean over splits of the variables into four groups, its spread, and the sampling error of the mean."""
    network = formats.load(job.network_file)
    work = job.learner.start_work()
    began = work.now()
    options: dict[str, Any] = {"burn_in": CMLL_BURN_IN, "sweeps": CMLL_SWEEPS, "threads": job.learner.threads}
    found = [cmll(network, job.tables.test, seed=seed, **options) for seed in range(job.splits)]
    values = np.array([score.value for score in found])
    n = len(network.domain)
    return {
        "cmll": float(values.mean()),
        "ncmll": float(values.mean()) / n,
        "ncmll_spread": float(values.std(ddof=1)) / n if len(values) > 1 else None,
        "ncmll_se": float(np.sqrt(sum(score.standard_error**2 for score in found))) / len(found) / n,
        "cmll_splits": job.splits,
        "cmll_sweeps": CMLL_SWEEPS,
        "cmll_method": ", ".join(dict.fromkeys(score.method for score in found)),
        "cmll_seconds": work.now() - began,
    }


def fill(job: Job) -> dict[str, Any]:
    """Choose settings by the validation rows, keep the network, and score the test rows by PLL."""
    train = job.tables.train
    if job.fraction < 1:  # with one seed a smaller share is part of a larger
        train = holdout(train, job.fraction, job.seed)[1]
    work = job.learner.start_work()
    found, choice = choose_settings(Tuning(job.learner, job.grid, train, job.tables.valid, work, job.ledger), job.refine)
    found.unless_interrupted()
    fit = choice.fit
    network = fit.network(prune=True)
    pll = network.pll(job.tables.test, work.threads)
    network.save(job.network_file)
    used = fit.weights != 0
    return {
        "learner": job.label,
        "dataset": job.tables.name,
        "npll": pll / len(train.domain),
        "pll": pll,
        "n_variables": len(train.domain),
        "valid_pll": choice.trial.valid_pll,
        "n_features": len(fit.features),
        "n_nonzero": fit.n_nonzero,
        "mean_length": float(fit.features.lengths[used].mean()) if used.any() else 0.0,
        "structure_seconds": found.structure_seconds,
        "weights_seconds": found.weights_seconds,
        "seconds": found.seconds,
        "peak_bytes": measure_peak_bytes(),
        "settings": choice.trial.settings,
        "n_settings": len(found.trials),
        "complete": found.complete,
        "converged": fit.converged,
        "fraction": job.fraction,
        "train_rows": len(train),
        "threads": fit.threads,
    }


def measure_peak_bytes() -> int | None:
    """The most memory this process has held, where the system tells."""
    status = Path("/proc/self/status")
    if status.exists():  # rusage counts what the parent held when it started the process
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        return int(found[1]) * 1024 if found else None
    try:
        import resource
    except ImportError:
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # bytes on macOS


def _leave_with_parent() -> None:
    """Nothing more comes on standard input: it ends when the parent does."""

    def watch() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock a thread must not hold when Python ends
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Run the job on standard input; the row file holds the row, or the error."""
    size = int.from_bytes(sys.stdin.buffer.read(HEADER_BYTES), "little")
    job: Job = pickle.loads(sys.stdin.buffer.read(size))
    _leave_with_parent()
    try:
        row = run(job)
    except UndirectedError as error:
        row = job.make_failure(str(error))
    except MemoryError:
        row = job.make_failure("out of memory; give the learner a smaller `memory` (--memory), or use fewer --jobs")
    keep(job, row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
