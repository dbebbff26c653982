"""The infinite relational model: entities fall into clusters, and attributes depend on nothing but the clusters of their entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError, check_number, did_you_mean
from undirected.kernels.types import Array
from undirected.relational.beliefs import spread_states
from undirected.relational.blocks import Blocks, Chain, Partitions, Prior, list_kinds
from undirected.relational.data import Entities, RelationalData
from undirected.relational.learner import RelationalLearner
from undirected.relational.measures import score_cells
from undirected.work import MEMORY, Counted, Stopped, StoppedBy, Work

COOLING = (0.7, 0.5, 0.3, 0.2, 0.1, 0.0, 0.0)  # temperatures of the last sweeps
LEAST_HIDDEN = 5  # known cells to hide, below which nothing is chosen by them
STRONGER = 5.0  # times ``beta``, which is tried, too
SHARE_OF_CHOICE = 0.7  # of the time left, after which the choice is made by what is there
PLACING_SWEEPS = 3  # to find clusters for entities that were not learned from
BASES = ("auto", "uniform", "marginal")

Sample = tuple[Prior, Partitions]


@dataclass
class _Run:
    """One chain: where it is, and the partitions that it has been through since it forgot its start."""

    prior: Prior
    restart: int
    rng: np.random.Generator
    partitions: Partitions
    samples: list[Partitions] = field(default_factory=list)
    score: float = -np.inf


class IRM(RelationalLearner):
    """Cluster the entities of each type so that attributes depend on nothing but the clusters of their entities.

    The entities of a type have one partition, wherever they are arguments and in all of their own attributes. An attribute of a link
    has its own distribution for each combination of the clusters of its arguments (one that names nothing is a cluster of its own).
    These distributions are integrated out, under a Dirichlet prior; partitions have the prior of a Chinese restaurant. Gibbs sampling
    moves single entities, and splits and merges clusters. Unknown attributes are never counted. Where only some links are stored,
    their attributes are modelled, not which of them there are.

    A sweep costs, for each entity, its links plus the combinations of clusters that these lead to, times clusters and states: 0.3 s for
    135 entities, all of their pairs and 46 relations; 2 s for 5,000 entities, 100,000 links and 3 attributes. Counts take
    memory for all combinations of clusters.

    Parameters
    ----------
    alpha
        Appetite for new clusters.
    beta
        Prior weight of each state.
    base
        "uniform": each state of an attribute has this weight, as in the paper. "marginal": the weights of an attribute's states have
        the same sum, but are in proportion to how often the states occur, which suits relations that seldom hold. "auto": uniform with
        ``beta``, marginal with one or five times as much, or the mean of all three, whichever predicts hidden cells best.
    n_clusters
        Clusters of each type to start from, at random; with fewer entities, each starts alone.
    restarts
        Chains for each prior.
    sweeps
        Visits of every entity in each chain. The last half of them are samples; afterwards there are half as many on all of the data.
    average
        Predict by the mean over samples of all restarts; otherwise by the clusters of ``partition_``.
    validation
        Share of the known cells hidden to choose the prior and the restart; with 0, the most probable one is taken.
    threads, memory, time_budget, random_state, progress
        As in all learners; one thread is used. A quarter of ``memory`` limits the number of clusters.

    Attributes
    ----------
    partition_ : dict
        For each type with clusters the cluster of each entity; cluster 0 is the largest.
    log_posterior_ : float
        Of ``partition_``, under ``prior_``.
    prior_ : Prior
        Of ``partition_``.
    samples_ : list of (Prior, partitions)
        What predictions are averaged over.
    trials_ : list of (Prior, restart, mean log-likelihood of the cells hidden for the choice or log-posterior)

    Paper
    -----
    Kemp, Tenenbaum, Griffiths, Yamada, Ueda: Learning systems of concepts with an infinite relational model. AAAI 2006.

    Deviations
    ----------
    1. The paper may cluster relations and attributes, too; here each has distributions of its own.
    2. The weights of states may follow their shares: uniform ones charge every combination of clusters for each relation that never
       holds in it, so that there are too few clusters. ``base="uniform"`` restores the paper.
    3. Predictions are averaged over restarts, as chains seldom leave the partition that they come to first. ``average=False`` restores
       the single partition.
    4. The number of clusters is limited by memory.

    Examples
    --------
    >>> import pandas as pd
    >>> from undirected.relational.data import RelationalData
    >>> from undirected.relational.irm import IRM
    >>> pets = pd.DataFrame({"pet": list("abcdef"), "barks": [1, 1, 1, 0, 0, None], "purrs": [0, 0, 0, 1, 1, 1]})
    >>> model = IRM(restarts=1).fit(RelationalData.from_frames({"pet": (pets, "pet")}))
    >>> model.partition_["pet"].tolist()
    [0, 0, 0, 1, 1, 1]
    >>> bool(model.predict_proba()[0][0][5, 0] > 0.7)  # f does not bark
    True
    """

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 0.1,
        base: str = "auto",
        n_clusters: int = 40,
        restarts: int = 3,
        sweeps: int = 12,
        average: bool = True,
        validation: float = 0.05,
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        random_state: int = 0,
        progress: Any = None,
    ) -> None:
        super().__init__(threads, memory, time_budget, random_state, progress)
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.n_clusters = n_clusters
        self.restarts = restarts
        self.sweeps = sweeps
        self.average = average
        self.validation = validation

    partition_: dict[str, Array]
    log_posterior_: float
    prior_: Prior
    samples_: list[Sample]
    trials_: list[tuple[Prior, int, float]]

    def check_settings(self) -> None:
        """Raise unless the parameters make sense."""
        check_number("alpha", self.alpha, 0, above=True)
        check_number("beta", self.beta, 0, above=True)
        check_number("n_clusters", self.n_clusters, 1, whole=True)
        check_number("restarts", self.restarts, 1, whole=True)
        check_number("sweeps", self.sweeps, 1, whole=True)
        check_number("validation", self.validation, 0, 0.5)
        if self.base not in BASES:
            raise ParameterError(f"base={self.base!r}: one of {', '.join(BASES)} is needed.{did_you_mean(str(self.base), BASES)}")

    def _learn(self, data: RelationalData, work: Work) -> StoppedBy:
        self.check_settings()
        self.partition_, self.trials_ = {}, []
        runs, marks = self._list_runs(data, work), self._mark_hidden(data, work)
        shown = data if marks is None else data.hide(marks)
        ended = _end_early(lambda: self._explore(runs, shown, work.share(SHARE_OF_CHOICE)))
        kept = self._choose(runs, shown, data, marks, work.memory)
        self.prior_, self.samples_ = kept[0].prior, [(run.prior, sample) for run in kept for sample in run.samples]
        self._name_clusters(Blocks(data, kept[0].partitions, self.prior_, work.memory))
        if ended is not StoppedBy.INTERRUPT:
            later = _end_early(lambda: self._refit(kept, data, work))
            ended = ended or later
        if not self.average:
            self.samples_ = [(self.prior_, self._best)]
        return ended or StoppedBy.CONVERGED

    def _list_runs(self, data: RelationalData, work: Work) -> list[_Run]:
        """All chains, each with a start of its own: the first restart of every prior, then the second ones."""
        runs = []
        for restart in range(self.restarts):
            for i, prior in enumerate(self._list_priors()):
                rng = np.random.default_rng([work.seed, restart, i])
                start = [
                    1 + (rng.permutation(n) if n <= self.n_clusters else rng.integers(0, self.n_clusters, n)) for n in map(len, data.tables)
                ]
                runs.append(_Run(prior, restart, rng, start))
        return runs

    def _list_priors(self) -> list[Prior]:
        if self.base != "auto":
            return [Prior(self.alpha, self.beta, self.base)]
        tried = [("uniform", 1.0), ("marginal", 1.0), ("marginal", STRONGER)]
        return [Prior(self.alpha, times * self.beta, base) for base, times in tried]

    def _mark_hidden(self, data: RelationalData, work: Work) -> list[Array] | None:
        """Known cells to hide for the choice of a prior and a restart."""
        n = int(self.validation * data.n_observed)
        return data.cut_observed(data.n_observed // n, work.seed)[0] if n >= LEAST_HIDDEN else None

    def _explore(self, runs: Sequence[_Run], shown: RelationalData, work: Work) -> None:
        """Run every chain from its start. Until half of it is done, its only sample is where it is."""
        for i, run in enumerate(runs):
            chain = Chain(Blocks(shown, run.partitions, run.prior, work.memory), run.rng, work)
            for sweep in range(self.sweeps):
                chain.sweep()
                run.partitions = chain.blocks.copy_partitions()
                run.samples = [*(run.samples if sweep > self.sweeps // 2 else []), run.partitions]
                work.emit(Counted("sweeps of all restarts", i * self.sweeps + sweep + 1, len(runs) * self.sweeps))

    def _choose(
        self, runs: Sequence[_Run], shown: RelationalData, data: RelationalData, marks: list[Array] | None, memory: int
    ) -> list[_Run]:
        """The chains to keep, the best of them first: those of one prior or all together, whichever predict the hidden cells best.

        Without hidden cells it is the prior of the most probable partition. If there was no time for a single sweep, all entities of a
        type are in one cluster.
        """
        runs = [run for run in runs if run.samples]
        if not runs:
            alone = [np.ones(len(table), np.int64) for table in data.tables]
            return [_Run(self._list_priors()[0], 0, np.random.default_rng(0), alone, [alone])]
        means = {}
        for run in runs:
            blocks = Blocks(shown, run.partitions, run.prior, memory)
            if marks is None:
                run.score = blocks.log_posterior
            else:
                means[run.prior, run.restart] = average_predictions(blocks, shown, run.samples)
                run.score = _score(data, marks, means[run.prior, run.restart])
        self.trials_ = [(run.prior, run.restart, run.score) for run in runs]
        ranked = sorted(runs, key=lambda run: -run.score)
        if not self.average:
            return ranked[:1]
        if marks is None:
            return [run for run in ranked if run.prior == ranked[0].prior]
        sets = [[run for run in ranked if run.prior == prior] for prior in dict.fromkeys(run.prior for run in ranked)]

        def judge(chosen: list[_Run]) -> float:
            parts = zip(*(means[run.prior, run.restart] for run in chosen), strict=True)
            return _score(data, marks, [np.mean(part, axis=0) for part in parts])

        return max([*sets, ranked], key=judge)

    def _refit(self, kept: Sequence[_Run], data: RelationalData, work: Work) -> None:
        """Go on with the chosen chains on all of the data, and cool the best one down."""
        samples: list[Sample] = []
        sweeps = self.sweeps // 2 + 1
        for i, run in enumerate(kept):
            chain = Chain(Blocks(data, run.partitions, run.prior, work.memory), run.rng, work)
            for sweep in range(sweeps):
                chain.sweep()
                if sweep or sweeps == 1:  # the first one makes up for the cells that were hidden
                    samples.append((run.prior, chain.blocks.copy_partitions()))
                work.emit(Counted("sweeps on all data", i * sweeps + sweep + 1, len(kept) * sweeps))
            for temperature in COOLING if i == 0 else ():
                chain.sweep(temperature)
            if i == 0:
                self._name_clusters(chain.blocks)
            self.samples_ = list(samples)

    def _name_clusters(self, blocks: Blocks) -> None:
        """Keep a partition as the one to show, with the largest clusters first."""
        self._best, self.log_posterior_ = blocks.copy_partitions(), blocks.log_posterior
        for k in blocks.kinds:
            rank = np.argsort(np.argsort(-blocks.sizes[k], kind="stable"))
            self.partition_[self.data_.schema.types[k].name] = rank[self._best[k]]

    def _predict(self, data: RelationalData, work: Work) -> list[Array]:
        priors = dict.fromkeys(prior for prior, _ in self.samples_)
        newcomers = None if data is self.data_ else Newcomers(self.data_, data, list_kinds(data.schema))
        rng = np.random.default_rng(work.seed)
        sums = [np.zeros((len(table), table.type.n_active)) for table in data.tables]
        for prior in priors:
            samples = [sample for own, sample in self.samples_ if own == prior]
            blocks = Blocks(self.data_, samples[0], prior, work.memory)
            for sample in samples:
                blocks.assign(sample)
                there = sample if newcomers is None else newcomers.place(sample, prior, rng, work)
                for total, chances in zip(sums, blocks.predict(data, there), strict=True):
                    total += chances
        return [total / len(self.samples_) for total in sums]


def _end_early(task: Callable[[], None]) -> StoppedBy | None:
    """Do something until it is complete, the time is over or Ctrl-C is pressed: why it ended early."""
    try:
        task()
    except Stopped as stop:
        return stop.why
    except KeyboardInterrupt:
        return StoppedBy.INTERRUPT
    return None


def average_predictions(blocks: Blocks, data: RelationalData, samples: Sequence[Partitions]) -> list[Array]:
    """The mean over some partitions of what `Blocks.predict` says."""
    sums = [np.zeros((len(table), table.type.n_active)) for table in data.tables]
    for sample in samples:
        blocks.assign(sample)
        for total, chances in zip(sums, blocks.predict(data, sample), strict=True):
            total += chances
    return [total / len(samples) for total in sums]


def _score(data: RelationalData, marks: Sequence[Array], active: Sequence[Array]) -> float:
    """The mean log-likelihood of the marked cells."""
    return score_cells(data, marks, [spread_states(table, chances) for table, chances in zip(data.tables, active, strict=True)]).cll


class Newcomers:
    """Entities of ``data`` that were not learned from: those whose keys ``learned`` does not know."""

    def __init__(self, learned: RelationalData, data: RelationalData, kinds: Sequence[int]) -> None:
        self.kinds, self.first = kinds, [len(table) for table in learned.tables]
        self.rows, new = [], []  # of each entity of the data, among those learned from and then the new ones
        for old, table in zip(learned.tables, data.tables, strict=True):
            place = {key: row for row, key in enumerate(old.keys or ())}
            rows = np.array([place.get(key, -1) for key in table.keys or [""] * len(table)], np.int64)
            new.append(np.flatnonzero(rows < 0))
            rows[new[-1]] = len(old) + np.arange(len(new[-1]))
            self.rows.append(rows)
        self.n_new = [len(new[k]) if k in kinds else 0 for k in range(len(new))]
        for k, kind in enumerate(data.schema.types):
            if k not in kinds:  # a link tells of newcomers if they are among its arguments
                targets = [data.schema.index(a.target) for a in kind.arguments]
                told = [self._translate(t, data.tables[k].arguments[:, p]) >= self.first[t] for p, t in enumerate(targets)]
                new[k] = np.flatnonzero(np.any(told, axis=0))
        tables = [self._join(old, table, chosen, data) for old, table, chosen in zip(learned.tables, data.tables, new, strict=True)]
        self.data = RelationalData(tables, data.source)

    def _translate(self, k: int, rows: Array) -> Array:
        return np.append(self.rows[k], -1)[rows]

    def _join(self, old: Entities, table: Entities, chosen: Array, data: RelationalData) -> Entities:
        """The entities learned from, and the chosen ones of a table."""
        below = np.full((len(chosen), len(old.type.arguments)), -1)
        for p, argument in enumerate(old.type.arguments):
            target = data.schema.index(argument.target)
            if target in self.kinds:  # the others have no clusters to tell of
                below[:, p] = self._translate(target, table.arguments[chosen, p])
        codes = np.concatenate([old.cells.codes, table.cells.codes[chosen]])
        return Entities(old.type, Dataset(old.cells.domain, codes), np.concatenate([old.arguments, below.astype(old.arguments.dtype)]))

    def place(self, learned: Partitions, prior: Prior, rng: np.random.Generator, work: Work) -> Partitions:
        """Draw clusters for the newcomers, given those of the entities learned from: the clusters of all entities of the data."""
        start = [
            np.append(old, rng.choice(old, n) if len(old) else np.ones(n, np.int64)) for old, n in zip(learned, self._sizes(), strict=True)
        ]
        if any(self.n_new):
            blocks = Blocks(self.data, start, prior, work.memory)
            chain = Chain(blocks, rng, work)
            for _ in range(PLACING_SWEEPS):
                for k in self.kinds:
                    for e in range(self.first[k], self.first[k] + self.n_new[k]):
                        chain.visit(k, e, 1.0)
            start = blocks.copy_partitions()
        return [
            of[rows] if k in self.kinds else np.ones(len(rows), np.int64) for k, (of, rows) in enumerate(zip(start, self.rows, strict=True))
        ]

    def _sizes(self) -> list[int]:
        return [len(table) - first for table, first in zip(self.data.tables, self.first, strict=True)]
