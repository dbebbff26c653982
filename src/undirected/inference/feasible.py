"""Assignments that keep every feature of infinite weight: what the rules force, and a search for one that keeps them all.

A rule forbids a conjunction, or asks for one. Where all parts of a forbidden conjunction but one are certain, the last must not hold: that
is passed on from rule to rule (unit propagation), and whatever it forces is certain. The search decides one variable after the other,
those of broken rules first, passes on what follows, and goes back where nothing is left; it starts anew with other choices after more
and more failures. Only when it has gone through everything, or propagation alone ends in a contradiction, is it a proof.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from undirected.data.variables import Domain
from undirected.errors import ImpossibleEvidence
from undirected.kernels.types import Array

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

IMPOSSIBLE = "no assignment meets the evidence and all features of infinite weight; drop part of the evidence"
FIRST_FAILURES = 100  # until the search starts anew
LOOK_EVERY = 64  # decisions between looks at the clock


class Contradiction(Exception):
    """No state is left for a variable."""


class Rules:
    """The features of infinite weight as forbidden conjunctions, each a list of (variable, states that the conjunction allows) with the
    states as bits of a number; ``left`` are the states that are left to each variable."""

    def __init__(self, network: MarkovNetwork, allowed: Array) -> None:
        domain = network.domain
        self.domain = domain
        self.left = [_bits(allowed[domain.base[v] : domain.base[v + 1]]) for v in range(len(domain))]
        self.forbidden: list[list[tuple[int, int]]] = []
        self.possible = True
        hard = np.flatnonzero(np.isinf(network.weights))
        for parts, weight in zip(_parts(network, hard, domain), network.weights[hard].tolist(), strict=True):
            if weight < 0:
                self.forbidden.append(parts)
            else:
                for v, states in parts:
                    self.left[v] &= states
        self.of: list[list[int]] = [[] for _ in range(len(domain))]
        for r, parts in enumerate(self.forbidden):
            for v, _ in parts:
                self.of[v].append(r)
        self.ruled = np.array([v for v, mine in enumerate(self.of) if mine], dtype=np.int64)
        self.trail: list[tuple[int, int]] = []
        self.n_left = np.array([bits.bit_count() for bits in self.left])
        self.trouble = np.ones(len(domain))  # grows with the broken rules that a variable is in
        try:
            if not all(self.left) or not all(self.forbidden):
                raise Contradiction
            self._pass_on(range(len(self.forbidden)))
        except Contradiction:
            self.possible = False

    def marks(self) -> Array:
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
        self.trail.append((v, self.left[v]))
        self.left[v] = states
        self.n_left[v] = states.bit_count()

    def _undo(self, length: int) -> None:
        while len(self.trail) > length:
            v, before = self.trail.pop()
            self.left[v] = before
            self.n_left[v] = before.bit_count()

    def search(self, seconds: float, rng: np.random.Generator, hint: Array | None = None) -> Array | None:
        """An assignment that keeps all rules, near ``hint`` if one is given; None if none was found in time, which proves nothing. Raises
        `ImpossibleEvidence` if there is none."""
        if not self.possible:
            raise ImpossibleEvidence(IMPOSSIBLE)
        deadline, failures = time.monotonic() + seconds, FIRST_FAILURES
        while True:
            found, finished = self._descend(failures, deadline, rng, hint)
            if found is not None:
                return found
            if finished:
                raise ImpossibleEvidence(IMPOSSIBLE)
            if time.monotonic() > deadline:
                return None
            failures *= 2
            hint = None

    def _descend(self, failures: int, deadline: float, rng: np.random.Generator, hint: Array | None) -> tuple[Array | None, bool]:
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
                if steps % LOOK_EVERY == 0 and time.monotonic() > deadline:
                    return None, False
                state = _choose(self.left[v], rng, None if hint is None else int(hint[v]))
                choices.append((len(self.trail), v, self.left[v] & ~(1 << state)))
                self._narrow(v, 1 << state)
                while not self._holds_on(choices[-1][1]):
                    failures -= 1
                    if failures < 0 or time.monotonic() > deadline:
                        return None, False
                    if not self._turn_back(choices, rng):
                        return None, True
        finally:
            self._undo(root)

    def _holds_on(self, v: int) -> bool:
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


def _bits(marks: Array) -> int:
    return int.from_bytes(np.packbits(np.asarray(marks) > 0, bitorder="little").tobytes(), "little")


def _parts(network: MarkovNetwork, which: Array, domain: Domain) -> list[list[tuple[int, int]]]:
    """Of each feature, the states that its literals allow, by variable."""
    n = domain.n_literals
    variable, base, sizes = domain.literal_variable.tolist(), domain.base.tolist(), domain.n_states.tolist()
    out = []
    for j in which.tolist():
        parts: dict[int, int] = {}
        for literal in network.features[j]:
            v = variable[literal % n]
            state, every = 1 << (literal % n - base[v]), (1 << sizes[v]) - 1
            parts[v] = parts.get(v, every) & (state if literal < n else every & ~state)
        out.append(list(parts.items()))
    return out
