"""One feature: a conjunction of literals, and its text form ``A=1 & B!=no & C>=3``.

A literal is a number; `undirected.data.literals` says how it is made and read. That an ordered variable is at or above a state, or below
it, is the conjunction of the literals that exclude the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from undirected.data.literals import make_literal, split_literals
from undirected.data.variables import Domain, Variable
from undirected.errors import DataError, FeatureError

_SPECIAL = re.compile(r'[=&!"\\]|^[\s#]|\s$|^$')
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_NAMES = (re.compile(rf'\s*+(?:({_QUOTED})|([^=&!<>"\\]++))'), re.compile(rf'\s*+(?:({_QUOTED})|([^=&!"\\]++))'))  # the second with < and >
_SIGN = re.compile(r"\s*+(!=|>=|<=|=|>|<)")
_STATE = re.compile(rf'\s*+(?:({_QUOTED})|([^=&!"\\]++))\s*+(&|$)')
SIGNS = ("=", "!=", ">=", "<", ">", "<=")


def quote(text: str, is_name: bool = False) -> str:
    """Write a name or state as it stands in a feature: in double quotes where it would be misread otherwise."""
    if _SPECIAL.search(text) or (is_name and ("<" in text or ">" in text)):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def normalise(literals: Iterable[int], domain: Domain) -> tuple[int, ...]:
    """Bring a conjunction into its shortest form, sorted by variable, each literal once; a contradiction is an error.

    A positive literal makes negations on its variable redundant, and negations that leave one state become that state.
    """
    held: dict[int, int] = {}  # states by variable
    excluded: dict[int, set[int]] = {}
    for v, state, is_negated in split_literals(domain, literals):
        if is_negated:
            excluded.setdefault(v, set()).add(state)
        elif held.setdefault(v, state) != state:
            raise _contradict(v, domain)
    out: list[int] = []
    for v in sorted(held.keys() | excluded.keys()):
        gone, k = excluded.get(v, set()), int(domain.n_states[v])
        if len(gone) == k or held.get(v) in gone:
            raise _contradict(v, domain)
        if v in held:
            out.append(int(make_literal(domain, v, held[v])))
        elif len(gone) == k - 1:
            out.append(int(make_literal(domain, v, k * (k - 1) // 2 - sum(gone))))  # the sum of all states less those excluded
        else:
            out.extend(int(make_literal(domain, v, state, True)) for state in sorted(gone))
    return tuple(out)


def _contradict(v: int, domain: Domain) -> FeatureError:
    return FeatureError(f"the feature asks for two states of {domain[v].name!r} at once, so it can never be true")


def list_excluded(v: int, sign: str, state: int, domain: Domain) -> list[int]:
    """The literals that say that a variable is in a state (``=``), not in it, at or above it, below, above, or at or below it."""
    if sign in ("=", "!="):
        return [int(make_literal(domain, v, state, sign == "!="))]
    if not domain[v].has_order:
        raise FeatureError(f"the states of {domain[v].name!r} have no order, so that there is no {sign}; use = or !=")
    k = len(domain[v].states)
    gone = {">=": range(state), "<": range(state, k), ">": range(state + 1), "<=": range(state + 1, k)}[sign]
    if len(gone) == k:
        raise FeatureError(f"no state of {domain[v].name!r} is {sign} {domain[v].states[state]!r}, so that the feature can never be true")
    return [int(make_literal(domain, v, s, True)) for s in gone]


def format_feature(literals: Iterable[int], domain: Domain) -> str:
    """Write a feature as text, ``A=1 & B!=no``; the empty conjunction is ``true``."""
    held: dict[int, list[tuple[int, bool]]] = {}
    for v, state, is_negated in split_literals(domain, literals):
        held.setdefault(v, []).append((state, is_negated))
    return " & ".join(part for v, own in held.items() for part in _format_variable(v, own, domain)) or "true"


def _format_variable(v: int, own: list[tuple[int, bool]], domain: Domain) -> Iterator[str]:
    """What a feature says of one variable."""
    name, states = quote(domain[v].name, True), domain[v].states
    gone = sorted(state for state, is_negated in own if is_negated)
    if len(gone) == len(own) > 1 and domain[v].has_order:
        if gone == list(range(len(gone))):
            yield f"{name}>={quote(states[len(gone)])}"
            return
        if gone == list(range(gone[0], len(states))):
            yield f"{name}<{quote(states[gone[0]])}"
            return
    for state, is_negated in own:
        yield f"{name}{'!=' if is_negated else '='}{quote(states[state])}"


def parse_feature(text: str, domain: Domain, find: Callable[[Variable, str], int] = Variable.index) -> tuple[int, ...]:
    """Read the literals of a text such as ``smoker=yes & age>=old``; ``find`` tells the code of a state."""
    if text.strip() == "true":
        return ()
    literals: list[int] = []
    for name, sign, state in split_feature(text, domain):
        try:
            v = domain.index(name)
            literals += list_excluded(v, sign, find(domain[v], state), domain)
        except (DataError, FeatureError) as error:
            raise FeatureError(f"in the feature {text!r}: {error}") from None
    return normalise(literals, domain)


def split_feature(text: str, domain: Domain) -> list[tuple[str, str, str]]:
    """Cut the text of a feature into variable, sign and state, literal by literal. Names with ``<`` or ``>`` that are not quoted are
    understood where the domain has them."""
    found = _cut(text, _NAMES[0])
    if found is None or any(domain.find(name) is None for name, _, _ in found):
        other = _cut(text, _NAMES[1])
        if other is not None and (found is None or all(domain.find(name) is not None for name, _, _ in other)):
            return other
    if found is None:
        raise FeatureError(f"the feature {text!r} cannot be read as a list of literals; write it like A=1 & B!=no & C>=3")
    return found


def _cut(text: str, names: re.Pattern[str]) -> list[tuple[str, str, str]] | None:
    """Variable, sign and state of each literal; None where the text is not made of such."""
    found, at, goes_on = [], 0, True
    while goes_on:
        name = names.match(text, at)
        sign = _SIGN.match(text, name.end()) if name else None
        state = _STATE.match(text, sign.end()) if sign else None
        if name is None or sign is None or state is None:
            return None
        found.append((_unquote(name[1], name[2]), sign[1], _unquote(state[1], state[2])))
        at, goes_on = state.end(), state[3] == "&"
    return found


def _unquote(quoted: str | None, plain: str) -> str:
    return plain.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1:-1])
