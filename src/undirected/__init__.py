"""Learn Markov networks (undirected graphical models) from discrete data, and ask them questions.

>>> import undirected
>>> learner = undirected.GSSL(n_generated=20_000, l1=1).fit(undirected.datasets.load("digits"))
>>> learner.network_
<MarkovNetwork of 64 variables, ...>

Names load what they need when they are first used, so that importing the package takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AllPairs": "undirected.structure.all_pairs",
    "Atomic": "undirected.structure.atomic",
    "Auto": "undirected.structure.auto",
    "BLM": "undirected.structure.blm",
    "BUSL": "undirected.structure.busl",
    "ChowLiu": "undirected.structure.chow_liu",
    "ClusterNet": "undirected.structure.clusternet",
    "Comparison": "undirected.evaluation.results",
    "DTBLM": "undirected.structure.dt_blm",
    "DTL1": "undirected.structure.dt_l1",
    "DTSL": "undirected.structure.dtsl",
    "DataError": "undirected.errors",
    "Dataset": "undirected.data.dataset",
    "DellaPietra": "undirected.structure.della_pietra",
    "DependencyNetwork": "undirected.structure.dependency_network",
    "Domain": "undirected.data.variables",
    "DownloadError": "undirected.errors",
    "FeatureError": "undirected.errors",
    "FeatureSet": "undirected.features.feature_set",
    "FormatError": "undirected.errors",
    "FormatWarning": "undirected.errors",
    "GSSL": "undirected.structure.gssl",
    "L1": "undirected.structure.l1",
    "MarkovNetwork": "undirected.network.network",
    "ParameterError": "undirected.errors",
    "PseudoLikelihood": "undirected.weights.pseudo_likelihood",
    "Source": "undirected.data.source",
    "Stability": "undirected.evaluation.stability",
    "StreamClassifier": "undirected.streaming.classifier",
    "StreamRun": "undirected.streaming.run",
    "StreamedClusterNet": "undirected.streaming.clusternet",
    "StreamedDTSL": "undirected.streaming.dtsl",
    "StreamedGSSL": "undirected.streaming.gssl",
    "StreamedSearch": "undirected.streaming.search",
    "Tuned": "undirected.tuning.tune",
    "Unconverged": "undirected.errors",
    "UndirectedError": "undirected.errors",
    "Variable": "undirected.data.variables",
    "WeightFit": "undirected.weights.fit",
    "Answer": "undirected.inference.answer",
    "CMLL": "undirected.evaluation.cmll",
    "ImpossibleEvidence": "undirected.errors",
    "NothingFound": "undirected.errors",
    "TableWarning": "undirected.errors",
    "cmll": "undirected.evaluation.cmll",
    "bootstrap": "undirected.evaluation.stability",
    "compare": "undirected.evaluation.comparison",
    "compare_groups": "undirected.evaluation.groups",
    "compare_streams": "undirected.evaluation.streams",
    "fit_path": "undirected.weights.fit",
    "fit_weights": "undirected.weights.fit",
    "holdout": "undirected.data.splits",
    "learn_stream": "undirected.streaming.run",
    "open_source": "undirected.data.source",
    "read_data": "undirected.data.readers",
    "tune": "undirected.tuning.tune",
}
_MODULES = ("datasets", "plots")

__all__ = [
    "BLM",
    "BUSL",
    "CMLL",
    "DTBLM",
    "DTL1",
    "DTSL",
    "GSSL",
    "L1",
    "AllPairs",
    "Answer",
    "Atomic",
    "Auto",
    "ChowLiu",
    "ClusterNet",
    "Comparison",
    "DataError",
    "Dataset",
    "DellaPietra",
    "DependencyNetwork",
    "Domain",
    "DownloadError",
    "FeatureError",
    "FeatureSet",
    "FormatError",
    "FormatWarning",
    "ImpossibleEvidence",
    "MarkovNetwork",
    "NothingFound",
    "ParameterError",
    "PseudoLikelihood",
    "Source",
    "Stability",
    "StreamClassifier",
    "StreamRun",
    "StreamedClusterNet",
    "StreamedDTSL",
    "StreamedGSSL",
    "StreamedSearch",
    "TableWarning",
    "Tuned",
    "Unconverged",
    "UndirectedError",
    "Variable",
    "WeightFit",
    "__version__",
    "bootstrap",
    "cmll",
    "compare",
    "compare_groups",
    "compare_streams",
    "datasets",
    "fit_path",
    "fit_weights",
    "holdout",
    "learn_stream",
    "load",
    "open_source",
    "plots",
    "read_data",
    "tune",
]

if TYPE_CHECKING:
    from undirected import datasets, plots
    from undirected.data.dataset import Dataset
    from undirected.data.readers import read_data
    from undirected.data.source import Source, open_source
    from undirected.data.splits import holdout
    from undirected.data.variables import Domain, Variable
    from undirected.errors import (
        DataError,
        DownloadError,
        FeatureError,
        FormatError,
        FormatWarning,
        ImpossibleEvidence,
        NothingFound,
        ParameterError,
        TableWarning,
        Unconverged,
        UndirectedError,
    )
    from undirected.evaluation.cmll import CMLL, cmll
    from undirected.evaluation.comparison import compare
    from undirected.evaluation.groups import compare_groups
    from undirected.evaluation.results import Comparison
    from undirected.evaluation.stability import Stability, bootstrap
    from undirected.evaluation.streams import compare_streams
    from undirected.features.feature_set import FeatureSet
    from undirected.inference.answer import Answer
    from undirected.network.network import MarkovNetwork
    from undirected.streaming.classifier import StreamClassifier
    from undirected.streaming.clusternet import StreamedClusterNet
    from undirected.streaming.dtsl import StreamedDTSL
    from undirected.streaming.gssl import StreamedGSSL
    from undirected.streaming.run import StreamRun, learn_stream
    from undirected.streaming.search import StreamedSearch
    from undirected.structure.all_pairs import AllPairs
    from undirected.structure.atomic import Atomic
    from undirected.structure.auto import Auto
    from undirected.structure.blm import BLM
    from undirected.structure.busl import BUSL
    from undirected.structure.chow_liu import ChowLiu
    from undirected.structure.clusternet import ClusterNet
    from undirected.structure.della_pietra import DellaPietra
    from undirected.structure.dependency_network import DependencyNetwork
    from undirected.structure.dt_blm import DTBLM
    from undirected.structure.dt_l1 import DTL1
    from undirected.structure.dtsl import DTSL
    from undirected.structure.gssl import GSSL
    from undirected.structure.l1 import L1
    from undirected.tuning.tune import Tuned, tune
    from undirected.weights.fit import WeightFit, fit_path, fit_weights
    from undirected.weights.pseudo_likelihood import PseudoLikelihood


def load(path: str, domain: Domain | Dataset | MarkovNetwork | None = None) -> MarkovNetwork:
    """Read a network from a file: ``.json``, ``.mn`` or ``.uai``.

    The last two have no names; ``domain`` (a domain, or a table or network that has one) gives them to variables and states.
    """
    from undirected import formats

    return formats.load(path, domain)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"undirected.{name}")
    else:
        raise AttributeError(f"module 'undirected' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
