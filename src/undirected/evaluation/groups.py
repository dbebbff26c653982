"""Groups of rows: one network for each, and permutation tests of whether they differ."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from undirected.data.dataset import Dataset
from undirected.data.readers import read_data
from undirected.data.variables import Domain
from undirected.errors import DataError, ParameterError, TableWarning, Unconverged, check_number
from undirected.kernels.types import Array
from undirected.network.edges import find_directed, measure_edges
from undirected.network.network import MarkovNetwork
from undirected.structure.all_pairs import AllPairs
from undirected.structure.learner import Learner
from undirected.tuning.tune import align_columns, tune
from undirected.weights.fit import use_one_blas_thread
from undirected.work import Counted, Listener, StoppedBy, Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PENALTIES = [1.0, 2.0, 5.0, 10.0, 20.0, 40.0]  # of pairs, chosen on the joint table where no learner is given
LEAST_ROWS = 10  # of a group
SHOWN = 20
ROUNDING = 1e-12  # by which equal differences may differ
NOTE = (
    "p-values are shares of the permutations of group labels that give at least as large a difference. A large one is no proof that groups "
    "are equal: small groups hide differences. Networks are drawn towards zero by their penalty, the same for all groups."
)


@dataclass(frozen=True)
class EdgeDifference:
    """An edge with its value in each group, the largest difference between two of them, and its p-values: as it is, and corrected for the
    number of edges (Holm)."""

    a: str
    b: str
    values: dict[str, float]
    difference: float
    p: float
    p_corrected: float


@dataclass
class GroupComparison:
    """The outcome of `compare_groups`: networks by group, that of all rows, and tests. ``structure`` is the largest difference of an edge
    between two groups, ``strength`` the largest difference of the sum of all edges' strengths."""

    by: str
    sizes: dict[str, int]
    networks: dict[str, MarkovNetwork]
    joint: MarkovNetwork
    edges: list[EdgeDifference]
    structure: float
    structure_p: float
    strength: float
    strength_p: float
    permutations: int
    stopped_by: StoppedBy | None = None
    note: str = field(default=NOTE, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {
            "by": self.by, "sizes": self.sizes, "structure": self.structure, "structure_p": self.structure_p, "strength": self.strength,
            "strength_p": self.strength_p, "permutations": self.permutations, "edges": [vars(edge) for edge in self.edges],
            "stopped_by": self.stopped_by, "note": self.note,
        }  # fmt: skip

    def to_frame(self) -> Any:
        """The edges as a pandas frame (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame([{**{k: v for k, v in vars(edge).items() if k != "values"}, **edge.values} for edge in self.edges])

    def __str__(self) -> str:
        names = list(self.sizes)
        head = ["edge", *names, "difference", "p", "corrected"]
        lines = [
            [f"{e.a} - {e.b}", *(f"{e.values[n]:.3f}" for n in names), f"{e.difference:.3f}", f"{e.p:.4f}", f"{e.p_corrected:.4f}"]
            for e in self.edges[:SHOWN]
        ]
        out = align_columns([head, *lines]) if lines else ["no edge in any group"]
        if len(self.edges) > SHOWN:
            out.append(f"... and {len(self.edges) - SHOWN:,} more")
        rows = ", ".join(f"{name} {n:,}" for name, n in self.sizes.items())
        out += [
            "",
            f"rows by {self.by}: {rows}; {self.permutations:,} permutations",
            f"structure (largest difference of an edge): {self.structure:.3f}, p = {self.structure_p:.4f}",
            f"strength (difference of the sums of edges): {self.strength:.3f}, p = {self.strength_p:.4f}",
        ]
        return "\n".join([*out, self.note])

    def plot(self, **options: Any) -> Figure:
        """A figure: the network of each group at the same places, and for two groups the difference."""
        from undirected.plots import draw_groups

        figure: Figure = draw_groups(self, **options)
        return figure


def compare_groups(
    data: Any,
    by: str,
    *,
    learner: Learner | None = None,
    permutations: int = 1000,
    seed: int = 0,
    threads: int | None = None,
    time_budget: float | None = None,
    progress: Listener | None = None,
) -> GroupComparison:
    """Learn a network for each group of rows, and test by permutation whether they differ: in any edge, in all edges' strength together,
    and in each edge.

    Parameters
    ----------
    data
        A table, as `read_data` takes it.
    by
        The column that tells the groups; it is no variable of the networks. Rows where it is missing are left out. Other missing cells are
        filled in once, by drawing from a network of all rows.
    learner
        With its settings, the same for all groups; by default all pairs, with an L1 penalty chosen on all rows.
    permutations
        How often group labels are shuffled among the rows. The same seed gives the same result for any number of threads.

    Notes
    -----
    The tests are those of van Borkulo and others, "Comparing network structures on three aspects", Psychological Methods 28, 2023 (the R
    package NetworkComparisonTest): the largest difference of an edge, the difference of global strength, and single edges, corrected with
    Holm's method. With more than two groups a difference is that between the largest and the smallest value.

    Examples
    --------
    >>> import numpy as np, undirected
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(0, 2, 600)
    >>> a = rng.integers(0, 2, 600)
    >>> b = np.where((group == 1) & (rng.random(600) < 0.8), a, rng.integers(0, 2, 600))  # b follows a in one group
    >>> found = undirected.compare_groups(np.column_stack([group, a, b]), "v0", permutations=99)
    >>> found.structure_p
    0.01
    """
    check_number("permutations", permutations, 1, whole=True)
    work = Work.start(threads, time_budget=time_budget, seed=seed, progress=progress)
    table, labels, names = _split_groups(read_data(data), by)
    table = _complete(table, seed, work)
    learner = _choose_learner(table, seed, work) if learner is None else learner
    with use_one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)
        joint = _learn(learner, table, work)
        networks = [_learn(learner, table.subset(np.flatnonzero(labels == g)), work) for g in range(len(names))]
        values = np.stack([_read_edges(network) for network in networks])
        differences = _differ(values)
        drawn = _permute(learner, table, labels, differences, work, permutations)
    p = (1 + drawn.as_large) / (1 + drawn.n)
    used = np.flatnonzero((values[:, :-1] != 0).any(axis=0))
    corrected = dict(zip(used.tolist(), _correct(p[used]), strict=True))
    pairs = np.stack(np.triu_indices(len(table.domain), 1), axis=1)
    edges = [
        EdgeDifference(
            table.domain.names[pairs[k, 0]], table.domain.names[pairs[k, 1]],
            {name: float(value) for name, value in zip(names, values[:, k], strict=True)}, float(differences[k]), float(p[k]), corrected[k],
        )
        for k in sorted(used.tolist(), key=lambda k: (p[k], -differences[k]))
    ]  # fmt: skip
    return GroupComparison(
        by, {name: int((labels == g).sum()) for g, name in enumerate(names)}, dict(zip(names, networks, strict=True)), joint, edges,
        float(differences[:-1].max(initial=0.0)), (1 + drawn.largest_as_large) / (1 + drawn.n), float(differences[-1]), float(p[-1]),
        drawn.n, drawn.stopped_by,
    )  # fmt: skip


def _split_groups(data: Dataset, by: str) -> tuple[Dataset, Array, list[str]]:
    """The table without the column of groups, the group of each row, and their names; groups of few rows are an error."""
    v = data.domain.index(by)
    if not np.all(data.weights == 1):
        raise DataError(f"{data.source}: weighted rows cannot be shuffled between groups; give each case a row")
    rows = np.flatnonzero(data.codes[:, v] >= 0)
    if len(rows) < len(data):
        warnings.warn(f"{len(data) - len(rows):,} rows without {by!r} are left out", TableWarning, stacklevel=3)
    labels = data.codes[rows, v].astype(np.int64)
    states, labels = np.unique(labels, return_inverse=True)
    names = [data.domain[v].states[s] for s in states.tolist()]
    if len(names) < 2:
        raise DataError(f"{data.source}: the column {by!r} has one group only; two are needed")
    for g, name in enumerate(names):
        if (labels == g).sum() < LEAST_ROWS:
            raise DataError(f"{data.source}: group {by}={name} has {int((labels == g).sum())} rows; {LEAST_ROWS} are needed at least")
    kept = [u for u in range(len(data.domain)) if u != v]
    if len(kept) < 2:
        raise ParameterError(f"{data.source}: beside {by!r} at least two columns are needed")
    domain = Domain([data.domain[u] for u in kept], data.domain.named)
    return Dataset(domain, data.codes[rows][:, kept], source=data.source), labels.ravel(), names


def _complete(table: Dataset, seed: int, work: Work) -> Dataset:
    """The table with its gaps filled in once."""
    if not table.has_missing:
        return table
    network = AllPairs(l1=5.0).fit(table, work=work.silent()).network_
    filled = network.impute(table, "sample", seed=seed)
    warnings.warn(
        f"{int((table.codes < 0).sum()):,} missing cells are filled in once, by drawing from a network of all rows",
        TableWarning,
        stacklevel=3,
    )
    return Dataset(table.domain, filled.codes, source=table.source)


def _choose_learner(table: Dataset, seed: int, work: Work) -> Learner:
    """All pairs, with the penalty that predicts held-out rows of the joint table best."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)
        tuned = tune(AllPairs(tol=1e-4), {"l1": PENALTIES}, table, seed=seed, refine=False, work=work.share(0.3).silent())
    return AllPairs(l1=tuned.settings["l1"], tol=1e-4)


def _learn(learner: Learner, table: Dataset, work: Work) -> MarkovNetwork:
    """The network of some rows, however long that takes: one that the time has cut would differ from others for that alone."""
    fitted = clone(learner).fit(table, work=work.extend().alone().silent())
    if fitted.fit_.stopped_by is StoppedBy.INTERRUPT:
        raise KeyboardInterrupt
    network: MarkovNetwork = fitted.network_
    return network


def _read_edges(network: MarkovNetwork) -> Array:
    """The value of every pair of variables, signed where both have a direction, and at the end the sum of all strengths."""
    n, directed = len(network.domain), find_directed(network.domain)
    values, total = np.zeros((n, n)), 0.0
    for (a, b), edge in measure_edges(network.features, network.weights).items():
        values[min(a, b), max(a, b)] = edge.signed if directed[a] and directed[b] else edge.strength
        total += edge.strength
    return np.append(values[np.triu_indices(n, 1)], total)


def _differ(values: Array) -> Array:
    """The largest difference between two groups, of each value."""
    return np.asarray(values.max(axis=0) - values.min(axis=0))


@dataclass
class _Drawn:
    """How many permutations of the labels were drawn, and in how many of them each difference, and the largest of an edge, were at least as
    large as without."""

    as_large: Array
    n: int = 0
    largest_as_large: int = 0
    stopped_by: StoppedBy | None = None


def _permute(learner: Learner, table: Dataset, labels: Array, differences: Array, work: Work, n: int) -> _Drawn:
    """Compare the differences with those under shuffled labels, as far as the time goes; each permutation has a seed of its own."""

    def draw(k: int) -> Array:
        shuffled = np.random.default_rng([work.seed, k]).permutation(labels)
        groups = (table.subset(np.flatnonzero(shuffled == g)) for g in range(int(labels.max()) + 1))
        return _differ(np.stack([_read_edges(_learn(learner, group, work)) for group in groups]))

    drawn = _Drawn(np.zeros(len(differences), dtype=np.int64))
    bar, largest = differences - ROUNDING, differences[:-1].max(initial=0.0) - ROUNDING
    with ThreadPoolExecutor(work.threads) as pool:
        try:
            for first in range(0, n, work.threads):
                if work.is_over:
                    drawn.stopped_by = StoppedBy.TIME
                    break
                for values in pool.map(draw, range(first, min(n, first + work.threads))):
                    drawn.as_large += values >= bar
                    drawn.largest_as_large += int(values[:-1].max(initial=0.0) >= largest)
                    drawn.n += 1
                work.emit(Counted("permutations", drawn.n, n))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            drawn.stopped_by = StoppedBy.INTERRUPT
    return drawn


def _correct(p: Array) -> Sequence[float]:
    """Holm's correction for several tests."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    out = np.empty(len(p))
    out[order] = np.minimum(stepped, 1.0)
    return out.tolist()
