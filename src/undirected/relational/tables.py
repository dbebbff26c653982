"""Tables of entities: which columns are keys, which lead to other entities, and which are attributes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undirected.data.coding import ColumnRules, clean_table, encode, learn_domain
from undirected.data.columns import describe_oddity
from undirected.data.dataset import Dataset
from undirected.data.raw import RawTable
from undirected.data.readers import Reading, find_reader
from undirected.data.variables import Domain, first_repeated
from undirected.errors import DataError, TableWarning, did_you_mean
from undirected.kernels.types import Array
from undirected.relational.data import MAX_NAMED, Entities
from undirected.relational.schema import Argument, EntityType

SHOWN = 8


def read_columns(source: Any, header: bool = True, format: str | None = None) -> RawTable:
    """Read a table as it was found, from anything `read_data` takes; a file's first line names the columns, if there is a ``header``."""
    table = clean_table(find_reader(source, Reading(format=format, header=header)).read(), (), None)
    names = table.known_names
    if len(set(names)) < len(names):
        raise DataError(f"{table.source}: two columns are called {first_repeated(names)!r}; rename one of them")
    return table


def place_column(table: RawTable, name: str) -> int:
    """The place of a column; an unknown name is an error that names close ones."""
    names = table.known_names
    if name not in names:
        raise DataError(f"{table.source} has no column {name!r}.{did_you_mean(name, names)}")
    return names.index(name)


def list_texts(table: RawTable, columns: Sequence[int]) -> list[str]:
    """The texts of a column, row by row; those of several are joined with commas."""
    parts = [[table.columns[k].texts[code] for code in table.columns[k].codes.tolist()] for k in columns]
    return parts[0] if len(parts) == 1 else [", ".join(texts) for texts in zip(*parts, strict=True)]


def make_keys(table: RawTable, columns: Sequence[str]) -> list[str]:
    """The keys of the entities, one a row; empty and repeated ones are errors."""
    places = [place_column(table, name) for name in columns]
    keys = list_texts(table, places)
    shown = " and ".join(repr(name) for name in columns)
    for place in places:
        empty = [code for code, text in enumerate(table.columns[place].texts) if not text]
        bad = np.flatnonzero(np.isin(table.columns[place].codes, empty))
        if len(bad):
            raise DataError(f"{table.where(int(bad[0]))}: the key {shown} is empty; every entity needs one")
    first: dict[str, int] = {}
    for row, key in enumerate(keys):
        if first.setdefault(key, row) != row:
            raise DataError(f"{table.where(row)}: the key {key[:MAX_NAMED]!r} stands in row {first[key] + 1}, too; keys ({shown}) must differ")
    return keys


def find_entities(table: RawTable, columns: Sequence[str], target: str, place: Mapping[str, int]) -> Array:
    """The rows of the entities that columns name, by ``place``; -1 where the cell is empty, an error where there is no such entity."""
    places = [place_column(table, name) for name in columns]
    if len(places) == 1:
        column = table.columns[places[0]]
        texts, codes = column.texts, column.codes
    else:
        joined = list_texts(table, places)
        lacking = np.zeros(table.n_rows, dtype=bool)
        for k in places:
            lacking |= np.array([not text for text in table.columns[k].texts], dtype=bool)[table.columns[k].codes]
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault("" if none else t, len(numbers)) for t, none in zip(joined, lacking, strict=True)], dtype=np.int64)
        texts = list(numbers)
    rows = np.array([place.get(text, -2) if text else -1 for text in texts], dtype=np.int32)
    found = rows[codes] if len(codes) else np.zeros(0, np.int32)
    bad = np.flatnonzero(found == -2)
    if len(bad):
        text = texts[int(codes[bad[0]])]
        shown = ", ".join(repr(name) for name in columns)
        raise DataError(
            f"{table.where(int(bad[0]))}: column {shown} names the {target} {text[:MAX_NAMED]!r}, which is not there."
            f"{did_you_mean(text, itertools.islice(place, 2000))}"
        )
    return found


def code_attributes(table: RawTable, columns: Sequence[str], rules: ColumnRules | None = None) -> Dataset:
    """Code columns as attributes. Those that are empty, and those that tell hardly anything because nearly every row has another text, are
    left out with a warning, unless ``rules`` name them."""
    rules = rules or ColumnRules()
    meant = {*rules.categorical, *rules.numeric}
    kept, told = [], []
    for name in columns:
        column = table.columns[place_column(table, name)]
        if not column.known:
            told.append(f"{name!r} (empty)")
            continue
        if name not in meant:
            part = table.select([place_column(table, name)])
            what = "too many states" if _has_too_many(part) else describe_oddity(learn_domain(part, ColumnRules())[0], column)
            if what is not None:
                told.append(f"{name!r} ({what})")
                continue
        kept.append(name)
    if told:
        more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
        warnings.warn(f"{table.source}: left out as attributes: {', '.join(told[:SHOWN])}{more}", TableWarning, stacklevel=2)
    part = table.select([place_column(table, name) for name in kept])
    own = ColumnRules(rules.bins, *([n for n in names if n in kept] for names in (rules.categorical, rules.numeric)))
    if not kept:
        return Dataset(Domain([]), np.zeros((table.n_rows, 0), np.int8), source=table.source)
    domain = learn_domain(part, own)
    return encode(part, domain)


def _has_too_many(part: RawTable) -> bool:
    """Whether a column of texts has more states than a variable may have."""
    try:
        learn_domain(part, ColumnRules())
    except DataError:
        return True
    return False


def make_entities(
    table: RawTable,
    name: str,
    keys: Sequence[str] | None,
    arguments: Sequence[tuple[Argument, Sequence[str]]],
    places: Mapping[str, Mapping[str, int]],
    leave_out: Sequence[str] = (),
    rules: ColumnRules | None = None,
) -> Entities:
    """The entities of a table: ``keys`` and the columns of ``arguments`` are taken as such, the others are attributes.

    ``places`` gives the row of each key, for each type that an argument leads to.
    """
    own_keys = make_keys(table, keys) if keys else None
    known = {**places, name: {key: row for row, key in enumerate(own_keys)}} if own_keys is not None else places
    named = [find_entities(table, columns, argument.target, known[argument.target]) for argument, columns in arguments]
    used = {*(keys or ()), *leave_out, *(column for _, columns in arguments for column in columns)}
    cells = code_attributes(table, [column for column in table.known_names if column not in used], rules)
    kind = EntityType(name, cells.domain, tuple(argument for argument, _ in arguments))
    stacked = np.stack(named, axis=1) if named else np.zeros((table.n_rows, 0), np.int32)
    return Entities(kind, cells, stacked, tuple(own_keys) if own_keys is not None else None)
