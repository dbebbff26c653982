"""What a bootstrap says about edges, and how node strengths hold as cases are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import ParameterError
from undirected.evaluation.stability import CORRELATION, Stability
from undirected.plots.graph import APART, KEYS, TOGETHER, UNDIRECTED, choose_color, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("edges", "dropping")


def draw_stability(stability: Stability, kind: str = "edges", **options: Any) -> Figure:
    """Draw one of the figures below: ``edges`` or ``dropping``."""
    drawing = {"edges": draw_edges, "dropping": draw_dropping}.get(kind)
    if drawing is None:
        raise ParameterError(f"there is no figure {kind!r}; choose one of {', '.join(KINDS)}")
    return drawing(stability, **options)


def draw_edges(stability: Stability, top: int = 60) -> Figure:
    """Draw the ``top`` edges that came back most often (the strongest of equally frequent ones), sorted by value: a dot for all rows, a bar
    for the interval over resamples, a cross for their mean; the paler a bar, the less often the edge came back. Grey edges have no
    sign: the states of a variable have no order."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    chosen = [(row["a"], row["b"]) for row in stability.rows("edges")[:top]]
    shown = sorted(chosen, key=lambda pair: (stability.edges[pair].value, stability.edges[pair].mean))
    labels = [f"{shorten(a)} - {shorten(b)}   {stability.edges[a, b].frequency:.0%}" for a, b in shown]
    wide = max(map(len, labels), default=0)
    figure = Figure(figsize=(5.0 + 0.06 * wide, max(2.5, 1.7 + 0.19 * len(shown))), layout="constrained")
    axes = figure.add_subplot()
    colors = []
    for y, pair in enumerate(shown):
        e = stability.edges[pair]
        colors.append(UNDIRECTED if pair in stability.unsigned else choose_color(e.mean))
        axes.plot([e.low, e.high], [y, y], color=colors[y], linewidth=3.5, alpha=0.12 + 0.5 * e.frequency, solid_capstyle="butt", zorder=1)
        axes.plot(e.mean, y, marker="x", color=colors[y], markersize=4, linestyle="", zorder=2)
        axes.plot(e.value, y, marker="o", color="black", markersize=3.5, linestyle="", zorder=3)
    axes.axvline(0, color="#888888", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(shown)), labels, fontsize=7, parse_math=False)
    axes.set_ylim(-0.7, max(len(shown), 1) - 0.3)
    axes.set_xlabel("strength of the edge, with its sign" if {TOGETHER, APART} & set(colors) else "strength of the edge")
    axes.grid(axis="y", color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    left = len(stability.edges) - len(shown)
    note = f"the {len(shown)} most frequent of {len(stability.edges):,} edges" if left else f"{len(shown)} edges"
    figure.suptitle(f"{note}, {stability.n} resamples\npercent: how often an edge came back", fontsize=9)
    keys = [
        Line2D([], [], marker="o", color="black", linestyle="", markersize=4, label="all rows"),
        Line2D([], [], marker="x", color="#333333", linestyle="", markersize=5, label="mean of resamples"),
        Line2D([], [], color="#333333", linewidth=3.5, alpha=0.5, label=f"{stability.level:.0%} of resamples (no test under L1)"),
        *(Line2D([], [], color=c, linewidth=3.5, label=text) for c, text in KEYS.items() if c in colors),
    ]
    figure.legend(handles=keys, fontsize=7, frameon=False, loc="outside lower center", ncols=2)
    return figure


def draw_dropping(stability: Stability) -> Figure:
    """Draw how node strengths correlate with those on all rows, by the share of rows dropped: mean, and the range of 90 % of samples."""
    from matplotlib.figure import Figure

    if not stability.correlations:
        raise ParameterError("no samples with rows left out were drawn; call bootstrap with n_dropping above zero")
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axes = figure.add_subplot()
    x = np.array(list(stability.correlations))
    values = [np.array(v) for v in stability.correlations.values()]
    low, high = (np.array([np.quantile(v, q) for v in values]) for q in (0.05, 0.95))
    axes.fill_between(100 * x, low, high, color=TOGETHER, alpha=0.2, linewidth=0)
    axes.plot(100 * x, [v.mean() for v in values], color=TOGETHER, marker="o", markersize=4)
    axes.axhline(CORRELATION, color="#888888", linewidth=0.8, linestyle="--")
    axes.set_xlabel("rows dropped, %")
    axes.set_ylabel("correlation of node strengths")
    axes.set_ylim(min(-0.05, float(low.min()) - 0.05), 1.05)
    axes.set_title(f"stability coefficient {stability.coefficient:g}", fontsize=10)
    return figure
