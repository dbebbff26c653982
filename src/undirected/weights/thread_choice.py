"""How many threads the sweeps of coordinate descent take."""

from __future__ import annotations

import math

TRY_THREADS_EVERY, TRY_THREADS_FIRST = 24, 5  # sweeps after which the slower number of threads is tried again, and the first such sweep
CLEARLY_FASTER = 0.8  # of the time of all threads that one thread takes


class ThreadChoice:
    """Whether sweeps run on one thread or on all. They wait for each other, so that beside other work one may be faster."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._paces: dict[int, float] = {}  # seconds a group of rows, by the number of threads
        self._sweeps = 0

    def choose(self) -> int:
        """The number of threads of the next sweep: all, unless one is clearly faster; from time to time the other, to learn what it takes.

        Sweeps differ in what they do, the first ones most, so that small differences tell nothing.
        """
        if self.most == 1:
            return 1
        alone = self._paces.get(1, math.inf) < CLEARLY_FASTER * self._paces.get(self.most, math.inf)
        self._sweeps += 1
        if self._sweeps % TRY_THREADS_EVERY == TRY_THREADS_FIRST:
            alone = not alone
        return 1 if alone else self.most

    def learn(self, threads: int, seconds: float, cost: float) -> None:
        """Note how long a sweep took."""
        self._paces[threads] = seconds / max(1.0, cost)
