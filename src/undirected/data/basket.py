"""Baskets: one line of items a row, one yes/no variable per item."""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undirected.data.arrays import check_n_cells, check_n_columns
from undirected.data.files import decode, read_bytes
from undirected.data.raw import RawColumn, RawTable
from undirected.data.text_file import TextFile
from undirected.data.variables import Variable, sort_states
from undirected.errors import DataError, FormatError

ITEM_MARKS = ",;\t"  # the first of these that a file holds stands between its items; else blanks do
Basket = set[str]


@dataclass(frozen=True)
class BasketReader:
    """A file of baskets; an empty line is an empty basket, but not at the end of the file."""

    path: Path
    encoding: str | None = None

    @property
    def source(self) -> str:
        return str(self.path)

    def read(self) -> RawTable:
        text = decode(read_bytes(self.path), self.source, self.encoding)
        rows = list(_read_baskets(text.splitlines(), next((mark for mark in ITEM_MARKS if mark in text), None), self.source))
        return _build_table(rows, _sort_items(rows, self.source), self.source, 0)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        rows = itertools.islice(self._read_again(), start, None)
        while chunk := list(itertools.islice(rows, n_rows)):
            yield _build_table(chunk, self._items, self.source, start)
            start += len(chunk)

    @functools.cached_property
    def _file(self) -> TextFile:
        return TextFile(self.path, self.encoding)

    @functools.cached_property
    def _delimiter(self) -> str | None:
        found: set[str] = set()
        for line in self._file.lines():
            found.update(mark for mark in ITEM_MARKS if mark in line)
            if ITEM_MARKS[0] in found:
                break
        return next((mark for mark in ITEM_MARKS if mark in found), None)

    @functools.cached_property
    def _items(self) -> list[str]:
        """All items of the file: every chunk has a column for each."""
        return _sort_items(self._read_again(), self.source)

    def _read_again(self) -> Iterator[Basket]:
        lines = itertools.chain.from_iterable(line.splitlines() for line in self._file.lines())
        return _read_baskets(lines, self._delimiter, self.source)


def _read_baskets(lines: Iterable[str], delimiter: str | None, name: str) -> Iterator[Basket]:
    lines = _leave_out_last_blanks(lines)
    split = csv.reader(lines, delimiter=delimiter, skipinitialspace=True) if delimiter else (line.split() for line in lines)
    try:
        for row in split:
            yield {" ".join(item.split()) for item in row} - {""}
    except csv.Error as error:
        raise FormatError(f"{name}: {error}") from None


def _leave_out_last_blanks(lines: Iterable[str]) -> Iterator[str]:
    waiting: list[str] = []
    for line in lines:
        if not line.strip():
            waiting.append(line)
            continue
        if waiting:
            yield from waiting
            waiting.clear()
        yield line


def _sort_items(rows: Iterable[Basket], name: str) -> list[str]:
    items = set(itertools.chain.from_iterable(rows))
    if not items:
        raise DataError(f"{name} holds no items")
    check_n_columns(len(items), name)
    return sort_states(items)


def _build_table(rows: Sequence[Basket], items: list[str], name: str, start: int) -> RawTable:
    check_n_cells(len(rows), len(items), sum(map(len, rows)), name)
    position = {item: k for k, item in enumerate(items)}
    codes = np.zeros((len(rows), len(items)), dtype=np.int8, order="F")
    for r, row in enumerate(rows):
        codes[r, [position[item] for item in row]] = 1
    columns = [RawColumn(["no", "yes"], codes[:, k]) for k in range(len(items))]
    fixed = {k: Variable(item, ("no", "yes")) for k, item in enumerate(items)}
    return RawTable(columns, items, name, lines=np.arange(start + 1, start + len(rows) + 1), fixed=fixed, absent="no")
