"""A network's graph: edges as wide as they are strong, between named nodes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import ParameterError, check_number, did_you_mean
from undirected.kernels.types import Array
from undirected.network.graph import place_nodes
from undirected.network.network import MarkovNetwork

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOGETHER, APART, UNDIRECTED = "#0072b2", "#d55e00", "#777777"
STYLES: dict[str, Any] = {TOGETHER: "-", APART: (0, (4, 1.6)), UNDIRECTED: "-"}  # told apart without colours, too
KEYS = {
    TOGETHER: "higher states go together",
    APART: "higher states shun each other",
    UNDIRECTED: "joined (states without order, or no direction)",
}
PALETTE = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#999999", "#0072b2", "#d55e00")  # of groups of nodes
CROWD = 90  # nodes, beyond which they are small and their names stand beside them
MOST_ALONE = 60  # variables without edges; more of them are counted, not drawn
LONGEST_NAME = 40
LEAST_FONT, LEAST_BROKEN, FONT = 5.0, 4.0, 8.0  # points: inside nodes, with broken words, and beside them
Places = Mapping[str, Sequence[float] | Array]
Box = tuple[float, float, float, float]


def choose_color(signed: float) -> str:
    """Blue above zero, orange below, grey where there is no sign."""
    return TOGETHER if signed > 0 else APART if signed < 0 else UNDIRECTED


def shorten(name: str, longest: int = 24) -> str:
    """A name, cut where it is too long for a picture."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def draw_graph(
    network: MarkovNetwork,
    top: int = 60,
    *,
    layout: Places | None = None,
    groups: Mapping[str, str] | None = None,
    rings: Mapping[str, float] | None = None,
    maximum: float | None = None,
    edge_labels: bool = False,
    black: bool = False,
    title: str | None = None,
    size: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the ``top`` strongest edges and the variables they join: blue where higher states of the two go together, orange and dashed
    where they shun each other, grey where a variable has three or more states without an order (or no direction wins).

    Strength and sign are those of `MarkovNetwork.graph`. Variables without edges stand in rows below; the title counts what is left
    out. The places are the same for the same network.

    Parameters
    ----------
    layout
        Places by name, such as `find_layout` gives for another network: pictures can then be laid side by side.
    groups
        A group for each variable, or for some: nodes of one group have one colour.
    rings
        A share for each variable, or for some, such as `measure_predictability` gives: as much of a ring around the node is filled.
    maximum
        The strength that gets the widest line, so that widths can be compared between pictures; by default the strongest edge.
    edge_labels
        Write the strength on each edge.
    black
        Without colours; dashes tell the sign.
    title, size, ax
        In place of the title that counts what is drawn; inches; axes to draw into.
    """
    graph = network.graph()
    shown = sorted(graph.edges(data=True), key=lambda e: (-e[2]["strength"], e[0], e[1]))[:top]
    for what, given in (("layout", layout), ("groups", groups), ("rings", rings)):
        strange = [name for name in given or () if name not in graph]
        if strange:
            raise ParameterError(f"{what} names {strange[0]!r}, which is no variable.{did_you_mean(strange[0], list(graph))}")
    if maximum is not None:
        check_number("maximum", maximum, 0, above=True)
    part = graph.subgraph(layout).copy() if layout else _choose_part(graph, shown)
    if layout:
        shown = [edge for edge in shown if edge[0] in part and edge[1] in part]
    places = _spread(dict(layout) if layout else place_nodes(part, columns=8), _choose_radius(len(part)))
    picture = _Picture(part, places, size, ax)
    strongest = maximum or (shown[0][2]["strength"] if shown else 0.0) or 1.0
    used = picture.draw_edges(shown, strongest, black, edge_labels)
    colors = _color_groups(groups or {}, black)
    n_nameless = picture.draw_nodes(groups or {}, colors, rings or {})
    picture.add_keys(used, colors, black, bool(rings))
    told = _describe(graph, part, len(shown)) + (f"\n{n_nameless} names left out for lack of room" if n_nameless else "")
    picture.axes.set_title(told if title is None else title, fontsize=10, parse_math=False)
    return picture.figure


def find_layout(network: MarkovNetwork, top: int = 60) -> dict[str, tuple[float, float]]:
    """The places at which `draw_graph` puts the variables, for other pictures."""
    graph = network.graph()
    shown = sorted(graph.edges(data=True), key=lambda e: (-e[2]["strength"], e[0], e[1]))[:top]
    part = _choose_part(graph, shown)
    places = _spread(dict(place_nodes(part, columns=8)), _choose_radius(len(part)))
    return {name: (float(x), float(y)) for name, (x, y) in places.items()}


def _choose_radius(n: int) -> float:
    """The radius of a node, where all places lie between -1 and 1."""
    return float(np.clip((0.42 if n <= CROWD else 0.26) / np.sqrt(max(1, n)), 0.01, 0.12))


def _spread(places: dict[str, Any], radius: float) -> dict[str, Array]:
    """The same places between -1 and 1, with nodes pushed apart that would overlap."""
    if not places:
        return {}
    at = np.array([np.asarray(p, dtype=float) for p in places.values()])
    low, high = at.min(axis=0), at.max(axis=0)
    span = np.maximum(high - low, 1e-9)
    at = (at - (low + high) / 2) * (2 / span.max() if len(at) > 1 else 0.0)
    least = (3.0 if len(at) <= CROWD else 4.2) * radius
    rng = np.random.default_rng(0)
    for _ in range(200):
        apart = at[:, None] - at
        distance = np.sqrt((apart**2).sum(axis=2)) + np.eye(len(at)) * 10
        if distance.min() >= least - 1e-6:
            break
        here = np.where(distance < 1e-9, 1.0, distance)[:, :, None]
        push = np.where(distance[:, :, None] < least, (least - distance[:, :, None]) / 2 * apart / here, 0.0).sum(axis=1)
        at = at + push + rng.normal(0, 1e-4, at.shape) * (distance.min() < 1e-6)
    return dict(zip(places, at, strict=True))


def _color_groups(groups: Mapping[str, str], black: bool) -> dict[str, str]:
    """A colour for each group, in the order in which they come."""
    names = list(dict.fromkeys(map(str, groups.values())))
    greys = [f"{0.95 - 0.5 * k / max(1, len(names) - 1):.2f}" for k in range(len(names))]
    return {name: greys[k] if black else PALETTE[k % len(PALETTE)] for k, name in enumerate(names)}


class _Picture:
    """Axes with places, and the nodes, edges and keys drawn into them."""

    def __init__(self, part: networkx.Graph, places: dict[str, Array], size: tuple[float, float] | None, ax: Axes | None) -> None:
        self.part, self.places, self.radius = part, places, _choose_radius(len(part))
        at = np.array([*places.values()]) if places else np.zeros((1, 2))
        margin = self.radius * 1.6 + 0.06
        low, high = at.min(axis=0) - margin, at.max(axis=0) + margin
        if ax is None:
            from matplotlib.figure import Figure

            side = min(18.0, 5.5 + 0.05 * len(part))
            shape = (side, side * max(0.35, (high[1] - low[1]) / (high[0] - low[0])) + 1.5)
            self.figure = Figure(figsize=shape if size is None else size, layout="constrained")
            self.axes = self.figure.add_subplot()
        else:
            self.figure, self.axes = ax.get_figure(), ax  # type: ignore[assignment]
        self.axes.set_axis_off()
        self.axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        self.axes.set_aspect("equal")
        width, height = self.figure.get_size_inches()
        bounds = self.axes.get_position()
        self.inch = min(width * bounds.width / (high[0] - low[0]), height * bounds.height / (high[1] - low[1]))  # for one unit, about
        self.limits = low, high

    def draw_edges(self, shown: list[Any], strongest: float, black: bool, labelled: bool) -> list[str]:
        """Lines, the strong ones above; their colours."""
        colors = [choose_color(edge["signed"]) for _, _, edge in shown]
        for (a, b, edge), color in zip(reversed(shown), reversed(colors), strict=True):
            share = min(1.0, edge["strength"] / strongest)
            ends = zip(self.places[a], self.places[b], strict=True)
            self.axes.plot(
                *ends, color="black" if black else color, linewidth=0.4 + 4.6 * share, alpha=0.35 + 0.6 * share, linestyle=STYLES[color],
                zorder=1, solid_capstyle="round",
            )  # fmt: skip
            if labelled:
                x, y = (self.places[a] + self.places[b]) / 2
                box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
                self.axes.text(
                    x, y, f"{edge['signed'] or edge['strength']:.2f}", fontsize=6, ha="center", va="center", zorder=1.5, bbox=box
                )
        return colors

    def draw_nodes(self, groups: Mapping[str, str], colors: Mapping[str, str], rings: Mapping[str, float]) -> int:
        """Circles with names inside, or beside where they do not fit; how many names found no room."""
        from matplotlib.patches import Circle, Wedge

        r, beside = self.radius, []
        for name, (x, y) in self.places.items():
            face = colors.get(str(groups.get(name)), "white")
            self.axes.add_patch(Circle((x, y), r, facecolor=face, edgecolor="#333333", linewidth=0.8, zorder=2))
            if name in rings:
                share = float(np.clip(rings[name], 0, 1))
                self.axes.add_patch(Wedge((x, y), 1.28 * r, 0, 360, width=0.2 * r, facecolor="#e4e4e4", edgecolor="none", zorder=2))
                self.axes.add_patch(
                    Wedge((x, y), 1.28 * r, 90 - 360 * share, 90, width=0.2 * r, facecolor="#333333", edgecolor="none", zorder=2.1)
                )
            text, font = self._fit_inside(name, False)
            if font >= LEAST_FONT:
                self._write(text, x, y, font, boxed=False)
            else:
                beside.append(name)
        return self._write_beside(beside, 1.3 if rings else 1.0)

    def _fit_inside(self, name: str, broken: bool) -> tuple[str, float]:
        """The name in lines that fill a node best, with words that may be ``broken`` or not, and the size of its letters."""
        name, best = shorten(name, LONGEST_NAME), ("", 0.0)
        room = 2 * self.radius * self.inch * 72 * 0.9  # points across
        for width in range(3, 25):
            lines = textwrap.wrap(name, width, break_long_words=broken) or [name]
            font = min(9.0, room / (0.6 * max(map(len, lines))), room * 0.8 / (1.15 * len(lines)))
            if font > best[1] + 0.2:
                best = "\n".join(lines), font
        return best

    def _write(self, text: str, x: float, y: float, font: float, boxed: bool, **how: Any) -> None:
        box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.75} if boxed else None
        self.axes.annotate(
            text, (x, y), fontsize=font, zorder=3, parse_math=False, annotation_clip=False, bbox=box, linespacing=0.95,
            **{"ha": "center", "va": "center", **how},
        )  # fmt: skip

    def _write_beside(self, names: list[str], reach: float) -> int:
        """Names beside their nodes, where they cover neither nodes nor other names, those of many edges first; how many are left out."""
        taken: list[Box] = [
            (x - self.radius, x + self.radius, y - self.radius, y + self.radius) for x, y in self.places.values()
        ]  # fmt: skip
        left_out = 0
        (left, low), (right, high) = self.limits
        for name in sorted(names, key=lambda name: (-self.part.degree(name), name)):
            x, y = self.places[name]
            lines = textwrap.wrap(shorten(name, LONGEST_NAME), 16) or [name]
            font = FONT if len(self.part) <= 150 else 6.0
            w = 0.58 * font / 72 / self.inch * max(map(len, lines))
            h = 1.25 * font / 72 / self.inch * len(lines)
            gap = reach * self.radius + 0.2 * font / 72 / self.inch
            for dx, dy in ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)):
                cx, cy = x + dx * (gap + w / 2), y + dy * (gap + h / 2)
                box = cx - w / 2, cx + w / 2, cy - h / 2, cy + h / 2
                inside = left <= box[0] and box[1] <= right and low <= box[2] and box[3] <= high
                if inside and not any(_overlap(box, other) for other in taken):
                    taken.append(box)
                    self._write("\n".join(lines), cx, cy, font, boxed=True)
                    break
            else:
                text, font = self._fit_inside(name, True)
                if font >= LEAST_BROKEN:
                    self._write(text, x, y, font, boxed=False)
                else:
                    left_out += 1
        return left_out

    def add_keys(self, used: list[str], colors: Mapping[str, str], black: bool, ringed: bool) -> None:
        """What lines and colours mean, outside of the axes."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        keys: list[Any] = [
            Line2D([], [], color="black" if black else c, linewidth=2.5, linestyle=STYLES[c], label=text)
            for c, text in KEYS.items()
            if c in used
        ]
        keys += [Patch(facecolor=color, edgecolor="#333333", label=name) for name, color in colors.items()]
        if ringed:
            keys.append(Patch(facecolor="#333333", label="ring: share of uncertainty that the others explain"))
        if keys:
            host = self.figure if len(self.figure.axes) == 1 else self.axes
            where = {"loc": "outside lower center"} if host is self.figure else {"loc": "upper center", "bbox_to_anchor": (0.5, 0)}
            legend = host.legend(handles=keys, frameon=False, fontsize=8, ncols=1 if len(keys) < 4 else 2, **where)
            for text in legend.get_texts():
                text.set_parse_math(False)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def _choose_part(graph: networkx.Graph, shown: list[Any]) -> networkx.Graph:
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
