"""The few exceptions users meet. Each knows the exit code it ends a command with."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class UndirectedError(Exception):
    """Anything this package reports about its input. The message says what was found, where, and what to do."""

    exit_code = 3


class DataError(UndirectedError, ValueError):
    """A table, file or state that cannot be used as it is."""


class FormatError(DataError):
    """A file that is not what its suffix promises."""


class FeatureError(DataError):
    """A feature that cannot be: an unknown variable or state, or a contradiction."""


class ParameterError(UndirectedError, ValueError):
    """An option outside its range."""

    exit_code = 2


class ImpossibleEvidence(UndirectedError, ValueError):
    """Evidence that no state of the network meets."""

    exit_code = 4


class MissingExtra(UndirectedError, ImportError):
    """An optional dependency that is not installed."""

    exit_code = 2


class NothingFound(UndirectedError, RuntimeError):
    """A search that found nothing within its limits, which proves nothing."""

    exit_code = 6


class DownloadError(UndirectedError, OSError):
    """A data set that could not be fetched whole and unaltered."""


class Unconverged(UserWarning):
    """Weights were returned before the requested tolerance was reached."""


class TableWarning(UserWarning):
    """Something about a table that its reader should know: columns left out, or columns that look like identifiers."""


class CheckpointFailed(UserWarning):
    """A checkpoint could not be written; the work goes on without it."""


class GenerationStopped(UserWarning):
    """A learner could not generate as many candidates as it was asked to."""


class FormatWarning(UserWarning):
    """A file could be read or written, but not everything in it came along as it was."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' with the closest known names, or nothing."""
    close = difflib.get_close_matches(name[:100], [k for k in itertools.islice(known, 2000) if len(k) <= 100], n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def check_number(name: str, value: Any, least: float, most: float = math.inf, *, above: bool = False, whole: bool = False) -> None:
    """Raise unless a parameter is a number (a ``whole`` one) from ``least`` (or ``above`` it) to ``most``."""
    kind: Any = Integral if whole else Real
    if isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most and not (above and value == least):
        return
    low = f"above {least:g}" if above else f"of at least {least:g}"
    high = f" and at most {most:g}" if math.isfinite(most) else ""
    raise ParameterError(f"{name}={value!r}: a {'whole ' * whole}number {low}{high} is needed")
