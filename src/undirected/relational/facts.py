"""Relational data from lists of true facts: a folder of tables, or triples of head, relation and tail."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.raw import RawTable
from undirected.data.variables import Domain, Variable
from undirected.errors import DataError, TableWarning
from undirected.kernels.types import Array
from undirected.relational.data import Entities, RelationalData
from undirected.relational.frames import MOST_CELLS, TRUTH
from undirected.relational.schema import Argument, EntityType, Schema
from undirected.relational.tables import SHOWN, code_attributes, find_entities, list_texts, make_keys, read_columns

ARGUMENTS = ("subject", "object")
MOST_OPEN_CELLS = 10_000_000  # of a table of all pairs where most are unknown; beyond, only pairs of which something is told are stored


@dataclass(frozen=True)
class Facts:
    """Facts about pairs: entities, the number of the relation (-1 for all of them), entities."""

    heads: Array
    relations: Array
    tails: Array

    @classmethod
    def none(cls) -> Facts:
        return cls(*np.zeros((3, 0), np.int64))


@dataclass(frozen=True)
class World:
    """What lists of facts mean: whether what is not listed is false, whether all pairs are stored, and pairs of an entity with itself."""

    closed: bool = True
    cross_product: bool | None = None
    self_pairs: bool | None = None
    like: Schema | None = None


def read_folder(
    path: str | os.PathLike[str], *, self_pairs: bool | None = None, entity_columns: bool = False, like: Schema | None = None
) -> RelationalData:
    """Read a folder of tab-separated tables with names in their first lines.

    ``entities.tsv``: keys, one a line, under the name of the type. ``attributes.tsv`` (optional): keys and attributes. ``relations.tsv``
    (optional): relation, subject and object of true facts; what is not there is false, unless ``unknown.tsv`` lists it, with a relation
    or, for all of a pair, without. ``predicates.tsv`` (optional): the relations in order. Where ``unknown.tsv`` has no relations, each
    pair has at most one, and the relations are the values of one attribute.

    Parameters
    ----------
    self_pairs
        Whether an entity makes a pair with itself; by default, if a fact tells of such a pair.
    entity_columns
        Take the further columns of ``entities.tsv`` as attributes, too.
    like
        The schema of other data or of a model, whose states, bins and relations are taken.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"there is no folder {os.fspath(path)!r}")
    table = read_columns(folder / "entities.tsv")
    kind, *further = table.known_names
    keys = make_keys(table, [kind])
    place = {key: row for row, key in enumerate(keys)}
    known = None if like is None or kind not in like.names else like[kind].attributes.variables
    parts = [code_attributes(table, further, known=_choose(known, further))] if entity_columns else []
    if (folder / "attributes.tsv").exists():
        parts.append(_read_attributes(folder / "attributes.tsv", kind, place, known))
    domain = Domain([variable for part in parts for variable in part.domain.variables])
    codes = np.concatenate([np.zeros((len(keys), 0), np.int8), *(part.codes for part in parts)], axis=1)
    tables = [_make_plain(kind, keys, Dataset(domain, codes, source=folder.name))]
    if (folder / "relations.tsv").exists():
        tables.append(_read_relations(folder, kind, place, World(self_pairs=self_pairs, like=like)))
    return RelationalData(tables, folder.name)


def read_triples(
    path: str | os.PathLike[str],
    *,
    closed_world: bool = True,
    cross_product: bool | None = None,
    self_pairs: bool | None = None,
    entity: str = "entity",
    like: Schema | None = None,
) -> RelationalData:
    """Read lines of head, relation and tail with tabs between them: one type of entities, and pairs with a yes/no attribute per relation.

    Parameters
    ----------
    closed_world
        Whether what is not listed is false; otherwise it is unknown.
    cross_product
        Store all pairs, or only those of which something is told; by default all, unless they have more than
        200 million cells (10 million where what is not listed is unknown).
    self_pairs
        Whether an entity makes a pair with itself; by default, if a line tells of such a pair.
    entity
        What the type is called.
    like
        The schema of other data or of a model, whose relations are taken.
    """
    table = read_columns(path, header=False, format="tsv")
    if len(table.columns) != 3:
        raise DataError(f"{table.source}: {len(table.columns)} columns; head, relation and tail are needed, with tabs between them")
    keys = sorted({text for k in (0, 2) for text in table.columns[k].known})
    relations = sorted(table.columns[1].known)
    place = {key: row for row, key in enumerate(keys)}
    facts = _find_facts(table, (0, 1, 2), entity, place, relations)
    pairs = _make_pairs(
        entity, len(keys), relations, facts, Facts.none(), World(closed_world, cross_product, self_pairs, like), table.source
    )
    plain = Dataset(Domain([]), np.zeros((len(keys), 0), np.int8), source=table.source)
    return RelationalData([_make_plain(entity, keys, plain), pairs], Path(path).name)


