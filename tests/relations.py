"""Relational data for tests: random schemas and data, the truth along paths, and a planted block model."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain, Variable
from undirected.relational.data import Entities, RelationalData
from undirected.relational.paths import OUT, TWIN, Path
from undirected.relational.schema import Argument, EntityType


def make_domain(sizes):
    return Domain([Variable(f"a{v}", tuple(f"s{k}" for k in range(n))) for v, n in enumerate(sizes)])


def make_entities(name, sizes, n, arguments, rng, unknown=0.0, targets=None, keys=True):
    """Entities with random attributes and arguments."""
    domain = make_domain(sizes)
    codes = np.stack([rng.integers(0, size, n) for size in sizes], axis=1) if sizes else np.zeros((n, 0), np.int8)
    codes = np.where(rng.random(codes.shape) < unknown, -1, codes)
    named = np.zeros((n, len(arguments)), np.int32)
    for k, (_, target) in enumerate(arguments):
        named[:, k] = rng.integers(-1 if rng.random() < 0.3 else 0, targets[target], n)
    kind = EntityType(name, domain, tuple(Argument(a, target) for a, target in arguments))
    return Entities(kind, Dataset(domain, codes), named, tuple(f"{name}{e}" for e in range(n)) if keys else None)


def make_random(seed, unknown=0.0, n=6, n_links=9):
    """Two types of entities, one of which names the other, and links between them that may repeat."""
    rng = np.random.default_rng(seed)
    sizes = [[int(k) for k in rng.integers(1, 4, rng.integers(0, 3))] for _ in range(4)]
    sizes[2] = [*sizes[2], 2]
    n_entities = {"town": int(rng.integers(1, 4)), "person": n}
    tables = [make_entities("town", sizes[0], n_entities["town"], [], rng, unknown)]
    lives = [("home", "town")] if rng.random() < 0.5 else [("boss", "person")] if rng.random() < 0.5 else []
    tables.append(make_entities("person", sizes[1], n, lives, rng, unknown, n_entities))
    places = [("one", "person"), ("other", "person" if rng.random() < 0.7 else "town")]
    if rng.random() < 0.2:
        places.append(("third", "person"))
    tables.append(make_entities("link", sizes[2], n_links, places, rng, unknown, n_entities, keys=False))
    if rng.random() < 0.3:
        tables.append(
            make_entities("report", sizes[3], 4, [("on", "link"), ("by", "person")], rng, unknown, {**n_entities, "link": n_links})
        )
    return RelationalData(tables)


def build_path_matrix(data, path: Path):
    """The zeros and ones of a path, step by step, without the diagonal where it returns to its own type."""
    matrix = sp.identity(len(data[path.start]), format="csr")
    for step in path.steps:
        table = data[step.type]
        n = len(table)
        if step.way == TWIN:
            relation = np.zeros((n, n))
            for e in range(n):
                for f in range(n):
                    a, b = table.arguments[e], table.arguments[f]
                    relation[e, f] = min(a) >= 0 and a[0] == b[1] and a[1] == b[0]
        else:
            named = table.arguments[:, step.argument]
            relation = np.zeros((n, len(data[table.type.arguments[step.argument].target])))
            relation[np.flatnonzero(named >= 0), named[named >= 0]] = 1
            relation = relation if step.way == OUT else relation.T
        matrix = (matrix @ relation > 0).astype(float)
    matrix = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
    if path.start == path.end and path.steps:
        np.fill_diagonal(matrix, 0)
    return matrix


def make_blocks(n=30, n_groups=3, n_relations=4, seed=0, noise=0.05):
    """All pairs of entities of some hidden groups; whether a relation holds depends on the groups of both, but for some noise."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % n_groups
    table = rng.random((n_groups, n_groups, n_relations)) < 0.5
    pairs = np.array([(i, j) for i in range(n) for j in range(n) if i != j], np.int32)
    codes = table[group[pairs[:, 0]], group[pairs[:, 1]]] ^ (rng.random((len(pairs), n_relations)) < noise)
    domain = make_domain([2] * n_relations)
    empty = Domain([])
    things = Entities(
        EntityType("thing", empty), Dataset(empty, np.zeros((n, 0), np.int8)), np.zeros((n, 0), np.int32), tuple(map(str, range(n)))
    )
    kind = EntityType("pair", domain, (Argument("one", "thing"), Argument("other", "thing")))
    return RelationalData([things, Entities(kind, Dataset(domain, codes.astype(np.int8)), pairs)]), group
