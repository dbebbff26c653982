"""Answers that claim no more than is known: impossible only by proof, bounds that hold, mixed only where chains could tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undirected import Dataset, Domain, FeatureSet, ImpossibleEvidence, MarkovNetwork, Variable, datasets
from undirected.inference import Session, starts
from undirected.inference.feasible import RuleBook, Rules
from undirected.inference.partition import anneal
from undirected.work import Work


def random_rules(seed, n=9, rules=24, sizes=(2, 3)):
    """Forbidden conjunctions with negations, not always possible."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes(rng.choice(sizes, n).tolist())
    rows = []
    for _ in range(rules):
        members = rng.choice(n, size=rng.integers(1, 4), replace=False)
        literals = domain.base[members] + rng.integers(0, domain.n_states[members])
        rows.append((literals + domain.n_literals * (rng.random(len(members)) < 0.3)).tolist())
    features = FeatureSet.from_lists(rows, domain)
    return MarkovNetwork(features, np.where(rng.random(len(features)) < 0.05, np.inf, -np.inf))


def kept_states(network):
    """All assignments that keep every rule, by enumeration."""
    from strategies import all_rows

    rows = all_rows(network.domain)
    return rows[np.isfinite(network.log_score(Dataset(network.domain, rows)))]


class TestRules:
    @settings(max_examples=150)
    @given(st.integers(0, 10**6), st.integers(5, 40))
    def test_impossible_exactly_where_nothing_keeps_the_rules(self, seed, n_rules):
        network = random_rules(seed, rules=n_rules)
        kept = kept_states(network)
        rules = Rules(RuleBook(network), np.ones(network.domain.n_literals, dtype=np.uint8))
        if not len(kept):
            with pytest.raises(ImpossibleEvidence):
                rules.search(Work.start(), np.random.default_rng(0))
            return
        assert rules.possible
        left = rules.mark_left()
        for v in range(len(network.domain)):  # what was taken away is in no assignment that keeps the rules
            assert left[network.domain.base[v] + np.unique(kept[:, v])].all()
        found = rules.search(Work.start(), np.random.default_rng(0))
        assert found.tolist() in kept.tolist()

    def test_feasible_networks_are_answered_in_every_way(self):
        """Planted assignments that walking and annealing hardly ever find: a chain in which each variable forces the next."""
        n = 300
        domain = Domain.from_sizes([4] * n)
        rng = np.random.default_rng(3)
        planted = rng.integers(0, 4, n)
        rows = []
        for v in range(n - 1):  # all but one state of the next are forbidden, whatever this one is in
            shift = (planted[v + 1] - planted[v]) % 4
            rows += [[4 * v + s, 4 * (v + 1) + t] for s in range(4) for t in range(4) if t != (s + shift) % 4]
        network = MarkovNetwork(FeatureSet.from_lists([*rows, [int(planted[0])]], domain), [-np.inf] * len(rows) + [1.0])
        answer = network.query(memory=64, time_budget=2)
        assert answer.method in ("mcsat", "junction-tree and mcsat")
        best = network.map_state(method="annealing", time_budget=1)
        codes = np.array([int(s) for s in best[0].values()])
        assert (np.diff(codes) % 4 == np.diff(planted) % 4).all()
        assert len(network.sample(5, memory=64)) == 5

    def test_what_rules_force_is_exact(self):
        domain = Domain.from_sizes([2, 2, 3])
        features = FeatureSet.from_texts(["v0=0", "v0=1 & v1=0", "v1=1 & v2=0", "v1=1 & v2=1"], domain)
        network = MarkovNetwork(features, [-np.inf] * 4)
        answer = network.query(method="gibbs")
        assert answer["v2"] == {"0": 0.0, "1": 0.0, "2": 1.0}
        assert answer.exact
        assert set(answer) == {"v0", "v1", "v2"}


class TestModes:
    @pytest.mark.parametrize("n", [12, 20, 60])
    @pytest.mark.parametrize("method", ["gibbs", "mcsat", "auto"])
    def test_one_long_feature_of_large_weight(self, n, method):
        network = datasets.single_conjunction(n, float(n), n)
        others = n * np.log(2) + np.log1p(-(2.0**-n))
        truth = 0.5 + 0.5 * np.exp(n - np.logaddexp(others, n))
        answer = network.query(method=method, time_budget=1, memory=64 if method == "auto" else 2 << 30)
        if answer.mixed:
            for v in answer:
                assert abs(answer[v]["1"] - truth) < 5 * answer.standard_errors[v]["1"] + 1e-4
        else:
            assert all(np.isnan(e) for states in answer.standard_errors.values() for e in states.values())
            assert "NOT MIXED" in answer.summary()

    def test_modes_without_weight_disturb_nobody(self):
        network = datasets.single_conjunction(60, 20.0, 60)  # e^20 of 2^60 states
        answer = network.query(method="gibbs", time_budget=5)
        assert answer.mixed
        assert answer["v0"]["1"] == pytest.approx(0.5, abs=5 * answer.largest_error)

    def test_masses_of_modes(self):
        """On independent variables the mass around a mode is everything."""
        domain = Domain.from_sizes([2, 3, 2])
        network = MarkovNetwork(FeatureSet.atomic(domain), [0.5, -1.0, 0.3, 2.0])
        session = Session(network)
        best = np.array([list(map(int, network.map_state()[0].values()))], dtype=np.int16)
        assert starts.estimate_log_masses(session.reduce(), best, session.start())[0][0] == pytest.approx(network.log_partition().value)

    def test_exact_where_time_allows_and_where_chains_do_not_mix(self):
        glued = datasets.clusters(2, 12, coupling=4.0, tilt=0.5, link=0.3, n_states=2, seed=0)
        exact = glued.query(method="junction-tree")
        answer = glued.query(time_budget=0.001)  # too short for exact work by its estimate, but chains do not mix
        assert answer.exact
        for v in exact:
            assert answer[v] == pytest.approx(exact[v])


