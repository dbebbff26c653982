"""The kernels in NumPy: short, readable, and the truth that the native ones are tested against.

They also do the work, more slowly, where the native module could not be built.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from undirected.kernels.reference_chains import Sampler
from undirected.kernels.reference_descent import Descent
from undirected.kernels.reference_inference import Elimination, Model
from undirected.kernels.reference_random import RandomStream
from undirected.kernels.reference_relations import RelationField
from undirected.kernels.reference_search import Search, Strata, combine
from undirected.kernels.reference_streams import clusternet_generate, count_at_leaves, find_slopes, find_support
from undirected.kernels.types import Array

__all__ = [
    "Descent", "Elimination", "Model", "PseudoLikelihoodTables", "RelationField", "Sampler", "Search", "Strata", "add_block",
    "clusternet_generate", "combine", "count_at_leaves", "find_slopes", "find_support", "fit_diagonal", "grow_trees", "gssl_generate",
    "times_blocks", "walk_trees",
]  # fmt: skip


class PseudoLikelihoodTables:
    """The pseudo-likelihood of a feature set on a table, as one sparse matrix.

    Row ``(literal, r)`` of the matrix holds a one for every feature that would be true in table row ``r`` if the
    literal's variable were in the literal's state, and that mentions the variable: a state's score is a row times the
    weights, and a variable's conditional distribution the softmax over its states. A feature with a target (not -1) enters
    that variable's scores alone. ``watch`` is for kernels that can stop half-way, and is never called here.
    """

    def __init__(
        self,
        columns: Array,
        n_states: Array,
        row_weight: Array,
        start: Array,
        literals: Array,
        memory: int,
        threads: int,
        targets: Array | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        n_rows = len(row_weight)
        self.row_weight = np.asarray(row_weight, float)
        self.base = np.concatenate([[0], np.cumsum(n_states)])
        self.n_features = len(start) - 1
        self.active: Array | None = None
        truth = np.unpackbits(columns.view(np.uint8), axis=1, bitorder="little", count=n_rows).astype(bool)
        self.truth = truth
        self.features = start, literals, np.full(self.n_features, -1) if targets is None else targets
        self.matrix = _design(truth, self.base, *self.features)
        self.variance: sp.csr_matrix | None = None

    def set_active(self, marks: Array | None) -> None:
        self.active = None if marks is None else marks.astype(bool)

    def _log_probabilities(self, weights: Array) -> Array:
        scores = (self.matrix @ weights).reshape(self.truth.shape)
        for a, b in zip(self.base[:-1], self.base[1:], strict=True):
            block = scores[a:b]
            block -= block.max(axis=0)
            block -= np.log(np.exp(block).sum(axis=0))
        return np.asarray(scores)

    def _by_feature(self, values: Array, matrix: sp.csr_matrix) -> Array:
        out = matrix.T @ values.ravel()
        if self.active is not None:
            out[~self.active] = 0
        return np.asarray(out)

    def evaluate(
        self, weights: Array, gradient: bool, curvature: bool, single: bool, threads: int
    ) -> tuple[float, Array | None, Array | None]:
        logp = self._log_probabilities(weights)
        loss = -float((logp * self.truth).sum(axis=0) @ self.row_weight)
        p = np.exp(logp)
        g = self._by_feature((p - self.truth) * self.row_weight, self.matrix) if gradient else None
        c = None
        if curvature:
            if self.variance is None:
                self.variance = _design(self.truth, self.base, *self.features, variance=True)
            c = self._by_feature(p * (1 - p) * self.row_weight, self.variance)
        return loss, g, c

    def terms(self, weights: Array, threads: int) -> tuple[Array, Array]:
        seen = self._log_probabilities(weights) * self.truth
        by_variable = np.add.reduceat(seen @ self.row_weight, self.base[:-1])
        return seen.sum(axis=0), by_variable

    def probabilities(self, weights: Array, n_literals: int, threads: int) -> Array:
        return np.exp(self._log_probabilities(weights)).T.copy()

    def sample(self, weights: Array, stride: int, threads: int) -> int:
        n_rows = self.truth.shape[1]
        self.sampled = np.flatnonzero(np.arange(n_rows) // 64 % stride == 0)
        self.sample_p = np.exp(self._log_probabilities(weights)[:, self.sampled])
        self.sample_weight = self.row_weight[self.sampled] * stride
        return len(self.sampled)

    def gram(self, variable: int, features: Array) -> Array:
        a, b = self.base[variable : variable + 2]
        n_rows = self.truth.shape[1]
        rows = (np.arange(a, b)[:, None] * n_rows + self.sampled).ravel()
        x = self.matrix[rows][:, features].toarray().reshape(b - a, len(self.sampled), len(features))
        p = self.sample_p[a:b, :, None]
        x = np.sqrt(p * self.sample_weight[:, None]) * (x - (p * x).sum(axis=0))
        x = x.reshape(len(rows), len(features)).astype(np.float32)
        return np.asarray(x.T @ x)

    def factors(self, variables: Array, start: Array, members: Array, diagonal: Array, ridge: float, threads: int) -> Array:
        """For each block the inverse of `gram` fitted to the diagonal; `times_blocks` alone knows the layout."""
        out = [np.zeros(0, np.float32)]
        for v, a, b in zip(variables, start[:-1], start[1:], strict=True):
            matrix = self.gram(v, members[a:b])
            fit_diagonal(matrix, diagonal[members[a:b]], ridge)
            out.append(np.linalg.inv(matrix).astype(np.float32).ravel())
        return np.concatenate(out)

    def steps(self, variables: Array, start: Array, members: Array, gradient: Array, weights: Array, penalty: Array, threads: int) -> Array:
        """For each block the step that minimises the quadratic model of its term with an L1 penalty, by coordinate descent."""
        out = np.zeros(len(members))
        for v, a, b in zip(variables, start[:-1], start[1:], strict=True):
            mine = members[a:b]
            hessian = self.gram(v, mine).astype(float)
            hessian[np.diag_indices(b - a)] += 1e-5 * hessian.diagonal() + 1e-6 * hessian.diagonal().max(initial=0) + 1e-12
            slope, first = gradient[mine].copy(), 0.0
            for sweep in range(100):
                change = 0.0
                for i in range(b - a):
                    h, at = hessian[i, i], weights[mine[i]] + out[a + i]
                    z = at - slope[i] / h
                    move = np.sign(z) * max(abs(z) - penalty[mine[i]] / h, 0) - at
                    out[a + i] += move
                    slope += move * hessian[i]
                    change = max(change, h * move * move)
                first = change if sweep == 0 else first
                if change <= 1e-6 * first:
                    break
        return out

    def sizes(self) -> dict[str, int]:
        return {**dict.fromkeys(("entries", "held", "work", "groups"), int(self.matrix.nnz)), "contexts": 0}  # it knows no contexts


def _design(truth: Array, base: Array, start: Array, literals: Array, targets: Array, variance: bool = False) -> sp.csr_matrix:
    """The matrix of `PseudoLikelihoodTables`: rows are (literal, table row), columns are features.

    For ``variance`` a feature marks the states whose variances add up to its own: one state of a variable with two, else
    the states it allows or, where those are the majority, the others. With several states the sum is an upper bound.
    """
    n_literals, n_rows = truth.shape
    variable = np.repeat(np.arange(len(base) - 1), np.diff(base))
    everywhere = np.ones(n_rows, bool)
    rows, sizes = [], []
    for j in range(len(start) - 1):
        own = literals[start[j] : start[j + 1]]
        positive = own % n_literals
        holds = [truth[p] if p == q else ~truth[p] for p, q in zip(positive, own, strict=True)]
        size = 0
        for v in np.unique(variable[positive]):
            if targets[j] not in (-1, v):
                continue
            context = everywhere
            allowed = np.ones(base[v + 1] - base[v], bool)
            for p, q, h in zip(positive, own, holds, strict=True):
                if variable[p] != v:
                    context = context & h
                    continue
                state = np.arange(base[v], base[v + 1]) == p
                allowed &= state if p == q else ~state
            if variance and len(allowed) == 2:
                allowed = np.array([False, not allowed.all()])
            elif variance and 2 * allowed.sum() > len(allowed):
                allowed = ~allowed
            where = np.flatnonzero(context)
            for literal in base[v] + np.flatnonzero(allowed):
                rows.append(where + literal * n_rows)
                size += len(where)
        sizes.append(size)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    indices = np.concatenate(rows).astype(np.int64) if rows else np.zeros(0, np.int64)
    shape = (n_literals * n_rows, len(start) - 1)
    return sp.csc_matrix((np.ones(len(indices)), indices, indptr), shape=shape).tocsr()


def add_block(total: Array, places: Array, block: Array) -> None:
    """Adds a small square matrix to the given rows and columns of a large one."""
    total[np.ix_(places, places)] += block


def fit_diagonal(matrix: Array, diagonal: Array, ridge: float) -> None:
    """Scales an estimated Hessian so that its diagonal, the ridge apart, is the true one, raised by 1e-4 of itself."""
    own = matrix.diagonal().copy()
    full = diagonal.astype(np.float32)
    seen = own > 1e-3 * full
    scale = np.sqrt(np.where(seen, np.maximum(full - ridge, 0) / np.where(seen, own, 1), 0)).astype(np.float32)
    matrix *= scale
    matrix *= scale[:, None]
    matrix[np.diag_indices(len(full))] = full * (1 + 1e-4)


def times_blocks(start: Array, members: Array, factors: Array, x: Array, y: Array, threads: int) -> tuple[Array, Array]:
    """Sums of the blocks of `PseudoLikelihoodTables.factors` acting on overlapping parts of two vectors."""
    out = np.zeros((2, len(x)), dtype=np.float32)
    at = 0
    for a, b in zip(start[:-1], start[1:], strict=True):
        block = factors[at : at + (b - a) ** 2].reshape(b - a, b - a)
        np.add.at(out[0], members[a:b], block @ x[members[a:b]])
        np.add.at(out[1], members[a:b], block @ y[members[a:b]])
        at += (b - a) ** 2
    return out[0], out[1]


def grow_trees(
    codes: Array, n_states: Array, row_weight: Array, targets: Array, min_rows: float, min_gain: float, threads: int,
    go_on: Callable[[int], bool],
) -> tuple[Array, ...]:  # fmt: skip
    """Greedy probability trees, one per target, in flat arrays: the trees' first nodes, tests (a literal, -1 at a leaf),
    children counted from the tree's root, gains of the best splits, offsets into the counts by state, counts.

    A split needs ``min_rows`` of weight on both sides, and a gain in log-likelihood, leaves smoothed by a prior of total
    weight one, above ``min_gain`` for each parameter that it adds. ``go_on`` is called at the start and after every few trees, with
    the number of those done; once it says no, the trees that are left stay single leaves.
    """
    base = np.concatenate([[0], np.cumsum(n_states)])
    held = np.concatenate([codes[v] == np.arange(k)[:, None] for v, k in enumerate(n_states)]).astype(float)
    test: list[int] = []
    yes: list[int] = []
    no: list[int] = []
    gain: list[float] = []
    counts: list[Array] = []
    start = [0]

    def likelihood(count: Array) -> Array:
        total = count.sum(axis=-1)
        return np.asarray((count * np.log(count + 1 / count.shape[-1])).sum(axis=-1) - total * np.log(total + 1))

    def grow(rows: Array, target: int) -> int:
        number, k = len(test) - start[-1], int(n_states[target])
        by_state = (codes[target, rows] == np.arange(k)[:, None]) * row_weight[rows]
        total = by_state.sum(axis=1)
        test.append(-1)
        yes.append(-1)
        no.append(-1)
        gain.append(-np.inf)
        counts.append(total)
        if total.sum() < 2 * min_rows or (total > 0).sum() < 2:
            return number
        true = held[:, rows] @ by_state.T
        best = -1
        for v, states in enumerate(n_states):
            for literal in range(base[v] + 1, base[v] + 2) if states == 2 else range(base[v], base[v + 1]):
                sides = np.stack([true[literal], total - true[literal]])
                if v == target or states == 1 or sides.sum(axis=1).min() < min_rows:
                    continue
                value = float(likelihood(sides).sum() - likelihood(total))
                if best < 0 or value > gain[start[-1] + number] + 1e-9 * (1 + abs(gain[start[-1] + number])):
                    best, gain[start[-1] + number] = literal, value
        if best >= 0 and gain[start[-1] + number] > min_gain * (k - 1):
            test[start[-1] + number] = best
            yes[start[-1] + number] = grow(rows[held[best, rows] > 0], target)
            no[start[-1] + number] = grow(rows[held[best, rows] == 0], target)
        return number

    for done, target in enumerate(targets):
        if min_rows < np.inf and done % (2 * threads) == 0 and not go_on(done):
            min_rows = np.inf
        grow(np.arange(codes.shape[1]), int(target))
        start.append(len(test))
    count_start = np.concatenate([[0], np.cumsum([len(c) for c in counts])]).astype(np.int64)
    nodes = (np.array(x, dtype=np.int32) for x in (test, yes, no))
    flat = np.concatenate([np.zeros(0), *counts])
    return (np.array(start, dtype=np.int64), *nodes, np.array(gain, dtype=float), count_start, flat)


def walk_trees(
    codes: Array,
    n_states: Array,
    row_weight: Array,
    targets: Array,
    start: Array,
    test: Array,
    yes: Array,
    no: Array,
    count_start: Array,
    value: Array,
    threads: int,
) -> tuple[Array, Array]:
    """Sends every row down every tree: the weight that passes each node by state of the target, laid out like the counts,
    and for each row the sum over trees of its leaf's ``value`` for its state."""
    variable = np.repeat(np.arange(len(n_states)), n_states)
    state = np.concatenate([np.zeros(0, int), *(np.arange(k) for k in n_states)])
    through, by_row = np.zeros(len(value)), np.zeros(codes.shape[1])
    for target, root in zip(targets, start[:-1], strict=True):
        node = np.full(codes.shape[1], root)
        rows = np.arange(codes.shape[1])
        while len(rows):
            at = count_start[node[rows]] + codes[target, rows]
            np.add.at(through, at, row_weight[rows])
            done = test[node[rows]] < 0
            by_row[rows[done]] += value[at[done]]
            rows = rows[~done]
            tested = test[node[rows]]
            holds = codes[variable[tested], rows] == state[tested]
            node[rows] = root + np.where(holds, yes[node[rows]], no[node[rows]])
    return through, by_row


