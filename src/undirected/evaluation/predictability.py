"""How much of each variable's uncertainty the other variables explain."""

from __future__ import annotations

from typing import Any

import numpy as np

from undirected.data.literals import get_slice
from undirected.data.readers import read_data
from undirected.network.network import MarkovNetwork


def measure_predictability(network: MarkovNetwork, data: Any, threads: int | None = None) -> dict[str, float]:
    """For each variable the share of its uncertainty that the others explain, on some rows: one less the mean of
    ``-log P(cell | the other cells)`` over the entropy of its states' shares in these rows.

    0: the others tell nothing; 1: they tell all; below 0: the network predicts worse than the shares do, as it may on rows it was not
    learned from. A variable of one state only has 0.
    """
    table = read_data(data, domain=network.domain)
    scores = network.pll_terms(table, threads)[1]
    counts = table.literal_counts() if not table.has_missing else None
    out = {}
    for v, variable in enumerate(network.domain.variables):
        if counts is None:
            known = table.codes[:, v] >= 0
            own = np.bincount(table.codes[known, v], weights=table.weights[known], minlength=len(variable.states))
        else:
            own = counts[get_slice(network.domain, v)]
        shares = own[own > 0] / max(own.sum(), 1e-300)
        entropy = float(-(shares * np.log(shares)).sum()) * float(own.sum()) / table.total_weight
        out[variable.name] = float(1 + scores[v] / entropy) if entropy > 1e-12 else 0.0
    return out
