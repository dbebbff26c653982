"""How central each variable is in the graph of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from undirected.kernels.types import Array
    from undirected.network.edges import Edge

MEASURES = ("strength", "expected_influence", "closeness", "betweenness")


def measure_centrality(edges: dict[tuple[int, int], Edge], n: int, paths: bool = True) -> dict[str, Array]:
    """Of each of ``n`` variables its centrality, by measure.

    ``strength``: the sum of its edges' strengths. ``expected_influence``: that of signed strengths. ``closeness``: one over its mean
    distance to the others, where an edge is as long as one over its strength; times the share of the others that are within reach.
    ``betweenness``: how many shortest paths between two others lead through it. The last two take about a second for each million of
    variables times edges; without ``paths`` they are left out.
    """
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    out = {name: np.zeros(n) for name in (MEASURES if paths else MEASURES[:2])}
    for (a, b), edge in edges.items():
        for v in (a, b):
            out["strength"][v] += edge.strength
            out["expected_influence"][v] += edge.signed
        if edge.strength > 0:
            graph.add_edge(a, b, length=1 / edge.strength)
    if not paths:
        return out
    out["closeness"][:] = [value for _, value in sorted(nx.closeness_centrality(graph, distance="length").items())]
    out["betweenness"][:] = [value for _, value in sorted(nx.betweenness_centrality(graph, weight="length", normalized=False).items())]
    return out
