"""Probability trees: one per variable, predicting it from the others."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import DataError
from undirected.features.conjunction import format_feature
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import Counted, Work, count_cores


@dataclass(repr=False)
class Trees:
    """Trees for the variables ``targets``, nodes of all trees one after another.

    A node with ``test[n] >= 0`` sends a row to ``yes[n]`` if the literal holds and to ``no[n]`` otherwise (both counted from the
    tree's first node). ``gain[n]`` is what the best split gained in log-likelihood, made or not; ``count`` the training weight
    by state of the target, for node ``n`` from ``count_start[n]`` on. If they are not ``finished``, time was up, and the trees
    that were not grown yet are a single leaf.
    """

    domain: Domain
    targets: Array
    start: Array
    test: Array
    yes: Array
    no: Array
    gain: Array
    count_start: Array
    count: Array
    threads: int | None = None
    finished: bool = True

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        return f"<Trees for {len(self)} variables, {self.n_leaves:,} leaves>"

    @property
    def n_leaves(self) -> int:
        return int((self.test < 0).sum())

    @functools.cached_property
    def tree(self) -> Array:
        """The tree of each node."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    @functools.cached_property
    def parent(self) -> Array:
        """The node above each node, -1 above a root."""
        out = np.full(len(self.test), -1)
        split = np.flatnonzero(self.test >= 0)
        for child in (self.yes, self.no):
            out[self.start[self.tree[split]] + child[split]] = split
        return out

    @functools.cached_property
    def branch(self) -> Array:
        """The literal that leads into each node; for a false branch on two states that is the other state."""
        out = np.full(len(self.test), -1, dtype=np.int64)
        split = np.flatnonzero(self.test >= 0)
        literal = self.test[split].astype(np.int64)
        variable = self.domain.literal_variable[literal]
        other = 2 * self.domain.base[variable] + 1 - literal
        negated = np.where(self.domain.n_states[variable] == 2, other, literal + self.domain.n_literals)
        root = self.start[self.tree[split]]
        out[root + self.yes[split]] = literal
        out[root + self.no[split]] = negated
        return out

    @functools.cached_property
    def depth(self) -> Array:
        out = np.zeros(len(self.test), dtype=np.int64)
        for nodes in self._levels:
            out[nodes] = out[self.parent[nodes]] + 1
        return out

    @functools.cached_property
    def _levels(self) -> list[Array]:
        """The nodes below the roots, level by level."""
        order = np.argsort(self.parent, kind="stable")
        above = self.parent[order]
        levels: list[Array] = []
        nodes = self.start[:-1]
        while True:
            from_, to = np.searchsorted(above, nodes), np.searchsorted(above, nodes, side="right")
            nodes = order[np.repeat(from_, to - from_) + _count_up(to - from_)]
            if not len(nodes):
                return levels
            levels.append(nodes)

    @functools.cached_property
    def log_probability(self) -> Array:
        """Log of the smoothed share of each state, laid out like ``count``."""
        sizes = np.diff(self.count_start)
        return np.asarray(np.log((self.count + np.repeat(1 / sizes, sizes)) / np.repeat(self.weight + 1, sizes)))

    @property
    def weight(self) -> Array:
        """The weight of the rows that come to each node."""
        return np.add.reduceat(self.count, self.count_start[:-1]) if len(self.test) else np.zeros(0)

    @functools.cached_property
    def _weakest(self) -> Array:
        """The smallest gain per added parameter on the way to each node; infinite at roots."""
        gain = self._gain_per_parameter
        out = np.full(len(self.test), np.inf)
        for nodes in self._levels:
            out[nodes] = np.minimum(out[self.parent[nodes]], gain[self.parent[nodes]])
        return out

    @property
    def _gain_per_parameter(self) -> Array:
        return np.asarray(self.gain / np.maximum(1, self.domain.n_states[self.targets][self.tree] - 1))

    def cut(self, kappa: float) -> Trees:
        """The trees that would have been grown with this ``kappa``: a split needs a gain above ``-log(kappa)`` per parameter."""
        return self.cut_at(-float(np.log(kappa)))

    def find_least_gain(self, costs: Array, budget: float) -> float:
        """The gain per parameter that splits must exceed for the nodes that are left to cost at most ``budget``, with any that exceed
        more; roots stay in any case."""
        order = np.argsort(-self._weakest, kind="stable")
        below = order[np.isfinite(self._weakest[order])]
        spent = np.maximum.accumulate(np.cumsum(costs[order])[len(order) - len(below) :])
        over = below[np.searchsorted(spent, budget, side="right") :]
        return float(self._weakest[over[0]]) if len(over) else 0.0

    def cut_at(self, least: float) -> Trees:
        """The trees without the splits, and all below them, that gain no more than ``least`` per parameter."""
        keep = self._weakest > least
        split = keep & (self._gain_per_parameter > least) & (self.test >= 0)
        sizes = np.diff(self.count_start)
        number = np.cumsum(keep) - 1
        start = np.concatenate([[0], np.cumsum(np.add.reduceat(keep, self.start[:-1]))]) if len(self) else self.start
        root, new_root = self.start[self.tree], start[self.tree]

        def child(which: Array) -> Array:
            return np.asarray(np.where(split, number[root + np.where(split, which, 0)] - new_root, -1)[keep], dtype=np.int32)

        return Trees(
            self.domain,
            self.targets,
            start.astype(np.int64),
            np.where(split, self.test, -1)[keep].astype(np.int32),
            child(self.yes),
            child(self.no),
            self.gain[keep],
            np.concatenate([[0], np.cumsum(sizes[keep])]).astype(np.int64),
            self.count[np.repeat(keep, sizes)],
            self.threads,
            self.finished,
        )

    def walk(self, data: Dataset) -> tuple[Array, Array]:
        """The weight of the rows that pass each node, by state of the target, laid out like ``count``; and for each row the
        log-probability of all targets given the others."""
        data.require_complete("walking down trees")
        if data.domain != self.domain:
            raise DataError(f"{data.source}: the table and the trees have different domains; read it with domain=trees.domain")
        nodes = (self.targets, self.start, self.test, self.yes, self.no, self.count_start, self.log_probability)
        out: tuple[Array, Array] = backend().module.walk_trees(*lay_out(data), *nodes, self.threads or count_cores())
        return out

    def choose_kappa(self, kappas: list[float], data: Dataset) -> tuple[float, list[float]]:
        """The ``kappa`` whose trees give the rows of ``data`` the highest log-likelihood (the smallest of equals), and all
        values, as means a row."""
        through, _ = self.walk(data.distinct)
        by_node = np.add.reduceat(through * self.log_probability, self.count_start[:-1])
        values = []
        for kappa in kappas:
            least = -np.log(kappa)
            leaf = (self._weakest > least) & ~((self._gain_per_parameter > least) & (self.test >= 0))
            values.append(float(by_node[leaf].sum()) / data.total_weight)
        best = max(range(len(kappas)), key=lambda k: (round(values[k], 12), -kappas[k]))
        return kappas[best], values

    def paths(self, nodes: Array) -> tuple[Array, Array]:
        """The literals on the way to each of these nodes, in flat arrays."""
        start = np.concatenate([[0], np.cumsum(self.depth[nodes])]).astype(np.int64)
        out = np.zeros(start[-1], dtype=np.int64)
        at, here = start[1:] - 1, np.asarray(nodes)
        while True:
            below = self.parent[here] >= 0
            at, here = at[below], here[below]
            if not len(here):
                return start, out
            out[at] = self.branch[here]
            at, here = at - 1, self.parent[here]

    def text(self, target: int | str) -> str:
        """One tree, drawn with indents: tests, and at leaves the distribution of the target."""
        v = self.domain.index(target) if isinstance(target, str) else target
        t = int(np.flatnonzero(self.targets == v)[0])
        root, states = int(self.start[t]), self.domain[v].states
        lines = [f"{self.domain[v].name}:"]
        stack = [(root, 1, "")]
        while stack:
            node, depth, label = stack.pop()
            at = slice(self.count_start[node], self.count_start[node + 1])
            leaf = self.test[node] < 0
            shares = "  ".join(f"{s} {p:.3f}" for s, p in zip(states, np.exp(self.log_probability[at]), strict=True))
            tail = f"  {shares}  ({self.count[at].sum():g} rows)" if leaf else ""
            if label or leaf:
                lines.append("  " * (depth - 1 if label else depth) + (label or "(no split)") + tail)
            if not leaf:
                for child in (self.no[node], self.yes[node]):
                    below = root + int(child)
                    stack.append((below, depth + 1, format_feature((int(self.branch[below]),), self.domain)))
        return "\n".join(lines)


def grow_trees(data: Dataset, min_rows: float = 10, kappa: float = 1.0, work: Work | None = None) -> Trees:
    """Grow a tree for each variable with more than one state.

    Row by row, the states that hold are counted by state of the target (each variable's most frequent state is what the
    others leave over, and the larger side of a split what the smaller one leaves), so that the cost of a level is the number
    of uncommon cells; all targets share the rows. Ctrl-C and the deadline need not wait for all of them.
    """
    work = Work.start() if work is None else work
    data.require_complete("growing trees")
    table = data.distinct
    targets = np.flatnonzero(data.domain.n_states > 1).astype(np.int32)
    finished = True

    def go_on(done: int) -> bool:
        nonlocal finished
        work.emit(Counted("trees", done, len(targets)))
        finished = not work.is_over
        return bool(finished)

    args = (targets, float(min_rows), -float(np.log(kappa)), work.threads, go_on)
    nodes: tuple[Array, Array, Array, Array, Array, Array, Array] = backend().module.grow_trees(*lay_out(table), *args)
    return Trees(data.domain, targets, *nodes, work.threads, finished)


def lay_out(data: Dataset) -> tuple[Array, Array, Array]:
    """The rows as the kernels of trees take them: codes by variable, the numbers of states, weights."""
    return np.ascontiguousarray(data.codes.T, dtype=np.int16), data.domain.n_states.astype(np.int32), data.weights


def _count_up(lengths: Array) -> Array:
    """0, 1, ..., n - 1 for each n, one after another."""
    ends = np.cumsum(lengths)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths))
