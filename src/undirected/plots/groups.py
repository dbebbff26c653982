"""Networks of groups side by side, and their difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undirected.evaluation.groups import GroupComparison
from undirected.plots.graph import APART, KEYS, STYLES, TOGETHER, draw_graph, find_layout, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.05  # of corrected p-values, for edges of the difference to be drawn in full


def draw_groups(found: GroupComparison, top: int = 60, level: float = LEVEL, **options: Any) -> Figure:
    """Draw the network of each group, all at the places of the joint network and with one scale of widths; and for two groups their
    difference: edges that are stronger (more positive) in the second group are blue, those that are weaker orange and dashed, and those
    whose corrected p-value is above ``level`` pale. ``options`` are those of `draw_graph`."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = list(found.networks)
    layout = find_layout(found.joint, top)
    maximum = max((abs(value) for edge in found.edges for value in edge.values.values()), default=1.0) or 1.0
    panels = len(names) + (len(names) == 2)
    figure = Figure(figsize=(4.6 * panels, 5.4), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    settings = {"layout": layout, "maximum": maximum, **options}
    for ax, name in zip(axes, names, strict=False):
        draw_graph(found.networks[name], top, ax=ax, title=f"{shorten(name)} ({found.sizes[name]:,} rows)", **settings)
    if len(names) == 2:
        first, second = names
        ax = axes[-1]
        shown = [edge for edge in found.edges if edge.difference > 0 and edge.a in layout and edge.b in layout]
        for edge in sorted(shown, key=lambda edge: edge.difference):
            color = TOGETHER if edge.values[second] > edge.values[first] else APART
            share = min(1.0, edge.difference / maximum)
            ends = zip(layout[edge.a], layout[edge.b], strict=True)
            alpha = 0.9 if edge.p_corrected <= level else 0.18
            ax.plot(*ends, color=color, linestyle=STYLES[color], linewidth=0.4 + 4.6 * share, alpha=alpha, zorder=1)
        nothing = found.joint.features.subset(found.joint.features.lengths == 1)
        empty = type(found.joint)(nothing, [0.0] * len(nothing))
        draw_graph(empty, 0, ax=ax, title=f"{shorten(second)} less {shorten(first)}: pale where p > {level:g}", **settings)
    for ax in axes:
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    keys = [Line2D([], [], color=color, linewidth=2.5, linestyle=STYLES[color], label=KEYS[color]) for color in (TOGETHER, APART)]
    plain = figure.legend(handles=keys, loc="outside lower center", frameon=False, fontsize=8, ncols=2)
    for text in plain.get_texts():
        text.set_parse_math(False)
    figure.suptitle(
        f"{found.by}: structure p = {found.structure_p:.3g}, strength p = {found.strength_p:.3g}", fontsize=10, parse_math=False
    )
    return figure
