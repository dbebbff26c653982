"""Learning from rows with gaps, and scoring them: against enumeration, against complete data, and against what one did before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from undirected import AllPairs, Atomic, Auto, ChowLiu, Dataset, Domain, FeatureSet, MarkovNetwork, Unconverged, datasets
from undirected.errors import DataError
from undirected.evaluation.cmll import cmll
from undirected.inference.gaps import Completer, score_known_cells
from undirected.work import StoppedBy, Work


def make_network(seed=0, n=5, states=(2, 3, 2, 2, 3)):
    """Random weights on all pairs of a few variables."""
    domain = Domain.from_sizes(states[:n])
    features = FeatureSet.all_pairs(domain).union(FeatureSet.atomic(domain))
    return MarkovNetwork(features, np.random.default_rng(seed).normal(0, 0.8, len(features)))


def enumerate_rows(network):
    """All assignments and their probabilities."""
    codes = np.array(list(itertools.product(*map(range, network.domain.n_states))))
    scores = network.log_score(Dataset(network.domain, codes))
    p = np.exp(scores - scores.max())
    return codes, p / p.sum()


def dig(data, share, seed):
    """The same rows with a share of the cells missing."""
    rng = np.random.default_rng(seed)
    return Dataset(data.domain, np.where(rng.random(data.codes.shape) < share, -1, data.codes))


def test_completions_follow_the_network():
    network = make_network()
    codes, p = enumerate_rows(network)
    row = np.array([1, -1, -1, 0, -1])
    fits = (codes[:, [0, 3]] == row[[0, 3]]).all(axis=1)
    states = Completer(row[None], 40_000, network.domain).draw(network, 30, Work.start(2))[:, 0]
    assert (states[:, [0, 3]] == row[[0, 3]]).all()
    for v in (1, 2, 4):
        truth = np.bincount(codes[fits, v], weights=p[fits]) / p[fits].sum()
        found = np.bincount(states[:, v], minlength=len(truth)) / len(states)
        np.testing.assert_allclose(found, truth, atol=4 * np.sqrt(0.25 / len(states)))


def test_known_cells_are_scored_given_the_other_known_ones():
    network = make_network(1)
    codes, p = enumerate_rows(network)
    rows = np.array([[1, 2, 0, 1, 2], [1, -1, 0, -1, 2], [-1, -1, 1, -1, 0], [-1, -1, -1, -1, 1]])
    truth = np.zeros(rows.shape)
    for r, v in np.argwhere(rows >= 0):
        others = [u for u in np.flatnonzero(rows[r] >= 0) if u != v]
        fits = (codes[:, others] == rows[r, others]).all(axis=1)
        truth[r, v] = np.log(p[fits & (codes[:, v] == rows[r, v])].sum() / p[fits].sum())
    many = Dataset(network.domain, np.repeat(rows, 400, axis=0))
    found = score_known_cells(network, many).reshape(4, 400, 5)
    np.testing.assert_allclose(found.mean(axis=1), truth, atol=0.06)
    assert (found.transpose(0, 2, 1)[rows < 0] == 0).all()
    by_row, by_variable = network.pll_terms(many)
    np.testing.assert_allclose(by_row.reshape(4, 400).mean(axis=1), truth.sum(axis=1), atol=0.1)
    assert by_variable.sum() == pytest.approx(by_row.mean())


def test_a_complete_table_scores_as_before():
    network = make_network(2)
    data = datasets.exact_sample(network, 200, seed=1)
    np.testing.assert_allclose(score_known_cells(network, data).sum(axis=1), network.pll_terms(data)[0], atol=1e-12)


def test_cmll_of_rows_with_gaps_equals_enumeration():
    network = make_network(3)
    codes, p = enumerate_rows(network)
    rows = dig(datasets.exact_sample(network, 30, seed=2), 0.4, 1)
    found = cmll(network, rows, groups=2, split="contiguous", method="exact")
    total = 0.0
    for row in rows.codes:
        for hidden in (range(3), range(3, 5)):
            evidence = [u for u in range(5) if u not in hidden and row[u] >= 0]
            fits = (codes[:, evidence] == row[evidence]).all(axis=1)
            for v in hidden:
                if row[v] >= 0:
                    total += np.log(p[fits & (codes[:, v] == row[v])].sum() / p[fits].sum())
    assert found.value == pytest.approx(total / len(rows))


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_learning_with_gaps_comes_near_to_learning_without(share):
    truth = datasets.grid_ising(3, 3, coupling=0.8, seed=3)
    train, test = datasets.exact_sample(truth, 3000, seed=4), datasets.exact_sample(truth, 4000, seed=5)
    holes = dig(train, share, 6)
    whole = AllPairs(l1=3).fit(train).score(test)
    floor = Atomic().fit(train).score(test)
    learned = AllPairs(l1=3).fit(holes)
    assert learned.gaps_.settled
    assert learned.gaps_.n_cells == (holes.codes < 0).sum()
    lost = (whole - learned.score(test)) / (whole - floor)
    assert lost < 0.03
    filled = AllPairs(l1=3, missing="mode").fit(holes).score(test)
    assert learned.score(test) > filled


@pytest.mark.parametrize("learner", [Auto(time_budget=20), ChowLiu()])
def test_gaps_that_depend_on_what_is_known_do_not_mislead(learner):
    """Where the first variable is 1, the second is mostly missing: complete rows alone would be a biased choice."""
    rng = np.random.default_rng(8)
    a = rng.integers(0, 2, 4000)
    b = np.where(rng.random(4000) < 0.9, a, 1 - a)
    c = np.where(rng.random(4000) < 0.8, b, 1 - b)
    codes = np.column_stack([a, b, c])
    codes[(a == 1) & (rng.random(4000) < 0.8), 1] = -1
    network = learner.fit(Dataset(Domain.from_sizes([2, 2, 2]), codes)).network_
    assert network.query()["v0"]["1"] == pytest.approx(0.5, abs=0.03)
    assert network.query({"v0": "1"})["v1"]["1"] == pytest.approx(0.9, abs=0.03)


def test_the_same_seed_gives_the_same_network_for_any_number_of_threads():
    holes = dig(datasets.exact_sample(datasets.grid_ising(2, 3, seed=1), 400, seed=1), 0.2, 2)
    one, other = (AllPairs(l1=2, threads=n).fit(holes).network_ for n in (1, 3))
    assert one.features == other.features
    np.testing.assert_array_equal(one.weights, other.weights)


def test_rows_of_nothing_and_columns_of_little():
    codes = np.array([[0, 1, -1], [-1, -1, -1], [1, 0, 1], [1, -1, 0], [0, 0, -1]] * 8)
    learner = AllPairs(l1=1).fit(Dataset(Domain.from_sizes([2, 2, 2]), codes))
    assert np.isfinite(learner.score(Dataset(learner.domain_, codes)))
    with pytest.raises(DataError, match="no cell is known"):
        AllPairs().fit(Dataset(Domain.from_sizes([2, 2]), np.full((5, 2), -1)))


def test_errors_can_still_be_asked_for():
    holes = dig(datasets.exact_sample(datasets.grid_ising(2, 2, seed=1), 50, seed=1), 0.2, 2)
    with pytest.raises(DataError, match="learning needs complete rows"):
        AllPairs(missing="error").fit(holes)


def test_ctrl_c_leaves_a_network():
    holes = dig(datasets.exact_sample(datasets.grid_ising(2, 3, seed=1), 400, seed=1), 0.2, 2)
    for moment in (1, 60):
        seen = []

        def interrupt(event, moment=moment, seen=seen):
            seen.append(event)
            if len(seen) == moment:
                raise KeyboardInterrupt

        with pytest.warns(Unconverged, match="interrupt"):
            learner = AllPairs(l1=1).fit(holes, work=Work.start(progress=interrupt))
        assert learner.fit_.stopped_by is StoppedBy.INTERRUPT
        assert np.isfinite(learner.score(holes))
