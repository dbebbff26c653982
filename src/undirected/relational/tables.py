"""Tables of entities: which columns are keys, which lead to other entities, and which are attributes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undirected.data.cells import MISSING_TEXTS
from undirected.data.coding import MAX_INTEGER_STATES, ColumnRules, clean_table, encode, learn_domain
from undirected.data.columns import describe_oddity
from undirected.data.dataset import Dataset, code_type
from undirected.data.discretize import bin_codes, cut_equally
from undirected.data.raw import RawColumn, RawTable
from undirected.data.readers import Reading, find_reader
from undirected.data.variables import MAX_STATES, Domain, Variable, as_number, first_repeated
from undirected.errors import DataError, ParameterError, TableWarning, did_you_mean
from undirected.kernels.types import Array
from undirected.relational.data import MAX_NAMED, Entities
from undirected.relational.schema import Argument, EntityType, Schema

SHOWN = 8


@dataclass(frozen=True)
class Reference:
    """Columns that name an entity of a ``target`` type, by its key or by other columns of its table."""

    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...] = ()

    @property
    def argument(self) -> Argument:
        return Argument(", ".join(self.columns), self.target)


@dataclass(frozen=True)
class Plan:
    """What a table is to become: entities of a type with a key, if any, and references; the other columns but some are attributes."""

    name: str
    table: RawTable
    key: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    leave_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableRules:
    """How columns of several tables become attributes; they are named as ``column``, in every table that has it, or ``type.column``."""

    bins: int = 4
    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()
    drop: Sequence[str] = ()
    like: Schema | None = None  # whose variables are taken for columns of the same type and name

    def choose(self, names: Sequence[str], kind: str, columns: Sequence[str]) -> list[str]:
        """The columns of a table that names mean."""
        return [column for column in columns if column in names or f"{kind}.{column}" in names]

    def find_variables(self, kind: str, columns: Sequence[str]) -> list[Variable] | None:
        """The known variables of a type that has such columns, None where the type is new."""
        if self.like is None or kind not in self.like.names:
            return None
        return [variable for variable in self.like[kind].attributes.variables if variable.name in columns]

    def check(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Raise for a name that no table has; ``columns`` are those of each type."""
        known = [text for kind, names in columns.items() for name in names for text in (name, f"{kind}.{name}")]
        for option in ("categorical", "numeric", "drop"):
            for name in getattr(self, option):
                if name not in known:
                    raise ParameterError(f"{option}: no table has a column {name!r}.{did_you_mean(name, known)}")


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def read_columns(source: Any, header: bool = True, format: str | None = None) -> RawTable:
    """Read a table as it was found but for blanks around its cells, from anything `read_data` takes; a file's first line names the
    columns, if there is a ``header``."""
    table: RawTable = find_reader(source, Reading(format=format, header=header)).read()
    table = replace(table, columns=[column.rewrite([text.strip() for text in column.texts]) for column in table.columns])
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
    """The texts of a column, given by its place, row by row; those of several are joined with commas."""
    column = merge_columns(table, [table.known_names[k] for k in columns])
    return [column.texts[code] for code in column.codes.tolist()]


def merge_columns(table: RawTable, columns: Sequence[str]) -> RawColumn:
    """One column in place of several, whose texts are joined with commas (those with commas of their own in quotes, so that different
    cells stay different); empty where one of them is."""
    parts: list[RawColumn] = [table.columns[place_column(table, name)] for name in columns]
    if len(parts) == 1:
        return parts[0]
    codes = np.zeros(table.n_rows, dtype=np.int64)
    for part in parts:
        _, first, codes = np.unique(codes * len(part.texts) + part.codes, return_index=True, return_inverse=True)
    cells = [[part.texts[code] for code in part.codes[first].tolist()] for part in parts]
    texts = [", ".join(map(_quote, found)) if all(found) else "" for found in zip(*cells, strict=True)]
    return RawColumn(texts, codes)


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def make_keys(table: RawTable, columns: Sequence[str], whole: bool = True) -> list[str]:
    """The keys of the entities, one a row; repeated ones are errors, and empty ones if keys must be ``whole``."""
    column = merge_columns(table, columns)
    shown = " and ".join(repr(name) for name in columns)
    lacking = np.array([not text for text in column.texts], dtype=bool)[column.codes] if table.n_rows else np.zeros(0, bool)
    if whole and lacking.any():
        raise DataError(f"{table.where(int(np.argmax(lacking)))}: the key {shown} is empty; every entity needs one")
    _, first, place = np.unique(column.codes, return_index=True, return_inverse=True)
    again = np.flatnonzero((first[place] != np.arange(table.n_rows)) & ~lacking)
    if len(again):
        row = int(again[0])
        key = column.texts[int(column.codes[row])]
        before = table.where(int(first[place[row]]))
        raise DataError(f"{table.where(row)}: the key {key[:MAX_NAMED]!r} stands in {before}, too; keys ({shown}) must differ")
    return [column.texts[code] for code in column.codes.tolist()]


