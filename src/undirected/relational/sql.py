"""Relational data from the tables of a database, with the keys and foreign keys that it declares."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from undirected.data.cells import write_value
from undirected.data.raw import RawColumn, RawTable, merge_tables
from undirected.errors import DataError, TableWarning, did_you_mean
from undirected.relational.data import RelationalData
from undirected.relational.databases import Database, TableFacts, match_name, open_database
from undirected.relational.frames import fill_tuples
from undirected.relational.schema import Schema
from undirected.relational.tables import Plan, Reference, TableRules, as_names, make_types

PIECE_CELLS = 1 << 19  # cells that are objects of their own at a time


def read_sql(
    address: str | os.PathLike[str],
    *,
    tables: Collection[str] | None = None,
    schema: str | None = None,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    references: Mapping[str, Mapping[str | tuple[str, ...], str]] | None = None,
    bins: int = 4,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    cross_product: bool | Collection[str] = False,
    self_pairs: bool | None = None,
    like: Schema | None = None,
) -> RelationalData:
    """Read the tables of a database, each as a type; nothing is ever written to it.

    A table with two foreign keys or more becomes a type of links, whose entities are its rows. Another needs a primary key; a foreign key
    is its argument. Columns that belong to neither are attributes, and NULL is an unknown one. A primary key is kept to name the rows,
    unless it is made of foreign keys that name them as well.

    Parameters
    ----------
    address
        An address as SQLAlchemy takes it (``sqlite:///shop.db``, ``postgresql://user@host/shop``), ``duckdb:///shop.duckdb``, or the
        path of a file of SQLite or DuckDB.
    tables
        The tables and views to read; by default all tables. References to others are not followed.
    schema
        The schema in the database, if it is not the usual one.
    keys
        The key columns of tables and views that declare none, or other ones than those declared.
    references
        What columns of tables and views refer to, beside the foreign keys declared: ``{table: {column: table}}``, with a tuple where a
        key has several columns.
    bins, categorical, numeric, drop, cross_product, self_pairs, like
        As for `read_frames`. A foreign key with a dropped column is not followed.
    """
    rules = TableRules(bins, as_names(categorical), as_names(numeric), as_names(drop), like)
    with open_database(address, schema) as (database, source):
        names = _choose_tables(database, tables, source)
        facts = {name: database.describe(name) for name in names}
        for option, given in (("keys", keys), ("references", references)):
            for name in given or ():
                if name not in facts:
                    raise DataError(f"{source}: {option} names {name!r}, which is not among the tables read.{did_you_mean(name, facts)}")
        for name, told in facts.items():
            told.key = as_names((keys or {}).get(name, told.key))
            _settle_references(name, told, facts, (references or {}).get(name, {}), rules, f"{source}, table {name!r}")
        rules.check({name: told.columns for name, told in facts.items()})
        for told in list(facts.values()):
            for reference in told.references:
                facts[reference.target].hidden |= set(reference.target_columns)
        plans = [_plan(database, name, facts, rules, f"{source}, table {name!r}") for name in names]
    links = [plan.name for plan in plans if len(plan.references) > 1]
    return RelationalData(fill_tuples(make_types(plans, rules), links, cross_product, self_pairs), source)


def _choose_tables(database: Database, tables: Collection[str] | None, source: str) -> list[str]:
    """The tables to read: those that are named, or all."""
    found = database.list_tables()
    if tables is not None:
        known = [*found, *database.list_views()]
        for name in as_names(tables):
            if name not in known:
                raise DataError(f"{source} has no table or view {name!r}.{did_you_mean(name, known)}")
        found = list(dict.fromkeys(as_names(tables)))
    if not found:
        raise DataError(f"{source} has no tables")
    return found


def _settle_references(
    name: str, told: TableFacts, facts: Mapping[str, TableFacts], given: Mapping[str | tuple[str, ...], str], rules: TableRules, source: str
) -> None:
    """Take the foreign keys that lead to tables which are read, with the columns of the key in its order, and those given."""
    own = {as_names(columns): Reference(as_names(columns), target) for columns, target in given.items()}
    for column in {*told.key, *(column for columns in own for column in columns)}:
        if column not in told.columns:
            raise DataError(f"{source} has no column {column!r}.{did_you_mean(column, told.columns)}")
    dropped = set(rules.choose(rules.drop, name, told.columns))
    kept = []
    for reference in [*(r for r in told.references if r.columns not in own), *own.values()]:
        if reference.target not in facts and reference.columns in own:
            hint = did_you_mean(reference.target, facts)
            raise DataError(
                f"{source}: references leads {reference.argument.name!r} to {reference.target!r}, which is not among the tables read.{hint}"
            )
        if reference.target not in facts or dropped & set(reference.columns):
            continue
        key, there = facts[reference.target].key, facts[reference.target].columns
        reference = replace(reference, target_columns=tuple(match_name(column, there) for column in reference.target_columns))
        for column in reference.target_columns:
            if column not in there:
                raise DataError(
                    f"{source}: {reference.argument.name!r} refers to column {column!r} of {reference.target!r}, which has none such"
                )
        if set(reference.target_columns) == set(key) and len(key) == len(reference.columns):
            place = dict(zip(reference.target_columns, reference.columns, strict=True))
            reference = Reference(tuple(place[column] for column in key), reference.target)
        kept.append(reference)
    told.hidden |= {column for reference in told.references for column in reference.columns}
    told.references = sorted(kept, key=lambda reference: [told.columns.index(column) for column in reference.columns])


def _plan(database: Database, name: str, facts: Mapping[str, TableFacts], rules: TableRules, source: str) -> Plan:
    """Read a table, and tell what it is to become."""
    told = facts[name]
    named = {column for reference in told.references for column in reference.columns}
    is_link, is_target = len(told.references) > 1, any(r.target == name for other in facts.values() for r in other.references)
    if not is_link and not told.key:
        raise DataError(_tell_keyless(database, name, told, source))
    key = told.key if not is_link or is_target or set(told.key) - named else ()
    needed = {*key, *named, *told.hidden}
    bytes_left = [column for column in told.columns if column in told.bytes and column not in needed]
    if bytes_left:
        warnings.warn(f"{source}: left out as attributes, as they hold bytes: {', '.join(bytes_left)}", TableWarning, stacklevel=3)
    left = {*bytes_left, *rules.choose(rules.drop, name, told.columns)} - needed
    columns = [column for column in told.columns if column not in left]
    order = list(dict.fromkeys([*told.key, *(c for reference in told.references for c in reference.columns)]))
    table = _read_table(database, name, columns, order, source)
    for k, column in enumerate(columns):
        if column in told.truths and set(table.columns[k].texts) <= {"0", "1", ""}:
            table.columns[k] = table.columns[k].rewrite([{"0": "False", "1": "True"}.get(text, text) for text in table.columns[k].texts])
    return Plan(name, table, key, tuple(told.references), tuple(told.hidden | set(told.key)))


def _tell_keyless(database: Database, name: str, told: TableFacts, source: str) -> str:
    if name in database.list_views():
        return (
            f"{source} is a view, and views have no keys; name its key columns (keys={{{name!r}: ...}}) "
            f"or what two of its columns refer to (references={{{name!r}: {{column: table, column: table}}}})"
        )
    how_many = "one foreign key" if told.references else "no foreign keys"
    return (
        f"{source} has no primary key and {how_many}, so that its rows have no names; name its key columns (keys={{{name!r}: ...}}), "
        "or leave it out by naming the others (tables=[...])"
    )


def _read_table(database: Database, name: str, columns: Sequence[str], order: Sequence[str], source: str) -> RawTable:
    """Read columns of a table as texts, piece by piece; NULL is the empty one."""
    pieces = []
    for rows in database.read_rows(name, columns, order, max(1, PIECE_CELLS // len(columns))):
        if len(rows):
            found = [RawColumn.from_cells(_write_cells(cells)) for cells in zip(*rows, strict=True)]
            pieces.append(RawTable(found, list(columns), source))
    return merge_tables(pieces) if pieces else RawTable([RawColumn.from_cells([]) for _ in columns], list(columns), source)


def _write_cells(cells: Sequence[Any]) -> Sequence[str]:
    """Cells as texts; those of one plain kind the quick way."""
    kinds = set(map(type, cells))
    if kinds <= {str}:
        return cells
    if kinds <= {int}:
        return list(map(str, cells))
    if kinds <= {int, str, type(None)}:
        return ["" if x is None else str(x) for x in cells]
    return [bytes(x).hex() if isinstance(x, bytes | bytearray | memoryview) else write_value(x) for x in cells]
