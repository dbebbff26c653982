"""Multiple relational clustering (MRC): clusters of entities and predicates tell which facts are true, and are clustered again inside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from undirected.errors import DataError, check_number
from undirected.kernels.types import Array
from undirected.relational.data import Entities, RelationalData
from undirected.relational.learner import RelationalLearner
from undirected.relational.symbol_partition import MOST_COMBINATIONS, Block, Partition
from undirected.work import MEMORY, Counted, Stopped, StoppedBy, Work

USUAL = 0.5  # added to true and false counts of a predicate for its share before anything is clustered
PREDICATES = "predicates of "  # before the name of a type: what their axis is called


@dataclass(frozen=True)
class Rule:
    """What a combination says of the facts in it: ``clusters`` are those of the predicates and of the entities at each place."""

    type: str
    clusters: tuple[int, ...]
    true: int
    false: int
    weight: float


@dataclass
class Clustering:
    """One clustering, its rules, and the clusterings inside its combinations.

    ``symbols[a]`` are numbers of the entities, or of the predicates of a type, on axis ``a``; ``labels[a]`` are their clusters. ``place``
    is the number of its combination in the clustering around it, as `cut_combinations` lists them.
    """

    names: list[str]
    symbols: list[Array]
    labels: list[Array]
    score: float
    rules: list[Rule]
    inside: list[Clustering] = field(default_factory=list)
    place: int = 0

    def __len__(self) -> int:
        """How many clusterings there are, with this one."""
        return 1 + sum(map(len, self.inside))

    @property
    def depth(self) -> int:
        """How many clusterings lie inside each other."""
        return 1 + max((part.depth for part in self.inside), default=0)


@dataclass(frozen=True)
class Labels:
    """The clusters of a clustering, axis by axis, and those inside its combinations: what `MRC.restore` needs of it."""

    clusters: list[Array]
    inside: list[Labels]
    place: int = 0


@dataclass(frozen=True)
class Task:
    """A set of atoms that may be clustered, and the clustering in whose combination it lies (None for all atoms)."""

    blocks: list[Block]
    names: list[str]
    symbols: list[Array]
    around: Clustering | None = None
    place: int = 0  # among the combinations of that clustering


class MRC(RelationalLearner):
    """Multiple relational clustering: facts are predicted by the clusters of their entities and predicates, at several levels.

    Every state of an attribute is a predicate (of attributes of two states only the second), over an entity or, for links, over the
    link's arguments; a fact is a predicate with its entities. Entities and predicates are clustered so that the facts of each combination
    of clusters are true or false together; a combination with true facts is then clustered again by itself, so that other entities may
    go together there, until no clustering gains. The search moves single entities and predicates and merges and splits clusters, while that
    raises the log-likelihood of the known facts less a penalty for every combination. A sweep costs, for each entity, its known facts and
    its neighbours' combinations times the clusters it may go to. Unknown attributes have no part in it.

    Parameters
    ----------
    penalty
        What a combination of clusters costs: the rate of the exponential prior on their number. More gives fewer and coarser clusters.
    pseudo
        Added to true and false counts in the weight of a combination, ``log((true + pseudo) / (false + pseudo))``.
    prior_weight
        How many facts the share of the combination around it counts for when a fact is predicted; None takes the weight alone.
    n_hierarchies
        Learn so many from different starts, and predict by their mean.
    n_starts
        Searches for the outermost clustering, of which the best is kept.
    start_clusters
        Clusters of each type, and of its predicates, where the outermost search starts: random ones, or one for each symbol if there are
        not more symbols than that.
    start_inside
        The same for searches inside combinations.
    threads
        Taken for the sake of other learners; this one uses one.
    memory
        Taken for the sake of other learners.
    time_budget
        Seconds after which the best so far is kept.
    random_state
        Seed; with the same seed and data everything repeats exactly, unless a time budget ends the work.
    progress
        Called with every event.

    Attributes
    ----------
    hierarchies_
        For each hierarchy its outermost `Clustering`, with those inside it.
    score_
        The objective of the best outermost clustering.
    n_clusterings_
        How many clusterings there are in all hierarchies.
    stopped_by_, seconds_
        Why learning ended, and how long it took.

    References
    ----------
    Kok and Domingos, Statistical predicate invention, ICML 2007.

    Deviations
    ----------
    1. A fact is predicted by the finest combination it lies in, drawn towards the share of the one around it, and so on outwards, because
       small combinations are sure of too much. ``prior_weight=None`` restores the paper's weight.
    2. The mean of three hierarchies is taken, because a greedy search ends in many places. ``n_hierarchies=1`` restores the paper.
    3. A search starts from random clusters where there are many symbols, not from one for each, which takes a time that grows with the
       product of their numbers. Large ``start_clusters`` and ``start_inside`` start from one for each.
    4. To split a cluster, a random symbol leaves it and others may follow; not all ways to split it are tried. There is no switch.
    5. The facts of an attribute of more than two states are clustered as if independent, and their probabilities are divided by their
       sum for prediction, as only one state is true. There is no switch.
    6. Foreign keys of types with one argument are left out, their entities having unary predicates; and links that lack an argument are
       in no combination and are predicted by the shares of their predicates. There is no switch.

    Examples
    --------
    >>> import pandas as pd
    >>> animals = pd.DataFrame({"name": list("abcdef"), "swims": list("yyynnn"), "flies": list("nnnyyy"), "gills": list("yyynn?")})
    >>> data = RelationalData.from_frames(entities={"animal": (animals.replace("?", None), "name")})
    >>> model = MRC(penalty=0.5).fit(data)
    >>> model.list_clusters("animal")
    [['a', 'b', 'c'], ['d', 'e', 'f']]
    """

    def __init__(
        self,
        penalty: float = 1.0,
        pseudo: float = 1.0,
        prior_weight: float | None = 3.0,
        n_hierarchies: int = 3,
        n_starts: int = 1,
        start_clusters: int = 20,
        start_inside: int = 2,
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        random_state: int = 0,
        progress: Any = None,
    ) -> None:
        super().__init__(threads, memory, time_budget, random_state, progress)
        self.penalty = penalty
        self.pseudo = pseudo
        self.prior_weight = prior_weight
        self.n_hierarchies = n_hierarchies
        self.n_starts = n_starts
        self.start_clusters = start_clusters
        self.start_inside = start_inside

    hierarchies_: list[Clustering]
    score_: float
    n_clusterings_: int
    chances_: list[Array]

    def check_settings(self) -> None:
        """Raise unless the parameters make sense."""
        check_number("penalty", self.penalty, 0)
        check_number("pseudo", self.pseudo, 0, above=True)
        if self.prior_weight is not None:
            check_number("prior_weight", self.prior_weight, 0, above=True)
        for name in ("n_hierarchies", "n_starts", "start_clusters", "start_inside"):
            check_number(name, getattr(self, name), 1, whole=True)

    def _learn(self, data: RelationalData, work: Work) -> StoppedBy:
        self.check_settings()
        rng, first = np.random.default_rng(work.seed), make_task(data)
        self.hierarchies_, means = [], [np.zeros(0)] * len(data.tables)
        stopped_by = StoppedBy.CONVERGED
        for done in range(self.n_hierarchies):
            chances = [find_usual_shares(table) for table in data.tables]
            root, stopped_by = self._learn_hierarchy(first, chances, rng, work)
            if stopped_by != StoppedBy.CONVERGED and done:
                break  # one that is not finished would spoil the mean of those that are
            means = [new if not done else mean + new for mean, new in zip(means, chances, strict=True)]
            self.hierarchies_.append(root)
            if stopped_by != StoppedBy.CONVERGED:
                break
        self._summarise(data, means)
        return stopped_by

    def _summarise(self, data: RelationalData, means: Sequence[Array]) -> None:
        """Predict by the sums over hierarchies, and say what there is."""
        self.chances_ = [gather_active(t, mean / len(self.hierarchies_)) for t, mean in zip(data.tables, means, strict=True)]
        self.score_ = max(root.score for root in self.hierarchies_)
        self.n_clusterings_ = sum(map(len, self.hierarchies_))

    def restore(self, data: RelationalData, hierarchies: Sequence[Labels]) -> Self:
        """The model that was learned from these data, from the clusters of its hierarchies alone."""
        self.data_, self.schema_, self.hierarchies_ = data, data.schema, []
        first, means = make_task(data), [np.zeros(0)] * len(data.tables)
        for done, hierarchy in enumerate(hierarchies):
            chances = [find_usual_shares(table) for table in data.tables]
            tasks, roots = deque([(first, hierarchy)]), list[Clustering]()
            while tasks:
                task, labels = tasks.popleft()
                if [len(own) for own in labels.clusters] != [len(own) for own in task.symbols]:
                    raise DataError("a clustering does not fit the entities and predicates of its combination")
                partition = Partition(task.blocks, [own.copy() for own in labels.clusters], self.penalty, self.pseudo)
                found = self._describe(task, partition)
                (roots if task.around is None else task.around.inside).append(found)
                self._write_chances(task.blocks, partition, chances)
                inside = list(cut_combinations(task, partition, found))
                tasks.extend((inside[part.place], part) for part in labels.inside)
            means = [new if not done else mean + new for mean, new in zip(means, chances, strict=True)]
            self.hierarchies_ += roots
        self._summarise(data, means)
        return self

    def _learn_hierarchy(self, first: Task, chances: list[Array], rng: np.random.Generator, work: Work) -> tuple[Clustering, StoppedBy]:
        """Cluster all atoms, and then those of combinations, outer ones first; ``chances`` are written to. Why it ended, too."""
        root, tasks, done = self._describe(first, self._join_all(first)), deque([first]), 0
        try:
            while tasks:
                task = tasks.popleft()
                partition, stopped = self._search(task, rng, work)
                if partition is not None:
                    found = self._describe(task, partition)
                    if task.around is None:
                        root = found
                    else:
                        task.around.inside.append(found)
                    self._write_chances(task.blocks, partition, chances)
                    tasks.extend(cut_combinations(task, partition, found))
                if stopped is not None:
                    return root, stopped
                done += 1
                work.emit(Counted("combinations clustered", done, done + len(tasks)))
        except KeyboardInterrupt:
            return root, StoppedBy.INTERRUPT
        return root, StoppedBy.CONVERGED

    def _join_all(self, task: Task) -> Partition:
        """All symbols of each axis in one cluster."""
        return Partition(task.blocks, [np.zeros(len(s), dtype=np.intp) for s in task.symbols], self.penalty, self.pseudo)

    def _search(self, task: Task, rng: np.random.Generator, work: Work) -> tuple[Partition | None, StoppedBy | None]:
        """The best clustering found, None if it is no better than a single cluster, and why the search was broken off, if it was."""
        best, stopped = self._join_all(task), None
        single = best
        for _ in range(self.n_starts if task.around is None else 1):
            partition = Partition(task.blocks, self._draw_labels(task, rng), self.penalty, self.pseudo)
            try:
                partition.climb(rng, work)
            except Stopped as stop:
                stopped = stop.why
            except KeyboardInterrupt:
                stopped = StoppedBy.INTERRUPT
            partition.count()
            if partition.score > best.score + 1e-9 * abs(best.score):
                best = partition
            if stopped is not None:
                break
        return (None if best is single and task.around is not None else best), stopped

    def _draw_labels(self, task: Task, rng: np.random.Generator) -> list[Array]:
        """Clusters to start from: one for each symbol where there are few, random ones otherwise."""
        places = max(len(block.axes) + 1 for block in task.blocks)
        most = min(self.start_clusters if task.around is None else self.start_inside, max(1, int(MOST_COMBINATIONS ** (1 / places))))
        return [rng.integers(most, size=len(s)) if len(s) > most else np.arange(len(s)) for s in task.symbols]

    def _describe(self, task: Task, partition: Partition) -> Clustering:
        """What was found, without the counts."""
        rules = []
        for k, block in enumerate(partition.blocks):
            kind = task.names[block.predicates].removeprefix(PREDICATES)
            axes = (block.predicates, *block.axes)
            for key in np.flatnonzero(partition.known[k]).tolist():
                t, f = float(partition.true[k][key]), float(partition.known[k][key] - partition.true[k][key])
                clusters = tuple(key // step % partition.room[a] for a, step in zip(axes, [1, *partition.steps[k]], strict=True))
                rules.append(Rule(kind, clusters, int(t), int(f), float(np.log((t + self.pseudo) / (f + self.pseudo)))))
        labels = [label.copy() for label in partition.labels]
        return Clustering(task.names, task.symbols, labels, partition.score, rules, place=task.place)

    def _write_chances(self, blocks: Sequence[Block], partition: Partition, chances: list[Array]) -> None:
        """Predict the atoms of each combination; what stood there was the prediction of the combination around it."""
        for k, block in enumerate(blocks):
            keys = partition.keys[k][:, None] + partition.labels[block.predicates]
            true, known, where = partition.true[k][keys], partition.known[k][keys], np.ix_(block.rows, block.columns)
            if self.prior_weight is None:
                chances[block.table][where] = (true + self.pseudo) / (known + 2 * self.pseudo)
            else:
                chances[block.table][where] = (true + self.prior_weight * chances[block.table][where]) / (known + self.prior_weight)

    def _predict(self, data: RelationalData, work: Work) -> Sequence[Array]:
        for old, new in zip(self.data_.tables, data.tables, strict=True):
            if old.keys != new.keys or not np.array_equal(old.arguments, new.arguments):
                raise DataError(
                    f"{data.source}: its entities of type {new.type.name!r} are not those that were clustered ({self.data_.source})"
                )
        return self.chances_

    def list_clusters(self, kind: str) -> list[list[str]]:
        """The clusters of the entities of a type in the outermost clustering, by name; the largest first."""
        best = max(self.hierarchies_, key=lambda root: root.score)
        self.data_.schema.index(kind)
        if kind not in best.names:
            raise DataError(f"the entities of type {kind!r} have no predicates, so that they are in no clusters")
        labels = best.labels[best.names.index(kind)]
        groups = [np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1)]
        return [[self.data_.name(kind, row) for row in group] for group in sorted(groups, key=lambda group: (-len(group), group))]


def list_predicates(table: Entities) -> list[tuple[int, int]]:
    """The predicates of a type: attribute and state; of attributes of two states only the second."""
    return [(v, s) for v, n in enumerate(table.type.attributes.n_states.tolist()) for s in range(0 if n > 2 else 1, n)]


def mark_atoms(table: Entities) -> tuple[Array, Array]:
    """Which atoms of a type are true, and which are known: entities by predicates."""
    predicates = np.array(list_predicates(table), dtype=np.intp).reshape(-1, 2)
    codes = table.cells.codes[:, predicates[:, 0]]
    return (codes == predicates[:, 1]).astype(float), (codes >= 0).astype(float)


def find_usual_shares(table: Entities) -> Array:
    """The share of true atoms of each predicate, for every entity."""
    true, known = mark_atoms(table)
    return np.tile((true.sum(axis=0) + USUAL) / (known.sum(axis=0) + 2 * USUAL), (len(table), 1))


def gather_active(table: Entities, chances: Array) -> Array:
    """The probabilities of active states, from those of predicates: of attributes of more than two states they are made to sum to 1."""
    parts, at = [np.zeros((len(table), 0))], 0
    for n in table.type.attributes.n_states.tolist():
        width = n if n > 2 else n - 1
        part = chances[:, at : at + width]
        parts.append(part if n <= 2 else part[:, 1:] / part.sum(axis=1, keepdims=True))
        at += width
    return np.concatenate(parts, axis=1)


def make_task(data: RelationalData) -> Task:
    """All atoms of the data; the entities of a type are on one axis wherever they stand."""
    names: list[str] = []
    symbols: list[Array] = []

    def place(name: str, n: int) -> int:
        if name not in names:
            names.append(name)
            symbols.append(np.arange(n))
        return names.index(name)

    blocks = []
    for k, table in enumerate(data.tables):
        true, known = mark_atoms(table)
        linked = table.type.is_link
        at = table.arguments if linked else np.arange(len(table))[:, None]
        rows = np.flatnonzero((at >= 0).all(axis=1))
        if not true[rows].size:
            continue
        targets = [argument.target for argument in table.type.arguments] if linked else [table.type.name]
        axes = tuple(place(target, len(data[target])) for target in targets)
        predicates, columns = place(PREDICATES + table.type.name, true.shape[1]), np.arange(true.shape[1])
        blocks.append(Block(true[rows], known[rows], at[rows].astype(np.intp), axes, predicates, k, rows, columns))
    if not blocks:
        raise DataError(f"{data.source}: no attribute has two states, so that there is nothing to predict")
    return Task(blocks, names, symbols)


def cut_combinations(task: Task, partition: Partition, found: Clustering) -> Iterator[Task]:
    """The combinations that have true atoms and others, each as a task of its own; if there is but one, it is the task itself."""
    if len(found.rules) < 2:
        return
    place = 0
    for k, block in enumerate(partition.blocks):
        labels, tuples = partition.labels[block.predicates], partition.keys[k]
        for key in np.unique(tuples).tolist():
            rows = np.flatnonzero(tuples == key)
            for label in np.unique(labels).tolist():
                if 0 < partition.true[k][key + label] < partition.known[k][key + label]:
                    yield replace(_cut(task, partition, block, rows, np.flatnonzero(labels == label)), around=found, place=place)
                    place += 1


def _cut(task: Task, partition: Partition, block: Block, rows: Array, columns: Array) -> Task:
    """The task of one combination: places whose symbols are of one cluster of one axis have a common axis again."""
    axes: dict[tuple[int, int], int] = {}
    names: list[str] = []
    symbols: list[Array] = []
    at = np.zeros((len(rows), len(block.axes)), dtype=np.intp)
    for j, axis in enumerate(block.axes):
        label = int(partition.labels[axis][block.symbols[rows[0], j]])
        members = np.flatnonzero(partition.labels[axis] == label)
        if (axis, label) not in axes:
            axes[axis, label] = len(names)
            names.append(task.names[axis])
            symbols.append(task.symbols[axis][members])
        at[:, j] = np.searchsorted(members, block.symbols[rows, j])
    places = tuple(axes[axis, int(partition.labels[axis][block.symbols[rows[0], j]])] for j, axis in enumerate(block.axes))
    names.append(task.names[block.predicates])
    symbols.append(task.symbols[block.predicates][columns])
    part = np.ix_(rows, columns)
    inner = Block(block.true[part], block.known[part], at, places, len(names) - 1, block.table, block.rows[rows], block.columns[columns])
    return Task([inner], names, symbols)
