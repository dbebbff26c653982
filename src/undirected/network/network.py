"""The weighted network."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import drop_negation, is_negated, split_literals
from undirected.data.packed import pack, unpack
from undirected.data.readers import read_data
from undirected.data.variables import Domain
from undirected.errors import DataError
from undirected.features.feature_set import FeatureSet, protect
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.network.centrality import measure_centrality
from undirected.network.edges import find_joined_pairs, measure_edges
from undirected.network.graph import build_graph
from undirected.work import MEMORY, count_cores

if TYPE_CHECKING:
    import networkx
    from matplotlib.figure import Figure

    from undirected.inference import Answer, BestStates, Evidence, LogPartition
    from undirected.network.explain import Explanation

LEAST_HARD = 1e4  # an infinite weight counts as more than this and all finite ones together


class MarkovNetwork:
    """A probability distribution over the rows of a table: ``P(x)`` proportional to ``exp`` of the weights of the features
    that are true in ``x``.

    Parameters
    ----------
    features
        The conjunctions, over a domain.
    weights
        One number a feature, kept in an array that cannot be written to. Infinite ones (hard constraints, from other programs'
        files) are kept: a row that breaks one has probability zero. NaN is an error.

    Examples
    --------
    >>> from undirected import Domain, FeatureSet, MarkovNetwork, Variable
    >>> domain = Domain([Variable("rain", ("no", "yes")), Variable("wet", ("no", "yes"))])
    >>> features = FeatureSet.from_texts(["rain=yes", "rain=yes & wet=yes"], domain)
    >>> network = MarkovNetwork(features, [-1.0, 2.0])
    >>> {s: round(p, 3) for s, p in network.conditional("wet", {"rain": "yes"}).items()}
    {'no': 0.119, 'yes': 0.881}
    """

    def __init__(self, features: FeatureSet, weights: Array | Sequence[float]) -> None:
        self.features = features
        self.weights = protect(np.array(weights, dtype=float))
        if self.weights.shape != (len(features),):
            raise DataError(f"{self.weights.size} weights for {len(features)} features; give one weight a feature")
        if np.isnan(self.weights).any():
            j = int(np.argmax(np.isnan(self.weights)))
            raise DataError(f"the weight of feature {j} is not a number")

    @property
    def domain(self) -> Domain:
        return self.features.domain

    def __repr__(self) -> str:
        return f"<MarkovNetwork of {len(self.domain)} variables, {len(self.features):,} features>"

    def stand_in_weights(self, more: float = 0.0) -> tuple[Array, float]:
        """The weights with infinite ones as plus or minus a number that outweighs all finite ones together (and ``more``), and that
        number; infinity if there are none."""
        infinite = np.isinf(self.weights)
        if not infinite.any():
            return self.weights, np.inf
        total = LEAST_HARD + 4 * (float(np.abs(self.weights[~infinite]).sum()) + more)
        hard = float(2 ** np.ceil(np.log2(total)))  # a power of two loses nothing in single precision
        return np.where(infinite, np.sign(self.weights) * hard, self.weights), hard

    def pruned(self) -> MarkovNetwork:
        """The same distribution without the features whose weight is zero."""
        keep = self.weights != 0
        return MarkovNetwork(self.features.subset(keep), self.weights[keep])

    def _read_complete(self, data: Any, what: str) -> Dataset:
        """A table over the network's variables without missing cells."""
        table = read_data(data, domain=self.domain)
        table.require_complete(what)
        return table

    def _problem(self, table: Dataset, threads: int | None) -> Any:
        f = self.features
        n = threads or count_cores()
        return backend().module.PseudoLikelihoodTables(table.columns, self.domain.n_states, table.weights, f.start, f.literals, MEMORY, n)

    def log_score(self, data: Any) -> Array:
        """The unnormalised log-probability of each row: the sum of the weights of its true features, minus infinity where a feature of
        infinite weight is broken; those that are kept add nothing."""
        table = self._read_complete(data, "scoring")
        columns = pack(table.codes, self.domain.n_states)
        column_of = drop_negation(self.domain, self.features.literals).tolist()
        negated = is_negated(self.domain, self.features.literals).tolist()
        start = self.features.start.tolist()
        out = np.zeros(len(table))
        for begin, end, weight in zip(start, start[1:], self.weights.tolist(), strict=False):
            holds = np.full(columns.shape[1], ~np.uint64(0))
            for k in range(begin, end):
                holds &= ~columns[column_of[k]] if negated[k] else columns[column_of[k]]
            true = unpack(holds, len(table))
            if weight == np.inf:
                out[~true] = -np.inf
            else:
                out[true] += weight
        return out

    def conditionals(self, data: Any, threads: int | None = None) -> Array:
        """P(variable = state | the rest of the row) for every row and literal: ``[rows][literals]``."""
        table = self._read_complete(data, "scoring")
        problem = self._problem(table, threads)
        return np.asarray(problem.probabilities(self.stand_in_weights()[0], self.domain.n_literals, threads or count_cores()))

    def conditional(self, variable: str, row: Mapping[str, str] | Sequence[int] | Array) -> dict[str, float]:
        """The distribution of one variable given a row: states by name, or codes in the domain's order.

        Variables that share no feature with the one asked for need not be given.
        """
        v = self.domain.index(variable)
        known = {int(u): 0 for u in np.flatnonzero(self.domain.n_states == 1)} | self.known_states(row)
        k = int(self.domain.n_states[v])
        scores = np.zeros(k)
        weights = self.stand_in_weights()[0]
        touching = np.unique(self.features.owner[self.features.variables == v])
        for j in touching:
            allowed = np.ones(k, dtype=bool)
            holds = True
            for u, state, is_not in split_literals(self.domain, self.features[int(j)]):
                if u == v:
                    allowed &= (np.arange(k) == state) != is_not
                elif u not in known:
                    raise DataError(f"the state of {self.domain[u].name!r} is needed to know {variable!r}; give it in the row")
                else:
                    holds &= (known[u] == state) != is_not
            if holds:
                scores[allowed] += weights[j]
        p = np.exp(scores - scores.max())
        return dict(zip(self.domain[v].states, (p / p.sum()).tolist(), strict=True))

    def known_states(self, row: Mapping[str, str] | Sequence[int] | Array) -> dict[int, int]:
        """The codes of a row by variable's number; negative codes are unknown states."""
        if isinstance(row, Mapping):
            pairs = ((self.domain.index(name), state) for name, state in row.items())
            return {v: self.domain[v].index(str(state)) for v, state in pairs}
        if len(row) != len(self.domain):
            raise DataError(f"a row of {len(row)} codes for {len(self.domain)} variables")
        for v, code in enumerate(row):
            if code >= self.domain.n_states[v]:
                raise DataError(f"variable {self.domain[v].name!r} has {self.domain.n_states[v]} states, so there is no code {code}")
        return {v: int(code) for v, code in enumerate(row) if code >= 0}

    def pll_terms(self, data: Any, threads: int | None = None) -> tuple[Array, Array]:
        """Pseudo-log-likelihood by row (in the rows' order) and by variable (mean over rows).

        Of rows with gaps the known cells are scored, given each other: by sampling, with the same seed every time.
        """
        table = read_data(data, domain=self.domain)
        if table.has_missing:
            from undirected.inference import score_known_cells

            cells = score_known_cells(self, table, threads)
            return cells.sum(axis=1), table.weights @ cells / table.total_weight
        distinct = table.distinct
        if not len(distinct):
            raise DataError(f"{table.source}: all rows have weight zero")
        weights, hard = self.stand_in_weights()
        rows, variables = self._problem(distinct, threads).terms(weights, threads or count_cores())
        rows, variables = np.array(rows), np.array(variables)
        suspects = np.flatnonzero(rows < -hard / 2)  # they may break a rule
        for few in np.array_split(suspects, 1 + len(suspects) // 4096) if len(suspects) else ():
            impossible = self._find_impossible(distinct.subset(few), threads)
            rows[few[impossible.any(axis=1)]] = -np.inf
            variables[impossible.any(axis=0)] = -np.inf
        by_row = np.full(table.n_distinct, np.nan)
        weight = np.bincount(table.group, weights=table.weights, minlength=table.n_distinct)
        by_row[weight > 0] = rows
        return by_row[table.group], variables / distinct.total_weight

    def _find_impossible(self, table: Dataset, threads: int | None) -> Array:
        """Which cells have probability zero given the rest of their row, since another state would break fewer rules:
        ``[rows][variables]``."""
        hard = np.isinf(self.weights)
        rules = MarkovNetwork(self.features.subset(hard), 1000 * np.sign(self.weights[hard]))
        p = rules.conditionals(table, threads)
        return np.asarray(np.take_along_axis(p, self.domain.base[:-1] + table.codes.astype(np.int64), axis=1) < 1e-300)

    def pll(self, data: Any, threads: int | None = None) -> float:
        """The mean over rows of the pseudo-log-likelihood, the sum over variables of ``log P(x_i | rest)``."""
        return float(self.pll_terms(data, threads)[1].sum())

    def query(
        self,
        evidence: Evidence = None,
        variables: Sequence[str] | None = None,
        method: str = "auto",
        **options: Any,
    ) -> Answer:
        """How likely is what, given what is known?

        Evidence first simplifies the network: features that it decides drop out and the rest falls apart; each part is then
        answered exactly if that is cheap, and by sampling if not.

        Parameters
        ----------
        evidence
            ``{"smoker": "yes"}``; a list of states of which one holds; likelihoods by state; or texts such as ``"age!=old"``.
        variables
            Names of the variables asked about; all unknown ones if left out.
        method
            ``auto``, ``junction-tree`` (exact), ``gibbs``, ``mcsat``, ``bp`` (belief propagation), ``trw``, ``mean-field``,
            ``enumeration``.
        precision
            Standard error at which sampling may stop (0.005).
        time_budget
            Seconds for sampling (10).
        data
            A table; a quarter of the chains then start at its rows, and the answer says so if kinds of starts disagree.
        chains, seed
            How many chains sample, and the seed of all that is drawn.
        scan
            The order of a sweep: ``systematic``, ``coloured`` or ``random``.
        memory, threads
            Bytes that exact tables may take, and cores to use.

        Returns
        -------
        Answer
            Marginals with standard errors, the method, and why it was chosen.

        Examples
        --------
        >>> from undirected import Domain, FeatureSet, MarkovNetwork, Variable
        >>> domain = Domain([Variable("rain", ("no", "yes")), Variable("wet", ("no", "yes"))])
        >>> network = MarkovNetwork(FeatureSet.from_texts(["rain=yes", "rain=yes & wet=yes"], domain), [-1.0, 2.0])
        >>> round(network.query({"wet": "yes"})["rain"]["yes"], 3)
        0.731
        """
        from undirected.inference import open_session

        return open_session(self, options).query(evidence, variables, method, **options)

    def map_state(self, evidence: Evidence = None, k: int = 1, method: str = "auto", **options: Any) -> BestStates:
        """The ``k`` most probable assignments, given evidence.

        ``method``: ``auto``, ``exact`` (elimination), ``annealing`` or ``icm`` (climbing from many starts). Options: ``sweeps``,
        ``time_budget``, ``memory``, ``threads``, ``seed``.
        """
        from undirected.inference import open_session

        return open_session(self, options).map_state(evidence, k, method, **options)

    def sample(self, n: int, evidence: Evidence = None, **options: Any) -> Dataset:
        """``n`` rows drawn from the network, given evidence: exactly where memory allows, else one from each of ``n`` Gibbs chains.

        The table's ``source`` says which. Options: ``sweeps`` (500), ``data`` to start chains from, ``memory``, ``threads``, ``seed``.
        """
        from undirected.inference import open_session

        return open_session(self, options).sample(n, evidence, **options)

    def log_partition(self, evidence: Evidence = None, method: str = "auto", **options: Any) -> LogPartition:
        """The logarithm of the sum of ``exp(score)`` over all assignments that evidence leaves.

        ``method``: ``auto``, ``exact``, ``ais`` (annealed importance sampling, forward for a lower and in reverse for an upper
        bound), ``bp``, ``trw`` (an upper bound), ``mean-field`` (a lower bound). Options: ``chains`` and ``steps`` of ``ais``,
        ``data``, ``time_budget``, ``memory``, ``threads``, ``seed``. The result works as a number.
        """
        from undirected.inference import open_session

        return open_session(self, options).log_partition(evidence, method, **options)

    def log_likelihood(self, data: Any, **options: Any) -> float:
        """The mean over rows of ``log P(row)``; the options are those of `log_partition`."""
        from undirected.inference import open_session

        return open_session(self, options).log_likelihood(data, **options).value

    def expectations(self, evidence: Evidence = None, **options: Any) -> Array:
        """The probability of each feature: exact, or an error that tells what exact tables would take."""
        from undirected.inference import open_session

        return open_session(self, options).expectations(evidence, **options)

    def impute(self, data: Any, method: str = "map", **options: Any) -> Dataset:
        """A table with its missing cells filled in: the most probable completion of each row (``map``), one drawn from the
        network (``sample``), or cell by cell the most probable state (``marginal``)."""
        from undirected.inference import open_session

        return open_session(self, options).impute(data, method, **options)

    def predict_proba(self, data: Any, target: str, **options: Any) -> Array:
        """P(target = state | the other cells of the row) by row and state. Cells may be missing, and so may the target's column."""
        from undirected.inference import open_session

        return open_session(self, options).predict_proba(data, target, **options)

    def explain(
        self, variable: str, row: Mapping[str, str] | Sequence[int] | Array, state: str | None = None, against: str | None = None
    ) -> Explanation:
        """Which features push a variable towards a state, given the rest of a row, and by how much; the parts add up exactly.

        ``state`` is by default the row's own (or the most probable) and ``against`` the likeliest other one.
        """
        from undirected.network.explain import explain

        return explain(self, variable, row, state, against)

    def strongest(self, k: int = 10, min_length: int = 1) -> list[tuple[str, float]]:
        """The features of largest absolute weight, as text, with their weights."""
        order = np.argsort(-np.abs(self.weights), kind="stable")
        order = order[self.features.lengths[order] >= min_length][:k]
        return list(zip(self.features.subset(order).texts(), self.weights[order].tolist(), strict=True))

    def graph(self) -> networkx.Graph:
        """The Markov graph: variables joined where a feature of non-zero weight holds both.

        An edge's ``strength`` is the root mean square of the two variables' log odds ratios, over their states and those of all
        others; for two binary variables with one feature it is the absolute weight. ``signed`` is the strength with a plus where
        higher states go together and a minus where they avoid each other; it is 0 where a variable has three or more states
        without an order.
        """
        return build_graph(self.features, self.weights)

    def centrality(self) -> dict[str, dict[str, float]]:
        """For each variable ``strength``, ``expected_influence``, ``closeness`` and ``betweenness`` in the graph, by measure and name."""
        found = measure_centrality(measure_edges(self.features, self.weights), len(self.domain))
        return {measure: dict(zip(self.domain.names, values.tolist(), strict=True)) for measure, values in found.items()}

    def plot(self, **options: Any) -> Figure:
        """The graph as a figure; the options are those of `undirected.plots.draw_graph`."""
        from undirected.plots import draw_graph

        return draw_graph(self, **options)

    def summary(self, k: int = 10) -> str:
        """Sizes, degrees and the strongest features, as text."""
        n_nonzero = int((self.weights != 0).sum())
        pairs = find_joined_pairs(self.features, self.weights)
        degree = np.bincount(pairs.ravel(), minlength=max(1, len(self.domain)))
        sizes = self.domain.n_states
        lengths = np.bincount(self.features.lengths)
        lines = [
            f"Markov network over {len(self.domain)} variables"
            + (" (binary)" if self.domain.is_binary else f" ({sizes.min()} to {sizes.max()} states)" if len(sizes) else ""),
            f"  features       {len(self.features):,} ({n_nonzero:,} with a weight other than zero)",
            "  by length      " + ", ".join(f"{n:,} of {length}" for length, n in enumerate(lengths) if n),
            f"  edges          {len(pairs):,} (degree {degree.mean():.1f} on average, {int(degree.max())} at most)",
        ]
        long = bool((self.features.lengths > 1).any())
        if n_nonzero and k:
            lines.append("  strongest interactions" if long else "  strongest features")
            lines += [f"    {weight:+9.4f}  {text}" for text, weight in self.strongest(k, 2 if long else 1)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:right'>{weight:+.4f}</td><td style='text-align:left'>{html.escape(text)}</td></tr>"
            for text, weight in self.strongest(10)
        )
        head = f"{len(self.domain)} variables, {len(self.features):,} features"
        return (
            f"<div><b>Markov network</b>: {head}<table><thead><tr><th>weight</th><th>strongest features</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file; the suffix decides (.json, .mn, .uai, .graphml)."""
        from undirected import formats

        formats.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], domain: Domain | Dataset | MarkovNetwork | None = None) -> MarkovNetwork:
        """Read a network from a file; the suffix decides (.json, .mn, .uai). ``domain`` gives names to one without."""
        from undirected import formats

        return formats.load(path, domain)
