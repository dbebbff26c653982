"""Rows with gaps: completions drawn from a network given the known cells, and scores of the known cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undirected.data.dataset import Dataset
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
FIRST_SWEEPS, MORE_SWEEPS = 60, 5  # of Gibbs sampling, before the first completion and between one and the next


class Completer:
    """Rows with gaps, and chains of completions of them, which go on from network to network.

    ``codes`` has -1 in the gaps. Each of the ``n`` chains of a row begins with states drawn as often as they occur in their column.
    """

    def __init__(self, codes: Array, n: int, domain: Domain, seed: int = 0) -> None:
        self.codes, self.n = codes.astype(np.int16), n
        self._rng = np.random.default_rng(seed)
        self.states = np.tile(self.codes, (n, 1))
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
    width = network.domain.n_literals
    for piece in cut_rows(len(whole), width) if len(whole) else ():
        out[whole[piece]] = _score_cells(network, table.codes[whole[piece]], threads)
    for number, piece in enumerate(cut_rows(len(open_rows), width) if len(open_rows) else ()):
        codes = table.codes[open_rows[piece]]
        completer = Completer(codes, 1, network.domain, seed + number)
        total = np.full(codes.shape, -np.inf)
        for k in range(SCORED_COMPLETIONS):
            states = completer.draw(network, MORE_SWEEPS if k else FIRST_SWEEPS, work)[0]
            total = np.logaddexp(total, -_score_cells(network, states, threads))
        out[open_rows[piece]] = np.where(codes >= 0, np.log(SCORED_COMPLETIONS) - total, 0.0)
        work.emit(Counted("rows with gaps scored", int(piece[-1]) + 1, len(open_rows)))
    return out


def _score_cells(network: MarkovNetwork, codes: Array, threads: int | None) -> Array:
    """``log P(cell | the rest of the row)`` in complete rows."""
    domain = network.domain
    chances = network.conditionals(Dataset(domain, codes), threads)
    at = domain.base[:-1] + codes.astype(np.int64)
    return np.asarray(np.log(np.maximum(np.take_along_axis(chances, at, axis=1), 1e-300)))
