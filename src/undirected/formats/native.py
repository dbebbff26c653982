"""The package's own JSON: everything a network is, documented field by field in docs/network-format.md."""

from __future__ import annotations

import json
import math
from typing import Any

from undirected.data.variables import Domain, Variable
from undirected.errors import DataError, FormatError
from undirected.features.feature_set import FeatureSet
from undirected.network.network import MarkovNetwork

FORMAT = "undirected-network"
VERSION = 1
MAX_VARIABLES = 1_000_000


def dumps(network: MarkovNetwork) -> str:
    variables = []
    for v in network.domain.variables:
        entry: dict[str, Any] = {"name": v.name, "states": list(v.states)}
        if v.edges is not None:
            entry["edges"] = list(v.edges)
        if v.ordered:
            entry["ordered"] = True
        variables.append(entry)
    head = {"format": FORMAT, "version": VERSION, "named": network.domain.named, "variables": variables}
    rows = [
        json.dumps([_weight_out(w), *row], separators=(",", ":")) for w, row in zip(network.weights.tolist(), network.features, strict=True)
    ]
    body = json.dumps(head, ensure_ascii=False, indent=1)[:-2]
    return body + ',\n "features": [\n' + ",\n".join(rows) + "\n ]\n}\n"


def _weight_out(weight: float) -> float | str:
    return weight if math.isfinite(weight) else "inf" if weight > 0 else "-inf"


def loads(text: str, name: str) -> MarkovNetwork:
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
        raise FormatError(f"{name}: version {tree.get('version')!r} of the format; this program reads version {VERSION}")
    named = _expect(tree.get("named", True), bool, f"{name}: named")
    entries = _expect(tree.get("variables"), list, f"{name}: variables")
    if not entries:
        raise FormatError(f"{name}: a network needs at least one variable")
    if len(entries) > MAX_VARIABLES:
        raise FormatError(f"{name}: {len(entries):,} variables are more than {MAX_VARIABLES:,}")
    try:
        domain = Domain((_variable(e, f"{name}: variable {i}") for i, e in enumerate(entries)), named)
        rows, weights = [], []
        for j, row in enumerate(_expect(tree.get("features"), list, f"{name}: features")):
            where = f"{name}: feature {j}"
            _expect(row, list, where)
            if not row:
                raise FormatError(f"{where} is empty; its first entry is its weight")
            weights.append(_weight_in(row[0], where))
            rows.append([_literal(x, domain, where) for x in row[1:]])
        return MarkovNetwork(FeatureSet.from_lists(rows, domain), weights)
    except FormatError:
        raise
    except DataError as error:
        raise FormatError(f"{name}: {error}") from None


def _expect(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def _variable(entry: Any, where: str) -> Variable:
    _expect(entry, dict, where)
    name = _expect(entry.get("name"), str, f"{where}: name")
    states = tuple(_expect(s, str, f"{where}: states") for s in _expect(entry.get("states"), list, f"{where}: states"))
    edges = entry.get("edges")
    ordered = _expect(entry.get("ordered", False), bool, f"{where}: ordered")
    if edges is None:
        return Variable(name, states, ordered=ordered)
    cuts = tuple(_number(x, f"{where}: edges") for x in _expect(edges, list, f"{where}: edges"))
    if len(cuts) >= len(states) or any(a >= b for a, b in zip(cuts, cuts[1:], strict=False)):
        raise FormatError(f"{where}: edges must rise and be fewer than the states")
    return Variable(name, states, cuts, ordered)


def _number(value: Any, where: str) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        raise FormatError(f"{where}: a number of {len(str(value))} digits is too large") from None
    raise FormatError(f"{where}: {value!r} is not a finite number")


def _weight_in(value: Any, where: str) -> float:
    if value in ("inf", "-inf"):
        return float(value)
    return _number(value, f"{where}: weight")


def _literal(value: Any, domain: Domain, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2 * domain.n_literals:
        raise FormatError(f"{where}: {value!r} is not one of the {domain.n_literals} literals or their negations")
    return value