def test_the_best_assignment_may_be_far_from_random_ones():
    """All on: a broad mode that cooling falls into; all off is better, and one state only."""
    n = 60
    domain = Domain.from_sizes([2] * n)
    pairs = FeatureSet.all_pairs(domain)
    weights = np.where(pairs.lengths == 1, -3.0, 2 * 2.99 / (n - 1))
    network = MarkovNetwork(pairs, weights)  # all on scores 60 * (-3 + 2.99) = -0.6
    found = network.map_state(method="annealing", time_budget=1)
    assert found.log_scores[0] == 0
    assert set(found[0].values()) == {"0"}


class TestBounds:
    @pytest.mark.parametrize("seed", range(4))
    def test_a_strong_grid_is_bracketed_or_its_bound_is_unknown(self, seed):
        network = datasets.grid_ising(6, 6, coupling=2.5, field=0.2, seed=seed)
        truth = network.log_partition(method="exact").value
        found = network.log_partition(method="ais", memory=64, chains=64, steps=50, time_budget=1)
        assert found.lower <= truth <= found.upper
        if not np.isfinite(found.upper):
            assert found.to_dict()["upper"] is None
            assert "no upper bound is known" in str(found)

    def test_rules_leave_bounds_that_hold(self):
        for seed in range(5):
            network = datasets.hard_clauses(14, 40, seed=seed)
            truth = network.log_partition(method="exact").value
            session = Session(network, memory=64)
            found = anneal(session.reduce(), 64, 100, None, session.start())
            assert found.lower <= truth <= found.upper

    def test_more_time_closes_the_bracket(self):
        network = datasets.grid_ising(5, 5, coupling=0.6, field=0.3, seed=1)
        session = Session(network)
        short, long = (anneal(session.reduce(), 64, steps, None, session.start()) for steps in (3, 2000))
        truth = network.log_partition(method="exact").value
        assert short.lower <= truth <= short.upper
        assert long.lower <= truth <= long.upper
        assert long.gap < short.gap


class TestLargeWeights:
    def test_one_meaning_everywhere(self):
        domain = Domain([Variable("a", ("x", "y")), Variable("b", ("0", "1"))])
        features = FeatureSet.from_texts(["a=x", "a=y", "b=1"], domain)
        network = MarkovNetwork(features, [20_000.0, 15_000.0, 0.5])
        assert network.query()["a"] == pytest.approx({"x": 1.0, "y": 0.0})
        assert network.conditional("a", {"b": "1"}) == pytest.approx({"x": 1.0, "y": 0.0})
        assert network.conditionals(np.array([["x", "1"]]))[0, :2] == pytest.approx([1.0, 0.0])
        assert network.explain("a", {"b": "1"}).log_odds == pytest.approx(5000)
        assert network.pll(np.array([["y", "1"]])) == pytest.approx(-5000 + np.log(1 / (1 + np.exp(-0.5))))
        p_of_y = network.log_likelihood(np.array([["y", "1"]]))
        assert p_of_y == pytest.approx(-5000 - np.log1p(np.exp(-0.5)))

    def test_rules_that_many_rows_keep_leave_the_score_finite(self):
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 2, (30_000, 20))
        codes[:, 1] &= 1 - codes[:, 0]  # never both
        domain = Domain.from_sizes([2] * 20)
        network = MarkovNetwork(FeatureSet.from_lists([[1, 3]], domain), [-np.inf])
        data = Dataset(domain, codes, np.where(np.arange(30_000) < 5, 1e-3, 1.0))
        rows, variables = network.pll_terms(data)
        assert np.isfinite(rows).all()
        assert network.pll(data) == pytest.approx(np.average(rows, weights=data.weights))
        broken = Dataset(domain, np.vstack([codes, np.ones((1, 20), dtype=int)]))
        rows, variables = network.pll_terms(broken)
        np.testing.assert_array_equal(np.isneginf(variables), [True, True] + [False] * 18)
        assert np.isneginf(rows[-1])
        assert np.isfinite(rows[:-1]).all()

    def test_only_infinite_weights_forbid(self):
        domain = Domain.from_sizes([2, 2])
        features = FeatureSet.from_texts(["v0=1", "v0=1 & v1=1"], domain)
        network = MarkovNetwork(features, [30_000.0, -np.inf])
        rows = np.array([[1, 1], [1, 0], [0, 1]])
        np.testing.assert_array_equal(network.log_score(rows), [-np.inf, 30_000, 0])
        assert network.pll_terms(rows)[0][0] == -np.inf
        assert network.conditional("v1", [1, -1])["1"] == 0
        assert network.query({"v0": 1})["v1"]["1"] == 0
        assert network.explain("v1", [1, -1], "1").log_odds == -np.inf
