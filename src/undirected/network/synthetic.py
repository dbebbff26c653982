"""Networks with known truth."""

from __future__ import annotations

import numpy as np

from undirected.data.variables import Domain
from undirected.errors import ParameterError
from undirected.features.feature_set import FeatureSet
from undirected.network.network import MarkovNetwork


def grid_ising(rows: int, columns: int, coupling: float = 0.5, field: float = 0.1, seed: int = 0) -> MarkovNetwork:
    """An Ising model on a grid, as conjunctions of ones.

    Spins are plus or minus one; couplings are plus or minus ``coupling`` and fields uniform in plus or minus ``field``.
    """
    if rows < 1 or columns < 1:
        raise ParameterError(f"a grid of {rows} by {columns} has no variables")
    rng = np.random.default_rng(seed)
    n = rows * columns
    edges = [(r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)]
    edges += [(r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)]
    j = coupling * rng.choice([-1.0, 1.0], size=len(edges))
    h = rng.uniform(-field, field, size=n)
    # J s t with s = 2x - 1, t = 2y - 1 is 4J xy - 2J x - 2J y plus a constant.
    single = 2 * h
    for (a, b), weight in zip(edges, j, strict=True):
        single[[a, b]] -= 2 * weight
    features = FeatureSet.from_lists(
        [[2 * v + 1] for v in range(n)] + [[2 * a + 1, 2 * b + 1] for a, b in edges], Domain.from_sizes([2] * n)
    )
    return MarkovNetwork(features, np.concatenate([single, 4 * j]))


def random_conjunctions(
    n_variables: int, n_features: int, max_length: int = 3, n_states: int = 2, scale: float = 1.0, seed: int = 0
) -> MarkovNetwork:
    """Distinct random conjunctions of up to ``max_length`` literals with normal weights of deviation ``scale``."""
    if not 1 <= max_length <= n_variables:
        raise ParameterError(f"max_length={max_length} is not between 1 and the {n_variables} variables")
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes([n_states] * n_variables)
    chosen: dict[tuple[int, ...], None] = {}
    for _ in range(100 * n_features):
        if len(chosen) == n_features:
            break
        members = np.sort(rng.choice(n_variables, size=rng.integers(1, max_length + 1), replace=False))
        chosen[tuple((domain.base[members] + rng.integers(n_states, size=len(members))).tolist())] = None
    if len(chosen) < n_features:
        raise ParameterError(f"there are not {n_features} distinct conjunctions of up to {max_length} literals")
    features = FeatureSet.from_lists(chosen, domain)
    return MarkovNetwork(features, rng.normal(scale=scale, size=len(features)))
