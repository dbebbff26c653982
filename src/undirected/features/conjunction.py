"""One feature: a conjunction of literals, and its text form ``A=1 & B!=no``.

A literal is a number: ``base[v] + s`` for ``X_v = s``, and ``n_literals`` more for ``X_v != s``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from undirected.data.variables import Domain
from undirected.errors import DataError, FeatureError

_SPECIAL = re.compile(r'[=&!"\\]|^[\s#]|\s$|^$')
_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(!=|=|&)|([^=&!"\\]+))')


def quote(text: str) -> str:
    """A name or state as it stands in a feature: in double quotes where it would be misread otherwise."""
    if _SPECIAL.search(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def normalise(literals: Iterable[int], domain: Domain) -> tuple[int, ...]:
    """Literals sorted by variable, each once, in the shortest form; a contradiction is an error.

    A positive literal makes negations on its variable redundant, and negations that leave one state become that state.
    """
    n = domain.n_literals
    held: dict[int, int] = {}  # by variable
    excluded: dict[int, set[int]] = {}
    for literal in literals:
        positive = literal % n
        v = int(domain.literal_variable[positive])
        if literal >= n:
            excluded.setdefault(v, set()).add(positive)
        elif held.setdefault(v, positive) != positive:
            raise _contradiction(v, domain)
    out: list[int] = []
    for v in sorted(held.keys() | excluded.keys()):
        gone, k = excluded.get(v, set()), int(domain.n_states[v])
        if len(gone) == k or held.get(v) in gone:
            raise _contradiction(v, domain)
        if v in held:
            out.append(held[v])
        elif len(gone) == k - 1:
            out.append(k * int(domain.base[v]) + k * (k - 1) // 2 - sum(gone))  # the sum of all states' literals less those excluded
        else:
            out.extend(n + positive for positive in sorted(gone))
    return tuple(out)


def _contradiction(v: int, domain: Domain) -> FeatureError:
    return FeatureError(f"the feature asks for two states of {domain[v].name!r} at once, so it can never be true")


def format_feature(literals: Iterable[int], domain: Domain) -> str:
    """``A=1 & B!=no``; the empty conjunction is ``true``."""
    n = domain.n_literals
    parts = []
    for literal in literals:
        positive = int(literal) % n
        v = int(domain.literal_variable[positive])
        sign = "=" if literal < n else "!="
        parts.append(f"{quote(domain[v].name)}{sign}{quote(domain[v].states[positive - int(domain.base[v])])}")
    return " & ".join(parts) if parts else "true"


def parse_literal(text: str, domain: Domain) -> int:
    """A single literal, as in evidence."""
    literals = parse_feature(text, domain)
    if len(literals) != 1:
        raise FeatureError(f"{text!r} is not a single literal such as smoker=yes")
    return literals[0]


def parse_feature(text: str, domain: Domain) -> tuple[int, ...]:
    """The literals of a text such as ``smoker=yes & age=old``."""
    if text.strip() == "true":
        return ()
    literals = []
    for name, sign, state in _split(text):
        try:
            v = domain.index(name)
            literal = int(domain.base[v]) + domain[v].index(state)
        except DataError as error:
            raise FeatureError(f"in the feature {text!r}: {error}") from None
        literals.append(literal + (domain.n_literals if sign == "!=" else 0))
    return normalise(literals, domain)


def _split(text: str) -> Iterable[tuple[str, str, str]]:
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
