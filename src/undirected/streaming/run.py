"""From a source to a network that is always there: rows become chunks, chunks are learned, and what survives a kill is written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from undirected import formats
from undirected.data.dataset import Dataset
from undirected.errors import DataError, FormatError, ParameterError, check_number
from undirected.network.network import MarkovNetwork
from undirected.store import Appended, check_writable
from undirected.streaming.checkpoint import CheckpointFile
from undirected.streaming.learner import StreamLearner
from undirected.streaming.rows import Unreadable, describe_fault, write_row
from undirected.streaming.sources import Batch, CheckpointWritten, Notice, Options, Source, open_stream
from undirected.work import Clock, Listener, _ignore

POLL_SECONDS = 0.5  # that a source may keep the loop waiting
KEEP = 2  # versions of the checkpoint
MOST_DRIFTS = 20  # that a checkpoint tells of

Measure = Callable[[MarkovNetwork, Dataset], float]


@dataclass
class StreamRun:
    """What came of a stream: the chunks and rows of this run and of all runs, and whether the source came to its end.

    ``resumed`` tells whether a checkpoint was taken up, ``ended`` whether the source came to its end (rather than being told to stop).
    """

    learner: StreamLearner
    chunks: int = 0
    rows: int = 0
    dead: int = 0
    resumed: bool = False
    ended: bool = False
    seconds: float = 0.0
    drifts: list[dict[str, Any]] = field(default_factory=list)


def learn_stream(
    learner: StreamLearner,
    source: Any,
    *,
    every: float | None = None,
    follow: bool = False,
    format: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
    network: str | os.PathLike[str] | None = None,
    metrics: str | os.PathLike[str] | None = None,
    dead_letter: str | os.PathLike[str] | None = None,
    cmll: Measure | None = None,
    cmll_every: int = 10,
    max_chunks: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    listener: Listener = _ignore,
    clock: Clock = time.monotonic,
) -> StreamRun:
    """Learn a stream until its source ends, or until told to ``stop``.

    Parameters
    ----------
    learner : StreamLearner
        A chunk has ``chunk_rows`` of its rows. With a checkpoint there, the learner takes up the state that it holds.
    source
        What `open_stream` takes: a path, an address, ``-``, or rows in Python.
    every : float, optional
        Seconds after which a chunk is learned though it is not full.
    follow, format, header, encoding
        How the source is read; ``follow`` waits for more at its end.
    checkpoint : path, optional
        A file that holds the state after every ``checkpoint_every`` chunks, together with the position in the source: a run that was
        killed at any moment goes on with no row lost and none learned twice. The version before it is kept as ``.1``.
    network : path, optional
        A file that holds the newest network, replaced whole after each chunk.
    metrics, dead_letter : path, optional
        JSON lines: the measures of each chunk, and the rows that could not be learned, with the reason.
    cmll : function, optional
        Called with the network so far and the rows of every ``cmll_every``-th chunk.
    max_chunks : int, optional
        Chunks after which to stop.
    stop : function
        Asked between steps whether to end. What was read but not learned yet is kept in the checkpoint.
    listener : function
        Told of every chunk, and of what happens to the source and to files.
    """
    if every is not None:
        check_number("every", every, 0, above=True)
    for name, value in (("checkpoint_every", checkpoint_every), ("cmll_every", cmll_every)):
        check_number(name, value, 1, whole=True)

    def tell(text: str) -> None:
        listener(Notice(text))

    if network is not None:
        formats.check_suffix(network, formats.WRITABLE)
        check_writable(network)
    keeper = None if checkpoint is None else CheckpointFile(Path(checkpoint), KEEP, tell)
    try:
        _check_distinct(source, checkpoint, network, metrics, dead_letter)
        opened = open_stream(source, Options(format, header, encoding, follow, tell, stop))
        try:
            loop = _Loop(learner, opened, keeper, network, listener, clock)
            loop.begin(metrics, dead_letter)
            loop.measure, loop.measure_every, loop.checkpoint_every = cmll, cmll_every, checkpoint_every
            return loop.run(every, max_chunks, stop)
        finally:
            opened.close()
    finally:
        if keeper is not None:
            keeper.close()


def _check_distinct(source: Any, *written: Any) -> None:
    """Raise where a file would be written twice, or over the source."""
    named = [Path(path).resolve() for path in (source, *written) if isinstance(path, str | os.PathLike)]
    for k, path in enumerate(named):
        if path in named[:k] and (path.is_file() or not path.exists()):
            raise ParameterError(f"{path} is named twice; source, checkpoint, network, metrics and dead letters are files of their own")


class _Loop:
    """One run over a source."""

    measure: Measure | None
    measure_every: int
    checkpoint_every: int

    def __init__(
        self, learner: StreamLearner, source: Source, keeper: CheckpointFile | None, network: Any, listener: Listener, clock: Clock
    ) -> None:
        self.learner, self.source, self.keeper, self.network = learner, source, keeper, network
        self.listener, self.clock = listener, clock
        self.result = StreamRun(learner)
        self._metrics: Appended | None = None
        self._dead: Appended | None = None
        self._acknowledged: list[Any] = []  # positions of checkpoints whose rows may still have to come again
        self._told_of_dead = self._network_failed = False
        self._first_row: float | None = None
        self._saved: Any = None  # what the last checkpoint was of
        self._lengths: dict[str, int] = {}  # of files that grow, by their paths, as the checkpoint has them

    def _tell(self, text: str) -> None:
        self.listener(Notice(text))

    def begin(self, metrics: Any, dead_letter: Any) -> None:
        """Take up the checkpoint, if there is one, and open the files that grow."""
        found = None if self.keeper is None else self.keeper.load()
        if found is not None:
            self._take_up(found.tree, found.arrays, str(found.path))
        else:
            self.learner.open()
        self.learner.set_names(self.source.names)
        self._metrics, self._dead = self._open(metrics), self._open(dead_letter)
        if found is None:
            self._save()  # so that a run that is killed early knows its files again

    def _open(self, path: Any) -> Appended | None:
        return None if path is None else Appended(Path(path), self._lengths.get(str(Path(path).resolve())), self._tell)

    def _take_up(self, tree: Any, arrays: Any, name: str) -> None:
        try:
            state, source = tree["state"], tree["source"]
            self._lengths = {str(path): int(length) for path, length in tree["lengths"].items()}
            self.result.drifts, self.result.dead = list(tree["drifts"]), int(tree["dead"])
            same = source["identity"] == self.source.identity
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{name} is not a stream's checkpoint ({error!r}); name another file or delete it") from None
        self.learner.take_up(state, arrays, name)
        self.result.resumed = True
        if same:
            try:
                self.source.seek(source["position"])
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                if isinstance(error, DataError):
                    raise
                raise FormatError(f"{name} has no position that fits {self.source.name} ({error!r})") from None
        else:
            self._tell(f"the checkpoint was reading {source['name']}; {self.source.name} is another source, and all that it has is new")

    def run(self, every: float | None, max_chunks: int | None, stop: Callable[[], bool]) -> StreamRun:
        began = self.clock()
        self._first_row = began if self.learner.waiting_ else None
        try:
            while not stop() and (max_chunks is None or self.result.chunks < max_chunks):
                room = int(self.learner.chunk_rows) - len(self.learner.waiting_)
                batch = self.source.read(room, self._find_wait(every)) if room > 0 else Batch([])
                self._take(batch)
                waiting, late = len(self.learner.waiting_), every is not None and self._find_age() >= every
                if waiting and (waiting >= self.learner.chunk_rows or late or batch.ended):
                    self._learn()
                if batch.ended:
                    self.result.ended = True
                    break
            self._save()
        finally:
            self.result.seconds = self.clock() - began
            for file in (self._metrics, self._dead):
                if file is not None:
                    file.close()
        return self.result

    def _find_age(self) -> float:
        """Seconds since the first waiting row came."""
        return 0.0 if self._first_row is None else self.clock() - self._first_row

    def _find_wait(self, every: float | None) -> float:
        return POLL_SECONDS if every is None or self._first_row is None else min(POLL_SECONDS, max(0.0, every - self._find_age()))

    def _take(self, batch: Batch) -> None:
        good, bad = [], []
        for row in batch.rows:
            fault = describe_fault(row)
            if isinstance(row, Unreadable):
                bad.append({"reason": row.reason, "text": row.text})
            elif fault is not None:
                bad.append({"reason": fault, "row": write_row(row)})
            else:
                good.append(self.learner.name_cells(row, self.source.names))
        self._bury(bad, self.learner.n_chunks_ + 1)
        self.result.rows += len(batch.rows)
        self.learner.waiting_ += good
        if self._first_row is None and good:
            self._first_row = self.clock()

    def _bury(self, records: list[dict[str, Any]], chunk: int) -> None:
        """Put rows that cannot be learned where they can be found."""
        if not records:
            return
        self.result.dead += len(records)
        if self._dead is not None:
            self._dead.append({"chunk": chunk, **record} for record in records)
        if not self._told_of_dead:
            where = "--dead-letter FILE keeps such rows" if self._dead is None else f"kept in {self._dead.path}"
            self._tell(f"a row was left out: {records[0]['reason']} ({where}; from now on they are only counted)")
            self._told_of_dead = True

    def _learn(self) -> None:
        learner = self.learner
        learner.set_names(self.source.names)
        rows = list(learner.waiting_)
        number, cmll = learner.n_chunks_ + 1, None
        if self.measure is not None and number > 1 and number % self.measure_every == 0:
            cmll = self._measure(rows)
        before = learner.n_chunks_
        learner.flush()
        self._first_row = None
        self._bury([{"reason": one.reason, "row": write_row(rows[one.row])} for one in learner.rejected_], number)
        if learner.n_chunks_ == before:
            self._tell(
                f"none of {len(rows):,} rows could be learned: {learner.rejected_[0].reason if learner.rejected_ else 'they are empty'}"
            )
            return
        self.result.chunks += 1
        assert learner.last_ is not None
        learner.last_ = report = replace(learner.last_, lag=self._find_lag(), cmll=cmll, dead=self.result.dead)
        if report.drift:
            self.result.drifts = [*self.result.drifts, {"chunk": report.chunk, "text": report.drift}][-MOST_DRIFTS:]
        if self._metrics is not None:
            self._metrics.append([report.to_dict()])
        self._write_network()
        if self.result.chunks % self.checkpoint_every == 0:
            self._save()
        self.listener(report)

    def _find_lag(self) -> float | None:
        lag = self.source.measure_lag()
        return None if lag is None else float(round(lag))

    def _measure(self, rows: list[Any]) -> float | None:
        try:
            assert self.measure is not None
            return self.measure(self.learner.network_, self.learner.code_rows(rows))
        except DataError:  # none of the rows can be scored
            return None

    def _write_network(self) -> None:
        if self.network is None:
            return
        try:
            self.learner.network_.save(self.network)
        except DataError as error:
            if not self._network_failed:
                self._tell(f"{error}. Learning goes on, and the next chunk tries again")
            self._network_failed = True
        else:
            self._network_failed = False

    def _save(self) -> None:
        """Write the checkpoint, and tell the source which rows need never come again: those of the oldest checkpoint that is kept."""
        position = self.source.position
        now = (position, self.learner.n_chunks_)
        if self._saved == now:
            return
        if self.keeper is None:
            self.source.acknowledge(position)
            self._saved = now
            return
        state, arrays = self.learner.pack()
        tree = {
            "state": state, "drifts": self.result.drifts, "dead": self.result.dead,
            "source": {"name": self.source.name, "identity": self.source.identity, "position": position},
            "lengths": self._lengths | {str(file.path.resolve()): file.length for file in (self._metrics, self._dead) if file is not None},
        }  # fmt: skip
        if self.keeper.save(tree, arrays):
            self._saved = now
            self.listener(CheckpointWritten())
            self._acknowledged.append(position)
            if len(self._acknowledged) == KEEP:
                self.source.acknowledge(self._acknowledged.pop(0))
