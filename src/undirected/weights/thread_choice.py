"""How many threads the sweeps of coordinate descent take."""

from __future__ import annotations

import math

from undirected.kernels.types import Array

TRY_THREADS_EVERY, TRY_THREADS_FIRST = 24, 5  # sweeps after which the slower number of threads is tried again, and the first such sweep
TRIED_PART = 8  # the slower number is tried on one part in so many of the sweep's visits
CLEARLY_FASTER = 0.8  # of the time of all threads that one thread takes


class ThreadChoice:
    """Whether sweeps run on one thread or on all. They wait for each other, so that beside other work one may be faster."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._paces: dict[int, float] = {}  # seconds a group of rows, by the number of threads
        self._sweeps = 0

    def share_out(self, order: Array) -> list[tuple[Array, int]]:
        """The visits of the next sweep with the number of threads that they take: all, unless one is clearly faster; from time to time the
        first of them take the other number, to learn how long that is.

        Sweeps differ in what they do, the first ones most, so that small differences tell nothing.
        """
        if self.most == 1:
            return [(order, 1)]
        alone = self._paces.get(1, math.inf) < CLEARLY_FASTER * self._paces.get(self.most, math.inf)
        faster, slower = (1, self.most) if alone else (self.most, 1)
        self._sweeps += 1
        tried = len(order) // TRIED_PART if self._sweeps % TRY_THREADS_EVERY == TRY_THREADS_FIRST else 0
        return [(order[:tried], slower), (order[tried:], faster)] if tried else [(order, faster)]

    def learn(self, threads: int, seconds: float, cost: float) -> None:
        """Note how long some visits took."""
        self._paces[threads] = seconds / max(1.0, cost)
