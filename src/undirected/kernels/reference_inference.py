"""Inference in NumPy: short, readable, and the truth that the native kernels are tested against.

Samplers agree with the native ones in distribution, not draw by draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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


class Model:
    """A network for inference: conjunctions of literals with weights. Evidence marks allowed states, a byte a literal."""

    def __init__(self, n_states: Array, start: Array, literals: Array, weights: Array) -> None:
        self.n_states = np.asarray(n_states)
        self.base = np.concatenate([[0], np.cumsum(self.n_states)])
        self.n_literals = int(self.base[-1])
        self.variable = np.repeat(np.arange(len(self.n_states)), self.n_states)
        self.features = [np.asarray(literals[a:b]) for a, b in zip(start[:-1], start[1:], strict=True)]
        self.weights = np.asarray(weights, dtype=float)

    def holds(self, literal: int, states: Array) -> Array:
        """In which of a variable's states a literal is true."""
        code = literal % self.n_literals - self.base[self.variable[literal % self.n_literals]]
        return np.asarray((states == code) == (literal < self.n_literals))

    def reduce(self, marks: Array) -> Reduced:
        """Features that evidence decides are counted, the others become tables over what is open."""
        allowed = {v: np.flatnonzero(marks[self.base[v] : self.base[v + 1]]) for v in range(len(self.n_states))}
        left = Reduced({v: states for v, states in allowed.items() if len(states) > 1})
        for j, (feature, weight) in enumerate(zip(self.features, self.weights, strict=True)):
            truth: dict[int, Array] = {}
            for literal in feature:
                v = int(self.variable[literal % self.n_literals])
                truth[v] = truth.get(v, True) & self.holds(int(literal), allowed[v])
            if not all(t.any() for t in truth.values()):
                left.decided[j] = 0.0
                continue
            scope = tuple(sorted(v for v, t in truth.items() if v in left.states))
            if not scope:
                left.decided[j] = 1.0
                left.constant += weight
                continue
            table = np.ones((), dtype=bool)
            for v in scope:
                table = table[..., None] & truth[v]
            left.factors.append((scope, np.where(table, weight, 0.0)))
            left.truth.append(table)
            left.owner.append(j)
        return left

    def components(self, evidence: Array, max_cells: float, tries: int, seed: int) -> tuple[Array, Array, Array, Array, Array]:
        """By variable its part (-1: known), and by part: cells, cells of the largest clique, width, whether within ``max_cells``."""
        left = self.reduce(evidence[0])
        of = np.full(len(self.n_states), -1, dtype=np.int32)
        plans = [_plan(left, part) for part in _parts(left)]
        for k, plan in enumerate(plans):
            of[plan.members] = k
        cells = np.array([plan.cells for plan in plans], dtype=float)
        largest, width = np.array([p.largest for p in plans], dtype=float), np.array([p.width for p in plans], dtype=np.int32)
        return of, cells, largest, width, (cells <= max_cells).astype(np.uint8)

    def _trees(self, marks: Array, max_cells: float) -> tuple[Reduced, list[_Tree], bool]:
        left = self.reduce(marks)
        plans = [_plan(left, part) for part in _parts(left)]
        cheap = [plan for plan in plans if plan.cells <= max_cells]
        return left, [_Tree(left, plan) for plan in cheap], len(cheap) == len(plans)

    def solve(self, evidence: Array, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Array, Array]:
        """Marginals by row and literal, log partition functions by row; NaN where a part is too expensive."""
        out, log_z = evidence.astype(float), np.zeros(len(evidence))
        for r, marks in enumerate(evidence):
            left, trees, whole = self._trees(marks, max_cells)
            for v, states in left.states.items():
                out[r, self.base[v] + states] = np.nan
            log_z[r] = left.constant + sum(tree.collect() for tree in trees) if whole else np.nan
            for tree in trees:
                if not whole:
                    tree.collect()
                for v, p in tree.distribute()[0].items():
                    out[r, self.base[v] + left.states[v]] = p
        return out, log_z

    def expectations(self, evidence: Array, max_cells: float, tries: int, seed: int) -> Array:
        """The probability of each feature, NaN where its part is too expensive."""
        left, trees, _ = self._trees(evidence[0], max_cells)
        out = np.full(len(self.weights), np.nan)
        for j, value in left.decided.items():
            out[j] = value
        for tree in trees:
            tree.collect()
            for k, value in tree.distribute()[1].items():
                out[left.owner[k]] = value
        return out

    def _known(self, marks: Array) -> Array:
        counts = np.add.reduceat(marks.astype(np.int64), self.base[:-1])
        first = [int(np.argmax(marks[self.base[v] : self.base[v + 1]])) for v in range(len(self.n_states))]
        return np.where(counts == 1, first, -1).astype(np.int16)

    def draw(self, evidence: Array, n: int, max_cells: float, tries: int, seed: int, threads: int) -> Array:
        """Exact samples, -1 where a part is too expensive."""
        left, trees, _ = self._trees(evidence[0], max_cells)
        out = np.tile(self._known(evidence[0]), (n, 1))
        rng = np.random.default_rng(seed)
        for tree in trees:
            tree.collect()
            for v, codes in tree.descend(n, rng).items():
                out[:, v] = left.states[v][codes]
        return out

    def maximise(self, evidence: Array, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Array, Array]:
        """Best states by row and their scores; -1 and NaN where a part is too expensive."""
        out = np.stack([self._known(marks) for marks in evidence]) if len(evidence) else np.zeros((0, len(self.n_states)), np.int16)
        scores = np.zeros(len(evidence))
        for r, marks in enumerate(evidence):
            left, trees, whole = self._trees(marks, max_cells)
            scores[r] = left.constant + sum(tree.collect(maximum=True) for tree in trees) if whole else np.nan
            for tree in trees:
                if not whole:
                    tree.collect(maximum=True)
                for v, codes in tree.descend(1, None).items():
                    out[r, v] = left.states[v][codes[0]]
        return out, scores

    def propagate(
        self, evidence: Array, maximum: bool, reweighted: bool, damping: float, tol: float, max_rounds: int, seed: int
    ) -> tuple[Array, float, float, int, bool]:
        """Belief propagation with messages of all factors in turn; see `_Messages`."""
        left = self.reduce(evidence[0])
        messages = _Messages(left, maximum, np.random.default_rng(seed) if reweighted else None)
        change, rounds = np.inf, 0
        while rounds < max_rounds and change >= tol:
            change = messages.round(damping)
            rounds += 1
        out = evidence[0].astype(float)
        for v, states in left.states.items():
            out[self.base[v] + states] = _normal(messages.belief[v])
        log_z = np.nan if maximum else left.constant + messages.free_energy()
        return out, float(log_z), float(change), rounds * len(messages.factors), bool(change < 10 * tol)

    def mean_field(self, evidence: Array, tol: float, max_rounds: int, tries: int, seed: int) -> tuple[Array, float, float, int, bool]:
        """The independent distribution of the highest lower bound, one variable at a time."""
        left = self.reduce(evidence[0])
        rng = np.random.default_rng(seed)
        best: tuple[Array, float, float, int, bool] | None = None
        for attempt in range(max(1, tries)):
            q = {v: _normal(np.zeros(len(s)) if attempt == 0 else np.log(0.01 + rng.random(len(s)))) for v, s in left.states.items()}
            change, rounds = np.inf, 0
            while rounds < max_rounds and change >= tol:
                change, rounds = 0.0, rounds + 1
                for v in q:
                    logit = np.zeros(len(q[v]))
                    for scope, table in left.factors:
                        if v in scope:
                            logit += _mean(scope, table, q, v)
                    fresh = _normal(logit)
                    change = max(change, float(np.abs(fresh - q[v]).max()))
                    q[v] = fresh
            bound = left.constant + sum(float(_mean(s, t, q, None)) for s, t in left.factors) + sum(_entropy(p) for p in q.values())
            if best is None or bound > best[1]:
                out = evidence[0].astype(float)
                for v, states in left.states.items():
                    out[self.base[v] + states] = q[v]
                best = out, bound, change, rounds * len(q), change < tol
        assert best is not None
        return best

    def mcsat(
        self, evidence: Array, chains: int, burn_in: int, samples: int, hard: float, seed: int, threads: int
    ) -> tuple[Array, Array, Array, Array]:
        """Slice sampling over constraints. Slices are enumerated where they are small and moved within one cell at a time where not."""
        sums = np.zeros((chains, self.n_literals))
        states = np.zeros((chains, len(self.n_states)), dtype=np.int16)
        failed, feasible = np.zeros(chains, dtype=np.int64), np.ones(chains, dtype=np.uint8)
        for c in range(chains):
            chain = _Slices(self, evidence[0], hard, np.random.default_rng((seed, c)))
            feasible[c] = chain.feasible
            for k in range(burn_in + samples if chain.feasible else 0):
                chain.step()
                if k >= burn_in:
                    sums[c, self.base[:-1] + chain.state] += 1
            states[c] = chain.state
        return sums, states, failed, feasible


