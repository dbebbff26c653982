"""Tables as delimited text: CSV, TSV and their kin."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np

from undirected.data.files import decode
from undirected.data.raw import MISSING_TEXTS, RawColumn, RawTable
from undirected.data.variables import as_number
from undirected.errors import DataError, FormatError
from undirected.kernels.types import Array

DELIMITERS = (",", "\t", ";", "|")
LOOKED_AT = 200  # rows from which it is found out whether the first one holds names


def parse_digits(content: bytes, name: str, separators: bytes = b",\t; ") -> RawTable | None:
    """Rows of single digits at fixed places, the commonest big file, without a Python object a cell; else None."""
    end = content.find(b"\n")
    end = len(content) if end < 0 else end
    crlf = end > 0 and content[end - 1 : end] == b"\r"
    width = end + 1
    body = content if content.endswith(b"\n") else content + (b"\r\n" if crlf else b"\n")
    if len(body) % width or (width - crlf) % 2:
        return None
    grid = np.frombuffer(body, dtype=np.uint8).reshape(-1, width)
    cells, marks = grid[:, 0 : width - 1 - crlf : 2], grid[:, 1 : width - 1 - crlf : 2]
    if not ((cells >= 48) & (cells <= 57)).all() or not (grid[:, -1] == 10).all():
        return None
    if marks.size and not ((marks == marks[0, 0]).all() and marks[0, 0] in separators):
        return None
    if crlf and not (grid[:, -2] == 13).all():
        return None
    columns = [_digit_column(np.ascontiguousarray(cells[:, k])) for k in range(cells.shape[1])]
    return RawTable(columns, None, name, lines=np.arange(1, len(grid) + 1))


def _digit_column(digits: Array) -> RawColumn:
    present = np.flatnonzero(np.bincount(digits - 48, minlength=10))
    mapping = np.zeros(10, dtype=np.int8)
    mapping[present] = np.arange(len(present))
    return RawColumn([str(d) for d in present], mapping[digits - 48])


def parse_delimited(
    content: bytes, name: str, delimiter: str | None, header: bool | None, encoding: str | None = None, decimal: str | None = None
) -> RawTable:
    """Rows of cells with a delimiter between them; the delimiter, and whether the first row holds names, are found out if not given.

    ``decimal="."`` leaves commas in numbers alone; by default, or with ``","``, a column of numbers such as ``1,5`` is read as numbers
    (by default only where the delimiter is not the comma).
    """
    if not header and encoding is None:
        quick = parse_digits(content, name)
        if quick is not None:
            return quick
    text = decode(content, name, encoding)
    delimiter = delimiter or sniff_delimiter(text)
    rows = _read_rows(text, name, delimiter)
    first_line, first = next(rows, (0, []))
    if not first:
        raise DataError(f"{name} is empty")
    cells, codes, lines, sample, unnamed = _collect(rows, first, first_line, name, delimiter, header)
    if unnamed:  # R writes no name above row names
        first = ["", *first]
    names: list[str] | None = None
    if unnamed or (header if header is not None else _is_header(first, sample)):
        names = [cell.strip() for cell in first]
    else:
        lines.insert(0, first_line)
        for seen, out, cell in zip(cells, codes, first, strict=True):
            out.insert(0, seen.setdefault(cell, len(seen)))
    columns = [RawColumn(list(seen), np.array(out, dtype=np.int32)).stripped() for seen, out in zip(cells, codes, strict=True)]
    if decimal == "," or (decimal is None and delimiter != ","):
        columns = [column.with_decimal_point() for column in columns]
    return RawTable(columns, names, name, lines=np.array(lines))


def _read_rows(text: str, name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the numbers of their lines; empty lines are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    first = True
    try:
        for row in reader:
            if row and (first or len(row) > 1 or row[0].strip()):
                yield reader.line_num, row
                first = False
    except csv.Error as error:
        raise FormatError(f"{name}, line {reader.line_num}: {error}") from None


def _collect(
    rows: Iterator[tuple[int, list[str]]], first: list[str], first_line: int, name: str, delimiter: str, header: bool | None
) -> tuple[list[dict[str, int]], list[list[int]], list[int], list[list[str]], bool]:
    """The rows after the first, column by column: texts by number, and each row's number; lines; the first rows; and whether the first
    row lacks the name of the first column."""
    width, unnamed = len(first), False
    cells: list[dict[str, int]] = [{} for _ in range(width)]
    codes: list[list[int]] = [[] for _ in range(width)]
    lines: list[int] = []
    sample: list[list[str]] = []
    for line, row in rows:
        if not lines and len(row) == width + 1 and header is not False and _could_be_names(first):
            width, unnamed = width + 1, True
            cells, codes = [{} for _ in range(width)], [[] for _ in range(width)]
        if len(row) != width:
            raise FormatError(
                f"{name}, line {line}: {len(row)} cells where line {lines[0] if unnamed else first_line} has {width}; the cells are "
                f"separated by {delimiter!r}. If each line lists the items of a basket, read it with --format basket"
            )
        lines.append(line)
        for seen, out, cell in zip(cells, codes, row, strict=True):
            out.append(seen.setdefault(cell, len(seen)))
        if len(sample) < LOOKED_AT:
            sample.append(row)
    return cells, codes, lines, sample, unnamed


def sniff_delimiter(text: str) -> str:
    """The mark that stands most often in the first line; a semicolon where the commas around it belong to numbers."""
    line = next((line for line in io.StringIO(text) if line.strip()), "").rstrip("\r\n")
    counts = {d: line.count(d) for d in DELIMITERS}
    best = max(counts, key=lambda d: counts[d])
    if best == "," and counts[";"]:
        parts = [part.strip() for part in line.split(";")]
        if all("," not in part or as_number(part.replace(",", ".")) is not None for part in parts):
            return ";"
    return best if counts[best] else " " if " " in line.strip() else ","


def _could_be_names(cells: list[str]) -> bool:
    clean = [c.strip() for c in cells]
    return len(set(clean)) == len(clean) and not any(as_number(c) is not None or c in MISSING_TEXTS for c in clean)


def _is_header(first: list[str], rows: list[list[str]]) -> bool:
    """A first row that cannot be data: text over numbers, or distinct words none of which comes again in its column. Empty cells tell
    nothing; an empty one above row numbers is how an index is written."""
    cells = [c.strip() for c in first]
    named = [k for k, c in enumerate(cells) if c]
    if not cells[0] and len(cells) > 1 and named == list(range(1, len(cells))) and _counts([row[0] for row in rows]):
        return True
    if not named or any(as_number(cells[k]) is not None or cells[k] in MISSING_TEXTS for k in named):
        return False
    if not rows:
        return True
    columns = {k: [row[k].strip() for row in rows] for k in named}
    if any(all(as_number(c) is not None for c in column if c not in MISSING_TEXTS) for column in columns.values()):
        return True
    return len({cells[k] for k in named}) == len(named) and not any(cells[k] in columns[k] for k in named)


def _counts(cells: list[str]) -> bool:
    """Whether cells are row numbers, counted from 0 or 1."""
    return bool(cells) and cells[0].strip() in ("0", "1") and cells == [str(k) for k in range(int(cells[0]), int(cells[0]) + len(cells))]
