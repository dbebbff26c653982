"""Time and events under the control of a test."""

from __future__ import annotations

from undirected.work import Event, Work


class Clock:
    """A clock that stands still until it is moved, or that moves by ``step`` whenever somebody looks."""

    def __init__(self, step: float = 0.0) -> None:
        self.time, self.step = 0.0, step

    def __call__(self) -> float:
        self.time += self.step
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


class Record:
    """A listener that keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def __deepcopy__(self, memo: object) -> Record:
        return self

    def kinds(self) -> list[str]:
        """The kinds of the events, runs of the same kind told once."""
        names = [type(event).__name__ for event in self.events]
        return [name for k, name in enumerate(names) if k == 0 or names[k - 1] != name]


def one_thread() -> Work:
    """Work without limits on one thread."""
    return Work.start(threads=1)
