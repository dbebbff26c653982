"""What the DTSL paper draws of a comparison: relative scores, run times, learning curves."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import ParameterError
from undirected.evaluation.published import published
from undirected.evaluation.results import Comparison
from undirected.kernels.types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOORS = ("atomic", "Atomic")  # whose bars do not decide how high the figure is
KINDS = ("relative", "runtime", "curves")
MARKS = "so^vDP*<>X"


def draw_comparison(results: Comparison, kind: str = "relative", **options: Any) -> Figure:
    """Draw one of the figures below; ``reference`` names the learner the others are held against (dtsl, unless it failed more often
    than others)."""
    drawing = {"relative": draw_relative, "runtime": draw_runtime, "curves": draw_curves}.get(kind)
    if drawing is None:
        raise ParameterError(f"there is no figure {kind!r}; choose one of {', '.join(KINDS)}")
    return drawing(results, **options)


def draw_relative(results: Comparison, reference: str | None = None, metric: str = "npll") -> Figure:
    """Draw figure 5 of the paper, in NPLL or NCMLL: a bar per learner and data set, how far its loss is above the reference's, in percent.
    Below zero is better.

    Bars that tower above most others are cut and marked with their height. Where a learner has no score there is a small cross
    instead of a bar, and a line below the figure names what is missing.
    """
    from matplotlib.figure import Figure

    reference = _choose_reference(results, reference, metric)
    names, others, heights = _find_heights(results, reference, metric)
    top = _choose_height(np.array([h for h, other in zip(heights, others, strict=True) if other not in FLOORS or len(others) == 1]))
    figure = Figure(figsize=(max(6.0, 0.75 * len(names) + 2, 0.13 * len(names) * len(others) + 2), 4.2), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(others)
    colors = _choose_colors(results)
    for k, other in enumerate(others):
        place = np.arange(len(names)) + (k - (len(others) - 1) / 2) * width
        there = np.isfinite(heights[k])
        axes.bar(place[there], np.clip(heights[k][there], -top, top), width, label=other, color=colors[other])
        axes.plot(place[~there], np.zeros((~there).sum()), linestyle="", marker="x", markersize=4, color=colors[other])
        for x, height in zip(place, heights[k], strict=True):
            if abs(height) > top:
                axes.annotate(
                    f"{height:.0f}", (x, math.copysign(top, height)), ha="center", va="bottom" if height > 0 else "top", fontsize=6,
                    rotation=90, color=colors[other],
                )  # fmt: skip
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
    low, high = (float(np.clip(f(heights[np.isfinite(heights)], initial=0.0), -top, top)) for f in (np.min, np.max))
    axes.set_ylim(1.18 * low - 0.04 * top, 1.18 * high + 0.04 * top)
    axes.set_ylabel(f"test loss ({metric.upper()}) against {reference}, %\n(below zero: better)", fontsize=9)
    axes.legend(fontsize=8, frameon=False, ncols=min(6, len(others)), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    _write_note(figure, find_left_out(results, metric, reference))
    return figure


def find_left_out(results: Comparison, metric: str = "npll", reference: str | None = None) -> list[str]:
    """What figures cannot show, in words: learners without any score, and data sets on which some have none."""
    there = np.isfinite(_find_scores(results, metric))
    what = "run time" if metric == "seconds" else "score"
    out = [f"{learner} has no {what}" for k, learner in enumerate(results.learners) if not there[:, k].any()]
    for line, name in zip(there, results.datasets, strict=True):
        missing = [learner for k, learner in enumerate(results.learners) if not line[k] and there[:, k].any()]
        if reference in missing or not line.any():
            out.append(f"{name} is left out, as {reference or 'every learner'} has no {what} there")
        elif missing:
            out.append(f"{name} has no {what} of {', '.join(missing)}")
    return out


def _write_note(figure: Figure, found: list[str]) -> None:
    """Write below a figure what it cannot show."""
    if found:
        width = int(15 * figure.get_figwidth())
        figure.supxlabel(textwrap.fill("; ".join(found), width), fontsize=7, x=0.01, ha="left", color="#555555", parse_math=False)


def _find_scores(results: Comparison, metric: str) -> Array:
    """Scores by data set and learner; not a number where there is none."""
    cells = [[results.row(learner, name) for learner in results.learners] for name in results.datasets]
    return np.array([[(row or {}).get(metric) for row in line] for line in cells], dtype=float)


def _find_heights(results: Comparison, reference: str, metric: str) -> tuple[list[str], list[str], Array]:
    """The data sets on which the reference and another learner have scores, these others, and their losses above the reference's."""
    scores = _find_scores(results, metric)
    base = scores[:, [results.learners.index(reference)]]
    heights = 100 * (base - scores) / np.abs(base)
    others = [k for k, learner in enumerate(results.learners) if learner != reference and np.isfinite(heights[:, k]).any()]
    names = np.flatnonzero(np.isfinite(heights[:, others]).any(axis=1))
    if not len(names):
        raise ParameterError(f"no data set has a score of {reference} and of another learner; there is nothing to draw")
    return [results.datasets[i] for i in names], [results.learners[k] for k in others], heights[names][:, others].T


