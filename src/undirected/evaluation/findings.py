"""The strongest edges of a network in words, with the shares of rows that show them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.data.dataset import Dataset
from undirected.network.network import MarkovNetwork

FINDINGS = 5
LEAST_CASES = 5.0  # by weight, of rows that a share is told of


@dataclass(frozen=True)
class Finding:
    """Two states that go together or apart: how often the second holds in rows with the first, and in the others."""

    a: str
    state_a: str
    b: str
    state_b: str
    with_a: float
    without_a: float
    rows: float

    def __str__(self) -> str:
        here, there = f"{self.with_a:.0%}", f"{self.without_a:.0%}"
        if here == there:
            here, there = f"{self.with_a:.2%}", f"{self.without_a:.2%}"
        return f"{self.b}={self.state_b} in {here} of the rows with {self.a}={self.state_a}, in {there} of the others"


def list_findings(network: MarkovNetwork, data: Dataset, n: int = FINDINGS) -> list[Finding]:
    """The strongest edges, each by the two states whose shares differ most. What is told are shares of rows, whatever the other variables
    are; the edge is there because they do not explain it."""
    graph = network.graph()
    ranked = sorted(graph.edges(data=True), key=lambda edge: (-edge[2]["strength"], edge[0], edge[1]))
    found = (describe_pair(data, a, b) for a, b, _ in ranked)
    return [finding for _, finding in zip(range(n), (f for f in found if f is not None), strict=False)]


def describe_pair(data: Dataset, first: str, second: str) -> Finding | None:
    """The states of two variables whose shares differ most; None where no state has enough rows on both sides."""
    domain, table = data.domain, data.distinct
    a, b = (domain.index(name) for name in (first, second))
    both = np.zeros((int(domain.n_states[a]), int(domain.n_states[b])))
    known = (table.codes[:, a] >= 0) & (table.codes[:, b] >= 0)
    np.add.at(both, (table.codes[known, a], table.codes[known, b]), table.weights[known])
    best: tuple[float, Finding] | None = None
    for one, other, counts in ((a, b, both), (b, a, both.T)):
        rows, columns, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
        for i, k in np.ndindex(counts.shape):
            if min(rows[i], total - rows[i]) < LEAST_CASES or (k == 0 and len(columns) == 2) or (i == 0 and len(rows) == 2):
                continue  # of two states the second is told of
            here, there = counts[i, k] / rows[i], (columns[k] - counts[i, k]) / (total - rows[i])
            finding = Finding(
                domain[one].name,
                domain[one].states[i],
                domain[other].name,
                domain[other].states[k],
                float(here),
                float(there),
                float(rows[i]),
            )
            if best is None or abs(here - there) > best[0] + 1e-12:
                best = abs(here - there), finding
    return None if best is None else best[1]
