"""An approximate inverse Hessian: one small dense matrix per variable.

The Hessian of a pseudo-likelihood is a sum of one term per variable, and a variable's term touches only the features that
mention it. So take for each variable the features that mention it, estimate their part of the Hessian from the variable's
own term on a sample of rows, scaled to the full diagonal, invert that, and add the inverses up (an overlapping additive
Schwarz preconditioner; docs/engine.md has the measurements). It turns several hundred quasi-Newton steps into a few dozen.
Where there are few features, the terms are added up first and factorised as one matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.linalg import lapack

from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.weights.pseudo_likelihood import PseudoLikelihood

SAMPLE_ROWS = 2048
WHOLE_SAMPLE_ROWS = 4096
MAX_BLOCK = 512
MAX_WHOLE = 1024
MAX_DESIGN = 1 << 24  # numbers in a block's design matrix


class WholeMatrix:
    """The terms of all variables added up over the features marked ``free``, and factorised as one matrix."""

    def __init__(self, objective: PseudoLikelihood, weights: Array, diagonal: Array, ridge: float, free: Array) -> None:
        place = np.cumsum(free) - 1
        self._members = np.flatnonzero(free)
        total = np.zeros((len(self._members), len(self._members)), dtype=np.float32)
        for part, gram in _estimates(objective, weights, free, WHOLE_SAMPLE_ROWS, len(free), lambda members, gram: gram):
            backend().module.add_block(total, place[part], gram)
        self._factor, failed = lapack.spotrf(_scaled(total, diagonal[free], ridge), lower=1, clean=0)
        self._rest = 1 / diagonal
        if failed:
            self._members = self._members[:0]

    def both(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Two vectors multiplied at the cost of one."""
        out = np.stack([self._rest * x, self._rest * y])
        if len(self._members):
            inside = np.stack([x, y], axis=1)[self._members].astype(np.float32)
            out[:, self._members] = lapack.spotrs(self._factor, inside, lower=1)[0].T
        return out[0], out[1]


