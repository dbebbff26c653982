"""Simple learners against what they must find; what every learner must do is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import (
    DTL1,
    DTSL,
    L1,
    AllPairs,
    Atomic,
    ChowLiu,
    FeatureSet,
    MarkovNetwork,
    datasets,
)
from undirected.structure.chow_liu import measure_information
from undirected.work import Work


@pytest.fixture(scope="module")
def tree():
    """A star with a tail, strong couplings."""
    domain = datasets.grid_ising(1, 6, seed=0).domain
    pairs = [(0, 1), (0, 2), (0, 3), (3, 4), (4, 5)]
    features = FeatureSet.from_lists([[2 * a + 1, 2 * b + 1] for a, b in pairs], domain).union(FeatureSet.atomic(domain))
    weights = np.where(features.lengths == 2, 2.0, -1.0)
    return set(pairs), datasets.exact_sample(MarkovNetwork(features, weights), 5000, seed=1)


def test_chow_liu_recovers_a_tree(tree):
    """5,000 rows, couplings of 2: every edge of the tree carries far more information than any other pair."""
    edges, data = tree
    assert set(ChowLiu().fit(data).edges_) == edges


def test_mutual_information_equals_the_definition(tree):
    codes = tree[1].codes
    found = measure_information(tree[1])
    for i, j in [(0, 1), (2, 5)]:
        joint = np.array([[((codes[:, i] == a) & (codes[:, j] == b)).mean() for b in (0, 1)] for a in (0, 1)])
        expected = (joint * np.log(joint / (joint.sum(1, keepdims=True) * joint.sum(0)))).sum()
        assert found[i, j] == pytest.approx(expected, abs=1e-12)
    assert (found.diagonal() == 0).all()


def test_all_pairs_weighs_the_edges_of_a_tree_most(tree):
    """Pairs that a tree does not join are independent given the rest: their true weight is zero, an edge's is two."""
    edges, data = tree
    network = AllPairs(l1=1, sd=10).fit(data).network_
    pairs = network.features.lengths == 2
    variables = [tuple(row) for row in network.features.subset(pairs).variables.reshape(-1, 2).tolist()]
    weights = dict(zip(variables, np.abs(network.weights[pairs]), strict=True))
    assert set(sorted(weights, key=weights.get)[-5:]) == edges
    assert min(weights[e] for e in edges) > 1.5
    assert max(weights[p] for p in set(weights) - edges) < 0.5


def test_atomic_equals_log_odds(tree):
    data = tree[1]
    learner = Atomic(sd=np.inf, tol=1e-8).fit(data)
    share = data.codes.mean(axis=0)
    np.testing.assert_allclose(learner.network_.weights, np.log(share / (1 - share)), atol=1e-5)


def test_dt_l1_holds_the_features_of_both(tree):
    both, trees, pairs = (set(learner.propose(tree[1], Work.start()).features) for learner in (DTL1(), DTSL(), L1()))
    assert both == trees | pairs
