"""From texts to states: the domain that the columns of a table make, and the codes of its cells."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from undirected.data.dataset import Dataset, code_type
from undirected.data.discretize import bin_codes, cut_equally
from undirected.data.raw import Column, RawColumn, RawTable
from undirected.data.variables import (
    MISSING_STATE,
    TRUTH,
    Domain,
    Variable,
    as_number,
    check_n_literals,
    check_same_variables,
    numbered_states,
    sort_states,
)
from undirected.errors import DataError, ParameterError, TableWarning, did_you_mean
from undirected.kernels.types import Array

MAX_INTEGER_STATES = 10  # a column of whole numbers with more distinct ones is cut into bins
UNKNOWN_POLICIES = ("error", "missing")


@dataclass(frozen=True)
class ColumnRules:
    """How columns become variables, by name or position."""

    bins: int = 4
    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.bins < 2 or self.bins != int(self.bins):
            raise ParameterError(f"bins={self.bins}: a whole number of at least two bins is needed")


class CodedTexts(NamedTuple):
    """How the cells of one variable are coded: its column in the table (None in baskets that never hold the item), and the code of each
    of that column's texts."""

    column: int | None
    codes: Array


def clean_table(table: RawTable, na: Sequence[str], decimal: str | None) -> RawTable:
    """Bring the texts of all columns into one form, with the missing ones empty, once all rows have been seen."""
    columns = [column.strip() for column in table.columns]
    if decimal == "," or (decimal is None and table.decimal_comma):
        columns = [column.read_decimal_commas() for column in columns]
    if na:
        stripped = [text.strip() for text in na]
        columns = [column.mark_missing(stripped) for column in columns]
    table = replace(table, columns=columns)
    return _fix_numbered_states(table) if table.numbered else table


def _fix_numbered_states(table: RawTable) -> RawTable:
    """Give each column the states from 0 to the largest number seen, at least two of them."""
    sizes = [max([1, *(int(t) for t in column.known)]) + 1 for column in table.columns]
    check_n_literals(sum(sizes))
    return replace(table, fixed={k: Variable(f"v{k}", numbered_states(n)) for k, n in enumerate(sizes)})


def learn_domain(table: RawTable, rules: ColumnRules, wider: RawTable | None = None) -> Domain:
    """Learn the variables and states of a table; the states of ``wider``'s columns are added to each."""
    names = table.known_names
    for name in (*rules.categorical, *rules.numeric):
        if name not in names:
            raise ParameterError(f"{table.source} has no column {name!r}.{did_you_mean(name, names)}")
    others: list[Column | None] = [None] * len(names)
    if wider is not None:
        plain = Domain([Variable(n, ("0",)) for n in names], named=table.names is not None)
        order = check_same_variables(plain, wider.names, len(wider.columns), wider.source)
        others = [wider.columns[k] for k in order]
    variables = [
        _widen(table.fixed[i], other) if i in table.fixed else _learn_variable(name, column, other, table.weights, rules, table.source)
        for i, (name, column, other) in enumerate(zip(names, table.columns, others, strict=True))
    ]
    return Domain(variables, named=table.names is not None)


def _widen(variable: Variable, other: Column | None) -> Variable:
    """Add the states of another column to a variable of known states."""
    new = [t for t in other.known if variable.find(t) is None] if other else []
    if not new:
        return variable
    if all(t.isdigit() for t in (*variable.states, *new)):
        return Variable(variable.name, tuple(map(str, range(max(map(int, (*variable.states, *new))) + 1))))
    return Variable(variable.name, tuple(sort_states([*variable.states, *new])))


def _learn_variable(name: str, column: Column, other: Column | None, weights: Array | None, rules: ColumnRules, source: str) -> Variable:
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
        return Variable(name, choose_states(both))
    values = [as_number(t) if t else None for t in column.texts]
    return cut_equally(name, np.array([np.nan if n is None else n for n in values]), column.weigh_texts(weights), rules.bins)


