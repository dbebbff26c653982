"""``.npz`` files: packed benchmark splits, SciPy sparse matrices, plain arrays. Checked fully before anything is converted."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from undirected.data.arrays import ArrayReader, SparseReader, check_array, take_array, take_bits
from undirected.data.dataset import check_weights
from undirected.data.files import MAX_BYTES, NO_LIMIT, check_size, unpacked_budget
from undirected.data.raw import RawTable
from undirected.errors import DataError, FormatError, UndirectedError
from undirected.kernels.types import Array

SPLITS = ("train", "valid", "test")
SPARSE_FORMATS = ("csr", "csc", "coo", "bsr", "dia")


@dataclass(frozen=True)
class NpzReader:
    """An ``.npz``: packed benchmark splits, a SciPy sparse matrix, or plain arrays (``X``, ``names``, ``weights``)."""

    path: Path
    split: str | None = None

    @property
    def source(self) -> str:
        return str(self.path) if self.split is None else f"{self.path}:{self.split}"

    def read(self) -> RawTable:
        with self._tell_broken("not an .npz file"):
            arrays = self._load_arrays()
        with self._tell_broken("its arrays do not make a table"):
            return _from_arrays(self.path, arrays, self.split)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        with self._tell_broken("not an .npz file"), zipfile.ZipFile(self.path) as archive:
            self._check_unpacked_size(archive, NO_LIMIT)
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            if {"n_vars", "train"} <= names:
                yield from self._read_packed_chunks(archive, n_rows, start)
                return
            if self.split is not None:
                raise DataError(f"{self.path} has no splits")
            if {"format", "shape"} <= names:
                raise FormatError(
                    f"{self.path} holds a sparse matrix, which is read whole: use read_data, or load it with scipy.sparse.load_npz and "
                    "open the matrix as a source"
                )
            yield from self._read_plain_chunks(archive, names, n_rows, start)

    @contextmanager
    def _tell_broken(self, what: str) -> Iterator[None]:
        """Turn whatever the readers of a broken archive raise into an error of ours."""
        try:
            yield
        except UndirectedError:
            raise
        except Exception as error:  # almost anything
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise FormatError(f"{self.path}: {what} ({told})") from None

    def _load_arrays(self) -> dict[str, Array]:
        """Load the arrays of an archive whose declared sizes have been held against a budget and against what is there. Of packed
        splits, only the one asked for is loaded."""
        check_size(self.path, self.path.stat().st_size)
        arrays: dict[str, Array] = {}
        with zipfile.ZipFile(self.path) as archive:
            self._check_unpacked_size(archive, MAX_BYTES)
            members = archive.infolist()
            names = {member.filename.removesuffix(".npy") for member in members}
            others = set(SPLITS) - {self.split or "train"} if {"n_vars", "train"} <= names else set()
            for member in members:
                name = member.filename.removesuffix(".npy")
                arrays[name] = np.zeros(0) if name in others else _load_array(archive, member)
        return arrays

    def _check_unpacked_size(self, archive: zipfile.ZipFile, most: int) -> None:
        size = self.path.stat().st_size
        total, most = sum(member.file_size for member in archive.infolist()), min(most, unpacked_budget(size))
        if total > most:
            raise FormatError(f"{self.path}: its {size:,} bytes unpack to {total:,}, more than the {most:,} that are read")

    def _check_chunks(self, stored: _StoredArray, n_rows: int) -> None:
        """Raise where the rows of a chunk do not lie together in the file, or take too much memory."""
        if stored.fortran and stored.shape[1] > 1:
            raise FormatError(
                f"{self.path}: the array lies in the file column by column, so that no chunk of its rows can be read alone; save it with "
                "np.ascontiguousarray, or read it whole"
            )
        size = min(n_rows, stored.shape[0]) * stored.row_bytes
        if size > MAX_BYTES:
            raise FormatError(f"{self.path}: chunks of {n_rows:,} rows have {size:,} bytes, more than {MAX_BYTES:,}; take fewer rows")

    def _read_packed_chunks(self, archive: zipfile.ZipFile, n_rows: int, start: int) -> Iterator[RawTable]:
        info = {name: _load_array(archive, f"{name}.npy") for name in ("n_vars", "names") if f"{name}.npy" in archive.namelist()}
        split = self.split or "train"
        if f"{split}.npy" not in archive.namelist():
            raise _tell_no_split(self.path, split, {name.removesuffix(".npy") for name in archive.namelist()})
        with _StoredArray.open(archive, f"{split}.npy") as stored:
            n, names = _check_packed(self.path, split, stored.shape, stored.dtype, info)
            self._check_chunks(stored, n_rows)
            for rows in stored.read_chunks(n_rows, start):
                yield take_bits(np.unpackbits(rows, axis=1, count=n), names, f"{self.path}:{split}")

    def _read_plain_chunks(self, archive: zipfile.ZipFile, found: set[str], n_rows: int, start: int) -> Iterator[RawTable]:
        source = str(self.path)
        names = [str(n) for n in _load_array(archive, "names.npy")] or None if "names" in found else None
        weights = check_weights(w := _load_array(archive, "weights.npy"), len(w), source) if "weights" in found else None
        with _StoredArray.open(archive, f"{_find_table(self.path, found - {'names', 'weights'})}.npy") as stored:
            check_array(stored.shape, stored.dtype, source, names)
            if weights is not None:
                check_weights(weights, stored.shape[0], source)
            self._check_chunks(stored, n_rows)
            for rows in stored.read_chunks(n_rows, start):
                part = None if weights is None else weights[start : start + len(rows)]
                yield take_array(rows, source, names, part)
                start += len(rows)


@dataclass(frozen=True)
class _StoredArray:
    """An ``.npy`` in an archive, of which only the header has been read."""

    file: IO[bytes]
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @classmethod
    @contextmanager
    def open(cls, archive: zipfile.ZipFile, member: str) -> Iterator[_StoredArray]:
        with archive.open(member) as file:
            shape, fortran, dtype = _read_header(file)
            if math.prod(shape) * dtype.itemsize != archive.getinfo(member).file_size - file.tell():
                raise ValueError(f"an array of shape {shape} that is cut off or too long")
            yield cls(file, shape, fortran, dtype)

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def read_chunks(self, n_rows: int, start: int) -> Iterator[Array]:
        """Go through the rows from ``start`` on; the rows before are passed over."""
        width = self.row_bytes
        self.file.seek(start * width, io.SEEK_CUR)
        for at in range(start, self.shape[0], n_rows):
            n = min(n_rows, self.shape[0] - at)
            content = self.file.read(n * width)
            if len(content) != n * width:
                raise ValueError("an array that is cut off")
            yield _check_texts(np.frombuffer(content, self.dtype)).reshape(n, self.shape[1])


def npz_splits(path: Path) -> set[str]:
    """List the splits of an ``.npz`` of packed benchmark splits; none if it is something else."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return set()  # reading it will tell
    return set(SPLITS) & names if "n_vars" in names else set()


