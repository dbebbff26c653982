"""What files hold of the relational models other than TreeRMN: settings, what was found, and the data where predictions need it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import FormatError
from undirected.kernels.types import Array
from undirected.relational.blocks import Prior
from undirected.relational.clauses import Vocabulary
from undirected.relational.data import Entities, RelationalData
from undirected.relational.irm import IRM
from undirected.relational.learner import RelationalLearner
from undirected.relational.mrc import MRC, Clustering, Labels
from undirected.relational.msl import INFERENCE, MOST_LITERALS, MOST_VARIABLES, MSL
from undirected.relational.schema import Schema

LIMITS = ("threads", "memory", "time_budget", "random_state", "progress")  # of a run, not of a model
Tree = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """How one kind of model is written and read, and whether it needs the data that it was learned from."""

    kind: type[RelationalLearner]
    describe: Callable[[Any], Tree]
    build: Callable[[Any, Tree, Schema, RelationalData | None], None]
    with_data: bool


def describe_settings(model: RelationalLearner) -> Tree:
    """The parameters that decide what a model is."""
    return {name: value for name, value in model.get_params().items() if name not in LIMITS}


def describe_data(data: RelationalData) -> list[Tree]:
    """All tables, as lists."""
    return [
        {"keys": None if t.keys is None else list(t.keys), "arguments": t.arguments.tolist(), "codes": t.cells.codes.tolist()}
        for t in data.tables
    ]


def read_data(trees: Sequence[Tree], schema: Schema, name: str) -> RelationalData:
    """The data that `describe_data` wrote."""
    tables = []
    for tree, kind in zip(trees, schema.types, strict=True):
        codes = read_whole_numbers(tree["codes"]).reshape(len(tree["codes"]), len(kind.attributes))
        arguments = read_whole_numbers(tree["arguments"]).reshape(len(codes), len(kind.arguments))
        keys = None if tree["keys"] is None else tuple(str(key) for key in tree["keys"])
        if codes.size and ((codes < -1).any() or (codes.max(axis=0) >= kind.attributes.n_states).any()):
            raise FormatError(f"{name}: type {kind.name!r} has codes beyond the states of its attributes")
        cells = Dataset(kind.attributes, codes.astype(np.int16 if codes.max(initial=0) < 1 << 15 else np.int32), source=name)
        tables.append(Entities(kind, cells, arguments.astype(np.int32), keys))
    return RelationalData(tables, name)


def read_whole_numbers(values: Any) -> Array:
    """A list of whole numbers, which may be nested, as an array."""
    found = np.array(values)
    if found.size and found.dtype.kind != "i":
        raise ValueError("whole numbers are needed")
    return found.astype(np.int64)


# -- IRM
def _describe_irm(model: IRM) -> Tree:
    priors = list(dict.fromkeys(prior for prior, _ in model.samples_))
    samples = [{"prior": priors.index(prior), "clusters": [p.tolist() for p in partitions]} for prior, partitions in model.samples_]
    return {
        "priors": [[p.alpha, p.beta, p.base] for p in priors],
        "samples": samples,
        "shown": {name: clusters.tolist() for name, clusters in model.partition_.items()},
    }


def _build_irm(model: IRM, tree: Tree, schema: Schema, data: RelationalData | None) -> None:
    assert data is not None
    model.check_settings()
    priors = [Prior(float(alpha), float(beta), str(base)) for alpha, beta, base in tree["priors"]]
    for prior in priors:
        IRM(prior.alpha, prior.beta, prior.base).check_settings()
    model.samples_ = []
    for sample in tree["samples"]:
        clusters = [read_whole_numbers(own) for own in sample["clusters"]]
        _check_clusters(clusters, [len(table) for table in data.tables])
        model.samples_.append((priors[sample["prior"]], clusters))
    model.partition_ = {schema[name].name: read_whole_numbers(own) for name, own in tree["shown"].items()}
    _check_clusters(list(model.partition_.values()), [len(data[name]) for name in model.partition_])
    model.prior_ = model.samples_[0][0]


def _check_clusters(clusters: Sequence[Array], sizes: Sequence[int]) -> None:
    if [own.shape for own in clusters] != [(size,) for size in sizes] or any(len(own) and own.min() < 0 for own in clusters):
        raise ValueError("clusters do not fit the entities")


# -- MRC
def _describe_mrc(model: MRC) -> Tree:
    return {"hierarchies": [_describe_clustering(root) for root in model.hierarchies_]}


def _describe_clustering(root: Clustering) -> Tree:
    tree: Tree = {}
    rest = deque([(root, tree)])
    while rest:
        clustering, own = rest.popleft()
        own |= {"place": clustering.place, "clusters": [labels.tolist() for labels in clustering.labels], "inside": []}
        for part in clustering.inside:
            own["inside"].append({})
            rest.append((part, own["inside"][-1]))
    return tree


def _build_mrc(model: MRC, tree: Tree, schema: Schema, data: RelationalData | None) -> None:
    assert data is not None
    model.check_settings()
    model.restore(data, [_read_labels(root) for root in tree["hierarchies"]])


def _read_labels(tree: Tree) -> Labels:
    clusters = [read_whole_numbers(own) for own in tree["clusters"]]
    return Labels(clusters, [_read_labels(part) for part in tree["inside"]], int(tree["place"]))


# -- MSL
def _describe_msl(model: MSL) -> Tree:
    return {
        "clauses": [model.vocabulary_.write(clause) for clause in model.clauses_],
        "weights": model.weights_.tolist(),
        "sd": model.sd_,
        "inference": model.inference_,
    }


def _build_msl(model: MSL, tree: Tree, schema: Schema, data: RelationalData | None) -> None:
    model.check_settings()
    model.vocabulary_ = Vocabulary(schema)
    model.clauses_ = [model.vocabulary_.read(text)[0] for text in tree["clauses"]]
    widest = max([MOST_VARIABLES, *(len(kind.arguments) for kind in schema.types)])
    if any(len(clause) > MOST_LITERALS or clause.n_variables > widest for clause in model.clauses_):
        raise ValueError(f"clauses have at most {MOST_LITERALS} literals and {widest} variables")
    model.weights_ = np.array(tree["weights"], dtype=float)
    if model.weights_.shape != (len(model.clauses_),) or not np.isfinite(model.weights_).all():
        raise ValueError("a finite weight for each clause is needed")
    if tree["inference"] not in INFERENCE[1:]:
        raise ValueError(f"inference is one of {', '.join(INFERENCE[1:])}")
    model.sd_, model.inference_ = float(tree["sd"]), tree["inference"]


PARTS = {
    "irm": Part(IRM, _describe_irm, _build_irm, True),
    "mrc": Part(MRC, _describe_mrc, _build_mrc, True),
    "msl": Part(MSL, _describe_msl, _build_msl, False),
}
