"""``.npz`` files: packed benchmark splits, SciPy sparse matrices, plain arrays. Checked fully before anything is converted."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.arrays import binary_table, from_array, from_sparse
from undirected.data.dataset import check_weights
from undirected.data.files import check_size, unpacked_budget
from undirected.data.raw import RawTable
from undirected.errors import DataError, FormatError, UndirectedError
from undirected.kernels.types import Array

SPLITS = ("train", "valid", "test")
SPARSE = ("csr", "csc", "coo", "bsr", "dia")


def read_npz(path: Path, split: str | None) -> RawTable:
    """An ``.npz``: packed benchmark splits, a SciPy sparse matrix, or plain arrays (``X``, ``names``, ``weights``)."""
    try:
        arrays = _load_arrays(path)
    except UndirectedError:
        raise
    except Exception as error:  # a broken archive makes its readers raise almost anything
        raise FormatError(f"{path}: not an .npz file ({_told(error)})") from None
    try:
        return _from_arrays(path, arrays, split)
    except UndirectedError:
        raise
    except Exception as error:
        raise FormatError(f"{path}: its arrays do not make a table ({_told(error)})") from None


def npz_splits(path: Path) -> set[str]:
    """Which splits an ``.npz`` of packed benchmark splits holds; none if it is something else."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return set()  # reading it will tell
    return set(SPLITS) & names if "n_vars" in names else set()


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an archive whose declared sizes have been held against a budget and against what is there."""
    size = path.stat().st_size
    check_size(path, size)
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        total, most = sum(member.file_size for member in members), unpacked_budget(size)
        if total > most:
            raise FormatError(f"{path}: its {size:,} bytes unpack to {total:,}, more than the {most:,} that are read")
        for member in members:
            with archive.open(member) as file:
                content = file.read(member.file_size + 1)
            arrays[member.filename.removesuffix(".npy")] = _read_array(content)
    return arrays


def _read_array(content: bytes) -> Array:
    """One ``.npy``; its header must tell just what is there."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array in version {version} of the format")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array of shape {shape} that is cut off or too long")
    flat = np.frombuffer(content, dtype, offset=file.tell())
    if dtype.kind == "U" and flat.size and dtype.itemsize and flat.view(np.dtype("u4").newbyteorder(dtype.byteorder)).max() > 0x10FFFF:
        raise ValueError("a text with characters that do not exist")
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _from_arrays(path: Path, arrays: dict[str, Array], split: str | None) -> RawTable:
    source = str(path)
    if {"n_vars", "train"} <= arrays.keys():
        return _unpack_split(path, arrays, split or "train")
    if split is not None:
        raise DataError(f"{path} has no splits")
    if {"format", "shape"} <= arrays.keys():
        return from_sparse(_sparse(arrays), source)
    names = [str(n) for n in arrays.pop("names", np.array([]))] or None
    weights = arrays.pop("weights", None)
    if "X" not in arrays and len(arrays) != 1:
        raise DataError(f"{path} holds {', '.join(sorted(arrays)) or 'no arrays'}; a table is expected under the name X")
    table = from_array(arrays.get("X", next(iter(arrays.values()))), source, names)
    table.weights = None if weights is None else check_weights(weights, table.n_rows, source)
    return table


def _unpack_split(path: Path, arrays: dict[str, Array], split: str) -> RawTable:
    if split not in arrays:
        raise DataError(f"{path} has no split {split!r}; it has {', '.join(s for s in SPLITS if s in arrays)}")
    packed, n = arrays[split], int(arrays["n_vars"])
    if packed.ndim != 2 or packed.dtype != np.uint8 or not 1 <= n <= 8 * packed.shape[1]:
        raise FormatError(f"{path}: the split {split!r} does not hold {n} packed variables")
    names = [str(name) for name in arrays.get("names", np.array([]))] or None
    if names is not None and len(names) != n:
        raise FormatError(f"{path}: {len(names)} names for {n} variables")
    return binary_table(np.unpackbits(packed, axis=1, count=n), names, f"{path}:{split}")


def _sparse(arrays: dict[str, Array]) -> Any:
    """A SciPy matrix of arrays that are known to fit together: out of range indices would crash the process inside SciPy."""
    import scipy.sparse as sp

    kind = arrays["format"].item()
    kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
    if kind not in SPARSE:
        raise ValueError(f"sparse format {kind!r}")
    shape = tuple(int(n) for n in arrays["shape"].ravel())
    if len(shape) != 2 or min(shape) < 0 or max(shape) >= 1 << 31:
        raise ValueError(f"shape {shape}")
    data = arrays["data"]
    if kind == "coo":
        row, column = arrays["row"], arrays["col"]
        _check_indices(row, shape[0], data.shape)
        _check_indices(column, shape[1], data.shape)
        return sp.coo_matrix((data, (row, column)), shape=shape)
    if kind == "dia":
        offsets = arrays["offsets"]
        if (
            data.ndim != 2
            or offsets.shape != data.shape[:1]
            or offsets.dtype.kind not in "iu"
            or len(set(offsets.tolist())) != len(offsets)
        ):
            raise ValueError("diagonals that do not fit their offsets")
        if len(offsets) and not (-shape[0] < offsets.min() and offsets.max() < shape[1]):
            raise ValueError("a diagonal outside the matrix")
        return sp.dia_matrix((data, offsets), shape=shape)
    return _compressed(sp, kind, shape, data, arrays["indices"], arrays["indptr"])


def _compressed(sp: Any, kind: str, shape: tuple[int, int], data: Array, indices: Array, indptr: Array) -> Any:
    block = (1, 1)
    if kind == "bsr":
        if data.ndim != 3 or min(data.shape[1:]) < 1 or shape[0] % data.shape[1] or shape[1] % data.shape[2]:
            raise ValueError("blocks that do not fit the shape")
        block = data.shape[1:]
    elif data.ndim != 1:
        raise ValueError("data of more than one dimension")
    major, minor = (shape[0] // block[0], shape[1] // block[1]) if kind != "csc" else (shape[1], shape[0])
    _check_indices(indices, minor, data.shape[:1])
    if indptr.shape != (major + 1,) or indptr.dtype.kind not in "iu" or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError("indptr does not fit the shape")
    if (np.diff(indptr.astype(np.int64)) < 0).any():
        raise ValueError("indptr falls")
    build = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "bsr": sp.bsr_matrix}[kind]
    return build((data, indices, indptr), shape=shape)


def _check_indices(indices: Array, below: int, shape: tuple[int, ...]) -> None:
    if indices.shape != shape or indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise ValueError("indices that do not fit the data")
    if len(indices) and not (indices.min() >= 0 and indices.max() < below):
        raise ValueError(f"an index outside 0..{below - 1}")
