"""CMLL, the papers' measure of conditional marginals.

The variables are split into four groups; for each group the others are evidence, and the log-probabilities of its variables'
true states, one by one, are added up: ``sum over i of log P(x_i | the other groups)``. Summed over the groups, mean over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undirected.data.readers import read_data
from undirected.errors import DataError, ParameterError
from undirected.inference.engine import check_method
from undirected.inference.evidence import mark_rows
from undirected.inference.rows import cut_rows, find_row_marginals
from undirected.inference.session import Session
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.work import MEMORY, Counted, Event, Work

SPLITS = ("random", "contiguous", "every")
METHODS = ("auto", "exact", "gibbs")


@dataclass
class CMLL:
    """The score of a network on a table, with the error that sampling brings in (not that of having few rows).

    ``exact_share`` is the share of (row, group) pairs that were answered exactly; ``distinct_share`` the share of them that had
    evidence of their own, so that they had to be answered at all.
    """

    value: float
    per_variable: float
    standard_error: float
    exact_share: float
    distinct_share: float
    rows: int
    by_row: Array

    def __float__(self) -> float:
        return self.value

    @property
    def method(self) -> str:
        return "exact" if self.exact_share == 1 else "gibbs" if self.exact_share == 0 else "exact and gibbs"


def make_groups(n: int, groups: int = 4, seed: int = 0, split: str = "random") -> list[Array]:
    """The variables' numbers by group: a seeded shuffle dealt out (``random``), runs of neighbours (``contiguous``), or every fourth
    variable (``every``)."""
    if split not in SPLITS:
        raise ParameterError(f"split={split!r} is not known; choose one of {', '.join(SPLITS)}")
    if groups < 1:
        raise ParameterError(f"groups={groups}: at least one")
    order = np.random.default_rng(seed).permutation(n) if split == "random" else np.arange(n)
    parts = [order[g::groups] for g in range(groups)] if split == "every" else np.array_split(order, groups)
    return [np.sort(part) for part in parts if len(part)]


def cmll(
    network: MarkovNetwork,
    data: Any,
    groups: int = 4,
    seed: int = 0,
    method: str = "auto",
    *,
    split: str = "random",
    burn_in: int = 100,
    sweeps: int = 1000,
    memory: int = MEMORY,
    threads: int | None = None,
    progress: Callable[[Event], None] | None = None,
) -> CMLL:
    """The conditional marginal log-likelihood of a table.

    Known cells are scored, given the known ones of the other groups.

    Rows with equal evidence are answered once: exactly where the network that evidence leaves is small enough (or always, with
    ``method="exact"``), else by two Gibbs chains of ``burn_in`` sweeps and half of ``sweeps`` each, whose difference gives the error.

    Parameters
    ----------
    groups, seed, split
        How the variables are dealt out; the papers use four groups and do not publish theirs.
    method
        ``auto``, ``exact`` or ``gibbs``.
    progress
        Is called with an event that counts rows.

    Examples
    --------
    >>> import undirected
    >>> learner = undirected.ChowLiu().fit(undirected.datasets.load("digits"))
    >>> score = undirected.cmll(learner.network_, undirected.datasets.load("digits", "test"))
    >>> score.exact_share, -20 < score.value < -10
    (1.0, True)
    """
    check_method(method, METHODS)
    if burn_in < 0 or sweeps < 2:
        raise ParameterError(f"burn_in={burn_in}, sweeps={sweeps}: at least 0 and 2")
    table = read_data(data, domain=network.domain)
    rows = table.distinct
    if not len(rows):
        raise DataError(f"{table.source}: no row has a weight above zero")
    session = Session(network, threads=threads, memory=memory, seed=seed)
    reduced, work = session.reduce(), session.start()
    base = network.domain.base
    weights = rows.weights / rows.total_weight
    total, variance = np.zeros(len(rows)), 0.0
    exact, distinct = 0.0, 0
    parts = make_groups(len(network.domain), groups, seed, split)
    pieces = [(hidden, piece) for hidden in parts for piece in cut_rows(len(rows), network.domain.n_literals)]
    for k, (hidden, piece) in enumerate(pieces):
        codes = rows.codes[piece].astype(np.int16)
        known = codes[:, hidden] >= 0
        at = (base[hidden][None, :] + np.maximum(codes[:, hidden], 0)).astype(np.int64)
        codes[:, hidden] = -1
        mine = replace(_count_over(work, k, len(pieces), progress), seed=seed * len(pieces) + k)
        found = find_row_marginals(reduced, mark_rows(network.domain, codes), mine, method=method, burn_in=burn_in, sweeps=sweeps)
        chances = (p[found.place[:, None], at] for p in (found.marginals, *found.halves))
        scores = [np.where(known, np.log(np.maximum(p, 1e-300)), 0.0).sum(axis=1) for p in chances]
        total[piece] += scores[0]
        # Rows with equal evidence share their chains, so their errors add up before they are squared.
        variance += float((np.bincount(found.place, weights=weights[piece] * (scores[2] - scores[1]) / 2) ** 2).sum())
        exact += float(weights[piece] @ found.exact[found.place])
        distinct += len(found.exact)
    value = float(weights @ total)
    exact /= len(parts)
    shares = 1.0 if exact > 1 - 1e-9 else exact, distinct / len(parts) / len(table)
    return CMLL(value, value / len(network.domain), float(np.sqrt(variance)), *shares, len(table), total[_places(table)])


def _count_over(work: Work, k: int, n_pieces: int, progress: Callable[[Event], None] | None) -> Work:
    """The same work, whose events count over all pieces, of which this is number ``k``."""

    def count(event: Event) -> None:
        if progress is not None and isinstance(event, Counted):
            progress(Counted("cmll", k * event.total + event.done, n_pieces * event.total))

    return replace(work, listener=count)


def _places(table: Any) -> Array:
    """For each row its place among the distinct rows of weight above zero (rows of weight zero get the first)."""
    weight = np.bincount(table.group, weights=table.weights, minlength=table.n_distinct)
    return np.asarray(np.maximum(np.cumsum(weight > 0) - 1, 0)[table.group])
