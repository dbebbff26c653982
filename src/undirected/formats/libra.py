"""Libra's ``.mn`` files. Names are not part of the format: variables and states are numbers."""

from __future__ import annotations

import math
import re
from array import array
from collections import deque

import numpy as np

from undirected.data.literals import get_variable, make_literal, negate, split_literals
from undirected.data.variables import MAX_STATES, Domain
from undirected.errors import FeatureError, FormatError
from undirected.features.conjunction import normalise
from undirected.features.feature_set import FeatureSet
from undirected.formats import build_domain
from undirected.network.network import MarkovNetwork

LITERALS_PER_CHARACTER = 50  # that the features of a file may have together, beside the free ones: deep trees stay linear in their file
FREE_LITERALS = 100_000
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?$|-?inf$", re.ASCII)
_LITERAL = re.compile(r"([+-])v(\d{1,12})_(\d{1,12})$", re.ASCII)
_TEST = re.compile(r"v(\d{1,12})_(\d{1,12})$", re.ASCII)
_BLOCK = re.compile(r"(features|table|tree)\s*\{", re.IGNORECASE)
_TREE_TOKEN = re.compile(r"\s*([(){}]|[^\s(){}]+)")


def dumps(network: MarkovNetwork) -> str:
    """Write a network as the text of a ``.mn`` file."""
    domain = network.domain
    lines = [",".join(str(k) for k in domain.n_states), "MN {"]
    for weight, row in zip(network.weights.tolist(), network.features, strict=True):
        parts = [f"{'-' if is_negated else '+'}v{v}_{state}" for v, state, is_negated in split_literals(domain, row)]
        lines.append(" ".join([f"{weight:.17g}", *parts]))
    return "\n".join([*lines, "}"]) + "\n"


def loads(text: str, name: str) -> MarkovNetwork:
    """Read a network from the text of a ``.mn`` file; ``name`` is the file's, for messages."""
    return _Reader(text, name).read()


class _Reader:
    """Reads a ``.mn`` file line by line; errors name the line."""

    def __init__(self, text: str, name: str) -> None:
        self.lines = text.splitlines()
        self.name = name
        self.at = 0  # lines read
        self.most_literals = LITERALS_PER_CHARACTER * len(text) + FREE_LITERALS
        self.weights: list[float] = []
        self.ends = array("q", [0])
        self.literals = array("i")
        self.line_of: list[int] = []  # by feature
        self.known: dict[str, int] = {}  # literals by their text

    def fail(self, message: str) -> FormatError:
        """An error that names the line."""
        return FormatError(f"{self.name}, line {self.at}: {message}")

    def next_line(self, inside: str) -> str:
        """The next line that is not empty; an error if there is none, ``inside`` what."""
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            self.at += 1
            if line:
                return line
        raise self.fail(f"the file ends in the middle of {inside}; a closing }} is missing")

    def read(self) -> MarkovNetwork:
        """Read the whole file."""
        self.domain = self._read_schema(self.next_line("the header"))
        if re.sub(r"\s+", " ", self.next_line("the header").upper()) not in ("MN {", "MN{"):
            raise self.fail("expected MN {")
        self._read_block("the network", nested=True)
        for rest in self.lines[self.at :]:
            self.at += 1
            if rest.strip():
                raise self.fail(f"{rest.strip()[:40]!r} stands after the end of the network")
        return MarkovNetwork(self._build_features(), self.weights)

    def _build_features(self) -> FeatureSet:
        """All features that were read; an error names the line of the first that can never be true."""
        try:
            return FeatureSet.from_arrays(self.domain, np.array(self.ends), np.array(self.literals))
        except FeatureError:
            for j, line in enumerate(self.line_of):
                try:
                    normalise(self.literals[self.ends[j] : self.ends[j + 1]], self.domain)
                except FeatureError as error:
                    self.at = line
                    raise self.fail(str(error)) from None
            raise

    def _read_schema(self, line: str) -> Domain:
        """The numbers of states, with commas between them."""
        sizes = []
        for cell in line.split(","):
            if not (cell.strip().isascii() and cell.strip().isdigit() and len(cell.strip()) <= 12):
                raise self.fail(f"{cell.strip()[:40]!r} is not a number of states")
            sizes.append(int(cell))
            if not 1 <= sizes[-1] <= MAX_STATES:
                raise self.fail(f"variable {len(sizes) - 1} has {sizes[-1]} states; between 1 and {MAX_STATES:,} are possible")
        return build_domain(sizes, f"{self.name}, line {self.at}")

    def _read_block(self, what: str, nested: bool) -> None:
        """Features up to a closing brace; other blocks among them if they may be ``nested``."""
        while (line := self.next_line(what)) != "}":
            head = _BLOCK.match(line) if line[0] in "fFtT" else None
            if head is None:
                self._read_feature(line)
            elif not nested:
                raise self.fail(f"{head[1]} inside another block")
            elif head[1].lower() == "tree":
                self._read_tree(line[head.end() :])
            elif line[head.end() :].strip():
                raise self.fail(f"a new line is expected after {head[0]}")
            else:
                self._read_block(f"a {head[1]} block", nested=False)

    def _read_feature(self, line: str) -> None:
        """A weight, then literals."""
        tokens = line.split()
        if len(tokens) > 1 and tokens[0].isdigit() and _NUMBER.match(tokens[1]):
            tokens = tokens[1:]  # an id, which means nothing
        weight = self._read_number(tokens[0])
        try:
            literals = [self.known[token] for token in tokens[1:]]
        except KeyError:
            literals = [self._read_signed(token) for token in tokens[1:]]
        self._add_feature(weight, array("i", literals))

    def _read_signed(self, token: str) -> int:
        """A literal such as +v0_1, remembered because most come again."""
        if token not in self.known:
            match = _LITERAL.match(token)
            if match is None:
                raise self.fail(f"{token[:40]!r} is not a literal such as +v0_1")
            positive = self._read_literal(match[2], match[3])
            self.known[token] = positive if match[1] == "+" else int(negate(self.domain, positive))
        return self.known[token]

    def _read_number(self, token: str) -> float:
        """A weight."""
        if not _NUMBER.match(token):
            raise self.fail(f"{token[:40]!r} is not a weight")
        weight = float(token)
        if math.isinf(weight) and not token.endswith("inf"):
            raise self.fail(f"{token[:40]!r} is too large for a weight; a rule has the weight inf or -inf")
        return weight

    def _read_literal(self, variable: str, state: str) -> int:
        """The literal that says that a variable is in a state, both given as digits."""
        v, s = int(variable), int(state)
        if v >= len(self.domain):
            raise self.fail(f"there is no variable {v}; the first line names {len(self.domain)}")
        if s >= self.domain.n_states[v]:
            raise self.fail(f"variable {v} has {self.domain.n_states[v]} states, so there is no state {s}")
        return int(make_literal(self.domain, v, s))

    def _add_feature(self, weight: float, literals: array[int]) -> None:
        """Keep a feature, unless the file has blown up to too many literals."""
        self.literals.extend(literals)
        if len(self.literals) > self.most_literals:
            raise self.fail(
                f"the features up to here have {len(self.literals):,} literals, more than {self.most_literals:,} "
                f"({LITERALS_PER_CHARACTER} for each character of the file and {FREE_LITERALS:,} beside); a tree is too deep"
            )
        self.ends.append(len(self.literals))
        self.weights.append(weight)
        self.line_of.append(self.at)

    def _read_tree(self, rest: str) -> None:
        """A tree: ``(v0_1 T T)`` or a number; the first branch is where the test holds. Worked with a list, not by recursion."""
        tokens = deque(_TREE_TOKEN.findall(rest))
        path = _Path(self.domain)
        started = False
        while True:
            token = self._take_tree_token(tokens)
            if token == "}":
                if path.tests or not started or tokens:
                    raise self.fail("a tree ends too early")
                return
            if started and not path.tests:
                raise self.fail(f"{token[:40]!r} stands after the end of a tree")
            started = True
            if token == "(":
                match = _TEST.match(self._take_tree_token(tokens))
                if match is None:
                    raise self.fail("a test such as v0_1 is expected after (")
                path.enter(self._read_literal(match[1], match[2]))
                continue
            if token != ")":
                weight = self._read_number(token)
                if path.is_reachable:
                    self._add_feature(weight, path.literals)
            elif not path.leave():
                raise self.fail("a test in a tree needs exactly two branches")
            if path.tests and not path.turn():
                raise self.fail("a test in a tree needs exactly two branches")

    def _take_tree_token(self, tokens: deque[str]) -> str:
        """The next word or bracket of a tree, from the next line if this one is used up."""
        while not tokens:
            tokens.extend(_TREE_TOKEN.findall(self.next_line("a tree")))
        return tokens.popleft()


