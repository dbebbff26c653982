"""Waiting for a broker that has gone away: longer and longer, and said aloud."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from undirected.streaming.sources import Tell

FIRST_WAIT, LONGEST_WAIT = 0.1, 30.0  # seconds between two tries
LONGEST_SLEEP = 1.0  # before it is asked again whether to stop
Result = TypeVar("Result")


class Patience:
    """Tries again while a broker is away: after a tenth of a second at first, each wait twice as long as the one before, up to half a
    minute. It ends where ``stop`` says so."""

    def __init__(self, name: str, faults: tuple[type[BaseException], ...], tell: Tell, stop: Callable[[], bool]) -> None:
        self.name, self.faults, self.tell, self.stop = name, faults, tell, stop
        self._away_since: float | None = None
        self._wait = FIRST_WAIT

    def attempt(self, call: Callable[[], Result], timeout: float) -> Result | None:
        """What ``call`` returns; None where the broker is still away after about ``timeout`` seconds, or when it is time to stop."""
        limit = time.monotonic() + timeout
        while True:
            try:
                result = call()
            except self.faults as error:
                self.note_away(error)
            else:
                self.note_back()
                return result
            left = limit - time.monotonic()
            if left <= 0 or self.stop():
                return None
            until = time.monotonic() + min(self._wait, left)
            while (rest := until - time.monotonic()) > 0 and not self.stop():
                time.sleep(min(rest, LONGEST_SLEEP))
            self._wait = min(2 * self._wait, LONGEST_WAIT)

    def note_away(self, error: object) -> None:
        """Say, once, that the broker is away."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            self.tell(f"{self.name} does not answer ({error}); trying again")

    def note_back(self) -> None:
        """Say that the broker is there again, if it was away."""
        if self._away_since is not None:
            self.tell(f"{self.name} is back after {time.monotonic() - self._away_since:.0f} s")
            self._away_since, self._wait = None, FIRST_WAIT
