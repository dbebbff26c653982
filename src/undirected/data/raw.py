"""Columns as they were found, before they are coded: distinct cell texts and which row holds which."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from undirected.data.dataset import Dataset, code_type
from undirected.data.discretize import bin_codes, equal_frequency
from undirected.data.variables import (
    MISSING_STATE,
    TRUTH,
    Domain,
    Variable,
    as_number,
    check_same_variables,
    default_names,
    sort_states,
)
from undirected.errors import DataError, ParameterError, TableWarning, did_you_mean
from undirected.kernels.types import Array

MISSING_TEXTS = frozenset({"", "?", "*", "NA", "NaN", "nan", "N/A", "<NA>", "None", "null", "NaT"})
MAX_INTEGER_STATES = 10
UNKNOWN_POLICIES = ("error", "missing")
_BREAK = re.compile(r"[\r\n\t]+")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")


@dataclass
class RawColumn:
    """``texts[codes[r]]`` is row r's cell, stripped. ``declared`` are the states that the table itself names, in its order, if it does;
    ``ordered`` if it says that this order means something."""

    texts: list[str]
    codes: Array
    declared: tuple[str, ...] | None = None
    ordered: bool = False

    @classmethod
    def from_cells(cls, cells: Iterable[str]) -> RawColumn:
        seen: dict[str, int] = {}
        codes = [seen.setdefault(cell, len(seen)) for cell in cells]
        return cls(list(seen), np.array(codes, dtype=np.int32)).stripped()

    @classmethod
    def from_array(cls, values: Array) -> RawColumn:
        """Numbers, truth values, text or objects; whole numbers lose their decimal point."""
        values = np.asarray(values)
        if values.dtype.kind in "Mm":
            values = values.astype(str)  # dates and durations
        if values.dtype.kind in "OUS":
            return cls.from_cells(_text(x) for x in values.tolist())
        distinct, codes = np.unique(values, return_inverse=True)
        return cls([_text(x) for x in distinct.tolist()], codes.astype(np.int8 if len(distinct) < 128 else np.int32)).stripped()

    @classmethod
    def from_declared(cls, categories: Iterable[object], codes: Array, ordered: bool) -> RawColumn:
        """Of a column that names its states: the number of each row's state, negative where it is missing."""
        texts = clean_texts([_text(c) for c in categories])
        declared = tuple(dict.fromkeys(t for t in texts if t))
        codes = np.where(codes < 0, len(texts), codes).astype(np.int32)
        column = cls(["/"] * (len(texts) + 1), codes)._with_texts([*texts, ""])
        return replace(column, declared=declared or None, ordered=ordered)

    def stripped(self) -> RawColumn:
        """Texts without blanks at the ends, each once, missing ones as the empty text, truth values and whole numbers in one form."""
        return self._with_texts(clean_texts(self.texts))

    def with_missing(self, na: Sequence[str]) -> RawColumn:
        """The column with more texts that mean a missing cell; one that is a number stands for every way to write it."""
        numbers = {as_number(t) for t in na} - {None}
        gone = {t for t in self.texts if t in na or (numbers and as_number(t) in numbers)}
        if not gone:
            return self
        kept = None if self.declared is None else tuple(t for t in self.declared if t not in gone)
        return replace(self._with_texts(["" if t in gone else t for t in self.texts]), declared=kept or None)

    def with_decimal_point(self) -> RawColumn:
        """The column with ``1.234,5`` as ``1234.5``, if all its cells are such numbers."""
        known = [t for t in map(cell_text, self.texts) if t]
        if not any("," in t for t in known) or not all(_DECIMAL_COMMA.fullmatch(t) for t in known):
            return self
        return self._with_texts([t.replace(".", "").replace(",", ".") for t in self.texts]).stripped()

    def _with_texts(self, clean: list[str]) -> RawColumn:
        """The column with each of its texts replaced; texts that have become equal are one."""
        if clean == self.texts:
            return self
        seen: dict[str, int] = {}
        mapping = np.array([seen.setdefault(t, len(seen)) for t in clean], dtype=np.int32)
        return replace(self, texts=list(seen), codes=mapping[self.codes] if len(self.codes) else self.codes)

    @property
    def known(self) -> list[str]:
        return [t for t in self.texts if t]


