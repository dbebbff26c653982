"""What every learner must do."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from undirected import (
    BLM,
    BUSL,
    DTBLM,
    DTL1,
    DTSL,
    GSSL,
    L1,
    AllPairs,
    Atomic,
    ChowLiu,
    Dataset,
    DellaPietra,
    FeatureSet,
    MarkovNetwork,
    datasets,
    read_data,
)
from undirected.structure.chow_liu import mutual_information
from undirected.structure.names import LEARNERS, learner_class
from undirected.work import Work

SMALL = {
    "gssl": GSSL(n_generated=300),
    "dtsl": DTSL(),
    "l1": L1(),
    "dt+l1": DTL1(),
    "blm": BLM(nearest=(1, 5, 25)),
    "dt-blm": DTBLM(),
    "dp": DellaPietra(max_length=4),
    "busl": BUSL(),
    "all-pairs": AllPairs(),
    "chow-liu": ChowLiu(),
    "atomic": Atomic(),
}


@pytest.fixture(scope="module")
def tree():
    """A star with a tail, strong couplings."""
    domain = datasets.grid_ising(1, 6, seed=0).domain
    pairs = [(0, 1), (0, 2), (0, 3), (3, 4), (4, 5)]
    features = FeatureSet.from_lists([[2 * a + 1, 2 * b + 1] for a, b in pairs], domain).union(FeatureSet.atomic(domain))
    weights = np.where(features.lengths == 2, 2.0, -1.0)
    return set(pairs), datasets.exact_sample(MarkovNetwork(features, weights), 5000, seed=1)


def test_every_name_has_a_learner():
    assert set(SMALL) == set(LEARNERS)
    assert all(type(SMALL[name]) is learner_class(name) for name in LEARNERS)


@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings, ours and scikit-learn's
@pytest.mark.parametrize("name", LEARNERS)
def test_scikit_learn_checks(name):
    results = check_estimator(SMALL[name], on_skip=None, on_fail=None)
    assert [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []
    assert sum(r["status"] == "passed" for r in results) > 30


@pytest.mark.parametrize("name", LEARNERS)
def test_same_for_any_number_of_threads(name, tree):
    fits = [clone(SMALL[name]).set_params(threads=n).fit(tree[1]).network_ for n in (1, 3)]
    assert fits[0].features == fits[1].features
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)


@pytest.mark.parametrize("data", ["votes84", "mushroom", "adult"])
@pytest.mark.parametrize("name", LEARNERS)
def test_categorical_tables(name, data, data_folder):
    table = read_data(data, missing="state")
    table = table.subset(np.arange(min(len(table), 1500)))
    train, test = table.subset(np.arange(0, len(table), 2)), table.subset(np.arange(1, len(table), 2))
    floor = Atomic(sd=1).fit(train).score(test)
    learner = clone(SMALL[name]).set_params(sd=0.5, l1=0.5, tol=1e-3, time_budget=20).fit(train)
    assert np.isfinite(learner.score(test))
    assert name in ("atomic", "gssl") or learner.score(test) > floor


def test_chow_liu_recovers_a_tree(tree):
    """5,000 rows, couplings of 2: every edge of the tree carries far more information than any other pair."""
    edges, data = tree
    assert set(ChowLiu().fit(data).edges_) == edges


def test_mutual_information_equals_the_definition(tree):
    codes = tree[1].codes
    found = mutual_information(tree[1])
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


def test_one_variable_and_one_row():
    table = Dataset(datasets.grid_ising(1, 1, seed=0).domain, np.array([[1]]))
    for name in LEARNERS:
        with np.errstate(all="raise"):
            learner = clone(SMALL[name])
            if name != "gssl":  # which says that there is nothing to generate
                assert np.isfinite(learner.fit(table).score(table))
