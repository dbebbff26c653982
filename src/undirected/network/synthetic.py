"""Networks with known truth, and exact samples from them."""

from __future__ import annotations

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import DataError, ParameterError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork

MAX_TABLE = 1 << 22


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


def exact_sample(network: MarkovNetwork, n: int, seed: int = 0) -> Dataset:
    """Independent rows from the network's exact distribution, by eliminating variables from the last to the first.

    Works where the tables that arise stay below about four million entries: up to 20 binary variables of any kind, grids up
    to about 20 wide, trees in a good order.
    """
    tables, _ = eliminate(network)
    rng = np.random.default_rng(seed)
    codes = np.zeros((n, len(network.domain)), dtype=np.int16)
    for v, (scope, table) in enumerate(tables):
        given = tuple(codes[:, u] for u in scope)
        logits = np.broadcast_to(table[given], (n, table.shape[-1]))
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        below = np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)
        codes[:, v] = np.minimum((rng.random((n, 1)) > below).sum(axis=1), table.shape[-1] - 1)
    return Dataset(network.domain, codes, source="an exact sample")


def eliminate(network: MarkovNetwork) -> tuple[list[tuple[tuple[int, ...], Array]], float]:
    """For each variable the log-scores of its states given earlier variables, and the log of the partition function."""
    domain = network.domain
    factors: list[tuple[tuple[int, ...], Array]] = []
    for row, weight in zip(network.features, network.finite_weights, strict=True):
        scope = tuple(sorted({int(domain.literal_variable[x % domain.n_literals]) for x in row}))
        factors.append((scope, feature_table(row, weight, scope, domain)))
    buckets: list[list[tuple[tuple[int, ...], Array]]] = [[] for _ in range(len(domain))]
    constant = 0.0
    for scope, table in factors:
        if scope:
            buckets[scope[-1]].append((scope, table))
        else:
            constant += float(table)
    tables: list[tuple[tuple[int, ...], Array]] = []
    for v in reversed(range(len(domain))):
        scope = tuple(sorted({u for s, _ in buckets[v] for u in s} | {v}))
        shape = tuple(int(domain.n_states[u]) for u in scope)
        if np.prod([float(s) for s in shape]) > MAX_TABLE:
            raise DataError(
                f"exact sampling needs a table over {len(scope)} variables, more than {MAX_TABLE:,} entries; "
                "take a smaller network or one whose neighbours stand close in the order"
            )
        total = np.zeros(shape)
        for s, table in buckets[v]:
            total = total + table.reshape([int(domain.n_states[u]) if u in s else 1 for u in scope])
        tables.append((scope[:-1], total))
        top = total.max(axis=-1, keepdims=True)
        message = top[..., 0] + np.log(np.exp(total - top).sum(axis=-1))
        if len(scope) > 1:
            buckets[scope[-2]].append((scope[:-1], message))
        else:
            constant += float(message)
    return tables[::-1], constant


def feature_table(row: tuple[int, ...], weight: float, scope: tuple[int, ...], domain: Domain) -> Array:
    """The feature's weight where it is true and zero elsewhere, one axis per variable of its scope."""
    n = domain.n_literals
    holds = np.ones((), dtype=bool)
    for u in scope:
        allowed = np.ones(int(domain.n_states[u]), dtype=bool)
        for literal in row:
            if domain.literal_variable[literal % n] == u:
                state = np.arange(len(allowed)) == literal % n - domain.base[u]
                allowed &= state if literal < n else ~state
        holds = holds[..., None] & allowed
    return np.where(holds, weight, 0.0)
