"""GSSL: the law of generation, determinism, scikit-learn's checks, bad parameters."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from sklearn.base import clone

from undirected import GSSL, DataError, Dataset, FeatureSet, ParameterError, datasets, fit_weights, read_data
from undirected.errors import GenerationStopped
from undirected.structure.row_conjunctions import list_row_conjunctions
from undirected.work import Work


def sequential(rows, n_generated, seed):
    """The paper's Algorithm 1 as a plain loop: parents are drawn from the whole list, again if they are too short."""
    rng = np.random.default_rng(seed)
    rows = [tuple(row) for row in rows]
    while len(rows) < n_generated:
        parent = rows[rng.integers(len(rows))]
        if len(parent) < 3:
            continue
        n = rng.integers(1, len(parent) - 1)  # 1 .. l - 2
        kept = np.sort(rng.permutation(len(parent))[n:])
        rows.append(tuple(parent[k] for k in kept))
    return rows


def test_generation_follows_the_law_of_the_sequential_loop():
    data = datasets.load("digits")
    start, literals = list_row_conjunctions(data, "positive")
    rows = [literals[a:b].tolist() for a, b in zip(start, start[1:], strict=False)]
    n = 40_000
    ours, theirs = [], []
    for seed in range(4):
        learner = GSSL(n_generated=n, threshold=0, initial="positive", random_state=seed)
        structure = learner.propose(data, Work.start())
        features, counts = structure.features.union(FeatureSet.atomic(data.domain)), structure.learned["counts_"]
        lengths = np.repeat(features.lengths, counts)
        n_unique = structure.learned["n_unique_"]
        ours.append([n_unique, (counts > 1).sum(), (counts > 2).sum(), *np.bincount(lengths, minlength=9)[2:9]])
        plain = Counter(sequential(rows, n, seed))
        counts = np.array(list(plain.values()))
        length = np.array([len(r) for r in plain]).repeat(counts)
        theirs.append([len(plain), (counts > 1).sum(), (counts > 2).sum(), *np.bincount(length, minlength=9)[2:9]])
    assert structure.learned["n_listed_"] == n
    np.testing.assert_allclose(np.mean(ours, axis=0), np.mean(theirs, axis=0), rtol=0.02)


def test_the_paper_s_count_of_unique_features(data_folder):
    """Table 5: bnetflix, 500,000 positive features, 382,760 unique; the reference run gave 379,006."""
    learner = GSSL(n_generated=500_000, threshold=2, initial="positive")
    learned = learner.propose(datasets.load("bnetflix"), Work.start()).learned
    assert learned["n_unique_"] == pytest.approx(380_000, rel=0.02)


def test_the_same_for_any_number_of_threads():
    data = datasets.load("digits")
    fits = [GSSL(n_generated=20_000, l1=2, threads=t).fit(data) for t in (1, 2, 3)]
    for other in fits[1:]:
        assert other.network_.features == fits[0].network_.features
        np.testing.assert_array_equal(other.network_.weights, fits[0].network_.weights)
        np.testing.assert_array_equal(other.counts_, fits[0].counts_)
    different = GSSL(n_generated=20_000, random_state=1).propose(data, Work.start()).features
    assert different != GSSL(n_generated=20_000, random_state=0).propose(data, Work.start()).features


def test_counts_belong_to_features():
    data = datasets.load("digits")
    learner = GSSL(n_generated=5000, threshold=2, l1=1, time_budget=60).fit(data)
    atomic = learner.fit_.features.lengths == 1
    assert len(learner.counts_) == len(learner.fit_.features)
    assert (learner.counts_[~atomic] > 2).all()
    support = learner.fit_.features.support(data)
    assert (support[~atomic] > 0).all()  # generated features match at least one row


