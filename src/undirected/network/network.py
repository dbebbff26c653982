"""The weighted network."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.packed import pack, unpack
from undirected.data.readers import read_data
from undirected.data.variables import Domain
from undirected.errors import DataError
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend, default_threads
from undirected.kernels.types import Array
from undirected.network.graph import HARD, markov_graph, pair_weights

if TYPE_CHECKING:
    import networkx

MEMORY = 2 << 30


class MarkovNetwork:
    """A probability distribution over the rows of a table: ``P(x)`` proportional to ``exp`` of the weights of the features
    that are true in ``x``.

    Parameters
    ----------
    features
        The conjunctions, over a domain.
    weights
        One number a feature. Infinite ones (hard constraints, from other programs' files) are kept and count as
        plus or minus 10,000 in computations; NaN is an error.

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
        self.weights = np.array(weights, dtype=float)
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

    @property
    def _finite(self) -> Array:
        return np.asarray(np.clip(self.weights, -HARD, HARD))

    def pruned(self) -> MarkovNetwork:
        """The same distribution without the features whose weight is zero."""
        keep = self.weights != 0
        return MarkovNetwork(self.features.subset(keep), self.weights[keep])

    def _table(self, data: Any, what: str) -> Dataset:
        table = read_data(data, domain=self.domain)
        table.require_complete(what)
        return table

    def _problem(self, table: Dataset, threads: int | None) -> Any:
        f = self.features
        n = threads or default_threads()
        return backend().module.Problem(table.columns, self.domain.n_states, table.weights, f.start, f.literals, MEMORY, n)

    def log_score(self, data: Any) -> Array:
        """The unnormalised log-probability of each row: the sum of the weights of its true features."""
        table = self._table(data, "scoring")
        n = self.domain.n_literals
        columns = pack(table.codes, self.domain.n_states)
        out = np.zeros(len(table))
        for row, weight in zip(self.features, self._finite, strict=True):
            holds = np.full(columns.shape[1], ~np.uint64(0))
            for literal in row:
                holds &= columns[literal % n] if literal < n else ~columns[literal % n]
            out[unpack(holds, len(table))] += weight
        return out

    def conditionals(self, data: Any, threads: int | None = None) -> Array:
        """P(variable = state | the rest of the row) for every row and literal: ``[rows][literals]``."""
        table = self._table(data, "scoring")
        problem = self._problem(table, threads)
        return np.asarray(problem.probabilities(self._finite, self.domain.n_literals, threads or default_threads()))

    def conditional(self, variable: str, row: Mapping[str, str] | Sequence[int] | Array) -> dict[str, float]:
        """The distribution of one variable given a row: states by name, or codes in the domain's order.

        Variables that share no feature with the one asked for need not be given.
        """
        v = self.domain.index(variable)
        known = self._row(row)
        n, base = self.domain.n_literals, self.domain.base
        k = int(self.domain.n_states[v])
        scores = np.zeros(k)
        weights = self._finite
        touching = np.unique(self.features.owner[self.features.variables == v])
        for j in touching:
            allowed = np.ones(k, dtype=bool)
            holds = True
            for literal in self.features[int(j)]:
                u = int(self.domain.literal_variable[literal % n])
                state = literal % n - int(base[u])
                if u == v:
                    is_state = np.arange(k) == state
                    allowed &= is_state if literal < n else ~is_state
                elif u not in known:
                    raise DataError(f"the state of {self.domain[u].name!r} is needed to know {variable!r}; give it in the row")
                else:
                    holds &= (known[u] == state) == (literal < n)
            if holds:
                scores[allowed] += weights[j]
        p = np.exp(scores - scores.max())
        return dict(zip(self.domain[v].states, (p / p.sum()).tolist(), strict=True))

    def _row(self, row: Mapping[str, str] | Sequence[int] | Array) -> dict[int, int]:
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
        """Pseudo-log-likelihood by row (in the rows' order) and by variable (mean over rows)."""
        table = self._table(data, "scoring")
        distinct = table.distinct
        if not len(distinct):
            raise DataError(f"{table.source}: all rows have weight zero")
        rows, variables = self._problem(distinct, threads).terms(self._finite, threads or default_threads())
        by_row = np.full(table.n_distinct, np.nan)
        weight = np.bincount(table.group, weights=table.weights, minlength=table.n_distinct)
        by_row[weight > 0] = rows
        return by_row[table.group], variables / distinct.total_weight

    def pll(self, data: Any, threads: int | None = None) -> float:
        """The mean over rows of the pseudo-log-likelihood, the sum over variables of ``log P(x_i | rest)``."""
        return float(self.pll_terms(data, threads)[1].sum())

    def strongest(self, k: int = 10, min_length: int = 1) -> list[tuple[str, float]]:
        """The features of largest absolute weight, as text, with their weights."""
        order = np.argsort(-np.abs(self.weights), kind="stable")
        order = order[self.features.lengths[order] >= min_length][:k]
        return list(zip(self.features.subset(order).texts(), self.weights[order].tolist(), strict=True))

    def graph(self) -> networkx.Graph:
        """The Markov graph: variables joined where a feature of non-zero weight holds both."""
        return markov_graph(self.features, self.weights)

    def summary(self, k: int = 10) -> str:
        """Sizes, degrees and the strongest features, as text."""
        n_nonzero = int((self.weights != 0).sum())
        pairs = pair_weights(self.features, self.weights)
        degree = np.bincount(np.array(list(pairs), dtype=np.int64).ravel(), minlength=len(self.domain)) if pairs else np.zeros(1)
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
    def load(cls, path: str | os.PathLike[str]) -> MarkovNetwork:
        """Read a network from a file; the suffix decides (.json, .mn, .uai)."""
        from undirected import formats

        return formats.load(path)
