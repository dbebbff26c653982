"""The Markov graph of a network, and places to draw its variables at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array

if TYPE_CHECKING:
    import networkx

HARD = 1e4  # what an infinite weight counts as in computations


def pair_weights(features: FeatureSet, weights: Array) -> dict[tuple[int, int], tuple[float, float]]:
    """For each pair of variables that share a feature of non-zero weight: (strength, signed sum).

    A feature of length L counts with its weight times 2^(2 - L), its share in the interaction of the two when the other
    variables are left to chance. Strength adds up absolute values; in the signed sum a literal on a variable's first state
    turns the sign, so that a positive sum means that the two variables' later states go together.
    """
    out: dict[tuple[int, int], tuple[float, float]] = {}
    n = features.domain.n_literals
    base, variable = features.domain.base, features.domain.literal_variable
    weights = np.clip(weights, -HARD, HARD)
    for j in np.flatnonzero(weights):
        direction: dict[int, int] = {}
        for literal in features[int(j)]:
            v = int(variable[literal % n])
            up = 1 if literal % n > base[v] else -1
            direction[v] = up if literal < n else -up
        members = sorted(direction)
        w = float(weights[j]) * 2.0 ** (2 - len(members))
        for i, a in enumerate(members):
            for b in members[i + 1 :]:
                strength, signed = out.get((a, b), (0.0, 0.0))
                out[a, b] = strength + abs(w), signed + w * direction[a] * direction[b]
    return out


def markov_graph(features: FeatureSet, weights: Array) -> networkx.Graph:
    """A graph with the variables' names as nodes; edges carry ``strength`` and ``signed``."""
    import networkx as nx

    graph = nx.Graph()
    names = features.domain.names
    graph.add_nodes_from(names)
    for (a, b), (strength, signed) in pair_weights(features, weights).items():
        graph.add_edge(names[a], names[b], strength=strength, signed=signed)
    return graph


def layout(graph: networkx.Graph) -> dict[str, Array]:
    """Places for the nodes, the same for the same graph: strong edges pull more; separate parts stand apart."""
    import networkx as nx

    if graph.number_of_nodes() == 0:
        return {}
    strongest = max((d["strength"] for _, _, d in graph.edges(data=True)), default=1.0)
    scaled = nx.Graph()
    scaled.add_nodes_from(graph)
    scaled.add_weighted_edges_from((a, b, 0.1 + d["strength"] / strongest) for a, b, d in graph.edges(data=True))
    k = 2.0 / np.sqrt(graph.number_of_nodes())
    return dict(nx.spring_layout(scaled, weight="weight", k=k, iterations=100, seed=0))
