"""Tables as they were found, before they are coded: for each column the distinct cell texts, and which row holds which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from undirected.data.cells import clean_texts, use_decimal_points, write_value
from undirected.data.variables import Variable, as_number, default_names
from undirected.errors import DataError
from undirected.kernels.types import Array


class Column(ABC):
    """What is known of a column whether its rows are at hand (`RawColumn`) or were only counted (`CountedColumn`).

    ``texts`` are its distinct cells. ``declared`` are the states that the table itself names, in its order, if it does; ``ordered``
    tells that it says that this order means something.
    """

    texts: list[str]
    declared: tuple[str, ...] | None
    ordered: bool

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """How many rows the column has."""

    @abstractmethod
    def count_texts(self) -> Array:
        """Count the rows that hold each of the texts."""

    @abstractmethod
    def weigh_texts(self, weights: Array | None) -> Array:
        """Add up the weights of the rows that hold each of the texts; without weights a row counts as one."""

    @abstractmethod
    def find_row(self, text: int) -> int:
        """Find the first row that holds a text, which is given by its place among the texts."""

    @abstractmethod
    def read_numbers(self) -> Array | None:
        """Return each row's number, where every row holds a different one; else None."""

    @abstractmethod
    def map_texts(self, texts: list[str], place: Array) -> Self:
        """Replace the texts; ``place`` tells for each old text where among the new ones it now stands."""

    @property
    def known(self) -> list[str]:
        """The texts that do not stand for a missing cell."""
        return [t for t in self.texts if t]

    @property
    def n_known(self) -> int:
        """How many rows are not missing in this column."""
        return int(self.count_texts()[[bool(t) for t in self.texts]].sum()) if self.texts else 0

    def strip(self) -> Self:
        """Take blanks off the texts, make missing ones empty, and bring truth values and whole numbers into one form."""
        clean = clean_texts(self.texts)
        column = self.rewrite(clean)
        if self.declared is None:
            return column
        new = dict(zip(self.texts, clean, strict=True))
        declared = tuple(dict.fromkeys(t for t in (new.get(t, t) for t in self.declared) if t))
        return replace(column, declared=declared or None)  # type: ignore[type-var]

    def mark_missing(self, na: Sequence[str]) -> Self:
        """Take more texts as missing cells; one that is a number stands for every way to write it."""
        numbers = {as_number(t) for t in na} - {None}
        gone = {t for t in self.texts if t in na or (numbers and as_number(t) in numbers)}
        if not gone:
            return self
        kept = None if self.declared is None else tuple(t for t in self.declared if t not in gone)
        return replace(self.rewrite(["" if t in gone else t for t in self.texts]), declared=kept or None)  # type: ignore[type-var]

    def read_decimal_commas(self) -> Self:
        """Read ``1.234,5`` as the number ``1234.5``, if all cells are such numbers."""
        texts = use_decimal_points(self.texts)
        return self if texts is None else self.rewrite(texts).strip()

    def rewrite(self, texts: list[str]) -> Self:
        """Replace each of the texts; those that have become equal are one."""
        if texts == self.texts:
            return self
        seen: dict[str, int] = {}
        place = np.array([seen.setdefault(t, len(seen)) for t in texts], dtype=np.int32)
        return self.map_texts(list(seen), place)


@dataclass
class RawColumn(Column):
    """A column with its rows: ``texts[codes[r]]`` is row r's cell."""

    texts: list[str]
    codes: Array
    declared: tuple[str, ...] | None = None
    ordered: bool = False

    @classmethod
    def from_cells(cls, cells: Sequence[str]) -> RawColumn:
        """Number the distinct cells in the order in which they first come."""
        seen: defaultdict[str, int] = defaultdict()
        seen.default_factory = seen.__len__
        codes = np.fromiter(map(seen.__getitem__, cells), dtype=np.int32, count=len(cells))
        return cls(list(seen), codes.astype(smallest_integer(len(seen)), copy=False))

    @classmethod
    def from_array(cls, values: Array) -> RawColumn:
        """Number the distinct values of an array of numbers, truth values, texts or objects."""
        values = np.asarray(values)
        if values.dtype.kind in "Mm":
            values = values.astype(str)  # dates and durations
        if values.dtype.kind in "OUS":
            return cls.from_cells([write_value(x) for x in values.tolist()])
        distinct, codes = np.unique(values, return_inverse=True)
        return cls([write_value(x) for x in distinct.tolist()], codes.astype(np.int8 if len(distinct) < 128 else np.int32))

    @classmethod
    def from_declared(cls, categories: Iterable[object], codes: Array, ordered: bool) -> RawColumn:
        """Take a column that names its states: the number of each row's state, negative where it is missing."""
        texts = [write_value(c) for c in categories]
        codes = np.where(codes < 0, len(texts), codes).astype(np.int32)
        column = cls(["/"] * (len(texts) + 1), codes).rewrite([*texts, ""])
        return replace(column, declared=tuple(dict.fromkeys(texts)), ordered=ordered)

    def leave_out(self, missing: Array) -> RawColumn:
        """Take the cells of these rows as missing."""
        texts = [*self.texts, ""]
        used = np.unique(codes := np.where(missing, len(self.texts), self.codes).astype(np.int32))
        place = np.zeros(len(texts), dtype=np.int32)
        place[used] = np.arange(len(used))
        return replace(self, texts=[texts[k] for k in used], codes=place[codes])

    @classmethod
    def merge(cls, columns: Sequence[RawColumn]) -> RawColumn:
        """Join the pieces of one column, one after another."""
        if len(columns) == 1:
            return columns[0]
        seen: dict[str, int] = {}
        places = [np.array([seen.setdefault(t, len(seen)) for t in column.texts], dtype=np.int32) for column in columns]
        kind = smallest_integer(len(seen))
        pieces = [p.astype(kind)[c.codes] if len(p) else c.codes for p, c in zip(places, columns, strict=True)]
        declared = merge_declared([column.declared for column in columns])
        return cls(list(seen), np.concatenate(pieces), declared, columns[0].ordered)

    @property
    def n_rows(self) -> int:
        return len(self.codes)

    def count_texts(self) -> Array:
        return np.bincount(self.codes, minlength=len(self.texts))

    def weigh_texts(self, weights: Array | None) -> Array:
        return np.bincount(self.codes, weights=weights, minlength=len(self.texts)).astype(float, copy=False)

    def find_row(self, text: int) -> int:
        return int(np.argmax(self.codes == text))

    def read_numbers(self) -> Array | None:
        if len(self.texts) != len(self.codes):
            return None
        numbers = [as_number(t) for t in self.texts]
        return None if any(number is None for number in numbers) else np.array(numbers)[self.codes]

    def map_texts(self, texts: list[str], place: Array) -> RawColumn:
        return replace(self, texts=texts, codes=place[self.codes] if len(self.codes) else self.codes)


