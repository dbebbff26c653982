"""Whether a network says more than independent variables do, on rows it was not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from undirected.data.dataset import Dataset
from undirected.inference.gaps import fill_by_shares
from undirected.kernels.types import Array
from undirected.network.edges import find_joined_pairs
from undirected.network.network import MarkovNetwork
from undirected.structure.atomic import Atomic

PRIORS = (0.3, 1.0, 10.0)  # deviations of the priors of the independent models, of which the best counts
LEVEL = 0.995  # of the t-test, strict since settings may have been chosen on the same rows


@dataclass
class Judgement:
    """Mean pseudo-log-likelihood of held-out rows under a network and under independent variables; whether the difference is more than
    chance would make it, by a t-test that counts weighted rows for less; and whether the network joins any variables."""

    network: float
    independent: float
    clear: bool
    rows: int
    joins: bool

    @property
    def better(self) -> bool:
        """Whether the network is clearly better."""
        return self.joins and self.clear and self.network > self.independent

    def describe(self, chosen_here: bool = False) -> str:
        """A sentence; the scores flatter a little where the settings were chosen on these rows."""
        flattered = " (settings were chosen on these rows, which flatters a little)" if chosen_here else ""
        scores = f"held-out PLL {self.network:.4f} on {self.rows:,} rows{flattered}; independent variables {self.independent:.4f}"
        if self.better:
            return scores
        if not self.joins:
            return f"{scores}. NO EDGES: nothing was found that tells more than each variable on its own"
        if self.network > self.independent:
            return f"{scores}. NOT CLEARLY BETTER than variables that know nothing of each other: do not rely on these edges"
        return f"{scores}. WORSE than variables that know nothing of each other: do not use this network; try -a auto or a larger --l1"


def judge(network: MarkovNetwork, train: Dataset, valid: Dataset, threads: int | None = None) -> Judgement:
    """Hold a network learned from ``train`` against independent variables, on ``valid``."""
    return judge_folds([(network, train, valid)], threads)


def judge_folds(folds: Sequence[tuple[MarkovNetwork, Dataset, Dataset]], threads: int | None = None) -> Judgement:
    """Hold networks against independent variables, each on its own held-out rows."""
    parts = [_score_rows(*fold, threads=threads) for fold in folds]
    ours, floors, weights = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    theirs = max(floors, key=lambda values: float(np.average(values, weights=weights)))
    gain = ours - theirs
    mean = float(np.average(gain, weights=weights))
    n = float(weights.sum() ** 2 / (weights**2).sum())  # rows of equal weight that would tell as much
    clear = False
    if n > 1 and np.isfinite(gain).all():
        error = np.sqrt(float(np.average((gain - mean) ** 2, weights=weights)) / (n - 1))
        clear = abs(mean) > float(student.ppf(LEVEL, n - 1)) * error
    joins = any(len(find_joined_pairs(network.features, network.weights)) for network, _, _ in folds)
    n_rows = sum(len(valid) for _, _, valid in folds)
    return Judgement(float(np.average(ours, weights=weights)), float(np.average(theirs, weights=weights)), clear, n_rows, joins)


def _score_rows(network: MarkovNetwork, train: Dataset, valid: Dataset, threads: int | None) -> tuple[Array, Array, Array]:
    """By held-out row the score of the network, those of independent variables under each prior, and the weight."""
    counted = valid.weights > 0

    def score(one: MarkovNetwork) -> Array:
        return one.pll_terms(valid, threads)[0][counted]

    train = fill_by_shares(train)
    floors = [score(Atomic(sd=sd, threads=threads).fit(train).network_) for sd in PRIORS]
    return score(network), np.stack(floors), valid.weights[counted]
