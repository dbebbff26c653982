"""Which columns of a table become variables: those asked for, without an index, and what to say of those that look out of place."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Collection, Sequence

import numpy as np

from undirected.data.coding import MAX_INTEGER_STATES
from undirected.data.raw import Column, RawTable
from undirected.data.variables import Domain, Variable, as_number, first_repeated
from undirected.errors import DataError, ParameterError, TableWarning, did_you_mean

INDEX_NAMES = ("Unnamed: 0", "__index_level_0__")  # what pandas calls an index that became a column
MANY_STATES = 100  # a column of more than these is named in a warning
IDENTIFIER_SHARE = 0.5  # a column with more distinct cells a row than this looks like an identifier
_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d{1,2}:\d{2}.*)?")


def choose_columns(table: RawTable, drop: Sequence[str], columns: Sequence[str] | None) -> RawTable:
    """Take the columns named, in that order, or all but those dropped."""
    if not drop and columns is None:
        return table
    names = table.known_names
    place = {name: k for k, name in enumerate(names)}
    for name in (*drop, *(columns or ())):
        if name not in place:
            raise ParameterError(f"{table.source} has no column {name!r}.{did_you_mean(name, names)}")
    if columns is not None and len(set(columns)) != len(columns):
        raise ParameterError(f"the column {first_repeated(columns)!r} is named twice")
    kept = [place[name] for name in (names if columns is None else columns) if name not in set(drop)]
    if not kept:
        raise ParameterError(f"{table.source}: no column is left")
    return table.select(kept)


def name_columns(table: RawTable, wanted: Collection[str]) -> RawTable:
    """Leave out an index and nameless empty columns, and name the other nameless ones, saying so; ``wanted`` columns stay."""
    if table.names is None or not table.columns:
        return _leave_out_row_numbers(table, wanted)
    notes, kept, names, taken = [], [], [], set(table.names)
    for k, (name, column) in enumerate(zip(table.names, table.columns, strict=True)):
        keep = (name or f"v{k}") in wanted
        if k == 0 and len(table.columns) > 1 and not keep and (name in INDEX_NAMES or (not name and _is_index(column))):
            notes.append(
                f"the first column is an index (called {name!r}) and is left out"
                if name
                else "the first column, which has no name, is an index and is left out (--categorical v0 keeps it)"
            )
            continue
        if not name and not column.known:
            notes.append(f"column {k + 1} has neither a name nor a cell and is left out")
            continue
        if not name:
            name = next(n for n in (f"v{k}", *(f"column {i}" for i in range(k + 1, k + 2 + len(taken)))) if n not in taken)
            taken.add(name)
            notes.append(f"column {k + 1} has no name and is called {name!r}")
        kept.append(k)
        names.append(name)
    if not kept:
        raise DataError(f"{table.source} has no column with a name or a cell")
    if notes:
        shown = "; ".join(notes[:5]) + (f"; and {len(notes) - 5} more such columns" if len(notes) > 5 else "")
        warnings.warn(f"{table.source}: {shown}", TableWarning, stacklevel=5)
        table = table.select(kept)
        table.names = names
    return _leave_out_row_numbers(table, wanted)


def _is_index(column: Column) -> bool:
    """Whether a nameless first column holds row names: hardly any comes twice, or they are numbers that follow each other."""
    known = column.known
    if not known:
        return False
    if len(known) > IDENTIFIER_SHARE * column.n_rows:
        return True
    numbers = sorted(n for n in map(as_number, known) if n is not None)  # those of joined tables come again
    return len(numbers) == len(known) > MAX_INTEGER_STATES and numbers == [numbers[0] + k for k in range(len(numbers))]


def _leave_out_row_numbers(table: RawTable, wanted: Collection[str]) -> RawTable:
    """Leave out a first column that counts the rows of a file, saying so; a table of few rows may hold such states by chance."""
    name = table.known_names[0] if table.columns else ""
    if table.lines is None or len(table.columns) < 2 or table.n_rows <= MAX_INTEGER_STATES or name in wanted or not counts_rows(table):
        return table
    told = f"the first column ({name!r}) only counts the rows and is left out; keep it with --numeric {name!r} or --categorical {name!r}"
    warnings.warn(f"{table.source}: {told}", TableWarning, stacklevel=6)
    return leave_out_first(table)


def counts_rows(table: RawTable) -> bool:
    """Whether the first column is 0, 1, 2, ... or 1, 2, 3, ... from row to row."""
    numbers = table.columns[0].read_numbers()
    return numbers is not None and numbers[0] in (0, 1) and bool((numbers == numbers[0] + np.arange(len(numbers))).all())


def leave_out_first(table: RawTable) -> RawTable:
    """Leave out the first column; columns without names stay without."""
    rest = table.select(range(1, len(table.columns)))
    if table.names is None:
        rest.names = None
        rest.fixed = {k: Variable(f"v{k}", v.states, v.edges, v.ordered) for k, v in rest.fixed.items()}
    return rest


def warn_of_columns(table: RawTable, domain: Domain, meant: Collection[str]) -> None:
    """Name the columns that look like identifiers, dates or free text: they cost much time and tell little. Those that the user has
    named as states are ``meant``."""
    found = []
    for k, (variable, column) in enumerate(zip(domain.variables, table.columns, strict=True)):
        known = k in table.fixed or column.declared is not None or variable.name in meant
        what = None if known else describe_oddity(variable, column)
        if what is not None:
            found.append((variable.name, what))
    if not found:
        return
    told = ", ".join(f"{name!r} ({what})" for name, what in found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
    drops = " ".join(f"--drop {shlex.quote(name)}" for name, _ in found[:8])
    warnings.warn(
        f"{table.source}: these columns will cost much time and hardly tell anything: {told}. Leave them out with {drops} "
        "(drop=[...] in Python), or group their values first",
        TableWarning, stacklevel=4,
    )  # fmt: skip


def describe_oddity(variable: Variable, column: Column) -> str | None:
    """Say what a column looks like, if it should rather be left out."""
    known = column.known
    if variable.edges is None and len(known) <= MAX_INTEGER_STATES:
        return None
    n_rows = column.n_known
    if variable.edges is not None:
        numbers = np.array([as_number(t) for t in known], dtype=float)
        counted = len(known) == n_rows > 20 and numbers.max() - numbers.min() == len(known) - 1 and (numbers == np.round(numbers)).all()
        return "whole numbers that all differ and follow each other, an identifier?" if counted else None
    if len(known) > MAX_INTEGER_STATES and sum(_DATE.fullmatch(t) is not None for t in known) > 0.9 * len(known):
        return f"{len(known):,} dates"
    if len(known) > 20 and len(known) > IDENTIFIER_SHARE * n_rows:
        return f"{len(known):,} states in {n_rows:,} rows, an identifier or free text?"
    return f"{len(known):,} states" if len(known) > MANY_STATES else None
