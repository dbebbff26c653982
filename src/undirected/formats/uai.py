"""UAI files: factors as tables of plain values (not logarithms), the last variable of a scope fastest."""

from __future__ import annotations

import numpy as np

from undirected.data.variables import MAX_STATES, Domain
from undirected.errors import FormatError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork

MAX_ENTRIES = 1 << 20


def dumps(network: MarkovNetwork) -> str:
    """One factor per set of variables; each is scaled so that its largest value is 1, which changes no probability."""
    domain = network.domain
    tables: dict[tuple[int, ...], Array] = {}
    for row, weight in zip(network.features, network.weights, strict=True):
        scope = tuple(sorted({int(domain.literal_variable[x % domain.n_literals]) for x in row}))
        if not scope:
            continue  # a constant
        _check_size(scope, domain, "the network")
        with np.errstate(invalid="ignore"):
            table = _feature_table(row, float(weight), scope, domain)
        tables[scope] = tables.get(scope, 0.0) + table
    lines = ["MARKOV", str(len(domain)), " ".join(str(k) for k in domain.n_states), str(len(tables))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope in tables]
    for table in tables.values():
        values = np.where(np.isposinf(table), 1.0, 0.0) if np.isposinf(table).any() else np.exp(table - table.max())
        lines += ["", str(values.size), " ".join(f"{x:.17g}" for x in values.ravel())]
    return "\n".join(lines) + "\n"


def _check_size(scope: tuple[int, ...], domain: Domain, name: str) -> None:
    size = float(np.prod([float(domain.n_states[v]) for v in scope]))
    if size > MAX_ENTRIES:
        raise FormatError(
            f"{name}: a factor over {len(scope)} variables has {size:.3g} entries, more than the {MAX_ENTRIES:,} that a UAI "
            "table may have here; use .json or .mn, which keep features as they are"
        )


class _Tokens:
    def __init__(self, text: str, name: str) -> None:
        self.tokens = text.split()
        self.name = name
        self.at = 0

    def take(self, what: str) -> str:
        if self.at >= len(self.tokens):
            raise FormatError(f"{self.name}: the file ends where {what} is expected")
        self.at += 1
        return self.tokens[self.at - 1]

    def whole(self, what: str, low: int, high: int) -> int:
        token = self.take(what)
        if not (token.isascii() and token.isdigit() and len(token) <= 12) or not low <= int(token) <= high:
            raise FormatError(f"{self.name}: {token[:40]!r} is not {what} (a whole number from {low} to {high})")
        return int(token)

    def values(self, n: int, what: str) -> Array:
        if self.at + n > len(self.tokens):
            raise FormatError(f"{self.name}: the file ends inside {what}; it may have been cut off")
        try:
            values = np.array(self.tokens[self.at : self.at + n], dtype=float)
        except ValueError as error:
            raise FormatError(f"{self.name}: in {what}: {error}") from None
        self.at += n
        if not np.isfinite(values).all() or (values < 0).any():
            raise FormatError(f"{self.name}: {what} has a value that is negative or not a number")
        return values


def loads(text: str, name: str) -> MarkovNetwork:
    """Each entry of a factor becomes a feature, but those equal to the factor's first."""
    tokens = _Tokens(text, name)
    kind = tokens.take("MARKOV or BAYES").upper()
    if kind not in ("MARKOV", "BAYES"):
        raise FormatError(f"{name}: starts with {kind[:40]!r}, not with MARKOV or BAYES")
    limit = len(tokens.tokens)
    n_variables = tokens.whole("the number of variables", 1, limit)
    domain = Domain.from_sizes([tokens.whole("a number of states", 1, MAX_STATES) for _ in range(n_variables)])
    scopes = []
    for _ in range(tokens.whole("the number of factors", 0, limit)):
        size = tokens.whole("the size of a scope", 0, n_variables)
        scope = tuple(tokens.whole("a variable", 0, n_variables - 1) for _ in range(size))
        if len(set(scope)) != len(scope):
            raise FormatError(f"{name}: a factor names a variable twice")
        _check_size(scope, domain, name)
        scopes.append(scope)
    rows: list[list[int]] = []
    weights: list[float] = []
    for f, scope in enumerate(scopes):
        shape = tuple(int(domain.n_states[v]) for v in scope)
        size = int(np.prod(shape))
        if tokens.whole(f"the size of factor {f}", 1, limit) != size:
            raise FormatError(f"{name}: factor {f} must have {size} values")
        values = tokens.values(size, f"factor {f}").reshape(shape)
        if not (values > 0).any():
            raise FormatError(f"{name}: factor {f} is zero everywhere, so nothing is possible")
        with np.errstate(divide="ignore"):
            logs = np.log(values)
        first = logs.ravel()[0]
        logs = logs - (first if np.isfinite(first) else 0.0)
        for place in zip(*np.nonzero(logs), strict=True) if scope else ():
            rows.append([int(domain.base[v]) + int(s) for v, s in zip(scope, place, strict=True)])
            weights.append(float(logs[place]))
    if tokens.at < len(tokens.tokens):
        raise FormatError(f"{name}: {tokens.tokens[tokens.at][:40]!r} stands after the last factor")
    return MarkovNetwork(FeatureSet.from_lists(rows, domain), weights)


def _feature_table(row: tuple[int, ...], weight: float, scope: tuple[int, ...], domain: Domain) -> Array:
    """The feature's weight where it is true and zero elsewhere, one axis per variable of its scope."""
    n = domain.n_literals
    holds = np.ones((), dtype=bool)
    for u in scope:
        allowed = np.ones(int(domain.n_states[u]), dtype=bool)
        for literal in row:
            if domain.literal_variable[literal % n] == u:
                state = np.arange(len(allowed)) == literal % n - domain.base[u]
                allowed &= state if literal < n else ~state
        holds = holds[..., None] & allowed
    return np.where(holds, weight, 0.0)
