"""Tables from memory: NumPy arrays, SciPy sparse matrices, pandas and polars frames."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from undirected.data.raw import RawColumn, RawTable
from undirected.data.variables import first_repeated
from undirected.errors import DataError
from undirected.kernels.types import Array

FEW_CELLS, CELLS_PER_ENTRY = 1 << 23, 2000  # of a table written out: so many, and so many more for each entry that is there
MAX_COLUMNS = 100_000


def check_n_columns(n: int, source: str) -> None:
    """Raise for tables so wide that a name and a column object each would take minutes."""
    if n > MAX_COLUMNS:
        raise DataError(f"{source} has {n:,} columns, more than {MAX_COLUMNS:,}; leave out those that hardly vary")


def check_n_cells(n_rows: int, n_columns: int, n_entries: int, source: str) -> None:
    """Raise before a table is written out that would take memory out of proportion to what is there."""
    most = FEW_CELLS + CELLS_PER_ENTRY * n_entries
    if n_rows * n_columns > most:
        raise DataError(
            f"{source}: {n_rows:,} rows of {n_columns:,} columns with {n_entries:,} entries make a table of more than {most:,} cells; "
            "leave out rare columns, or take a part of the rows"
        )


def from_array(array: Array, source: str, names: list[str] | None) -> RawTable:
    if array.ndim != 2:
        raise DataError(f"{source} has {array.ndim} dimensions; a table needs two (rows, variables)")
    if array.dtype.kind == "c":
        raise DataError(f"{source} holds complex numbers. Complex data not supported.")
    if array.dtype.kind not in "biufOUSMm":
        raise DataError(f"{source} holds cells of type {array.dtype}; numbers, texts or truth values are needed")
    check_n_columns(array.shape[1], source)
    if not len(array):
        raise DataError(f"{source} has no rows")
    if names is not None and len(names) != array.shape[1]:
        raise DataError(f"{source}: {len(names)} names for {array.shape[1]} columns")
    return RawTable([RawColumn.from_array(array[:, k]) for k in range(array.shape[1])], names, source)


def from_sparse(matrix: Any, source: str) -> RawTable:
    if matrix.ndim != 2:
        raise DataError(f"{source} has {matrix.ndim} dimensions; a table needs two (rows, variables)")
    check_n_cells(matrix.shape[0], matrix.shape[1], int(matrix.nnz), source)
    check_n_columns(matrix.shape[1], source)
    if matrix.format in ("csr", "csc"):
        try:
            matrix.check_format(full_check=True)  # SciPy's conversions trust their indices
        except ValueError as error:
            raise DataError(f"{source} is broken: {error}") from None
    csc = matrix.tocsc(copy=True)
    csc.sum_duplicates()
    return RawTable([_sparse_column(csc, k) for k in range(csc.shape[1])], None, source)


def _sparse_column(csc: Any, k: int) -> RawColumn:
    """A column written out, its texts found among the entries alone."""
    here = slice(csc.indptr[k], csc.indptr[k + 1])
    entries = csc.data[here]
    if len(entries) < csc.shape[0]:
        entries = np.append(entries, np.zeros(1, dtype=entries.dtype))  # what is not there is zero
    column = RawColumn.from_array(entries)
    codes = np.full(csc.shape[0], column.codes[-1], dtype=column.codes.dtype)
    codes[csc.indices[here]] = column.codes[: csc.indptr[k + 1] - csc.indptr[k]]
    return replace(column, codes=codes)


def binary_table(bits: Array, names: list[str] | None, source: str) -> RawTable:
    """A table of zeros and ones."""
    return RawTable([RawColumn(["0", "1"], bits[:, k]) for k in range(bits.shape[1])], names, source)


def is_frame(source: Any) -> bool:
    """Whether this is a frame of pandas or polars."""
    return type(source).__module__.split(".")[0] in ("pandas", "polars") and hasattr(source, "columns")


def from_frame(frame: Any) -> RawTable:
    """A pandas or polars frame; columns that declare their categories keep them, with their order."""
    source = f"the {type(frame).__module__.split('.')[0]} frame"
    names = [str(c) for c in frame.columns]
    if len(set(names)) != len(names):
        raise DataError(f"{source} has two columns called {first_repeated(names)!r}; rename one of them")
    return RawTable([_frame_column(frame[c]) for c in frame.columns], names, source)


def _frame_column(column: Any) -> RawColumn:
    kind = type(column.dtype).__name__
    if kind == "CategoricalDtype":  # of pandas
        return RawColumn.from_declared(column.cat.categories.tolist(), np.asarray(column.cat.codes), bool(column.cat.ordered))
    if kind == "Enum":  # of polars, whose order is that of its categories
        codes = column.to_physical().cast(sys.modules["polars"].Int64).fill_null(-1).to_numpy()
        return RawColumn.from_declared(column.dtype.categories.to_list(), codes, True)
    return RawColumn.from_array(np.asarray(column))
