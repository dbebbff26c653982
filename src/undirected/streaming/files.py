"""Streams of text: files, folders of files, files that grow, pipes and standard input."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import select
import sys
import time
import zlib
from abc import abstractmethod
from pathlib import Path
from typing import IO

from undirected.data.files import BYTE_ORDER_MARKS, check_regular, is_packed
from undirected.errors import DataError, FormatError, ParameterError
from undirected.streaming.rows import Row, Unreadable
from undirected.streaming.sources import Batch, Options, Position
from undirected.streaming.text_rows import SAMPLE, Feed, TextRows

SUFFIXES = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".basket": "basket",
}  # fmt: skip
BLOCK_BYTES = 1 << 16  # read at a time
SETTLE_SECONDS = 2.0  # after the first line, when fewer lines than a sample must do
HEAD_BYTES = 4096  # by which a file is known again
LOOK_EVERY = 0.2  # seconds between two looks for more at the end of a file


class TextSource:
    """What sources of text share: bytes are read until there are enough lines, and become rows."""

    _feed: Feed

    def __init__(self, name: str, options: Options) -> None:
        self.name, self.options = name, options
        self.identity = name
        self._first_line: float | None = None  # when the first line came
        self.names: list[str] | None = None  # those of the first file; rows of files with others come with their names

    @abstractmethod
    def _get(self, wait: float) -> bytes | None:
        """More bytes; none if there are none now, after at most ``wait`` seconds; None if none will come."""

    def _turn(self) -> bool:
        """Whether there is something else to read where no more bytes will come."""
        return False

    def read(self, max_rows: int, timeout: float) -> Batch:
        limit = time.monotonic() + timeout
        out: list[Row | Unreadable] = []
        while True:
            wanted, left = max_rows - len(out), limit - time.monotonic()
            waits = not out and not (self._feed.rows.settled and self._feed.lines.whole)
            block: bytes | None = b""
            while len(self._feed.lines.whole) < (wanted if self._feed.rows.settled else max(wanted, SAMPLE)):
                block = self._get(min(max(0.0, left), LOOK_EVERY) if waits else 0.0)
                if not block:
                    break
                self._feed.lines.add(block)
                waits = False
            if self._is_settling(block):
                self._feed.settle()
            out += self._take(wanted)
            if len(out) >= max_rows:
                return Batch(out)
            if block is None:
                out += self._name(self._feed.end())
                if not self._turn():
                    return Batch(out, ended=True)
            elif not block and (out or left <= 0):
                return Batch(out)

    def _is_settling(self, block: bytes | None) -> bool:
        """Whether there are lines enough to tell how to read them: all of a sample, or all that came in some seconds, or all there are."""
        n, now = len(self._feed.lines.whole), time.monotonic()
        if n and self._first_line is None:
            self._first_line = now
        return n >= SAMPLE or block is None or (n > 1 and self._first_line is not None and now - self._first_line >= SETTLE_SECONDS)

    def _take(self, max_rows: int) -> list[Row | Unreadable]:
        return self._name(self._feed.take(max_rows)) if self._feed.rows.settled else []

    def _name(self, rows: list[Row | Unreadable]) -> list[Row | Unreadable]:
        """Give rows the names of their own file's columns, where they are not those of the first one."""
        own = self._feed.rows.names
        if self.names is None or own is None or own == self.names:
            self.names = self.names or own
            return rows
        return [
            row if not isinstance(row, list) else dict(zip(own, row, strict=True)) if len(row) == len(own)
            else Unreadable(",".join(row), f"{len(row)} cells where {len(own)} are needed")
            for row in rows
        ]  # fmt: skip

    def _start(self, kind: str, offset: int = 0) -> None:
        self._feed = Feed(TextRows(kind, self.options.header), self.options.encoding, offset)
        self._first_line = None

    def acknowledge(self, position: Position) -> None:
        """Text needs no acknowledgement."""

    def measure_lag(self) -> float | None:
        return None

    def close(self) -> None:
        """Let go of the file, if there is one."""


