"""How much of a learned network to believe: resampling of rows, and dropping of cases."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from undirected.data.dataset import LEARN, Dataset
from undirected.data.readers import read_data
from undirected.errors import DataError, ParameterError, Unconverged
from undirected.features.conjunction import format_feature
from undirected.kernels.types import Array
from undirected.network.centrality import measure_centrality
from undirected.network.edges import Edge, find_directed, measure_edges
from undirected.network.network import MarkovNetwork
from undirected.structure.learner import Learner
from undirected.weights.fit import use_one_blas_thread
from undirected.work import Counted, Listener, StoppedBy, Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DROPPED = tuple(np.round(np.linspace(0.05, 0.75, 10), 4).tolist())
CORRELATION, SHARE = 0.7, 0.95  # of the stability coefficient, as in the R package bootnet
MOST_PATHS = 1_000_000  # variables times edges, beyond which measures of shortest paths are not resampled: a second for each sample
NOTE = (
    "An interval that touches zero is no test under an L1 penalty or after a choice of edges: weights are drawn towards zero and "
    "their distribution is not normal. Read the frequencies as how often an edge comes back, not as a probability that it is there."
)


@dataclass
class Estimate:
    """A quantity on all rows, and over the resamples: how often it was not zero, its mean and its interval."""

    value: float
    frequency: float
    mean: float
    low: float
    high: float


@dataclass
class Stability:
    """The outcome of `bootstrap`. ``edges`` by pairs of names, ``features`` by text, ``strength`` (the sum of a variable's edge
    strengths) by name; ``correlations`` of node strength with that on all rows by the share of rows dropped.

    An edge's value is its strength as in `MarkovNetwork.graph`, with a sign where both variables have two states or an order;
    pairs in ``unsigned`` have none.
    """

    n: int
    level: float
    edges: dict[tuple[str, str], Estimate]
    features: dict[str, Estimate]
    strength: dict[str, Estimate]
    correlations: dict[float, list[float]]
    stopped_by: StoppedBy | None = None  # what ended the work, if not all samples were done
    note: str = field(default=NOTE, repr=False)
    unsigned: frozenset[tuple[str, str]] = frozenset()
    centrality: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    samples: dict[str, Array] = field(default_factory=dict, repr=False)  # of each measure of centrality, by resample and variable

    def measure_difference(self, measure: str, a: str, b: str) -> tuple[float, float, bool]:
        """The interval of the difference of two variables' centrality over resamples, and whether it leaves out zero."""
        names = list(self.strength)
        if measure not in self.samples:
            raise ParameterError(f"there is no measure {measure!r}; choose {', '.join(self.samples)}")
        values = self.samples[measure]
        apart = values[:, names.index(a)] - values[:, names.index(b)]
        low, high = np.quantile(apart, [(1 - self.level) / 2, (1 + self.level) / 2])
        return float(low), float(high), bool(low > 0 or high < 0)

    @property
    def coefficient(self) -> float:
        """The largest share of rows that can be dropped so that, at this and all smaller shares, node strength still has a
        correlation of at least 0.7 with that on all rows in 95 % of the samples (of ten samples a share, in all). To read node
        strengths at all, 0.25 is the least, 0.5 better."""
        good = 0.0
        for dropped, values in sorted(self.correlations.items()):
            if not values or np.mean(np.array(values) >= CORRELATION) < SHARE:
                break
            good = dropped
        return good

    def rows(self, kind: str = "edges") -> list[dict[str, Any]]:
        """Of ``edges``, ``features``, ``strength`` or ``centrality``: a row each, the most frequent first, among these the strongest."""
        if kind == "edges":
            found: list[dict[str, Any]] = [{"a": a, "b": b, **vars(e)} for (a, b), e in self.edges.items()]
        elif kind in ("features", "strength"):
            name = "feature" if kind == "features" else "variable"
            found = [{name: key, **vars(e)} for key, e in getattr(self, kind).items()]
        elif kind == "centrality":
            found = [{"measure": m, "variable": name, **vars(e)} for m, own in self.centrality.items() for name, e in own.items()]
            return sorted(found, key=lambda row: (row["measure"], -row["value"]))
        else:
            raise ParameterError(f"there is no table {kind!r}; choose edges, features, strength or centrality")
        return sorted(found, key=lambda row: (-row["frequency"], -abs(row["value"]), -abs(row["mean"])))

    def to_frame(self, kind: str = "edges") -> Any:
        """`rows` as a pandas frame (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame(self.rows(kind))

    def __str__(self) -> str:
        shown = self.rows()[:30]
        wide = max((len(row["a"] + row["b"]) + 3 for row in shown), default=4)
        lines = [f"{'edge':{wide}} {'strength':>8} {'often':>6} {'from':>8} {'to':>8}"]
        lines += [
            f"{row['a'] + ' - ' + row['b']:{wide}} {row['value']:8.3f} {row['frequency']:6.0%} {row['low']:8.3f} {row['high']:8.3f}"
            for row in shown
        ]
        if len(self.edges) > len(shown):
            lines.append(f"... and {len(self.edges) - len(shown):,} more")
        lines += ["", f"{self.n} resamples, intervals of {self.level:.0%}"]
        if self.correlations:
            lines.append(f"case-dropping stability of node strength: {self.coefficient:g} (at least 0.25, better 0.5)")
        return "\n".join([*lines, self.note])

    def plot(self, kind: str = "edges", **options: Any) -> Figure:
        """A figure: the most frequent ``edges`` with their intervals, or ``dropping``: correlations as cases are dropped."""
        from undirected.plots import draw_stability

        return draw_stability(self, kind, **options)


def bootstrap(
    learner: Learner,
    data: Any,
    n: int = 100,
    *,
    n_dropping: int | None = None,
    level: float = 0.95,
    seed: int = 0,
    threads: int | None = None,
    time_budget: float | None = None,
    progress: Listener | None = None,
    work: Work | None = None,
) -> Stability:
    """Learn again from resamples of the rows: which edges and features come back, and how far their weights move.

    A resample draws as many rows as there are, with replacement; distinct rows are only weighted anew, so that a resample costs
    no more than a fit. Resamples run side by side, one on each core. Ctrl-C, or the end of the time budget, ends with the
    resamples that are done.

    Parameters
    ----------
    learner
        Any learner with its settings.
    data
        A table, as `read_data` takes it.
    n
        Number of resamples.
    n_dropping
        Number of samples with rows left out for the case-dropping stability coefficient, spread over ten shares from 5 % to
        75 %; as many as ``n`` by default, 0 for none.
    level
        Of the percentile intervals.
    seed
        The same seed, the same resamples, for any number of threads.
    progress
        Called with a ``Counted`` after every sample.
    work
        Limits, clock and listener of a larger task, in place of ``threads``, ``time_budget`` and ``progress``.

    Notes
    -----
    The stability coefficient is that of Epskamp, Borsboom and Fried, "Estimating psychological networks and their accuracy",
    Behavior Research Methods 50, 2018.

    Examples
    --------
    >>> import undirected
    >>> data = undirected.datasets.exact_sample(undirected.datasets.grid_ising(3, 3, seed=1), 2000, seed=2)
    >>> stable = undirected.bootstrap(undirected.L1(), data, n=20)
    >>> stable.rows()[0]["frequency"]
    1.0
    """
    if n < 1 or (n_dropping is not None and n_dropping < 0):
        raise ParameterError(f"n={n}, n_dropping={n_dropping}: at least one resample is needed")
    if not 0 < level < 1:
        raise ParameterError(f"level={level}: between 0 and 1")
    work = Work.start(threads, learner.memory, time_budget, seed, progress) if work is None else work
    table = read_data(data, bins=learner.bins, missing=learner.missing)
    if learner.missing != LEARN:
        table.require_complete("resampling")
    rows = table.distinct
    if not table.total_weight > 0 or not len(rows):
        raise DataError(f"{table.source}: no row has a weight above zero")
    shares = [0.0] * n + [DROPPED[k % len(DROPPED)] for k in range(n if n_dropping is None else n_dropping)]
    base = rows if np.all(rows.weights == np.round(rows.weights)) else table
    samples = (_resample(base, share, seed, k) for k, share in enumerate(shares))
    with use_one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)
        whole = _learn(learner, rows, work.extend().silent())
        found, stopped_by = _learn_samples(learner, samples, len(shares), work)
    resampled = [found[k] for k in sorted(found) if k < n]
    if not resampled:
        if stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        raise DataError("no resample was finished; give it more time")
    correlations = _correlate(whole, {k: found[k] for k in found if k >= n}, shares)
    return _collect(whole, resampled, level, correlations, stopped_by)


def _learn_samples(
    learner: Learner, samples: Iterator[Dataset], total: int, work: Work
) -> tuple[dict[int, MarkovNetwork], StoppedBy | None]:
    """A network per sample, as far as time and patience go, and what ended the work if not all are there."""
    found: dict[int, MarkovNetwork] = {}
    try:
        for k, network in _map_samples(lambda sample: _learn(learner, sample, work.extend().alone().silent()), samples, work):
            found[k] = network
            work.emit(Counted("samples", len(found), total))
    except KeyboardInterrupt:
        return found, StoppedBy.INTERRUPT
    return found, None if len(found) == total else StoppedBy.TIME


def _map_samples(
    function: Callable[[Dataset], MarkovNetwork], samples: Iterator[Dataset], work: Work
) -> Iterator[tuple[int, MarkovNetwork]]:
    """Results as they come, with few samples in memory at a time."""
    with ThreadPoolExecutor(work.threads) as pool:
        running: dict[Future[MarkovNetwork], int] = {}
        numbered = enumerate(samples)
        try:
            while True:
                while not work.is_over and len(running) < 2 * work.threads and (job := next(numbered, None)) is not None:
                    running[pool.submit(function, job[1])] = job[0]
                if work.is_over:
                    for future in [future for future in running if future.cancel()]:
                        del running[future]
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _learn(learner: Learner, sample: Dataset, work: Work) -> MarkovNetwork:
    """The network of one sample, within the learner's own time budget."""
    if learner.time_budget is not None:
        work = work.limit(learner.time_budget)
    fitted = clone(learner).fit(sample, work=work)
    if fitted.fit_.stopped_by is StoppedBy.INTERRUPT:
        raise KeyboardInterrupt
    network: MarkovNetwork = fitted.network_
    return network


