"""Relational models as JSON: everything that prediction needs, and nothing that could be run."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.files import read_bytes
from undirected.data.variables import Domain
from undirected.errors import DataError, FormatError, UndirectedError
from undirected.formats.native import describe_domain, read_domain
from undirected.relational.hidden import HiddenVariable, count_categories
from undirected.relational.learner import RelationalLearner
from undirected.relational.model_parts import PARTS, describe_data, describe_settings, read_data
from undirected.relational.schema import Argument, EntityType, Schema
from undirected.relational.templates import Templates
from undirected.relational.treermn import TreeRMN
from undirected.store import write_whole

FORMAT = "undirected-relational"
VERSION = 1
SETTINGS = ("order", "templates", "objective", "inference")  # of the learner, which prediction or a reader needs
MOST_TYPES, MOST_ENTITIES = 10_000, 100_000_000


def save_model(model: RelationalLearner, path: str | os.PathLike[str]) -> None:
    """Write a model as JSON: a `TreeRMN`, or an `IRM` or `MRC` with the data that it was learned from, or an `MSL`."""
    types = [
        {"name": kind.name, "arguments": [[a.name, a.target] for a in kind.arguments], **describe_domain(kind.attributes)}
        for kind in model.schema_.types
    ]
    tree = {"format": FORMAT, "version": VERSION, "types": types}
    if isinstance(model, TreeRMN):
        tree |= _describe_treermn(model)
    else:
        name, part = next((name, part) for name, part in PARTS.items() if isinstance(model, part.kind))
        tree |= {"learner": name, "settings": describe_settings(model), **part.describe(model)}
        if part.with_data:
            tree["data"] = describe_data(model.data_)
    write_whole(path, json.dumps(tree, ensure_ascii=False, allow_nan=False) + "\n")


def _describe_treermn(model: TreeRMN) -> dict[str, Any]:
    hidden = [
        {"name": h.name, "type": h.type, "n_categories": h.n_categories, "entities": list(h.entities), "of": h.of.tolist()}
        for h in model.hidden_
    ]
    return {
        "settings": {name: getattr(model, name) for name in SETTINGS}, "l1": model.l1_, "beta": model.beta_, "hidden": hidden,
        "marginals": [shares.tolist() for shares in model.marginals_], "weights": model.weights_.tolist(),
    }  # fmt: skip


def load_model(path: str | os.PathLike[str]) -> RelationalLearner:
    """Read a model that `save_model` wrote; anything else is an error that says where."""
    name = os.fspath(path)
    try:
        tree = json.loads(read_bytes(_check_file(Path(path))).decode("utf8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: not a model that can be read ({error})") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise FormatError(f'{name}: not a relational model (no "format": "{FORMAT}")')
    if tree.get("version") != VERSION:
        raise FormatError(f"{name}: version {str(tree.get('version'))[:20]} of the format; this program reads version {VERSION}")
    try:
        return _build(tree, name)
    except FormatError as error:
        raise (error if name in str(error) else FormatError(f"{name}: damaged ({str(error)[:200]})")) from None
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError, AttributeError, UndirectedError) as error:
        raise FormatError(f"{name}: damaged ({type(error).__name__}: {str(error)[:200]})") from None


def _check_file(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"there is no file {os.fspath(path)!r}")
    return path


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a weight")


def _build(tree: dict[str, Any], name: str) -> RelationalLearner:
    """The model that a document describes."""
    if not 0 < len(tree["types"]) <= MOST_TYPES:
        raise FormatError(f"{name}: {len(tree['types'])} types")
    schema = Schema(_read_type(entry, name) for entry in tree["types"])
    if "learner" not in tree:
        return _build_treermn(tree, schema, name)
    part = PARTS[tree["learner"]]
    model = part.kind(**tree["settings"])
    data = read_data(tree["data"], schema, name) if part.with_data else None
    model.schema_ = schema
    if data is not None:
        model.data_ = data
    part.build(model, tree, schema, data)
    return model


def _build_treermn(tree: dict[str, Any], schema: Schema, name: str) -> TreeRMN:
    hidden = [_read_hidden(entry, schema, name) for entry in tree["hidden"]]
    settings = {key: tree["settings"][key] for key in SETTINGS}
    model = TreeRMN(**settings, l1=tree["l1"], beta=tree["beta"])
    model.check_settings(schema)
    templates = Templates(schema, _read_whole(settings["order"], name), settings["templates"], count_categories(schema, hidden))
    weights = np.array(tree["weights"], dtype=float)
    if weights.shape != (templates.n_weights,) or not np.isfinite(weights).all():
        raise FormatError(f"{name}: {weights.size} weights; {templates.n_weights} finite ones are needed")
    marginals = [np.array(shares, dtype=float) for shares in tree["marginals"]]
    if [len(shares) for shares in marginals] != templates.active or not all(((m > 0) & (m < 1)).all() for m in marginals):
        raise FormatError(f"{name}: the marginals do not fit the attributes")
    model.schema_, model.templates_, model.weights_, model.hidden_, model.marginals_ = schema, templates, weights, hidden, marginals
    model.l1_, model.beta_ = float(tree["l1"]), float(tree["beta"])
    return model


def _read_type(entry: dict[str, Any], name: str) -> EntityType:
    domain = read_domain(entry, name) if entry["variables"] else Domain([])
    arguments = tuple(Argument(str(argument), str(target)) for argument, target in entry["arguments"])
    return EntityType(_read_text(entry["name"], name), domain, arguments)


def _read_hidden(entry: dict[str, Any], schema: Schema, name: str) -> HiddenVariable:
    n, of = _read_whole(entry["n_categories"], name), np.array(entry["of"], dtype=np.int64)
    entities = tuple(_read_text(text, name) for text in entry["entities"])
    if of.shape != (len(entities),) or (len(of) and (of.min() < -1 or of.max() >= n)) or n > MOST_ENTITIES:
        raise FormatError(f"{name}: hidden variable {str(entry['name'])[:40]!r} has categories beyond its {n}")
    return HiddenVariable(_read_text(entry["name"], name), schema[str(entry["type"])].name, of, n, entities)


def _read_whole(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise FormatError(f"{name}: {str(value)[:40]!r} is not a whole number")
    return value


def _read_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise FormatError(f"{name}: {str(value)[:40]!r} is not a text")
    return value
