"""Databases that are read: SQLite, PostgreSQL and whatever else SQLAlchemy speaks to, and DuckDB."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from undirected.errors import DataError, MissingExtra
from undirected.relational.tables import Reference

SQLITE_FILE, DUCKDB_FILE = b"SQLite format 3\0", b"DUCK"
DUCKDB, SQLITE = "duckdb:///", "sqlite:///"


@dataclass
class TableFacts:
    """What a database tells of a table or view: its columns, those that hold truth values and those that hold bytes, its key, and which
    columns refer to which columns of another table (none for its key)."""

    columns: list[str]
    truths: set[str] = field(default_factory=set)
    bytes: set[str] = field(default_factory=set)
    key: tuple[str, ...] = ()
    references: list[Reference] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)  # of references that are not followed, or that others use in place of a key


class Database(Protocol):
    """An open database that is only read."""

    def list_tables(self) -> list[str]:
        """The names of the tables."""

    def list_views(self) -> list[str]:
        """The names of the views."""

    def describe(self, name: str) -> TableFacts:
        """What the database tells of a table or view."""

    def read_rows(self, name: str, columns: Sequence[str], order: Sequence[str], n_rows: int) -> Iterator[Sequence[Sequence[Any]]]:
        """Go through some columns of a table, ordered by some of them, in pieces of ``n_rows`` rows."""


@contextmanager
def open_database(address: str | os.PathLike[str], schema: str | None) -> Iterator[tuple[Database, str]]:
    """Open a database for reading, whatever it is, and tell what it is called in messages; its own errors become `DataError`."""
    text = os.fspath(address)
    file = Path(text.removeprefix(DUCKDB)) if text.startswith(DUCKDB) or "://" not in text else None
    is_duckdb = file is not None and (text.startswith(DUCKDB) or _recognise_file(file) == DUCKDB)
    opened = _open_duckdb(file, schema) if file is not None and is_duckdb else _open_alchemy(text, file, schema)
    with opened as found:
        yield found


def _recognise_file(path: Path) -> str:
    """Tell from its first bytes what wrote a file."""
    _check_file(path)
    with path.open("rb") as file:
        start = file.read(16)
    if start == SQLITE_FILE:
        return SQLITE
    if start[8:12] == DUCKDB_FILE:
        return DUCKDB
    raise DataError(f"{os.fspath(path)!r} is not a database of SQLite or DuckDB; give others by address, as postgresql://user@host/name")


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"there is no file {os.fspath(path)!r}")


@contextmanager
def _open_duckdb(path: Path, schema: str | None) -> Iterator[tuple[Database, str]]:
    try:
        import duckdb
    except ImportError:
        raise MissingExtra('reading DuckDB files needs duckdb: pip install "undirected[sql]"') from None
    _check_file(path)
    try:
        connection = duckdb.connect(os.fspath(path), read_only=True)
        try:
            yield DuckDatabase(connection, schema or "main"), path.name
        finally:
            connection.close()
    except duckdb.Error as error:
        raise DataError(f"{os.fspath(path)!r} cannot be read: {error}") from None


@contextmanager
def _open_alchemy(text: str, file: Path | None, schema: str | None) -> Iterator[tuple[Database, str]]:
    try:
        import sqlalchemy as sa
    except ImportError:
        raise MissingExtra('reading databases needs SQLAlchemy: pip install "undirected[sql]"') from None
    shown = "the address of the database"
    try:
        url = _choose_driver(sa.make_url(text if file is None else SQLITE))
        shown = url.render_as_string(hide_password=True) if file is None else repr(os.fspath(file))
        if file is None and url.drivername in ("sqlite", "sqlite+pysqlite") and "uri" not in url.query:
            file = Path(url.database or "")
        engine = _make_engine(url, file)
        try:
            with engine.connect() as connection:
                if url.get_backend_name() == "postgresql":  # one state of all tables, however long they take
                    connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                yield AlchemyDatabase(connection, schema), (file.name if file else url.database) or shown
        finally:
            engine.dispose()
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{shown} needs a driver of its own: pip install {error.name}") from None
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        raise DataError(f"{shown} cannot be read: {getattr(error, 'orig', None) or error}") from None


def _choose_driver(url: Any) -> Any:
    """The address with a driver that is installed, where PostgreSQL's names none."""
    if url.drivername in ("postgresql", "postgres"):
        found = next((name for name in ("psycopg", "psycopg2", "pg8000") if importlib.util.find_spec(name)), "psycopg")
        return url.set(drivername=f"postgresql+{found}")
    return url


def _make_engine(url: Any, file: Path | None) -> Any:
    """An engine without a pool; a file of SQLite is opened for reading only."""
    import sqlalchemy as sa

    if file is None:
        return sa.create_engine(url, poolclass=sa.pool.NullPool)
    _check_file(file)

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        connection.text_factory = lambda raw: raw.decode("utf8", "replace")
        return connection

    return sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.NullPool)


