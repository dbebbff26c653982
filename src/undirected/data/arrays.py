"""Tables from memory: NumPy arrays, SciPy sparse matrices, pandas and polars frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undirected.data.raw import RawColumn, RawTable
from undirected.data.variables import first_repeated
from undirected.errors import DataError
from undirected.kernels.types import Array

MIN_CELL_BUDGET, CELLS_PER_ENTRY = 1 << 23, 2000  # a table that is written out may have so many cells, and more for each entry
MAX_COLUMNS = 100_000


def check_n_columns(n: int, source: str) -> None:
    """Raise for tables so wide that a name and a column object each would take minutes."""
    if n > MAX_COLUMNS:
        raise DataError(f"{source} has {n:,} columns, more than {MAX_COLUMNS:,}; leave out those that hardly vary")


def check_n_cells(n_rows: int, n_columns: int, n_entries: int, source: str) -> None:
    """Raise before a table is written out that would take memory out of proportion to what is there."""
    most = MIN_CELL_BUDGET + CELLS_PER_ENTRY * n_entries
    if n_rows * n_columns > most:
        raise DataError(
            f"{source}: {n_rows:,} rows of {n_columns:,} columns with {n_entries:,} entries make a table of more than {most:,} cells; "
            "leave out rare columns, or take a part of the rows"
        )


@dataclass(frozen=True)
class ArrayReader:
    """A two-dimensional array."""

    array: Array
    source: str
    names: list[str] | None = None

    def __post_init__(self) -> None:
        check_array(self.array.shape, self.array.dtype, self.source, self.names)

    def read(self) -> RawTable:
        return take_array(self.array, self.source, self.names)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        for at in range(start, len(self.array), n_rows):
            yield take_array(self.array[at : at + n_rows], self.source, self.names)


@dataclass(frozen=True)
class SparseReader:
    """A sparse matrix of SciPy's; what is not there is zero."""

    matrix: Any
    source: str

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2:
            raise DataError(f"{self.source} has {self.matrix.ndim} dimensions; a table needs two (rows, variables)")
        check_n_columns(self.matrix.shape[1], self.source)
        if self.matrix.format in ("csr", "csc"):
            try:
                self.matrix.check_format(full_check=True)  # SciPy's conversions trust their indices
            except ValueError as error:
                raise DataError(f"{self.source} is broken: {error}") from None

    def read(self) -> RawTable:
        return self._take(self.matrix)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        csr = self.matrix.tocsr()
        for at in range(start, csr.shape[0], n_rows):
            yield self._take(csr[at : at + n_rows])

    def _take(self, matrix: Any) -> RawTable:
        check_n_cells(matrix.shape[0], matrix.shape[1], int(matrix.nnz), self.source)
        csc = matrix.tocsc(copy=True)
        csc.sum_duplicates()
        return RawTable([_take_sparse_column(csc, k) for k in range(csc.shape[1])], None, self.source)


@dataclass(frozen=True)
class FrameReader:
    """A frame of pandas or polars; columns that declare their categories keep them, with their order."""

    frame: Any

    @property
    def source(self) -> str:
        return f"the {find_frame_library(self.frame)} frame"

    def read(self) -> RawTable:
        return self._take(self.frame)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        for at in range(start, len(self.frame), n_rows):
            yield self._take((self.frame.iloc if hasattr(self.frame, "iloc") else self.frame)[at : at + n_rows])

    def _take(self, frame: Any) -> RawTable:
        names = [str(c) for c in frame.columns]
        if len(set(names)) != len(names):
            raise DataError(f"{self.source} has two columns called {first_repeated(names)!r}; rename one of them")
        return RawTable([_take_frame_column(frame[c], self.source) for c in frame.columns], names, self.source)


@dataclass(frozen=True)
class MemoryReader:
    """A table that is in memory already."""

    table: RawTable

    @property
    def source(self) -> str:
        return self.table.source

    def read(self) -> RawTable:
        return self.table

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        for at in range(start, self.table.n_rows, n_rows):
            yield self.table.slice(at, at + n_rows)


def check_array(shape: tuple[int, ...], dtype: np.dtype[Any], source: str, names: list[str] | None) -> None:
    """Raise for an array that is no table: of another shape than rows and variables, or with cells that are none."""
    if len(shape) != 2:
        raise DataError(f"{source} has {len(shape)} dimensions; a table needs two (rows, variables)")
    check_cell_type(dtype, source)
    check_n_columns(shape[1], source)
    if not shape[0]:
        raise DataError(f"{source} has no rows")
    if names is not None and len(names) != shape[1]:
        raise DataError(f"{source}: {len(names)} names for {shape[1]} columns")


def check_cell_type(dtype: np.dtype[Any], source: str) -> None:
    """Raise for cells that can be no states."""
    if dtype.kind == "c":
        raise DataError(f"{source} holds complex numbers. Complex data not supported.")
    if dtype.kind not in "biufOUSMm":
        raise DataError(f"{source} holds cells of type {dtype}; numbers, texts or truth values are needed")


def take_array(array: Array, source: str, names: list[str] | None, weights: Array | None = None) -> RawTable:
    """Take a checked array, or some of its rows, as a table."""
    return RawTable([RawColumn.from_array(array[:, k]) for k in range(array.shape[1])], names, source, weights)


def take_bits(bits: Array, names: list[str] | None, source: str) -> RawTable:
    """Take an array of zeros and ones as a table."""
    return RawTable([RawColumn(["0", "1"], bits[:, k]) for k in range(bits.shape[1])], names, source)


def is_frame(source: Any) -> bool:
    """Whether this is a frame of pandas or polars, or of a kind made from theirs."""
    return find_frame_library(source) is not None and hasattr(source, "columns")


def find_frame_library(source: Any) -> str | None:
    """Name the library that a frame comes from; None if it is no frame."""
    homes = (kind.__module__.split(".")[0] for kind in type(source).__mro__)
    return next((home for home in homes if home in ("pandas", "polars")), None)


def _take_sparse_column(csc: Any, k: int) -> RawColumn:
    """Write a column out; its texts are found among the entries alone."""
    here = slice(csc.indptr[k], csc.indptr[k + 1])
    entries = csc.data[here]
    if len(entries) < csc.shape[0]:
        entries = np.append(entries, np.zeros(1, dtype=entries.dtype))  # what is not there is zero
    column = RawColumn.from_array(entries)
    codes = np.full(csc.shape[0], column.codes[-1], dtype=column.codes.dtype)
    codes[csc.indices[here]] = column.codes[: csc.indptr[k + 1] - csc.indptr[k]]
    return replace(column, codes=codes)


def _take_frame_column(column: Any, source: str) -> RawColumn:
    kind = type(column.dtype).__name__
    if kind == "CategoricalDtype":  # of pandas
        return RawColumn.from_declared(column.cat.categories.tolist(), np.asarray(column.cat.codes), bool(column.cat.ordered))
    if kind == "Enum":  # of polars, whose order is that of its categories
        codes = column.to_physical().cast(sys.modules["polars"].Int64).fill_null(-1).to_numpy()
        return RawColumn.from_declared(column.dtype.categories.to_list(), codes, True)
    if hasattr(column, "null_count") and column.dtype.is_integer() and column.null_count():  # of polars; as floats they would be rounded
        return RawColumn.from_array(column.fill_null(0).to_numpy()).leave_out(column.is_null().to_numpy())
    values = np.asarray(column)
    check_cell_type(values.dtype, f"a column of {source}")
    return RawColumn.from_array(values)
