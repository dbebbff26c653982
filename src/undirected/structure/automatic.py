"""The default: a few learners tuned on rows that are set aside, within a time budget; the best of them learns from all rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from undirected.data.dataset import Dataset
from undirected.errors import Unconverged
from undirected.structure.learner import Grid
from undirected.structure.names import learner_class
from undirected.weights.tuning import Tuned, tune

BUDGET = 60.0  # seconds
MANY_PAIRS = 30_000  # features from which not all pairs are tried but features drawn from the rows
MANY_COUNTS = 5e10  # rows times pairs of literals from which no tree is tried
LAST = 0.3  # of the time budget, for learning again from all rows
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


def choose_learner(
    train: Dataset,
    valid: Dataset,
    *,
    time_budget: float | None = None,
    progress: Callable[[str, float, float], None] | None = None,
    **params: Any,
) -> Chosen:
    """Tune each of a few learners over penalties from weak to strong and keep the best; ``progress`` is told name, score and seconds.

    Every candidate gets an equal share of the time that is left. Ctrl-C ends with the best so far.
    """
    budget = (BUDGET if time_budget is None else time_budget) * (1 - LAST)
    names = candidates(train)
    deadline = time.monotonic() + budget
    best: Chosen | None = None
    scores: dict[str, float] = {}
    complete = True
    for k, name in enumerate(names):
        began = time.monotonic()
        left = deadline - began
        if left <= 0 and best is not None:
            break
        given, grid = CANDIDATES[name]
        learner = learner_class(name)(**given, **params, time_budget=max(0.1, left / (len(names) - k)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unconverged)  # told by the result
            tuned = tune(learner, grid, train, valid, refine=False)
        complete = complete and tuned.complete
        scores[name] = tuned.valid_pll
        if best is None or tuned.valid_pll > best.tuned.valid_pll:
            best = Chosen(name, tuned, scores)
        if tuned.fit.stopped_by == "interrupt":
            best.interrupted = True
            break
        if progress is not None:
            progress(name, tuned.valid_pll, time.monotonic() - began)
    assert best is not None
    best.complete = complete and len(scores) == len(names)
    return best


def candidates(data: Dataset) -> list[str]:
    """The learners that are tried on a table, the cheapest first; no tree where counting all pairs would take the whole budget."""
    n = data.domain.n_literals - len(data.domain)
    rest = ["all-pairs" if n * (n + 1) // 2 <= MANY_PAIRS else "gssl", "dtsl"]
    return rest if data.n_distinct * float(n) ** 2 > MANY_COUNTS else ["chow-liu", *rest]
