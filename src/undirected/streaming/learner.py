"""The one loop of all stream learners: score a chunk, look for drift, update the structure, update the weights."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from undirected.data.dataset import Dataset
from undirected.data.readers import Reading
from undirected.data.variables import Domain
from undirected.errors import DataError, FormatError, ParameterError, check_number
from undirected.features.feature_set import FeatureSet
from undirected.formats.native import describe_domain, read_domain
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.streaming.drift import REACTIONS, Watch
from undirected.streaming.fitting import Fitting, Limits, View
from undirected.streaming.measures import ChunkLearned, Scores
from undirected.streaming.memory import Memory
from undirected.streaming.packing import Arrays, add_prefix, pack, take_prefix, unpack
from undirected.streaming.rows import Coded, Rejected, Row, RowCoder, read_row, tidy_row, write_row
from undirected.streaming.widening import widen_data, widen_features
from undirected.structure.learner import find_domain
from undirected.weights.penalty import check_prior
from undirected.work import MEMORY, Work

TABLE_RULES, COLUMN_RULES = ("na", "decimal", "drop", "columns"), ("categorical", "numeric")  # what ``reading`` may have

# For the docstrings of stream learners.
SHARED_PARAMETERS = """
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`.
    tol : float
        Largest violation of the optimality conditions of a chunk's fit, divided by its rows.
    remember : {"curvature", "window", "none"}
        What the weights know of earlier chunks: a quadratic of every chunk's objective, the rows of the last ``window`` chunks, or
        nothing, as in the paper.
    decay : float
        With ``curvature`` (and for counts of the structure), what a chunk weighs when the next one comes; 1 for a stationary stream,
        smaller to follow a changing one: the effective memory is ``1 / (1 - decay)`` chunks.
    window : int
        Chunks that ``remember="window"`` keeps.
    max_features : int
        Most features of the network. Those of weight zero leave first, then those of the smallest weight times support.
    screen : bool
        Let only those candidates into the network whose slope exceeds ``l1`` by more than chance explains, at most 200 with a chunk (2,000
        with the first), and let features leave whose weight is zero for ``patience`` chunks. Without, all candidates are in the network.
    patience : int
        Chunks for which a screened feature may have a weight of zero.
    chunk_rows : int
        Rows that `learn_one` gathers for a chunk.
    watch : {"auto", "rows", "variables", "none"}
        Where river's ADWIN looks for drift: at the loss of each row, and at that of each variable, too. ``auto``: at the rows, if river
        is installed.
    delta : float
        ADWIN's bound on false alarms.
    drift : {"none", "forget", "rebuild"}
        What a drift does beside being told: ``forget`` lets earlier chunks count a tenth, ``rebuild`` starts anew with the chunk.
    missing : {"drop", "mode", "state", "error"}
        Rows with missing cells are left out, filled in with the most frequent states of the first chunk, take missing as a state, or
        are an error.
    unknown : {"skip", "error", "extend"}
        The row of a state that the first chunk did not have is left out, or is an error, or the state is added to its variable.
    reading : mapping, optional
        How columns and cells are taken, by the names that `undirected.read_data` has for it: ``na``, ``decimal``, ``drop``, ``columns``,
        ``categorical``, ``numeric``.
    bins, threads, memory, progress
        As in `undirected.read_data` and `undirected.fit_weights`.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        Variables and states, where they are not to be learned from the first chunk.
    random_state : int
        The same seed and rows give the same network for any number of threads."""


class StreamLearner(BaseEstimator):  # type: ignore[misc]
    """Base of the stream learners: a subclass has its parameters, and `start_structure`, `update_structure` and its state.

    Whatever ends a chunk early, Ctrl-C among it, leaves the learner as it was before the chunk.
    """

    kind: ClassVar[str] = ""  # the name of the learner in states

    def __init__(
        self,
        l1: float = 5.0,
        sd: float = 0.5,
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
        self.l1 = l1
        self.sd = sd
        self.tol = tol
        self.remember = remember
        self.decay = decay
        self.window = window
        self.max_features = max_features
        self.screen = screen
        self.patience = patience
        self.chunk_rows = chunk_rows
        self.watch = watch
        self.delta = delta
        self.drift = drift
        self.missing = missing
        self.unknown = unknown
        self.bins = bins
        self.reading = reading
        self.threads = threads
        self.memory = memory
        self.progress = progress
        self.domain = domain
        self.random_state = random_state

    n_chunks_: int
    n_rows_: int
    network_: MarkovNetwork
    rejected_: list[Rejected]
    waiting_: list[Row]
    features_now: FeatureSet  # of the network, while its structure is brought up to date
    _coder: RowCoder
    last_: ChunkLearned | None

    # -- what a subclass supplies
    @abstractmethod
    def start_structure(self, chunk: Dataset) -> Any:
        """The state of the structure before the first chunk is learned. It has a method `copy`."""

    @abstractmethod
    def update_structure(self, structure: Any, chunk: Dataset, work: Work) -> FeatureSet:
        """Bring the structure's state up to date with a chunk, and return the features that it stands for now."""

    @abstractmethod
    def widen_structure(self, structure: Any, domain: Domain) -> None:
        """Follow the domain to more states."""

    @abstractmethod
    def pack_structure(self, structure: Any) -> tuple[dict[str, Any], Arrays]:
        """The structure's state, for a checkpoint."""

    @abstractmethod
    def unpack_structure(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> Any:
        """Take up what `pack_structure` gave."""

    def drop_features(self, structure: Any, gone: FeatureSet) -> None:
        """Hear that features have left the network."""

    def check_parameters(self) -> None:
        """Raise unless the subclass's own parameters make sense."""

    # -- learning
    def learn_many(self, X: Any) -> Self:
        """Learn a chunk: a table that `undirected.read_data` takes in memory, or rows as mappings, sequences, or sets of items.

        Rows that cannot be learned are left out and told in ``rejected_``.
        """
        self.open()
        before = self._coder.domain
        saved = copy.copy(self._coder)
        try:
            coded = self._coder.encode_table(X)
            self._learn_chunk(coded)
        except BaseException:
            self._coder = saved
            if before is None:
                self._coder = self._make_coder()
            raise
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """`learn_many`, under scikit-learn's name."""
        return self.learn_many(X)

    def learn_one(self, x: Row) -> Self:
        """Take one row; every ``chunk_rows`` rows a chunk is learned."""
        self.open()
        row = tidy_row(x)
        if self._coder.domain is not None and "error" in (self.unknown, self.missing):
            copy.copy(self._coder).encode([row])  # one that is an error is refused by itself
        self.waiting_.append(row)
        if len(self.waiting_) >= self.chunk_rows:
            try:
                self.flush()
            except BaseException:
                self.waiting_.pop()  # it can be given again
                raise
        return self

    def set_names(self, names: list[str] | None) -> None:
        """Say what the cells of rows that are sequences are called; once the first chunk is learned this has no effect."""
        self.open()
        if self._coder.domain is None or self._coder.names is None:
            self._coder.take_names(names)

    def name_cells(self, row: Row, names: list[str] | None) -> Row:
        """A row that comes with names; where these are not those of the first rows, each cell gets its own."""
        known = self._coder.names
        if names is None or known is None or names == known or not isinstance(row, list | tuple) or len(row) != len(names):
            return row
        return dict(zip(names, row, strict=True))

    def flush(self) -> Self:
        """Learn the rows that `learn_one` has gathered, though they are fewer than a chunk."""
        self.open()
        if self.waiting_:
            self.learn_many(self.waiting_)
            self.waiting_ = []
        return self

    def open(self) -> None:
        """Make the state of a learner that has not learned yet, unless it is there."""
        if hasattr(self, "n_chunks_"):
            return
        self._check()
        self._coder = self._make_coder()
        self._fitting: Fitting | None = None
        self._structure: Any = None
        self._watch: Watch | None = None
        self._before: Dataset | None = None
        self._scores = Scores()
        self.waiting_ = []
        self.rejected_ = []
        self.last_ = None
        self.n_chunks_ = self.n_rows_ = 0

    def _check(self) -> None:
        check_prior(self.l1, self.sd, self.tol)
        Memory(self.remember, self.decay, self.window)
        for name, least in (("max_features", 1), ("patience", 1), ("chunk_rows", 1), ("random_state", 0)):
            check_number(name, getattr(self, name), least, whole=True)
        check_number("delta", self.delta, 0, 1, above=True)
        if self.drift not in REACTIONS:
            raise ParameterError(f"drift={self.drift!r} is not known; choose one of {', '.join(REACTIONS)}")
        Watch(self.watch)
        self.check_parameters()

    def _make_coder(self) -> RowCoder:
        given = dict(self.reading or {})
        strange = sorted(set(given) - {*TABLE_RULES, *COLUMN_RULES})
        if strange:
            raise ParameterError(f"reading has {strange[0]!r}; choose among {', '.join((*TABLE_RULES, *COLUMN_RULES))}")
        reading = Reading(**{name: given[name] for name in TABLE_RULES if name in given})
        columns: dict[str, Any] = {name: tuple(given.get(name, ())) for name in COLUMN_RULES}
        return RowCoder(find_domain(self.domain), self.bins, self.missing, self.unknown, reading, **columns)

    def _learn_chunk(self, coded: Coded) -> None:
        """Learn a coded chunk; everything is worked out on copies, which take their places at the end."""
        chunk, work = coded.data, Work.start(self.threads, self.memory, None, progress=self.progress)
        if not chunk.total_weight > 0:
            self.rejected_ = coded.rejected
            return
        if (chunk.weights <= 0).any():
            chunk = chunk.subset(np.flatnonzero(chunk.weights > 0))
        began = work.now()
        fitting, structure, watch = self._copy_state(chunk)
        view = View(fitting.features, chunk, work)
        losses = self._find_losses(view, fitting, chunk) if fitting.started else None
        scored = work.now()
        drift = None if losses is None else watch.update(losses, chunk.domain.names)
        known = FeatureSet.from_normalised([], chunk.domain) if self._fitting is None else self._fitting.features
        before, rows = (known if known.domain == chunk.domain else widen_features(known, chunk.domain)), chunk
        view_now: View | None = view
        if drift is not None and self.drift == "forget":
            fitting.memory.forget()
        elif drift is not None and self.drift == "rebuild":
            rows = self._find_last_rows(chunk)
            fitting.restart()
            structure, view_now = self.start_structure(rows), None
        limits = Limits(self.l1, self.sd, self.tol, self.screen and self.l1 > 0, int(self.patience), int(self.max_features))
        if len(FeatureSet.atomic(chunk.domain)) > limits.max_features:
            n = len(FeatureSet.atomic(chunk.domain))
            raise ParameterError(f"max_features={limits.max_features:,}: the {n:,} atomic features alone are more; allow more")
        self.features_now = fitting.features
        candidates = self.update_structure(structure, rows, work)
        proposed = work.now()
        outcome = fitting.learn(rows, candidates.subset(candidates.lengths > 0), limits, work, view_now)
        self.drop_features(structure, before.difference(fitting.features))
        fitted = work.now()
        self._fitting, self._structure, self._watch, self.rejected_ = fitting, structure, watch, coded.rejected
        self._before = chunk if self.drift == "rebuild" else None
        self.network_ = MarkovNetwork(fitting.features, fitting.weights)
        self.domain_ = chunk.domain
        npll = math.nan if losses is None else float(np.average(losses.mean(axis=1), weights=chunk.weights))
        if losses is not None:
            self._scores = self._scores.add(-npll, chunk.total_weight)
        self.n_chunks_ += 1
        self.n_rows_ += len(chunk)
        counts = {"rejected": len(coded.rejected), "unknown items": coded.unknown_items}
        n_after = len(fitting.features)
        added = len(fitting.features.difference(before))
        self.last_ = ChunkLearned(
            self.n_chunks_, len(chunk), self.n_rows_, -npll * len(chunk.domain), -npll, self._scores.mean, self._scores.fading,
            self._scores.mean_of_last,
            n_after, int((fitting.weights != 0).sum()), added, len(before) - (n_after - added), outcome.violation,
            outcome.violation <= self.tol,
            {"score": scored - began, "structure": proposed - scored, "weights": fitted - proposed},
            None if drift is None else str(drift), {name: n for name, n in counts.items() if n},
        )  # fmt: skip
        work.emit(self.last_)

    def _copy_state(self, chunk: Dataset) -> tuple[Fitting, Any, Watch]:
        """The state to work on: new before the first chunk, and over the domain of this one."""
        if self._fitting is None:
            memory = Memory(self.remember, self.decay, self.window)
            return Fitting.start(chunk.domain, memory), self.start_structure(chunk), Watch(self.watch, self.delta, len(chunk.domain))
        assert self._watch is not None
        fitting, structure = self._fitting.copy(), self._structure.copy()
        if fitting.features.domain != chunk.domain:
            fitting.widen(chunk.domain)
            self.widen_structure(structure, chunk.domain)
        return fitting, structure, self._watch.copy()

    def _find_losses(self, view: View, fitting: Fitting, chunk: Dataset) -> Array:
        """Minus the log-probability of every cell given the rest of its row, ``[rows][variables]``."""
        p = view.objective.probabilities(fitting.weights)
        own = np.take_along_axis(p, chunk.domain.base[:-1] + view.table.codes.astype(np.int64), axis=1)
        return np.asarray(-np.log(np.maximum(own, 1e-300))[chunk.group])

    def _find_last_rows(self, chunk: Dataset) -> Dataset:
        """The rows of a chunk and of the one before it."""
        if self._before is None:
            return chunk
        return Dataset.merge([widen_data(self._before, chunk.domain), chunk])

    @property
    def first_seed(self) -> int:
        """The seed of the first chunk, which is that of the batch learner."""
        return int(check_random_state(int(self.random_state)).randint(1 << 31))

    @property
    def seed_(self) -> int:
        """The seed of the present chunk."""
        return (self.first_seed + self.n_chunks_ * 0x9E3779B97F4A7C15) & ((1 << 62) - 1)

    # -- asking
    def score_many(self, X: Any) -> float:
        """The mean pseudo-log-likelihood of rows under the network as it is; nothing is learned."""
        return self._require_network().pll(self.code_rows(X), self.threads)

    def predict_proba_one(self, x: Mapping[str, Any], target: str) -> dict[str, float]:
        """P(target | the other cells of a row); cells may be missing, or unknown, which is the same. Before the first chunk: nothing."""
        if not hasattr(self, "network_"):
            return {}
        domain = self.network_.domain
        v = domain.index(target)
        codes = [self._coder.find_code(u, x.get(variable.name)) for u, variable in enumerate(domain.variables)]
        codes[v] = -1
        row = Dataset(domain, np.array([codes]))
        if all(code >= 0 for u, code in enumerate(codes) if u != v):
            p = self.network_.conditional(target, codes)
            return p
        found = self.network_.predict_proba(row, target, threads=self.threads)
        return dict(zip(domain[v].states, found[0].tolist(), strict=True))

    def _require_network(self) -> MarkovNetwork:
        if not hasattr(self, "network_"):
            raise DataError("no chunk has been learned yet, so there is no network")
        return self.network_

    def code_rows(self, X: Any) -> Dataset:
        """Rows as the network sees them; those that it cannot code are left out."""
        coder = copy.copy(self._coder)
        coder.unknown = "skip"
        data: Dataset = coder.encode_table(X).data
        if not len(data):
            raise DataError("none of the rows can be scored: they have missing cells or unknown states")
        return data

    # -- snapshots
    def snapshot(self) -> bytes:
        """The whole state in bytes, from which `restore` makes a learner that goes on as this one would."""
        return pack(*self.pack())

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """The whole state as a tree of JSON values and arrays."""
        self.open()
        params = {name: value for name, value in self.get_params().items() if name not in ("progress", "domain", "threads", "memory")}
        tree: dict[str, Any] = {
            "learner": self.kind, "params": params, "chunks": self.n_chunks_, "rows": self.n_rows_, "scores": self._scores.to_list(),
            "last": None if self.last_ is None else self.last_.to_dict(), "waiting": [write_row(row) for row in self.waiting_],
            "domain": None if self._coder.domain is None else describe_domain(self._coder.domain), "coder": self._coder.pack(),
        }  # fmt: skip
        if self._fitting is None or self._watch is None:
            return tree, {}
        arrays = add_prefix("network", self._fitting.pack())
        parts = {
            "memory": self._fitting.memory.pack(), "structure": self.pack_structure(self._structure), "watch": self._watch.pack(),
        }  # fmt: skip
        for name, (branch, own) in parts.items():
            tree[name] = branch
            arrays |= add_prefix(name, own)
        if self._before is not None:
            arrays |= {"before.codes": self._before.codes, "before.weights": self._before.weights}
        return tree, arrays

    def take_up(self, tree: dict[str, Any], arrays: Arrays, name: str = "the snapshot") -> Self:
        """Take the place of the learner whose state this is; parameters stay those of this learner."""
        if tree.get("learner") != self.kind:
            raise FormatError(f"{name} is the state of the learner {tree.get('learner')!r}, not of {self.kind!r}")
        try:
            self._take_up(tree, arrays, name)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            for attribute in [key for key in vars(self) if key.endswith("_") or key.startswith("_")]:
                delattr(self, attribute)
            if isinstance(error, FormatError | ParameterError):
                raise
            raise FormatError(f"{name} is not a stream's state ({type(error).__name__}: {error})") from None
        return self

    def _take_up(self, tree: dict[str, Any], arrays: Arrays, name: str) -> None:
        self.open()
        self.n_chunks_, self.n_rows_, self._scores = int(tree["chunks"]), int(tree["rows"]), Scores.from_list(tree["scores"])
        self.last_ = None if tree["last"] is None else _read_report(tree["last"])
        self.waiting_ = [read_row(row) for row in tree["waiting"]]
        if tree["domain"] is None:
            return
        domain = read_domain(tree["domain"], name)
        self._coder.unpack(tree["coder"])
        self._coder.take_domain(domain)
        if "memory" not in tree:
            return
        memory = Memory(self.remember, self.decay, self.window)
        memory.unpack(tree["memory"], take_prefix("memory", arrays), domain)
        self._fitting = Fitting.unpack(take_prefix("network", arrays), domain, memory)
        self._structure = self.unpack_structure(tree["structure"], take_prefix("structure", arrays), domain)
        self._watch = Watch(self.watch, self.delta, len(domain))
        self._watch.unpack(tree["watch"], take_prefix("watch", arrays))
        if "before.codes" in arrays and self.drift == "rebuild":
            self._before = Dataset(domain, arrays["before.codes"], arrays["before.weights"])
            self._before.require_complete("taking up a chunk")
        self.network_ = MarkovNetwork(self._fitting.features, self._fitting.weights)
        self.domain_ = domain

    @classmethod
    def restore(cls, snapshot: bytes, **changed: Any) -> Self:
        """Make the learner that a snapshot is of; parameters may be ``changed``."""
        tree, arrays = unpack(snapshot, "the snapshot")
        try:
            learner = cls(**{**tree["params"], **changed})
        except (KeyError, TypeError) as error:
            raise FormatError(f"the snapshot is not of a {cls.__name__} ({error})") from None
        return learner.take_up(tree, arrays)


def _read_report(tree: dict[str, Any]) -> ChunkLearned:
    unknown = ("drift", "lag", "cmll")
    values: dict[str, Any] = {name: math.nan if value is None and name not in unknown else value for name, value in tree.items()}
    return ChunkLearned(**values)
