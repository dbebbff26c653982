"""A relational model: its types, how much each path matters, and links sorted by hidden category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import DataError, did_you_mean
from undirected.kernels.types import Array
from undirected.plots.graph import APART, TOGETHER
from undirected.relational.data import RelationalData
from undirected.relational.explain import measure_paths
from undirected.relational.hidden import HiddenVariable
from undirected.relational.treermn import TreeRMN
from undirected.relational.wiring import Wiring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PATHS, MOST_PICTURES, MOST_SIDE = 12, 6, 1500
LONGEST_LABEL = 70


def draw_relations(model: TreeRMN, data: RelationalData, relations: Sequence[str] | None = None) -> Figure:
    """Draw the types with their arguments, the size of the weights along each path, and for links of two entities a picture of some of
    their attributes: rows and columns are entities, sorted by the hidden variables of their type."""
    from matplotlib.figure import Figure

    hidden = model.place_hidden(data, Wiring(data, model.templates_.paths, model.memory))
    pictures = _choose_pictures(hidden, data, relations)
    columns = min(3, len(pictures))
    depth = -(-len(pictures) // columns) if pictures else 0
    figure = Figure(figsize=(13, 4.2 + 4 * depth), layout="constrained")
    grid = figure.add_gridspec(1 + depth, 6, height_ratios=[1, *([1.1] * depth)])
    _draw_schema(figure.add_subplot(grid[0, :3]), model, data)
    _draw_paths(figure.add_subplot(grid[0, 3:]), model)
    for k, (kind, v, sides) in enumerate(pictures):
        width = 6 // columns
        place = grid[1 + k // columns, (k % columns) * width : (k % columns + 1) * width]
        _draw_links(figure.add_subplot(place), data, kind, v, sides)
    return figure


def _draw_schema(axes: Any, model: TreeRMN, data: RelationalData) -> None:
    """Types as boxes, links below the entities they name."""
    axes.set_axis_off()
    axes.set_title("types", loc="left")
    levels: dict[str, int] = {}
    for name in model.schema_.names:
        _find_level(model, name, levels)
    at: dict[str, tuple[float, float]] = {}
    for level in sorted(set(levels.values())):
        names = [name for name in model.schema_.names if levels[name] == level]
        at |= {name: ((k + 0.5) / len(names), -float(level)) for k, name in enumerate(names)}
    for kind in model.schema_.types:
        x, y = at[kind.name]
        found = [h.n_categories for h in model.hidden_ if h.type == kind.name]
        more = f"\nhidden: {', '.join(map(str, found))}" if found else ""
        text = f"{kind.name}\n{len(data[kind.name]):,} x {len(kind.attributes)} attributes{more}"
        axes.text(x, y, text, ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": "#555555"}, zorder=3, fontsize=9)
        for k, argument in enumerate(kind.arguments):
            bend = 0.25 * (k - (len(kind.arguments) - 1) / 2)
            arrow = {"arrowstyle": "->", "color": "#555555", "connectionstyle": f"arc3,rad={bend:.2f}", "shrinkA": 22, "shrinkB": 22}
            axes.annotate("", at[argument.target], (x, y), arrowprops=arrow)
            end = at[argument.target]
            middle = 0.6 * x + 0.4 * end[0] + 0.5 * bend, 0.6 * y + 0.4 * end[1]
            axes.text(*middle, argument.name, ha="center", va="center", fontsize=8, color="#555555")
    axes.set_xlim(0, 1)
    axes.set_ylim(min(y for _, y in at.values()) - 0.5, 0.5)


def _find_level(model: TreeRMN, name: str, levels: dict[str, int]) -> int:
    """How far a type is from types without arguments."""
    if name not in levels:
        others = [a.target for a in model.schema_[name].arguments if a.target != name]
        levels[name] = max((_find_level(model, other, levels) + 1 for other in others), default=0)
    return levels[name]


def _draw_paths(axes: Any, model: TreeRMN) -> None:
    """A bar for each path, as long as its weights are large."""
    paths = measure_paths(model)
    shown = paths[:MOST_PATHS][::-1]
    colors = ["#7b5ea7" if text.endswith("(hidden)") else TOGETHER for _, text, _, _ in shown]
    bars = axes.barh([_cut(text) for _, text, _, _ in shown], [size for _, _, size, _ in shown], color=colors)
    axes.bar_label(bars, [f"{n:,} weights" for _, _, _, n in shown], padding=3, fontsize=8)
    more = f", the {MOST_PATHS} largest of {len(paths)}" if len(paths) > MOST_PATHS else ""
    axes.set_title(f"weights along paths (root of the sum of squares{more})", loc="left")
    axes.margins(x=0.2)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 3] + "..."


def _choose_pictures(
    found: list[HiddenVariable], data: RelationalData, relations: Sequence[str] | None
) -> list[tuple[str, int, list[list[HiddenVariable]]]]:
    """The attributes to draw: type, place, and the hidden variable that sorts them."""
    fitting = []
    for kind in data.schema.types:
        sides = [argument.target for argument in kind.arguments]
        if len(sides) == 2 and all(len(data[side]) <= MOST_SIDE for side in sides):
            hidden = [[h for h in found if h.type == side] for side in sides]
            fitting += [(kind.name, v, hidden) for v in range(len(kind.attributes))]
    if relations is not None:
        known = [data[kind].type.attributes[v].name for kind, v, _ in fitting]
        known += [f"{kind}.{name}" for (kind, _, _), name in zip(fitting, known, strict=True)]
        for name in relations:
            if name not in known:
                raise DataError(f"there is no attribute {name!r} of links of two entities.{did_you_mean(name, known)}")
        return [fitting[known.index(name) % len(fitting)] for name in relations]
    # Those that are neither nearly always nor nearly never true tell most.
    shares = [_measure_share(data[kind].cells.codes[:, v]) for kind, v, _ in fitting]
    order = sorted(range(len(fitting)), key=lambda k: abs(shares[k] - 0.5))
    return [fitting[k] for k in sorted(order[:MOST_PICTURES])]


def _measure_share(codes: Array) -> float:
    """How many of the known cells are not in the first state."""
    known = codes[codes >= 0]
    return float((known > 0).mean()) if len(known) else 0.0


def _draw_links(axes: Any, data: RelationalData, kind: str, v: int, hidden: list[list[HiddenVariable]]) -> None:
    """One attribute of pairs as a square; lines between categories; grey where nothing is known."""
    table = data[kind]
    sides = [argument.target for argument in table.type.arguments]
    picture = np.full([len(data[side]) for side in sides], np.nan)
    codes = table.cells.codes[:, v].astype(float)
    whole = (table.arguments >= 0).all(axis=1)
    picture[table.arguments[whole, 0], table.arguments[whole, 1]] = np.where(codes[whole] < 0, np.nan, codes[whole])
    (rows, row_cuts), (columns, column_cuts) = (_sort_entities(n, own) for n, own in zip(picture.shape, hidden, strict=True))
    axes.set_facecolor("#dddddd")
    n_states = len(table.type.attributes[v].states)
    axes.imshow(
        picture[np.ix_(rows, columns)], cmap="Blues" if n_states == 2 else "tab20", vmin=0, vmax=n_states - 1, interpolation="nearest"
    )
    for cut in row_cuts:
        axes.axhline(cut - 0.5, color=APART, lw=0.5)
    for cut in column_cuts:
        axes.axvline(cut - 0.5, color=APART, lw=0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    labels = [f"{a.name}, by {own[0].name}" if own else a.name for a, own in zip(table.type.arguments, hidden, strict=True)]
    axes.set_ylabel(labels[0], fontsize=8)
    axes.set_xlabel(labels[1], fontsize=8)
    axes.set_title(f"{kind}.{table.type.attributes[v].name}", fontsize=9)


def _sort_entities(n: int, hidden: list[HiddenVariable]) -> tuple[Array, Array]:
    """Entities in the order of their categories of the first hidden variable, then the second and so on; and where each category of the
    first ends."""
    sorts = [np.where(h.of < 0, h.n_categories, h.of) for h in hidden]
    if not sorts:
        return np.arange(n), np.zeros(0, np.int64)
    order = np.lexsort(sorts[::-1])
    return order, np.flatnonzero(np.diff(sorts[0][order])) + 1
