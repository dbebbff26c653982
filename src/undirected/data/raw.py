"""Columns as they were found, before they are coded: distinct cell texts and which row holds which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from undirected.data.dataset import Dataset, code_type
from undirected.data.discretize import bin_codes, equal_frequency
from undirected.data.variables import (
    MISSING_STATE,
    Domain,
    Variable,
    as_number,
    check_same_variables,
    default_names,
    sort_states,
)
from undirected.errors import DataError, ParameterError, did_you_mean
from undirected.kernels.types import Array

MISSING_TEXTS = frozenset({"", "?", "*", "NA", "NaN", "nan", "N/A", "<NA>", "None", "null"})
MAX_INTEGER_STATES = 10


@dataclass
class RawColumn:
    """``texts[codes[r]]`` is row r's cell, stripped."""

    texts: list[str]
    codes: Array

    @classmethod
    def from_cells(cls, cells: Iterable[str]) -> RawColumn:
        seen: dict[str, int] = {}
        codes = [seen.setdefault(cell, len(seen)) for cell in cells]
        return cls(list(seen), np.array(codes, dtype=np.int32)).stripped()

    @classmethod
    def from_array(cls, values: Array) -> RawColumn:
        """Numbers, truth values, text or objects; whole numbers lose their decimal point."""
        values = np.asarray(values)
        if values.dtype.kind in "OUS":
            return cls.from_cells(_text(x) for x in values.tolist())
        distinct, codes = np.unique(values, return_inverse=True)
        return cls([_text(x) for x in distinct.tolist()], codes.astype(np.int8 if len(distinct) < 128 else np.int32)).stripped()

    def stripped(self) -> RawColumn:
        """Texts without blanks at the ends, each once, missing ones as the empty text."""
        clean = [t.strip() for t in self.texts]
        clean = ["" if t in MISSING_TEXTS else t for t in clean]
        if any("." in t or "e" in t.lower() for t in clean) and all(as_number(t) is not None for t in clean if t):
            clean = [_text(float(t)) if t else t for t in clean]  # 1.0 is 1
        if clean == self.texts:
            return self
        seen: dict[str, int] = {}
        mapping = np.array([seen.setdefault(t, len(seen)) for t in clean], dtype=np.int32)
        return RawColumn(list(seen), mapping[self.codes] if len(self.codes) else self.codes)

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
    names = table.names or default_names(len(table.columns))
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
        raise DataError(f"{source}: column {name!r} has only missing cells; leave it out")
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
        if set(both) <= {"0", "1"}:
            return Variable(name, ("0", "1"))
        return Variable(name, tuple(sort_states(both)))
    return equal_frequency(name, _values(column), weights, rules.bins)


def _values(column: RawColumn) -> Array:
    """The column's numbers, NaN where a cell is missing."""
    numbers = [as_number(t) if t else None for t in column.texts]
    return np.array([np.nan if n is None else n for n in numbers])[column.codes]


def encode(table: RawTable, domain: Domain) -> Dataset:
    """The table in the codes of a domain; a state the domain does not have is an error that names the cell."""
    if table.absent is not None and domain.named:
        return _encode_basket(table, domain, table.absent)
    order = check_same_variables(domain, table.names, len(table.columns), table.source)
    codes = np.empty((table.n_rows, len(domain)), dtype=code_type(domain), order="F")
    for v, (variable, k) in enumerate(zip(domain.variables, order, strict=True)):
        column = table.columns[k]
        mapping = np.empty(len(column.texts), dtype=codes.dtype)
        for i, text in enumerate(column.texts):
            mapping[i] = _code(variable, text, table, column, i, k)
        codes[:, v] = mapping[column.codes] if len(mapping) else 0
    return Dataset(domain, codes, table.weights, table.source, table.lines)


def _encode_basket(table: RawTable, domain: Domain, absent: str) -> Dataset:
    """Items that no basket of this table holds are absent everywhere; items the domain does not know are left out."""
    position = {name: k for k, name in enumerate(table.names or [])}
    nowhere = RawColumn([absent], np.zeros(table.n_rows, dtype=np.int8))
    columns = [table.columns[position[v.name]] if v.name in position else nowhere for v in domain.variables]
    return encode(RawTable(columns, domain.names, table.source, table.weights, table.lines), domain)


def _code(variable: Variable, text: str, table: RawTable, column: RawColumn, i: int, k: int) -> int:
    if not text:
        missing = variable.find(MISSING_STATE)
        return -1 if missing is None else missing
    found = variable.find(text)
    if found is not None:
        return found
    number = as_number(text)
    if variable.edges is not None and number is not None:
        return int(bin_codes(variable, np.array(number)))
    row = int(np.argmax(column.codes == i))
    expected = "a number" if variable.edges is not None else "one of " + ", ".join(variable.states[:8])
    more = ", ..." if variable.edges is None and len(variable.states) > 8 else ""
    raise DataError(
        f"{table.where(row)}, column {k + 1} ({variable.name!r}): {text!r} is not a state of the training data "
        f"(expected {expected}{more}).{did_you_mean(text, variable.states)} --domain-from can widen the domain when learning."
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, bytes):
        return value.decode("utf8", "replace")
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value == int_or_none(value) else repr(value)
    return str(value)


def int_or_none(value: float) -> int | None:
    return int(value) if np.isfinite(value) and value == int(value) else None
