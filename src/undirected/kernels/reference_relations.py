"""Beliefs about the attributes of linked entities in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from undirected.kernels.types import Array


class _Block(NamedTuple):
    """Columns of a design, and where their values are found."""

    at: int
    first: int
    last: int
    end: int
    reach: int
    rows: Array | None
    own: Array | None


class RelationField:
    """Beliefs about all entities, changed one attribute at a time, and the sums along paths that follow from them.

    A *reach* sums up the values of a type over the entities that each of its rows reaches; ``start`` and ``rows`` say which rows reach
    each entity. A *block* says where some columns of a type's design come from: rows of a reach's sums (of the values of type ``end``, if
    ``reach`` is -1), looked up in ``rows`` (-1 for none; without it the entity's own row), less the entity's own values where ``own`` is.
    """

    def __init__(self) -> None:
        self._values: list[Array] = []
        self._starts: list[Array] = []
        self._weights: list[Array] = []
        self._blocks: list[list[_Block]] = []
        self._reaches: list[tuple[int, Array, Array, Array]] = []

    def add_type(self, values: Array, starts: Array, weights: Array) -> int:
        """A type: its values, where the active states of each attribute begin, and the weights of the design for each active state."""
        self._values.append(values.copy())
        self._starts.append(starts)
        self._weights.append(weights.copy())
        self._blocks.append([])
        return len(self._values) - 1

    def add_reach(self, source: int, sums: Array, start: Array, rows: Array) -> int:
        """Sums of a type's values over the entities that are reached."""
        self._reaches.append((source, sums.copy(), start, rows))
        return len(self._reaches) - 1

    def add_block(self, type: int, at: int, first: int, last: int, end: int, reach: int, rows: Array | None, own: Array | None) -> None:
        """Columns of the design of a type."""
        self._blocks[type].append(_Block(at, first, last, end, reach, rows, own))

    def set_weights(self, type: int, weights: Array) -> None:
        """Change the weights of a type."""
        self._weights[type] = weights.copy()

    def values(self, type: int) -> Array:
        """A copy of the values of a type."""
        return self._values[type].copy()

    def sweep(self, cells: Array) -> tuple[float, float]:
        """Set attributes (type, entity, number) one after another to their distribution given all others; the largest change of a
        probability, and how much the free energy rose."""
        largest, energy = 0.0, 0.0
        for kind, entity, attribute in cells.tolist():
            logits, chances, places = self._find_chances(kind, entity, attribute)
            old = self._values[kind][entity, places].copy()
            largest = max(largest, float(np.abs(chances - old).max(initial=0.0)))
            energy += _sum_plog(chances) - _sum_plog(old) - float(logits @ (chances - old))
            self._set_values(kind, entity, places, chances)
        return largest, energy

    def draw(self, cells: Array, uniform: Array) -> Array:
        """Draw attributes one after another given all others, by numbers from 0 to 1; the probabilities of their active states."""
        out = [np.zeros(0)]
        for (kind, entity, attribute), number in zip(cells.tolist(), uniform.tolist(), strict=True):
            _, chances, places = self._find_chances(kind, entity, attribute)
            out.append(chances)
            drawn = int(np.searchsorted(np.cumsum(chances), number, side="right"))
            self._set_values(kind, entity, places, (np.arange(len(chances)) == drawn).astype(float))
        return np.concatenate(out)

    def _find_chances(self, kind: int, entity: int, attribute: int) -> tuple[Array, Array, Array]:
        """Logits and probabilities of the active states of an attribute, and their columns."""
        places = np.arange(self._starts[kind][attribute], self._starts[kind][attribute + 1])
        row = np.zeros(self._weights[kind].shape[1])
        row[0] = 1
        for block in self._blocks[kind]:
            table = self._values[block.end] if block.reach < 0 else self._reaches[block.reach][1]
            at = entity if block.rows is None else int(block.rows[entity])
            columns = slice(block.at, block.at + block.last - block.first)
            if at >= 0:
                row[columns] += table[at, block.first : block.last]
            if block.own is not None and block.own[entity]:
                row[columns] -= self._values[block.end][entity, block.first : block.last]
        logits = self._weights[kind][places] @ row
        top = max(float(logits.max(initial=0.0)), 0.0)
        parts = np.exp(logits - top)
        return logits, parts / (np.exp(-top) + parts.sum()), places

    def _set_values(self, kind: int, entity: int, places: Array, new: Array) -> None:
        change = new - self._values[kind][entity, places]
        self._values[kind][entity, places] = new
        for source, sums, start, rows in self._reaches:
            if source == kind:
                sums[np.ix_(rows[start[entity] : start[entity + 1]], places)] += change


def _sum_plog(active: Array) -> float:
    """The sum of p log p over all states, from the probabilities of the active ones."""
    p = np.append(active, max(1 - float(active.sum()), 0.0))
    return float((p * np.log(np.where(p > 0, p, 1))).sum())
