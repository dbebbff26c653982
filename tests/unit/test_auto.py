"""The default learner: its candidates against brute force, its choice against what is there."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from undirected import AllPairs, Auto, Dataset, Domain, FeatureSet, MarkovNetwork, ParameterError, Variable, compare, datasets, holdout
from undirected.data.splits import hold_out_cases
from undirected.structure.candidates import find_exclusive_groups, list_group_conjunctions, screen_pairs
from undirected.structure.penalty_search import Penalties, find_l1_factors
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import Work


def make_mixed(n=300, seed=1):
    """Variables of two to four states, one of them with an order."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    b = np.clip(a + rng.integers(-1, 2, n), 0, 3)
    c = (rng.random(n) < 0.2 + 0.2 * a).astype(int)
    domain = Domain([Variable("a", ("x", "y", "z")), Variable("b", ("1", "2", "3", "4")), Variable("c", ("no", "yes"))])
    return Dataset(domain, np.column_stack([a, b, c]))


def test_pairs_are_screened_by_their_slopes():
    data = make_mixed()
    found = screen_pairs(data, 1000, Work.start(), least=5.0)
    pairs = FeatureSet.all_pairs(data.domain)
    objective = PseudoLikelihood(pairs, data)
    slopes = np.abs(objective.evaluate(objective.independent_start)[1])
    wanted = {text for text, slope, n in zip(pairs.texts(), slopes, pairs.n_variables, strict=True) if n == 2 and slope >= 5}
    assert set(found.texts()) == wanted
    steepest = screen_pairs(data, 3, Work.start(), least=0.1)
    best = sorted(((slope, text) for text, slope, n in zip(pairs.texts(), slopes, pairs.n_variables, strict=True) if n == 2), reverse=True)[
        :3
    ]
    assert set(steepest.texts()) == {text for _, text in best}


def test_states_that_exclude_each_other_are_found():
    rng = np.random.default_rng(0)
    which = rng.integers(0, 5, 2000)
    codes = np.column_stack([*(which == k for k in range(5)), *(rng.integers(0, 2, (2000, 2)).T)]).astype(int)
    data = Dataset(Domain.from_sizes([2] * 7), codes)
    groups = find_exclusive_groups(data, Work.start())
    assert [group.tolist() for group in groups] == [[1, 3, 5, 7, 9]]
    texts = list_group_conjunctions(data.domain, groups).texts()
    assert "v0=0 & v1=0 & v2=0 & v3=0 & v4=0" in texts
    assert "v0=1 & v1=0 & v2=0 & v3=0 & v4=0" in texts
    assert len(texts) == 6


def test_penalties_by_kind():
    domain = Domain.from_sizes([2, 3, 2])
    features = FeatureSet.from_texts(["v0=1", "v0=1 & v1=2", "v0=1 & v1!=0 & v2=1"], domain)
    assert find_l1_factors(features, 4.0).tolist() == [0, 1, 4]
    assert find_l1_factors(features, math.inf)[2] >= 1e9


def test_longer_features_are_found_where_pairs_do_not_do():
    """Three coins whose sum is even: no pair tells anything."""
    rng = np.random.default_rng(1)
    first = rng.integers(0, 2, (3000, 2))
    codes = np.column_stack([first, np.where(rng.random(3000) < 0.95, first.sum(axis=1) % 2, 1 - first.sum(axis=1) % 2)])
    train, test = holdout(Dataset(Domain.from_sizes([2, 2, 2]), codes), 0.3, 1)
    learner = Auto().fit(train)
    assert learner.choice_.penalties.features != "pairs"
    assert learner.choice_.find_best(True) > learner.choice_.find_best(False) + 0.5
    assert learner.score(test) > AllPairs(l1=1).fit(train).score(test) + 0.5
    assert (learner.network_.features.n_variables == 3).any()


def test_pairs_alone_are_taken_where_they_do():
    truth = datasets.grid_ising(3, 3, coupling=0.7, seed=1)
    data = datasets.exact_sample(truth, 4000, seed=2)
    learner = Auto().fit(data)
    edges = {frozenset(edge) for edge in truth.graph().edges}
    strong = {frozenset((a, b)) for a, b, e in learner.network_.graph().edges(data=True) if e["strength"] > 0.3}
    assert strong == edges


