"""UAI files: factors as tables of plain values (not logarithms), the last variable of a scope fastest; evidence and results beside."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping

import numpy as np

from undirected.data.literals import get_state, is_negated, make_literal
from undirected.data.variables import MAX_STATES, Domain
from undirected.errors import FormatError, FormatWarning
from undirected.features.conjunction import format_feature
from undirected.features.feature_set import FeatureSet
from undirected.formats import build_domain
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork

MAX_ENTRIES = 1 << 20
LARGEST_LOG = 700.0  # exp of more than 709 is not a number of double precision
COMFORTABLE_LOG = 300.0  # up to where a constant may move the largest value of a factor, so that small values stay above zero
_COMMENT = re.compile(r"#[^\r\n]*")
_AGRUM_CHILD = re.compile(r"^\d+(?: \d+)+   # ", re.MULTILINE | re.ASCII)
_AGRUM_ORDER = re.compile(r"^[ \t]*\d+[ \t]*#[ \t]*\{(\d{1,9}(?:, \d{1,9})*)\}", re.MULTILINE | re.ASCII)

Scope = tuple[int, ...]


def dumps(network: MarkovNetwork) -> str:
    """Write a network as the text of a ``.uai`` file.

    There is one factor per set of variables, with values that keep the partition function; constants are folded into the first factor.
    """
    domain = network.domain
    tables = _build_tables(network)
    constant = float(network.weights[(network.features.lengths == 0) & (network.weights != np.inf)].sum())
    if constant and not tables:
        tables[(0,)] = np.zeros(int(domain.n_states[0]))
    _fold(constant, tables)
    lines = ["MARKOV", str(len(domain)), " ".join(map(str, domain.n_states.tolist())), str(len(tables))]
    lines += [" ".join(map(str, (len(scope), *reversed(scope)))) for scope in tables]  # the one order that pyAgrum reads right, too
    for values in _exponentiate(list(tables.values())):
        lines += ["", str(values.size), _join(values.T.ravel().tolist())]
    return "\n".join(lines) + "\n"


def _build_tables(network: MarkovNetwork) -> dict[Scope, Array]:
    """The sum of the weights of the features over each set of variables, one axis a variable; minus infinity where a rule is broken."""
    features, domain = network.features, network.domain
    variables = features.variables.tolist()
    states = get_state(domain, features.literals).tolist()
    positive = (~is_negated(domain, features.literals)).tolist()
    tables: dict[Scope, Array] = {}
    rules: dict[Scope, tuple[Array, list[int]]] = {}  # how many features of weight plus infinity hold, and how many there are
    bounds = features.start.tolist()
    for a, b, weight in zip(bounds, bounds[1:], network.weights.tolist(), strict=False):
        if a == b:
            continue  # a constant
        scope = tuple(dict.fromkeys(variables[a:b]))
        if scope not in tables:
            _check_size(scope, domain)
            tables[scope] = np.zeros([int(domain.n_states[v]) for v in scope])
        where = tuple(states[a:b]) if all(positive[a:b]) else _index_cells(scope, domain, variables[a:b], states[a:b], positive[a:b])
        if weight == np.inf:
            holding, n = rules.setdefault(scope, (np.zeros(tables[scope].shape, dtype=np.int64), [0]))
            holding[where] += 1
            n[0] += 1
        else:
            tables[scope][where] += weight
    for scope, (holding, n) in rules.items():
        tables[scope][holding < n[0]] = -np.inf
    return tables


def _index_cells(scope: Scope, domain: Domain, variables: list[int], states: list[int], positive: list[bool]) -> tuple[Array, ...]:
    """Where a feature with negations is true, as an index of its table."""
    allowed = {v: np.ones(int(domain.n_states[v]), dtype=bool) for v in scope}
    for v, state, is_state in zip(variables, states, positive, strict=True):
        if is_state:
            allowed[v][:] = False
        allowed[v][state] = is_state
    return np.ix_(*allowed.values())


def _check_size(scope: Scope, domain: Domain) -> None:
    size = math.prod(int(domain.n_states[v]) for v in scope)
    if size > MAX_ENTRIES:
        raise FormatError(f"the network: {_describe_size(len(scope), size)}; use .json or .mn, which keep features as they are")


def _describe_size(n_variables: int, size: float) -> str:
    return f"a factor over {n_variables} variables has {size:.3g} entries, more than the {MAX_ENTRIES:,} that a UAI table may have here"


def _fold(constant: float, tables: dict[Scope, Array]) -> None:
    """Add a constant to the first table, or spread it over as many as it takes to keep their values in a comfortable range."""
    for table in tables.values():
        top = float(table.max())
        if constant and np.isfinite(top):
            share = min(max(constant, min(0.0, -COMFORTABLE_LOG - top)), max(0.0, COMFORTABLE_LOG - top))
            table += share
            constant -= share
    if constant:
        next(iter(tables.values()))[...] += constant


def _exponentiate(tables: list[Array]) -> list[Array]:
    """The exponentials, with a warning where a factor has to be scaled or a value is too small for a number."""
    out = []
    shifts, vanished = 0.0, 0
    for table in tables:
        top = float(table.max())
        if top == -np.inf:
            raise FormatError("every assignment breaks a feature of infinite weight, so there is nothing that a UAI file could say")
        shift = top - min(max(top, -LARGEST_LOG), LARGEST_LOG)
        values = np.exp(table - shift)
        shifts += shift
        vanished += int(((values == 0) & np.isfinite(table)).sum())
        out.append(values)
    if shifts:
        how = f"{abs(shifts):.6g} {'lower' if shifts > 0 else 'higher'}"
        warnings.warn(
            f"log Z is {how} in the UAI file than in the network, because its values are plain numbers; probabilities stay as they are",
            FormatWarning,
            stacklevel=2,
        )
    if vanished:
        what = f"{vanished:,} values of factors are too small for plain numbers and became 0, which makes their assignments impossible"
        warnings.warn(f"{what} in the UAI file; use .json or .mn", FormatWarning, stacklevel=2)
    return out


def _join(values: Iterable[float]) -> str:
    return " ".join(map(repr, values))


class _Tokens:
    """The words of a file without its comments, taken one after the other."""

    def __init__(self, text: str, name: str) -> None:
        self.tokens = (_COMMENT.sub(" ", text) if "#" in text else text).split()
        self.name = name
        self.at = 0

    def fail(self, message: str) -> FormatError:
        return FormatError(f"{self.name}: {message}")

    def take(self, what: str) -> str:
        """The next word; an error names ``what`` is missing."""
        if self.at >= len(self.tokens):
            raise self.fail(f"the file ends where {what} is expected")
        self.at += 1
        return self.tokens[self.at - 1]

    def take_whole(self, what: str, low: int, high: int) -> int:
        """The next word as a whole number in a range."""
        token = self.take(what)
        if not (token.isascii() and token.isdigit() and len(token) <= 12) or not low <= int(token) <= high:
            raise self.fail(f"{token[:40]!r} is not {what} (a whole number from {low} to {high})")
        return int(token)

    def take_numbers(self, n: int) -> Array:
        """The next ``n`` words, or as many as there are, as numbers."""
        part = self.tokens[self.at : self.at + n]
        self.at += len(part)
        try:
            values = np.fromiter(map(float, part), dtype=float, count=len(part))
        except ValueError:
            values = None
        if values is None or any("_" in token for token in part):
            bad = next(token for token in part if not _is_number(token))
            raise self.fail(f"{bad[:40]!r} stands where a value of a factor is expected")
        return values


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return "_" not in token


def loads(text: str, name: str) -> MarkovNetwork:
    """Read a network from the text of a ``.uai`` file; ``name`` is the file's, for messages.

    Each entry of a factor becomes a feature, but those equal to the factor's first.
    That first entry is divided out of its factor, and what was divided out of all factors is the weight of one constant feature.
    """
    tokens = _Tokens(text, name)
    kind = tokens.take("MARKOV or BAYES").upper()
    if kind not in ("MARKOV", "BAYES"):
        raise FormatError(f"{name}: starts with {kind[:40]!r}, not with MARKOV or BAYES")
    n_variables = tokens.take_whole("the number of variables", 1, len(tokens.tokens))
    sizes = [tokens.take_whole("a number of states", 1, MAX_STATES) for _ in range(n_variables)]
    domain = build_domain(sizes, name)
    known = {str(v): v for v in range(n_variables)}
    scopes = [_read_scope(tokens, sizes, known) for _ in range(tokens.take_whole("the number of factors", 0, len(tokens.tokens)))]
    scopes = _reorder(text, kind, scopes, name)
    entries = np.array([math.prod(sizes[v] for v in scope) for scope in scopes], dtype=np.int64)
    logs = _read_logs(tokens, entries)
    if tokens.at < len(tokens.tokens):
        left = len(tokens.tokens) - tokens.at
        what = f"{tokens.tokens[tokens.at][:40]!r} stands after the last factor"
        warnings.warn(f"{name}: {what} ({left:,} words in all) and was left out", FormatWarning, stacklevel=3)
    first = np.cumsum(entries) - entries
    divided = np.where(np.isfinite(logs[first]), logs[first], 0.0)
    start, literals, weights = _list_features(logs - np.repeat(divided, entries), entries, first, scopes, domain)
    constant = math.fsum(divided.tolist())
    if constant:
        start, weights = np.append(start, start[-1]), np.append(weights, constant)
    return MarkovNetwork(FeatureSet.from_arrays(domain, start, literals), weights)


def _read_scope(tokens: _Tokens, sizes: list[int], known: dict[str, int]) -> Scope:
    """The variables of a factor, whose table must not be too large."""
    n = tokens.take_whole("the size of a scope", 0, len(sizes))
    scope = tuple([known.get(token, -1) for token in tokens.tokens[tokens.at : tokens.at + n]])
    if len(scope) == n and -1 not in scope:
        tokens.at += n
    else:  # something that is not written plainly, or is wrong
        scope = tuple(tokens.take_whole("a variable", 0, len(sizes) - 1) for _ in range(n))
    if len(set(scope)) != n:
        raise tokens.fail("a factor names a variable twice")
    size = 1
    for v in scope:
        size *= sizes[v]
        if size > MAX_ENTRIES:
            raise tokens.fail(_describe_size(n, math.prod(float(sizes[u]) for u in scope)))
    return scope


def _reorder(text: str, kind: str, scopes: list[Scope], name: str) -> list[Scope]:
    """Scopes in the order of their tables, where pyAgrum wrote the file and its scope lines are in another; its comments betray it.

    In a Markov network the comment beside a table's size names the variables in the table's order, the fastest first. In a Bayesian
    network the parents of a variable stand in the wrong order before it.
    """
    if "#" not in text:
        return scopes
    if kind == "MARKOV":
        told = [tuple(int(v) for v in reversed(order.split(", "))) for order in _AGRUM_ORDER.findall(text)]
    else:
        told = [(*scope[-2::-1], *scope[-1:]) for scope in scopes[: len(_AGRUM_CHILD.findall(text))]]
        told = told if all(scope[-1:] == (f,) for f, scope in enumerate(told)) else []
    if told == scopes or list(map(sorted, told)) != list(map(sorted, scopes)):
        return scopes
    what = "pyAgrum's scope lines do not name variables in the order of their tables; the tables' order was taken"
    warnings.warn(f"{name}: {what}", FormatWarning, stacklevel=4)
    return told


def _read_logs(tokens: _Tokens, entries: Array) -> Array:
    """The logarithms of the values of all factors, one after the other; each factor starts with its size."""
    end = np.cumsum(entries + 1)
    head = end - entries - 1
    numbers = tokens.take_numbers(int(end[-1]) if len(end) else 0)
    found = int(np.searchsorted(head, len(numbers)))  # factors that have a size
    wrong = np.flatnonzero(numbers[head[:found]] != entries[:found])
    if len(wrong):
        f = int(wrong[0])
        raise tokens.fail(f"factor {f} must have {entries[f]} values, but its size is given as {numbers[head[f]]:.12g}")
    if len(end) and len(numbers) < end[-1]:
        f = int(np.searchsorted(end, len(numbers), side="right"))
        raise tokens.fail(f"the file ends inside factor {f}; it may have been cut off")
    values = np.delete(numbers, head)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        f = int(np.repeat(np.arange(len(entries)), entries)[bad][0])
        raise tokens.fail(f"factor {f} has a value that is negative or not a number")
    largest = np.maximum.reduceat(values, np.cumsum(entries) - entries) if len(entries) else values
    if (largest == 0).any():
        raise tokens.fail(f"factor {int(np.argmax(largest == 0))} is zero everywhere, so nothing is possible")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _list_features(logs: Array, entries: Array, first: Array, scopes: list[Scope], domain: Domain) -> tuple[Array, Array, Array]:
    """Offsets, literals and weights of one feature per entry that is not zero; variables of one state need no literal."""
    sizes = domain.n_states.tolist()
    axes = [_find_axes(scope, sizes) for scope in scopes]
    length = np.array([len(scope) for scope in axes], dtype=np.int64)
    which = np.flatnonzero(logs)
    factor = np.repeat(np.arange(len(scopes)), entries)[which]
    place = which - first[factor]
    start = np.concatenate([[0], np.cumsum(length[factor])])
    literals = np.empty(start[-1], dtype=np.int32)
    for n in np.unique(length[factor]).tolist():
        mine = np.flatnonzero(length[factor] == n)
        members = np.flatnonzero(length == n)
        table = np.array([axes[f] for f in members], dtype=np.int64)  # by factor, axis: variable and stride
        row = np.searchsorted(members, factor[mine])
        for i in range(n):
            variable, stride = table[row, i, 0], table[row, i, 1]
            literals[start[mine] + i] = make_literal(domain, variable, place[mine] // stride % domain.n_states[variable])
    return start, literals, logs[which]


def _find_axes(scope: Scope, sizes: list[int]) -> list[tuple[int, int]]:
    """The variables of a table that have a choice, rising, each with the distance between its states in the table."""
    out = []
    stride = 1
    for v in reversed(scope):
        if sizes[v] > 1:
            out.append((v, stride))
        stride *= sizes[v]
    return sorted(out)


def loads_evidence(text: str, name: str, domain: Domain) -> list[str]:
    """Read the literals of a ``.evid`` file, as texts that `MarkovNetwork.query` takes.

    It holds the number of known variables, then each with its state; or a number of samples before that, of which there must be one.
    """
    tokens = _Tokens(text, name)
    n = len(tokens.tokens)
    known = tokens.take_whole("the number of known variables", 0, n)
    if n != 1 + 2 * known:
        if known != 1:
            _refuse_samples(tokens, known)
        known = tokens.take_whole("the number of known variables", 0, n)
        if n != 2 + 2 * known:
            raise tokens.fail(f"{known} variables and their states are {2 * known} numbers, but {n - 2} follow")
    states: dict[int, int] = {}
    for _ in range(known):
        v = tokens.take_whole("a variable", 0, len(domain) - 1)
        state = tokens.take_whole(f"a state of variable {v}", 0, int(domain.n_states[v]) - 1)
        if states.setdefault(v, state) != state:
            raise tokens.fail(f"variable {v} is in the states {states[v]} and {state} at once")
    return [format_feature((int(make_literal(domain, v, state)),), domain) for v, state in states.items()]


def _refuse_samples(tokens: _Tokens, claimed: int) -> None:
    """Raise, since there are several samples or the numbers fit neither form of a file."""
    n, at = len(tokens.tokens), 1
    for _ in range(claimed):
        size = tokens.tokens[at] if at < n else ""
        if not (size.isascii() and size.isdigit() and len(size) <= 12):
            break
        at += 1 + 2 * int(size)
    else:
        if at == n:
            raise tokens.fail(f"holds {claimed} samples of evidence; one sample is expected")
    raise tokens.fail(f"{claimed} variables and their states are {2 * claimed} numbers, but {n - 1} follow")


def dumps_marginals(domain: Domain, marginals: Mapping[str, Mapping[str, float]]) -> str:
    """Write marginals in the ``.MAR`` form: the number of variables, then for each its number of states and their probabilities."""
    parts = [f"{len(v.states)} {_join(marginals[v.name][s] for s in v.states)}" for v in domain.variables]
    return f"MAR\n{len(domain)} {' '.join(parts)}\n"


def dumps_partition(log_z: float) -> str:
    """Write the partition function in the ``.PR`` form: the logarithm to base 10 of the partition function."""
    return f"PR\n{log_z / math.log(10)!r}\n"


def dumps_assignment(domain: Domain, states: Mapping[str, str]) -> str:
    """Write an assignment in the ``.MAP`` form: the number of variables, then the number of each one's state."""
    return f"MAP\n{len(domain)} {' '.join(str(v.index(states[v.name])) for v in domain.variables)}\n"
