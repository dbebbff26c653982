"""What a bootstrap says about edges, and how node strengths hold as cases are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import ParameterError
from undirected.evaluation.stability import CORRELATION, Stability
from undirected.plots.graph import APART, TOGETHER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("edges", "dropping")


def draw_stability(stability: Stability, kind: str = "edges", **options: Any) -> Figure:
    """``edges`` or ``dropping``."""
    drawing = {"edges": draw_edges, "dropping": draw_dropping}.get(kind)
    if drawing is None:
        raise ParameterError(f"there is no figure {kind!r}; choose one of {', '.join(KINDS)}")
    return drawing(stability, **options)


def draw_edges(stability: Stability, top: int = 60) -> Figure:
    """The ``top`` edges with the largest weights, sorted by weight: a dot for all rows, a bar for the interval over resamples, a cross
    for their mean; the paler a bar, the less often the edge came back."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    ranked = sorted(stability.edges.items(), key=lambda item: -abs(item[1].value))[:top]
    shown = sorted(ranked, key=lambda item: item[1].value)
    wide = max((len(a) + len(b) for (a, b), _ in shown), default=0)
    figure = Figure(figsize=(5.0 + 0.06 * min(wide, 120), max(2.5, 1.2 + 0.19 * len(shown))), layout="constrained")
    axes = figure.add_subplot()
    for y, (_, e) in enumerate(shown):
        color = TOGETHER if e.mean >= 0 else APART
        axes.plot([e.low, e.high], [y, y], color=color, linewidth=3.5, alpha=0.12 + 0.5 * e.frequency, solid_capstyle="butt", zorder=1)
        axes.plot(e.mean, y, marker="x", color=color, markersize=4, linestyle="", zorder=2)
        axes.plot(e.value, y, marker="o", color="black", markersize=3.5, linestyle="", zorder=3)
    axes.axvline(0, color="#888888", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(shown)), [f"{a} - {b}   {e.frequency:.0%}" for (a, b), e in shown], fontsize=7, parse_math=False)
    axes.set_ylim(-0.7, max(len(shown), 1) - 0.3)
    axes.set_xlabel("edge weight")
    note = f"the {len(shown)} strongest of {len(stability.edges):,} edges" if len(stability.edges) > len(shown) else f"{len(shown)} edges"
    figure.suptitle(f"{note}, {stability.n} resamples; percent: how often an edge came back", fontsize=9)
    keys = [
        Line2D([], [], marker="o", color="black", linestyle="", markersize=4, label="all rows"),
        Line2D([], [], marker="x", color=TOGETHER, linestyle="", markersize=5, label="mean of resamples"),
        Line2D([], [], color=TOGETHER, linewidth=3.5, alpha=0.6, label=f"{stability.level:.0%} of resamples (no test under L1)"),
    ]
    axes.legend(handles=keys, fontsize=7, frameon=False, loc="lower right")
    return figure


def draw_dropping(stability: Stability) -> Figure:
    """Correlation of node strengths with those on all rows, by the share of rows dropped: mean, and the range of 90 % of samples."""
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
