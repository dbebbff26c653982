"""Kafka as a source: partitions are read from the positions of the checkpoint, and offsets are committed only after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from undirected.errors import DataError, MissingExtra, ParameterError
from undirected.streaming.patience import Patience
from undirected.streaming.rows import Row, Unreadable
from undirected.streaming.sources import Batch, Options, Position, hide_password, split_address
from undirected.streaming.text_rows import TextRows

SETTINGS = ("group", "partitions", "start")
ANSWER_SECONDS = 10.0  # that a broker may take over a question
LONGEST_POLL = 0.5  # seconds between two looks at what else there is to do


class _Away(Exception):
    """The broker does not answer."""


class KafkaSource:
    """The messages of a topic, each a row as text: a JSON object, or a line of CSV, TSV or a basket.

    A position is the next offset of each partition, and decides where a restart goes on; the offsets that are committed for the group
    only tell others how far this is. ``start=latest`` begins with messages that come from now on. Messages of several partitions
    come in the order in which the broker gives them; only within one partition is it always the same.
    """

    def __init__(self, address: str, options: Options, config: dict[str, Any] | None = None) -> None:
        _, path, settings = split_address(address, SETTINGS)
        self.name, self.options = hide_password(address), options
        if not path or "/" in path:
            raise ParameterError(f"{self.name}: name one topic, as in kafka://127.0.0.1:9092/clicks")
        if settings.get("start", "earliest") not in ("earliest", "latest"):
            raise ParameterError(f"{self.name}: start is earliest or latest")
        self.topic, self._kafka = path, _find_kafka()
        self._text = TextRows(options.format or "jsonl", False)
        self.identity = f"kafka {self.topic}"
        self._patience = Patience(self.name, (_Away,), options.tell, options.stop)
        server = urlsplit(address).netloc
        self._consumer = self._kafka.Consumer({
            "bootstrap.servers": server, "group.id": settings.get("group") or "undirected", "enable.auto.commit": False,
            "enable.partition.eof": True, "auto.offset.reset": "error", "log_level": 0, "error_cb": self._hear_error, **(config or {}),
        })  # fmt: skip
        self._ended: set[int] = set()
        self._next = self._find_beginning(settings)
        self._assign()

    @property
    def names(self) -> list[str] | None:
        return self._text.names

    def _hear_error(self, error: Any) -> None:
        if error.code() in (self._kafka.KafkaError._ALL_BROKERS_DOWN, self._kafka.KafkaError._TRANSPORT):
            self._patience.note_away(error.str())

    def _find_beginning(self, settings: dict[str, str]) -> dict[int, int]:
        """The partitions to read, each with its first or its next offset."""
        try:
            found = self._consumer.list_topics(self.topic, timeout=ANSWER_SECONDS).topics[self.topic]
        except self._kafka.KafkaException as error:
            raise DataError(f"{self.name} cannot be reached ({error.args[0].str()}); is the broker running?") from None
        if found.error is not None or not found.partitions:
            raise DataError(
                f"{self.name}: there is no topic {self.topic!r} ({found.error.str() if found.error else 'it has no partitions'})"
            )
        wanted = sorted(found.partitions)
        if settings.get("partitions"):
            try:
                wanted = sorted({int(text) for text in settings["partitions"].split(",")})
            except ValueError:
                raise ParameterError(f"{self.name}: partitions={settings['partitions']!r} is not a list of numbers") from None
            strange = [p for p in wanted if p not in found.partitions]
            if strange:
                raise DataError(f"{self.name} has {len(found.partitions)} partitions; {strange[0]} is none of them")
        last = settings.get("start") == "latest"
        return {p: self._find_ends(p)[1 if last else 0] for p in wanted}

    def _find_ends(self, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one that comes next."""
        try:
            first, following = self._consumer.get_watermark_offsets(self._kafka.TopicPartition(self.topic, partition), ANSWER_SECONDS)
        except self._kafka.KafkaException as error:
            raise DataError(f"{self.name}: partition {partition} does not answer ({error.args[0].str()})") from None
        return first, following

    def _assign(self) -> None:
        self._consumer.assign([self._kafka.TopicPartition(self.topic, p, offset) for p, offset in self._next.items()])
        self._ended = set()

    # -- reading
    def read(self, max_rows: int, timeout: float) -> Batch:
        limit = time.monotonic() + timeout
        rows: list[Row | Unreadable] = []
        while len(rows) < max_rows:
            left = max(0.0, limit - time.monotonic())
            messages = self._consumer.consume(max_rows - len(rows), 0.0 if rows else min(left, LONGEST_POLL))
            rows += self._list_rows(messages)
            if not self.options.follow and len(self._ended) == len(self._next) and not rows:
                return Batch([], ended=True)
            if not messages and (rows or left <= 0):
                break
        return Batch(rows)

    def _list_rows(self, messages: list[Any]) -> Iterator[Row | Unreadable]:
        if not self._text.settled:
            texts = [self._decode(message.value()) for message in messages if message.error() is None]
            if texts:
                self._text.settle([text for text in texts if isinstance(text, str)])
        for message in messages:
            error, partition = message.error(), message.partition()
            if error is not None:
                self._hear(error, partition)
                continue
            self._patience.note_back()
            if message.offset() < self._next[partition]:
                continue  # delivered again
            self._next[partition] = message.offset() + 1
            self._ended.discard(partition)
            text = self._decode(message.value())
            yield text if isinstance(text, Unreadable) else self._text.parse_message(text)

    def _hear(self, error: Any, partition: int) -> None:
        codes = self._kafka.KafkaError
        if error.code() == codes._PARTITION_EOF:
            self._patience.note_back()
            self._ended.add(partition)
        elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            first = self._find_ends(partition)[0]
            raise DataError(
                f"{self.name}: partition {partition} no longer has offset {self._next[partition]:,}; the first is {first:,}. "
                "The broker has deleted what was not read; begin anew with another checkpoint"
            )
        elif error.retriable() or error.code() in (codes._ALL_BROKERS_DOWN, codes._TRANSPORT):
            self._patience.note_away(error.str())
        else:
            raise DataError(f"{self.name}: {error.str()}")

    def _decode(self, value: bytes | None) -> str | Unreadable:
        try:
            return (value or b"").decode(self.options.encoding or "utf-8")
        except (UnicodeDecodeError, LookupError) as error:
            return Unreadable(repr(value), f"not text ({error})")

    # -- positions
    @property
    def position(self) -> Position:
        return {"offsets": {str(p): offset for p, offset in self._next.items()}, "text": self._text.pack()}

    def seek(self, position: Position) -> None:
        self._next |= {int(p): int(offset) for p, offset in position["offsets"].items() if int(p) in self._next}
        self._text.unpack(position["text"])
        self._assign()

    def acknowledge(self, position: Position) -> None:
        offsets = [self._kafka.TopicPartition(self.topic, int(p), offset) for p, offset in position["offsets"].items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except self._kafka.KafkaException as error:
            self._patience.note_away(error.args[0].str())

    def measure_lag(self) -> float | None:
        lag = 0
        for partition, offset in self._next.items():
            ends = self._consumer.get_watermark_offsets(self._kafka.TopicPartition(self.topic, partition), cached=True)
            if ends is None or ends[1] < 0:
                return None
            lag += max(0, ends[1] - offset)
        return float(lag)

    def close(self) -> None:
        self._consumer.close()


def _find_kafka() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise MissingExtra("reading from Kafka needs another library: pip install 'undirected[stream]'") from None
    return confluent_kafka
