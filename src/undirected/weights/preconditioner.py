"""An approximate inverse Hessian: one small dense matrix per variable.

The Hessian of a pseudo-likelihood is a sum of one term per variable, and a variable's term touches only the features that
mention it. So take for each variable the features that mention it, estimate their part of the Hessian from the variable's
own term on a sample of rows, scaled to the full diagonal, invert that, and add the inverses up (an overlapping additive
Schwarz preconditioner; docs/explanation/engine.md has the measurements). It turns several hundred quasi-Newton steps into a few dozen.
Where there are few features, the terms are added up first and factorised as one matrix. So are the features of most curvature where
features hardly overlap, as the leaves of trees: the others then matter little to each other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.linalg import blas, lapack

from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.weights.objective import CurvedObjective

SAMPLE_ROWS = 2048  # for blocks
WHOLE_SAMPLE_ROWS = 4096  # for one whole matrix
MAX_BLOCK = 512  # features
MAX_WHOLE, MAX_WHOLE_LATE = 3000, 4096  # features of a whole matrix: at once, and where blocks alone do not lead to the end
MOST_OVERLAP, MAX_BESIDE_MAIN = 25, 20_000  # contexts of a variable that hold in a row, on average, and features in all, up to which a
# matrix of the features of most curvature is better than blocks
MAIN_ROWS = 20_000  # for that matrix
MAX_DESIGN, STRIP = 1 << 24, 512  # numbers in a block's design matrix, of so many rows at a time


class WholeMatrix:
    """The terms of all variables added up over the features ``marked``, and factorised as one matrix; other features are scaled by the
    diagonal alone."""

    def __init__(self, objective: CurvedObjective, weights: Array, diagonal: Array, ridge: float, marked: Array, n_rows: int) -> None:
        place = np.cumsum(marked) - 1
        self._members = np.flatnonzero(marked)
        total = np.zeros((len(self._members), len(self._members)), dtype=np.float32)
        objective.sample_curvature(weights, n_rows)
        blocks = objective.list_blocks(marked, len(marked))
        with ThreadPoolExecutor(objective.threads) as pool:
            for block, gram in zip(blocks, pool.map(objective.block_curvature, blocks), strict=True):
                backend().module.add_block(total, place[block.members], gram)
        backend().module.fit_diagonal(total, diagonal[marked], ridge)
        self._factor, failed = lapack.spotrf(total, lower=1, clean=0)
        self._rest = 1 / diagonal
        if failed:
            self._members = self._members[:0]

    def multiply_both(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Two vectors multiplied at the cost of one."""
        out = np.stack([self._rest * x, self._rest * y])
        if len(self._members):
            with np.errstate(under="ignore"):
                inside = [vector[self._members].astype(np.float32) for vector in (x, y)]
            for row, vector in zip(out, inside, strict=True):  # one after the other, which is several times faster than spotrs with both
                half = blas.strsv(self._factor, vector, lower=1)
                row[self._members] = blas.strsv(self._factor, half, lower=1, trans=1)
        return out[0], out[1]


class VariableBlocks:
    """One inverse per variable over the features marked ``free``; other features are scaled by the diagonal alone.

    ``diagonal`` is the diagonal of the Hessian with the ridge 1/sd^2 included. Variables with more than ``MAX_BLOCK`` free
    features have them cut into blocks of neighbours in the order given.
    """

    def __init__(self, objective: CurvedObjective, weights: Array, diagonal: Array, ridge: float, free: Array) -> None:
        objective.sample_curvature(weights, SAMPLE_ROWS)
        blocks = objective.list_blocks(free, MAX_BLOCK)
        self._inverse = objective.invert_blocks(blocks, diagonal, ridge)
        members = np.concatenate([np.zeros(0, np.int32), *(block.members for block in blocks)]).astype(np.int32)
        times = np.bincount(members, minlength=len(diagonal))
        self._share = np.where(times > 0, 1 / np.sqrt(np.maximum(times, 1)), 0)
        self._rest = np.where(times > 0, 0, 1 / diagonal)

    def multiply_both(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Two vectors multiplied at the cost of one."""
        shared = [(self._share * v).astype(np.float32) for v in (x, y)]
        out = self._inverse.multiply_both(*shared)
        return self._rest * x + self._share * out[0], self._rest * y + self._share * out[1]


class Diagonal:
    """Scaling by the diagonal of the Hessian, with the same interface."""

    def __init__(self, diagonal: Array) -> None:
        self._inverse = 1 / diagonal

    def multiply_both(self, x: Array, y: Array) -> tuple[Array, Array]:
        return self._inverse * x, self._inverse * y


def make_metric(
    objective: CurvedObjective, weights: Array, diagonal: Array, ridge: float, free: Array, most: int, main: bool
) -> WholeMatrix | VariableBlocks:
    """One matrix of the features marked ``free``, if they are at most so many; otherwise of the ``main`` ones, or blocks of all."""
    if fits_whole(objective, int(free.sum()), most):
        return WholeMatrix(objective, weights, diagonal, ridge, free, WHOLE_SAMPLE_ROWS)
    if main:
        return WholeMatrix(objective, weights, diagonal, ridge, mark_main(free, diagonal), MAIN_ROWS)
    return VariableBlocks(objective, weights, diagonal, ridge, free)


def fits_whole(objective: CurvedObjective, n: int, limit: int = MAX_WHOLE) -> bool:
    """Whether one matrix for so many features is small enough, and its parts are."""
    return n <= limit and n * STRIP * objective.widest_design <= MAX_DESIGN


def suits_main_matrix(objective: CurvedObjective) -> bool:
    """Whether the features are too many for one matrix, and overlap so little that one of those of most curvature is nearly as good.

    That holds without L1 only: with it, which features matter changes from step to step.
    """
    if not MAX_WHOLE < len(objective) <= MAX_BESIDE_MAIN or not fits_whole(objective, MAX_WHOLE):
        return False
    return objective.density * float(objective.term_sizes.mean()) <= MOST_OVERLAP


def mark_main(free: Array, diagonal: Array) -> Array:
    """The features of most curvature among those marked ``free``, as many as fit into one matrix."""
    marked = np.zeros(len(free), dtype=bool)
    places = np.flatnonzero(free)
    marked[places[np.argsort(-diagonal[places], kind="stable")[:MAX_WHOLE]]] = True
    return marked


def estimate_build_cost(objective: CurvedObjective, main: bool = False) -> float:
    """Rough seconds of building the metric on one core, from sizes alone, so that decisions do not depend on the clock."""
    n = len(objective)
    whole = n <= MAX_WHOLE or main
    rows = min(objective.n_rows, MAIN_ROWS if main else WHOLE_SAMPLE_ROWS if whole else SAMPLE_ROWS)
    by_term = objective.term_sizes * min(1.0, MAX_WHOLE / max(1, n)) if main else objective.term_sizes.astype(float)
    n_blocks = np.ones(len(by_term)) if whole else np.maximum(1, np.ceil(by_term / MAX_BLOCK))
    sizes = np.repeat(by_term / n_blocks, n_blocks.astype(int))
    inverses = float(min(n, MAX_WHOLE)) ** 3 / 6 if whole else float((sizes**3).sum()) / 3
    # Gram matrices: as dense products, or by the contexts that hold in a row, whichever is less.
    share = objective.density
    pairs = float((sizes**2).sum()) * rows
    return float(3e-5 * len(sizes) + min(pairs / 20e9, pairs * share**2 / 0.6e9) + inverses / 10e9 + sizes.sum() * rows * share / 0.3e9)