@dataclass
class RawTable:
    """Columns with the names they had, if any, and where each row stood."""

    columns: list[Any]  # all `RawColumn`, or all `CountedColumn` where the rows themselves are not kept
    names: list[str] | None
    source: str
    weights: Array | None = None
    lines: Array | Mapping[int, int] | None = None
    fixed: dict[int, Variable] = field(default_factory=dict)  # columns whose states are known beforehand
    absent: str | None = None  # the state of a variable without a column, in baskets
    decimal_comma: bool = False  # whether a comma in a cell may be a decimal mark
    numbered: bool = False  # whether states are numbers from 0 to the largest that occurs, as in Libra's files

    @property
    def n_rows(self) -> int:
        return int(self.columns[0].n_rows) if self.columns else 0

    @property
    def known_names(self) -> list[str]:
        """The names, or those that columns without names go by."""
        return default_names(len(self.columns)) if self.names is None else self.names

    def select(self, kept: Sequence[int]) -> RawTable:
        """Take some of the columns; they keep the names they go by."""
        fixed = {new: self.fixed[old] for new, old in enumerate(kept) if old in self.fixed}
        names = [self.known_names[k] for k in kept]
        return replace(self, columns=[self.columns[k] for k in kept], names=names, fixed=fixed)

    def slice(self, start: int, stop: int) -> RawTable:
        """Take the rows from ``start`` up to ``stop``."""
        columns = [replace(column, codes=column.codes[start:stop]) for column in self.columns]
        weights = None if self.weights is None else self.weights[start:stop]
        lines = None if self.lines is None else np.asarray(self.lines)[start:stop]
        return replace(self, columns=columns, weights=weights, lines=lines)

    def where(self, row: int) -> str:
        """Name the place of a row: 'file, line 12' or 'the array, row 3' (counted from 1)."""
        return f"{self.source}, line {int(self.lines[row])}" if self.lines is not None else f"{self.source}, row {row + 1}"


def merge_tables(tables: Sequence[RawTable]) -> RawTable:
    """Join pieces of one table, one after another."""
    if len(tables) == 1:
        return tables[0]
    columns = [RawColumn.merge([table.columns[k] for table in tables]) for k in range(len(tables[0].columns))]
    weights, lines = ([getattr(table, name) for table in tables] for name in ("weights", "lines"))
    return replace(
        tables[0],
        columns=columns,
        weights=None if weights[0] is None else np.concatenate(weights),
        lines=None if lines[0] is None else np.concatenate(lines),
    )


def regroup(pieces: Iterable[RawTable], n_rows: int) -> Iterator[RawTable]:
    """Cut and join pieces of a table so that all but the last have ``n_rows`` rows."""
    waiting: list[RawTable] = []
    have = 0
    for piece in pieces:
        start = 0
        while have + piece.n_rows - start >= n_rows:
            stop = start + n_rows - have
            yield merge_tables([*waiting, piece.slice(start, stop)])
            waiting, have, start = [], 0, stop
        if start < piece.n_rows:
            waiting.append(piece.slice(start, piece.n_rows) if start else piece)
            have += piece.n_rows - start
    if waiting:
        yield merge_tables(waiting)


def merge_declared(declared: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Join the states that pieces of a column name, in the order in which they first come."""
    return tuple(dict.fromkeys(state for states in declared for state in states or ())) or None


def check_shape(table: RawTable) -> None:
    """Raise for a table without columns or rows."""
    if not table.columns:
        raise DataError(f"{table.source} has no columns")
    if table.n_rows == 0:
        raise DataError(f"{table.source} has no rows")


def smallest_integer(n: int) -> type[np.signedinteger]:
    """Choose the smallest integers that number ``n`` things."""
    return np.int8 if n <= 127 else np.int16 if n <= 32767 else np.int32
