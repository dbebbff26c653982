"""Libra's ``.mn`` files. Names are not part of the format: variables and states are numbers."""

from __future__ import annotations

import re
from collections import deque

from undirected.data.variables import MAX_STATES, Domain
from undirected.errors import FeatureError, FormatError
from undirected.features.conjunction import normalise
from undirected.features.feature_set import FeatureSet
from undirected.network.network import MarkovNetwork

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?$|-?inf$")
_LITERAL = re.compile(r"([+-])v(\d{1,12})_(\d{1,12})$")
_TEST = re.compile(r"v(\d{1,12})_(\d{1,12})$")
_TREE_TOKEN = re.compile(r"\s*([(){}]|[^\s(){}]+)")


def dumps(network: MarkovNetwork) -> str:
    domain = network.domain
    n = domain.n_literals
    lines = [",".join(str(k) for k in domain.n_states), "MN {"]
    for weight, row in zip(network.weights.tolist(), network.features, strict=True):
        parts = [f"{weight:.17g}"]
        for literal in row:
            v = int(domain.literal_variable[literal % n])
            parts.append(f"{'+' if literal < n else '-'}v{v}_{literal % n - int(domain.base[v])}")
        lines.append(" ".join(parts))
    return "\n".join([*lines, "}"]) + "\n"


def loads(text: str, name: str) -> MarkovNetwork:
    return _Reader(text, name).read()


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.lines = text.splitlines()
        self.name = name
        self.at = 0  # lines read
        self.weights: list[float] = []
        self.rows: list[tuple[int, ...]] = []

    def fail(self, message: str) -> FormatError:
        return FormatError(f"{self.name}, line {self.at}: {message}")

    def next_line(self, inside: str) -> str:
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            self.at += 1
            if line:
                return line
        raise self.fail(f"the file ends in the middle of {inside}; a closing }} is missing")

    def read(self) -> MarkovNetwork:
        self.domain = self._schema(self.next_line("the header"))
        if re.sub(r"\s+", " ", self.next_line("the header").upper()) not in ("MN {", "MN{"):
            raise self.fail("expected MN {")
        self._block("the network", nested=True)
        for rest in self.lines[self.at :]:
            self.at += 1
            if rest.strip():
                raise self.fail(f"{rest.strip()[:40]!r} stands after the end of the network")
        return MarkovNetwork(FeatureSet.from_lists(self.rows, self.domain), self.weights)

    def _schema(self, line: str) -> Domain:
        sizes = []
        for cell in line.split(","):
            if not (cell.strip().isascii() and cell.strip().isdigit() and len(cell.strip()) <= 12):
                raise self.fail(f"{cell.strip()[:40]!r} is not a number of states")
            sizes.append(int(cell))
            if not 1 <= sizes[-1] <= MAX_STATES:
                raise self.fail(f"variable {len(sizes) - 1} has {sizes[-1]} states; between 1 and {MAX_STATES:,} are possible")
        return Domain.from_sizes(sizes)

    def _block(self, what: str, nested: bool) -> None:
        while (line := self.next_line(what)) != "}":
            head = re.match(r"(features|table|tree)\s*\{", line, re.IGNORECASE)
            if head is None:
                self._feature(line)
            elif not nested:
                raise self.fail(f"{head[1]} inside another block")
            elif head[1].lower() == "tree":
                self._tree(line[head.end() :])
            elif line[head.end() :].strip():
                raise self.fail(f"a new line is expected after {head[0]}")
            else:
                self._block(f"a {head[1]} block", nested=False)

    def _feature(self, line: str) -> None:
        tokens = line.split()
        if len(tokens) > 1 and tokens[0].isdigit() and _NUMBER.match(tokens[1]):
            tokens = tokens[1:]  # an id, which means nothing
        weight = self._number(tokens[0])
        literals = []
        for token in tokens[1:]:
            match = _LITERAL.match(token)
            if match is None:
                raise self.fail(f"{token[:40]!r} is not a literal such as +v0_1")
            literals.append(self._literal(match[1] == "+", match[2], match[3]))
        self._add(weight, literals)

    def _number(self, token: str) -> float:
        if not _NUMBER.match(token):
            raise self.fail(f"{token[:40]!r} is not a weight")
        return float(token)

    def _literal(self, positive: bool, variable: str, state: str) -> int:
        v, s = int(variable), int(state)
        if v >= len(self.domain):
            raise self.fail(f"there is no variable {v}; the first line names {len(self.domain)}")
        if s >= self.domain.n_states[v]:
            raise self.fail(f"variable {v} has {self.domain.n_states[v]} states, so there is no state {s}")
        return int(self.domain.base[v]) + s + (0 if positive else self.domain.n_literals)

    def _add(self, weight: float, literals: list[int]) -> None:
        try:
            self.rows.append(normalise(literals, self.domain))
        except FeatureError as error:
            raise self.fail(str(error)) from None
        self.weights.append(weight)

    def _tree(self, rest: str) -> None:
        """``(v0_1 T T)`` or a number; the first branch is where the test holds. Worked with a list, not by recursion."""
        tokens = deque(_TREE_TOKEN.findall(rest))
        path: list[list[int]] = []  # literals of the open tests: [literal, branches done]
        started = False
        while True:
            while not tokens:
                tokens.extend(_TREE_TOKEN.findall(self.next_line("a tree")))
            token = tokens.popleft()
            if token == "}":
                if path or not started or tokens:
                    raise self.fail("a tree ends too early")
                return
            if started and not path:
                raise self.fail(f"{token[:40]!r} stands after the end of a tree")
            started = True
            if token == "(":
                while not tokens:
                    tokens.extend(_TREE_TOKEN.findall(self.next_line("a tree")))
                match = _TEST.match(tokens.popleft())
                if match is None:
                    raise self.fail("a test such as v0_1 is expected after (")
                path.append([self._literal(True, match[1], match[2]), 0])
            elif token == ")":
                if not path or path[-1][1] != 2:
                    raise self.fail("a test in a tree needs exactly two branches")
                path.pop()
                self._branch_done(path)
            else:
                weight = self._number(token)
                n = self.domain.n_literals
                self._add_reachable(weight, [x if done == 0 else x + n for x, done in path])
                self._branch_done(path)

    def _branch_done(self, path: list[list[int]]) -> None:
        if path:
            path[-1][1] += 1
            if path[-1][1] > 2:
                raise self.fail("a test in a tree needs exactly two branches")

    def _add_reachable(self, weight: float, literals: list[int]) -> None:
        """A leaf whose path contradicts itself is never reached, so it is left out."""
        try:
            self.rows.append(normalise(literals, self.domain))
        except FeatureError:
            return
        self.weights.append(weight)
