"""The package's own JSON: everything a network is, documented field by field in docs/reference/network-files.md."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from undirected.data.literals import is_literal
from undirected.data.variables import Domain, Variable
from undirected.errors import DataError, FormatError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork

FORMAT = "undirected-network"
VERSION = 1
MAX_VARIABLES = 1_000_000


def dumps(network: MarkovNetwork) -> str:
    """Write a network as JSON text."""
    head = {"format": FORMAT, "version": VERSION, **describe_domain(network.domain)}
    pairs = zip(network.weights.tolist(), network.features, strict=True)
    rows = [json.dumps([_write_weight(weight), *literals], separators=(",", ":")) for weight, literals in pairs]
    body = json.dumps(head, ensure_ascii=False, indent=1)[:-2]
    return body + ',\n "features": [\n' + ",\n".join(rows) + "\n ]\n}\n"


def describe_domain(domain: Domain) -> dict[str, Any]:
    """Describe a domain as JSON has it."""
    variables = []
    for v in domain.variables:
        entry: dict[str, Any] = {"name": v.name, "states": list(v.states)}
        if v.edges is not None:
            entry["edges"] = list(v.edges)
        if v.ordered:
            entry["ordered"] = True
        variables.append(entry)
    return {"named": domain.named, "variables": variables}


def _write_weight(weight: float) -> float | str:
    """A weight as JSON has it; infinite ones are texts."""
    return weight if math.isfinite(weight) else "inf" if weight > 0 else "-inf"


def loads(text: str, name: str) -> MarkovNetwork:
    """Read a network from JSON text; ``name`` is the file's, for messages."""

    def refuse(constant: str) -> float:
        raise FormatError(f"{name}: {constant} is not a weight; weights must be numbers")

    try:
        tree = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise FormatError(f"{name}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"{name}: not JSON that can be read ({error})") from None
    except RecursionError:
        raise FormatError(f"{name}: nested too deeply to be a network") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise FormatError(f'{name}: not a network of this package (no "format": "{FORMAT}")')
    if tree.get("version") != VERSION:
        raise FormatError(f"{name}: version {_show(tree.get('version'))} of the format; this program reads version {VERSION}")
    domain = read_domain(tree, name)
    try:
        features, weights = _read_features(_expect(tree.get("features"), list, f"{name}: features"), domain, name)
        return MarkovNetwork(features, weights)
    except FormatError:
        raise
    except DataError as error:
        raise FormatError(f"{name}: {error}") from None


def read_domain(tree: dict[str, Any], name: str) -> Domain:
    """Read what `describe_domain` has written; ``name`` is the file's, for messages."""
    named = _expect(tree.get("named", True), bool, f"{name}: named")
    entries = _expect(tree.get("variables"), list, f"{name}: variables")
    if not entries:
        raise FormatError(f"{name}: a network needs at least one variable")
    if len(entries) > MAX_VARIABLES:
        raise FormatError(f"{name}: {len(entries):,} variables are more than {MAX_VARIABLES:,}")
    try:
        return Domain(_read_variables(entries, name), named)
    except FormatError:
        raise
    except DataError as error:
        raise FormatError(f"{name}: {error}") from None


def _read_variables(entries: list[Any], name: str) -> list[Variable]:
    """All variables, whose names must differ."""
    variables = [_read_variable(entry, f"{name}: variable {i}") for i, entry in enumerate(entries)]
    seen: set[str] = set()
    for variable in variables:
        if variable.name in seen:
            raise FormatError(f"{name}: two variables are called {variable.name!r}; rename one of them")
        seen.add(variable.name)
    return variables


def _read_features(rows: list[Any], domain: Domain, name: str) -> tuple[FeatureSet, Array]:
    """Read all features at once; where something is not as it should be, one by one, to say where."""
    if set(map(type, rows)) <= {list} and all(rows):
        weights = [row[0] for row in rows]
        literals = [x for row in rows for x in row[1:]]
        if set(map(type, literals)) <= {int} and set(map(type, weights)) <= {int, float}:
            start = np.cumsum([0, *(len(row) - 1 for row in rows)])
            try:
                values = np.array(weights, dtype=float)
                flat = np.array(literals, dtype=np.int64)
            except OverflowError:
                values = np.array([np.nan])
            if np.isfinite(values).all() and is_literal(domain, flat).all():
                return FeatureSet.from_arrays(domain, start, flat), values
    return _read_one_by_one(rows, domain, name)


def _read_one_by_one(rows: list[Any], domain: Domain, name: str) -> tuple[FeatureSet, Array]:
    """Read features with errors that say which one is wrong."""
    weights, literals = [], []
    for j, row in enumerate(rows):
        where = f"{name}: feature {j}"
        _expect(row, list, where)
        if not row:
            raise FormatError(f"{where} is empty; its first entry is its weight")
        weights.append(_read_weight(row[0], where))
        literals.append([_read_literal(x, domain, where) for x in row[1:]])
    return FeatureSet.from_lists(literals, domain), np.array(weights)


def _expect(value: Any, kind: type, where: str) -> Any:
    """A value, if it is of a kind."""
    if not isinstance(value, kind):
        raise FormatError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def _read_variable(entry: Any, where: str) -> Variable:
    """A variable from its entry in the file."""
    _expect(entry, dict, where)
    name = _expect(entry.get("name"), str, f"{where}: name")
    states = tuple(_expect(s, str, f"{where}: states") for s in _expect(entry.get("states"), list, f"{where}: states"))
    edges = entry.get("edges")
    ordered = _expect(entry.get("ordered", False), bool, f"{where}: ordered")
    if edges is None:
        return Variable(name, states, ordered=ordered)
    cuts = tuple(_read_number(x, f"{where}: edges") for x in _expect(edges, list, f"{where}: edges"))
    if len(cuts) >= len(states) or any(a >= b for a, b in zip(cuts, cuts[1:], strict=False)):
        raise FormatError(f"{where}: edges must rise and be fewer than the states")
    return Variable(name, states, cuts, ordered)


def _read_number(value: Any, where: str) -> float:
    """A finite number."""
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        raise FormatError(f"{where}: a number of {len(str(value))} digits is too large") from None
    raise FormatError(f"{where}: {_show(value)} is not a finite number")


def _show(value: Any) -> str:
    """A value for a message: never long, never nested."""
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else repr(value)[:40]


def _read_weight(value: Any, where: str) -> float:
    """A number, or the text of an infinite one."""
    if value in ("inf", "-inf"):
        return float(value)
    return _read_number(value, f"{where}: weight")


def _read_literal(value: Any, domain: Domain, where: str) -> int:
    """A literal's number."""
    if isinstance(value, bool) or not isinstance(value, int) or not is_literal(domain, value):
        raise FormatError(f"{where}: {_show(value)} is not one of the {domain.n_literals} literals or their negations")
    return value