@dataclass
class RawTable:
    """Columns with the names they had, if any, and where each row stood."""

    columns: list[RawColumn]
    names: list[str] | None
    source: str
    weights: Array | None = None
    lines: Array | None = None
    fixed: dict[int, Variable] = field(default_factory=dict)  # columns whose states are known beforehand
    absent: str | None = None  # the state of a variable without a column, in baskets

    @property
    def n_rows(self) -> int:
        return len(self.columns[0].codes) if self.columns else 0

    @property
    def known_names(self) -> list[str]:
        """The names, or those that columns without names go by."""
        return default_names(len(self.columns)) if self.names is None else self.names

    def select(self, kept: Sequence[int]) -> RawTable:
        """Some of the columns; they keep the names they go by."""
        fixed = {new: self.fixed[old] for new, old in enumerate(kept) if old in self.fixed}
        names = [self.known_names[k] for k in kept]
        return replace(self, columns=[self.columns[k] for k in kept], names=names, fixed=fixed)

    def where(self, row: int) -> str:
        return f"{self.source}, line {int(self.lines[row])}" if self.lines is not None else f"{self.source}, row {row + 1}"


@dataclass(frozen=True)
class ColumnRules:
    """How columns become variables, by name or position."""

    bins: int = 4
    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.bins < 2 or self.bins != int(self.bins):
            raise ParameterError(f"bins={self.bins}: a whole number of at least two bins is needed")


def learn_domain(table: RawTable, rules: ColumnRules, wider: RawTable | None = None) -> Domain:
    """The variables and states of a table; the states of ``wider``'s columns are added to each."""
    names = table.known_names
    for name in (*rules.categorical, *rules.numeric):
        if name not in names:
            raise ParameterError(f"{table.source} has no column {name!r}.{did_you_mean(name, names)}")
    others: list[RawColumn | None] = [None] * len(names)
    if wider is not None:
        plain = Domain([Variable(n, ("0",)) for n in names], named=table.names is not None)
        order = check_same_variables(plain, wider.names, len(wider.columns), wider.source)
        others = [wider.columns[k] for k in order]
    weights = np.ones(table.n_rows) if table.weights is None else table.weights
    variables = [
        _widened(table.fixed[i], other) if i in table.fixed else _learn_variable(name, column, other, weights, rules, table.source)
        for i, (name, column, other) in enumerate(zip(names, table.columns, others, strict=True))
    ]
    return Domain(variables, named=table.names is not None)


def _widened(variable: Variable, other: RawColumn | None) -> Variable:
    """A variable of known states with those of another column added."""
    new = [t for t in other.known if variable.find(t) is None] if other else []
    if not new:
        return variable
    if all(t.isdigit() for t in (*variable.states, *new)):
        return Variable(variable.name, tuple(map(str, range(max(map(int, (*variable.states, *new))) + 1))))
    return Variable(variable.name, tuple(sort_states([*variable.states, *new])))


def _learn_variable(name: str, column: RawColumn, other: RawColumn | None, weights: Array, rules: ColumnRules, source: str) -> Variable:
    known = column.known
    if not known:
        raise DataError(f"{source}: column {name!r} has only missing cells; leave it out with --drop {name!r} (drop=[{name!r}] in Python)")
    if column.declared is not None and len(column.declared) > 1 and name not in rules.numeric:
        new = [t for t in (*known, *(other.known if other else [])) if t not in column.declared]
        return Variable(name, (*column.declared, *dict.fromkeys(new)), ordered=column.ordered)
    both = list(dict.fromkeys(known + (other.known if other else [])))
    numbers = [as_number(t) for t in both]
    all_numbers = all(n is not None for n in numbers)
    infinite = [t for t in both if t.lower().lstrip("+-") in ("inf", "infinity")]
    if infinite and name not in rules.categorical and all(n is not None or t in infinite for t, n in zip(both, numbers, strict=True)):
        raise DataError(f"{source}: column {name!r} holds {infinite[0]!r}; infinite numbers cannot be binned, so replace them")
    if name in rules.numeric and not all_numbers:
        bad = next(t for t, n in zip(both, numbers, strict=True) if n is None)
        raise DataError(f"{source}: column {name!r} was to be read as numbers but holds {bad!r}")
    whole = all_numbers and all(n == int(n) for n in numbers if n is not None)
    binned = name in rules.numeric or (all_numbers and not (whole and len(both) <= MAX_INTEGER_STATES))
    if name in rules.categorical or not binned:
        for pair in (("0", "1"), TRUTH, ("0", "1", *TRUTH)):  # zeros and ones among truth values are such, too
            if set(both) <= set(pair):
                return Variable(name, pair[-2:])
        return Variable(name, tuple(sort_states(both)))
    return equal_frequency(name, _values(column), weights, rules.bins)


