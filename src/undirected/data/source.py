"""Tables that are gone through chunk by chunk, in memory that does not grow with their length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from undirected.data.coding import ColumnRules, code_texts
from undirected.data.counted import CountedColumn, count_table
from undirected.data.dataset import MISSING_POLICIES, Dataset, check_weights, code_type, tell_missing_is_no_state
from undirected.data.raw import RawTable
from undirected.data.readers import Reader, Reading, find_reader, list_wanted, read_data, settle_domain, tidy
from undirected.data.text_file import tell_changed
from undirected.data.variables import MISSING_STATE, Domain, Variable
from undirected.errors import DataError, ParameterError, check_number
from undirected.kernels.types import Array

CHUNK_ROWS = 10_000
NEVER_SEEN = -2  # the code of a cell that the first pass did not meet


class Chunk(NamedTuple):
    """Consecutive rows of a source: those from ``start`` up to ``stop``, without the ones that its rules for missing cells leave out."""

    data: Dataset
    start: int
    stop: int


class Source(Protocol):
    """A table that is handed out chunk by chunk, as often as asked, with the same domain for all chunks."""

    @property
    def name(self) -> str:
        """What the table is called in messages."""

    @property
    def domain(self) -> Domain:
        """The variables and states of all chunks."""

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Go through the rows from ``start`` on; the ``stop`` of a chunk is where a later pass can go on."""

    def __iter__(self) -> Iterator[Dataset]:
        """Go through all rows."""


def open_source(
    source: Any,
    chunk_rows: int = CHUNK_ROWS,
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
) -> Source:
    """Open a table to go through it in chunks of at most ``chunk_rows`` rows.

    A first pass over the table learns its domain and finds what is wrong with it; no pass holds more than a chunk of rows, and the
    distinct cells of each column, of which there may be a million in all. The chunks, one after another, are the table that
    `read_data` reads, to the bit. A sparse matrix in an ``.npz`` and an array that lies there column by column cannot be read in chunks.

    Parameters
    ----------
    source, domain, format, header, encoding, decimal, na, drop, columns, bins, categorical, numeric, domain_from, missing, unknown, weights
        As in `read_data`.
    chunk_rows
        How many rows a chunk has at most.

    Examples
    --------
    >>> import numpy as np
    >>> from undirected import Dataset, open_source, read_data
    >>> table = np.arange(50).reshape(10, 5) % 3
    >>> source = open_source(table, chunk_rows=4)
    >>> [len(chunk) for chunk in source]
    [4, 4, 2]
    >>> bool((Dataset.merge(source).codes == read_data(table).codes).all())
    True
    """
    check_number("chunk_rows", chunk_rows, 1, whole=True)
    if missing not in MISSING_POLICIES:
        raise ParameterError(f"missing={missing!r} is not known; choose one of {', '.join(MISSING_POLICIES)}")
    if isinstance(source, Dataset):
        return DatasetSource(
            read_data(source, domain=domain, na=na, decimal=decimal, drop=drop, columns=columns, categorical=categorical, numeric=numeric,
                      domain_from=domain_from, missing=missing, unknown=unknown, weights=weights),
            chunk_rows,
        )  # fmt: skip
    rules = ColumnRules(bins, tuple(categorical), tuple(numeric))
    reading = Reading(format, header, encoding, decimal, na, drop, columns)
    reader = find_reader(source, reading)
    if weights is not None:
        weights = check_weights(weights, len(weights), reader.source)
    found = _count(reader, chunk_rows, weights, reading, domain)
    table, learned = settle_domain(tidy(found, reading, list_wanted(rules, domain)), domain, rules, reading, domain_from)
    return TableSource(reader, chunk_rows, _ChunkCoder(table, learned, unknown, missing, domain is not None), weights)


def _count(reader: Reader, chunk_rows: int, weights: Array | None, reading: Reading, domain: Domain | None) -> RawTable:
    """Make the first pass over a table, which keeps what its columns hold."""
    found = count_table(_read_weighted(reader, chunk_rows, 0, weights), _find_needed(reading, domain))
    if found is None:
        return reader.read()  # a table without rows, which is refused in the words for one that is read whole
    if weights is not None:
        check_weights(weights, found.n_rows, found.source)
    return found


class TableSource:
    """A file, frame or array that `open_source` has gone through once."""

    def __init__(self, reader: Reader, chunk_rows: int, coder: _ChunkCoder, weights: Array | None) -> None:
        self.chunk_rows = chunk_rows
        self._reader, self._coder, self._weights = reader, coder, weights

    def __repr__(self) -> str:
        return f"<Source of {self.n_rows:,} rows, {len(self.domain)} variables, from {self.name}, in chunks of {self.chunk_rows:,}>"

    @property
    def name(self) -> str:
        return self._coder.name

    @property
    def domain(self) -> Domain:
        return self._coder.domain

    @property
    def n_rows(self) -> int:
        """How many rows the table has, with those that the rules for missing cells leave out."""
        return self._coder.n_rows

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        check_number("start", start, 0, self.n_rows, whole=True)
        for table in _read_weighted(self._reader, self.chunk_rows, start, self._weights):
            data = self._coder.encode(table)
            yield Chunk(data, start, start + table.n_rows)
            start += table.n_rows
        if start != self.n_rows:
            raise tell_changed(self.name)

    def __iter__(self) -> Iterator[Dataset]:
        found = 0
        for chunk in self.chunks():
            if len(chunk.data):
                found += 1
                yield chunk.data
        if not found:
            raise DataError(f"{self.name}: every row has a missing cell, so dropping them leaves none; try mode or state")


