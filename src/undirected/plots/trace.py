"""The course of a structure search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undirected.plots.graph import TOGETHER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from undirected.structure.trace import Trace


def draw_trace(trace: Trace) -> Figure:
    """Draw score and number of features against time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    score = figure.add_subplot()
    seconds = [point.seconds for point in trace.points]
    score.plot(seconds, [point.score for point in trace.points], color=TOGETHER, marker=".", markersize=3)
    score.set_xlabel("seconds")
    score.set_ylabel("score", color=TOGETHER)
    features = score.twinx()
    features.plot(seconds, [point.n_features for point in trace.points], color="#666666", linewidth=1, linestyle="--")
    features.set_ylabel("features (dashed)", color="#666666")
    features.set_ylim(bottom=0)
    figure.suptitle(str(trace), fontsize=8)
    return figure