def _values(column: RawColumn) -> Array:
    """The column's numbers, NaN where a cell is missing."""
    numbers = [as_number(t) if t else None for t in column.texts]
    return np.array([np.nan if n is None else n for n in numbers])[column.codes]


def encode(table: RawTable, domain: Domain, unknown: str = "error") -> Dataset:
    """The table in the codes of a domain; a state the domain does not have is an error that names the cell, or, with
    ``unknown="missing"``, a missing cell."""
    if unknown not in UNKNOWN_POLICIES:
        raise ParameterError(f"unknown={unknown!r} is not known; choose one of {', '.join(UNKNOWN_POLICIES)}")
    if table.absent is not None and domain.named:
        return _encode_basket(table, domain, table.absent)
    order = check_same_variables(domain, table.names, len(table.columns), table.source)
    codes = np.empty((table.n_rows, len(domain)), dtype=code_type(domain), order="F")
    n_strange = 0
    for v, (variable, k) in enumerate(zip(domain.variables, order, strict=True)):
        column = table.columns[k]
        mapping = np.empty(len(column.texts), dtype=codes.dtype)
        strange = np.zeros(len(column.texts), dtype=bool)
        for i, text in enumerate(column.texts):
            code = _code(variable, text)
            strange[i] = code is None
            if code is None and unknown == "error":
                raise _unknown_state(variable, text, table, column, i, k)
            mapping[i] = _missing_code(variable) if code is None else code
        codes[:, v] = mapping[column.codes] if len(mapping) else 0
        n_strange += int(strange[column.codes].sum()) if strange.any() else 0
    if n_strange:
        warnings.warn(
            f"{table.source}: {n_strange:,} cells hold states that the network does not know; they count as missing",
            TableWarning, stacklevel=3,
        )  # fmt: skip
    return Dataset(domain, codes, table.weights, table.source, table.lines)


def _encode_basket(table: RawTable, domain: Domain, absent: str) -> Dataset:
    """Items that no basket of this table holds are absent everywhere; items the domain does not know are left out."""
    position = {name: k for k, name in enumerate(table.names or [])}
    nowhere = RawColumn([absent], np.zeros(table.n_rows, dtype=np.int8))
    columns = [table.columns[position[v.name]] if v.name in position else nowhere for v in domain.variables]
    return encode(RawTable(columns, domain.names, table.source, table.weights, table.lines), domain)


def _missing_code(variable: Variable) -> int:
    """Of a missing cell: a state of its own where the variable has one, else -1."""
    state = variable.find(MISSING_STATE)
    return -1 if state is None else state


def _code(variable: Variable, text: str) -> int | None:
    """The state of a cell; None if it is not known."""
    if not text:
        return _missing_code(variable)
    found = variable.find(text)
    if found is None and variable.edges is not None:
        number = as_number(text)
        return None if number is None else int(bin_codes(variable, np.array(number)))
    return found


def _unknown_state(variable: Variable, text: str, table: RawTable, column: RawColumn, i: int, k: int) -> DataError:
    row = int(np.argmax(column.codes == i))
    expected = "a number" if variable.edges is not None else "one of " + ", ".join(variable.states[:8])
    more = ", ..." if variable.edges is None and len(variable.states) > 8 else ""
    return DataError(
        f"{table.where(row)}, column {k + 1} ({variable.name!r}): {text!r} is not a state of the training data "
        f"(expected {expected}{more}).{did_you_mean(text, variable.states)} --unknown missing takes such cells as missing; "
        "--domain-from widens the domain when learning."
    )


def clean_texts(texts: list[str]) -> list[str]:
    """Cell texts as `RawColumn.stripped` has them, in the same order."""
    clean = [cell_text(t) for t in texts]
    if any("." in t or "e" in t.lower() for t in clean):
        if all(as_number(t) is not None for t in clean if t):
            return [_text(float(t)) if t else t for t in clean]  # 1.0 is 1
        if all(t.lower() in ("true", "false") for t in clean if t):
            return [t.capitalize() for t in clean]
    return clean


def cell_text(text: str) -> str:
    """A cell without blanks at the ends and line breaks inside; empty if it stands for a missing one."""
    clean = _BREAK.sub(" ", text.strip())
    return "" if clean in MISSING_TEXTS else clean


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, bytes):
        return value.decode("utf8", "replace")
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value == int_or_none(value) else repr(value)
    return str(value)


def int_or_none(value: float) -> int | None:
    return int(value) if np.isfinite(value) and value == int(value) else None