def _resample(rows: Dataset, dropped: float, seed: int, k: int) -> Dataset:
    """As many rows with replacement, or a share left out; each sample has a generator of its own.

    Whole weights are counts of cases; otherwise every row is one case, which keeps its weight.
    """
    rng = np.random.default_rng([seed, k])
    whole = bool(np.all(rows.weights == np.round(rows.weights)))
    counts = rows.weights.astype(np.int64) if whole else (rows.weights > 0).astype(np.int64)
    n = int(counts.sum())
    if dropped == 0:
        drawn = rng.multinomial(n, counts / n)
    else:
        drawn = rng.multivariate_hypergeometric(counts, max(1, round((1 - dropped) * n)), method="marginals")
    weights = drawn.astype(float) if whole else drawn * rows.weights
    kept = np.flatnonzero(weights > 0)
    return Dataset(rows.domain, rows.codes[kept], weights[kept], rows.source)


Edges = dict[tuple[int, int], Edge]


def _add_strengths(edges: Edges, n: int) -> Array:
    """For each of ``n`` variables the sum of its edges' strengths."""
    out = np.zeros(n)
    for (a, b), edge in edges.items():
        out[a] += edge.strength
        out[b] += edge.strength
    return out


def _correlate(whole: MarkovNetwork, found: dict[int, MarkovNetwork], shares: Sequence[float]) -> dict[float, list[float]]:
    """Of node strengths with those on all rows; a sample without any spread counts as uncorrelated."""
    n = len(whole.domain)
    base = _add_strengths(measure_edges(whole.features, whole.weights), n)
    out: dict[float, list[float]] = {}
    for k in sorted(found):
        other = _add_strengths(measure_edges(found[k].features, found[k].weights), n)
        value = float(np.corrcoef(base, other)[0, 1]) if n > 1 and base.std() > 0 and other.std() > 0 else 0.0
        out.setdefault(shares[k], []).append(value)
    return dict(sorted(out.items()))


