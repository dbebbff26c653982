"""Clocks for tests that must not wait."""

from __future__ import annotations


class TickingClock:
    """A clock that goes on by so many seconds each time it is looked at, and not otherwise."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now
