"""Relational data from tables in memory or files, one for each type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from undirected.data.arrays import is_frame
from undirected.data.columns import INDEX_NAMES
from undirected.data.dataset import Dataset
from undirected.data.raw import RawColumn, RawTable
from undirected.data.variables import Domain, Variable
from undirected.errors import DataError, ParameterError, did_you_mean
from undirected.kernels.types import Array
from undirected.relational.data import Entities, RelationalData
from undirected.relational.schema import EntityType, Schema
from undirected.relational.tables import Plan, Reference, TableRules, as_names, make_types, read_columns

TRUTH = ("no", "yes")
YES_NO = (TRUTH, ("False", "True"), ("0", "1"), ("n", "y"), ("f", "t"), ("No", "Yes"), ("NO", "YES"), ("N", "Y"), ("F", "T"))
MOST_CELLS = 200_000_000  # of a table of all tuples
Columns = Mapping[str | tuple[str, ...], str]  # the type that each column, or each tuple of columns, leads to


def read_frames(
    entities: Mapping[str, Any],
    links: Mapping[str, Any] | None = None,
    *,
    bins: int = 4,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    cross_product: bool | Collection[str] = False,
    self_pairs: bool | None = None,
    like: Schema | None = None,
) -> RelationalData:
    """Take a table for each type of entities and links: pandas or polars frames, paths, or anything else that `read_data` takes.

    Every column that is neither a key nor leads to another type is an attribute; missing cells are unknown.

    Parameters
    ----------
    entities
        For each type ``(table, key)`` or ``(table, key, {column: type})``; the key is a column or a list of columns, and the last part
        tells which columns name entities of other types (or of its own, as a manager does).
    links
        For each type ``(table, {column: type})`` or ``(table, {column: type}, key)``. Where a key has several columns, a tuple of
        columns names an entity: ``{("first", "last"): "person"}``.
    bins, categorical, numeric, drop
        As for `read_data`, for all tables; a column is named ``column`` or, in one table only, ``type.column``.
    cross_product
        Whether all tuples of the entities of a link's arguments are stored, not only those that its table lists; or the names of the
        link types for which this holds. What is not listed is false in yes/no columns and unknown in others. A table without columns
        for attributes then gets one called like the link type, which tells whether a tuple is listed.
    self_pairs
        Whether tuples may name an entity twice; by default, if the table lists such a tuple, or takes only what is listed.
    like
        The schema of other data or of a model, whose states and bins are taken for attributes of the same type and name.

    Examples
    --------
    >>> import pandas as pd
    >>> from undirected.relational.data import RelationalData
    >>> people = pd.DataFrame({"name": ["Ann", "Bob", "Cyd"], "smokes": ["yes", "no", "yes"]})
    >>> friends = pd.DataFrame({"a": ["Ann"], "b": ["Cyd"]})
    >>> RelationalData.from_frames({"person": (people, "name")}, {"friends": (friends, {"a": "person", "b": "person"})}, cross_product=True)
    <RelationalData of 3 person (1 attributes), 6 friends (1 attributes), from frames>
    """
    rules = TableRules(bins, as_names(categorical), as_names(numeric), as_names(drop), like)
    links = links or {}
    twice = [name for name in links if name in entities]
    if twice:
        raise DataError(f"{twice[0]!r} is the name of a type of entities and of links; rename one of them")
    plans = [_plan_entities(name, value) for name, value in entities.items()]
    plans += [_plan_links(name, value) for name, value in links.items()]
    rules.check({plan.name: plan.table.known_names for plan in plans})
    return RelationalData(fill_tuples(make_types(plans, rules), list(links), cross_product, self_pairs), "frames")


def _plan_entities(name: str, value: Any) -> Plan:
    """What the table of a type of entities is to become."""
    parts = _split(name, value, "(table, key) or (table, key, {column: type})")
    if isinstance(parts[1], Mapping):
        raise ParameterError(f"entities[{name!r}]: the key column comes before the columns that lead to other types")
    return _plan(name, parts[0], as_names(parts[1]), parts[2] if len(parts) > 2 else {})


def _plan_links(name: str, value: Any) -> Plan:
    """What the table of a type of links is to become."""
    parts = _split(name, value, "(table, {column: type}) or (table, {column: type}, key)")
    if not isinstance(parts[1], Mapping) or len(parts[1]) < 2:
        raise ParameterError(f"links[{name!r}]: a link leads to two entities or more; give {{column: type, column: type}} after the table")
    return _plan(name, parts[0], as_names(parts[2]) if len(parts) > 2 else (), parts[1])


def _split(name: str, value: Any, needed: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple) or len(value) not in (2, 3):
        found = f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
        raise ParameterError(f"{name!r} is given as {found}; {needed} is needed")
    return value


def _plan(name: str, source: Any, key: tuple[str, ...], columns: Columns) -> Plan:
    if not isinstance(columns, Mapping):
        raise ParameterError(f"{name!r}: {{column: type}} is needed where columns lead to other types, not {type(columns).__name__}")
    references = tuple(Reference(as_names(names), target) for names, target in columns.items())
    if is_frame(source):
        used = {*key, *(column for reference in references for column in reference.columns)}
        table = replace(_read_frame(source, used), source=f"the frame of {name!r}")
    else:
        table = read_columns(source)
        table = table if isinstance(source, RawTable) else replace(table, source=f"{table.source} ({name!r})")
    return Plan(name, table, key, references, leave_out=("", *INDEX_NAMES))


def _read_frame(frame: Any, used: Collection[str]) -> RawTable:
    """Read a frame; columns of floating-point numbers that are neither keys nor lead to others are written as texts the quick way."""
    names = [str(column) for column in frame.columns]
    repeated = len(set(names)) < len(names)
    floats = {} if repeated else {str(c): c for c in frame.columns if str(c) not in used and np.asarray(frame[c][:0]).dtype.kind == "f"}
    table = read_columns(frame[[column for column in frame.columns if str(column) not in floats]] if floats else frame)
    columns = dict(zip(table.known_names, table.columns, strict=True))
    for name, column in floats.items():
        distinct, codes = np.unique(np.asarray(frame[column]), return_inverse=True)
        columns[name] = RawColumn(list(map(repr, distinct.tolist())), codes.astype(np.int32))
    return replace(table, columns=[columns[name] for name in names], names=names)


def fill_tuples(
    tables: Sequence[Entities], links: Sequence[str], cross_product: bool | Collection[str], self_pairs: bool | None
) -> list[Entities]:
    """Store all tuples of some links, or leave out those that name an entity twice, as `read_frames` tells."""
    if isinstance(cross_product, bool):
        wanted: Collection[str] = links if cross_product else ()
    else:
        wanted = as_names(cross_product)
        for name in wanted:
            if name not in links:
                raise ParameterError(f"cross_product: there is no link type {name!r}.{did_you_mean(name, links)}")
    sizes = {table.type.name: len(table) for table in tables}
    out = []
    for table in tables:
        if table.type.name in wanted:
            table = _take_all_tuples(table, [sizes[a.target] for a in table.type.arguments], self_pairs)
        elif table.type.name in links and self_pairs is False:
            table = _take_rows(table, ~_name_twice(table.type, table.arguments))
        out.append(table)
    return out


def _name_twice(kind: EntityType, arguments: Array) -> Array:
    """Which tuples name one entity by two arguments."""
    twice = np.zeros(len(arguments), dtype=bool)
    for k, argument in enumerate(kind.arguments):
        for earlier in range(k):
            if kind.arguments[earlier].target == argument.target:
                twice |= (arguments[:, k] == arguments[:, earlier]) & (arguments[:, k] >= 0)
    return twice


def _take_rows(table: Entities, marks: Array) -> Entities:
    """Keep the entities that are marked."""
    rows = np.flatnonzero(marks)
    keys = None if table.keys is None else tuple(table.keys[row] for row in rows.tolist())
    return Entities(table.type, table.cells.subset(rows), table.arguments[rows], keys)


def _take_all_tuples(table: Entities, sizes: Sequence[int], self_pairs: bool | None) -> Entities:
    """All tuples of the entities of a link's arguments, those that its table lists among them; these have no keys."""
    kind, cells = table.type, table.cells
    told = [_complete_truth(variable, cells.codes[:, v]) for v, variable in enumerate(cells.domain.variables)]
    told = told or [(Variable(kind.name, TRUTH), np.ones(len(table), np.int8))]
    variables = [variable for variable, _ in told]
    n_tuples = int(np.prod([float(n) for n in sizes]))
    if n_tuples * len(variables) > MOST_CELLS:
        raise DataError(
            f"{cells.source}: all {n_tuples:,} tuples with {len(variables)} attributes make more than {MOST_CELLS:,} cells; "
            f"leave {kind.name!r} out of cross_product"
        )
    lacking = (table.arguments < 0).any(axis=1)
    if lacking.any():
        raise DataError(f"{cells.where(int(np.argmax(lacking)))}: an argument is empty; with cross_product every row must name all of them")
    numbers = np.ravel_multi_index(tuple(table.arguments.T.astype(np.int64)), tuple(sizes)) if len(table) else np.zeros(0, np.int64)
    _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place] != np.arange(len(table)))
    if len(again):
        row = int(again[0])
        before = cells.where(int(first[place[row]]))
        raise DataError(
            f"{cells.where(row)}: the same entities are named in {before}, too; with cross_product each tuple may be listed once"
        )
    codes = np.empty((n_tuples, len(variables)), cells.codes.dtype, order="F")
    codes[:] = [0 if variable.states in YES_NO else -1 for variable in variables]
    for v, (_, listed) in enumerate(told):
        codes[numbers, v] = listed
    arguments = np.stack(np.unravel_index(np.arange(n_tuples), tuple(sizes)), axis=1).astype(np.int32)
    domain = Domain(variables)
    full = Entities(EntityType(kind.name, domain, kind.arguments), Dataset(domain, codes, source=cells.source), arguments)
    on_itself = self_pairs if self_pairs is not None else bool(_name_twice(kind, table.arguments).any())
    return full if on_itself else _take_rows(full, ~_name_twice(kind, arguments))


def _complete_truth(variable: Variable, codes: Array) -> tuple[Variable, Array]:
    """Give a variable that says yes in every row, or no, the other state, too."""
    if len(variable.states) == 1:
        for pair in YES_NO:
            if variable.states[0] in pair:
                return Variable(variable.name, pair), np.where(codes < 0, -1, pair.index(variable.states[0]))
    return variable, codes
