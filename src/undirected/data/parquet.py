"""Parquet files, by pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.files import check_size
from undirected.data.raw import RawColumn, RawTable
from undirected.errors import FormatError, MissingExtra, UndirectedError


def read_parquet(path: Path) -> RawTable:
    """A Parquet file; dictionary columns keep their states and order."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra('reading Parquet needs pyarrow: pip install "undirected[parquet]"') from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            groups = [file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups)]
            check_size(path, sum(groups))
            table = file.read()
        return RawTable([_column(column, pyarrow) for column in table.columns], list(table.column_names), str(path))
    except UndirectedError:
        raise
    except Exception as error:  # a broken file makes its reader raise almost anything
        raise FormatError(f"{path}: not a Parquet file that can be read ({type(error).__name__}: {error})") from None


def _column(column: Any, pyarrow: Any) -> RawColumn:
    if pyarrow.types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        whole = whole.chunk(0) if isinstance(whole, pyarrow.ChunkedArray) else whole
        codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return RawColumn.from_declared(whole.dictionary.to_pylist(), np.asarray(codes), bool(column.type.ordered))
    return RawColumn.from_array(column.to_numpy(zero_copy_only=False))