def _collect(
    whole: MarkovNetwork, resampled: list[MarkovNetwork], level: float, correlations: dict[float, list[float]], stopped_by: StoppedBy | None
) -> Stability:
    names = whole.domain.names
    n, n_variables = len(resampled), len(names)
    directed = find_directed(whole.domain)
    edges: dict[tuple[int, int], list[float]] = {}
    features: dict[tuple[int, ...], list[float]] = {}

    def values_of(measured: Edges) -> dict[tuple[int, int], float]:
        return {(a, b): e.signed if directed[a] and directed[b] else e.strength for (a, b), e in measured.items()}

    def estimate(value: float, values: list[float]) -> Estimate:
        filled = np.concatenate([values, np.zeros(n - len(values))])
        low, high = np.quantile(filled, [(1 - level) / 2, (1 + level) / 2])
        return Estimate(value, len(values) / n, float(filled.mean()), float(low), float(high))

    measured = measure_edges(whole.features, whole.weights)
    paths = n_variables * len(measured) <= MOST_PATHS
    central = measure_centrality(measured, n_variables, paths)
    base, whole_edges = central["strength"], values_of(measured)
    samples = {measure: np.zeros((n, n_variables)) for measure in central}
    for k, network in enumerate(resampled):
        measured = measure_edges(network.features, network.weights)
        for measure, found in measure_centrality(measured, n_variables, paths).items():
            samples[measure][k] = found
        for pair, value in values_of(measured).items():
            edges.setdefault(pair, []).append(value)
        for j in np.flatnonzero(network.weights):
            features.setdefault(network.features[int(j)], []).append(float(network.weights[j]))
    whole_features = {whole.features[int(j)]: float(whole.weights[j]) for j in np.flatnonzero(whole.weights)}
    pairs = sorted({*edges, *whole_edges})
    return Stability(
        n,
        level,
        {(names[a], names[b]): estimate(whole_edges.get((a, b), 0.0), edges.get((a, b), [])) for a, b in pairs},
        {
            format_feature(key, whole.domain): estimate(whole_features.get(key, 0.0), features.get(key, []))
            for key in sorted({*features, *whole_features}, key=lambda key: (len(key), key))
        },
        {name: estimate(float(base[v]), [x for x in samples["strength"][:, v].tolist() if x != 0]) for v, name in enumerate(names)},
        correlations,
        stopped_by,
        unsigned=frozenset((names[a], names[b]) for a, b in pairs if not (directed[a] and directed[b])),
        centrality={
            m: {name: estimate(float(own[v]), samples[m][:, v].tolist()) for v, name in enumerate(names)} for m, own in central.items()
        },
        samples=samples,
    )
