"""The learners of relational data by the names of the command line, with the settings of the paper."""

from __future__ import annotations

import importlib
from typing import Any

from undirected.errors import ParameterError, did_you_mean
from undirected.relational.learner import RelationalLearner

TREERMN = "undirected.relational.treermn.TreeRMN"
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "rmn0": (TREERMN, {"order": 0, "hidden": 0, "inference": "mean-field"}),
    "rmn1": (TREERMN, {"order": 1, "hidden": 0, "inference": "mean-field"}),
    "rmn2": (TREERMN, {"order": 2, "hidden": 0, "inference": "mean-field"}),
    "cvi": (TREERMN, {"order": 1, "inference": "mean-field"}),
    "treermn": (TREERMN, {}),
    "irm": ("undirected.relational.irm.IRM", {}),
    "mrc": ("undirected.relational.mrc.MRC", {}),
    "msl": ("undirected.relational.msl.MSL", {}),
}
# What the paper set for its data sets; elsewhere penalties are chosen.
PAPER_L1 = 0.01
PAPER_BETA = {"animals": 1.0, "nations": 1.0, "umls": 10.0, "kinship": 10.0}
PAPER_UNARY = ("animals", "umls")  # where CVI began with templates of one attribute alone


def make_relational_learner(name: str, dataset: str, **params: Any) -> RelationalLearner:
    """The learner of this name, with the paper's settings for its data sets; ``params`` override them."""
    if name not in LEARNERS:
        raise ParameterError(f"learner {name!r} is not known; choose of {', '.join(LEARNERS)}.{did_you_mean(name, LEARNERS)}")
    address, settings = LEARNERS[name]
    settings = dict(settings)
    if address == TREERMN and name != "treermn" and dataset in PAPER_BETA:
        settings |= {"l1": PAPER_L1, "beta": PAPER_BETA[dataset]}
        if name == "cvi" and dataset in PAPER_UNARY:
            settings["templates"] = "unary"
    module, _, kind = address.rpartition(".")
    learner: RelationalLearner = getattr(importlib.import_module(module), kind)(**{**settings, **params})
    return learner
