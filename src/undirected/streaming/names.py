"""The stream learners by the names the command line uses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from undirected.errors import FormatError, ParameterError
from undirected.streaming.learner import StreamLearner

LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "clusternet": ("clusternet.StreamedClusterNet", {}),
    "gssl": ("gssl.StreamedGSSL", {}),
    "dtsl": ("dtsl.StreamedDTSL", {}),
    "blm": ("search.StreamedSearch", {"search": "blm"}),
    "dp": ("search.StreamedSearch", {"search": "dp"}),
}


def find_stream_learner(name: str) -> tuple[Callable[..., StreamLearner], dict[str, Any]]:
    """The class of a stream learner, and the parameters that its name stands for."""
    if name not in LEARNERS:
        raise ParameterError(f"no stream learner is called {name!r}; choose one of {', '.join(LEARNERS)}")
    path, params = LEARNERS[name]
    module, _, kind = path.partition(".")
    found: Callable[..., StreamLearner] = getattr(importlib.import_module(f"undirected.streaming.{module}"), kind)
    return found, params


def find_class_of_state(kind: Any, name: str) -> Callable[..., StreamLearner]:
    """The class of the learner whose state a file holds; ``name`` is the file's."""
    for learner in LEARNERS:
        found, _ = find_stream_learner(learner)
        if getattr(found, "kind", None) == kind:
            return found
    raise FormatError(f"{name} is the state of the learner {str(kind)[:40]!r}, which this program does not know")
