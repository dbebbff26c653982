"""The hot loops, native where the compiled module is there, in NumPy otherwise; both give the same answers."""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from types import ModuleType
from typing import NamedTuple

from undirected.errors import ParameterError

REFERENCE = "undirected.kernels.reference"


class SlowKernels(UserWarning):
    """The compiled kernels are missing: everything works, but many times slower."""


class Backend(NamedTuple):
    """The kernels in use: a name, the module, and why it is this one."""

    name: str
    module: ModuleType
    reason: str


@functools.cache
def backend() -> Backend:
    """The kernels in use; ``UNDIRECTED_KERNELS=reference`` asks for the NumPy ones, ``UNDIRECTED_ISA`` for an instruction set.

    The native kernels take the best instruction set that the machine has, unless another one is named: ``baseline``, which every
    machine has, ``avx2`` or ``avx512``. Where they cannot be loaded the NumPy ones are used, with a warning.
    """
    wanted = os.environ.get("UNDIRECTED_KERNELS") or "native"
    if wanted not in ("native", "reference"):
        raise ParameterError(f"UNDIRECTED_KERNELS is {wanted!r}; it may be 'native' or 'reference'")
    if wanted == "reference":
        return Backend("reference", importlib.import_module(REFERENCE), "UNDIRECTED_KERNELS=reference is set")
    try:
        from undirected.kernels import _native as native
    except ImportError as error:
        reason = f"the compiled kernels could not be loaded ({error}); reinstall where a C++20 compiler is found"
        warnings.warn(f"{reason}. Until then NumPy does their work, many times slower", SlowKernels, stacklevel=2)
        return Backend("reference", importlib.import_module(REFERENCE), reason)
    instructions = os.environ.get("UNDIRECTED_ISA")
    if instructions:
        try:
            native.set_instruction_set(instructions)
        except ValueError as error:
            raise ParameterError(f"UNDIRECTED_ISA: {error}") from None
    return Backend("native", native, f"compiled, instruction set {native.instruction_set()}")