def choose_states(texts: Sequence[str]) -> tuple[str, ...]:
    """Choose the states of a column that holds these texts: zeros and ones and truth values in pairs, others as they are, sorted."""
    for pair in (("0", "1"), TRUTH, ("0", "1", *TRUTH)):  # zeros and ones among truth values are such, too
        if set(texts) <= set(pair):
            return pair[-2:]
    return tuple(sort_states(texts))


def encode(table: RawTable, domain: Domain, unknown: str = "error") -> Dataset:
    """Code a table with a domain; see `code_texts` for states that the domain does not have."""
    codes = np.empty((table.n_rows, len(domain)), dtype=code_type(domain), order="F")
    for v, coded in enumerate(code_texts(table, domain, unknown)):
        if coded.column is None or not len(coded.codes):
            codes[:, v] = coded.codes[0] if len(coded.codes) else 0
        else:
            codes[:, v] = coded.codes[table.columns[coded.column].codes]
    return Dataset(domain, codes, table.weights, table.source, np.asarray(table.lines) if table.lines is not None else None)


def code_texts(table: RawTable, domain: Domain, unknown: str = "error") -> list[CodedTexts]:
    """Code the texts of each variable's column; a state the domain does not have is an error that names the cell, or, with
    ``unknown="missing"``, a missing cell."""
    if unknown not in UNKNOWN_POLICIES:
        raise ParameterError(f"unknown={unknown!r} is not known; choose one of {', '.join(UNKNOWN_POLICIES)}")
    order = _find_columns(table, domain)
    kind, n_strange, out = code_type(domain), 0, []
    nowhere = RawColumn([table.absent or ""], np.zeros(1, dtype=np.int8))
    for v, (variable, k) in enumerate(zip(domain.variables, order, strict=True)):
        column = nowhere if k is None else table.columns[k]
        found = [find_code(variable, text) for text in column.texts]
        strange = [i for i, code in enumerate(found) if code is None]
        if strange and unknown == "error":
            raise _tell_unknown_state(variable, table, column, strange[0], v if k is None else k)
        n_strange += int(column.count_texts()[strange].sum()) if strange else 0
        missing = _find_missing_code(variable)
        out.append(CodedTexts(k, np.array([missing if code is None else code for code in found], dtype=kind)))
    if n_strange:
        warnings.warn(
            f"{table.source}: {n_strange:,} cells hold states that the network does not know; they count as missing",
            TableWarning, stacklevel=4,
        )  # fmt: skip
    return out


def _find_columns(table: RawTable, domain: Domain) -> Sequence[int | None]:
    """Find each variable's column. In baskets, items that none of them holds have no column, and items that the domain does not know
    are left out."""
    if table.absent is not None and domain.named:
        position = {name: k for k, name in enumerate(table.names or [])}
        return [position.get(variable.name) for variable in domain.variables]
    return check_same_variables(domain, table.names, len(table.columns), table.source)


def _find_missing_code(variable: Variable) -> int:
    """Find the code of a missing cell: a state of its own where the variable has one, else -1."""
    state = variable.find(MISSING_STATE)
    return -1 if state is None else state


def find_code(variable: Variable, text: str) -> int | None:
    """Find the state of a cell; None if it is not known."""
    if not text:
        return _find_missing_code(variable)
    found = variable.find(text)
    if found is None and variable.edges is not None:
        number = as_number(text)
        return None if number is None else int(bin_codes(variable, np.array(number)))
    return found


def _tell_unknown_state(variable: Variable, table: RawTable, column: Column, text: int, k: int) -> DataError:
    expected = "a number" if variable.edges is not None else "one of " + ", ".join(variable.states[:8])
    more = ", ..." if variable.edges is None and len(variable.states) > 8 else ""
    cell = column.texts[text]
    return DataError(
        f"{table.where(column.find_row(text))}, column {k + 1} ({variable.name!r}): {cell!r} is not a state of the training data "
        f"(expected {expected}{more}).{did_you_mean(cell, variable.states)} --unknown missing takes such cells as missing; "
        "--domain-from widens the domain when learning."
    )
