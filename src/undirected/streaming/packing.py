"""The state of a stream as one file: a tree of JSON values and named arrays, with a checksum; never pickle."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np

from undirected.errors import FormatError
from undirected.kernels.types import Array

MAGIC = b"undirected-stream"
VERSION = 1
KINDS = {"bool", "uint8", "int8", "int16", "int32", "int64", "float64"}
_HEAD = struct.Struct("<17sBQ")  # magic, version, length of the header

Arrays = dict[str, Array]
Tree = dict[str, Any]


def pack(tree: Tree, arrays: Arrays) -> bytes:
    """Pack a tree of JSON values and some arrays into bytes."""
    flat = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    listed = [[name, array.dtype.name, list(array.shape)] for name, array in flat.items()]
    header = json.dumps({"tree": tree, "arrays": listed}, separators=(",", ":")).encode()
    parts = [_HEAD.pack(MAGIC, VERSION, len(header)), header, *(array.tobytes() for array in flat.values())]
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return b"".join([*parts, total.digest()])


def unpack(content: bytes, name: str) -> tuple[Tree, Arrays]:
    """Read what `pack` has written; whatever is not so is an error that names the file."""
    if not content.startswith(MAGIC) or len(content) < _HEAD.size + 32:
        raise FormatError(f"{name} is not a stream's state" if content else f"{name} is empty")
    _, version, length = _HEAD.unpack_from(content)
    if version != VERSION:
        raise FormatError(f"{name} has version {version} of the format; this program reads version {VERSION}")
    if hashlib.sha256(memoryview(content)[:-32]).digest() != content[-32:]:
        raise FormatError(f"{name} is damaged: its checksum does not fit")
    try:
        header = json.loads(content[_HEAD.size : _HEAD.size + length])
        arrays, at = {}, _HEAD.size + length
        for key, kind, shape in header["arrays"]:
            if kind not in KINDS:
                raise ValueError(f"an array of {kind}")
            n = int(np.prod(shape, dtype=np.int64))
            arrays[key] = np.frombuffer(content, dtype=kind, count=n, offset=at).reshape(shape).copy()
            at += arrays[key].nbytes
        if at != len(content) - 32:
            raise ValueError("too long")
        return header["tree"], arrays
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{name} is not a stream's state ({error})") from None


def check_array(
    arrays: Arrays, name: str, kind: str, length: int | None, *, least: float | None = None, below: float | None = None
) -> Array:
    """An array of a state that must have so many entries, of a kind (``i`` or ``f``), finite and in a range."""
    array = arrays[name]
    ok = array.dtype.kind == kind and (length is None or array.shape == (length,)) and bool(np.isfinite(array).all())
    if not ok or (array.size and ((least is not None and array.min() < least) or (below is not None and array.max() >= below))):
        raise ValueError(f"{name} does not fit")
    return array


def add_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Name arrays as those of one part of a state."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def take_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Take the arrays of one part of a state, by the names that they have there."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(prefix + ".")}