def test_initial_sets():
    data = read_data(np.array([[1, 0, 0, 1, 1], [1, 0, 1, 0, 1], [0, 1, 1, 1, 1], [1, 0, 1, 0, 1]]))
    start, literals = list_row_conjunctions(data, "positive")
    rows = {tuple(literals[a:b] // 2) for a, b in zip(start, start[1:], strict=False)}
    assert rows == {(0, 3, 4), (0, 2, 4), (1, 2, 3, 4)}  # the paper's example
    start, literals = list_row_conjunctions(data, "all")
    assert np.diff(start).tolist() == [5, 5, 5]
    assert len(list_row_conjunctions(data, "auto")[1]) == 15  # density 0.65
    sparse = read_data(np.eye(5, dtype=int))
    assert len(list_row_conjunctions(sparse, "auto")[1]) == 5


def test_better_than_independent_on_digits():
    train, test = datasets.load("digits"), datasets.load("digits", "test")
    learner = GSSL(n_generated=20_000, l1=1).fit(train)
    floor = fit_weights(FeatureSet.atomic(train.domain), train).network().pll(test)
    assert learner.score(test) > floor + 8
    np.testing.assert_allclose(learner.score_samples(test).mean(), learner.score(test))


def test_learns_categorical_tables_with_missing_cells(data_folder):
    data = read_data("votes84", missing="state")
    learner = GSSL(n_generated=5000, l1=2).fit(data)
    floor = fit_weights(FeatureSet.atomic(data.domain), data).network().pll(data)
    assert learner.score(data) > floor + 2
    with pytest.raises(DataError, match="392 cells are missing"):
        GSSL(n_generated=5000, missing="error").fit(read_data("votes84"))


def test_sample_weight_equals_repeated_rows():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(60, 6))
    weight = rng.integers(0, 3, size=60)
    a = GSSL(n_generated=500, l1=1).fit(x, sample_weight=weight)
    b = GSSL(n_generated=500, l1=1).fit(np.repeat(x, weight, axis=0))
    assert a.network_.features == b.network_.features
    np.testing.assert_array_equal(a.network_.weights, b.network_.weights)


def test_pruning_keeps_atomic_features():
    learner = GSSL(n_generated=5000, l1=50, prune=True).fit(datasets.load("digits"))
    network = learner.network_
    assert (network.features.lengths == 1).sum() == 64
    assert (network.weights[network.features.lengths > 1] != 0).all()
    assert len(network.features) < len(learner.fit_.features)


def test_stops_and_says_so_where_nothing_can_be_dropped():
    with pytest.warns(GenerationStopped, match="no row has three literals"):
        learner = GSSL(n_generated=100).fit(np.array([[0, 1], [1, 0], [1, 1]]))
    assert learner.n_listed_ == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_generated": 0}, "n_generated=0"),
        ({"n_generated": 1 << 31}, "do not fit"),
        ({"n_generated": 1e3}, "not a whole number"),
        ({"threshold": -1}, "threshold=-1"),
        ({"initial": "some"}, "initial='some'"),
        ({"l1": -1}, "l1=-1"),
        ({"sd": 0}, "sd=0"),
        ({"missing": "guess"}, "missing='guess'"),
    ],
)
def test_bad_parameters(changes, message):
    with pytest.raises(ParameterError, match=message):
        GSSL(**{"n_generated": 100, **changes}).fit(np.random.default_rng(0).integers(0, 2, size=(20, 5)))


def test_positive_needs_binary():
    with pytest.raises(ParameterError, match="has 3"):
        GSSL(n_generated=100, initial="positive").fit(np.random.default_rng(0).integers(0, 3, size=(20, 5)))


def test_odd_tables():
    for x in (np.zeros((10, 5), int), np.ones((1, 4), int), np.eye(4, dtype=int)):
        learner = GSSL(n_generated=50, initial="all").fit(x)
        assert np.isfinite(learner.score(x))
    data = read_data(np.eye(4, dtype=int))
    with pytest.raises(DataError, match="no row has a weight above zero"):
        GSSL(n_generated=50).fit(Dataset(data.domain, data.codes, np.zeros(4)))


def test_fitted_learners_can_be_cloned_and_pickled():
    learner = GSSL(n_generated=500).fit(datasets.load("digits"))
    assert clone(learner).get_params() == learner.get_params()
    back = pickle.loads(pickle.dumps(learner))
    assert back.score(datasets.load("digits")) == learner.score(datasets.load("digits"))


def test_missing_cells_at_scoring_follow_the_parameter():
    x = np.random.default_rng(0).integers(0, 2, size=(60, 5)).astype(float)
    x[3, 2] = np.nan
    learner = GSSL(n_generated=300, missing="mode").fit(x)
    assert np.isfinite(learner.score(x))
    assert len(learner.score_samples(x)) == 60
