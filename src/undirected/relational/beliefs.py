"""Beliefs: for each entity how probable each active state of its attributes is; zeros and ones where the attribute is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undirected.kernels.types import Array
from undirected.relational.data import Entities, RelationalData


@dataclass
class Beliefs:
    """One array for each type: entities by active states, and then categories of hidden variables.

    ``known[k][e, v]`` tells whether attribute ``v`` of entity ``e`` of type ``k`` is.
    """

    values: list[Array]
    known: list[Array]

    @classmethod
    def of(cls, data: RelationalData, categories: Sequence[Array] | None = None, marginals: Sequence[Array] | None = None) -> Beliefs:
        """What the data says. Unknown attributes have the ``marginals`` of their type, by default those of its known ones; ``categories``
        marks the hidden categories of the entities, one array for each type."""
        values, known = [], []
        for k, table in enumerate(data.tables):
            hits = mark_states(table)
            sure = table.cells.codes >= 0
            if not sure.all():
                usual = count_marginals(table) if marginals is None else marginals[k]
                gaps = np.repeat(~sure, table.type.attributes.n_states - 1, axis=1)
                hits = np.where(gaps, usual, hits)
            extra = [] if categories is None else [categories[k]]
            values.append(np.ascontiguousarray(np.concatenate([hits, *extra], axis=1)))
            known.append(sure)
        return cls(values, known)

    def copy(self) -> Beliefs:
        return Beliefs([value.copy() for value in self.values], self.known)


def mark_states(table: Entities) -> Array:
    """A one for the active state of each known attribute."""
    domain, codes = table.type.attributes, table.cells.codes
    marks = np.zeros((len(table), table.type.n_active))
    first = np.concatenate([[0], np.cumsum(domain.n_states - 1)]).astype(np.int64)
    rows, places = np.nonzero(codes > 0)
    marks[rows, first[places] + codes[rows, places] - 1] = 1
    return marks


def count_marginals(table: Entities, pseudo: float = 0.5) -> Array:
    """The share of each active state among the known attributes, with a ``pseudo`` count for every state."""
    domain, codes = table.type.attributes, table.cells.codes
    shares = [np.zeros(0)]
    for v, n in enumerate(domain.n_states.tolist()):
        counts = np.bincount(codes[codes[:, v] >= 0, v], minlength=n) + pseudo
        shares.append(counts[1:] / counts.sum())
    return np.concatenate(shares)


def spread_states(table: Entities, active: Array) -> list[Array]:
    """The distribution of each attribute over all of its states, from the probabilities of the active ones: entities by states."""
    ends = np.cumsum(table.type.attributes.n_states - 1)
    parts = np.split(active[:, : table.type.n_active], ends[:-1], axis=1) if len(ends) else []
    return [np.concatenate([np.maximum(1 - part.sum(axis=1, keepdims=True), 0), part], axis=1) for part in parts]