class DatasetSource:
    """A coded table in memory, handed out in chunks."""

    def __init__(self, data: Dataset, chunk_rows: int) -> None:
        self.data, self.chunk_rows = data, chunk_rows
        self.name, self.domain, self.n_rows = data.source, data.domain, len(data)

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        check_number("start", start, 0, self.n_rows, whole=True)
        for at in range(start, self.n_rows, self.chunk_rows):
            stop = min(at + self.chunk_rows, self.n_rows)
            yield Chunk(self.data.subset(np.arange(at, stop)), at, stop)

    def __iter__(self) -> Iterator[Dataset]:
        return (chunk.data for chunk in self.chunks())


class _ChunkCoder:
    """How the cells of every chunk are coded, once the whole table has been counted."""

    def __init__(self, table: RawTable, domain: Domain, unknown: str, missing: str, domain_given: bool) -> None:
        self.name, self.n_rows = table.source, table.n_rows
        self._drop = missing == "drop"
        coded = code_texts(table, domain, unknown)
        variables = list(domain.variables)
        self._columns: list[tuple[int | None, dict[str, int]]] = []
        for v, (k, codes) in enumerate(coded):
            column = None if k is None else table.columns[k]
            if column is None:
                self._columns.append((None, {"": int(codes[0])}))
                continue
            codes = codes.astype(np.int64)
            if missing in ("mode", "state") and (column.count_texts()[codes < 0] > 0).any():
                variables[v], codes = _resolve_missing(variables[v], column, codes, table, missing == "state", domain_given)
            self._columns.append((column.position, dict(zip(column.found, codes[column.place].tolist(), strict=True))))
        self.domain = Domain(variables, domain.named)

    def encode(self, table: RawTable) -> Dataset:
        """Code a chunk as it came from its reader."""
        codes = np.empty((table.n_rows, len(self.domain)), dtype=code_type(self.domain), order="F")
        for v, (k, code) in enumerate(self._columns):
            if k is None:
                codes[:, v] = code[""]
                continue
            column = table.columns[k]
            codes[:, v] = np.array([code.get(text, NEVER_SEEN) for text in column.texts], dtype=codes.dtype)[column.codes]
        if codes.size and codes.min() == NEVER_SEEN:
            raise tell_changed(self.name)
        data = Dataset(self.domain, codes, table.weights, self.name, None if table.lines is None else np.asarray(table.lines))
        return data.subset(np.flatnonzero((codes >= 0).all(axis=1))) if self._drop and data.has_missing else data


def _resolve_missing(
    variable: Variable, column: CountedColumn, codes: Array, table: RawTable, as_state: bool, domain_given: bool
) -> tuple[Variable, Array]:
    """Give missing cells a state, as `Dataset.resolve_missing` does for a table in memory."""
    weights = column.weigh_texts(table.weights)
    if not as_state:
        mode = np.argmax(np.bincount(codes[codes >= 0], weights=weights[codes >= 0], minlength=len(variable.states)))
        return variable, np.where(codes < 0, mode, codes)
    if domain_given:
        row = min(column.find_row(int(text)) for text in np.flatnonzero(codes < 0))
        raise tell_missing_is_no_state(table.where(row), variable.name)
    states = (*variable.states, MISSING_STATE)
    return Variable(variable.name, states, variable.edges), np.where(codes < 0, len(states) - 1, codes)


def _read_weighted(reader: Reader, chunk_rows: int, start: int, weights: Array | None) -> Iterator[RawTable]:
    """Go through the chunks of a reader, with the weights of their rows where the caller has given some."""
    for table in reader.read_chunks(chunk_rows, start):
        stop = start + table.n_rows
        if weights is not None and stop > len(weights):
            raise DataError(f"{table.source}: {len(weights)} row weights for more rows than that; give one weight a row")
        yield table if weights is None else replace(table, weights=weights[start:stop])
        start = stop


def _find_needed(reading: Reading, domain: Domain | None) -> Callable[[int, str | None], bool]:
    """Say which columns have to be counted: the others would only take memory. The first may turn out to be an index, and columns
    without names may move if it does."""

    def is_needed(position: int, name: str | None) -> bool:
        if not name or name in reading.drop:
            return not name
        asked_for = reading.columns is None or name in reading.columns
        return position == 0 or (asked_for and (domain is None or not domain.named or domain.find(name) is not None))

    return is_needed
