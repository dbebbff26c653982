"""What evidence leaves of a network as tables, in NumPy: elimination, messages, mean field's averages."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from undirected.kernels.types import Array

Factor = tuple[tuple[int, ...], Array]  # variables in the order of the table's axes, logarithms


@dataclass
class Reduced:
    """What evidence leaves: open variables with their allowed states, and open features as tables."""

    states: dict[int, Array]
    factors: list[Factor] = field(default_factory=list)
    truth: list[Array] = field(default_factory=list)  # where each factor's feature holds
    owner: list[int] = field(default_factory=list)  # the feature of each factor
    constant: float = 0.0
    decided: dict[int, float] = field(default_factory=dict)


@dataclass
class Plan:
    members: list[int]
    order: list[int]
    cells: float
    largest: float
    width: int


def parts_of(left: Reduced) -> list[list[int]]:
    """Variables that hang together."""
    root = {v: v for v in left.states}

    def find(v: int) -> int:
        while root[v] != v:
            v = root[v]
        return v

    for scope, _ in left.factors:
        for v in scope[1:]:
            root[find(v)] = find(scope[0])
    groups: dict[int, list[int]] = {}
    for v in sorted(left.states):
        groups.setdefault(find(v), []).append(v)
    return list(groups.values())


def plan_of(left: Reduced, members: list[int]) -> Plan:
    """The order of least fill."""
    near: dict[int, set[int]] = {v: set() for v in members}
    for scope, _ in left.factors:
        if scope[0] in near:
            for v in scope:
                near[v] |= set(scope) - {v}
    size = {v: len(left.states[v]) for v in members}
    order, cells, largest, width = [], 0.0, 0.0, 0
    while near:
        v = min(near, key=lambda v: (sum(b not in near[a] for a, b in itertools.combinations(near[v], 2)), len(near[v]), v))
        clique = float(np.prod([float(size[u]) for u in (v, *near[v])]))
        cells, largest, width = cells + clique, max(largest, clique), max(width, len(near[v]))
        order.append(v)
        for a in near[v]:
            near[a] |= near[v] - {a}
            near[a].discard(v)
        del near[v]
    return Plan(members, order, cells, largest, width)


class Tree:
    """A bucket tree: each variable's table over itself (the first axis) and those eliminated later."""

    def __init__(self, left: Reduced, plan: Plan) -> None:
        self.left, self.order = left, plan.order
        self.place = {v: k for k, v in enumerate(plan.order)}
        self.mine: dict[int, list[int]] = {v: [] for v in plan.order}
        for k, (scope, _) in enumerate(left.factors):
            if scope[0] in self.place:
                self.mine[min(scope, key=self.place.__getitem__)].append(k)

    def collect(self, maximum: bool = False) -> float:
        messages: dict[int, list[Factor]] = {v: [] for v in self.order}
        self.scope: dict[int, tuple[int, ...]] = {}
        self.table: dict[int, Array] = {}
        self.message: dict[int, Array] = {}
        self.children: dict[int, list[int]] = {v: [] for v in self.order}
        total = 0.0
        for v in self.order:
            factors = [self.left.factors[k] for k in self.mine[v]] + messages[v]
            scope = tuple(sorted({v, *(u for s, _ in factors for u in s)}, key=self.place.__getitem__))
            table = np.zeros([len(self.left.states[u]) for u in scope])
            for part, values in factors:
                table = table + spread(part, values, scope)
            self.scope[v], self.table[v] = scope, table
            self.message[v] = table.max(axis=0) if maximum else np.logaddexp.reduce(table, axis=0)
            if len(scope) > 1:
                messages[scope[1]].append((scope[1:], self.message[v]))
                self.children[scope[1]].append(v)
            else:
                total += float(self.message[v])
        return total

    def distribute(self) -> tuple[dict[int, Array], dict[int, float]]:
        """Marginals by variable and expectations by factor."""
        marginals, expectations = {}, {}
        for v in reversed(self.order):
            scope = self.scope[v]
            p = np.exp(self.table[v] - self.table[v].max())
            p /= p.sum()
            marginals[v] = p.sum(axis=tuple(range(1, p.ndim)))
            for k in self.mine[v]:
                expectations[k] = float((p * spread(self.left.factors[k][0], self.left.truth[k], scope)).sum())
            for child in self.children[v]:
                onto = self.scope[child][1:]
                with np.errstate(divide="ignore"):
                    seen = np.log(p.sum(axis=tuple(k for k, u in enumerate(scope) if u not in onto)))
                self.table[child] = self.table[child] + (seen - self.message[child])[None]
        return marginals, expectations

    def descend(self, n: int, rng: np.random.Generator | None) -> dict[int, Array]:
        """Samples of all variables, or with no generator the best state."""
        state: dict[int, Array] = {}
        for v in reversed(self.order):
            at = tuple(state[u] for u in self.scope[v][1:])
            scores = np.moveaxis(self.table[v], 0, -1)[at]
            scores = np.broadcast_to(scores, (n, scores.shape[-1]))
            noise = 0.0 if rng is None else rng.gumbel(size=scores.shape)
            state[v] = np.argmax(scores + noise, axis=1)
        return state