def test_numbers_for_all_three_penalties_are_taken_as_they_are():
    data = make_mixed()
    learner = Auto(l1=2.0, sd=1.0, ratio=4.0, prune=False).fit(data)
    assert learner.choice_ is None
    assert (learner.fit_.l1, learner.fit_.sd) == (2.0, 1.0)
    objective = PseudoLikelihood(learner.fit_.features, data)
    value, gradient, _ = objective.evaluate(learner.fit_.weights)
    l1 = 2.0 * find_l1_factors(learner.fit_.features, 4.0)
    w = learner.fit_.weights
    assert learner.fit_.objective == pytest.approx(value + l1 @ np.abs(w) + 0.5 * w @ w)
    slope = gradient + w
    rest = np.where(w != 0, np.abs(slope + l1 * np.sign(w)), np.maximum(np.abs(slope) - l1, 0))
    assert rest.max() <= 1e-5 * len(data) + 1e-9


def test_given_penalties_are_kept_while_others_are_chosen():
    choice = Auto(l1=3.0).fit(make_mixed()).choice_
    assert {tried.l1 for tried in choice.scores} == {3.0}
    assert len({tried.sd for tried in choice.scores}) > 1


def test_the_choice_is_the_best_or_as_good_and_simpler():
    choice = Auto().fit(make_mixed(800)).choice_
    best = max(choice.scores.values())
    assert choice.score >= best - 0.002 * abs(best) - 1e-9
    assert choice.scores[Penalties(choice.penalties.features, choice.penalties.l1, choice.penalties.ratio, choice.penalties.sd)] <= best


def test_validation_rows_are_not_learned_from():
    data = make_mixed(600)
    train, valid = holdout(data, 0.3, 1)
    learner = Auto().fit(train, valid=valid)
    ((_, held_out),) = [(fold.train, fold.held_out) for fold in learner.choice_.folds]
    assert held_out is valid or np.array_equal(held_out.codes, valid.codes)
    again = Auto(
        l1=learner.fit_.l1,
        sd=learner.fit_.sd,
        ratio=1e9 if learner.choice_.penalties.features == "pairs" else learner.choice_.penalties.ratio,
    )
    again.fit(train)
    assert learner.fit_.weights.shape[0] <= len(again.fit_.features) + 10


def test_cases_are_held_out_alike_from_weighted_and_repeated_rows():
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 3, (50, 3))
    weights = rng.integers(1, 5, 50)
    domain = Domain.from_sizes([3, 3, 3])
    one = hold_out_cases(Dataset(domain, codes, weights), 0.2, 7)
    other = hold_out_cases(Dataset(domain, np.repeat(codes, weights, axis=0)), 0.2, 7)
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a.distinct.codes, b.distinct.codes)
        assert np.array_equal(a.distinct.weights, b.distinct.weights)
    assert one[1].total_weight == round(0.2 * weights.sum())


@pytest.mark.parametrize("params", [{"l1": -1}, {"sd": 0}, {"ratio": "much"}, {"validation": 1.0}, {"n_pairs": 1.5}, {"min_rows": 0}])
def test_wrong_settings_are_named(params):
    with pytest.raises(ParameterError, match=next(iter(params))):
        Auto(**params).fit(make_mixed())


def test_two_rows_and_a_constant_column():
    few = Auto().fit(Dataset(Domain.from_sizes([2, 1]), np.array([[0, 0], [1, 0]])))
    assert few.choice_ is None
    flat = Auto().fit(Dataset(Domain.from_sizes([2, 1, 2]), np.array([[0, 0, 0], [1, 0, 1], [1, 0, 1]] * 20)))
    assert flat.network_.graph().number_of_edges() == 1


def test_compare_takes_a_folder_of_splits(tmp_path):
    data = datasets.exact_sample(datasets.grid_ising(2, 3, seed=1), 300, seed=1)
    for split, rows in zip(("train", "valid", "test"), np.array_split(np.arange(300), 3), strict=True):
        (tmp_path / f"{split}.csv").write_text(data.subset(rows).to_csv())
    found = compare(["auto", "atomic"], [tmp_path], cmll_splits=0)
    assert found.row("auto", str(tmp_path))["npll"] > found.row("atomic", str(tmp_path))["npll"]
    (tmp_path / "test.csv").unlink()
    with pytest.raises(Exception, match="no file named test"):
        compare(["atomic"], [tmp_path])


def test_every_pair_is_a_candidate_once():
    domain = make_mixed().domain
    pairs = [feature for feature in FeatureSet.all_pairs(domain) if len(feature) > 1]
    assert len(set(pairs)) == len(pairs) == sum((k - 1) * (m - 1) for k, m in itertools.combinations(domain.n_states.tolist(), 2))
    assert MarkovNetwork(FeatureSet.all_pairs(domain), np.zeros(len(FeatureSet.all_pairs(domain)))).graph().number_of_edges() == 0
