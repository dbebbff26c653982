"""Switches the native kernels between the instruction sets of this machine, so that tests can hold all of them to the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from undirected.kernels import backend

INSTRUCTION_SETS = backend().module.instruction_sets() if backend().name == "native" else []


@contextmanager
def using(instruction_set: str) -> Iterator[None]:
    """Within it the native kernels use this instruction set."""
    native = backend().module
    before = native.instruction_set()
    native.set_instruction_set(instruction_set)
    try:
        yield
    finally:
        native.set_instruction_set(before)