def _make_plain(kind: str, keys: list[str], cells: Dataset) -> Entities:
    """Entities without arguments."""
    return Entities(EntityType(kind, cells.domain), cells, np.zeros((len(keys), 0), np.int32), tuple(keys))


def _choose(known: Sequence[Variable] | None, columns: Sequence[str]) -> list[Variable] | None:
    """Of known variables those that are among the columns."""
    return None if known is None else [variable for variable in known if variable.name in columns]


def _read_attributes(file: Path, kind: str, place: dict[str, int], known: Sequence[Variable] | None) -> Dataset:
    """The attributes of the entities, in the order of their keys; those of no line are unknown."""
    table = read_columns(file)
    key, *names = table.known_names
    make_keys(table, [key])
    rows = find_entities(table, [key], kind, place)
    coded = code_attributes(table, names, known=_choose(known, names))
    codes = np.full((len(place), len(coded.domain)), -1, coded.codes.dtype)
    codes[rows] = coded.codes
    return Dataset(coded.domain, codes, source=str(file))


def _find_facts(table: RawTable, columns: tuple[int, int | None, int], kind: str, place: dict[str, int], relations: list[str]) -> Facts:
    """The facts of a table whose columns are subject, relation (None where there is none) and object."""
    names = table.known_names
    heads, tails = (find_entities(table, [names[k]], kind, place) for k in (columns[0], columns[2]))
    if columns[1] is None:
        which = np.full(table.n_rows, -1, np.int32)
    else:
        which = find_entities(table, [names[columns[1]]], "relation", {name: k for k, name in enumerate(relations)})
    for what, rows in (("subject", heads), ("object", tails), ("relation", which if columns[1] is not None else heads)):
        if (rows < 0).any():
            raise DataError(f"{table.where(int(np.argmax(rows < 0)))}: the {what} is empty; a fact needs all of its parts")
    return Facts(heads, which, tails)


def _read_relations(folder: Path, kind: str, place: dict[str, int], world: World) -> Entities:
    """The pairs of ``relations.tsv`` and what stands beside it."""
    table = read_columns(folder / "relations.tsv")
    if len(table.columns) != 3:
        raise DataError(f"{table.source}: {len(table.columns)} columns; relation, subject and object are needed, with tabs between them")
    listed = folder / "predicates.tsv"
    relations = list_texts(read_columns(listed), [0]) if listed.exists() else sorted(table.columns[0].known)
    facts = _find_facts(table, (1, 0, 2), kind, place, relations)
    unknown, one_attribute = Facts.none(), False
    if (folder / "unknown.tsv").exists():
        gaps = read_columns(folder / "unknown.tsv")
        one_attribute = len(gaps.columns) == 2
        unknown = _find_facts(gaps, (0, None, 1) if one_attribute else (1, 0, 2), kind, place, relations)
    if one_attribute:
        return _make_one_attribute(kind, len(place), relations, facts, unknown, world, table)
    return _make_pairs(kind, len(place), relations, facts, unknown, world, table.source)


def _make_one_attribute(kind: str, n: int, relations: list[str], facts: Facts, unknown: Facts, world: World, table: RawTable) -> Entities:
    """Pairs with one attribute, whose states are the relations."""
    arguments = _list_pairs(n, len(relations), facts, unknown, world)
    at = _place_pairs(n, arguments)
    rows = at(facts.heads, facts.tails)
    codes = np.full((len(arguments), 1), -1, np.int16)
    codes[rows, 0] = facts.relations
    twice = np.flatnonzero(codes[rows, 0] != facts.relations)
    if len(twice):
        raise DataError(
            f"{table.where(int(twice[0]))}: this pair has another relation, too; list unknown facts with their relations "
            "where a pair may have several"
        )
    if (np.bincount(rows) > 1).any():
        raise DataError(f"{table.source}: a pair is listed twice with one relation; leave one of the lines out")
    gaps = np.flatnonzero(codes[:, 0] < 0)
    lacking = np.setdiff1d(gaps, at(unknown.heads, unknown.tails))
    if len(lacking) and world.closed:
        raise DataError(f"{table.source}: {len(lacking):,} pairs have no relation and are not listed as unknown")
    domain = Domain([Variable("relation", tuple(relations))])
    return Entities(_make_pair_type(kind, domain), Dataset(domain, codes, source=table.source), arguments)


