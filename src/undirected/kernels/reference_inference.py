"""The model that inference works on, in NumPy: short, readable, and the truth that the native kernels are tested against."""

from __future__ import annotations

import numpy as np

from undirected.kernels.reference_chains import Slices
from undirected.kernels.reference_tables import Messages, Reduced, Tree, entropy, mean_of, normal, parts_of, plan_of
from undirected.kernels.types import Array


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

    def solve(self, evidence: Array, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Array, Array]:
        """Marginals by row and literal, log partition functions by row; NaN where a part is too expensive."""
        out, log_z = np.zeros((len(evidence), self.n_literals)), np.zeros(len(evidence))
        for r in range(len(evidence)):
            out[r], log_z[r] = Elimination(self, evidence[r : r + 1], max_cells, tries, seed).solve(max_cells)
        return out, log_z

    def maximise(self, evidence: Array, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Array, Array]:
        """Best states by row and their scores; -1 and NaN where a part is too expensive."""
        out, scores = np.zeros((len(evidence), len(self.n_states)), dtype=np.int16), np.zeros(len(evidence))
        for r in range(len(evidence)):
            out[r], scores[r] = Elimination(self, evidence[r : r + 1], max_cells, tries, seed).maximise(max_cells)
        return out, scores

    def propagate(
        self, evidence: Array, maximum: bool, reweighted: bool, damping: float, tol: float, max_rounds: int, seed: int
    ) -> tuple[Array, float, float, int, bool]:
        """Belief propagation with messages of all factors in turn; see `Messages`."""
        left = self.reduce(evidence[0])
        messages = Messages(left, maximum, np.random.default_rng(seed) if reweighted else None)
        change, rounds = np.inf, 0
        while rounds < max_rounds and change >= tol:
            change = messages.round(damping)
            rounds += 1
        out = evidence[0].astype(float)
        for v, states in left.states.items():
            out[self.base[v] + states] = normal(messages.belief[v])
        log_z = np.nan if maximum else left.constant + messages.free_energy()
        return out, float(log_z), float(change), rounds * len(messages.factors), bool(change < 10 * tol)

    def mean_field(self, evidence: Array, tol: float, max_rounds: int, tries: int, seed: int) -> tuple[Array, float, float, int, bool]:
        """The independent distribution of the highest lower bound, one variable at a time."""
        left = self.reduce(evidence[0])
        rng = np.random.default_rng(seed)
        best: tuple[Array, float, float, int, bool] | None = None
        for attempt in range(max(1, tries)):
            q = {v: normal(np.zeros(len(s)) if attempt == 0 else np.log(0.01 + rng.random(len(s)))) for v, s in left.states.items()}
            change, rounds = np.inf, 0
            while rounds < max_rounds and change >= tol:
                change, rounds = 0.0, rounds + 1
                for v in q:
                    logit = np.zeros(len(q[v]))
                    for scope, table in left.factors:
                        if v in scope:
                            logit += mean_of(scope, table, q, v)
                    fresh = normal(logit)
                    change = max(change, float(np.abs(fresh - q[v]).max()))
                    q[v] = fresh
            bound = left.constant + sum(float(mean_of(s, t, q, None)) for s, t in left.factors) + sum(entropy(p) for p in q.values())
            if best is None or bound > best[1]:
                out = evidence[0].astype(float)
                for v, states in left.states.items():
                    out[self.base[v] + states] = q[v]
                best = out, bound, change, rounds * len(q), change < tol
        assert best is not None
        return best

    def mcsat(
        self, evidence: Array, chains: int, burn_in: int, samples: int, hard: float, seed: int, threads: int, first: Array | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Slice sampling over constraints. Slices are enumerated where they are small and moved within one cell at a time where not.
        Chains start at the states ``first``, if they are given."""
        sums = np.zeros((chains, self.n_literals))
        states = np.zeros((chains, len(self.n_states)), dtype=np.int16)
        failed, feasible = np.zeros(chains, dtype=np.int64), np.ones(chains, dtype=np.uint8)
        for c in range(chains):
            chain = Slices(self, evidence[0], hard, np.random.default_rng((seed, c)), None if first is None else first[c])
            feasible[c] = chain.feasible
            for k in range(burn_in + samples if chain.feasible else 0):
                chain.step()
                if k >= burn_in:
                    sums[c, self.base[:-1] + chain.state] += 1
            states[c] = chain.state
        return sums, states, failed, feasible


class Elimination:
    """What one row of evidence leaves of a model, with the plan by which it is summed out; the plan serves every question.

    Parts of more than ``max_cells`` table cells are left out of an answer.
    """

    def __init__(self, model: Model, evidence: Array, max_cells: float, tries: int, seed: int) -> None:
        self.model, self.marks, self.left = model, evidence[0], model.reduce(evidence[0])
        self.plans = [plan_of(self.left, part) for part in parts_of(self.left)]
        self.max_cells = max_cells
        counts = np.add.reduceat(self.marks.astype(np.int64), model.base[:-1])
        first = [int(np.argmax(self.marks[model.base[v] : model.base[v + 1]])) for v in range(len(model.n_states))]
        self.known = np.where(counts == 1, first, -1).astype(np.int16)

    def parts(self) -> tuple[Array, Array, Array, Array, Array]:
        """By variable its part (-1: known), and by part: cells, cells of the largest clique, width, whether within the limit."""
        of = np.full(len(self.model.n_states), -1, dtype=np.int32)
        for k, plan in enumerate(self.plans):
            of[plan.members] = k
        cells = np.array([plan.cells for plan in self.plans], dtype=float)
        largest = np.array([plan.largest for plan in self.plans], dtype=float)
        width = np.array([plan.width for plan in self.plans], dtype=np.int32)
        return of, cells, largest, width, (cells <= self.max_cells).astype(np.uint8)

    def _trees(self, max_cells: float) -> tuple[list[Tree], bool]:
        cheap = [plan for plan in self.plans if plan.cells <= min(max_cells, self.max_cells)]
        return [Tree(self.left, plan) for plan in cheap], len(cheap) == len(self.plans)

    def solve(self, max_cells: float) -> tuple[Array, float]:
        """Marginals by literal and the log partition function; NaN where a part is left out."""
        trees, whole = self._trees(max_cells)
        out = self.marks.astype(float)
        for v, states in self.left.states.items():
            out[self.model.base[v] + states] = np.nan
        log_z = self.left.constant + sum(tree.collect() for tree in trees)
        for tree in trees:
            for v, p in tree.distribute()[0].items():
                out[self.model.base[v] + self.left.states[v]] = p
        return out, log_z if whole else np.nan

    def maximise(self, max_cells: float) -> tuple[Array, float]:
        """The best states and their score; -1 and NaN where a part is left out."""
        trees, whole = self._trees(max_cells)
        out = self.known.copy()
        score = self.left.constant + sum(tree.collect(maximum=True) for tree in trees)
        for tree in trees:
            for v, codes in tree.descend(1, None).items():
                out[v] = self.left.states[v][codes[0]]
        return out, score if whole else np.nan

    def draw(self, n: int, max_cells: float, seed: int, threads: int) -> Array:
        """Exact samples, -1 where a part is left out."""
        out, rng = np.tile(self.known, (n, 1)), np.random.default_rng(seed)
        for tree in self._trees(max_cells)[0]:
            tree.collect()
            for v, codes in tree.descend(n, rng).items():
                out[:, v] = self.left.states[v][codes]
        return out

    def expectations(self, max_cells: float) -> Array:
        """The probability of each feature, NaN where its part is left out."""
        out = np.full(len(self.model.weights), np.nan)
        for j, value in self.left.decided.items():
            out[j] = value
        for tree in self._trees(max_cells)[0]:
            tree.collect()
            for k, value in tree.distribute()[1].items():
                out[self.left.owner[k]] = value
        return out