def gssl_generate(
    start: Array, literals: Array, n_generated: int, threshold: int, seed: int, threads: int
) -> tuple[Array, Array, Array, int, int]:
    """Randomised feature generation: distinct conjunctions that occur more than ``threshold`` times, with counts.

    Returns offsets, literals and counts of the survivors, the length of the list and how many distinct it held.
    """
    rows = [tuple(literals[a:b].tolist()) for a, b in zip(start[:-1], start[1:], strict=True)]
    splittable = [k for k, row in enumerate(rows) if len(row) >= 3]
    while splittable and len(rows) < n_generated:
        stream = RandomStream(seed, len(rows))
        parent = rows[splittable[stream.below(0, len(splittable))]]
        wanted = len(parent) - 1 - stream.below(1, len(parent) - 2)
        kept = []
        for i, literal in enumerate(parent):  # keep each with probability wanted / left
            if stream.below(2 + i, len(parent) - i) < wanted:
                kept.append(literal)
                wanted -= 1
        if len(kept) >= 3:
            splittable.append(len(rows))
        rows.append(tuple(kept))
    counts: dict[tuple[int, ...], int] = {}
    for row in rows:
        counts[row] = counts.get(row, 0) + 1
    kept_rows = [(row, n) for row, n in counts.items() if n > threshold]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row, _ in kept_rows])]).astype(np.int64)
    flat = np.array([x for row, _ in kept_rows for x in row], dtype=np.int32)
    return offsets, flat, np.array([n for _, n in kept_rows], dtype=np.int64), len(rows), len(counts)
