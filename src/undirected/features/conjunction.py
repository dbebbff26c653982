"""One feature: a conjunction of literals, and its text form ``A=1 & B!=no``.

A literal is a number; `undirected.data.literals` says how it is made and read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from undirected.data.literals import make_literal, split_literals
from undirected.data.variables import Domain
from undirected.errors import DataError, FeatureError

_SPECIAL = re.compile(r'[=&!"\\]|^[\s#]|\s$|^$')
_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(!=|=|&)|([^=&!"\\]+))')


def quote(text: str) -> str:
    """Write a name or state as it stands in a feature: in double quotes where it would be misread otherwise."""
    if _SPECIAL.search(text):
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


def format_feature(literals: Iterable[int], domain: Domain) -> str:
    """Write a feature as text, ``A=1 & B!=no``; the empty conjunction is ``true``."""
    parts = []
    for v, state, is_negated in split_literals(domain, literals):
        parts.append(f"{quote(domain[v].name)}{'!=' if is_negated else '='}{quote(domain[v].states[state])}")
    return " & ".join(parts) if parts else "true"


def parse_feature(text: str, domain: Domain) -> tuple[int, ...]:
    """Read the literals of a text such as ``smoker=yes & age=old``."""
    if text.strip() == "true":
        return ()
    literals = []
    for name, sign, state in _split(text):
        try:
            v = domain.index(name)
            literals.append(int(make_literal(domain, v, domain[v].index(state), sign == "!=")))
        except DataError as error:
            raise FeatureError(f"in the feature {text!r}: {error}") from None
    return normalise(literals, domain)


def _split(text: str) -> Iterable[tuple[str, str, str]]:
    """Cut the text of a feature into variable, sign and state, literal by literal."""
    tokens: list[tuple[str, bool]] = []  # text, is an operator
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise FeatureError(f"the feature {text!r} cannot be read from character {at + 1} on; write it like A=1 & B!=no")
        quoted, operator, plain = match.groups()
        if quoted is not None:
            tokens.append((re.sub(r"\\(.)", r"\1", quoted[1:-1]), False))
        else:
            tokens.append((operator, True) if operator else (plain.strip(), False))
        at = match.end()
    for k in range(0, len(tokens) + 1, 4):
        part = tokens[k : k + 4]
        shape = [is_operator for _, is_operator in part]
        if shape[:3] != [False, True, False] or part[1][0] == "&" or (len(part) == 4 and part[3][0] != "&"):
            raise FeatureError(f"the feature {text!r} is not a list of literals; write it like A=1 & B!=no")
        yield part[0][0], part[1][0], part[2][0]
        if len(part) < 4:
            return
