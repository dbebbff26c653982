"""Numbers into bins that hold equally many rows."""

from __future__ import annotations

import numpy as np

from undirected.data.variables import Variable
from undirected.kernels.types import Array


def cut_equally(name: str, values: Array, weights: Array, bins: int) -> Variable:
    """Cut numbers into bins of about equal weight, the states of a variable; equal values share a bin, so there may be fewer.

    Values that are not numbers (missing cells) are left out.
    """
    known = np.isfinite(values)
    distinct, inverse = np.unique(values[known], return_inverse=True)
    share = np.cumsum(np.bincount(inverse, weights=weights[known], minlength=len(distinct)))
    cuts: list[float] = []
    for i in range(1, bins):
        at = int(np.searchsorted(share, share[-1] * i / bins * (1 - 1e-12)))
        if at + 1 < len(distinct):
            cut = find_cut(float(distinct[at]), float(distinct[at + 1]))
            if not cuts or cut > cuts[-1]:
                cuts.append(cut)
    return Variable(name, label_bins(cuts), tuple(cuts))


def find_cut(low: float, high: float) -> float:
    """Find the shortest decimal number ``c`` with low <= c < high, so that labels stay readable."""
    middle = low + (high - low) / 2
    for digits in range(1, 18):
        cut = float(f"{middle:.{digits}g}")
        if low <= cut < high:
            return cut
    return low


def label_bins(edges: list[float]) -> tuple[str, ...]:
    """Name the bins between cuts, each of which belongs to the bin below."""
    if not edges:
        return ("any",)
    text = [f"{e:.17g}" if float(f"{e:g}") != e else f"{e:g}" for e in edges]
    inner = [f"({a}, {b}]" for a, b in zip(text, text[1:], strict=False)]
    return (f"(-inf, {text[0]}]", *inner, f"({text[-1]}, inf)")


def bin_codes(variable: Variable, values: Array) -> Array:
    """Find the bin of each value; the caller has dealt with missing ones."""
    assert variable.edges is not None
    return np.searchsorted(np.asarray(variable.edges), values, side="left")
