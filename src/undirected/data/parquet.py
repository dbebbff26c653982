"""Parquet files, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.files import MAX_BYTES, check_size
from undirected.data.raw import RawColumn, RawTable, regroup
from undirected.errors import FormatError, MissingExtra, UndirectedError


@dataclass(frozen=True)
class ParquetReader:
    """A Parquet file; dictionary columns keep their states and order."""

    path: Path

    @property
    def source(self) -> str:
        return str(self.path)

    def read(self) -> RawTable:
        with self._open() as (file, pyarrow):
            check_size(self.path, sum(_measure_groups(file)))
            return self._take(file.read(), pyarrow)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        return regroup(self._read_batches(n_rows, start), n_rows)

    def _read_batches(self, n_rows: int, start: int) -> Iterator[RawTable]:
        with self._open() as (file, pyarrow):
            for k, size in enumerate(_measure_groups(file)):
                if size > MAX_BYTES:
                    raise FormatError(
                        f"{self.path}: row group {k + 1} has {size:,} bytes, more than can be read at once ({MAX_BYTES:,}); "
                        "write the file with smaller row groups"
                    )
            groups = list(range(file.metadata.num_row_groups))
            while groups and start >= file.metadata.row_group(groups[0]).num_rows:
                start -= file.metadata.row_group(groups.pop(0)).num_rows
            for batch in file.iter_batches(batch_size=n_rows, row_groups=groups):
                if start < len(batch):
                    yield self._take(pyarrow.Table.from_batches([batch.slice(start)]), pyarrow)
                start = max(0, start - len(batch))

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, Any]]:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise MissingExtra('reading Parquet needs pyarrow: pip install "undirected[parquet]"') from None
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                yield file, pyarrow
        except UndirectedError:
            raise
        except Exception as error:  # a broken file makes its reader raise almost anything
            raise FormatError(f"{self.path}: not a Parquet file that can be read ({type(error).__name__}: {error})") from None

    def _take(self, table: Any, pyarrow: Any) -> RawTable:
        return RawTable([_take_column(column, pyarrow) for column in table.columns], list(table.column_names), self.source)


def _measure_groups(file: Any) -> list[int]:
    """Measure how many bytes each row group holds, unpacked."""
    return [file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups)]


def _take_column(column: Any, pyarrow: Any) -> RawColumn:
    if pyarrow.types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        whole = whole.chunk(0) if isinstance(whole, pyarrow.ChunkedArray) else whole
        codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return RawColumn.from_declared(whole.dictionary.to_pylist(), np.asarray(codes), bool(column.type.ordered))
    if pyarrow.types.is_integer(column.type) and column.null_count:
        values, missing = column.fill_null(0).to_numpy(), column.is_null().to_numpy()
        return RawColumn.from_array(values).leave_out(missing)
    return RawColumn.from_array(column.to_numpy(zero_copy_only=False))
