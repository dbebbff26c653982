"""The work of a comparison: a folder that keeps finished cells, and processes that fill in the others."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from undirected.errors import DataError, ParameterError
from undirected.evaluation.cell import LENGTH, Job

Row = dict[str, Any]
Told = Callable[[Row], None]
SETTLE_SECONDS = 20.0  # how long the processes of a killed comparison may take to notice


def finished(job: Job) -> Row | None:
    """The row of a cell, if the folder holds it and it was made of the same things; failed cells are tried again."""
    try:
        found = json.loads(job.row_file.read_text("utf8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{job.row_file} is not a finished cell ({error}); delete it") from None
    row: Row = found["row"]
    return row if found["identity"] == job.identity() and "error" not in row else None


def work(lanes: list[list[Job]], jobs: int, folder: Path, told: Told) -> None:
    """Run lanes of cells, ``jobs`` lanes at a time; the cells of a lane, which share a ledger, one after the other."""
    with locked(folder) as lock:
        waiting = iter(lanes)
        taking = threading.Lock()
        running: set[subprocess.Popen[bytes]] = set()
        trouble: list[BaseException] = []

        def worker() -> None:
            while not trouble:
                with taking:
                    lane = next(waiting, None)
                if lane is None:
                    return
                try:
                    for job in lane:
                        if not trouble:
                            told(_one(job, running, lock))
                except BaseException as error:
                    trouble.append(error)

        threads = [threading.Thread(target=worker, daemon=True) for _ in range(min(jobs, len(lanes)))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a join without a limit would not see Ctrl-C everywhere
                    thread.join(0.2)
        except BaseException as error:
            trouble.append(error)
            raise
        finally:
            if trouble:
                for process in list(running):
                    process.kill()
        if trouble:
            raise trouble[0]


def _one(job: Job, running: set[subprocess.Popen[bytes]], lock: int | None) -> Row:
    try:
        content = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ParameterError(f"{job.label} cannot be sent to a process of its own: {error}") from None
    process = subprocess.Popen(
        [sys.executable, "-m", "undirected.evaluation.cell"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        pass_fds=() if lock is None else (lock,),
    )  # fmt: skip
    running.add(process)
    try:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # it ended before reading; its exit code tells more
            process.stdin.write(len(content).to_bytes(LENGTH, "little") + content)
            process.stdin.flush()
        remarks = process.stderr.read().decode(errors="replace")
        code = process.wait()
    finally:
        running.discard(process)
        for pipe in (process.stdin, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
    if code == 0:
        found: Row = json.loads(job.row_file.read_text("utf8"))["row"]
        return found
    last = (remarks.strip().splitlines() or [""])[-1]
    why = f"killed by signal {-code}, perhaps for want of memory. {last}" if code < 0 else f"ended with code {code}: {last}"
    return {"learner": job.label, "dataset": job.tables.name, "fraction": job.fraction, "error": why}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int | None]:
    """One comparison at a time in a folder. The processes of a cell hold the lock too, so that a comparison which follows a
    killed one waits until they are gone."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield None
        return
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + SETTLE_SECONDS
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


def file_name(*parts: Any) -> str:
    """A file name from names that may hold anything."""
    return "--".join(re.sub(r"[^\w.+-]", "_", str(part)) for part in parts)
