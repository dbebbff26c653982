"""Chains in NumPy: Gibbs sampling and MC-SAT. They agree with the native ones in distribution, not draw by draw."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from undirected.kernels.types import Array

if TYPE_CHECKING:
    from undirected.kernels.reference_inference import Model


class Slices:
    """One MC-SAT chain."""

    def __init__(self, model: Model, marks: Array, hard: float, rng: np.random.Generator, first: Array | None = None) -> None:
        self.model, self.rng = model, rng
        self.allowed = [np.flatnonzero(marks[model.base[v] : model.base[v + 1]]) for v in range(len(model.n_states))]
        self.state = np.array([rng.choice(states) for states in self.allowed], dtype=np.int16)
        rules = [(int(j), bool(model.weights[j] > 0)) for j in np.flatnonzero(np.abs(model.weights) >= hard)]
        if first is None:
            self.feasible = not rules or self._move(rules, 2000)
        else:
            self.state = np.array(first, dtype=np.int16)
            self.feasible = all(self._true(j, self.state) == wish for j, wish in rules)

    def _true(self, j: int, state: Array) -> bool:
        model = self.model
        return all(bool(model.holds(int(x), state[model.variable[x % model.n_literals]])) for x in model.features[j])

    def step(self) -> None:
        weights = self.model.weights
        holds = [self._true(j, self.state) for j in range(len(weights))]
        keep = self.rng.random(len(weights)) < -np.expm1(-np.abs(weights))
        self._move([(j, holds[j]) for j in range(len(weights)) if keep[j] and (weights[j] > 0) == holds[j]], 0)

    def _move(self, rules: Sequence[tuple[int, bool]], search: int) -> bool:
        """A state drawn evenly among those that keep the rules; with ``search``, from a state that need not keep them yet."""
        if np.prod([float(len(s)) for s in self.allowed]) <= 4096:
            every = [np.array(s, dtype=np.int16) for s in itertools.product(*self.allowed)]
            good = [s for s in every if all(self._true(j, s) == wish for j, wish in rules)]
            if good:
                self.state = good[int(self.rng.integers(len(good)))]
            return bool(good)
        for _ in range(search):
            broken = [(j, wish) for j, wish in rules if self._true(j, self.state) != wish]
            if not broken:
                break
            j, _ = broken[int(self.rng.integers(len(broken)))]
            literal = int(self.rng.choice(self.model.features[j]))
            v = int(self.model.variable[literal % self.model.n_literals])
            self.state[v] = self.rng.choice(self.allowed[v])
        if any(self._true(j, self.state) != wish for j, wish in rules):
            return False
        for v in self.rng.permutation(len(self.state)):
            open_ones = []
            for s in self.allowed[v]:
                other = self.state.copy()
                other[v] = s
                if all(self._true(j, other) == wish for j, wish in rules):
                    open_ones.append(s)
            self.state[v] = self.rng.choice(open_ones)
        return True


class Sampler:
    """Gibbs chains, one variable at a time for all of them; chain ``i`` has the evidence of row ``row_of[i]``."""

    def __init__(self, model: Model, evidence: Array, row_of: Array, states: Array, order: Array, seed: int) -> None:
        self.model, self.order = model, order
        self.allowed = np.asarray(evidence)[row_of].astype(bool)
        self._states = np.array(states, dtype=np.int16)
        self.rng = np.random.default_rng(seed)
        self._log_weights = np.zeros(len(states))
        self.beta = 0.0
        variables = [set(model.variable[f % model.n_literals].tolist()) for f in model.features]
        self.touching = [[j for j, mine in enumerate(variables) if v in mine] for v in range(len(order))]
        self.reset()

    def reset(self) -> None:
        shape = (len(self._states), self.model.n_literals)
        self._sums, self._squares = np.zeros(shape), np.zeros(shape)

    def _logits(self, v: int) -> Array:
        model = self.model
        k = int(model.n_states[v])
        out = np.zeros((len(self._states), k))
        for j in self.touching[v]:
            holds, own = np.ones(len(self._states), dtype=bool), np.ones(k, dtype=bool)
            for literal in model.features[j]:
                u = int(model.variable[literal % model.n_literals])
                if u == v:
                    own &= model.holds(int(literal), np.arange(k))
                else:
                    holds &= model.holds(int(literal), self._states[:, u])
            out += model.weights[j] * (holds[:, None] & own[None, :])
        return out

    def run(
        self, n_sweeps: int, beta: Array | None, reference: Array | None, collect: bool, anneal: bool, greedy: bool, threads: int
    ) -> None:
        model = self.model
        rows = np.arange(len(self._states))
        for k in range(n_sweeps):
            heat = 1.0 if beta is None else float(beta[k])
            if anneal:
                assert reference is not None
                base = reference[model.base[:-1] + self._states]
                open_ones = np.add.reduceat(self.allowed.astype(int), model.base[:-1], axis=1) > 1
                self._log_weights += (heat - self.beta) * (self.scores(1) - np.where(open_ones, base, 0.0).sum(axis=1))
                self.beta = heat
            for v in self.order:
                mine = slice(int(model.base[v]), int(model.base[v + 1]))
                open_ones = self.allowed[:, mine].sum(axis=1) > 1
                if not open_ones.any():
                    continue
                logits = heat * self._logits(int(v)) + (0.0 if reference is None else (1 - heat) * reference[mine])
                logits = np.where(self.allowed[:, mine], logits, -np.inf)
                p = np.exp(logits - logits.max(axis=1, keepdims=True))
                p /= p.sum(axis=1, keepdims=True)
                if greedy:
                    now = self._states[:, v]
                    drawn = np.where(logits[rows, now] == logits.max(axis=1), now, np.argmax(logits, axis=1))
                else:
                    drawn = np.minimum((self.rng.random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1), p.shape[1] - 1)
                self._states[open_ones, v] = drawn[open_ones]
                if collect:
                    self._sums[:, mine] += p
                    self._squares[:, mine] += p * p

    def scores(self, threads: int) -> Array:
        out = np.zeros(len(self._states))
        for feature, weight in zip(self.model.features, self.model.weights, strict=True):
            holds = np.ones(len(out), dtype=bool)
            for literal in feature:
                holds &= self.model.holds(int(literal), self._states[:, self.model.variable[literal % self.model.n_literals]])
            out += weight * holds
        return out

    def states(self) -> Array:
        return self._states.copy()

    def sums(self) -> Array:
        return self._sums.copy()

    def squares(self) -> Array:
        return self._squares.copy()

    def log_weights(self) -> Array:
        return self._log_weights.copy()