def _make_pairs(kind: str, n: int, relations: list[str], facts: Facts, unknown: Facts, world: World, source: str) -> Entities:
    """Pairs with a yes/no attribute for each relation that holds between some two different entities."""
    between = np.bincount(facts.relations[facts.heads != facts.tails], minlength=len(relations))
    kept = np.flatnonzero(between > 0)
    wanted = _list_relations(kind, world)
    if wanted is not None:
        relations = [*relations, *(name for name in wanted if name not in relations)]
        kept = np.array([relations.index(name) for name in wanted], dtype=np.int64)
    elif len(kept) < len(relations):
        left = [relations[k] for k in np.flatnonzero(between == 0)]
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        text = ", ".join(map(repr, left[:SHOWN])) + more
        warnings.warn(f"{source}: left out, as they hold between no two different entities: {text}", TableWarning, stacklevel=2)
    if not len(kept):
        raise DataError(f"{source}: no relation holds between two different entities")
    place = np.full(len(relations) + 1, -1)  # the last is that of relation -1
    place[kept] = np.arange(len(kept))
    arguments = _list_pairs(n, len(kept), facts, unknown, world)
    at = _place_pairs(n, arguments)
    codes = np.full((len(arguments), len(kept)), 0 if world.closed else -1, np.int8)
    inside = (place[facts.relations] >= 0) & (at(facts.heads, facts.tails) >= 0)
    codes[at(facts.heads, facts.tails)[inside], place[facts.relations[inside]]] = 1
    rows = at(unknown.heads, unknown.tails)
    whole = unknown.relations < 0
    codes[rows[whole & (rows >= 0)]] = -1
    part = ~whole & (rows >= 0) & (place[unknown.relations] >= 0)
    codes[rows[part], place[unknown.relations[part]]] = -1
    domain = Domain([Variable(relations[k], TRUTH) for k in kept])
    return Entities(_make_pair_type(kind, domain), Dataset(domain, codes, source=source), arguments)


def _list_relations(kind: str, world: World) -> list[str] | None:
    """The relations of the pairs of a schema, if one is given that has them."""
    name = _name_pairs(kind)
    return world.like[name].attributes.names if world.like is not None and name in world.like.names else None


def _name_pairs(kind: str) -> str:
    return "pair" if kind != "pair" else "pair of pairs"


def _make_pair_type(kind: str, domain: Domain) -> EntityType:
    return EntityType(_name_pairs(kind), domain, tuple(Argument(argument, kind) for argument in ARGUMENTS))


def _list_pairs(n: int, n_attributes: int, facts: Facts, unknown: Facts, world: World) -> Array:
    """The pairs that are stored, in order: all of them, or those of which something is told."""
    on_itself = world.self_pairs if world.self_pairs is not None else bool((facts.heads == facts.tails).any())
    everything = (
        world.cross_product
        if world.cross_product is not None
        else n * n * n_attributes <= (MOST_CELLS if world.closed else MOST_OPEN_CELLS)
    )
    if everything:
        numbers = np.arange(n * n, dtype=np.int64)
    else:
        numbers = np.unique(np.concatenate([f.heads.astype(np.int64) * n + f.tails for f in (facts, unknown)]))
    pairs = np.stack([numbers // n, numbers % n], axis=1).astype(np.int32)
    return pairs if on_itself else pairs[pairs[:, 0] != pairs[:, 1]]


def _place_pairs(n: int, arguments: Array):  # type: ignore[no-untyped-def]
    """A function from heads and tails to the rows of their pairs, -1 where one is not stored."""
    numbers = arguments[:, 0].astype(np.int64) * n + arguments[:, 1]

    def find(heads: Array, tails: Array) -> Array:
        wanted = heads.astype(np.int64) * n + tails
        at = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
        return np.where(numbers[at] == wanted, at, -1) if len(wanted) else np.zeros(0, np.int64)

    return find
