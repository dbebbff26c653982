"""The course of a stream: its score chunk by chunk, its features, and where drift was found."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undirected.errors import DataError, FormatError
from undirected.plots.graph import APART, TOGETHER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDED = ("chunk", "total_rows", "npll", "fading_npll", "n_features", "n_nonzero", "drift")
MANY = 80  # chunks from which single ones are not marked


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the measures that a stream has written; a last line that was cut off is left out."""
    name = os.fspath(path)
    try:
        whole, _, _ = Path(path).read_text("utf8").rpartition("\n")
        records = [json.loads(line) for line in whole.split("\n") if line]
        if not all(isinstance(record, dict) and all(key in record for key in NEEDED) for record in records):
            raise ValueError("a line lacks a measure")
    except FileNotFoundError:
        raise DataError(f"there is no file {name!r}") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{name} does not hold the measures of a stream ({error})") from None
    if not records:
        raise DataError(f"{name} holds no chunk yet")
    return records


def draw_stream(records: list[dict[str, Any]]) -> Figure:
    """Draw the score of each chunk before it was learned and its fading mean, against rows; below, the features of the network. A vertical
    line stands where drift was found."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    score, features = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    scored = [r for r in records if r["npll"] is not None]
    rows = [r["total_rows"] for r in scored]
    marker = "o" if len(scored) <= MANY else ""
    score.plot(rows, [r["npll"] for r in scored], color="#9aa7b4", linewidth=0.9, marker=marker, markersize=2.5, label="each chunk")
    score.plot(rows, [r["fading_npll"] for r in scored], color=TOGETHER, linewidth=1.8, label="fading mean")
    drifts = [r for r in records if r["drift"]]
    for k, record in enumerate(drifts):
        for axes in (score, features):
            axes.axvline(record["total_rows"], color=APART, linewidth=1, linestyle="--", label="drift" if axes is score and not k else None)
    score.set_ylabel("log-likelihood per variable,\nbefore the chunk is learned")
    if scored:
        score.legend(fontsize=8, frameon=False, loc="lower right")
    else:
        score.text(0.5, 0.5, "the first chunk has no score", transform=score.transAxes, ha="center", fontsize=9, color="#666666")
    every = [r["total_rows"] for r in records]
    features.plot(
        every,
        [r["n_features"] for r in records],
        color="#666666",
        linewidth=1,
        marker="" if len(every) > 1 else "o",
        label="in the network",
    )
    features.plot(
        every, [r["n_nonzero"] for r in records], color=TOGETHER, linewidth=1, marker="" if len(every) > 1 else "o", label="not zero"
    )
    features.set_ylim(bottom=0)
    features.set_ylabel("features")
    features.set_xlabel("rows")
    features.legend(fontsize=8, frameon=False, loc="lower right")
    for axis in (features.xaxis, features.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for axes in (score, features):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
