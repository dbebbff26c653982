"""The work of a comparison: a folder that keeps finished cells, and processes that fill in the others."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from undirected.errors import DataError, ParameterError
from undirected.evaluation.cell import HEADER_BYTES, Job, find_tuned, is_scored
from undirected.store import OwnedFile, check_writable
from undirected.work import StoppedBy

Row = dict[str, Any]
WAIT_FOR_PROCESSES = 20.0  # seconds that the processes of a killed comparison may take to notice


def find_finished(job: Job) -> Row | None:
    """The row of a cell, if the folder holds it and it was made of the same things; failed cells are tried again."""
    row = find_tuned(job)
    return row if row is not None and is_scored(job, row) else None


class CellRunner:
    """Lanes of cells, several at a time, each cell in a process of its own; the cells of a lane, which share a ledger, run one
    after the other."""

    def __init__(self, lanes: list[list[Job]], report: Callable[[Row], None], lock: int | None) -> None:
        self._waiting = iter(lanes)
        self._report, self._lock = report, lock
        self._guard = threading.RLock()  # around everything below, and around reporting
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._trouble: BaseException | None = None

    def run(self, jobs: int) -> None:
        """To the end, or until something raises or Ctrl-C is pressed; no process is left behind."""
        threads = [threading.Thread(target=self._run_lanes, daemon=True) for _ in range(jobs)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a join without a limit would not see Ctrl-C everywhere
                    thread.join(0.2)
        finally:
            self._stop()
            for thread in threads:
                thread.join()
        if self._trouble is not None:
            raise self._trouble

    def _stop(self) -> None:
        with self._guard:
            self._stopped = True
            for process in self._running:
                process.kill()

    def _run_lanes(self) -> None:
        while not self._stopped:
            with self._guard:
                lane = next(self._waiting, [])
            if not lane:
                return
            try:
                for job in lane:
                    row = self._run_cell(job)
                    with self._guard:
                        if self._stopped:
                            return
                        self._report(row)
            except BaseException as error:
                self._trouble = error
                self._stop()

    def _run_cell(self, job: Job) -> Row:
        try:
            content = pickle.dumps(job)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ParameterError(f"{job.label} cannot be sent to a process of its own: {error}") from None
        with self._guard:
            if self._stopped:
                return job.make_failure("stopped")
            process = _start_process(self._lock)
            self._running.add(process)
        with process:
            assert process.stdin is not None
            assert process.stderr is not None
            with contextlib.suppress(BrokenPipeError):  # it ended before reading; its exit code tells more
                process.stdin.write(len(content).to_bytes(HEADER_BYTES, "little") + content)
                process.stdin.flush()
            remarks = process.stderr.read().decode(errors="replace")
            code = process.wait()
        with self._guard:
            self._running.discard(process)
        if code == 0:
            found: Row = json.loads(job.row_file.read_text("utf8"))["row"]
            return found
        last = (remarks.strip().splitlines() or [""])[-1]
        if code < 0:
            return job.make_failure(f"killed by signal {-code}, perhaps for want of memory. {last}")
        return job.make_failure(f"ended with code {code}: {last}")


def _start_process(lock: int | None) -> subprocess.Popen[bytes]:
    """A process for a cell: it finds what this one finds, and Ctrl-C on the terminal is left to this one."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "undirected.evaluation.cell"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=() if lock is None else (lock,),
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[int | None]:
    """One comparison at a time in a folder. The processes of a cell hold the lock too, so that a comparison which follows a
    killed one waits until they are gone."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield None
        return
    try:
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be used: {error}") from None
    try:
        deadline = time.monotonic() + WAIT_FOR_PROCESSES
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DataError(f"another comparison is at work in {folder}; wait for it, or choose another folder") from None
                time.sleep(0.1)
        yield lock
    finally:
        os.close(lock)


class KeptJob(Protocol):
    """A piece of a comparison that makes one row."""

    def find_file(self, folder: Path) -> OwnedFile:
        """Where the finished row is kept."""

    def run(self) -> Row:
        """Make the row."""


class KeptResults(Protocol):
    """The rows of a comparison, and whether all are there."""

    rows: list[Row]
    complete: bool

    def save(self, folder: Path) -> None:
        """Write tables of the rows."""


def run_kept(found: KeptResults, jobs: Sequence[KeptJob], folder: Path | None, part: str, report: Callable[[int, Row], None]) -> None:
    """Run jobs one after another and gather their rows in ``found``. With a folder, finished rows are kept in its ``part``, so that
    the work goes on where it was stopped, by Ctrl-C or a kill; Ctrl-C before the first row is passed on."""
    if folder is None:
        return _run_each(found, jobs, None, report)
    try:
        (folder / part).mkdir(parents=True, exist_ok=True)
        check_writable(folder / part / "new")
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be used: {error}") from None
    with lock_folder(folder):
        _run_each(found, jobs, folder, report)


def _run_each(found: KeptResults, jobs: Sequence[KeptJob], folder: Path | None, report: Callable[[int, Row], None]) -> None:
    found.complete = False
    try:
        for k, job in enumerate(jobs, 1):
            file = None if folder is None else job.find_file(folder)
            kept = None if file is None else file.load_own()
            row = kept["row"] if kept is not None else job.run()
            if row.get("stopped_by") == StoppedBy.INTERRUPT:  # the learner has given its best so far, which is not to be kept
                raise KeyboardInterrupt
            found.rows.append(row)
            if file is not None and kept is None:
                assert folder is not None
                file.save({"row": row})
                found.save(folder)
            report(k, row)
        found.complete = True
    except KeyboardInterrupt:
        if not found.rows:
            raise
    if folder is not None:
        found.save(folder)


def make_file_name(*parts: str) -> str:
    """A file name from names that may hold anything; names that had to be changed get a fingerprint."""
    plain = "--".join(re.sub(r"[^\w.+-]", "_", part) for part in parts)
    given = "--".join(parts)
    return plain if plain == given else f"{plain[:80]}--{hashlib.sha256(given.encode()).hexdigest()[:10]}"
