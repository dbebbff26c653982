"""Questions to a network: marginals, most probable assignments, samples, the partition function.

`Session` prepares a network once for many questions. Names load what they need when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Answer": "undirected.inference.answer",
    "BestStates": "undirected.inference.map_state",
    "Evidence": "undirected.inference.evidence",
    "LogLikelihood": "undirected.inference.session",
    "LogPartition": "undirected.inference.partition",
    "Session": "undirected.inference.session",
    "exact_sample": "undirected.inference.session",
    "open_session": "undirected.inference.session",
    "read_partial": "undirected.inference.completion",
    "score_known_cells": "undirected.inference.gaps",
}

__all__ = [
    "Answer", "BestStates", "Evidence", "LogLikelihood", "LogPartition", "Session", "exact_sample", "open_session", "read_partial",
    "score_known_cells",
]  # fmt: skip

if TYPE_CHECKING:
    from undirected.inference.answer import Answer
    from undirected.inference.completion import read_partial
    from undirected.inference.evidence import Evidence
    from undirected.inference.gaps import score_known_cells
    from undirected.inference.map_state import BestStates
    from undirected.inference.partition import LogPartition
    from undirected.inference.session import LogLikelihood, Session, exact_sample, open_session


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'undirected.inference' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
