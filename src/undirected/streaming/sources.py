"""Where the rows of a stream come from: one small interface, and which source an address means."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from undirected.data.arrays import is_frame
from undirected.data.dataset import Dataset
from undirected.errors import DataError, ParameterError
from undirected.streaming.rows import Row, Unreadable
from undirected.work import Event, Milestone

FORMATS = ("csv", "tsv", "jsonl", "basket")
Position = dict[str, Any]  # of a source, as JSON has it


@dataclass(frozen=True)
class Notice(Milestone):
    """Something about a source, or about files that are written, that its reader should know."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class CheckpointWritten(Event):
    """All that has been learned, and the place in the source, are on the disk."""

    def __str__(self) -> str:
        return "checkpoint written"


Tell = Callable[[str], None]


@dataclass
class Batch:
    """Rows as they came, and whether these were the last ones."""

    rows: list[Row | Unreadable]
    ended: bool = False


class Source(Protocol):
    """Rows one after another, from a position that can be kept and gone back to."""

    @property
    def name(self) -> str:
        """What the source is called in messages and checkpoints."""

    @property
    def identity(self) -> str:
        """What tells the source from others, however it is named."""

    @property
    def names(self) -> list[str] | None:
        """The names of the cells of rows that are sequences, once they are known."""

    @property
    def position(self) -> Position:
        """Where the next row comes from; all rows before have been handed out."""

    def read(self, max_rows: int, timeout: float) -> Batch:
        """Hand out rows: at least one, unless ``timeout`` seconds pass, or the source ends."""

    def seek(self, position: Position) -> None:
        """Go on from a position that this source had, in this process or an earlier one."""

    def acknowledge(self, position: Position) -> None:
        """Hear that the rows before a position need never come again."""

    def measure_lag(self) -> float | None:
        """About how many rows are waiting to be read; None where nobody knows."""

    def close(self) -> None:
        """Let go of files and connections."""


@dataclass(frozen=True)
class Options:
    """How a source is read: the format of its rows, whether names come first, how bytes are text, and whether to wait for more."""

    format: str | None = None
    header: bool | None = None
    encoding: str | None = None
    follow: bool = False
    tell: Tell = field(default=lambda text: None)
    stop: Callable[[], bool] = field(default=lambda: False)  # whether waiting should end

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ParameterError(f"format={self.format!r}: a stream's rows are in one of {', '.join(FORMATS)}")


class RowSource:
    """Rows from Python: any iterable of rows, a frame, an array or a `Dataset`. A position is the number of rows before it."""

    def __init__(self, rows: Any, name: str = "the rows") -> None:
        self.name = self.identity = name
        self.names: list[str] | None = None
        self._done = 0
        self._rows: Iterator[Row] = iter(self._list_rows(rows))

    def _list_rows(self, rows: Any) -> Iterable[Row]:
        if isinstance(rows, Dataset):
            states = [(*v.states, "") for v in rows.domain.variables]
            self.names = rows.domain.names if rows.domain.named else None
            return ([states[v][code] for v, code in enumerate(row)] for row in rows.codes.tolist())
        if is_frame(rows):
            self.names = [str(name) for name in rows.columns]
            return zip(*(rows[name].to_list() for name in rows.columns), strict=True)
        if isinstance(rows, np.ndarray):
            if rows.ndim != 2:
                raise DataError(f"an array of rows has two axes, not {rows.ndim}")
            return (row.tolist() for row in rows)
        if isinstance(rows, Iterable):
            return rows
        raise DataError(f"a stream's rows come from an iterable, a frame, an array, a path or an address, not {type(rows).__name__}")

    @property
    def position(self) -> Position:
        return {"rows": self._done}

    def read(self, max_rows: int, timeout: float) -> Batch:
        rows: list[Row | Unreadable] = list(itertools.islice(self._rows, max_rows))
        self._done += len(rows)
        return Batch(rows, ended=len(rows) < max_rows)

    def seek(self, position: Position) -> None:
        wanted = int(position["rows"])
        if wanted < self._done:
            raise DataError(f"{self.name} cannot be gone back in: row {wanted:,} is behind row {self._done:,}")
        skipped = sum(1 for _ in itertools.islice(self._rows, wanted - self._done))
        if skipped < wanted - self._done:
            raise DataError(f"{self.name} has {self._done + skipped:,} rows, but {wanted:,} have been learned; give the same rows again")
        self._done = wanted

    def acknowledge(self, position: Position) -> None:
        """Rows in Python need no acknowledgement."""

    def measure_lag(self) -> float | None:
        return None

    def close(self) -> None:
        """There is nothing to let go of."""


def open_stream(source: Any, options: Options | None = None) -> Source:
    """Open what a stream's rows come from.

    Parameters
    ----------
    source
        A path of a file or folder (CSV, TSV, JSON lines or baskets, also ``.gz``), ``-`` for standard input, an address such as
        ``redis://127.0.0.1:6379/0?stream=clicks`` or ``kafka://127.0.0.1:9092/clicks``, or rows in Python.
    options
        How to read it.
    """
    options = options or Options()
    if not isinstance(source, str | os.PathLike):
        return RowSource(source) if not hasattr(source, "acknowledge") else source
    text = os.fspath(source)
    if text == "-":
        from undirected.streaming.files import PipeSource

        return PipeSource(options)
    scheme = text.split("://", 1)[0] if "://" in text else ""
    if scheme in ("redis", "rediss", "unix"):
        from undirected.streaming.redis_streams import RedisSource

        return RedisSource(text, options)
    if scheme == "kafka":
        from undirected.streaming.kafka import KafkaSource

        return KafkaSource(text, options)
    if scheme:
        raise DataError(f"{text}: the scheme {scheme!r} is not known; redis:// and kafka:// are, and paths of files")
    from undirected.streaming.files import FileSource, PipeSource

    path = Path(text)
    return PipeSource(options, path) if path.is_fifo() else FileSource(path, options)


def split_address(address: str, known: Iterable[str]) -> tuple[str, str, dict[str, str]]:
    """Take an address apart: scheme and host, path, and settings behind the question mark, of which only the ``known`` may be there."""
    parts = urlsplit(address)
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    strange = sorted(set(settings) - set(known))
    if strange:
        raise ParameterError(f"{hide_password(address)}: the setting {strange[0]!r} is not known; choose among {', '.join(known)}")
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path.lstrip("/")), settings


def hide_password(address: str) -> str:
    """The address as it may be shown."""
    parts = urlsplit(address)
    if parts.password is None:
        return address
    return parts._replace(netloc=f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}").geturl()
