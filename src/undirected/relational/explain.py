"""Why a relational model expects what it expects: what each attribute along each path adds, and its strongest templates in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.errors import DataError
from undirected.kernels.types import Array
from undirected.relational.beliefs import Beliefs, spread_states
from undirected.relational.data import RelationalData
from undirected.relational.field import RelationalField
from undirected.relational.hidden import HiddenVariable, mark_categories, name_state
from undirected.relational.irm import IRM
from undirected.relational.mrc import MRC, PREDICATES
from undirected.relational.objective import build_design
from undirected.relational.paths import Path
from undirected.relational.templates import Block, Templates
from undirected.relational.treermn import TreeRMN
from undirected.relational.wiring import Wiring
from undirected.work import Work


@dataclass(frozen=True)
class Reason:
    """A feature that speaks for or against a state: how often it holds (a sum of probabilities where attributes are unknown), its weight,
    and their product."""

    feature: str
    count: float
    weight: float

    @property
    def contribution(self) -> float:
        return self.count * self.weight


@dataclass(frozen=True)
class Explained:
    """The distribution of an attribute, and for each active state the reasons, the strongest first, and the constant."""

    distribution: dict[str, float]
    reference: str
    reasons: dict[str, list[Reason]]
    constants: dict[str, float]


def explain_attribute(model: TreeRMN, data: RelationalData, kind: str, entity: str, attribute: str, n_shown: int = 10) -> Explained:
    """Why an attribute of an entity has its distribution, given all others: log-odds against its first state as a sum."""
    table = data[kind]
    row, v = data.find(kind, entity), table.type.attributes.index(attribute)
    variable = table.type.attributes[v]
    if len(variable.states) < 2:
        raise DataError(f"attribute {attribute!r} of {kind!r} has one state only; there is nothing to explain")
    templates, number = model.templates_, data.schema.index(kind)
    wiring = Wiring(data, templates.paths, model.memory)
    hidden = model.place_hidden(data, wiring)
    beliefs = Beliefs.of(data, mark_categories(data, hidden), model.marginals_)
    field = RelationalField(templates, wiring, beliefs, model.weights_)
    inferred = field.run_mean_field(Work.start()).beliefs
    alone = field.list_cells([_mark_one(t.cells.codes.shape, (row, v) if k == number else None) for k, t in enumerate(data.tables)])
    field.sweep(alone)  # the attribute given all others, even if it is known
    chances = spread_states(table, field.read().values[number])[v][row]
    design = build_design(templates, wiring, inferred, number)[row]
    matrix = np.append(model.weights_, 0.0)[templates.designs[number].index] * templates.designs[number].scale
    first = int((table.type.attributes.n_states[:v] - 1).sum())
    reasons, constants = {}, {}
    for k, state in enumerate(variable.states[1:]):
        weights = matrix[:, first + k]
        found = []
        for block in templates.designs[number].blocks:
            columns = slice(block.at, block.at + block.last - block.first)
            for j in np.flatnonzero(weights[columns] * design[columns]).tolist():
                name = name_column(templates, hidden, block, j)
                found.append(Reason(name, float(design[block.at + j]), float(weights[block.at + j])))
        reasons[state] = sorted(found, key=lambda reason: -abs(reason.contribution))[:n_shown]
        constants[state] = float(weights[0])
    return Explained(dict(zip(variable.states, chances.tolist(), strict=True)), variable.states[0], reasons, constants)


def _mark_one(shape: tuple[int, ...], cell: tuple[int, int] | None) -> Array:
    marks = np.zeros(shape, dtype=bool)
    if cell is not None:
        marks[cell] = True
    return marks


def name_column(templates: Templates, hidden: list[HiddenVariable], block: Block, j: int) -> str:
    """A column of a block of a design, as text."""
    n = templates.active[templates.schema.index(block.path.end)]
    if block.first + j < n:
        return name_state(templates.schema, block.path, block.first + j)
    category = block.first + j - n
    for variable in (h for h in hidden if h.type == block.path.end):
        if category < variable.n_categories:
            return f"{block.path.write(templates.schema)}.{variable.name.rpartition('.')[2]}=C{category}"
        category -= variable.n_categories
    raise DataError("a category that no hidden variable has")


@dataclass(frozen=True)
class Strong:
    """A template with its weight: a state of one type's attribute, and one at the end of a path from it."""

    here: str
    there: str
    weight: float

    def __str__(self) -> str:
        return f"{self.here} goes {'with' if self.weight > 0 else 'against'} {self.there}"


def list_strongest(model: TreeRMN, n: int = 20) -> list[Strong]:
    """The templates of pairs of attributes with the largest weights."""
    schema = model.schema_
    found: list[tuple[float, Strong]] = []
    for family in model.templates_.families:
        if family.kind != "pair":
            continue
        weights = model.weights_[family.offset : family.offset + len(family.rows)]
        for k in np.argsort(-np.abs(weights), kind="stable")[:n].tolist():
            if weights[k]:
                here = name_state(schema, Path(family.path.start, (), family.path.start), int(family.rows[k]))
                there = name_state(schema, family.path, int(family.columns[k]))
                found.append((abs(float(weights[k])), Strong(here, there, float(weights[k]))))
    return [strong for _, strong in sorted(found, key=lambda pair: -pair[0])[:n]]


def measure_paths(model: TreeRMN) -> list[tuple[str, str, float, int]]:
    """How much each path matters: its start and text, the root of the sum of its squared weights, and how many are not zero."""
    out = []
    for family in model.templates_.families:
        if family.kind != "unary":
            weights = model.weights_[family.offset : family.offset + len(family.rows)]
            text = family.path.write(model.schema_) + (" (hidden)" if family.kind == "hidden" else "")
            out.append((family.path.start, text, float(np.sqrt((weights**2).sum())), int((weights != 0).sum())))
    return sorted(out, key=lambda line: -line[2])


def list_clusters(model: IRM | MRC) -> dict[str, list[list[str]]]:
    """The names of the entities in each cluster of each type, the largest cluster first; of MRC those of the outermost clustering."""
    if isinstance(model, MRC):
        outermost = max(model.hierarchies_, key=lambda root: root.score)
        return {name: model.list_clusters(name) for name in outermost.names if not name.startswith(PREDICATES)}
    out = {}
    for kind, clusters in model.partition_.items():
        names = model.data_.list_names(kind)
        groups = [[names[e] for e in np.flatnonzero(clusters == c)] for c in range(int(clusters.max(initial=-1)) + 1)]
        out[kind] = [group for group in groups if group]
    return out