@dataclass
class _Plan:
    members: list[int]
    order: list[int]
    cells: float
    largest: float
    width: int


def _parts(left: Reduced) -> list[list[int]]:
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


def _plan(left: Reduced, members: list[int]) -> _Plan:
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
    return _Plan(members, order, cells, largest, width)


class _Tree:
    """A bucket tree: each variable's table over itself (the first axis) and those eliminated later."""

    def __init__(self, left: Reduced, plan: _Plan) -> None:
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
                table = table + _spread(part, values, scope)
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
                expectations[k] = float((p * _spread(self.left.factors[k][0], self.left.truth[k], scope)).sum())
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


def _spread(part: tuple[int, ...], values: Array, scope: tuple[int, ...]) -> Array:
    """A table over some variables, shaped to be added to one over more."""
    order = sorted(range(len(part)), key=lambda k: scope.index(part[k]))
    values = np.transpose(values, order)
    return values.reshape([values.shape[[part[k] for k in order].index(u)] if u in part else 1 for u in scope])


def _normal(logits: Array) -> Array:
    p = np.exp(logits - logits.max())
    return np.asarray(p / p.sum())


def _entropy(p: Array) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def _mean(scope: tuple[int, ...], table: Array, q: dict[int, Array], but: int | None) -> Array:
    """The mean of a table under independent variables; one of them may be left open."""
    for axis in reversed(range(len(scope))):
        if scope[axis] != but:
            table = np.tensordot(table, q[scope[axis]], axes=(axis, 0))
    return table


class _Messages:
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
                tables[home] = tables[home] + _spread(scope, table, home)
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
        p = {v: _normal(values) for v, values in self.belief.items()}
        h = {v: _entropy(values) for v, values in p.items()}
        total = sum(h.values()) + sum(float(p[v] @ self.unary[v]) for v in p)
        for k, (scope, table) in enumerate(self.factors):
            joint = _normal(self._joint(k)[0])
            total += float((joint * table).sum()) - float(self.share[k]) * (sum(h[v] for v in scope) - _entropy(joint.ravel()))
        return total


class _Slices:
    """One MC-SAT chain."""

    def __init__(self, model: Model, marks: Array, hard: float, rng: np.random.Generator) -> None:
        self.model, self.rng = model, rng
        self.allowed = [np.flatnonzero(marks[model.base[v] : model.base[v + 1]]) for v in range(len(model.n_states))]
        self.state = np.array([rng.choice(states) for states in self.allowed], dtype=np.int16)
        rules = [(int(j), bool(model.weights[j] > 0)) for j in np.flatnonzero(np.abs(model.weights) >= hard)]
        self.feasible = not rules or self._move(rules, 2000)

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
