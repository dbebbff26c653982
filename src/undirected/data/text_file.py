"""Files of text that are gone through piece by piece, in memory that does not grow with the file."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from undirected.data.files import NO_LIMIT, choose_encoding, is_packed, tell_undecodable, tell_unknown_encoding, unpack_blocks
from undirected.errors import DataError, FormatError

BLOCK_BYTES = 1 << 20  # read at a time
MAX_LINE_BYTES = 64 << 20  # a line is held in memory as a whole


class TextFile:
    """A file of text, plain or ``.gz``, that can be gone through as often as needed.

    Its bytes are checked once, when it is opened: that they unpack, that they are text, and that no line is too long. Every later pass
    makes sure that the file is still the same.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.name = str(path)
        self.size = path.stat().st_size
        self._stamp = _stamp(path)
        with self.open() as file:
            start = file.read(4)
        self._chosen = choose_encoding(start, encoding)
        self.encoding = _spell_out(self._chosen, start)
        self._check(encoding)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file, unpacked, for one pass."""
        if _stamp(self.path) != self._stamp:
            raise tell_changed(self.name)
        try:
            with self.path.open("rb") as file:
                if is_packed(file):
                    with gzip.GzipFile(fileobj=file) as unpacked:
                        yield unpacked  # type: ignore[misc]
                else:
                    yield file
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{self.path}: cannot be read ({error})") from None

    def blocks(self) -> Iterator[bytes]:
        """Go through the bytes, unpacked; a packed file out of all proportion is refused."""
        try:
            with self.path.open("rb") as file:
                if is_packed(file):
                    yield from unpack_blocks(self.path, file, self.size, NO_LIMIT, BLOCK_BYTES)
                else:
                    while block := file.read(BLOCK_BYTES):
                        yield block
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{self.path}: cannot be read ({error})") from None

    def lines(self) -> Iterator[str]:
        """Go through the lines of text; each ends with the mark that it has in the file."""
        with self.open() as file, io.TextIOWrapper(file, encoding=self.encoding, newline="") as text:
            yield from text

    def _check(self, given: str | None) -> None:
        """Raise for an empty file, for bytes that are no text, and for lines that are too long."""
        try:
            b"".decode(self.encoding)
            decoder = codecs.getincrementaldecoder(self.encoding)()
        except LookupError:
            raise tell_unknown_encoding(given) from None
        before, lines, since_break, empty = 0, 0, 0, True
        for block in self._with_last(self.blocks()):
            empty = empty and not block.strip()
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = before + len(block) - len(error.object) + error.start  # the object ends where the block does
                begun = error.object[error.start : error.start + before - at].count(b"\n") if at < before else 0  # in the block before
                line = lines - begun + block.count(b"\n", 0, max(0, at - before)) + 1
                raise tell_undecodable(self.name, self._chosen, given, line, at) from None
            except ValueError as error:
                raise FormatError(f"{self.name}: not {self._chosen.upper()} text ({error})") from None
            before, lines = before + len(block), lines + block.count(b"\n")
            since_break = len(block) - 1 - end if (end := max(block.rfind(b"\n"), block.rfind(b"\r"))) >= 0 else since_break + len(block)
            if since_break > MAX_LINE_BYTES:
                raise FormatError(f"{self.name}, line {lines + 1}: a line of more than {MAX_LINE_BYTES:,} bytes; is this a table of text?")
        if empty:
            raise DataError(f"{self.name} is empty")

    @staticmethod
    def _with_last(blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Add an empty block that tells the end."""
        yield from blocks
        yield b""


def tell_changed(name: str) -> DataError:
    """Make the error for a file that is not what it was when it was opened."""
    return DataError(f"{name} has changed since it was opened; open it again")


def _stamp(path: Path) -> tuple[int, int]:
    """Tell a file from its later versions."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _spell_out(encoding: str, start: bytes) -> str:
    """Name the byte order of UTF-16 and UTF-32 without a mark, as it would be taken if the file were decoded at once."""
    try:
        plain = codecs.lookup(encoding).name
    except LookupError:
        return encoding
    marks = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}
    if plain not in marks or start.startswith(marks[plain]):
        return encoding
    return f"{plain}-{'le' if sys.byteorder == 'little' else 'be'}"
