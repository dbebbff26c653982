"""Which reader takes which file, frame or array, and how what it finds becomes a table."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from undirected.data.arrays import ArrayReader, FrameReader, MemoryReader, SparseReader, is_frame
from undirected.data.basket import BasketReader
from undirected.data.coding import ColumnRules, clean_table, encode, learn_domain
from undirected.data.columns import choose_columns, counts_rows, leave_out_first, name_columns, warn_of_columns
from undirected.data.dataset import Dataset, check_weights
from undirected.data.delimited import DelimitedReader
from undirected.data.files import check_regular
from undirected.data.libra_data import LibraReader
from undirected.data.npz import SPLITS, NpzReader
from undirected.data.parquet import ParquetReader
from undirected.data.raw import RawColumn, RawTable, check_shape
from undirected.data.variables import Domain, first_repeated
from undirected.errors import DataError, FormatError, ParameterError
from undirected.kernels.types import Array

FORMATS = ("csv", "tsv", "basket", "libra", "parquet", "npz")
_SUFFIXES = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".basket": "basket", ".data": "libra", ".ev": "libra",
    ".parquet": "parquet", ".pq": "parquet", ".npz": "npz",
}  # fmt: skip


class Reader(Protocol):
    """One table in one format. Its cells come as they were found: `clean_table` looks at columns as a whole."""

    @property
    def source(self) -> str:
        """What the table is called in messages."""

    def read(self) -> RawTable:
        """Read the whole table."""

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        """Go through the table from row ``start`` on in chunks of ``n_rows`` rows, the last of which may have fewer."""


@dataclass(frozen=True)
class Reading:
    """How a file or frame is taken: what overrides its suffix and first lines, which cells are missing, which columns count."""

    format: str | None = None
    header: bool | None = None
    encoding: str | None = None
    decimal: str | None = None
    na: Sequence[str] = ()
    drop: Sequence[str] = ()
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise ParameterError(f"decimal={self.decimal!r}: a point or a comma")
        for name in ("na", "drop", "columns"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, (getattr(self, name),))


def read_data(
    source: Any,
    *,
    domain: Domain | None = None,
    format: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    na: Sequence[str] = (),
    drop: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    bins: int = 4,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    domain_from: Any = None,
    missing: str = "error",
    unknown: str = "error",
    weights: Array | None = None,
) -> Dataset:
    """Read a table from a file or take one from memory.

    Parameters
    ----------
    source
        A path (``.csv``, ``.tsv``, ``.txt``, ``.data``, ``.basket``, ``.parquet``, ``.npz``, each but the last two also with
        ``.gz``), the name of a data set (``nltcs``, ``nltcs:test``), a NumPy array, a SciPy sparse matrix, a pandas or
        polars frame, or a `Dataset`.
    domain
        Code the table with these variables and states, as test data must be. By default they are learned from the table.
    format, header, encoding, decimal
        Override what the suffix and the first lines say: the format, whether the first line holds names, how bytes are text, and the
        mark in decimal numbers (``","`` or ``"."``).
    na
        More texts that stand for a missing cell, such as ``"99"`` or ``"."``.
    drop, columns
        Columns to leave out, or the only ones to take.
    bins, categorical, numeric
        Numbers are cut into ``bins`` bins of equal frequency, except integers with at most ten values; the two lists name
        columns to be taken as states or as numbers instead.
    domain_from
        Another table whose states are added to the domain.
    missing
        What to do with missing cells: ``error`` and ``learn`` keep them in the table, ``drop`` leaves out their rows, ``mode`` fills in the
        most frequent state, ``state`` makes missing a state of its own. Learners take ``learn``, too, and do.
    unknown
        What to do with states that ``domain`` does not have: an ``error``, or take the cell as ``missing``.
    weights
        One weight a row.

    Examples
    --------
    >>> import numpy as np, undirected
    >>> data = undirected.read_data(np.array([[0, 1], [1, 1], [0, 1]]))
    >>> len(data), data.n_distinct, data.domain.names
    (3, 2, ['v0', 'v1'])
    """
    rules = ColumnRules(bins, tuple(categorical), tuple(numeric))
    reading = Reading(format, header, encoding, decimal, na, drop, columns)
    if isinstance(source, Dataset):
        if domain_from is not None or categorical or numeric or na or decimal:
            raise ParameterError("the columns of a Dataset are coded already; give these options when it is read")
        data = source if not drop and columns is None else _select(source, reading)
        data = data if domain is None else _recode(data, domain, unknown)
        if weights is not None:
            data = Dataset(data.domain, data.codes, weights, data.source, data.lines)
        return data.resolve_missing(missing, domain is not None)
    known = domain is not None
    table = read_raw(source, reading, list_wanted(rules, domain))
    if weights is not None:
        table.weights = check_weights(weights, table.n_rows, table.source)
    table, domain = settle_domain(table, domain, rules, reading, domain_from)
    return encode(table, domain, unknown).resolve_missing(missing, known)


def list_wanted(rules: ColumnRules, domain: Domain | None) -> set[str]:
    """List the columns that the caller counts on, so that none of them is taken for an index."""
    return {*rules.categorical, *rules.numeric, *(domain.names if domain is not None and domain.named else ())}


def settle_domain(
    table: RawTable, domain: Domain | None, rules: ColumnRules, reading: Reading, domain_from: Any
) -> tuple[RawTable, Domain]:
    """Learn the domain of a table, or bring the table into line with the one that is given."""
    check_shape(table)
    if table.names is not None and len(set(table.names)) != len(table.names):
        raise DataError(f"{table.source}: two columns are called {first_repeated(table.names)!r}; rename one of them")
    if domain is None:
        wider = None if domain_from is None else read_raw(domain_from, replace(reading, drop=(), columns=None))
        domain = learn_domain(table, rules, wider)
        warn_of_columns(table, domain, rules.categorical)
    elif not domain.named and table.names is None and len(table.columns) == len(domain) + 1 and counts_rows(table):
        table = leave_out_first(table)  # as it was done to the training data, which had more rows
    return table, domain


def _select(data: Dataset, reading: Reading) -> Dataset:
    named = RawTable([RawColumn([""], data.codes[:, v]) for v in range(len(data.domain))], data.domain.names, data.source)
    kept = [data.domain.index(name) for name in choose_columns(named, reading.drop, reading.columns).known_names]
    return Dataset(Domain([data.domain[v] for v in kept]), data.codes[:, kept], data.weights, data.source, data.lines)


def _recode(data: Dataset, domain: Domain, unknown: str) -> Dataset:
    if data.domain == domain:
        return data
    columns = []
    for v, variable in enumerate(data.domain.variables):
        columns.append(RawColumn([*variable.states, ""], np.where(data.codes[:, v] < 0, len(variable.states), data.codes[:, v])))
    names = data.domain.names if data.domain.named else None
    lines = None if data.lines is None else np.asarray(data.lines)
    return encode(RawTable(columns, names, data.source, data.weights, lines), domain, unknown)


def read_raw(source: Any, reading: Reading | None = None, wanted: Collection[str] = ()) -> RawTable:
    """Read a table as it was found, from anything `read_data` takes but a `Dataset`; columns ``wanted`` are not taken for an index."""
    reading = reading or Reading()
    return tidy(find_reader(source, reading).read(), reading, wanted)


def tidy(table: RawTable, reading: Reading, wanted: Collection[str]) -> RawTable:
    """Clean the cells of a table, leave out an index and name the other columns, and take those that are asked for."""
    clean = clean_table(table, reading.na, reading.decimal)
    named = name_columns(clean, {*wanted, *reading.drop, *(reading.columns or ())})
    return choose_columns(named, reading.drop, reading.columns)


def find_reader(source: Any, reading: Reading) -> Reader:
    """Find the reader for anything that `read_data` takes but a `Dataset`."""
    if isinstance(source, RawTable):
        return MemoryReader(source)
    if isinstance(source, str | os.PathLike):
        return _find_file_reader(os.fspath(source), reading)
    if is_frame(source):
        return FrameReader(source)
    if hasattr(source, "tocsc") and hasattr(source, "nnz"):
        return SparseReader(source, "the sparse matrix")
    try:
        array = np.asarray(source)
    except ValueError as error:
        raise DataError(f"the rows do not make a table: {error}") from None
    return ArrayReader(array, "the array")


def _find_file_reader(text: str, reading: Reading) -> Reader:
    name, split = text, None
    try:
        found = Path(text).exists()
    except (OSError, ValueError) as error:
        raise DataError(f"{text[:60]!r}... cannot be a file: {error}") from None
    if not found and ":" in Path(text).name[1:]:
        name, _, split = text.rpartition(":")
    path = Path(name)
    if not path.exists() and "/" not in name and "\\" not in name and not path.suffix:
        from undirected.data import catalog

        return MemoryReader(catalog.read_named(name, split or "train"))
    check_regular(path)
    kind = reading.format or _SUFFIXES.get(_find_suffix(path))
    if kind is None:
        known = ", ".join(sorted(_SUFFIXES))
        raise FormatError(
            f"{name}: the suffix {_find_suffix(path)!r} is not known ({known}); give the format with --format {'|'.join(FORMATS)}"
        )
    if kind not in FORMATS:
        raise ParameterError(f"format {kind!r} is not known; choose one of {', '.join(FORMATS)}")
    if split is not None and kind != "npz":
        raise DataError(f"{text!r}: only .npz files have splits")
    if kind == "npz":
        return NpzReader(path, split)
    if kind == "parquet":
        return ParquetReader(path)
    if kind == "basket":
        return BasketReader(path, reading.encoding)
    if kind == "libra":
        return LibraReader(path)
    return DelimitedReader(path, "\t" if kind == "tsv" else None, reading.header, reading.encoding)


def _find_suffix(path: Path) -> str:
    """Find the suffix that tells the format; that of packing does not."""
    suffixes = [s.lower() for s in path.suffixes]
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else suffixes[-1] if suffixes else ""


__all__ = ["FORMATS", "SPLITS", "Reader", "Reading", "find_reader", "read_data", "read_raw"]
