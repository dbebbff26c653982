"""An approximate inverse Hessian: one small dense matrix per variable.

The Hessian of a pseudo-likelihood is a sum of one term per variable, and a variable's term touches only the features that
mention it. So take for each variable the features that mention it, estimate their part of the Hessian from the variable's
own term on a sample of rows, scaled to the full diagonal, invert that, and add the inverses up (an overlapping additive
Schwarz preconditioner; docs/explanation/engine.md has the measurements). It turns several hundred quasi-Newton steps into a few dozen.
Where there are few features, the terms are added up first and factorised as one matrix.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.linalg import lapack

from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.weights.pseudo_likelihood import PseudoLikelihood

SAMPLE_ROWS = 2048
WHOLE_SAMPLE_ROWS = 4096
MAX_BLOCK = 512
MAX_WHOLE, LATE_WHOLE = 3000, 4096  # at once, and where blocks alone do not lead to the end
MAX_DESIGN, STRIP = 1 << 24, 512  # numbers in a block's design matrix, of so many rows at a time


class WholeMatrix:
    """The terms of all variables added up over the features marked ``free``, and factorised as one matrix."""

    def __init__(self, objective: PseudoLikelihood, weights: Array, diagonal: Array, ridge: float, free: Array) -> None:
        place = np.cumsum(free) - 1
        self._members = np.flatnonzero(free)
        total = np.zeros((len(self._members), len(self._members)), dtype=np.float32)
        _sample(objective, weights, WHOLE_SAMPLE_ROWS)
        blocks = _blocks(objective, free, len(free))
        with ThreadPoolExecutor(objective.threads) as pool:
            for (_, part), gram in zip(blocks, pool.map(lambda job: objective.problem.gram(*job), blocks), strict=True):
                backend().module.add_block(total, place[part], gram)
        backend().module.fit_diagonal(total, diagonal[free], ridge)
        self._factor, failed = lapack.spotrf(total, lower=1, clean=0)
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
        _sample(objective, weights, SAMPLE_ROWS)
        blocks = _blocks(objective, free, MAX_BLOCK)
        variables = np.array([v for v, _ in blocks], dtype=np.int32)
        self._start = np.concatenate([[0], np.cumsum([len(members) for _, members in blocks])]).astype(np.int64)
        self._members = np.concatenate([np.zeros(0, np.int32), *(members for _, members in blocks)]).astype(np.int32)
        self._factors = objective.problem.factors(variables, self._start, self._members, diagonal, ridge, self.threads)
        times = np.bincount(self._members, minlength=len(diagonal))
        self._share = np.where(times > 0, 1 / np.sqrt(np.maximum(times, 1)), 0)
        self._rest = np.where(times > 0, 0, 1 / diagonal)

    def both(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Two vectors multiplied at the cost of one."""
        shared = [(self._share * v).astype(np.float32) for v in (x, y)]
        out = backend().module.times_blocks(self._start, self._members, self._factors, *shared, self.threads)
        return self._rest * x + self._share * out[0], self._rest * y + self._share * out[1]


class Diagonal:
    """Scaling by the diagonal of the Hessian, with the same interface."""

    def __init__(self, diagonal: Array) -> None:
        self._inverse = 1 / diagonal

    def both(self, x: Array, y: Array) -> tuple[Array, Array]:
        return self._inverse * x, self._inverse * y


def _sample(objective: PseudoLikelihood, weights: Array, rows: int) -> None:
    """Keep conditional probabilities on about so many rows, from which the problem estimates curvature."""
    objective.problem.sample(weights, max(1, len(objective.table) // rows), objective.threads)


def fits_whole(objective: PseudoLikelihood, free: Array, limit: int = MAX_WHOLE) -> bool:
    """Whether one matrix for all free features is small enough, and its parts are."""
    n = int(free.sum())
    return n <= limit and n * STRIP * int(objective.features.domain.n_states.max(initial=1)) <= MAX_DESIGN


def _blocks(objective: PseudoLikelihood, free: Array, most: int) -> list[tuple[int, Array]]:
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
        room = MAX_DESIGN // (STRIP * (1 if n_states[v] == 2 else int(n_states[v])))
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
    inverses = float(n) ** 3 / 6 if n <= MAX_WHOLE else float((sizes**3).sum()) / 3
    # Gram matrices: as dense products, or by the contexts that hold in a row, whichever is less.
    share = objective.problem.sizes()["held"] / max(1.0, float(by_variable.sum()) * len(objective.table))
    pairs = float((sizes**2).sum()) * rows
    return float(3e-5 * len(sizes) + min(pairs / 20e9, pairs * share**2 / 0.6e9) + inverses / 10e9 + sizes.sum() * rows * share / 0.3e9)


def evaluation_cost(objective: PseudoLikelihood) -> float:
    """Rough seconds of one value and gradient on one core, from sizes alone."""
    return float(objective.problem.sizes()["work"] * 1.45e-9 + objective.table.codes.size * 1e-9) + 1e-5