def match_name(name: str, known: Collection[str]) -> str:
    """A name as it is known: SQLite does not mind the case in which a foreign key writes it."""
    close = [other for other in known if other.casefold() == name.casefold()]
    return close[0] if name not in known and len(close) == 1 else name


class AlchemyDatabase:
    """A database behind a connection of SQLAlchemy."""

    def __init__(self, connection: Any, schema: str | None) -> None:
        import sqlalchemy as sa

        self._connection, self._schema = connection, schema
        self._inspector: Any = sa.inspect(connection)

    def list_tables(self) -> list[str]:
        return list(self._inspector.get_table_names(schema=self._schema))

    def list_views(self) -> list[str]:
        views = list(self._inspector.get_view_names(schema=self._schema))
        try:
            return views + list(self._inspector.get_materialized_view_names(schema=self._schema))
        except NotImplementedError:  # most databases have none
            return views

    def describe(self, name: str) -> TableFacts:
        import sqlalchemy as sa

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sa.exc.SAWarning)  # of types that it does not know; cells are taken as they come
            found = self._inspector.get_columns(name, schema=self._schema)
            key = self._inspector.get_pk_constraint(name, schema=self._schema)["constrained_columns"]
            foreign = self._inspector.get_foreign_keys(name, schema=self._schema)
        columns = [str(column["name"]) for column in found]
        truths, raw = ({str(c["name"]) for c in found if isinstance(c["type"], t)} for t in (sa.Boolean, sa.LargeBinary))
        references = []
        for own in foreign:
            target, there = own["referred_table"], own.get("referred_schema")
            target = f"{there}.{target}" if there not in (None, self._schema) else match_name(target, self.list_tables())
            names = tuple(match_name(column, columns) for column in own["constrained_columns"])
            references.append(Reference(names, target, tuple(own["referred_columns"])))
        return TableFacts(columns, truths, raw, tuple(key), references)

    def read_rows(self, name: str, columns: Sequence[str], order: Sequence[str], n_rows: int) -> Iterator[Sequence[Sequence[Any]]]:
        import sqlalchemy as sa

        def quote(text: str) -> Any:
            return sa.sql.quoted_name(text, quote=True)

        table = sa.table(quote(name), schema=None if self._schema is None else quote(self._schema))
        cells: dict[str, Any] = {column: sa.column(quote(column)) for column in columns}  # without types, so that cells come as they are
        query = sa.select(*cells.values()).select_from(table).order_by(*(cells[column] for column in order))
        options = {"yield_per": n_rows, "sqlite_raw_colnames": True}
        yield from self._connection.execute(query, execution_options=options).partitions()


class DuckDatabase:
    """A file of DuckDB."""

    PLAIN = (
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "FLOAT",
        "DOUBLE",
        "VARCHAR",
    )

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection, self._schema = connection, schema
        self._types: dict[str, dict[str, str]] = {}

    def _ask(self, what: str, place: str, *values: str) -> list[tuple[Any, ...]]:
        query = f"SELECT {what} FROM {place}() WHERE database_name = current_database() AND schema_name = ? AND NOT "
        query += "internal" if place != "duckdb_constraints" else "false"
        query += "".join(" AND table_name = ?" for _ in values)
        return list(self._connection.execute(query, [self._schema, *values]).fetchall())

    def list_tables(self) -> list[str]:
        return sorted(name for (name,) in self._ask("table_name", "duckdb_tables"))

    def list_views(self) -> list[str]:
        return sorted(name for (name,) in self._ask("view_name", "duckdb_views"))

    def describe(self, name: str) -> TableFacts:
        found = sorted(self._ask("column_index, column_name, data_type", "duckdb_columns", name))
        self._types[name] = {column: kind for _, column, kind in found}
        told = TableFacts(list(self._types[name]), bytes={column for _, column, kind in found if kind == "BLOB"})
        what = "constraint_type, constraint_column_names, referenced_table, referenced_column_names"
        for kind, columns, target, target_columns in self._ask(what, "duckdb_constraints", name):
            if kind == "PRIMARY KEY":
                told.key = tuple(columns)
            elif kind == "FOREIGN KEY":
                told.references.append(Reference(tuple(columns), target, tuple(target_columns)))
        return told

    def read_rows(self, name: str, columns: Sequence[str], order: Sequence[str], n_rows: int) -> Iterator[Sequence[Sequence[Any]]]:
        def quote(text: str) -> str:
            return '"' + text.replace('"', '""') + '"'

        kinds = self._types[name]
        cells = [
            quote(c) if kinds[c] in self.PLAIN else f"CAST({quote(c)} AS VARCHAR)" for c in columns
        ]  # dates would need other libraries
        query = f"SELECT {', '.join(cells)} FROM {quote(self._schema)}.{quote(name)} ORDER BY {', '.join(map(quote, order))}"
        result = self._connection.execute(query)
        while rows := result.fetchmany(n_rows):
            yield rows
