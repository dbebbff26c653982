"""An approximate inverse Hessian: one small dense matrix per variable.

The Hessian of a pseudo-likelihood is a sum of one term per variable, and a variable's term touches only the features that
mention it. So take for each variable the features that mention it, estimate their part of the Hessian from the variable's
own term on a sample of rows, scaled to the full diagonal, invert that, and add the inverses up (an overlapping additive
Schwarz preconditioner; docs/engine.md has the measurements). It turns several hundred quasi-Newton steps into a few dozen.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from undirected.kernels.types import Array
from undirected.weights.pseudo_likelihood import PseudoLikelihood

SAMPLE_ROWS = 2048
MAX_BLOCK = 512


class VariableBlocks:
    """Built at a point ``weights`` for the features marked ``free``; other features are scaled by the diagonal alone.

    ``diagonal`` is the diagonal of the Hessian with the ridge 1/sd^2 included. Variables with more than ``MAX_BLOCK`` free
    features have them cut into blocks of neighbours in canonical order. Call it to multiply a vector.
    """

    def __init__(self, objective: PseudoLikelihood, weights: Array, diagonal: Array, ridge: float, free: Array) -> None:
        problem, threads = objective.problem, objective.threads
        problem.sample(weights, sample_stride(objective), threads)
        jobs = [(v, block) for v, block in _blocks(objective, free)]

        def invert(job: tuple[int, Array]) -> tuple[Array, Array]:
            v, members = job
            design = problem.design(v, members)
            gram = design @ design.T
            own = gram.diagonal().copy()
            full = diagonal[members].astype(np.float32)
            seen = own > 1e-3 * full
            scale = np.sqrt(np.where(seen, np.maximum(full - ridge, 0) / np.where(seen, own, 1), 0)).astype(np.float32)
            gram *= scale
            gram *= scale[:, None]
            gram[np.diag_indices(len(members))] = full * (1 + 1e-4)
            return members, np.linalg.inv(gram)

        with ThreadPoolExecutor(threads) as pool:
            self.blocks = list(pool.map(invert, jobs))
        self.diagonal = diagonal
        times = np.zeros(len(diagonal))
        for members, _ in self.blocks:
            times[members] += 1
        self._share = np.where(times > 0, 1 / np.sqrt(np.maximum(times, 1)), 0)
        self._rest = np.where(times > 0, 0, 1 / diagonal)

    def __call__(self, vector: Array) -> Array:
        shared = (self._share * vector).astype(np.float32)
        out = np.zeros(len(vector), dtype=np.float32)
        for members, inverse in self.blocks:
            out[members] += inverse @ shared[members]
        return self._rest * vector + self._share * out


def sample_stride(objective: PseudoLikelihood) -> int:
    return max(1, len(objective.table) // SAMPLE_ROWS)


def _blocks(objective: PseudoLikelihood, free: Array) -> list[tuple[int, Array]]:
    features = objective.features
    owner, variable = features.owner, features.variables
    keep = free[owner]
    owner, variable = owner[keep], variable[keep]
    pairs = np.unique(variable.astype(np.int64) * len(features) + owner)
    variable, owner = np.divmod(pairs, max(1, len(features)))
    n_states = features.domain.n_states
    out = []
    bounds = np.searchsorted(variable, np.arange(len(n_states) + 1))
    for v in np.flatnonzero((np.diff(bounds) > 0) & (n_states > 1)):
        members = owner[bounds[v] : bounds[v + 1]].astype(np.int32)
        for part in np.array_split(members, -(-len(members) // MAX_BLOCK)):
            out.append((int(v), np.ascontiguousarray(part)))
    return out


def build_cost(objective: PseudoLikelihood) -> float:
    """Rough seconds on one core, from sizes alone, so that decisions do not depend on the clock."""
    rows = min(len(objective.table), SAMPLE_ROWS)
    everything = np.ones(len(objective), dtype=bool)
    sizes = np.array([len(part) for _, part in _blocks(objective, everything)], dtype=float)
    return float((sizes**2 * rows * 2).sum() / 40e9 + (2 * sizes**3).sum() / 15e9 + (sizes * rows).sum() / 1e9)


def evaluation_cost(objective: PseudoLikelihood) -> float:
    """Rough seconds of one value and gradient on one core, from sizes alone."""
    return float(objective.problem.sizes()["work"] * 2.2e-9 + objective.table.codes.size * 1.5e-9) + 1e-5
