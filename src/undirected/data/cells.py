"""The texts of cells: which mean a missing one, and the one form of numbers and truth values that are written in several ways."""

from __future__ import annotations

import re

import numpy as np

from undirected.data.variables import as_number

MISSING_TEXTS = frozenset({"", "?", "*", "NA", "NaN", "nan", "N/A", "<NA>", "None", "null", "NaT"})
_BREAK = re.compile(r"[\r\n\t]+")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")


def clean_texts(texts: list[str]) -> list[str]:
    """Bring the distinct texts of a column into one form: missing ones are empty, ``1.0`` is ``1``, ``TRUE`` is ``True``.

    Numbers and truth values change only where all texts of the column are such.
    """
    clean = [clean_text(t) for t in texts]
    if any("." in t or "e" in t.lower() for t in clean):
        if all(as_number(t) is not None for t in clean if t):
            return [write_value(float(t)) if t else t for t in clean]
        if all(t.lower() in ("true", "false") for t in clean if t):
            return [t.capitalize() for t in clean]
    return clean


def clean_text(text: str) -> str:
    """Take blanks off the ends of a cell and line breaks out of it; one that stands for a missing cell becomes empty."""
    clean = _BREAK.sub(" ", text.strip())
    return "" if clean in MISSING_TEXTS else clean


def use_decimal_points(texts: list[str]) -> list[str] | None:
    """Write ``1.234,5`` as ``1234.5`` where all texts of a column are such numbers; else None."""
    known = [t for t in map(clean_text, texts) if t]
    if not any("," in t for t in known) or not all(_DECIMAL_COMMA.fullmatch(t) for t in known):
        return None
    return [t.replace(".", "").replace(",", ".") for t in texts]


def write_value(value: object) -> str:
    """Write a cell of an array or frame as text; whole numbers lose their decimal point, and missing cells are empty."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, bytes):
        return value.decode("utf8", "replace")
    if isinstance(value, float):
        if value != value:
            return ""
        return str(int(value)) if np.isfinite(value) and value == int(value) else repr(float(value))
    return str(value)
