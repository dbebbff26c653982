"""DTSL on a stream: trees of every chunk, or Hoeffding trees that grow over the whole stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import ParameterError, check_number
from undirected.features.feature_set import FeatureSet
from undirected.streaming.hoeffding import Forest, Growth
from undirected.streaming.learner import SHARED_PARAMETERS, StreamLearner
from undirected.streaming.packing import Arrays
from undirected.structure.dtsl import CONVERSIONS, convert
from undirected.structure.trees import Trees, grow_trees
from undirected.work import MEMORY, Work


@dataclass
class Grown:
    """The Hoeffding trees, if there are any: trees of chunks are not kept."""

    forest: Forest | None

    def copy(self) -> Grown:
        """The same trees, to be grown on their own."""
        return Grown(None if self.forest is None else self.forest.copy())


class StreamedDTSL(StreamLearner):
    __doc__ = f"""`DTSL` chunk by chunk: candidates are the paths of each chunk's trees, or (``hoeffding``) of trees that go on growing.

    Parameters
    ----------
    hoeffding : bool
        One tree for each variable over the whole stream, as in VFDT, instead of new ones on each chunk.
    conversion : {{"prune", "default", "prune-10", "prune-5", "nonzero"}}
        As in `DTSL`.
    kappa, min_rows : float
        As in `DTSL`; a Hoeffding leaf meets both, too, before it splits.
    grace : int
        Rows of a Hoeffding leaf between two looks at its tests.
    split_delta : float
        Chance that a Hoeffding split is not the best one.
    tau : float
        Where the bound is below this, tests are as good as each other, and the best so far is made.
    max_leaves : int
        Most leaves of a Hoeffding tree. Counts at leaves take at most a quarter of ``memory``; others do not split.{SHARED_PARAMETERS}

    Attributes
    ----------
    trees_ : Trees
        The Hoeffding trees after the last chunk, or the trees of the last chunk.

    Notes
    -----
    Lowd and Davis, JMLR 15, 2014, Section 4.3; Domingos and Hulten, "Mining High-Speed Data Streams", KDD 2000. Deviations: (1) a split
    tests one state of one variable, as in `DTSL`; the bound compares the best tests of the two best variables. (2) A split must gain
    what ``kappa`` asks for, tied or not; ``kappa=1`` restores the paper. (3) As in `StreamedGSSL`, (1) and (2).

    Examples
    --------
    >>> from undirected import StreamedDTSL, datasets
    >>> learner = StreamedDTSL(hoeffding=True)
    >>> for chunk in datasets.load("digits").shards(3):
    ...     learner = learner.learn_many(chunk)
    >>> learner.n_chunks_, bool(learner.last_.npll > -0.6)
    (3, True)
    """

    kind: ClassVar[str] = "dtsl"

    def __init__(
        self,
        hoeffding: bool = False,
        conversion: str = "prune",
        kappa: float = 0.01,
        min_rows: float = 10,
        grace: int = 200,
        split_delta: float = 1e-4,
        tau: float = 0.05,
        max_leaves: int = 100,
        l1: float = 1.0,
        sd: float = 1.0,
        tol: float = 1e-4,
        remember: str = "curvature",
        decay: float = 1.0,
        window: int = 10,
        max_features: int = 50_000,
        screen: bool = True,
        patience: int = 2,
        chunk_rows: int = 2000,
        watch: str = "auto",
        delta: float = 0.002,
        drift: str = "none",
        missing: str = "drop",
        unknown: str = "skip",
        bins: int = 4,
        reading: Mapping[str, Any] | None = None,
        threads: int | None = None,
        memory: int = MEMORY,
        progress: Any = None,
        domain: Any = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            l1, sd, tol, remember, decay, window, max_features, screen, patience, chunk_rows, watch, delta, drift, missing, unknown, bins,
            reading, threads, memory, progress, domain, random_state,
        )  # fmt: skip
        self.hoeffding = hoeffding
        self.conversion = conversion
        self.kappa = kappa
        self.min_rows = min_rows
        self.grace = grace
        self.split_delta = split_delta
        self.tau = tau
        self.max_leaves = max_leaves

    trees_: Trees

    def check_parameters(self) -> None:
        if self.conversion not in CONVERSIONS:
            raise ParameterError(f"conversion={self.conversion!r} is not known; choose one of {', '.join(CONVERSIONS)}")
        check_number("kappa", self.kappa, 0, 1, above=True)
        check_number("min_rows", self.min_rows, 0, above=True)
        check_number("grace", self.grace, 1, whole=True)
        check_number("split_delta", self.split_delta, 0, 1, above=True)
        check_number("tau", self.tau, 0)
        check_number("max_leaves", self.max_leaves, 1, whole=True)

    def start_structure(self, chunk: Dataset) -> Grown:
        return Grown(Forest.plant(chunk, int(self.memory) // 4) if self.hoeffding else None)

    def update_structure(self, structure: Grown, chunk: Dataset, work: Work) -> FeatureSet:
        if structure.forest is None:
            self.trees_ = grow_trees(chunk, self.min_rows, float(self.kappa), work.silent())
        else:
            if self.decay < 1:
                structure.forest.fade(self.decay)
            growth = Growth(
                int(self.grace), self.split_delta, self.tau, -float(np.log(self.kappa)), self.min_rows, int(self.max_leaves),
                int(self.memory) // 4,
            )  # fmt: skip
            structure.forest.learn(chunk, growth, work)
            self.trees_ = structure.forest.read_trees(work.threads)
        return convert(self.trees_, self.conversion)

    def widen_structure(self, structure: Grown, domain: Domain) -> None:
        if structure.forest is not None:
            structure.forest.widen(domain)

    def pack_structure(self, structure: Grown) -> tuple[dict[str, Any], Arrays]:
        return {"hoeffding": structure.forest is not None}, {} if structure.forest is None else structure.forest.pack()

    def unpack_structure(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> Grown:
        return Grown(Forest.unpack(arrays, domain) if tree["hoeffding"] else None)
