"""A network's graph: coloured edges, as wide as they are strong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undirected.kernels.types import Array
from undirected.network.graph import place_nodes
from undirected.network.network import MarkovNetwork

if TYPE_CHECKING:
    import networkx
    from matplotlib.figure import Figure

TOGETHER, APART, UNDIRECTED = "#2166ac", "#b2182b", "#777777"
KEYS = {
    TOGETHER: "higher states go together",
    APART: "higher states shun each other",
    UNDIRECTED: "joined (states without order, or no direction)",
}
MOST_ALONE = 60  # variables without edges; more of them are counted, not drawn
LONGEST_NAME = 24


def choose_color(signed: float) -> str:
    """Blue above zero, red below, grey where there is no sign."""
    return TOGETHER if signed > 0 else APART if signed < 0 else UNDIRECTED


def shorten(name: str, longest: int = LONGEST_NAME) -> str:
    """A name, cut where it is too long for a picture."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def draw_graph(network: MarkovNetwork, top: int = 60) -> Figure:
    """Draw the ``top`` strongest edges and the variables they join: blue where higher states of the two go together, red where they shun
    each other, grey where a variable has three or more states without an order (or no direction wins).

    Strength and sign are those of `MarkovNetwork.graph`. Variables without edges stand in rows below; the title counts what is left
    out. The places are the same for the same network.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    graph = network.graph()
    ranked = sorted(graph.edges(data=True), key=lambda e: (-e[2]["strength"], e[0], e[1]))
    shown = ranked[:top]
    part = _choose_part(graph, shown)
    side = min(16.0, 5 + 0.06 * len(part))
    longest = max((len(shorten(name)) for name in part), default=1)
    place = place_nodes(part, columns=max(1, min(8, int(60 * side / (5.0 * longest + 12)))))
    low, high = _find_limits(place)
    figure = Figure(figsize=(side, max(2.5, side * (high[1] - low[1]) / (high[0] - low[0]))), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    strongest = (shown[0][2]["strength"] if shown else 0.0) or 1.0
    colors = [choose_color(edge["signed"]) for _, _, edge in shown]
    for (a, b, edge), color in zip(reversed(shown), reversed(colors), strict=True):
        share = edge["strength"] / strongest
        axes.plot(*zip(place[a], place[b], strict=True), color=color, linewidth=0.4 + 4.6 * share, alpha=0.35 + 0.6 * share, zorder=1)
    for name, (x, y) in place.items():
        axes.annotate(
            shorten(name), (x, y), ha="center", va="center", fontsize=8, zorder=2, parse_math=False, annotation_clip=False,
            bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "#555555", "linewidth": 0.7},
        )  # fmt: skip
    keys = [Line2D([], [], color=c, linewidth=3, label=text) for c, text in KEYS.items() if c in colors]
    if keys:
        figure.legend(handles=keys, loc="outside lower center", frameon=False, fontsize=8)
    axes.set_title(_describe(graph, part, len(shown)), fontsize=10)
    return figure


def _choose_part(graph: networkx.Graph, shown: list[tuple[str, str, dict[str, float]]]) -> networkx.Graph:
    """What is drawn: the strongest edges with their variables; if these are all edges, the variables without any, unless too many."""
    part = graph.edge_subgraph([(a, b) for a, b, _ in shown]).copy()
    alone = [name for name in graph if name not in part]
    if len(shown) == graph.number_of_edges() and len(alone) <= MOST_ALONE:
        part.add_nodes_from(alone)
    return part


def _describe(graph: networkx.Graph, part: networkx.Graph, n_shown: int) -> str:
    """The title: what is drawn, and what is not."""
    n_edges, left = graph.number_of_edges(), len(graph) - len(part)
    if n_shown == n_edges:
        title = f"{_count(len(part), 'variable')}, {_count(n_edges, 'edge')}"
        return title + (f"\nleft out: {_count(left, 'variable')} without edges" if left else "")
    title = f"{_count(len(part), 'variable')}, the {n_shown} strongest of {n_edges:,} edges\nleft out: {n_edges - n_shown:,} weaker edges"
    return title + (f" and {_count(left, 'variable')} that no drawn edge joins" if left else "")


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _find_limits(place: dict[str, Array]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The lower left and upper right corner of the axes: all places, with room for names around them."""
    x, y = ([float(p[i]) for p in place.values()] or [0.0] for i in (0, 1))
    reach = max(1.0, *map(abs, x))
    return (-1.18 * reach, min(y) - 0.1), (1.18 * reach, max(y) + 0.1)