class _Path:
    """The tests from the root of a tree to where one is, and what they leave of each variable; a step costs the same at any depth."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.tests: list[list[int]] = []  # the literal, branches done, and what the branch did: see `_assume`
        self.literals = array("i")  # those that say something new
        self.held: dict[int, int] = {}  # by variable, the literal that holds
        self.excluded: dict[int, set[int]] = {}
        self.dead = 0  # open tests whose branch contradicts those above

    @property
    def is_reachable(self) -> bool:
        """Whether the tests up to here can all come out so."""
        return self.dead == 0

    def enter(self, literal: int) -> None:
        """Go into the first branch of a test, where it holds."""
        self.tests.append([literal, 0, self._assume(literal, True)])

    def turn(self) -> bool:
        """A branch of the innermost test is done; False if it was one too many."""
        test = self.tests[-1]
        self._forget(test)
        test[1] += 1
        if test[1] == 1:
            test[2] = self._assume(test[0], False)
        return test[1] <= 2

    def leave(self) -> bool:
        """Close the innermost test; False unless both its branches are done."""
        return bool(self.tests) and self.tests.pop()[1] == 2

    def _assume(self, literal: int, positive: bool) -> int:
        """Add what a branch says: 1 if a literal was added, -1 if it contradicts what is known, 0 if it says nothing new."""
        v = int(get_variable(self.domain, literal))
        held, excluded = self.held.get(v), self.excluded.setdefault(v, set())
        if held is not None or literal in excluded:
            news = 0 if (held == literal) == positive else -1
        else:
            news = 1 if positive or len(excluded) + 1 < self.domain.n_states[v] else -1
        self.dead += news < 0
        if news > 0:
            self.literals.append(literal if positive else int(negate(self.domain, literal)))
            if positive:
                self.held[v] = literal
            else:
                excluded.add(literal)
        return news

    def _forget(self, test: list[int]) -> None:
        """Take back what the branch that is done assumed."""
        literal, branch, news = test
        test[2] = 0
        self.dead -= news < 0
        if news > 0:
            self.literals.pop()
            v = int(get_variable(self.domain, literal))
            if branch == 0:
                del self.held[v]
            else:
                self.excluded[v].remove(literal)
