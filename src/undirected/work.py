"""What long work may use, when it must end, and whom it tells: threads, memory, a seed, a clock with a deadline, and events.

A `Work` is made once, where a user's call comes in, and is handed to everything below. Nothing below asks the system for the time
or for the number of cores, so that tests can bring a clock of their own.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from undirected.errors import ParameterError, check_number

MEMORY = 2 << 30  # bytes that the tables of one computation may take by default
WORTH_TELLING = 1.0  # seconds after which work of unknown length is told of


class StoppedBy(StrEnum):
    """Why work ended. The first two mean that it is complete."""

    TOLERANCE = "tolerance"
    CONVERGED = "converged"
    TIME = "time"
    INTERRUPT = "interrupt"
    ITERATIONS = "iterations"
    SWEEPS = "sweeps"
    GIVEN_UP = "given up"
    CLOSE = "close"


class Stopped(Exception):
    """Raised inside long work to leave it early; ``why`` says what ended it."""

    def __init__(self, why: StoppedBy) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class Event:
    """Something that happened in long work. Each kind has its figures as fields, and ``str(event)`` is a line for a terminal."""


@dataclass(frozen=True)
class Milestone(Event):
    """An event that deserves a line of its own: a part of the work has come to a result."""


@dataclass(frozen=True)
class Counted(Event):
    """So many of so many parts of a job are done."""

    what: str
    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.what}: {self.done:,} of {self.total:,}"


@dataclass(frozen=True)
class Ongoing(Event):
    """Something is still going on, and nobody knows how long it will take."""

    what: str
    seconds: float  # since it began

    def __str__(self) -> str:
        return f"{self.what}: {self.seconds:.0f} s so far"


Clock = Callable[[], float]
Listener = Callable[[Event], None]


def count_cores() -> int:
    """The number of cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def _ignore(event: Event) -> None:
    """Listen to nothing."""


@dataclass(frozen=True)
class Work:
    """The limits of a computation and its listener; make one with `Work.start`.

    ``deadline`` is a moment of ``clock``, in seconds, and infinite where there is no time budget. ``budget`` is the time in seconds that
    was given, whatever of it has passed: decisions that must come out alike in every run are made by it.
    """

    threads: int = field(default_factory=count_cores)
    memory: int = MEMORY
    seed: int = 0
    deadline: float = math.inf
    clock: Clock = time.monotonic
    listener: Listener = _ignore
    budget: float = math.inf

    @classmethod
    def start(
        cls,
        threads: Any = None,
        memory: Any = MEMORY,
        time_budget: Any = None,
        seed: Any = 0,
        progress: Any = None,
        clock: Clock = time.monotonic,
    ) -> Work:
        """Begin now with the limits that a user gave: cores (None for all), bytes, seconds (None for no limit), a seed.

        ``progress`` is called with every `Event`.
        """
        if threads is not None:
            check_number("threads", threads, 1, 4096, whole=True)
        check_number("memory", memory, 0, 1 << 62)
        if time_budget is not None:
            check_number("time_budget", time_budget, 0)
        check_number("seed", seed, 0, 2**63 - 1, whole=True)
        if progress is not None and not callable(progress):
            raise ParameterError(f"progress={progress!r}: a function that takes one event is needed")
        budget = math.inf if time_budget is None else float(time_budget)
        deadline = math.inf if time_budget is None else clock() + budget
        cores = count_cores() if threads is None else int(threads)
        return cls(cores, int(memory), int(seed), deadline, clock, progress or _ignore, budget)

    def now(self) -> float:
        """The present moment, in seconds of this work's clock."""
        return self.clock()

    def left(self) -> float:
        """Seconds until the deadline: never below zero, infinite where there is none."""
        return math.inf if math.isinf(self.deadline) else max(0.0, self.deadline - self.clock())

    @property
    def limited(self) -> bool:
        """Whether there is a deadline at all."""
        return not math.isinf(self.deadline)

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.limited and self.clock() > self.deadline

    def check(self) -> None:
        """Raise `Stopped` once the deadline has passed."""
        if self.is_over:
            raise Stopped(StoppedBy.TIME)

    def watch(self, what: str) -> Callable[[], None]:
        """A function to be called now and then while something goes on: it raises `Stopped` once the deadline has passed, and says what is
        going on where that takes more than a second."""
        began = self.now()

        def look() -> None:
            self.check()
            seconds = self.now() - began
            if seconds > WORTH_TELLING:
                self.emit(Ongoing(what, seconds))

        return look

    def share(self, part: float) -> Work:
        """The same work, with a part of the time that is left."""
        return self if not self.limited else replace(self.limit(part * self.left()), budget=part * self.budget)

    def limit(self, seconds: float) -> Work:
        """The same work, ending at most so many seconds from now."""
        seconds = max(0.0, seconds)
        return replace(self, deadline=min(self.deadline, self.clock() + seconds), budget=min(self.budget, seconds))

    def extend(self, seconds: float = math.inf) -> Work:
        """The same work, ending so many seconds from now, even if that is after the deadline; without a number, never."""
        seconds = max(0.0, seconds)
        return replace(self, deadline=self.clock() + seconds, budget=seconds)

    def alone(self) -> Work:
        """The same work on one thread, as one of many side by side."""
        return replace(self, threads=1)

    def silent(self) -> Work:
        """The same work without a listener."""
        return replace(self, listener=_ignore)

    def without_milestones(self) -> Work:
        """The same work as a part of a larger one, which has milestones of its own."""
        return replace(self, listener=lambda event: None if isinstance(event, Milestone) else self.listener(event))

    def emit(self, event: Event) -> None:
        """Tell the listener what happened."""
        self.listener(event)
