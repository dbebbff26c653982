"""Pictures, drawn without a screen and saved by suffix (.svg, .png, .pdf). Names load what they need when they are first used."""

from __future__ import annotations

import importlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undirected.errors import FormatError
from undirected.store import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from undirected.plots.comparison import draw_comparison, find_left_out
    from undirected.plots.graph import draw_graph, find_layout
    from undirected.plots.groups import draw_groups
    from undirected.plots.pixels import draw_pixels
    from undirected.plots.relations import draw_relations
    from undirected.plots.stability import draw_stability
    from undirected.plots.stream import draw_stream
    from undirected.plots.trace import draw_trace

_HOMES = {
    "draw_comparison": "undirected.plots.comparison",
    "draw_graph": "undirected.plots.graph",
    "draw_groups": "undirected.plots.groups",
    "draw_pixels": "undirected.plots.pixels",
    "draw_relations": "undirected.plots.relations",
    "draw_stability": "undirected.plots.stability",
    "draw_stream": "undirected.plots.stream",
    "draw_trace": "undirected.plots.trace",
    "find_layout": "undirected.plots.graph",
    "find_left_out": "undirected.plots.comparison",
}
PICTURES = (".svg", ".png", ".pdf")


def check_picture(path: str | os.PathLike[str]) -> str:
    """The picture format a path asks for."""
    suffix = Path(path).suffix.lower()
    if suffix not in PICTURES:
        raise FormatError(f"{os.fspath(path)}: the suffix {suffix!r} is not one of {', '.join(PICTURES)}")
    return suffix[1:]


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure whole; the same figure gives the same file."""
    import matplotlib

    kind = check_picture(path)
    out = io.BytesIO()
    metadata: dict[str, str | None] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})  # type: ignore[assignment]
    with matplotlib.rc_context({"svg.hashsalt": "undirected"}):
        figure.savefig(out, format=kind, dpi=150, metadata=metadata)
    write_whole(path, out.getvalue())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'undirected.plots' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


__all__ = [
    "PICTURES", "check_picture", "draw_comparison", "draw_graph", "draw_groups", "draw_pixels", "draw_relations", "draw_stability",
    "draw_stream", "draw_trace", "find_layout", "find_left_out", "save_figure",
]  # fmt: skip
