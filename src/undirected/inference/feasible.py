"""Assignments that keep every feature of infinite weight: what the rules force, and a search for one that keeps them all.

A rule forbids a conjunction, or asks for one. Where all parts of a forbidden conjunction but one are certain, the last must not hold: that
is passed on from rule to rule (unit propagation), and whatever it forces is certain. The search decides one variable after the other,
those of broken rules first, passes on what follows, and goes back where nothing is left; it starts anew with other choices after more
and more failures. Only when it has gone through everything, or propagation alone ends in a contradiction, is it a proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undirected.data.literals import get_slice, split_literals
from undirected.errors import ImpossibleEvidence
from undirected.kernels.types import Array
from undirected.work import Work

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

IMPOSSIBLE = "no assignment meets the evidence and all features of infinite weight; drop part of the evidence"
FIRST_FAILURES = 100  # until the search starts anew
LOOK_EVERY = 64  # decisions between looks at the clock


class Contradiction(Exception):
    """No state is left for a variable."""


Part = tuple[int, int]  # of a conjunction: a variable, and the states that it allows as bits of a number


class RuleBook:
    """The features of infinite weight of a network, read once.

    ``forbidden`` are conjunctions that must not hold, ``required`` are parts of those that must; ``of`` lists the forbidden conjunctions
    that each variable is in. ``features`` are the same rules as a set, but for those without literals, and ``wanted`` tells which of them
    must hold.
    """

    def __init__(self, network: MarkovNetwork) -> None:
        self.domain = network.domain
        hard = np.flatnonzero(np.isinf(network.weights))
        self.forbidden: list[list[Part]] = []
        self.required: list[Part] = []
        for j in hard.tolist():
            parts = self._read(network.features[j])
            if network.weights[j] < 0:
                self.forbidden.append(parts)
            else:
                self.required += parts
        self.of: list[list[int]] = [[] for _ in range(len(self.domain))]
        for r, parts in enumerate(self.forbidden):
            for v, _ in parts:
                self.of[v].append(r)
        named = hard[network.features.lengths[hard] > 0]
        self.features, self.wanted = network.features.subset(named), network.weights[named] > 0

    def _read(self, literals: tuple[int, ...]) -> list[Part]:
        """The states that a conjunction allows, by variable."""
        parts: dict[int, int] = {}
        for v, state, is_negated in split_literals(self.domain, literals):
            every = (1 << int(self.domain.n_states[v])) - 1
            parts[v] = parts.get(v, every) & (every & ~(1 << state) if is_negated else 1 << state)
        return list(parts.items())


class Rules:
    """Rules under evidence: the states that are left to each variable (``left``, as bits), and a search for an assignment."""

    def __init__(self, book: RuleBook, allowed: Array) -> None:
        self.domain, self.forbidden, self.of = book.domain, book.forbidden, book.of
        self.left = [_pack_bits(allowed[get_slice(self.domain, v)]) for v in range(len(self.domain))]
        self.possible = True
        for v, states in book.required:
            self.left[v] &= states
        self.ruled = np.array([v for v, mine in enumerate(self.of) if mine], dtype=np.int64)
        self.trail: list[Part] = []
        self.n_left = np.array([bits.bit_count() for bits in self.left])
        self.trouble = np.ones(len(self.domain))  # grows with the broken rules that a variable is in
        try:
            if not all(self.left) or not all(self.forbidden):
                raise Contradiction
            self._pass_on(range(len(self.forbidden)))
        except Contradiction:
            self.possible = False

    def mark_left(self) -> Array:
        """The states that are left, a mark a literal."""
        sizes = self.domain.n_states.tolist()
        return np.array([bits >> s & 1 for bits, k in zip(self.left, sizes, strict=True) for s in range(k)], dtype=np.uint8)

    def _pass_on(self, rules: range | list[int]) -> None:
        """Take from each variable the states that a rule now forbids, until nothing changes."""
        queue = list(rules)
        while queue:
            r = queue.pop()
            open_one = -1
            for v, states in self.forbidden[r]:
                here = self.left[v]
                if not here & states:
                    break  # the conjunction cannot hold any more
                if here & ~states:
                    if open_one >= 0:
                        break  # two parts are open: nothing follows
                    open_one, keep = v, here & ~states
            else:
                if open_one < 0:
                    for v, _ in self.forbidden[r]:
                        self.trouble[v] += 1
                    raise Contradiction
                self._narrow(open_one, keep)
                queue += self.of[open_one]

    def _narrow(self, v: int, states: int) -> None:
        """Leave a variable these states only, and note what it had."""
        self.trail.append((v, self.left[v]))
        self.left[v] = states
        self.n_left[v] = states.bit_count()

    def _undo(self, length: int) -> None:
        """Give back what was taken since the trail had this length."""
        while len(self.trail) > length:
            v, before = self.trail.pop()
            self.left[v] = before
            self.n_left[v] = before.bit_count()

    def search(self, work: Work, rng: np.random.Generator, hint: Array | None = None) -> Array | None:
        """An assignment that keeps all rules, near ``hint`` if one is given.

        None if none was found in time, which proves nothing; raises `ImpossibleEvidence` if there is none.
        """
        if not self.possible:
            raise ImpossibleEvidence(IMPOSSIBLE)
        failures = FIRST_FAILURES
        while True:
            found, finished = self._descend(failures, work, rng, hint)
            if found is not None:
                return found
            if finished:
                raise ImpossibleEvidence(IMPOSSIBLE)
            if work.is_over:
                return None
            failures *= 2
            hint = None

    def _descend(self, failures: int, work: Work, rng: np.random.Generator, hint: Array | None) -> tuple[Array | None, bool]:
        """One search from the root: an assignment, or None and whether everything was gone through."""
        root = len(self.trail)
        choices: list[tuple[int, int, int]] = []  # length of the trail, variable, states not tried
        steps = 0
        chance = 1e-6 * rng.random(len(self.ruled))
        try:
            while True:
                v = self._next_variable(chance)
                if v < 0:
                    hints = [-1] * len(self.left) if hint is None else hint.tolist()
                    return np.array([_choose(bits, rng, h) for bits, h in zip(self.left, hints, strict=True)], dtype=np.int16), True
                steps += 1
                if steps % LOOK_EVERY == 0 and work.is_over:
                    return None, False
                state = _choose(self.left[v], rng, None if hint is None else int(hint[v]))
                choices.append((len(self.trail), v, self.left[v] & ~(1 << state)))
                self._narrow(v, 1 << state)
                while not self._holds_on(choices[-1][1]):
                    failures -= 1
                    if failures < 0 or work.is_over:
                        return None, False
                    if not self._turn_back(choices, rng):
                        return None, True
        finally:
            self._undo(root)

    def _holds_on(self, v: int) -> bool:
        """Pass on what a narrowed variable forces; False if that ends in a contradiction."""
        try:
            self._pass_on(self.of[v])
        except Contradiction:
            return False
        return True

    def _turn_back(self, choices: list[tuple[int, int, int]], rng: np.random.Generator) -> bool:
        """Undo the last choice that has something else to offer, and take that; False if there is none."""
        while choices:
            length, v, rest = choices.pop()
            self._undo(length)
            if rest:
                state = _choose(rest, rng, None)
                choices.append((length, v, rest & ~(1 << state)))
                self._narrow(v, 1 << state)
                return True
        return False

    def _next_variable(self, chance: Array) -> int:
        """The open variable of a rule with fewest states for its trouble; ties by chance; -1 if none is open."""
        left = self.n_left[self.ruled]
        value = np.where(left > 1, left / self.trouble[self.ruled] + chance, np.inf)
        k = int(np.argmin(value)) if len(value) else -1
        return -1 if k < 0 or value[k] == np.inf else int(self.ruled[k])


def _choose(states: int, rng: np.random.Generator, hint: int | None) -> int:
    """One of the states, that of the hint if it is among them."""
    if hint is not None and hint >= 0 and states >> hint & 1:
        return hint
    for _ in range(int(rng.integers(states.bit_count()))):
        states &= states - 1
    return (states & -states).bit_length() - 1


def _pack_bits(marks: Array) -> int:
    """Marks as the bits of a number."""
    return int.from_bytes(np.packbits(np.asarray(marks) > 0, bitorder="little").tobytes(), "little")
