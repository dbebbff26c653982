"""Libra's ``.data`` files: states as numbers, ``*`` for unknown ones, an optional row weight in front."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from undirected.data.delimited import PIECE_CELLS, find_digit_width, parse_digits, read_digit_chunks
from undirected.data.files import decode, read_bytes
from undirected.data.raw import RawColumn, RawTable, merge_tables, regroup
from undirected.data.text_file import TextFile
from undirected.data.variables import MAX_STATES, as_number
from undirected.errors import DataError, FormatError

SEPARATOR = b","
Row = tuple[int, float, list[str]]  # the number of its line, its weight, its states


@dataclass(frozen=True)
class LibraReader:
    """A file of Libra's; a variable has the states from 0 to the largest in its column, at least two."""

    path: Path

    @property
    def source(self) -> str:
        return str(self.path)

    def read(self) -> RawTable:
        content = read_bytes(self.path)
        quick = parse_digits(content, self.source, SEPARATOR)
        if quick is not None:
            return replace(quick, numbered=True)
        pieces = list(_build_pieces(_read_rows(decode(content, self.source).splitlines(), self.source), self.source))
        if not pieces:
            raise DataError(f"{self.source} is empty")
        return merge_tables(pieces)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        width = self._digit_width
        if width is not None:
            return (replace(chunk, numbered=True) for chunk in read_digit_chunks(self._file, width, n_rows, start))
        lines = itertools.chain.from_iterable(line.splitlines() for line in self._file.lines())
        rows = itertools.islice(_read_rows(lines, self.source), start, None)
        return regroup(_build_pieces(rows, self.source, n_rows), n_rows)

    @functools.cached_property
    def _file(self) -> TextFile:
        return TextFile(self.path)

    @functools.cached_property
    def _digit_width(self) -> int | None:
        return find_digit_width(self._file, SEPARATOR)


def _build_pieces(rows: Iterator[Row], name: str, most_rows: int = PIECE_CELLS) -> Iterator[RawTable]:
    first = next(rows, None)
    if first is None:
        return
    n_rows = max(1, min(most_rows, PIECE_CELLS // len(first[2])))
    rows = itertools.chain([first], rows)
    while piece := list(itertools.islice(rows, n_rows)):
        columns = [RawColumn.from_cells(cells) for cells in zip(*(cells for _, _, cells in piece), strict=True)]
        weights = np.array([weight for _, weight, _ in piece])
        yield RawTable(columns, None, name, weights, np.array([line for line, _, _ in piece]), numbered=True)


def _read_rows(lines: Iterable[str], name: str) -> Iterator[Row]:
    first: tuple[int, int] | None = None  # its line and its width
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        prefix, bar, rest = line.partition("|")
        weight = as_number(prefix) if bar else 1.0
        if weight is None or weight < 0:
            raise FormatError(f"{name}, line {number}: {prefix.strip()[:40]!r} is not a row weight")
        cells = [c.strip() for c in (rest if bar else line).split(",")]
        first = first or (number, len(cells))
        if len(cells) != first[1]:
            raise FormatError(f"{name}, line {number}: {len(cells)} states where line {first[0]} has {first[1]}")
        for k, cell in enumerate(cells):
            if cell != "*" and not (cell.isascii() and cell.isdigit()):
                raise FormatError(f"{name}, line {number}, column {k + 1}: {cell[:40]!r} is neither a state number nor *")
            if cell != "*" and (len(cell) > 9 or int(cell) >= MAX_STATES):
                raise FormatError(f"{name}, line {number}, column {k + 1}: state {cell[:40]} is too large to be one")
        yield number, weight, [c if c == "*" else str(int(c)) for c in cells]
