"""The learners by the names the command line uses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from undirected.errors import ParameterError

if TYPE_CHECKING:
    from undirected.structure.learner import Learner

LEARNERS = {
    "auto": "auto.Auto",
    "gssl": "gssl.GSSL",
    "clusternet": "clusternet.ClusterNet",
    "dtsl": "dtsl.DTSL",
    "l1": "l1.L1",
    "dt+l1": "dt_l1.DTL1",
    "blm": "blm.BLM",
    "dt-blm": "dt_blm.DTBLM",
    "dp": "della_pietra.DellaPietra",
    "busl": "busl.BUSL",
    "all-pairs": "all_pairs.AllPairs",
    "chow-liu": "chow_liu.ChowLiu",
    "atomic": "atomic.Atomic",
}
DEFAULT_LEARNERS = ("gssl", "l1", "dtsl", "dt+l1", "atomic")  # of a comparison


def find_learner_class(name: str) -> Callable[..., Learner]:
    if name not in LEARNERS:
        raise ParameterError(f"no learner is called {name!r}; choose one of {', '.join(LEARNERS)}")
    module, _, kind = LEARNERS[name].partition(".")
    found: Callable[..., Learner] = getattr(importlib.import_module(f"undirected.structure.{module}"), kind)
    return found
