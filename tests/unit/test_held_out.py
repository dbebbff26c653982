"""Whether a network says more than independent variables: judged without flattery."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import AllPairs, Atomic, Auto, Dataset, Domain, datasets, holdout
from undirected.evaluation.held_out import judge, judge_folds


def coins(n, seed):
    return Dataset(Domain.from_sizes([2] * 6), np.random.default_rng(seed).integers(0, 2, (n, 6)))


def test_noise_is_hardly_ever_called_better():
    """At a level of one in 200, of 40 tables of coins more than three are called better once in 10,000 times."""
    called = 0
    for seed in range(40):
        choice = Auto(time_budget=20).fit(coins((20, 30, 60, 200)[seed % 4], seed)).choice_
        called += judge_folds([(fold.network, fold.train, fold.held_out) for fold in choice.folds]).better
    assert called <= 3


def test_what_is_there_is_seen():
    data = datasets.exact_sample(datasets.grid_ising(3, 3, coupling=0.7, seed=1), 2000, seed=2)
    train, valid = holdout(data, 0.1, 0)
    found = judge(AllPairs(l1=2).fit(train).network_, train, valid)
    assert found.better
    assert found.network == pytest.approx(AllPairs(l1=2).fit(train).score(valid))
    assert "NOT" not in found.describe()


def test_a_network_without_edges_is_called_that():
    train, valid = holdout(coins(300, 1), 0.1, 0)
    found = judge(Atomic(sd=1).fit(train).network_, train, valid)
    assert not found.better
    assert "NO EDGES" in found.describe()


def test_scaled_weights_prove_nothing():
    train, valid = holdout(coins(100, 3), 0.2, 0)
    network = AllPairs(l1=0, sd=1).fit(train).network_
    heavy = Dataset(valid.domain, valid.codes, 1000 * valid.weights)
    assert judge(network, train, valid).clear == judge(network, train, heavy).clear
