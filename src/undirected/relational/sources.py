"""Relational data from whatever a user names: a folder, a database, triples, or Alchemy's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undirected.errors import DataError, ParameterError, did_you_mean
from undirected.relational.data import RelationalData
from undirected.relational.schema import Schema

DATABASES = (".db", ".sqlite", ".sqlite3", ".duckdb", ".ddb")
TRIPLES = (".tsv", ".txt", ".tab", ".nt3")
TAKEN = {
    "alchemy": ("--open-world",),
    "sql": ("--self-pairs", "--tables"),
    "folder": ("--self-pairs",),
    "triples": ("--open-world", "--self-pairs"),
}  # options, by what the data is
NAMES = {"alchemy": "Alchemy's files", "sql": "a database", "folder": "a folder of tables", "triples": "triples"}
KINDS = (
    "a folder with entities.tsv, a database (.db, .sqlite, .duckdb, or an address such as sqlite:///shop.db), triples (.tsv), or x.mln x.db"
)


def open_relational(
    sources: Sequence[str],
    *,
    open_world: bool = False,
    self_pairs: bool | None = None,
    tables: Sequence[str] | None = None,
    like: Schema | None = None,
) -> RelationalData:
    """Read relational data by what it looks like: two files, the first of which is an ``.mln``, are Alchemy's; an address or a database
    file is read by its foreign keys; a folder has ``entities.tsv``; other text files hold triples.

    ``like`` gives the types of a model, whose states and bins are taken for attributes of the same name.
    """
    if not sources:
        raise ParameterError(f"name some data: {KINDS}")
    first, *rest = map(str, sources)
    is_alchemy = first.lower().endswith(".mln")
    if rest and not is_alchemy:
        raise ParameterError(f"{len(sources)} sources; one is needed, or an .mln and a .db file")
    if is_alchemy and len(rest) != 1:
        raise ParameterError(f"{first}: an .mln file needs one .db file beside it")
    kind = "alchemy" if is_alchemy else _find_kind(first)
    given: dict[str, Any] = {"--open-world": open_world or None, "--self-pairs": self_pairs, "--tables": tables}
    for option, value in given.items():
        if value is not None and option not in TAKEN[kind]:
            raise ParameterError(f"{option} does not go with {first!r}, which is read as {NAMES[kind]}")
    if kind == "alchemy":
        return RelationalData.from_alchemy(first, rest[0], closed_world=not open_world, like=like)
    if kind == "sql":
        return RelationalData.from_sql(first, tables=tables, self_pairs=self_pairs, like=like)
    if kind == "folder":
        return RelationalData.from_folder(first, self_pairs=self_pairs, like=like)
    return RelationalData.from_triples(first, closed_world=not open_world, self_pairs=self_pairs, like=like)


def _find_kind(source: str) -> str:
    """What a source is: ``sql``, ``folder`` or ``triples``."""
    if "://" in source:
        return "sql"
    path = Path(source)
    if path.is_dir():
        return "folder"
    if not path.exists():
        near = did_you_mean(path.name, (p.name for p in path.parent.glob("*")) if path.parent.is_dir() else ())
        raise DataError(f"there is no file or folder {source!r}.{near}")
    suffix = path.suffix.lower() if path.suffix.lower() != ".gz" else Path(path.stem).suffix.lower()
    if suffix in DATABASES:
        return "sql"
    if suffix in TRIPLES:
        return "triples"
    raise DataError(f"{source}: the suffix {suffix!r} is not known; name {KINDS}")
