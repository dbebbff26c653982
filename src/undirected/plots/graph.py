"""A network's graph: signed edges, as wide as they are strong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undirected.network.graph import layout
from undirected.network.network import MarkovNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOGETHER, APART = "#2166ac", "#b2182b"


def draw_graph(network: MarkovNetwork, top: int = 60) -> Figure:
    """The ``top`` strongest edges and the variables they join; blue where states go together, red where they shun each other.

    An edge's strength is the sum of the absolute weights of the features that hold both variables. The places are the same
    for the same network.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    graph = network.graph()
    ranked = sorted(graph.edges(data=True), key=lambda e: (-e[2]["strength"], e[0], e[1]))
    shown = ranked[:top]
    part = graph.edge_subgraph([(a, b) for a, b, _ in shown]).copy() if len(ranked) > top else graph
    place = layout(part)
    side = min(16.0, 5 + 0.06 * len(place))
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    strongest = shown[0][2]["strength"] if shown else 1.0
    for a, b, edge in reversed(shown):
        share = edge["strength"] / strongest
        color = TOGETHER if edge["signed"] >= 0 else APART
        axes.plot(*zip(place[a], place[b], strict=True), color=color, linewidth=0.4 + 4.6 * share, alpha=0.35 + 0.6 * share, zorder=1)
    for name, (x, y) in place.items():
        axes.annotate(
            name if len(name) <= 24 else name[:23] + "…", (x, y), ha="center", va="center", fontsize=8, zorder=2, parse_math=False,
            bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "#555555", "linewidth": 0.7},
        )  # fmt: skip
    keys = [Line2D([], [], color=c, linewidth=3, label=t) for c, t in ((TOGETHER, "go together"), (APART, "shun each other"))]
    axes.legend(handles=keys, loc="lower left", frameon=False, fontsize=8)
    note = f", the {len(shown)} strongest of {len(ranked):,} edges" if len(ranked) > top else f", {len(ranked)} edges"
    axes.set_title(f"{len(place)} of {len(network.domain)} variables{note}", fontsize=10)
    axes.margins(0.08)
    return figure
