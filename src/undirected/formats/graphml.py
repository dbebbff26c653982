"""The Markov graph as GraphML, for drawing programs."""

from __future__ import annotations

import io

from undirected.network.network import MarkovNetwork


def dumps(network: MarkovNetwork) -> bytes:
    """Write the graph of a network.

    Nodes are variables with their states; edges carry ``strength`` and ``signed`` as in `MarkovNetwork.graph`.
    """
    import networkx as nx

    graph = network.graph()
    for v in network.domain.variables:
        graph.nodes[v.name]["states"] = ", ".join(v.states)
    out = io.BytesIO()
    nx.write_graphml(graph, out, encoding="utf-8", prettyprint=True)
    return out.getvalue()
