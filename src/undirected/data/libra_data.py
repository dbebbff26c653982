"""Libra's ``.data`` files: states as numbers, ``*`` for unknown ones, an optional row weight in front."""

from __future__ import annotations

import numpy as np

from undirected.data.delimited import parse_digits
from undirected.data.files import decode
from undirected.data.raw import RawColumn, RawTable
from undirected.data.variables import MAX_STATES, Variable, as_number, check_n_literals, numbered_states
from undirected.errors import DataError, FormatError


def parse_libra(content: bytes, name: str) -> RawTable:
    quick = parse_digits(content, name, b",")
    return _numbered(quick if quick is not None else _parse_rows(decode(content, name), name))


def _parse_rows(text: str, name: str) -> RawTable:
    rows: list[list[str]] = []
    weights: list[float] = []
    lines: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        prefix, bar, rest = line.partition("|")
        weight = as_number(prefix) if bar else 1.0
        if weight is None or weight < 0:
            raise FormatError(f"{name}, line {number}: {prefix.strip()[:40]!r} is not a row weight")
        cells = [c.strip() for c in (rest if bar else line).split(",")]
        if rows and len(cells) != len(rows[0]):
            raise FormatError(f"{name}, line {number}: {len(cells)} states where line {lines[0]} has {len(rows[0])}")
        for k, cell in enumerate(cells):
            if cell != "*" and not (cell.isascii() and cell.isdigit()):
                raise FormatError(f"{name}, line {number}, column {k + 1}: {cell[:40]!r} is neither a state number nor *")
            if cell != "*" and (len(cell) > 9 or int(cell) >= MAX_STATES):
                raise FormatError(f"{name}, line {number}, column {k + 1}: state {cell[:40]} is too large to be one")
        rows.append([c if c == "*" else str(int(c)) for c in cells])
        weights.append(weight)
        lines.append(number)
    if not rows:
        raise DataError(f"{name} is empty")
    columns = [RawColumn.from_cells(column) for column in zip(*rows, strict=True)]
    return RawTable(columns, None, name, np.array(weights), np.array(lines))


def _numbered(table: RawTable) -> RawTable:
    """States are numbers from 0 to the largest seen, at least two of them."""
    sizes = [max([1, *(int(t) for t in column.known)]) + 1 for column in table.columns]
    check_n_literals(sum(sizes))
    table.fixed = {k: Variable(f"v{k}", numbered_states(n)) for k, n in enumerate(sizes)}
    return table
