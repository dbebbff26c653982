"""Relational data: the entities of each type, their attributes and their arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import DataError, did_you_mean
from undirected.kernels.types import Array
from undirected.relational.schema import EntityType, Schema

MAX_NAMED = 60  # letters of a key that are shown


@dataclass(frozen=True)
class Entities:
    """All entities of one type.

    ``cells`` holds the attributes, -1 where one is unknown; ``arguments[e, k]`` is the row of the entity that argument ``k`` of entity
    ``e`` names, -1 where it names none. ``keys`` may be missing for links, which their arguments name.
    """

    type: EntityType
    cells: Dataset
    arguments: Array
    keys: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.cells)


class RelationalData:
    """Entities of several types with their attributes and links.

    Make one with `from_frames`, `from_folder`, `from_triples`, `from_sql` or `from_alchemy`. Unknown attributes (-1) are hidden variables.
    """

    def __init__(self, tables: Sequence[Entities], source: str = "the data") -> None:
        self.schema = Schema(table.type for table in tables)
        self.tables = tuple(tables)
        self.source = source
        for table in self.tables:
            self._check(table)
        if self.n_cells == 0:
            raise DataError(f"{source}: no entity has an attribute or relation, so that there is nothing to learn")

    def _check(self, table: Entities) -> None:
        kind = table.type
        if table.cells.domain != kind.attributes or table.arguments.shape != (len(table), len(kind.arguments)):
            raise DataError(f"type {kind.name!r}: cells and arguments do not fit its {len(kind.attributes)} attributes and arguments")
        if table.keys is not None and len(table.keys) != len(table):
            raise DataError(f"type {kind.name!r}: {len(table.keys)} keys for {len(table)} entities")
        for k, argument in enumerate(kind.arguments):
            rows = table.arguments[:, k]
            if len(rows) and (rows.min() < -1 or rows.max() >= len(self[argument.target])):
                raise DataError(f"type {kind.name!r}: argument {argument.name!r} leads beyond the {len(self[argument.target])} entities")

    def __getitem__(self, name: str) -> Entities:
        return self.tables[self.schema.index(name)]

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(t):,} {t.type.name} ({len(t.type.attributes)} attributes)" for t in self.tables)
        return f"<RelationalData of {parts}, from {self.source}>"

    # -- where data comes from
    @classmethod
    def from_frames(cls, entities: Mapping[str, Any], links: Mapping[str, Any] | None = None, **options: Any) -> RelationalData:
        """Take tables from memory or files; `undirected.relational.frames.read_frames` tells how."""
        from undirected.relational.frames import read_frames

        return read_frames(entities, links or {}, **options)

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str], **options: Any) -> RelationalData:
        """Read a folder of entities and true facts; `undirected.relational.facts.read_folder` tells how."""
        from undirected.relational.facts import read_folder

        return read_folder(path, **options)

    @classmethod
    def from_triples(cls, path: str | os.PathLike[str], **options: Any) -> RelationalData:
        """Read lines of head, relation and tail; `undirected.relational.facts.read_triples` tells how."""
        from undirected.relational.facts import read_triples

        return read_triples(path, **options)

    @classmethod
    def from_sql(cls, address: str | os.PathLike[str], **options: Any) -> RelationalData:
        """Read the tables of a database; `undirected.relational.sql.read_sql` tells how."""
        from undirected.relational.sql import read_sql

        return read_sql(address, **options)

    @classmethod
    def from_alchemy(cls, mln_path: str | os.PathLike[str], db_path: str | os.PathLike[str], **options: Any) -> RelationalData:
        """Read predicates and ground atoms as Alchemy has them; `undirected.relational.alchemy.read_alchemy` tells how."""
        from undirected.relational.alchemy import read_alchemy

        return read_alchemy(mln_path, db_path, **options)

    def to_alchemy(self, mln_path: str | os.PathLike[str], db_path: str | os.PathLike[str]) -> None:
        """Write predicates and ground atoms as Alchemy has them; `undirected.relational.alchemy_writer.write_alchemy` tells how."""
        from undirected.relational.alchemy_writer import write_alchemy

        write_alchemy(self, mln_path, db_path)

    # -- cells
    @property
    def n_cells(self) -> int:
        """Attributes of all entities, known or not."""
        return sum(table.cells.codes.size for table in self.tables)

    @property
    def n_observed(self) -> int:
        """Attributes that are known."""
        return sum(int((table.cells.codes >= 0).sum()) for table in self.tables)

    def name(self, kind: str, row: int) -> str:
        """What an entity is called: its key, or the names of its arguments."""
        table = self[kind]
        if table.keys is not None:
            return table.keys[row]
        parts = zip(table.type.arguments, table.arguments[row].tolist(), strict=True)
        return "(" + ", ".join(self.name(a.target, e) if e >= 0 else "-" for a, e in parts) + ")"

    def list_names(self, kind: str) -> tuple[str, ...]:
        """What the entities of a type are called, in their order; links between the same entities are numbered."""
        table = self[kind]
        if table.keys is not None:
            return table.keys
        seen: dict[str, int] = {}
        names = []
        for row in range(len(table)):
            name = self.name(kind, row)
            seen[name] = seen.get(name, 0) + 1
            names.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
        return tuple(names)

    def find(self, kind: str, key: str) -> int:
        """The row of the entity with this key."""
        names = self.list_names(kind)
        try:
            return names.index(key)
        except ValueError:
            raise DataError(f"there is no {kind} {key[:MAX_NAMED]!r}.{did_you_mean(key, names)}") from None

    def hide(self, cells: Sequence[Array]) -> RelationalData:
        """The same data with some cells unknown: ``cells`` marks them, in an array of rows and attributes for each type."""
        tables = []
        for table, marks in zip(self.tables, cells, strict=True):
            codes = np.where(marks, -1, table.cells.codes)
            tables.append(Entities(table.type, Dataset(table.cells.domain, codes, source=table.cells.source), table.arguments, table.keys))
        return RelationalData(tables, self.source)

    def draw_fold(self, n_folds: int, fold: int, seed: int = 0) -> list[Array]:
        """Marks, for `hide`, of one of the folds of equal size into which the known cells are cut at random."""
        sizes = [table.cells.codes.size for table in self.tables]
        known = np.flatnonzero(np.concatenate([table.cells.codes.ravel() >= 0 for table in self.tables]))
        marks = np.zeros(sum(sizes), dtype=bool)
        marks[np.array_split(np.random.default_rng(seed).permutation(known), n_folds)[fold]] = True
        pieces = np.split(marks, np.cumsum(sizes)[:-1])
        return [piece.reshape(table.cells.codes.shape) for piece, table in zip(pieces, self.tables, strict=True)]

    def cut_observed(self, n_folds: int, seed: int = 0) -> list[list[Array]]:
        """All folds of `draw_fold`."""
        return [self.draw_fold(n_folds, fold, seed) for fold in range(n_folds)]
