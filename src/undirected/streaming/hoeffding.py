"""Hoeffding trees, one for each variable: they grow while rows pass, by a test that is known to be the best but for a small chance."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.streaming.packing import Arrays
from undirected.streaming.widening import spread_by_literal, translate_literals
from undirected.structure.trees import Trees, lay_out
from undirected.work import Work


@dataclass(frozen=True)
class Growth:
    """When a leaf splits: every ``grace`` rows, if the gain of the best variable's best test exceeds that of the second-best variable
    by what chance could make of it but with probability ``delta``, or if both are that close to each other that it does not matter."""

    grace: int
    delta: float
    tau: float
    min_rows: float
    max_leaves: int  # of a tree
    max_bytes: int  # of the counts at leaves


@dataclass
class Forest:
    """Trees in flat arrays, as in `Trees`, and what their leaves have seen.

    ``count`` are the weights of rows by state of the target that a node has had since it was made, what its parent knew of them
    included; ``known`` that part. A leaf with a ``block`` of ``seen`` counts every literal there by state of the target.
    """

    domain: Domain
    common: Array  # of each variable a state that is not counted: the others tell
    targets: Array
    start: Array
    test: Array
    yes: Array
    no: Array
    count_start: Array
    count: Array
    known: Array
    checked: Array  # rows that a leaf had when it was last looked at
    block: Array
    seen: Array

    @classmethod
    def plant(cls, data: Dataset) -> Forest:
        """A leaf for each variable with more than one state."""
        domain = data.domain
        targets = np.flatnonzero(domain.n_states > 1).astype(np.int32)
        n, sizes = len(targets), domain.n_states[targets].astype(np.int64)
        counts = data.literal_counts()
        common = np.array([np.argmax(counts[a:b]) for a, b in zip(domain.base, domain.base[1:], strict=False)], dtype=np.int32)
        none = np.full(n, -1, dtype=np.int32)
        blocks = domain.n_literals * sizes
        return cls(
            domain, common, targets, np.arange(n + 1, dtype=np.int64), none, none.copy(), none.copy(),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.zeros(int(sizes.sum())), np.zeros(int(sizes.sum())),
            np.zeros(n), np.concatenate([[0], np.cumsum(blocks)[:-1]]).astype(np.int64)[:n], np.zeros(int(blocks.sum())),
        )  # fmt: skip

    def copy(self) -> Forest:
        """The same trees, to be grown on their own."""
        return replace(self, count=self.count.copy(), seen=self.seen.copy(), checked=self.checked.copy())

    @property
    def _tree(self) -> Array:
        return np.repeat(np.arange(len(self.targets)), np.diff(self.start))

    def learn(self, data: Dataset, growth: Growth, work: Work) -> None:
        """Send rows down the trees, ``grace`` at a time, and let leaves split in between."""
        for at in range(0, len(data), growth.grace):
            rows = data.subset(np.arange(at, min(at + growth.grace, len(data))))
            backend().module.count_at_leaves(
                *lay_out(rows), self.common, self.targets, self.start, self.test, self.yes, self.no, self.count_start, self.block,
                self.count, self.seen, work.threads,
            )  # fmt: skip
            self._grow(growth)

    def _grow(self, growth: Growth) -> None:
        """Let the leaves split that have had enough rows since they were last looked at."""
        rows = np.add.reduceat(self.count, self.count_start[:-1]) if len(self.test) else np.zeros(0)
        ripe = np.flatnonzero((self.block >= 0) & (rows - self.checked >= growth.grace))
        self.checked[ripe] = rows[ripe]
        splits = {}
        tree, n_literals = self._tree, self.domain.n_literals
        for k in np.unique(self.domain.n_states[self.targets[tree[ripe]]]).tolist():
            nodes = ripe[self.domain.n_states[self.targets[tree[ripe]]] == k]
            for some in np.array_split(nodes, max(1, len(nodes) * n_literals * k // (1 << 22))):
                tests, sure = self._find_tests(some, tree[some], k, growth)
                splits |= {int(node): int(test) for node, test, yes in zip(some, tests, sure, strict=True) if yes}
        if splits:
            self._split(splits, growth)

    def _gather(self, nodes: Array, k: int) -> tuple[Array, Array]:
        """What leaves have seen: ``[nodes][literals][states of the target]``, and by state of the target alone."""
        at = self.block[nodes][:, None] + np.arange(self.domain.n_literals * k)
        seen = self.seen[at].reshape(len(nodes), self.domain.n_literals, k)
        own = self.count_start[nodes][:, None] + np.arange(k)
        total = self.count[own] - self.known[own]
        base = self.domain.base[:-1].astype(np.int64)
        by_variable = np.add.reduceat(seen, base, axis=1)
        seen[:, base + self.common] = total[:, None, :] - by_variable
        return seen, total

    def _find_tests(self, nodes: Array, tree: Array, k: int, growth: Growth) -> tuple[Array, Array]:
        """The best test of each leaf, and whether it is good enough to be made."""
        seen, total = self._gather(nodes, k)
        rest = total[:, None, :] - seen
        n = total.sum(axis=1)
        gain = (_entropy(total) - (_entropy(seen) + _entropy(rest)).T).T / np.maximum(n, 1)[:, None]
        enough = (seen.sum(axis=2) >= growth.min_rows) & (rest.sum(axis=2) >= growth.min_rows)
        variable = self.domain.literal_variable
        own = variable[None, :] == self.targets[tree][:, None]
        gain = np.where(enough & ~own, gain, -np.inf)
        base = self.domain.base[:-1].astype(np.int64)
        by_variable = np.maximum.reduceat(gain, base, axis=1)
        best = np.argmax(by_variable, axis=1)
        rows = np.arange(len(nodes))
        top = by_variable[rows, best]
        by_variable[rows, best] = -np.inf
        second = np.maximum(by_variable.max(axis=1), 0.0) if by_variable.shape[1] else np.zeros(len(nodes))
        bound = np.log(k) * np.sqrt(np.log(1 / growth.delta) / (2 * np.maximum(n, 1)))
        sure = (top > 0) & ((top - second > bound) | ((bound < growth.tau) & (top > bound * TIE_SHARE)))
        gain[variable[None, :] != best[:, None]] = -np.inf
        return np.argmax(gain, axis=1), sure

    def _split(self, splits: dict[int, int], growth: Growth) -> None:
        """Make tests of leaves; what they have seen starts the counts of their children, while there is room for them."""
        tree = self._tree
        leaves = np.bincount(tree[self.test < 0], minlength=len(self.targets))
        parts: dict[str, list[Array]] = {name: [] for name in ("test", "yes", "no", "count", "known", "checked", "sizes")}
        blocks: list[Array | None] = []
        start, room = [0], growth.max_bytes
        for t in range(len(self.targets)):
            a, b = int(self.start[t]), int(self.start[t + 1])
            k = int(self.domain.n_states[self.targets[t]])
            test, yes, no = (values[a:b].tolist() for values in (self.test, self.yes, self.no))
            counts = [self.count[self.count_start[j] : self.count_start[j + 1]] for j in range(a, b)]
            known = [self.known[self.count_start[j] : self.count_start[j + 1]] for j in range(a, b)]
            checked = self.checked[a:b].tolist()
            own: list[Array | None] = [
                None if at < 0 else self.seen[at : at + self.domain.n_literals * k] for at in self.block[a:b].tolist()
            ]
            for j in [j for j in range(a, b) if j in splits]:
                if leaves[t] >= growth.max_leaves:
                    break
                seen, total = self._gather(np.array([j]), k)
                held = seen[0, splits[j]]
                test[j - a], yes[j - a], no[j - a], own[j - a] = splits[j], len(test), len(test) + 1, None
                for child in (held, total[0] - held):
                    test.append(-1)
                    yes.append(-1)
                    no.append(-1)
                    counts.append(child)
                    known.append(child)
                    checked.append(float(child.sum()))
                    own.append(np.zeros(self.domain.n_literals * k))
                leaves[t] += 1
            for name, values in (("test", test), ("yes", yes), ("no", no)):
                parts[name].append(np.array(values, dtype=np.int32))
            parts["count"] += counts
            parts["known"] += known
            parts["checked"].append(np.array(checked))
            parts["sizes"].append(np.full(len(test), k, dtype=np.int64))
            blocks += own
            start.append(start[-1] + len(test))
        self.start = np.array(start, dtype=np.int64)
        self.test, self.yes, self.no, self.checked = (np.concatenate(parts[name]) for name in ("test", "yes", "no", "checked"))
        self.count, self.known = np.concatenate(parts["count"]), np.concatenate(parts["known"])
        self.count_start = np.concatenate([[0], np.cumsum(np.concatenate(parts["sizes"]))]).astype(np.int64)
        kept: list[Array] = []
        self.block = np.full(len(self.test), -1, dtype=np.int64)
        at = 0
        for j, values in enumerate(blocks):
            if values is not None and 8 * (at + len(values)) <= room:
                self.block[j] = at
                kept.append(values)
                at += len(values)
        self.seen = np.concatenate([np.zeros(0), *kept])

    def read_trees(self) -> Trees:
        """The trees as they are now."""
        gain = np.zeros(len(self.test))
        return Trees(self.domain, self.targets, self.start, self.test, self.yes, self.no, gain, self.count_start, self.count)

    def widen(self, domain: Domain) -> None:
        """Follow the domain to more states; a variable that had one state gets no tree."""
        old = self.domain
        tree = self._tree
        counts, known, blocks = [], [], []
        block, at = np.full(len(self.test), -1, dtype=np.int64), 0
        for j, t in enumerate(tree.tolist()):
            k, new_k = int(old.n_states[self.targets[t]]), int(domain.n_states[self.targets[t]])
            own = slice(int(self.count_start[j]), int(self.count_start[j + 1]))
            for into, values in ((counts, self.count), (known, self.known)):
                into.append(np.concatenate([values[own], np.zeros(new_k - k)]))
            if self.block[j] >= 0:
                seen = self.seen[self.block[j] : self.block[j] + old.n_literals * k].reshape(old.n_literals, k)
                wide = np.zeros((domain.n_literals, new_k))
                wide[:, :k] = spread_by_literal(seen, old, domain)
                block[j], at = at, at + wide.size
                blocks.append(wide.ravel())
        sizes = domain.n_states[self.targets[tree]].astype(np.int64)
        self.count_start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.count, self.known = np.concatenate([np.zeros(0), *counts]), np.concatenate([np.zeros(0), *known])
        self.block, self.seen = block, np.concatenate([np.zeros(0), *blocks])
        inner = self.test >= 0
        self.test = self.test.copy()
        self.test[inner] = translate_literals(self.test[inner], old, domain)
        self.domain = domain

    def pack(self) -> Arrays:
        """The trees, for a checkpoint."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "domain"}

    @classmethod
    def unpack(cls, arrays: Arrays, domain: Domain) -> Forest:
        """Take up what `pack` gave."""
        return cls(domain, **arrays)


TIE_SHARE = 0.5  # of the bound is the least gain of a test that is made because it hardly matters which


def _entropy(counts: Array) -> Array:
    """The entropy of the last axis, in nats, times its sum."""
    total = counts.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(counts > 0, counts * np.log(np.maximum(counts, 1e-300)), 0.0).sum(axis=-1)
        return np.asarray(np.where(total > 0, total * np.log(np.maximum(total, 1e-300)), 0.0) - parts)
