"""The kernels of streams in NumPy: ClusterNet's generation, slopes of features, and counts at the leaves of growing trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np

from undirected.kernels.reference_random import RandomStream
from undirected.kernels.types import Array

Conjunction = tuple[int, ...]
UNION, INITIAL, OWN = range(
    3
)  # literals are counted in all members of a cluster; in its rows; there, too, but compared within a conjunction


def clusternet_generate(
    n_clusters: int,
    n_literals: int,
    row_cluster: Array,
    row_start: Array,
    row_literals: Array,
    cluster: Array,
    start: Array,
    literals: Array,
    rounds: int,
    alpha: int,
    support: int,
    seed: int,
) -> tuple[Array, Array, Array]:
    """Generate conjunctions as ClusterNet does: clusters, offsets and literals of those that were not there before.

    In each round a cluster draws members, about ``alpha`` in all by its share of all members, from its rows at first and from what was made
    of them later; a member loses the literal of largest, or of smallest, support.
    """
    rows: list[list[Conjunction]] = [[] for _ in range(n_clusters)]
    made: list[list[Conjunction]] = [[] for _ in range(n_clusters)]
    for into, owners, at, flat in ((rows, row_cluster, row_start, row_literals), (made, cluster, start, literals)):
        for k, c in enumerate(owners.tolist()):
            into[c].append(tuple(flat[at[k] : at[k + 1]].tolist()))
    known = [set(members) for members in made]
    counts = [Counter(x for f in (rows[c] + made[c] if support == UNION else rows[c]) for x in f) for c in range(n_clusters)]
    new: list[tuple[int, Conjunction]] = []
    for round_ in range(1, rounds + 1):
        sizes = [len(rows[c]) + len(made[c]) for c in range(n_clusters)]
        shares = [math.floor(alpha * size / max(1, sum(sizes)) + 0.5) for size in sizes]
        for c in range(n_clusters):
            if not rows[c] or not shares[c]:
                continue
            n_made, found = len(made[c]), []
            whole = _find_extremes(range(n_literals), counts[c])
            random = RandomStream(seed, round_ * n_clusters + c)
            for t in range(shares[c]):
                from_rows = n_made == 0 or random.below(2 * t, rounds) < rounds - round_
                drawn = rows[c][random.below(2 * t + 1, len(rows[c]))] if from_rows else made[c][random.below(2 * t + 1, n_made)]
                for left_out in _find_extremes(drawn, counts[c]) if support == OWN else whole:
                    candidate = tuple(x for x in drawn if x != left_out)
                    if candidate and candidate != drawn and candidate not in known[c]:
                        known[c].add(candidate)
                        found.append(candidate)
            made[c] += found
            new += [(c, f) for f in found]
            if support == UNION:
                counts[c].update(x for f in found for x in f)
    offsets = np.concatenate([[0], np.cumsum([len(f) for _, f in new])]).astype(np.int64)
    return np.array([c for c, _ in new], dtype=np.int32), offsets, np.array([x for _, f in new for x in f], dtype=np.int32)


def _find_extremes(literals: Iterable[int], counts: Counter[int]) -> tuple[int, int]:
    """Find the literals of largest and of smallest support above zero, the lowest of equals; -1 where none has any."""
    counted = [x for x in literals if counts[x] > 0]
    return (max(counted, key=lambda x: (counts[x], -x)), min(counted, key=lambda x: (counts[x], x))) if counted else (-1, -1)


def find_slopes(
    columns: Array, n_states: Array, row_weight: Array, start: Array, literals: Array, residual: Array, threads: int
) -> tuple[Array, Array]:
    """For each feature the derivative of the pseudo-log-likelihood by its weight, and the sum of squares of what each row adds to the
    derivative (a row of weight w being w rows).

    ``residual`` is, by literal and row, the row's weight times one where the literal holds (zero elsewhere) minus its probability given
    the rest of the row.
    """
    variable = np.repeat(np.arange(len(n_states)), n_states)
    n, held = len(variable), unpack_columns(columns, len(row_weight))
    slope, square = (np.zeros(len(start) - 1) for _ in range(2))
    for j, (a, b) in enumerate(zip(start[:-1], start[1:], strict=True)):
        own = literals[a:b]
        positive, sign = own % max(1, n), np.where(own >= n, -1.0, 1.0)
        holds = held[positive] ^ (own >= n)[:, None]
        by_row = np.zeros(residual.shape[1])
        for v in np.unique(variable[positive]):
            mine = variable[positive] == v
            by_row += np.where(holds[~mine].all(axis=0), sign[mine] @ residual[positive[mine]], 0.0)
        slope[j], square[j] = by_row.sum(), (by_row**2 / row_weight).sum()
    return slope, square


def find_support(columns: Array, n_states: Array, row_weight: Array, start: Array, literals: Array, threads: int) -> Array:
    """The weight of the rows in which each feature holds."""
    n, held = int(n_states.sum()), unpack_columns(columns, len(row_weight))
    out = np.zeros(len(start) - 1)
    for j, (a, b) in enumerate(zip(start[:-1], start[1:], strict=True)):
        own = literals[a:b]
        out[j] = row_weight[(held[own % max(1, n)] ^ (own >= n)[:, None]).all(axis=0)].sum()
    return out


def unpack_columns(columns: Array, n_rows: int) -> Array:
    """Whether each literal holds in each row."""
    return np.unpackbits(columns.view(np.uint8), axis=1, bitorder="little", count=n_rows).astype(bool)


def count_at_leaves(
    codes: Array,
    n_states: Array,
    row_weight: Array,
    common: Array,
    targets: Array,
    start: Array,
    test: Array,
    yes: Array,
    no: Array,
    count_start: Array,
    block: Array,
    count: Array,
    seen: Array,
    threads: int,
) -> None:
    """Send rows down trees, and add their weights to ``count`` of each node that they pass, by state of the target, and to ``seen`` of the
    leaf that they come to, by literal that holds and state of the target: from ``block`` on, unless that is -1. Literals of ``common``
    states are left out."""
    variable = np.repeat(np.arange(len(n_states)), n_states)
    state = np.concatenate([np.zeros(0, int), *(np.arange(k) for k in n_states)])
    counted = (codes[variable] == state[:, None]) & (state != common[variable])[:, None]  # [literals][rows]
    for target, root in zip(targets.tolist(), start[:-1].tolist(), strict=True):
        node, rows = np.full(codes.shape[1], root), np.arange(codes.shape[1])
        while len(rows):
            np.add.at(count, count_start[node[rows]] + codes[target, rows], row_weight[rows])
            rows = rows[test[node[rows]] >= 0]
            tested = test[node[rows]]
            holds = codes[variable[tested], rows] == state[tested]
            node[rows] = root + np.where(holds, yes[node[rows]], no[node[rows]])
        literal, row = np.nonzero(counted & (block[node] >= 0))
        at = block[node[row]] + literal * int(n_states[target]) + codes[target, row]
        np.add.at(seen, at, row_weight[row])
