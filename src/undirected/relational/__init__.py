"""Markov networks of relational data: entities of several types, the links between them, and attributes of both."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undirected.relational.data import RelationalData
    from undirected.relational.irm import IRM
    from undirected.relational.mrc import MRC
    from undirected.relational.msl import MSL
    from undirected.relational.treermn import TreeRMN

_HOMES = {
    "IRM": "undirected.relational.irm",
    "MRC": "undirected.relational.mrc",
    "MSL": "undirected.relational.msl",
    "RelationalData": "undirected.relational.data",
    "TreeRMN": "undirected.relational.treermn",
}

__all__ = ["IRM", "MRC", "MSL", "RelationalData", "TreeRMN"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'undirected.relational' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