def draw_runtime(results: Comparison, reference: str | None = None) -> Figure:
    """Draw figure 10 of the paper: seconds of each learner against the reference's on the same data set, tuning included.

    Hollow marks are published.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    reference = _choose_reference(results, reference, "seconds")
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    axes = figure.add_subplot()
    colors = _choose_colors(results)
    seen: list[float] = []
    others = [learner for learner in results.learners if learner != reference]
    for mark, other in zip(MARKS * len(others), others, strict=False):
        for points, hollow in (
            (_find_our_seconds(results, reference, other), False),
            (_find_printed_seconds(results, reference, other), True),
        ):
            if len(points):
                x, y = points.T
                face = "none" if hollow else colors[other]
                axes.plot(
                    x, y, linestyle="", marker=mark, markersize=6, color=colors[other], markerfacecolor=face, alpha=0.6 if hollow else 1
                )
                seen += [*x, *y]
    low, high = (min(seen) / 2, max(seen) * 2) if seen else (0.1, 10.0)
    axes.plot([low, high], [low, high], color="#888888", linewidth=0.8, zorder=0)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set_xlabel(f"seconds of {reference}, tuning included")
    axes.set_ylabel("seconds of the other learner")
    keys = [Line2D([], [], linestyle="", marker=m, color=colors[o], label=o) for m, o in zip(MARKS * len(others), others, strict=False)]
    keys.append(Line2D([], [], linestyle="", marker="o", markerfacecolor="none", color="#555555", label="hollow: published"))
    axes.legend(handles=keys, fontsize=8, frameon=False, loc="upper left")
    _write_note(figure, find_left_out(results, "seconds", reference))
    return figure


def draw_curves(results: Comparison, metric: str = "npll") -> Figure:
    """Draw figures 8 and 9 of the paper, in NPLL or NCMLL: test score against training rows, a panel per data set; higher is better."""
    from matplotlib.figure import Figure

    names = results.datasets
    columns = min(4, len(names))
    lines = math.ceil(len(names) / columns)
    figure = Figure(figsize=(3.1 * columns, 2.4 * lines + 0.5), layout="constrained")
    colors = _choose_colors(results)
    shown: dict[str, Any] = {}
    for k, name in enumerate(names):
        axes = figure.add_subplot(lines, columns, k + 1)
        for mark, learner in zip(MARKS * len(results.learners), results.learners, strict=False):
            points = sorted(
                (row["train_rows"], row[metric])
                for row in results.rows
                if (row["learner"], row["dataset"]) == (learner, name) and row.get(metric) is not None
            )
            if points:
                x, y = np.array(points).T
                shown[learner] = axes.plot(x / 1000, y, marker=mark, markersize=4, linewidth=1, color=colors[learner])[0]
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        if k % columns == 0:
            axes.set_ylabel(f"test {metric.upper()}", fontsize=8)
        if k >= len(names) - columns:
            axes.set_xlabel("thousands of training rows", fontsize=8)
    figure.legend(list(shown.values()), list(shown), loc="outside upper center", ncols=max(1, len(shown)), fontsize=8, frameon=False)
    _write_note(figure, find_left_out(results, metric))
    return figure


def _find_our_seconds(results: Comparison, reference: str, other: str) -> Array:
    """Pairs of measured run times, one a data set."""
    rows = [(results.row(reference, name), results.row(other, name)) for name in results.datasets]
    return np.array([(a["seconds"], b["seconds"]) for a, b in rows if a and b])


def _find_printed_seconds(results: Comparison, reference: str, other: str) -> Array:
    """Pairs of run times that one paper prints, one a data set."""
    values = [(published("seconds", reference, name), published("seconds", other, name)) for name in results.datasets]
    return np.array([(a[0].value, b[0].value) for a, b in values if a and b and a[0].paper == b[0].paper])


def _choose_reference(results: Comparison, given: str | None, metric: str) -> str:
    """The learner the others are held against: the given one, else the one with the most scores, and of several dtsl or the first."""
    if given is not None and given not in results.learners:
        raise ParameterError(f"reference={given!r} is not one of {', '.join(results.learners)}")
    n_scores = dict(zip(results.learners, np.isfinite(_find_scores(results, metric)).sum(axis=0).tolist(), strict=True))
    return given or max(n_scores, key=lambda learner: (n_scores[learner], learner == "dtsl"))


def _choose_colors(results: Comparison) -> dict[str, str]:
    """A colour for each learner, the same in all figures."""
    palette = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#222222"]
    return {learner: palette[k % len(palette)] for k, learner in enumerate(results.learners)}


def _choose_height(heights: Array) -> float:
    """Where bars are cut: high enough for most; the few that tower above them are cut."""
    sizes = np.sort(np.abs(heights[np.isfinite(heights)]))
    if not len(sizes) or sizes[-1] == 0:
        return 1.0
    usual = float(np.quantile(sizes, 0.75))
    return float(sizes[-1] if sizes[-1] <= 4 * usual else max(2 * usual, 1e-9))