def spread(part: tuple[int, ...], values: Array, scope: tuple[int, ...]) -> Array:
    """A table over some variables, shaped to be added to one over more."""
    order = sorted(range(len(part)), key=lambda k: scope.index(part[k]))
    values = np.transpose(values, order)
    return values.reshape([values.shape[[part[k] for k in order].index(u)] if u in part else 1 for u in scope])


def normal(logits: Array) -> Array:
    p = np.exp(logits - logits.max())
    return np.asarray(p / p.sum())


def entropy(p: Array) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def mean_of(scope: tuple[int, ...], table: Array, q: dict[int, Array], but: int | None) -> Array:
    """The mean of a table under independent variables; one of them may be left open."""
    for axis in reversed(range(len(scope))):
        if scope[axis] != but:
            table = np.tensordot(table, q[scope[axis]], axes=(axis, 0))
    return table


class Messages:
    """Messages between factors and variables, in logarithms; factors within a larger one's variables are part of it."""

    def __init__(self, left: Reduced, maximum: bool, forests: np.random.Generator | None) -> None:
        self.maximum = maximum
        self.unary = {v: np.zeros(len(s)) for v, s in left.states.items()}
        tables: dict[tuple[int, ...], Array] = {}
        for scope, table in sorted(left.factors, key=lambda f: -len(f[0])):
            home = scope if scope in tables else next((s for s in tables if set(scope) <= set(s)), None)
            if len(scope) == 1:
                self.unary[scope[0]] = self.unary[scope[0]] + table
            elif home is None:
                tables[scope] = table.copy()
            else:
                tables[home] = tables[home] + spread(scope, table, home)
        self.factors = list(tables.items())
        self.share = np.ones(len(self.factors)) if forests is None else self._forests(forests)
        self.belief = {v: values.copy() for v, values in self.unary.items()}
        self.message = [[np.zeros(n) for n in table.shape] for _, table in self.factors]

    def _forests(self, rng: np.random.Generator) -> Array:
        held, n = np.zeros(len(self.factors)), 0
        while not n or (held == 0).any():
            n += 1
            root = {v: v for v in self.unary}
            for k in sorted(rng.permutation(len(held)), key=lambda k: held[k] > 0):
                roots = {root[v] for v in self.factors[k][0]}
                if len(roots) == len(self.factors[k][0]):
                    keep = min(roots)
                    root = {v: keep if r in roots else r for v, r in root.items()}
                    held[k] += 1
            if not len(held):
                break
        return held / n

    def _joint(self, k: int) -> tuple[Array, list[Array]]:
        scope, table = self.factors[k]
        heard = [self.belief[v] - m for v, m in zip(scope, self.message[k], strict=True)]
        joint = table / self.share[k]
        for axis, values in enumerate(heard):
            joint = joint + values.reshape([-1 if a == axis else 1 for a in range(joint.ndim)])
        return joint, heard

    def round(self, damping: float) -> float:
        change = 0.0
        for k, (scope, _) in enumerate(self.factors):
            joint, heard = self._joint(k)
            for axis, v in enumerate(scope):
                rest = tuple(a for a in range(joint.ndim) if a != axis)
                out = (joint.max(axis=rest) if self.maximum else np.logaddexp.reduce(joint, axis=rest)) - heard[axis]
                fresh = damping * self.message[k][axis] + (1 - damping) * (out - out.max())
                step = fresh - self.message[k][axis]
                self.belief[v] = self.belief[v] + self.share[k] * step
                self.message[k][axis] = fresh
                change = max(change, float(np.abs(step).max()))
        return change

    def free_energy(self) -> float:
        p = {v: normal(values) for v, values in self.belief.items()}
        h = {v: entropy(values) for v, values in p.items()}
        total = sum(h.values()) + sum(float(p[v] @ self.unary[v]) for v in p)
        for k, (scope, table) in enumerate(self.factors):
            joint = normal(self._joint(k)[0])
            total += float((joint * table).sum()) - float(self.share[k]) * (sum(h[v] for v in scope) - entropy(joint.ravel()))
        return total
