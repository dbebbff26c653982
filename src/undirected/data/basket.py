"""Baskets: one line of items a row, one yes/no variable per item."""

from __future__ import annotations

import csv

import numpy as np

from undirected.data.arrays import check_n_cells, check_n_columns
from undirected.data.raw import RawColumn, RawTable
from undirected.data.variables import Variable, sort_states
from undirected.errors import DataError, FormatError


def parse_basket(text: str, name: str) -> RawTable:
    """Items with commas, semicolons, tabs or else blanks between them; an empty line is an empty basket."""
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    delimiter = next((mark for mark in ",;\t" if mark in text), None)
    try:
        split = csv.reader(lines, delimiter=delimiter, skipinitialspace=True) if delimiter else (line.split() for line in lines)
        rows = [{" ".join(item.split()) for item in row} - {""} for row in split]
    except csv.Error as error:
        raise FormatError(f"{name}: {error}") from None
    names = sort_states(set().union(*rows))
    if not names:
        raise DataError(f"{name} holds no items")
    check_n_columns(len(names), name)
    check_n_cells(len(rows), len(names), sum(map(len, rows)), name)
    position = {item: k for k, item in enumerate(names)}
    codes = np.zeros((len(rows), len(names)), dtype=np.int8, order="F")
    for r, row in enumerate(rows):
        codes[r, [position[item] for item in row]] = 1
    columns = [RawColumn(["no", "yes"], codes[:, k]) for k in range(len(names))]
    fixed = {k: Variable(item, ("no", "yes")) for k, item in enumerate(names)}
    return RawTable(columns, names, name, lines=np.arange(1, len(rows) + 1), fixed=fixed, absent="no")
