"""Hidden variables of a relational model: categories of entities that were found, not given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from undirected.kernels.types import Array
from undirected.relational.beliefs import Beliefs
from undirected.relational.cvi import Clustering, Statistics, cluster_entities
from undirected.relational.data import RelationalData
from undirected.relational.paths import Path
from undirected.relational.schema import Schema
from undirected.relational.templates import Templates
from undirected.relational.wiring import Wiring

SHOWN = 8
YES_NO = (("no", "yes"), ("0", "1"), ("False", "True"))  # states that go without saying


@dataclass(frozen=True)
class HiddenVariable:
    """A categorical variable of one type: the category of each entity, -1 for the reference, which has no features; and the entities'
    names."""

    name: str
    type: str
    of: Array
    n_categories: int
    entities: tuple[str, ...]


@dataclass(frozen=True)
class Category:
    """One category of a hidden variable: its entities, and its strongest features of each sign with their weights."""

    variable: str
    number: int
    entities: list[str]
    positive: list[tuple[str, float]]
    negative: list[tuple[str, float]]


def count_categories(schema: Schema, hidden: Sequence[HiddenVariable]) -> list[int]:
    """How many categories the hidden variables of each type have together."""
    return [sum(h.n_categories for h in hidden if h.type == name) for name in schema.names]


def choose_categories(
    templates: Templates, wiring: Wiring, values: Sequence[Array], weights: Array, hidden: Sequence[HiddenVariable]
) -> list[Array]:
    """For each hidden variable the most probable category of each entity given its attributes and links; -1 is the reference."""
    first = dict.fromkeys(templates.schema.names, 0)
    chosen = []
    for variable in hidden:
        kind, start = variable.type, first[variable.type]
        first[kind] += variable.n_categories
        sums = np.concatenate([wiring.add_up(values, path, 0, _count(templates, path)) for path in templates.list_candidates(kind)], axis=1)
        scores = sums @ weights[templates.hidden_numbers(kind, start, start + variable.n_categories)].T
        likely = np.where(scores.max(axis=1, initial=-np.inf) > 0, scores.argmax(axis=1), -1) if len(scores) else np.zeros(0, np.int64)
        chosen.append(likely.astype(np.int64))
    return chosen


def place_hidden(
    data: RelationalData, templates: Templates, wiring: Wiring, weights: Array, hidden: Sequence[HiddenVariable], marginals: Sequence[Array]
) -> list[HiddenVariable]:
    """The hidden variables for the entities of other data: those with the name of an entity learned from have its category, others the most
    probable one given their attributes and links (unknown ones at their marginals)."""
    likely = choose_categories(templates, wiring, Beliefs.of(data, marginals=marginals).values, weights, hidden)
    placed = []
    for variable, best in zip(hidden, likely, strict=True):
        names = data.list_names(variable.type)
        if names == variable.entities:
            placed.append(variable)
            continue
        known = dict(zip(variable.entities, variable.of.tolist(), strict=True))
        of = np.array([known.get(name, k) for name, k in zip(names, best.tolist(), strict=True)], dtype=np.int64)
        placed.append(HiddenVariable(variable.name, variable.type, of, variable.n_categories, names))
    return placed


def mark_categories(data: RelationalData, hidden: Sequence[HiddenVariable]) -> list[Array]:
    """For each type a column of zeros and ones for each category of its hidden variables."""
    marks = []
    for table in data.tables:
        own = [h for h in hidden if h.type == table.type.name]
        columns = [(h.of[:, None] == np.arange(h.n_categories)).astype(float) for h in own]
        marks.append(np.concatenate([np.zeros((len(table), 0)), *columns], axis=1))
    return marks


def propose_hidden(
    templates: Templates,
    wiring: Wiring,
    errors: tuple[list[Array], list[Array]],
    types: Sequence[str],
    l1: float,
    beta: float,
    move_entities: bool,
    watch: Callable[[], None],
) -> list[tuple[str, Clustering]]:
    """For each of the types the clustering that the model's errors along all paths suggest; types without one are left out."""
    found = []
    for name in dict.fromkeys(types):
        paths = templates.list_candidates(name)
        if not paths or not len(wiring.data[name]):
            continue
        error, variance = (np.concatenate([wiring.add_up(part, path) for path in paths], axis=1) for part in errors)
        clustering = cluster_entities(Statistics(error, variance), l1, beta, move_entities, watch)
        if len(clustering.gains):
            found.append((name, clustering))
    return found


def describe_categories(templates: Templates, weights: Array, hidden: Sequence[HiddenVariable], n_shown: int = SHOWN) -> list[Category]:
    """What was found, as the paper's Tables 2 and 3 show it: entities and strongest features of each category."""
    out = []
    first = dict.fromkeys(templates.schema.names, 0)
    for variable in hidden:
        names = name_candidates(templates, variable.type)
        numbers = templates.hidden_numbers(variable.type, first[variable.type], first[variable.type] + variable.n_categories)
        first[variable.type] += variable.n_categories
        for category, row in enumerate(weights[numbers]):
            order = np.argsort(-np.abs(row), kind="stable")
            positive = [(names[k], float(row[k])) for k in order if row[k] > 0][:n_shown]
            negative = [(names[k], float(row[k])) for k in order if row[k] < 0][:n_shown]
            entities = [variable.entities[e] for e in np.flatnonzero(variable.of == category)]
            out.append(Category(variable.name, category, entities, positive, negative))
    return out


def name_candidates(templates: Templates, kind: str) -> list[str]:
    """The features that a hidden variable of a type has, in the order of `Templates.hidden_numbers`."""
    return [name_state(templates.schema, path, a) for path in templates.list_candidates(kind) for a in range(_count(templates, path))]


def _count(templates: Templates, path: Path) -> int:
    return templates.active[templates.schema.index(path.end)]


def name_state(schema: Schema, path: Path, active: int) -> str:
    """An active state at the end of a path, as text."""
    domain = schema[path.end].attributes
    ends = np.cumsum(domain.n_states - 1)
    v = int(np.searchsorted(ends, active, side="right"))
    variable = domain[v]
    plain = variable.states in YES_NO
    state = variable.states[len(variable.states) - int(ends[v]) + active]
    return f"{path.write(schema)}.{variable.name}" + ("" if plain else f"={state}")
