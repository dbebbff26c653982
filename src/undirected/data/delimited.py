"""Tables as delimited text: CSV, TSV and their kin."""

from __future__ import annotations

import csv
import functools
import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undirected.data.cells import MISSING_TEXTS
from undirected.data.files import decode, read_bytes
from undirected.data.raw import RawColumn, RawTable, merge_tables, regroup
from undirected.data.text_file import TextFile
from undirected.data.variables import as_number
from undirected.errors import DataError, FormatError
from undirected.kernels.types import Array

DELIMITERS = (",", "\t", ";", "|")
DIGIT_SEPARATORS = b",\t; "
HEADER_ROWS = 200  # rows from which it is found out whether the first one holds names
PIECE_CELLS = 1 << 19  # cells that are texts of their own at a time


@dataclass(frozen=True)
class DelimitedReader:
    """A file of rows of cells with a delimiter between them; the delimiter, and whether the first row holds names, are found out if not
    given. By default a comma may be a decimal mark where it is not the delimiter."""

    path: Path
    delimiter: str | None = None
    header: bool | None = None
    encoding: str | None = None

    @property
    def source(self) -> str:
        return str(self.path)

    def read(self) -> RawTable:
        content = read_bytes(self.path)
        if self._may_be_digits:
            quick = parse_digits(content, self.source)
            if quick is not None:
                return quick
        text = decode(content, self.source, self.encoding)
        pieces = list(self._parse(functools.partial(io.StringIO, text, newline="")))
        if not pieces:
            raise DataError(f"{self.source} has no rows")
        return merge_tables(pieces)

    def read_chunks(self, n_rows: int, start: int = 0) -> Iterator[RawTable]:
        file, width = self._file, self._digit_width
        if width is not None:
            return read_digit_chunks(file, width, n_rows, start)
        return regroup(self._parse(file.lines, start, n_rows), n_rows)

    @property
    def _may_be_digits(self) -> bool:
        return not self.header and self.encoding is None

    @functools.cached_property
    def _file(self) -> TextFile:
        return TextFile(self.path, self.encoding)

    @functools.cached_property
    def _digit_width(self) -> int | None:
        return find_digit_width(self._file, DIGIT_SEPARATORS) if self._may_be_digits else None

    def _parse(self, open_lines: Callable[[], Iterable[str]], start: int = 0, most_rows: int = PIECE_CELLS) -> Iterator[RawTable]:
        """Parse lines into pieces of a table, from row ``start`` on."""
        delimiter = self.delimiter or sniff_delimiter(open_lines())
        rows = _read_rows(open_lines(), self.source, delimiter)
        names, rows = _take_names(rows, self.source, delimiter, self.header)
        rows = itertools.islice(rows, start, None)
        first = next(rows, None)
        if first is None:
            return
        n_rows = max(1, min(most_rows, PIECE_CELLS // len(first[1])))
        rows = itertools.chain([first], rows)
        while piece := list(itertools.islice(rows, n_rows)):
            columns = [RawColumn.from_cells(cells) for cells in zip(*(cells for _, cells in piece), strict=True)]
            lines = np.array([line for line, _ in piece])
            yield RawTable(columns, names, self.source, lines=lines, decimal_comma=delimiter != ",")


Row = tuple[int, list[str]]  # the number of its line, and its cells


def parse_digits(content: bytes, name: str, separators: bytes = DIGIT_SEPARATORS) -> RawTable | None:
    """Parse rows of single digits at fixed places, the commonest big file, without a Python object a cell; else None."""
    crlf, width = _measure_line(content)
    body = content if content.endswith(b"\n") else content + (b"\r\n" if crlf else b"\n")
    if len(body) % width or (width - crlf) % 2:
        return None
    grid = np.frombuffer(body, dtype=np.uint8).reshape(-1, width)
    return None if _find_separator(grid, crlf, separators) is None else _take_digits(grid, crlf, name, 0)


def find_digit_width(file: TextFile, separators: bytes) -> int | None:
    """Find the width of the lines of a file that holds nothing but rows of single digits at fixed places; else None."""
    rest, width, crlf, mark = b"", 0, False, None
    for block in file.blocks():
        if not width:
            if b"\n" not in block:
                return None  # one line, or lines far too long
            crlf, width = _measure_line(block)
            if (width - crlf) % 2:
                return None
        block = rest + block
        n = len(block) // width
        rest = block[n * width :]
        if n:
            found = _find_separator(np.frombuffer(block, np.uint8, n * width).reshape(-1, width), crlf, separators)
            if found is None or mark not in (None, found):
                return None
            mark = found
    if rest:  # the last line may lack its end
        last = np.frombuffer(rest + (b"\r\n" if crlf else b"\n"), np.uint8)
        if len(last) != width or _find_separator(last.reshape(1, -1), crlf, separators) != mark:
            return None
    return width


def read_digit_chunks(file: TextFile, width: int, n_rows: int, start: int = 0) -> Iterator[RawTable]:
    """Go through a file whose lines `find_digit_width` has measured."""
    with file.open() as unpacked:
        unpacked.seek(start * width)
        while content := unpacked.read(n_rows * width):
            crlf = content[width - 2 : width - 1] == b"\r"
            missing = -len(content) % width
            body = content + b"\r\n"[2 - missing :] if missing else content
            grid = np.frombuffer(body, dtype=np.uint8).reshape(-1, width)
            yield _take_digits(grid, crlf, file.name, start)
            start += len(grid)


def _measure_line(content: bytes) -> tuple[bool, int]:
    """Tell whether the first line ends with two marks, and how long it is with them."""
    end = content.find(b"\n")
    end = len(content) if end < 0 else end
    return end > 0 and content[end - 1 : end] == b"\r", end + 1


def _find_separator(grid: Array, crlf: bool, separators: bytes) -> int | None:
    """Find the mark between the digits of a grid of bytes, 0 if it has one column; None if the grid is none of digits."""
    end = grid.shape[1] - 1 - crlf
    cells, marks = grid[:, 0:end:2], grid[:, 1:end:2]
    if not ((cells >= 48) & (cells <= 57)).all() or not (grid[:, -1] == 10).all():
        return None
    if marks.size and not ((marks == marks[0, 0]).all() and marks[0, 0] in separators):
        return None
    if crlf and not (grid[:, -2] == 13).all():
        return None
    return int(marks[0, 0]) if marks.size else 0


def _take_digits(grid: Array, crlf: bool, name: str, start: int) -> RawTable:
    cells = grid[:, 0 : grid.shape[1] - 1 - crlf : 2]
    columns = [_take_digit_column(np.ascontiguousarray(cells[:, k])) for k in range(cells.shape[1])]
    return RawTable(columns, None, name, lines=np.arange(start + 1, start + len(grid) + 1))


def _take_digit_column(digits: Array) -> RawColumn:
    present = np.flatnonzero(np.bincount(digits - 48, minlength=10))
    mapping = np.zeros(10, dtype=np.int8)
    mapping[present] = np.arange(len(present))
    return RawColumn([str(d) for d in present], mapping[digits - 48])


def _read_rows(lines: Iterable[str], name: str, delimiter: str) -> Iterator[Row]:
    """Read rows with the numbers of their lines; empty lines are left out."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    first = True
    try:
        for row in reader:
            if row and (first or len(row) > 1 or row[0].strip()):
                yield reader.line_num, row
                first = False
    except csv.Error as error:
        raise FormatError(f"{name}, line {reader.line_num}: {error}") from None


def _take_names(rows: Iterator[Row], name: str, delimiter: str, header: bool | None) -> tuple[list[str] | None, Iterator[Row]]:
    """Take the names off the rows, if the first row holds them; the other rows are checked to be as wide as it on the way."""
    first_line, first = next(rows, (0, []))
    if not first:
        raise DataError(f"{name} is empty")
    second = next(rows, None)
    unnamed = second is not None and len(second[1]) == len(first) + 1 and header is not False and could_be_names(first)
    width, line = (len(second[1]), second[0]) if second is not None and unnamed else (len(first), first_line)
    rest = _check_widths(rows if second is None else itertools.chain([second], rows), width, line, name, delimiter)
    if unnamed:  # R writes no name above row names
        return ["", *(cell.strip() for cell in first)], rest
    sample = list(itertools.islice(rest, HEADER_ROWS))
    rest = itertools.chain(sample, rest)
    if header if header is not None else has_names(first, [cells for _, cells in sample]):
        return [cell.strip() for cell in first], rest
    return None, itertools.chain([(first_line, first)], rest)


def _check_widths(rows: Iterable[Row], width: int, first_line: int, name: str, delimiter: str) -> Iterator[Row]:
    for row in rows:
        if len(row[1]) != width:
            raise FormatError(
                f"{name}, line {row[0]}: {len(row[1])} cells where line {first_line} has {width}; the cells are "
                f"separated by {delimiter!r}. If each line lists the items of a basket, read it with --format basket"
            )
        yield row


def sniff_delimiter(lines: Iterable[str]) -> str:
    """Find the mark that stands most often in the first line; a semicolon where the commas around it belong to numbers."""
    line = next((line for line in lines if line.strip()), "").rstrip("\r\n")
    counts = {d: line.count(d) for d in DELIMITERS}
    best = max(counts, key=lambda d: counts[d])
    if best == "," and counts[";"]:
        parts = [part.strip() for part in line.split(";")]
        if all("," not in part or as_number(part.replace(",", ".")) is not None for part in parts):
            return ";"
    return best if counts[best] else " " if " " in line.strip() else ","


def could_be_names(cells: list[str]) -> bool:
    clean = [c.strip() for c in cells]
    return len(set(clean)) == len(clean) and not any(as_number(c) is not None or c in MISSING_TEXTS for c in clean)


def has_names(first: list[str], rows: list[list[str]]) -> bool:
    """A first row that cannot be data: text over numbers, or distinct words none of which comes again in its column. Empty cells tell
    nothing; an empty one above row numbers is how an index is written."""
    cells = [c.strip() for c in first]
    named = [k for k, c in enumerate(cells) if c]
    if not cells[0] and len(cells) > 1 and named == list(range(1, len(cells))) and _count_up([row[0] for row in rows]):
        return True
    if not named or any(as_number(cells[k]) is not None or cells[k] in MISSING_TEXTS for k in named):
        return False
    if not rows:
        return True
    columns = {k: [row[k].strip() for row in rows] for k in named}
    if any(all(as_number(c) is not None for c in column if c not in MISSING_TEXTS) for column in columns.values()):
        return True
    return len({cells[k] for k in named}) == len(named) and not any(cells[k] in columns[k] for k in named)


def _count_up(cells: list[str]) -> bool:
    """Whether cells are row numbers, counted from 0 or 1."""
    return bool(cells) and cells[0].strip() in ("0", "1") and cells == [str(k) for k in range(int(cells[0]), int(cells[0]) + len(cells))]
