"""Pictures, drawn without a screen and saved by suffix (.svg, .png, .pdf)."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from undirected.errors import FormatError
from undirected.store import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