def find_entities(
    table: RawTable, columns: Sequence[str], target: str, place: Mapping[str, int], keys: Sequence[str] | None = None
) -> Array:
    """The rows of the entities that columns name, by ``place``; -1 where the cell is empty, an error where there is no such entity.

    ``keys`` are those of the rows themselves, for the message."""
    column = merge_columns(table, columns)
    rows = np.array([_find_key(text, place) for text in column.texts], dtype=np.int32)
    found = rows[column.codes] if table.n_rows else np.zeros(0, np.int32)
    bad = np.flatnonzero(found == -2)
    if len(bad):
        text = column.texts[int(column.codes[bad[0]])]
        shown = ", ".join(repr(name) for name in columns)
        own = f" (key {keys[int(bad[0])][:MAX_NAMED]!r})" if keys is not None else ""
        where, hint = table.where(int(bad[0])) + own, did_you_mean(text, place)
        raise DataError(f"{where}: column {shown} names the {target} {text[:MAX_NAMED]!r}, which is not there.{hint}")
    return found


def _find_key(text: str, place: Mapping[str, int]) -> int:
    """The row of a key, -1 for a missing one and -2 for one that is not there; a number may have been written with ``.0`` in one table
    and without in another."""
    row = place.get(text) if text else -1
    if row is not None:
        return row
    if text in MISSING_TEXTS:
        return -1
    other = text.removesuffix(".0") if text.endswith(".0") else f"{text}.0"
    return place.get(other, -2) if as_number(text) is not None else -2


def code_attributes(
    table: RawTable, columns: Sequence[str], rules: ColumnRules | None = None, known: Sequence[Variable] | None = None
) -> Dataset:
    """Code columns as attributes. Those that are empty, and those that tell hardly anything because nearly every row has another text, are
    left out with a warning, unless ``rules`` name them. With ``known`` variables these are coded, and other columns left out; states that
    they do not have are unknown cells, with a warning."""
    if known is not None:
        return _code_known(table, known)
    rules = rules or ColumnRules()
    kept: list[tuple[Variable, Array]] = []
    told = []
    for name in columns:
        found = _code_column(table.select([place_column(table, name)]), name, rules)
        if isinstance(found, str):
            told.append(f"{name!r} ({found})")
        else:
            kept.append(found)
    if told:
        more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
        warnings.warn(f"{table.source}: left out as attributes: {', '.join(told[:SHOWN])}{more}", TableWarning, stacklevel=2)
    domain = Domain([variable for variable, _ in kept])
    codes = np.empty((table.n_rows, len(kept)), code_type(domain), order="F")
    for v, (_, own) in enumerate(kept):
        codes[:, v] = own
    return Dataset(domain, codes, source=table.source, lines=table.lines if isinstance(table.lines, np.ndarray) else None)


def _code_known(table: RawTable, known: Sequence[Variable]) -> Dataset:
    """The columns of some variables, with their states and bins."""
    if not known:
        return Dataset(Domain([]), np.zeros((table.n_rows, 0), np.int8), source=table.source)
    part = clean_table(table.select([place_column(table, variable.name) for variable in known]), (), None)
    coded = encode(part, Domain(known), "missing")
    return Dataset(coded.domain, coded.codes, source=table.source)


def _code_column(part: RawTable, name: str, rules: ColumnRules) -> tuple[Variable, Array] | str:
    """The variable that the only column of a table makes and its codes, or why it should not be an attribute."""
    column: RawColumn = part.columns[0]
    meant = name in rules.categorical or name in rules.numeric
    plain = not part.fixed and column.declared is None
    if plain and not meant and len(column.texts) > 2 * MAX_STATES and not _may_be_number(column):
        return f"{len(column.texts):,} texts in {part.n_rows:,} rows, an identifier or free text?"
    if plain and name not in rules.categorical:
        numbers = _read_numbers(column)
        if numbers is not None and (name in rules.numeric or np.isfinite(numbers).sum() > MAX_INTEGER_STATES):
            return _bin_column(column, name, numbers, rules, meant)
    part = clean_table(part, (), None)
    column = part.columns[0]
    if not column.known:
        return "empty"
    own = ColumnRules(rules.bins, *([name] if name in names else [] for names in (rules.categorical, rules.numeric)))
    try:
        domain = learn_domain(part, own)
    except DataError as error:
        if meant:
            raise
        return str(error).removeprefix(f"{part.source}: ").removeprefix(f"column {name!r} ")
    oddity = None if meant else describe_oddity(domain[0], column)
    return oddity if oddity is not None else (domain[0], encode(part, domain).codes[:, 0])