def _load_array(archive: zipfile.ZipFile, member: str | zipfile.ZipInfo) -> Array:
    """Load one ``.npy``; its header must tell just what is there."""
    info = archive.getinfo(member) if isinstance(member, str) else member
    with archive.open(info) as file:
        content = file.read(info.file_size + 1)
    start = io.BytesIO(content)
    shape, fortran, dtype = _read_header(start)
    if math.prod(shape) * dtype.itemsize != len(content) - start.tell():
        raise ValueError(f"an array of shape {shape} that is cut off or too long")
    flat = _check_texts(np.frombuffer(content, dtype, offset=start.tell()))
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array in version {version} of the format")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    if any(n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape}")
    return shape, fortran, dtype


def _check_texts(flat: Array) -> Array:
    """Raise where bytes that are taken as texts hold characters that do not exist."""
    dtype = flat.dtype
    if dtype.kind == "U" and flat.size and dtype.itemsize and flat.view(np.dtype("u4").newbyteorder(dtype.byteorder)).max() > 0x10FFFF:
        raise ValueError("a text with characters that do not exist")
    return flat


def _from_arrays(path: Path, arrays: dict[str, Array], split: str | None) -> RawTable:
    source = str(path)
    if {"n_vars", "train"} <= arrays.keys():
        return _unpack_split(path, arrays, split or "train")
    if split is not None:
        raise DataError(f"{path} has no splits")
    if {"format", "shape"} <= arrays.keys():
        return SparseReader(_build_sparse(arrays), source).read()
    names = [str(n) for n in arrays.pop("names", np.array([]))] or None
    weights = arrays.pop("weights", None)
    table = ArrayReader(arrays[_find_table(path, set(arrays))], source, names).read()
    table.weights = None if weights is None else check_weights(weights, table.n_rows, source)
    return table


def _find_table(path: Path, names: set[str]) -> str:
    """Find the array that is the table: ``X``, or the only one."""
    if "X" not in names and len(names) != 1:
        raise DataError(f"{path} holds {', '.join(sorted(names)) or 'no arrays'}; a table is expected under the name X")
    return "X" if "X" in names else next(iter(names))


def _unpack_split(path: Path, arrays: dict[str, Array], split: str) -> RawTable:
    if split not in arrays:
        raise _tell_no_split(path, split, set(arrays))
    packed = arrays[split]
    n, names = _check_packed(path, split, packed.shape, packed.dtype, arrays)
    return take_bits(np.unpackbits(packed, axis=1, count=n), names, f"{path}:{split}")


def _tell_no_split(path: Path, split: str, found: set[str]) -> DataError:
    return DataError(f"{path} has no split {split!r}; it has {', '.join(s for s in SPLITS if s in found)}")


def _check_packed(
    path: Path, split: str, shape: tuple[int, ...], dtype: np.dtype[Any], arrays: dict[str, Array]
) -> tuple[int, list[str] | None]:
    """Return the number of packed variables and their names, once they are known to fit the array."""
    n = int(arrays["n_vars"])
    if len(shape) != 2 or dtype != np.uint8 or not 1 <= n <= 8 * shape[1]:
        raise FormatError(f"{path}: the split {split!r} does not hold {n} packed variables")
    names = [str(name) for name in arrays.get("names", np.array([]))] or None
    if names is not None and len(names) != n:
        raise FormatError(f"{path}: {len(names)} names for {n} variables")
    return n, names


def _build_sparse(arrays: dict[str, Array]) -> Any:
    """Build a SciPy matrix of arrays that are known to fit together: out of range indices would crash the process inside SciPy."""
    import scipy.sparse as sp

    kind = arrays["format"].item()
    kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
    if kind not in SPARSE_FORMATS:
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
    return _build_compressed(sp, kind, shape, data, arrays["indices"], arrays["indptr"])


def _build_compressed(sp: Any, kind: str, shape: tuple[int, int], data: Array, indices: Array, indptr: Array) -> Any:
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
