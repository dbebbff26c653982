"""The sum of objectives over shards of rows: the same weights, the rows of one table cut into several."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from undirected.errors import FeatureError, ParameterError
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.weights.objective import Block, CurvedObjective
from undirected.weights.pseudo_likelihood import PseudoLikelihood, find_independent_start


class SumObjective:
    """Several pseudo-likelihoods of the same features, added up; equal, but for rounding, to that of all their rows together.

    Shards are evaluated one after another, each with all threads. Values are added in the order of the shards, so that the result
    does not depend on the number of threads.
    """

    def __init__(self, shards: Sequence[PseudoLikelihood]) -> None:
        if not shards:
            raise ParameterError("a sum needs at least one objective")
        if any(shard.features != shards[0].features for shard in shards[1:]):
            raise FeatureError("the objectives of a sum must have the same features in the same order")
        self.shards = list(shards)
        self.threads = max(shard.threads for shard in self.shards)
        self.total_weight = float(sum(shard.total_weight for shard in self.shards))

    def __len__(self) -> int:
        return len(self.shards[0])

    @property
    def features(self) -> FeatureSet:
        """The features that the weights belong to."""
        return self.shards[0].features

    def evaluate(self, weights: Array, single: bool = False, curvature: bool = False) -> tuple[float, Array, Array | None]:
        parts = [shard.evaluate(weights, single, curvature) for shard in self.shards]
        gradient = np.sum([part[1] for part in parts], axis=0)
        diagonals = [part[2] for part in parts if part[2] is not None]
        diagonal = np.sum(diagonals, axis=0) if curvature else None
        return float(sum(part[0] for part in parts)), gradient, diagonal

    def restrict(self, active: Array | None) -> None:
        for shard in self.shards:
            shard.restrict(active)

    def pll(self, weights: Array) -> float:
        """The mean over the rows of all shards of the pseudo-log-likelihood."""
        return float(sum(shard.pll(weights) * shard.total_weight for shard in self.shards)) / self.total_weight

    @functools.cached_property
    def independent_start(self) -> Array:
        """Weights of the model of independent variables, from the counts of all shards."""
        return find_independent_start(self.features, np.sum([shard.literal_counts for shard in self.shards], axis=0))

    # -- cost
    @property
    def evaluation_cost(self) -> float:
        return sum(shard.evaluation_cost for shard in self.shards)

    @property
    def n_rows(self) -> int:
        return sum(shard.n_rows for shard in self.shards)

    @property
    def term_sizes(self) -> Array:
        return self.shards[0].term_sizes

    @property
    def density(self) -> float:
        return sum(shard.density * shard.n_rows for shard in self.shards) / max(1, self.n_rows)

    @property
    def widest_design(self) -> int:
        return self.shards[0].widest_design

    # -- curvature
    def sample_curvature(self, weights: Array, n_rows: int) -> None:
        for shard in self.shards:
            shard.sample_curvature(weights, max(1, n_rows * shard.n_rows // self.n_rows))

    def list_blocks(self, free: Array, most: int) -> list[Block]:
        return self.shards[0].list_blocks(free, most)

    def block_curvature(self, block: Block) -> Array:
        return np.asarray(np.sum([shard.block_curvature(block) for shard in self.shards], axis=0, dtype=np.float32))

    def invert_blocks(self, blocks: list[Block], diagonal: Array, ridge: float) -> FactorisedBlocks:
        return factorise_blocks(self, blocks, diagonal, ridge)


def factorise_blocks(objective: CurvedObjective, blocks: list[Block], diagonal: Array, ridge: float) -> FactorisedBlocks:
    """The inverses of an objective's blocks, scaled to the diagonal of the Hessian."""
    factors = []
    for block in blocks:
        matrix = np.ascontiguousarray(objective.block_curvature(block))
        backend().module.fit_diagonal(matrix, diagonal[block.members], ridge)
        factors.append((block, matrix))
    return FactorisedBlocks(factors, len(diagonal))


class FactorisedBlocks:
    """Inverses of blocks as Cholesky factors in double precision."""

    def __init__(self, blocks: list[tuple[Block, Array]], n: int) -> None:
        self._factors = [(block.members, cho_factor(matrix.astype(float), lower=True)) for block, matrix in blocks]
        self._n = n

    def multiply_both(self, x: Array, y: Array) -> tuple[Array, Array]:
        both = np.stack([x, y], axis=1).astype(float)
        out = np.zeros((self._n, 2))
        for members, factor in self._factors:
            out[members] += cho_solve(factor, both[members])
        return out[:, 0], out[:, 1]
