"""Rows of a stream out of text that comes piece by piece: CSV, TSV, JSON lines and baskets."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from undirected.data.basket import ITEM_MARKS
from undirected.data.delimited import could_be_names, has_names, sniff_delimiter
from undirected.errors import ParameterError
from undirected.streaming.rows import Row, Unreadable

SAMPLE = 200  # lines from which it is found out whether the first one holds names, and what stands between cells
MOST_LINES = 100  # that a quoted cell may run over
OPEN = "unexpected end of data"  # what Python's csv says of a quoted cell that goes on
MOST_LINE_BYTES = 16 << 20  # of one line


class Lines:
    """Bytes, cut into lines of text; ``offset`` tells how many bytes the lines had that were taken."""

    def __init__(self, encoding: str | None, offset: int = 0) -> None:
        self.encoding = encoding or "utf-8"
        try:
            plain = "a\n".encode(self.encoding)
        except LookupError:
            raise ParameterError(f"the encoding {encoding!r} is not known; try utf-8, latin-1 or cp1252") from None
        if plain != b"a\n":
            raise ParameterError(f"text in {encoding!r} cannot be cut into lines as it comes; convert the stream to UTF-8")
        self.offset = offset
        self.whole = deque[bytes | int]()  # lines, or the size of one that is too long
        self.rest = b""
        self.skipped = 0  # bytes of a line that is too long, so far

    def add(self, block: bytes) -> None:
        """Take more bytes."""
        pieces = (self.rest + block).split(b"\n") if b"\n" in block else [self.rest + block]
        self.rest = pieces.pop()
        if self.skipped and pieces:
            self.whole.append(self.skipped + len(pieces.pop(0)) + 1)
            self.skipped = 0
        self.whole.extend(piece + b"\n" for piece in pieces)
        if len(self.rest) > MOST_LINE_BYTES:
            self.skipped, self.rest = self.skipped + len(self.rest), b""

    def end(self) -> None:
        """Take a last line that has no end, too."""
        if self.rest or self.skipped:
            self.whole.append(self.skipped + len(self.rest) if self.skipped else self.rest)
            self.rest, self.skipped = b"", 0

    def take(self) -> str | Unreadable:
        """The next whole line, without its end."""
        line = self.whole.popleft()
        first = self.offset == 0
        self.offset += line if isinstance(line, int) else len(line)
        return self.decode(line, first)

    def decode(self, line: bytes | int, first: bool = False) -> str | Unreadable:
        """A line as text; the ``first`` of its file may have a byte order mark."""
        if isinstance(line, int):
            return Unreadable("", f"a line of {line:,} bytes, longer than the {MOST_LINE_BYTES:,} that are read")
        line = line.removeprefix(b"\xef\xbb\xbf") if first else line
        try:
            return line.decode(self.encoding).rstrip("\r\n")
        except UnicodeDecodeError as error:
            return Unreadable(line.decode("latin-1").rstrip("\r\n"), f"not {self.encoding.upper()} text ({error.reason})")


class Feed:
    """Rows out of bytes that come piece by piece; ``offset`` tells how many bytes the rows had that were taken, ``n_rows`` how many."""

    def __init__(self, rows: TextRows, encoding: str | None, offset: int = 0) -> None:
        self.lines, self.rows = Lines(encoding, offset), rows
        self.begun = self.offset = offset
        self.n_rows = 0
        self.goes_on = False  # whether the bytes before the offset had no end for their line, which was taken all the same
        self._open: list[bytes | int] = []  # lines of a row whose quoted cell goes on

    def settle(self) -> None:
        """Find out, by the lines that are there, how to read them; a line of names is taken."""
        if self.rows.settled or not self.lines.whole:
            return
        sample = [self.lines.decode(line, not k) for k, line in enumerate(list(self.lines.whole)[:SAMPLE])]
        if not self.rows.settle([line for line in sample if isinstance(line, str)]):
            return
        while self.lines.whole:
            line = self.lines.take()
            if isinstance(line, Unreadable) or line.strip():
                break
        self.offset = self.lines.offset

    def take(self, max_rows: int) -> list[Row | Unreadable]:
        """Rows of the whole lines that are there."""
        out: list[Row | Unreadable] = []
        while self.lines.whole and len(out) < max_rows:
            raw = self.lines.whole[0]
            line = self.lines.take()
            if self.goes_on:  # the rest of a line that was taken before it had its end
                self.goes_on, self.offset = False, self.lines.offset
                if isinstance(line, str) and line.strip():
                    out.append(Unreadable(line, "the rest of a line that was read before it had its end"))
                continue
            row = line if isinstance(line, Unreadable) else self.rows.parse(line)
            if self.rows.open_lines:
                self._open.append(raw)
                continue
            if isinstance(row, Unreadable) and self._open:
                row = self._give_back([*self._open, raw], row.reason)
            if row is not None:
                out.append(row)
            self._open = []
            self.offset = self.lines.offset
        self.n_rows += len(out)
        return out

    def _give_back(self, lines: list[bytes | int], reason: str) -> Unreadable:
        """Of lines that make no row together only the first is lost: the others are looked at again."""
        self.lines.whole.extendleft(reversed(lines[1:]))
        self.lines.offset -= sum(line if isinstance(line, int) else len(line) for line in lines[1:])
        first = self.lines.decode(lines[0])
        return Unreadable(first if isinstance(first, str) else first.text, reason)

    def end(self) -> list[Row | Unreadable]:
        """What is left where no more bytes will come."""
        self.lines.end()
        self.settle()
        out = self.take(sys.maxsize)
        while self._open:
            left, lines, self._open = self.rows.give_up("a quoted cell has no end"), self._open, []
            if left is not None:
                out.append(self._give_back(lines, left.reason))
            out += self.take(sys.maxsize)
        self.offset = self.lines.offset
        return out


@dataclass
class TextRows:
    """How lines become rows; what is not said beforehand is settled by the first lines.

    A line that cannot be read is an `Unreadable`, and the next one is looked at. ``open`` holds a row whose quoted cell goes on.
    """

    format: str
    header: bool | None = None
    delimiter: str | None = None
    names: list[str] | None = None
    settled: bool = False
    open: str = ""
    open_lines: int = 0

    def settle(self, lines: Sequence[str]) -> bool:
        """Settle the mark between cells, and whether the first line holds names: returns whether it does."""
        self.settled = True
        lines = [line for line in lines if line.strip()]
        if self.format == "basket":
            found = {mark for line in lines for mark in ITEM_MARKS if mark in line}
            self.delimiter = next((mark for mark in ITEM_MARKS if mark in found), None)
        if self.format not in ("csv", "tsv") or not lines:
            return False
        self.delimiter = "\t" if self.format == "tsv" else sniff_delimiter(lines)
        rows = [row for row in map(self._split, lines) if isinstance(row, list)]
        if not rows:
            return False
        first = rows[0]
        usual = Counter(map(len, rows[1:])).most_common(1)[0][0] if len(rows) > 1 else len(first)
        if usual == len(first) + 1 and self.header is not False and could_be_names(first):
            self.names = ["", *(cell.strip() for cell in first)]  # nothing stands above row names
            return True
        others = [row for row in rows[1:] if len(row) == len(first)]
        if self.header if self.header is not None else has_names(first, others):
            self.names = [cell.strip() for cell in first]
            return True
        return False

    def parse_message(self, text: str) -> Row | Unreadable:
        """The row of a message, which holds one row as text and nothing else."""
        row = self.parse(text)
        return row if row is not None else self.give_up("a quoted cell has no end") or Unreadable(text, "the message is empty")

    def parse(self, line: str) -> Row | Unreadable | None:
        """The row of a line, without its end; None where the line is empty, or where the row goes on in the next one."""
        if self.format == "jsonl":
            return self._parse_json(line)
        if self.format == "basket":
            return self._parse_basket(line)
        text = f"{self.open}\n{line}" if self.open_lines else line
        row = self._split(text) if text.strip() else None
        if isinstance(row, Unreadable) and row.reason == OPEN:
            self.open, self.open_lines = text, self.open_lines + 1
            return self.give_up("a quoted cell has no end") if self.open_lines > MOST_LINES else None
        self.open, self.open_lines = "", 0
        return row

    def give_up(self, reason: str) -> Unreadable | None:
        """End a row whose quoted cell goes on."""
        text, lines = self.open, self.open_lines
        self.open, self.open_lines = "", 0
        return Unreadable(text, reason) if lines else None

    def _split(self, text: str) -> list[str] | Unreadable:
        try:
            rows = list(csv.reader([text], delimiter=self.delimiter or ",", skipinitialspace=True, strict=True))
        except csv.Error as error:
            return Unreadable(text, str(error))
        return rows[0] if len(rows) == 1 else Unreadable(text, "more than one row")

    @staticmethod
    def _parse_json(line: str) -> Row | Unreadable | None:
        if not line.strip():
            return None
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            return Unreadable(line, f"not JSON: {error}")
        return row if isinstance(row, dict | list) else Unreadable(line, "a JSON object or list is needed")

    def _parse_basket(self, line: str) -> Row | Unreadable | None:
        try:
            items = next(csv.reader([line], delimiter=self.delimiter, skipinitialspace=True), []) if self.delimiter else line.split()
        except csv.Error as error:
            return Unreadable(line, str(error))
        return frozenset({" ".join(item.split()) for item in items} - {""})

    def pack(self) -> dict[str, Any]:
        """What was settled, for a position."""
        return {"delimiter": self.delimiter, "names": self.names, "settled": self.settled}

    def unpack(self, tree: dict[str, Any]) -> None:
        """Take up what `pack` gave."""
        self.delimiter, self.names, self.settled = tree["delimiter"], tree["names"], bool(tree["settled"])
        self.open, self.open_lines = "", 0