class VariableBlocks:
    """One inverse per variable over the features marked ``free``; other features are scaled by the diagonal alone.

    ``diagonal`` is the diagonal of the Hessian with the ridge 1/sd^2 included. Variables with more than ``MAX_BLOCK`` free
    features have them cut into blocks of neighbours in the order given.
    """

    def __init__(self, objective: PseudoLikelihood, weights: Array, diagonal: Array, ridge: float, free: Array) -> None:
        self.threads = objective.threads

        def inverse(members: Array, gram: Array) -> Array:
            return np.linalg.inv(_scaled(gram, diagonal[members], ridge))

        blocks = _estimates(objective, weights, free, SAMPLE_ROWS, MAX_BLOCK, inverse)
        self._start = np.concatenate([[0], np.cumsum([len(members) for members, _ in blocks])]).astype(np.int64)
        self._members = np.concatenate([np.zeros(0, np.int32), *(members for members, _ in blocks)]).astype(np.int32)
        self._matrices = np.concatenate([np.zeros(0, np.float32), *(matrix.ravel() for _, matrix in blocks)])
        times = np.bincount(self._members, minlength=len(diagonal))
        self._share = np.where(times > 0, 1 / np.sqrt(np.maximum(times, 1)), 0)
        self._rest = np.where(times > 0, 0, 1 / diagonal)

    def both(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Two vectors multiplied at the cost of one."""
        shared = [(self._share * v).astype(np.float32) for v in (x, y)]
        out = backend().module.times_blocks(self._start, self._members, self._matrices, *shared, self.threads)
        return self._rest * x + self._share * out[0], self._rest * y + self._share * out[1]


class Diagonal:
    """Scaling by the diagonal of the Hessian, with the same interface."""

    def __init__(self, diagonal: Array) -> None:
        self._inverse = 1 / diagonal

    def both(self, x: Array, y: Array) -> tuple[Array, Array]:
        return self._inverse * x, self._inverse * y


def _scaled(estimate: Array, diagonal: Array, ridge: float) -> Array:
    """An estimated Hessian, scaled so that its diagonal is the true one."""
    own = estimate.diagonal().copy()
    full = diagonal.astype(np.float32)
    seen = own > 1e-3 * full
    scale = np.sqrt(np.where(seen, np.maximum(full - ridge, 0) / np.where(seen, own, 1), 0)).astype(np.float32)
    estimate *= scale
    estimate *= scale[:, None]
    estimate[np.diag_indices(len(full))] = full * (1 + 1e-4)
    return estimate


def _estimates(
    objective: PseudoLikelihood, weights: Array, free: Array, rows: int, most: int, then: Callable[[Array, Array], Array]
) -> list[tuple[Array, Array]]:
    """For each block its features and ``then(features, Gram matrix of its variable's term on a sample of rows)``."""
    problem = objective.problem
    sampled = problem.sample(weights, max(1, len(objective.table) // rows), objective.threads)

    def work(job: tuple[int, Array]) -> tuple[Array, Array]:
        design = problem.design(*job)
        return job[1], then(job[1], design @ design.T)

    with ThreadPoolExecutor(objective.threads) as pool:
        return list(pool.map(work, _blocks(objective, free, most, sampled)))


def fits_whole(objective: PseudoLikelihood, free: Array) -> bool:
    """Whether one matrix for all free features is small enough, and its parts are."""
    if int(free.sum()) > MAX_WHOLE:
        return False
    rows = min(len(objective.table), 2 * WHOLE_SAMPLE_ROWS)
    return int(free.sum()) * rows * int(objective.features.domain.n_states.max(initial=1)) <= MAX_DESIGN


def _blocks(objective: PseudoLikelihood, free: Array, most: int, sampled: int) -> list[tuple[int, Array]]:
    """Each variable with the free features that mention it, at most so many at a time, and fewer if it has many states."""
    features = objective.features
    keep = free[features.owner]
    pairs = np.unique(features.variables[keep].astype(np.int64) * len(features) + features.owner[keep])
    variable, owner = np.divmod(pairs, max(1, len(features)))
    n_states = features.domain.n_states
    bounds = np.searchsorted(variable, np.arange(len(n_states) + 1))
    out = []
    for v in np.flatnonzero((np.diff(bounds) > 0) & (n_states > 1)):
        members = owner[bounds[v] : bounds[v + 1]].astype(np.int32)
        room = MAX_DESIGN // (sampled * (1 if n_states[v] == 2 else int(n_states[v])))
        if room < 2:
            continue
        for part in np.array_split(members, -(-len(members) // min(most, room))):
            out.append((int(v), np.ascontiguousarray(part)))
    return out


def build_cost(objective: PseudoLikelihood) -> float:
    """Rough seconds on one core, from sizes alone, so that decisions do not depend on the clock."""
    n = len(objective)
    rows = min(len(objective.table), WHOLE_SAMPLE_ROWS if n <= MAX_WHOLE else SAMPLE_ROWS)
    by_variable = np.bincount(objective.features.variables, minlength=1).astype(float)
    n_blocks = np.ones(len(by_variable)) if n <= MAX_WHOLE else np.maximum(1, np.ceil(by_variable / MAX_BLOCK))
    sizes = np.repeat(by_variable / n_blocks, n_blocks.astype(int))
    inverses = float(n) ** 3 / 3 if n <= MAX_WHOLE else float((2 * sizes**3).sum())
    return float(3e-4 * len(sizes) + (sizes**2 * rows).sum() / 40e9 + inverses / 15e9 + (sizes * rows).sum() / 1e9)


def evaluation_cost(objective: PseudoLikelihood) -> float:
    """Rough seconds of one value and gradient on one core, from sizes alone."""
    return float(objective.problem.sizes()["work"] * 2.2e-9 + objective.table.codes.size * 1.5e-9) + 1e-5