class PipeSource(TextSource):
    """Standard input, or a named pipe. It cannot be gone back in: what comes after a restart is taken as new."""

    def __init__(self, options: Options, path: Path | None = None) -> None:
        super().__init__("standard input" if path is None else str(path), options)
        self._fd = sys.stdin.fileno() if path is None else os.open(path, os.O_RDONLY)
        self._start(options.format or (path and find_kind(path)) or "csv")

    def _get(self, wait: float) -> bytes | None:
        ready, _, _ = select.select([self._fd], [], [], wait)
        return (os.read(self._fd, BLOCK_BYTES) or None) if ready else b""

    @property
    def position(self) -> Position:
        return {"offset": self._feed.offset, "text": self._feed.rows.pack(), "names": self.names}

    def seek(self, position: Position) -> None:
        if self.options.header is None and position["names"] is not None:
            self.names = position["names"]  # a header, if one comes again, is found out as before


class FileSource(TextSource):
    """A file or a folder of files, one after another by name. ``follow`` waits at the end for more: lines that are added to the last file,
    a file that takes its place, or more files in the folder."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(str(path), options)
        self.identity = str(path.resolve())
        self.path, self.folder = path, path.is_dir()
        if not self.folder:
            check_regular(path)
        self._file: IO[bytes] | None = None
        self._current: Path | None = None
        self._begin(self._find_next(None))

    def _list_files(self) -> list[Path]:
        try:
            found = sorted((p for p in self.path.iterdir() if p.is_file() and not p.name.startswith(".")), key=_order)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror or error})") from None
        return [p for p in found if self.options.format or find_kind(p)]

    def _find_next(self, after: Path | None) -> Path | None:
        """The file to read after another; None where a folder has no other yet."""
        if not self.folder:
            return self.path
        return next((p for p in self._list_files() if after is None or _order(p) > _order(after)), None)

    def _begin(self, path: Path | None, offset: int = 0) -> None:
        """Open a file, and go to an offset."""
        if path is None and not self.options.follow:
            raise DataError(f"{self.path} is a folder without a file to read ({', '.join(SUFFIXES)}; or give --format)")
        kind = self.options.format or ("csv" if path is None else find_kind(path if self.folder else self.path))
        if kind is None:
            known = ", ".join(SUFFIXES)
            raise FormatError(f"{path}: the suffix is not known ({known}); give the format, --format csv|tsv|jsonl|basket")
        self.close()
        self._start(kind, offset)
        self._head = b""
        if path is not None:
            self._file, self._current = self._open(path), path
            self._head = self._file.read(min(HEAD_BYTES, offset))
            self._file.seek(max(0, offset - 1))
            self._feed.goes_on = offset > 0 and self._file.read(1) not in (b"\n", b"")
            self._read = offset

    def _open(self, path: Path) -> IO[bytes]:
        try:
            raw = path.open("rb")
            mark = raw.read(4)
            raw.seek(0)
            if any(mark.startswith(m) and e == "utf-16" for m, e in BYTE_ORDER_MARKS.items()):
                raw.close()
                raise FormatError(f"{path} is UTF-16 text, which cannot be cut into lines as it comes; convert it to UTF-8")
            self._packed = is_packed(raw) or (path.suffix == ".gz" and not mark)
            if self._packed and self.options.follow and not self.folder:
                raise ParameterError(f"{path} is packed, so it cannot grow; leave out --follow")
            self._raw = raw
            return gzip.GzipFile(fileobj=raw) if self._packed else raw  # type: ignore[return-value]
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None

    def _get(self, wait: float) -> bytes | None:
        limit = time.monotonic() + wait
        while True:
            block = self._read_block()
            if not block and self._is_over():
                block = self._read_block()  # what was added before the file was turned away
                if not block:
                    return None
            if block:
                self._read += len(block)
                self._head += block[: HEAD_BYTES - len(self._head)]
                return block
            left = limit - time.monotonic()
            if left <= 0:
                return b""
            time.sleep(min(LOOK_EVERY, left))

    def _read_block(self) -> bytes:
        if self._file is None:
            return b""
        try:
            block = self._file.read(BLOCK_BYTES)
            if not block and self._packed and self.options.follow:
                self._unpack_again()
                block = self._file.read(BLOCK_BYTES)
            return block
        except EOFError as error:
            if self.options.follow:  # it is still being written
                self._unpack_again()
                return b""
            raise FormatError(f"{self._current}: cannot be read ({error})") from None
        except (OSError, zlib.error) as error:
            raise FormatError(f"{self._current}: cannot be read ({error})") from None

    def _unpack_again(self) -> None:
        """Open a packed file anew, behind what was read of it: it may have grown."""
        assert self._current is not None
        self.close()
        self._file = self._open(self._current)
        try:
            self._file.seek(self._read)
        except EOFError:
            return

    def _is_over(self) -> bool:
        """Whether nothing more will come from this file."""
        if not self.options.follow:
            return True
        if self._file is None or self.folder:
            return self._find_next(self._current) is not None
        try:
            found, own = self.path.stat(), os.fstat(self._file.fileno())
        except FileNotFoundError:
            return False  # moved away; another one will come
        return (found.st_ino, found.st_dev) != (own.st_ino, own.st_dev) or found.st_size < self._file.tell()

    def _turn(self) -> bool:
        following = self._find_next(self._current) if self.folder else None
        if following is not None:
            self._begin(following)
            return True
        if self.folder or not self.options.follow:
            self.close()
            return False
        self.options.tell(f"{self.path} has been replaced or cut; it is read from its beginning")
        self._begin(self.path)
        return True

    @property
    def position(self) -> Position:
        feed, head = self._feed, self._head[: self._feed.offset]
        return {
            "file": self._current and self._current.name, "offset": feed.offset, "head": len(head), "digest": _digest(head),
            "text": feed.rows.pack(), "names": self.names,
        }  # fmt: skip

    def seek(self, position: Position) -> None:
        self.names = position["names"]
        if position["file"] is None:
            return
        own = self.path / position["file"] if self.folder else self.path
        turned = own.with_name(own.name + ".1")  # where a growing file is often moved when a new one begins
        found = next((p for p in (own, turned) if _holds(p, position)), None)
        if found is None and self.folder and not own.exists():
            self.options.tell(f"{own}, which was being read, is gone; going on with the file after it")
            self._current = own
            following = self._find_next(own)
            if following is not None:
                self._begin(following)
            else:
                self.close()
        elif found is None and self.options.follow and not self.folder:
            self.options.tell(f"{self.path} is not the file that was read before; it is read from its beginning")
            self._begin(self.path)
        elif found is None or (found == turned and not self.options.follow):
            raise DataError(f"{own} is not the file that was read before; put that one back, or name another checkpoint")
        else:
            self._begin(found, int(position["offset"]))
            self._feed.rows.unpack(position["text"])

    def measure_lag(self) -> float | None:
        feed = self._feed
        if self._file is None or self._packed or not feed.n_rows:
            return 0.0 if self._file is None and not self.options.follow else None
        bytes_a_row = (feed.offset - feed.begun) / feed.n_rows
        return max(0, os.fstat(self._file.fileno()).st_size - feed.offset) / max(bytes_a_row, 1.0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._raw.close()
        self._file = None


def find_kind(path: Path) -> str | None:
    """The format that a file's suffix tells; that of packing does not."""
    suffixes = [s.lower() for s in path.suffixes if s.lower() != ".gz"]
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def _order(path: Path) -> list[tuple[int, int, str]]:
    """The place of a file in its folder: by name, but part-9 comes before part-10."""
    return [(0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in re.split(r"(\d+)", path.name) if part]


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:32]


def _holds(path: Path, position: Position) -> bool:
    """Whether a file is the one that a position is of."""
    if not path.is_file():
        return False
    n_bytes = int(position["head"])
    with path.open("rb") as raw:
        try:
            head = gzip.GzipFile(fileobj=raw).read(n_bytes) if is_packed(raw) else raw.read(n_bytes)
        except (OSError, EOFError, zlib.error):
            return False
    return bool(_digest(head) == position["digest"])
