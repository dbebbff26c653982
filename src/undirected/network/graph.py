"""The Markov graph of a network, and places to draw its variables at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.edges import measure_edges

if TYPE_CHECKING:
    import networkx


def build_graph(features: FeatureSet, weights: Array) -> networkx.Graph:
    """Build a graph with the variables' names as nodes; edges carry ``strength`` and ``signed``, as `measure_edges` finds them."""
    import networkx as nx

    graph = nx.Graph()
    names = features.domain.names
    graph.add_nodes_from(names)
    for (a, b), edge in measure_edges(features, weights).items():
        graph.add_edge(names[a], names[b], strength=edge.strength, signed=edge.signed)
    return graph


def place_nodes(graph: networkx.Graph, columns: int = 6) -> dict[str, Array]:
    """Find places for the nodes, the same for the same graph.

    Strong edges pull more; nodes without edges stand below, ``columns`` a row.
    """
    import networkx as nx

    strongest = max((d["strength"] for _, _, d in graph.edges(data=True)), default=1.0) or 1.0
    scaled = nx.Graph()
    scaled.add_weighted_edges_from((a, b, 0.1 + d["strength"] / strongest) for a, b, d in graph.edges(data=True))
    alone = [name for name in graph if name not in scaled]
    places = dict(nx.spring_layout(scaled, weight="weight", k=2.0 / np.sqrt(max(1, len(scaled))), iterations=100, seed=0))
    bottom = min((float(y) for _, y in places.values()), default=1.0)
    for i, name in enumerate(alone):
        row, column = divmod(i, columns)
        there = min(columns, len(alone) - row * columns)
        places[name] = np.array([(2 * column + 1 - there) / columns, bottom - 0.25 - 0.14 * row])
    return places
