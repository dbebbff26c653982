"""The hot loops, native where the compiled module is there, in NumPy otherwise; both give the same answers."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType
from typing import NamedTuple


class Backend(NamedTuple):
    """The kernels in use: a name, the module, and why it is this one."""

    name: str
    module: ModuleType
    reason: str


@functools.cache
def backend() -> Backend:
    """The kernels in use; ``UNDIRECTED_KERNELS=reference`` asks for the NumPy ones."""
    reference = "undirected.kernels.reference"
    if os.environ.get("UNDIRECTED_KERNELS") == "reference":
        return Backend("reference", importlib.import_module(reference), "UNDIRECTED_KERNELS=reference is set")
    try:
        native = importlib.import_module("undirected.kernels._native")
    except ImportError as error:
        reason = f"the compiled kernels could not be loaded ({error}); reinstall where a C++20 compiler is found"
        return Backend("reference", importlib.import_module(reference), reason)
    return Backend("native", native, f"compiled, instruction set {native.instruction_set()}")
