"""The stream learners by the names the command line uses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undirected.errors import ParameterError

if TYPE_CHECKING:
    from undirected.streaming.learner import StreamLearner

LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "clusternet": ("clusternet.StreamedClusterNet", {}),
    "gssl": ("gssl.StreamedGSSL", {}),
    "dtsl": ("dtsl.StreamedDTSL", {}),
    "blm": ("search.StreamedSearch", {"method": "blm"}),
    "dp": ("search.StreamedSearch", {"method": "dp"}),
}


def find_stream_learner(name: str) -> tuple[Callable[..., StreamLearner], dict[str, Any]]:
    """The class of a stream learner, and the parameters that its name stands for."""
    if name not in LEARNERS:
        raise ParameterError(f"no stream learner is called {name!r}; choose one of {', '.join(LEARNERS)}")
    path, params = LEARNERS[name]
    module, _, kind = path.partition(".")
    found: Callable[..., StreamLearner] = getattr(importlib.import_module(f"undirected.streaming.{module}"), kind)
    return found, params
