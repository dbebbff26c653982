"""A relational model written out as a Markov network over the attributes of all entities, for small data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undirected.data.literals import make_literal
from undirected.data.variables import Domain, Variable
from undirected.errors import DataError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.relational.data import Entities, RelationalData
from undirected.relational.hidden import HiddenVariable, mark_categories
from undirected.relational.templates import Family, Templates
from undirected.relational.wiring import Wiring

MOST_FEATURES = 2_000_000
MOST_PAIRS = 4_000_000  # of entities along one path


def ground_model(
    data: RelationalData, templates: Templates, wiring: Wiring, weights: Array, hidden: Sequence[HiddenVariable]
) -> MarkovNetwork:
    """Write a model out over the entities of some data: a variable for each attribute of each entity, such as ``nation(Cuba).rainfall``.

    Hidden variables are known, so that their features concern the other attribute alone. Weights of one pair of states that several paths
    join are added up.
    """
    atoms = _Atoms(data)
    marks = mark_categories(data, hidden)
    literals: list[Array] = []
    values: list[Array] = []
    for family in templates.families:
        strength = weights[family.offset : family.offset + len(family.rows)]
        used = np.flatnonzero(strength)
        pairs = _list_pairs(data, wiring, family)
        if len(used) * len(pairs) > MOST_FEATURES:
            raise DataError(
                f"{data.source}: the path {family.path.write(data.schema)} makes more than {MOST_FEATURES:,} features; too many to write"
            )
        start, end = (data.schema.index(name) for name in (family.path.start, family.path.end))
        for k in used.tolist():
            row, column = int(family.rows[k]), int(family.columns[k])
            if family.kind == "unary":
                here = atoms.number(start, pairs[:, 0], row)
                literals.append(np.stack([here, np.full(len(here), -1)], axis=1))
            elif family.kind == "hidden":
                there = atoms.number(end, pairs[marks[start][pairs[:, 0], row] > 0, 1], column)
                literals.append(np.stack([there, np.full(len(there), -1)], axis=1))
            else:
                both = np.stack([atoms.number(start, pairs[:, 0], row), atoms.number(end, pairs[:, 1], column)], axis=1)
                literals.append(np.sort(both, axis=1)[:, ::-1])
            values.append(np.full(len(literals[-1]), strength[k]))
    listed = np.concatenate([np.zeros((0, 2), np.int64), *literals])
    distinct, place = np.unique(listed, axis=0, return_inverse=True)
    sums = np.bincount(place.ravel(), weights=np.concatenate([np.zeros(0), *values]), minlength=len(distinct))
    features = FeatureSet.from_lists(([int(x) for x in row if x >= 0] for row in distinct), atoms.domain)
    return MarkovNetwork(features, sums)


def list_evidence(data: RelationalData) -> dict[str, str]:
    """The known attributes of all entities, under the names of `ground_model`."""
    atoms = _Atoms(data)
    return {name: state for name, state in zip(atoms.domain.names, atoms.known_states(), strict=True) if state is not None}


class _Atoms:
    """The variables of a model that is written out: one for each attribute of each entity."""

    def __init__(self, data: RelationalData) -> None:
        self.data = data
        variables: list[Variable] = []
        self._first = []
        for table in data.tables:
            self._first.append(len(variables))
            for key in data.list_names(table.type.name):
                name = f"{table.type.name}({key})" if table.keys is not None else f"{table.type.name}{key}"
                variables += [Variable(f"{name}.{v.name}", v.states) for v in table.type.attributes.variables]
        self.domain = Domain(variables)

    def number(self, kind: int, entities: Array, active: int) -> Array:
        """The literals of one active state of a type, for some entities."""
        domain = self.data.tables[kind].type.attributes
        ends = np.cumsum(domain.n_states - 1)
        v = int(np.searchsorted(ends, active, side="right"))
        state = active - (int(ends[v]) - int(domain.n_states[v]))
        return np.array([make_literal(self.domain, self._first[kind] + int(e) * len(domain) + v, state) for e in entities], dtype=np.int64)

    def known_states(self) -> list[str | None]:
        """The state of each variable, None where it is unknown."""
        return [state for table in self.data.tables for state in _read_states(table)]


def _read_states(table: Entities) -> list[str | None]:
    domain = table.type.attributes
    return [(*domain[v].states, None)[code] for row in table.cells.codes.tolist() for v, code in enumerate(row)]


def _list_pairs(data: RelationalData, wiring: Wiring, family: Family) -> Array:
    """The pairs of entities that a family's path joins, in both orders where the path is its own inverse."""
    path = family.path
    sizes = len(data[path.start]), len(data[path.end])
    if not path.steps:
        return np.stack([np.arange(sizes[0])] * 2, axis=1)
    if sizes[0] * sizes[1] > MOST_PAIRS:
        raise DataError(f"{data.source}: {sizes[0]:,} {path.start} and {sizes[1]:,} {path.end} are too many to write a network out")
    each = [np.eye(sizes[1]) if name == path.end else np.zeros((len(data[name]), 0)) for name in data.schema.names]
    return np.stack(np.nonzero(wiring.add_up(each, path)), axis=1)
