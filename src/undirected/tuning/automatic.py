"""The default: a few learners tuned on rows that are set aside, within a time budget; the best of them learns from all rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from undirected.data.dataset import Dataset
from undirected.errors import Unconverged
from undirected.structure.learner import Grid
from undirected.structure.names import find_learner_class
from undirected.tuning.tune import Tuned, tune
from undirected.work import Milestone, StoppedBy, Work

DEFAULT_SECONDS = 60.0
LEAST_SECONDS = 0.1  # that each candidate gets
MANY_PAIRS = 30_000  # features from which not all pairs are tried but features drawn from the rows
MANY_COUNTS = 5e10  # rows times pairs of literals from which no tree is tried
RELEARN_SHARE = 0.3  # of the time budget, for learning again from all rows
STRONG = {"l1": [1.0, 2.0, 5.0, 10.0, 20.0, 50.0], "sd": [1.0]}
CANDIDATES: dict[str, tuple[dict[str, Any], Grid]] = {
    "chow-liu": ({}, {"sd": [0.3, 1.0, 5.0]}),
    "all-pairs": ({}, STRONG),
    "gssl": ({"n_generated": 300_000, "threshold": 5}, {"l1": [2.0, 5.0, 10.0, 20.0, 50.0], "sd": [0.5]}),
    "dtsl": ({}, {"kappa": ["best"], "conversion": ["prune"], "l1": [1.0, 5.0, 20.0], "sd": [1.0]}),
}


@dataclass
class Chosen:
    """The learner with the best score on the rows set aside, and what the others came to: ``scores`` by name."""

    name: str
    tuned: Tuned
    scores: dict[str, float] = field(default_factory=dict)
    complete: bool = True
    interrupted: bool = False


@dataclass(frozen=True)
class LearnerTried(Milestone):
    """One of the candidates has been tuned."""

    name: str
    score: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: held-out PLL {self.score:.6f}, {self.seconds:.1f} s"


def choose_learner(train: Dataset, valid: Dataset, work: Work, **params: Any) -> Chosen:
    """Tune each of a few learners over penalties from weak to strong, and keep the best.

    All of them together get the time budget (a minute where there is none) but for the share that learning again from all rows takes;
    every candidate gets an equal share of what is left. Ctrl-C ends with the best so far.
    """
    work = work.limit((work.left() if work.limited else DEFAULT_SECONDS) * (1 - RELEARN_SHARE))
    names = list_candidates(train)
    best: Chosen | None = None
    scores: dict[str, float] = {}
    complete = True
    for k, name in enumerate(names):
        began = work.now()
        if work.left() <= 0 and best is not None:
            break
        given, grid = CANDIDATES[name]
        learner = find_learner_class(name)(**given, **params)
        own = work.extend(max(LEAST_SECONDS, work.left() / (len(names) - k)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unconverged)  # told by the result
            tuned = tune(learner, grid, train, valid, refine=False, work=own.without_milestones())
        complete = complete and tuned.complete
        scores[name] = tuned.valid_pll
        if best is None or tuned.valid_pll > best.tuned.valid_pll:
            best = Chosen(name, tuned, scores)
        if tuned.fit.stopped_by is StoppedBy.INTERRUPT:
            best.interrupted = True
            break
        work.emit(LearnerTried(name, tuned.valid_pll, work.now() - began))
    assert best is not None
    best.complete = complete and len(scores) == len(names)
    return best


def list_candidates(data: Dataset) -> list[str]:
    """The names of the learners that are tried on a table, the cheapest first; no tree where counting all pairs takes too long."""
    n = data.domain.n_literals - len(data.domain)
    rest = ["all-pairs" if n * (n + 1) // 2 <= MANY_PAIRS else "gssl", "dtsl"]
    return rest if data.n_distinct * float(n) ** 2 > MANY_COUNTS else ["chow-liu", *rest]
