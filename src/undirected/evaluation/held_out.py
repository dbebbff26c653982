"""Whether a network says more than independent variables do, on rows it was not learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.data.dataset import Dataset
from undirected.network.network import MarkovNetwork
from undirected.structure.atomic import Atomic

WEAK = 10.0  # deviation of the prior of the independent model


@dataclass
class Judgement:
    """Mean pseudo-log-likelihood of held-out rows under a network and under independent variables, and the error of the difference."""

    network: float
    independent: float
    error: float
    rows: int

    @property
    def better(self) -> bool:
        """By more than two standard errors."""
        return self.network - self.independent > 2 * self.error

    def told(self, chosen_here: bool = False) -> str:
        """A sentence; the scores flatter a little where the settings were chosen on these rows."""
        flattered = " (settings were chosen on these rows, which flatters a little)" if chosen_here else ""
        scores = f"held-out PLL {self.network:.4f} on {self.rows:,} rows{flattered}; independent variables {self.independent:.4f}"
        if self.better:
            return scores
        if self.network > self.independent:
            return f"{scores}. NOT CLEARLY BETTER than variables that know nothing of each other: do not rely on these edges"
        return f"{scores}. WORSE than variables that know nothing of each other: do not use this network; try -a auto or a larger --l1"


def judge(network: MarkovNetwork, train: Dataset, valid: Dataset, threads: int | None = None) -> Judgement:
    """Hold a network learned from ``train`` against independent variables, on ``valid``."""
    floor = Atomic(sd=WEAK, threads=threads).fit(train).network_
    counted = valid.weights > 0
    ours, theirs = (one.pll_terms(valid, threads)[0][counted] for one in (network, floor))
    weights = valid.weights[counted]
    gain = ours - theirs
    mean = float(np.average(gain, weights=weights))
    spread = float(np.average((gain - mean) ** 2, weights=weights))
    error = float(np.sqrt(spread / valid.total_weight))
    return Judgement(float(np.average(ours, weights=weights)), float(np.average(theirs, weights=weights)), error, len(valid))
