"""Exact answers by summing out variables one after the other, with the cheapest of several greedy orders.

Looking for a good order, the plan, can take longer than the work itself. A plan is therefore made once for some evidence and serves
every question under it.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from undirected.inference.protocols import Elimination, Model
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import Work

CELL_BYTES = 16  # a table cell, and its part in messages and scratch
TRIES = 6  # elimination orders looked at where exact answers are wanted
FEW_TRIES = 2  # where they only help, as in telling whether anything is possible
CELLS_PER_SECOND = 2e7  # of elimination, roughly
EXACT_SECONDS = 10.0  # what exact work may take, where nothing else is said, before sampling is preferred
PLANS_KEPT = 4  # that a planner remembers


def count_cells(work: Work) -> float:
    """How many table cells fit into memory."""
    return work.memory / CELL_BYTES


def count_cheap_cells(work: Work, seconds: float | None = None) -> float:
    """How many table cells fit into memory and are worked within so many seconds (the time budget by default), roughly."""
    seconds = work.budget if seconds is None else seconds
    return min(count_cells(work), CELLS_PER_SECOND * (seconds if np.isfinite(seconds) else EXACT_SECONDS))


def format_count(n: float) -> str:
    """Write a number of cells; large ones in short."""
    return f"{n:,.0f}" if n < 1e9 else f"{n:.0e}"


class Plan:
    """How the variables that evidence leaves open are summed out, and what that costs.

    They fall into parts that share no feature. ``of`` tells the part of each variable (-1: its state is known); by part there are the
    ``cells`` of all tables, those of the ``largest`` clique, its ``width`` (variables less one), and whether it is ``solvable`` within
    ``limit`` cells.
    """

    def __init__(self, elimination: Elimination, limit: float) -> None:
        self._elimination, self.limit = elimination, limit
        self.of, self.cells, self.largest, self.width, solvable = elimination.parts()
        self.solvable = np.asarray(solvable, dtype=bool)

    def describe(self) -> str:
        """The cost in words, as part of a sentence."""
        if not len(self.cells):
            return "every state is known"
        k = int(np.argmax(self.cells))
        n = len(self.cells)
        size = f"{int(self.width[k]) + 1} variables and {format_count(self.largest[k])} cells"
        return f"{n} separate part{'s' if n > 1 else ''}, the largest clique of {size}"

    def solve(self) -> tuple[Array, float]:
        """Marginals by literal and the log partition function of the kernels' model; NaN where a part is not solvable."""
        marginals, log_z = self._elimination.solve(self.limit)
        return np.asarray(marginals), float(log_z)

    def maximise(self, max_cells: float | None = None) -> tuple[Array, float]:
        """A best assignment and its score; -1 and NaN where a part is not solvable or has more than ``max_cells`` cells."""
        states, score = self._elimination.maximise(self.limit if max_cells is None else max_cells)
        return np.asarray(states), float(score)

    def draw(self, n: int, work: Work) -> Array:
        """Exact samples, one a row; -1 where a part is not solvable."""
        return np.asarray(self._elimination.draw(n, self.limit, work.seed, work.threads))

    def find_expectations(self) -> Array:
        """The probability of each feature of the kernels' model; NaN where its part is not solvable."""
        return np.asarray(self._elimination.expectations(self.limit))


class Planner:
    """Makes plans and remembers the last ones, so that nothing is planned twice. ``made`` counts the plans that were made."""

    def __init__(self) -> None:
        self.made = 0
        self._kept: OrderedDict[tuple[Model, bytes, float, int, int], Plan] = OrderedDict()

    def plan(self, model: Model, evidence: Array, limit: float, tries: int, seed: int) -> Plan:
        """How to sum out what one row of evidence leaves of a model, in parts of up to ``limit`` table cells."""
        key = (model, evidence.tobytes(), limit, tries, seed)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        self.made += 1
        plan = self._kept[key] = Plan(backend().module.Elimination(model, evidence, limit, tries, seed), limit)
        if len(self._kept) > PLANS_KEPT:
            self._kept.popitem(last=False)
        return plan
