"""Relational data from whatever a user names: a folder, a database, triples, or Alchemy's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undirected.errors import DataError, ParameterError, did_you_mean
from undirected.relational.data import RelationalData

DATABASES = (".db", ".sqlite", ".sqlite3", ".duckdb", ".ddb")
TRIPLES = (".tsv", ".txt", ".tab", ".nt3")
KINDS = (
    "a folder with entities.tsv, a database (.db, .sqlite, .duckdb, or an address such as sqlite:///shop.db), triples (.tsv), or x.mln x.db"
)


def open_relational(sources: Sequence[str], **options: Any) -> RelationalData:
    """Read relational data by what it looks like: two files, the first of which is an ``.mln``, are Alchemy's; an address or a database
    file is read by its foreign keys; a folder has ``entities.tsv``; other text files hold triples."""
    if not sources:
        raise ParameterError(f"name some data: {KINDS}")
    first, *rest = map(str, sources)
    if first.lower().endswith(".mln"):
        if len(rest) != 1:
            raise ParameterError(f"{first}: an .mln file needs one .db file beside it")
        return RelationalData.from_alchemy(first, rest[0], **options)
    if rest:
        raise ParameterError(f"{len(sources)} sources; one is needed, or an .mln and a .db file")
    if "://" in first:
        return RelationalData.from_sql(first, **options)
    path = Path(first)
    if path.is_dir():
        return RelationalData.from_folder(path, **options)
    if not path.exists():
        near = did_you_mean(path.name, (p.name for p in path.parent.glob("*")) if path.parent.is_dir() else ())
        raise DataError(f"there is no file or folder {first!r}.{near}")
    suffix = path.suffix.lower() if path.suffix.lower() != ".gz" else Path(path.stem).suffix.lower()
    if suffix in DATABASES:
        return RelationalData.from_sql(first, **options)
    if suffix in TRIPLES:
        return RelationalData.from_triples(path, **options)
    raise DataError(f"{first}: the suffix {suffix!r} is not known; name {KINDS}")
