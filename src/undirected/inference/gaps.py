"""Rows with gaps: completions drawn from a network given the known cells, and scores of the known cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import get_slice
from undirected.data.variables import Domain
from undirected.inference.evidence import mark_rows
from undirected.inference.protocols import Sampler
from undirected.inference.rows import cut_rows
from undirected.inference.session import Session
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import Counted, Work

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

SCORED_COMPLETIONS = 50  # of each row, for its score
MOST_GUIDED = 4000  # literals, beyond which first completions look at no other cell
LEAST_TOGETHER = 10.0  # rows that know two variables, for one to tell about the other
FIRST_SWEEPS, MORE_SWEEPS = 60, 5  # of Gibbs sampling, before the first completion and between one and the next


class Completer:
    """Rows with gaps, and chains of completions of them, which go on from network to network.

    ``codes`` has -1 in the gaps. Each of the ``n`` chains of a row begins with states drawn as often as they occur in their column, or,
    with a ``guide``, as often as they occur there beside the known cell of the row that tells most.
    """

    def __init__(self, codes: Array, n: int, domain: Domain, seed: int = 0, guide: Dataset | None = None) -> None:
        self.codes, self.n = codes.astype(np.int16), n
        self._rng = np.random.default_rng(seed)
        self.states = np.tile(self.codes, (n, 1))
        if guide is not None and domain.n_literals <= MOST_GUIDED:
            _draw_beside(self.states, guide, self._rng)
        for v, k in enumerate(domain.n_states.tolist()):
            gaps = self.states[:, v] < 0
            known = np.bincount(self.codes[self.codes[:, v] >= 0, v], minlength=k) + 0.5
            self.states[gaps, v] = self._rng.choice(k, int(gaps.sum()), p=known / known.sum())

    def draw(self, network: MarkovNetwork, sweeps: int, work: Work) -> Array:
        """So many sweeps over the gaps: the completions ``[chains][rows][variables]``."""
        model = Session(network, memory=work.memory).reduce().model
        order = np.arange(len(network.domain), dtype=np.int32)
        m = len(self.codes)
        for rows in cut_rows(m, network.domain.n_literals * self.n):
            if not len(rows):
                continue
            chains = (np.arange(self.n)[:, None] * m + rows).ravel()
            marks = np.ascontiguousarray(mark_rows(network.domain, self.codes[rows]))
            row_of = np.tile(np.arange(len(rows), dtype=np.int32), self.n)
            first = np.ascontiguousarray(self.states[chains])
            seed = int(self._rng.integers(1 << 31))
            sampler: Sampler = backend().module.Sampler(model, marks, row_of, first, order, seed)
            sampler.run(sweeps, None, None, False, False, False, work.threads)
            self.states[chains] = np.asarray(sampler.states())
        return self.states.reshape(self.n, m, -1)


def _draw_beside(states: Array, guide: Dataset, rng: np.random.Generator) -> None:
    """Fill gaps by states drawn as often as they occur beside the known cell of the row that tells most about the gap, in the rows of
    ``guide`` that know both; gaps without such a cell stay."""
    domain = guide.domain
    known = states >= 0
    counts = _count_pairs(guide)
    tells = _measure_information(counts, domain)
    for v in np.flatnonzero(~known.all(axis=0)).tolist():
        own = get_slice(domain, v)
        todo = np.flatnonzero(~known[:, v])
        for u in np.argsort(-tells[v], kind="stable").tolist():
            if u == v or tells[v, u] <= 0 or not len(todo):
                break
            here = todo[known[todo, u]]
            if not len(here):
                continue
            table = counts[get_slice(domain, u), own] + 0.5 / domain.n_states[v]
            ends = np.cumsum(table / table.sum(axis=1, keepdims=True), axis=1)[states[here, u]]
            states[here, v] = np.minimum((rng.random(len(here))[:, None] > ends).sum(axis=1), domain.n_states[v] - 1)
            todo = todo[~known[todo, u]]


def _count_pairs(data: Dataset) -> Array:
    """The weight of rows in which two literals are both known to hold."""
    domain, rows = data.domain, data.distinct
    counts = np.zeros((domain.n_literals, domain.n_literals))
    for part in np.array_split(np.arange(len(rows)), len(rows) // 8192 + 1):
        codes = rows.codes[part]
        held = np.zeros((len(part), domain.n_literals), dtype=np.float32)
        r, v = np.nonzero(codes >= 0)
        held[r, domain.base[v] + codes[r, v]] = 1
        counts += (held * rows.weights[part, None].astype(np.float32)).T @ held
    return counts


def _measure_information(counts: Array, domain: Domain) -> Array:
    """The mutual information of each two variables, in the rows that know both; zero where those are few."""
    starts = domain.base[:-1]
    total = np.add.reduceat(np.add.reduceat(counts, starts, axis=0), starts, axis=1)
    of = domain.literal_variable
    n = np.maximum(total, 1e-300)[of][:, of]
    rows = np.add.reduceat(counts, starts, axis=1)[:, of]
    columns = np.add.reduceat(counts, starts, axis=0)[of]
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(counts > 0, counts / n * np.log(counts * n / (rows * columns)), 0.0)
    tells = np.add.reduceat(np.add.reduceat(parts, starts, axis=0), starts, axis=1)
    return np.asarray(np.where(total >= LEAST_TOGETHER, np.maximum(tells, 0), 0.0))


def fill_by_shares(table: Dataset, seed: int = 0) -> Dataset:
    """The table with each gap filled by a state drawn as often as it occurs in its column: all that independent variables need."""
    if not table.has_missing:
        return table
    states = Completer(table.codes, 1, table.domain, seed).states
    return Dataset(table.domain, states, table.weights, table.source, table.lines)


def score_known_cells(network: MarkovNetwork, table: Dataset, threads: int | None = None, seed: int = 0, work: Work | None = None) -> Array:
    """For each row and variable ``log P(cell | the other known cells of the row)``, and zero in gaps.

    Where a row has gaps, one over that probability is the mean, over completions of the gaps given all known cells, of one over the
    probability given the completed rest of the row; so completions are drawn, and averaged over in this way.
    """
    work = Work.start(threads) if work is None else work
    open_rows = np.flatnonzero((table.codes < 0).any(axis=1))
    out = np.zeros(table.codes.shape)
    whole = np.setdiff1d(np.arange(len(table)), open_rows)
    if len(whole):
        out[whole] = _score_cells(network, table.codes[whole], threads)
    if len(open_rows):
        codes = table.codes[open_rows]
        completer = Completer(codes, 1, network.domain, seed)
        total = np.full(codes.shape, -np.inf)
        for k in range(SCORED_COMPLETIONS):
            states = completer.draw(network, MORE_SWEEPS if k else FIRST_SWEEPS, work)[0]
            total = np.logaddexp(total, -_score_cells(network, states, threads))
            work.emit(Counted("completions of rows with gaps", k + 1, SCORED_COMPLETIONS))
        out[open_rows] = np.where(codes >= 0, np.log(SCORED_COMPLETIONS) - total, 0.0)
    return out


def _score_cells(network: MarkovNetwork, codes: Array, threads: int | None) -> Array:
    """``log P(cell | the rest of the row)`` in complete rows."""
    domain = network.domain
    chances = network.conditionals(Dataset(domain, codes), threads)
    at = domain.base[:-1] + codes.astype(np.int64)
    return np.asarray(np.log(np.maximum(np.take_along_axis(chances, at, axis=1), 1e-300)))
