"""Redis Streams as a source: a consumer group, acknowledged after checkpoints, so that no entry is lost and none is learned twice."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from undirected.errors import DataError, MissingExtra, ParameterError, check_number
from undirected.streaming.patience import Patience
from undirected.streaming.rows import Row, Unreadable
from undirected.streaming.sources import Batch, Options, Position, hide_password, split_address
from undirected.streaming.text_rows import TextRows

SETTINGS = ("stream", "group", "consumer", "field", "claim")
AT_ONCE = 1000  # entries asked for, or acknowledged, in one call
LONGEST_BLOCK = 1.0  # seconds that the server is let wait
Entry = tuple[str, dict[str, str] | None]


class RedisSource:
    """The entries of a stream, whose fields are cells by name; or, with ``field=``, one field of which holds the row as text.

    A position names the entries that were handed out but not acknowledged. After a restart the entries of the position are
    not learned again, and the others that this consumer was given come again, in their order. Entries that another consumer of the group
    left for ``claim`` seconds (60) are taken over. Processes that share a group need a ``consumer`` name each.
    """

    def __init__(self, address: str, options: Options) -> None:
        server, database, settings = split_address(address, SETTINGS)
        self.name, self.options = hide_password(address), options
        if not settings.get("stream"):
            raise ParameterError(f"{self.name}: name the stream, as in redis://127.0.0.1:6379/0?stream=clicks")
        self.stream, self.group = settings["stream"], settings.get("group") or "undirected"
        self.consumer, self.field = settings.get("consumer") or "undirected", settings.get("field")
        self.claim = _read_seconds(self.name, settings.get("claim", "60"))
        if options.format and not self.field:
            raise ParameterError(f"{self.name}: --format is for text in one field; name it, as in ?stream={self.stream}&field=row")
        self._text = TextRows(options.format or "jsonl", False) if self.field else None
        self._redis = _find_redis()
        self.identity = f"{server.rpartition('@')[2]}/{database or 0} {self.stream} {self.group} {self.consumer}"
        how: dict[str, Any] = {
            "decode_responses": True,
            "encoding_errors": "surrogateescape",
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
        }
        try:
            self._server = self._redis.Redis.from_url(f"{server}/{database}", **how)
        except ValueError as error:
            raise ParameterError(f"{self.name}: {error}") from None
        away = (self._redis.exceptions.ConnectionError, self._redis.exceptions.TimeoutError, self._redis.exceptions.BusyLoadingError)
        self._patience = Patience(self.name, away, options.tell, options.stop)
        self._last = "0-0"  # the newest entry that was handed out
        self._learned: deque[str] = deque()  # handed out, not acknowledged yet
        self._again: deque[Entry] = deque()  # given to this consumer before, to be handed out now
        self._claimed_at = -float("inf")
        try:
            self._make_group()
        except away as error:
            raise DataError(f"{self.name} cannot be reached ({error}); is the server running?") from None
        self._recall(())

    @property
    def names(self) -> list[str] | None:
        return None if self._text is None else self._text.names

    def _make_group(self) -> None:
        try:
            self._server.xgroup_create(self.stream, self.group, id="0", mkstream=True)
        except self._redis.exceptions.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise DataError(f"{self.name}: {error}") from None

    def _call(self, call: Callable[[], Any], timeout: float) -> Any:
        """Ask the server, as often as it takes, or until the time is up: then None."""
        try:
            return self._patience.attempt(call, timeout)
        except self._redis.exceptions.ResponseError as error:
            if "NOGROUP" in str(error):  # the stream or its group was deleted
                self.options.tell(f"{self.name}: the consumer group is gone; it is made anew")
                self._patience.attempt(self._make_group, timeout)
                return None
            raise DataError(f"{self.name}: {error}") from None

    # -- reading
    def read(self, max_rows: int, timeout: float) -> Batch:
        limit = time.monotonic() + timeout
        rows: list[Row | Unreadable] = []
        while len(rows) < max_rows:
            left = max(0.0, limit - time.monotonic())
            entries = self._take_again(max_rows - len(rows)) or self._read_new(max_rows - len(rows), 0.0 if rows else left)
            if not entries:
                if rows or not self.options.follow or left <= 0:
                    break
                continue
            self._settle(entries)
            for key, fields in entries:
                self._learned.append(key)
                self._last = max(self._last, key, key=_order)
                rows.append(self._parse(key, fields))
        return Batch(rows, ended=not rows and not self.options.follow and self._was_empty)

    def _take_again(self, most: int) -> list[Entry]:
        if not self._again and time.monotonic() - self._claimed_at >= max(1.0, self.claim / 2):
            self._claimed_at = time.monotonic()
            self._hold()
            self._claim()
        return [self._again.popleft() for _ in range(min(most, len(self._again)))]

    def _read_new(self, most: int, wait: float) -> list[Entry]:
        block = int(1000 * min(wait, LONGEST_BLOCK)) if self.options.follow else 0
        ask = partial(self._server.xreadgroup, self.group, self.consumer, {self.stream: ">"}, count=min(most, AT_ONCE), block=block or None)
        found = self._call(ask, max(wait, 0.0) if self.options.follow else float("inf"))
        self._was_empty = found is not None and not found
        entries: list[Entry] = found[0][1] if found else []
        return entries

    _was_empty = False

    def _settle(self, entries: list[Entry]) -> None:
        """Find out by the first entries how to read their text."""
        if self._text is not None and self.field is not None and not self._text.settled:
            self._text.settle([fields[self.field] for _, fields in entries if fields and self.field in fields])

    def _parse(self, key: str, fields: dict[str, str] | None) -> Row | Unreadable:
        if fields is None:
            return Unreadable(key, "the entry was deleted from the stream before it was learned")
        if any(not text.isascii() and _is_torn(text) for text in (*fields, *fields.values())):
            return Unreadable(key, "the entry is not UTF-8 text")
        if self._text is None or self.field is None:
            return fields
        if self.field not in fields:
            return Unreadable(key, f"the entry has no field {self.field!r}")
        return self._text.parse_message(fields[self.field])

    # -- positions
    @property
    def position(self) -> Position:
        return {"last": self._last, "learned": list(self._learned), "text": None if self._text is None else self._text.pack()}

    def seek(self, position: Position) -> None:
        self._last, self._learned = position["last"], deque(position["learned"])
        if self._text is not None and position["text"] is not None:
            self._text.unpack(position["text"])
        self._recall(position["learned"])

    def _recall(self, learned: Any) -> None:
        """Find the entries that this consumer was given and that are in no checkpoint."""
        known, after, self._again = set(learned), "0-0", deque()
        while True:
            ask = partial(self._server.xreadgroup, self.group, self.consumer, {self.stream: after}, count=AT_ONCE)
            found = self._call(ask, float("inf"))
            entries: list[Entry] = found[0][1] if found else []
            if not entries:
                return
            after = entries[-1][0]
            self._again.extend((key, fields or None) for key, fields in entries if key not in known)

    def _hold(self) -> None:
        """Say that the entries at hand are not left lying, though they wait for their checkpoint."""
        keys = [*self._learned, *(key for key, _ in self._again)]
        for at in range(0, len(keys), AT_ONCE):
            some = keys[at : at + AT_ONCE]
            self._call(partial(self._server.xclaim, self.stream, self.group, self.consumer, 0, some, justid=True), 0.0)

    def _claim(self) -> None:
        """Take over what other consumers of the group have left lying."""
        idle = int(1000 * self.claim)
        others = self._call(partial(self._server.xpending, self.stream, self.group), 0.0)
        for other in (others or {}).get("consumers", ()):
            if other["name"] == self.consumer:
                continue
            ask = partial(self._server.xpending_range, self.stream, self.group, "-", "+", AT_ONCE, consumername=other["name"], idle=idle)
            known = set(self._learned)
            keys = [key for one in self._call(ask, 0.0) or () if (key := one["message_id"]) not in known]
            if keys:
                taken = self._call(partial(self._server.xclaim, self.stream, self.group, self.consumer, idle, keys), 0.0) or []
                self._again.extend(entry for entry in taken if entry[0] is not None)
                self.options.tell(f"{self.name}: took over {len(taken):,} entries that consumer {other['name']!r} had left")

    def acknowledge(self, position: Position) -> None:
        keys: list[str] = list(position["learned"])
        done = set(keys)
        while keys:
            some, keys = keys[:AT_ONCE], keys[AT_ONCE:]
            self._call(partial(self._server.xack, self.stream, self.group, *some), float("inf"))
        self._learned = deque(itertools.filterfalse(done.__contains__, self._learned))

    def measure_lag(self) -> float | None:
        groups = self._call(partial(self._server.xinfo_groups, self.stream), 0.0) or ()
        own: dict[str, Any] = next((group for group in groups if group["name"] == self.group), {})
        lag = own.get("lag")
        return None if lag is None else float(lag) + len(self._again)

    def close(self) -> None:
        self._server.close()


def _is_torn(text: str) -> bool:
    """Whether bytes that are no UTF-8 came in a text."""
    return any("\udc80" <= letter <= "\udcff" for letter in text)


def _order(key: str) -> tuple[int, int]:
    """The place of an entry in its stream."""
    first, _, second = key.partition("-")
    return int(first), int(second or 0)


def _read_seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ParameterError(f"{name}: claim={text!r} is not a number of seconds") from None
    check_number("claim", seconds, 0)
    return seconds


def _find_redis() -> Any:
    try:
        import redis
    except ImportError:
        raise MissingExtra("reading from Redis needs another library: pip install 'undirected[stream]'") from None
    return redis