def _may_be_number(column: RawColumn) -> bool:
    """Whether no text tells that a column does not hold numbers; this looks at few of them."""
    return all(as_number(text) is not None or text in MISSING_TEXTS or "," in text for text in column.texts[:1000])


def _read_numbers(column: RawColumn) -> Array | None:
    """The numbers that the texts of a column stand for, NaN for missing cells; None if one of them is no number."""
    try:
        numbers = np.array([np.nan if text in MISSING_TEXTS else float(text) for text in column.texts], dtype=float)
    except ValueError:
        return None
    odd = np.isinf(numbers).any() or any("_" in text for text in column.texts)  # infinite, or digits in groups
    return None if odd else numbers


def _bin_column(column: RawColumn, name: str, numbers: Array, rules: ColumnRules, meant: bool) -> tuple[Variable, Array] | str:
    """Cut a column of many numbers into bins, as `learn_domain` does, but for a million of them in a second."""
    known = np.isfinite(numbers)
    if not known.any():
        return "empty"
    distinct = np.unique(numbers[known])
    whole = bool((distinct == np.round(distinct)).all())
    if whole and len(distinct) <= MAX_INTEGER_STATES and name not in rules.numeric:
        clean = RawTable([column.strip()], [name], "")  # 1 and 1.0 are one state
        domain = learn_domain(clean, ColumnRules())
        return domain[0], encode(clean, domain).codes[:, 0]
    variable = cut_equally(name, numbers, column.count_texts().astype(float), rules.bins)
    if whole and not meant and distinct[-1] - distinct[0] == len(distinct) - 1:
        oddity = describe_oddity(variable, column.strip())
        if oddity is not None:
            return oddity
    bins = bin_codes(variable, np.where(known, numbers, distinct[0])).astype(np.int16)
    return variable, np.where(known, bins, -1).astype(np.int16)[column.codes]


def make_types(plans: Sequence[Plan], rules: TableRules) -> list[Entities]:
    """The entities of all tables: their keys first, so that tables may refer to each other in any order."""
    by_name = {plan.name: plan for plan in plans}
    keys = {plan.name: make_keys(plan.table, plan.key) if plan.key else None for plan in plans}
    places: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}

    def place(reference: Reference, plan: Plan) -> Mapping[str, int]:
        if reference.target not in by_name:
            hint = did_you_mean(reference.target, by_name)
            raise DataError(f"{plan.table.source}: {reference.argument.name!r} leads to {reference.target!r}, which is no type.{hint}")
        target = by_name[reference.target]
        columns = reference.target_columns or target.key
        if not columns:
            raise DataError(
                f"{plan.table.source}: {reference.argument.name!r} leads to {reference.target!r}, which has no key; name its key column"
            )
        if (target.name, columns) not in places:
            texts = keys[target.name] if columns == target.key else make_keys(target.table, columns, whole=False)
            places[target.name, columns] = {key: row for row, key in enumerate(texts or ()) if key}
        found = places[target.name, columns]
        n_given, n_needed = len(reference.columns), len(columns)
        if n_given != n_needed:
            raise DataError(
                f"{plan.table.source}: {n_given} column(s) {reference.argument.name!r} for the {n_needed} of the key of {target.name!r}"
            )
        return found

    return [_make_entities(plan, keys[plan.name], rules, place) for plan in plans]


def _make_entities(
    plan: Plan, keys: list[str] | None, rules: TableRules, place: Callable[[Reference, Plan], Mapping[str, int]]
) -> Entities:
    """The entities of a table: its key and references are taken as such, the other columns are attributes."""
    table = plan.table
    named = [find_entities(table, ref.columns, ref.target, place(ref, plan), keys) for ref in plan.references]
    used = {*plan.key, *plan.leave_out, *(column for ref in plan.references for column in ref.columns)}
    free = [column for column in table.known_names if column not in used]
    dropped = rules.choose(rules.drop, plan.name, free)
    free = [column for column in free if column not in dropped]
    own = ColumnRules(rules.bins, *(rules.choose(names, plan.name, free) for names in (rules.categorical, rules.numeric)))
    cells = code_attributes(table, free, own, rules.find_variables(plan.name, free))
    kind = EntityType(plan.name, cells.domain, tuple(ref.argument for ref in plan.references))
    stacked = np.stack(named, axis=1) if named else np.zeros((table.n_rows, 0), np.int32)
    return Entities(kind, cells, stacked, tuple(keys) if keys is not None else None)
