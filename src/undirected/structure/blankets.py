"""Markov blankets of variables, found by chi-square tests of independence on a table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from undirected.data.dataset import Dataset
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import Counted, Stopped, StoppedBy, Work

LEAST_EXPECTED, ENOUGH_SEEN = 1.0, 5.0  # a cell with fewer rows expected and fewer seen says nothing


def find_blankets(data: Dataset, level: float, work: Work) -> list[list[int]]:
    """Grow and shrink: variables that depend on the target given those found so far, strongest first; then out with the needless.

    Variables that are independent of the target to begin with are looked at only when the others have nothing more to add. Raises
    `Stopped` where time is up between two tests.
    """
    tests = Independence(data)
    n = len(data.domain)
    found: list[list[int]] = []
    ended = threading.Event()

    def check() -> None:
        if ended.is_set():
            raise Stopped(StoppedBy.INTERRUPT)
        work.check()

    with ThreadPoolExecutor(work.threads) as pool:
        try:
            for own in pool.map(lambda v: _find_blanket(tests, v, level, check), range(n)):
                found.append(own)
                work.emit(Counted("blankets", len(found), n))
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _find_blanket(tests: Independence, target: int, level: float, check: Callable[[], None]) -> list[int]:
    found: list[int] = []
    everyone = np.setdiff1d(np.arange(tests.n_variables), [target])
    strata = tests.all_rows
    p, strength = tests.test(target, strata, everyone)
    others, p, strength = (values[p < level] for values in (everyone, p, strength))
    all_looked_at = False
    while True:
        if (p < level).any():
            best = int(np.argmax(np.where(p < level, strength, -1.0)))
            found.append(int(others[best]))
            strata = tests.split(strata, found[-1])
            others = np.delete(others, best)
        elif all_looked_at:
            break
        else:
            others, all_looked_at = np.setdiff1d(everyone, found), True
        check()
        p, strength = tests.test(target, strata, others)
    return sorted(_shrink(tests, target, found, level, check))


def _shrink(tests: Independence, target: int, found: list[int], level: float, check: Callable[[], None]) -> list[int]:
    """Those that the target depends on given all others that are left, one after another."""
    later = [tests.all_rows]  # the strata of those that come after
    for v in reversed(found[1:]):
        later.append(tests.split(later[-1], v))
    kept: list[int] = []
    earlier = tests.all_rows
    for v in found:
        check()
        p, strength = tests.test(target, tests.combine(earlier, later.pop()), np.array([v]))
        if p[0] < level or strength[0] == 0:  # where no test can be made, that by which it came in stands
            kept.append(v)
            earlier = tests.split(earlier, v)
    return kept


class Grouped(NamedTuple):
    """A division of the rows: for each row the number of its stratum."""

    stratum: Array
    n: int


class Independence:
    """Chi-square tests of one variable against others, in strata of the rows: p-values, and chi-square over its degrees of freedom; 1
    and 0 where the rows do not suffice for a test."""

    def __init__(self, data: Dataset) -> None:
        table, self.n_states = data.distinct, data.domain.n_states.astype(np.int32)
        self.kernels: Any = backend().module
        self.codes = np.ascontiguousarray(table.codes.T, dtype=np.int16)
        self.tests: Any = self.kernels.Strata(self.codes, self.n_states, table.weights)
        self.n_variables = len(data.domain)
        self.all_rows = Grouped(np.zeros(len(table), dtype=np.int32), 1)

    def combine(self, a: Grouped, b: Grouped) -> Grouped:
        """The strata of both together, those that occur."""
        return Grouped(*self.kernels.combine(a.stratum, a.n, b.stratum, b.n))

    def split(self, strata: Grouped, v: int) -> Grouped:
        """Each stratum by the states of one more variable."""
        return self.combine(strata, Grouped(self.codes[v].astype(np.int32), int(self.n_states[v])))

    def test(self, target: int, strata: Grouped, others: Array) -> tuple[Array, Array]:
        chi, free = self.tests.test(strata.stratum, strata.n, target, others.astype(np.int32), LEAST_EXPECTED, ENOUGH_SEEN)
        tested, free = free > 0, np.maximum(free, 1)
        return np.where(tested, chdtrc(free, chi), 1.0), np.where(tested, chi / free, 0.0)
