"""The learners that search: what they do step by step, what they find, how they stop and go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone

from clocks import Clock, Record, one_thread
from undirected import BLM, BUSL, DTBLM, DTSL, Dataset, DellaPietra, Domain, FeatureSet, MarkovNetwork, PseudoLikelihood, datasets, tune
from undirected.cli.common import Screen
from undirected.errors import DataError, FormatError, ParameterError, Unconverged
from undirected.kernels import backend, reference
from undirected.structure import blm as blm_module
from undirected.structure import search_state
from undirected.structure.blankets import Independence, find_blankets
from undirected.structure.della_pietra import Conjunctions
from undirected.structure.search_state import SearchState
from undirected.weights.outcome import SolverStep
from undirected.work import Counted, Stopped, StoppedBy, Work

LEARNERS = {
    "blm": BLM(alpha=2, nearest=(1, 5, 25)),
    "dt-blm": DTBLM(alpha=2, kappa=1.0),
    "dp": DellaPietra(alpha=2),
    "busl": BUSL(alpha=2),
}
A, B, C, D, E = (2 * v + 1 for v in range(5))


@pytest.fixture
def five():
    """Rows 11100 and 11010 twenty times each, 00000 forty times, 00001 ten times."""
    codes = [[1, 1, 1, 0, 0]] * 20 + [[1, 1, 0, 1, 0]] * 20 + [[0, 0, 0, 0, 0]] * 40 + [[0, 0, 0, 0, 1]] * 10
    return Dataset(Domain.from_sizes([2] * 5), np.array(codes))


@pytest.fixture(scope="module")
def triple():
    """Five variables; the first three interact as a triple alone, the last two as a pair."""
    domain = Domain.from_sizes([2] * 5)
    features = FeatureSet.from_lists([[A, B, C], [D, E], *([v] for v in (A, B, C, D, E))], domain)
    return datasets.exact_sample(MarkovNetwork(features, [2.5, 2.0, -0.5, -0.5, -0.5, -1.0, -1.0]), 8000, seed=3)


@pytest.fixture
def moves(monkeypatch):
    """A record of all moves: feature, the one in its place, gain."""
    record = []
    original = SearchState.move

    def recorded(self, feature, other, weight, gain):
        record.append((feature, other, gain))
        original(self, feature, other, weight, gain)

    monkeypatch.setattr(SearchState, "move", recorded)
    return record


def by_brute_force(data, weights, new, alpha):
    """The gain of one more feature: the objective as a function of its weight, minimised by scipy."""
    features = FeatureSet.from_lists([*weights, new], data.domain)
    objective = PseudoLikelihood(features, data, 1)
    held = list(weights.values())

    def value(w):
        full = np.array([*held, w])
        return objective.evaluate(full)[0] + 0.5 * (full**2).sum()

    return value(0.0) - minimize_scalar(value, bounds=(-20, 20), method="bounded", options={"xatol": 1e-8}).fun - alpha * len(new)


def test_blm_takes_the_steps_worked_out_by_hand(five, moves):
    """One nearest row, Hamming distance, positive literals.

    The rows of two ones or more wait in sorted order: ABD, then ABC. The nearest row that ABD does not match is 11100, which
    fails D alone: what is left is AB. A and B are always equal and 40 times of 90 true, so AB says far more than ABD, whose
    context for A and B is half as large: AB enters in the place of ABD. ABC's nearest unmatched row is 11010, which fails C
    alone; AB is in the network already, so ABC itself is left. It says that C is true in 20 of the 40 rows with A and B instead
    of 20 in 90: about 20 log(0.5 / 0.222) + 20 log(0.5 / 0.778) = 7.4, and loses 1.25^2 / 2 = 0.8 to the prior. That pays
    three literals at a price of 1 each, but not of 5. A second sweep changes nothing: AB has two variables and can only be
    dropped, and of ABC only AB would be left.
    """
    BLM(alpha=1, nearest=(1,), distance="hamming", initial="positive").fit(five)
    assert [(feature, other) for feature, other, _ in moves] == [(None, (A, B)), (None, (A, B, C))]
    assert [gain for _, _, gain in moves] == [pytest.approx(53.4, abs=0.1), pytest.approx(7.4 - 0.8 - 3, abs=1.5)]
    moves.clear()
    BLM(alpha=5, nearest=(1,), distance="hamming", initial="positive").fit(five)
    assert [(feature, other) for feature, other, _ in moves] == [(None, (A, B))]


def test_gains_equal_brute_force(five):
    search = SearchState(five, alpha=1.0, work=one_thread())
    search.begin()
    candidates = [(A, B), (A, B, C), (A, B, D), (D, C), (A, E)]
    candidates = [tuple(sorted(c)) for c in candidates]
    weights, gains, _ = search.kernel.gains(
        *(lambda f: (f.start, f.literals))(FeatureSet.from_normalised(candidates, five.domain)), np.full(5, -1, np.int32),
        np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), 0.0, 0.0, 1.0, search.price, True, 1,
    )  # fmt: skip
    expected = [by_brute_force(five, search.weights, c, 1.0) for c in candidates]
    np.testing.assert_allclose(gains, expected, atol=1e-5)
    # The bound that spares hopeless candidates never hides one that gains.
    kept = search.find_gains(candidates)[1]
    np.testing.assert_array_equal(np.isfinite(kept) & (kept > 0), np.array(expected) > 0)
    assert all(g > 0 for g in expected)
    assert (weights[:3] > 0).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_the_score_never_falls(name, triple, moves):
    learner = LEARNERS[name].fit(triple)
    assert moves
    assert all(gain > 0 for _, _, gain in moves)
    scores = [point.score for point in learner.trace_.points]
    assert all(later >= earlier - 1e-6 * abs(earlier) for earlier, later in zip(scores, scores[1:], strict=False))
    assert learner.trace_.stopped_by == "converged"


@pytest.mark.parametrize("name", LEARNERS)
def test_a_planted_triple_is_found(name, triple):
    """8,000 rows, a triple of weight 2.5 and a pair of weight 2: at a price of 10 a literal every learner finds the graph, and
    those that use positive literals alone the features."""
    own = {"blm": {"initial": "positive"}, "dt-blm": {"start": "waiting"}}
    learner = clone(LEARNERS[name]).set_params(alpha=10, **own.get(name, {}))
    found = set(learner.fit(triple).network_.features)
    edges = {pair for f in found for pair in combinations(sorted(literal // 2 for literal in f), 2)}
    assert edges == {(0, 1), (0, 2), (1, 2), (3, 4)}
    assert name == "dt-blm" or {(A, B, C), (D, E)} <= found


@pytest.mark.parametrize("name", LEARNERS)
def test_weights_equal_repeated_rows(name, triple):
    some = triple.subset(np.arange(600))
    repeated = Dataset(some.domain, np.repeat(some.codes, 2, axis=0))
    weighted = Dataset(some.domain, some.codes, np.full(600, 2.0))
    one, other = (LEARNERS[name].fit(data).network_ for data in (repeated, weighted))
    assert one.features == other.features
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-12)


def test_forgotten_generalisations_are_found_again(triple, monkeypatch):
    whole = BLM(alpha=1).fit(triple)
    monkeypatch.setattr(blm_module, "REMEMBERED", 20)
    again = BLM(alpha=1).fit(triple)
    assert again.network_.features == whole.network_.features
    np.testing.assert_array_equal(again.network_.weights, whole.network_.weights)


@pytest.mark.parametrize("min_rows", [0, 1])
def test_states_that_exclude_each_other_are_found(min_rows):
    """One of A, B, C or none, like the states of an attribute spelled out as columns, 3,000 rows: the pairs match no row."""
    codes = np.zeros((3000, 3), int)
    chosen = np.random.default_rng(0).integers(4, size=3000)
    codes[np.arange(3000)[chosen < 3], chosen[chosen < 3]] = 1
    data = Dataset(Domain.from_sizes([2] * 3), codes)
    found = DellaPietra(alpha=2, min_rows=min_rows).fit(data).network_
    pairs = {f: w for f, w in zip(found.features, found.weights, strict=True) if len(f) == 2}
    assert set(pairs) == (set() if min_rows else {(A, B), (A, C), (B, C)})
    assert all(weight < -1 for weight in pairs.values())


@pytest.mark.parametrize(
    "learner", [BLM(alpha=0.1, initial="positive"), BLM(alpha=0.1, initial="positive", start="learned"), DellaPietra(alpha=0.1)]
)
def test_features_that_match_too_few_rows_stay_outside(learner, triple):
    some = triple.subset(np.arange(200))
    support = {}
    for least in (0, 70.5, 300):
        features = clone(learner).set_params(min_rows=least).fit(some).network_.features
        support[least] = features.support(some)[features.lengths > 1]
    assert support[0].min() < 70.5 < support[70.5].min()
    assert len(support[300]) == 0


def test_a_surcharge_is_for_literals_beyond_the_second(triple):
    """Prices of 2, and of 2 and 100 beyond the second: the gain of the triple is below the dear price and above the cheap one,
    pairs do not notice."""
    cheap, dear = (SearchState(triple, 2.0, surcharge=surcharge, work=one_thread()) for surcharge in (0.0, 100.0))
    for search in (cheap, dear):
        search.begin()
    gains = [search.find_gains([(A, B, C), (A, B), (D, E)])[1] for search in (cheap, dear)]
    assert gains[0][0] - gains[1][0] == pytest.approx(100)
    np.testing.assert_array_equal(gains[0][1:], gains[1][1:])
    assert cheap.score == dear.score
    pairs = DellaPietra(alpha=2, max_length=2).fit(triple).network_
    assert DellaPietra(alpha=2, surcharge=1e6).fit(triple).network_.features == pairs.features
    assert DellaPietra(alpha=2, surcharge=5).fit(triple).network_.features != pairs.features


def test_features_are_joined_with_features_where_extensions_fail():
    """Two pairs, and all four together, 5,000 rows: with the pairs in the network their join is found, scored like any other."""
    domain = Domain.from_sizes([2] * 4)
    features = FeatureSet.from_lists([[A, B], [C, D], [A, B, C, D], [A], [B], [C], [D]], domain)
    data = datasets.exact_sample(MarkovNetwork(features, [1.0, 1.0, 2.5, -1.0, -1.0, -1.0, -1.0]), 5000, seed=1)
    search = SearchState(data, alpha=5.0, work=one_thread())
    search.begin([(A, B), (C, D)])
    found = list(Conjunctions(search, None)._join(search))
    assert [c.feature for c in found] == [(A, B, C, D)]
    assert found[0].gain == pytest.approx(search.find_gains([(A, B, C, D)])[1][0], abs=1e-6)


@pytest.mark.parametrize("sizes", [[2] * 12, [3, 2, 4] * 3])
def test_joins_of_many_features_are_those_that_gain(sizes):
    """Some 300 features, 900 rows of weights from 0.5 to 3: more than one block of either. Every join is also scored on its own."""
    rng = np.random.default_rng(7)
    domain = Domain.from_sizes(sizes)
    cause = rng.random(900) < 0.5
    codes = np.array([[rng.integers(k) if rng.random() < 0.6 else (k - 1) * c for k in sizes] for c in cause])
    data = Dataset(domain, codes, rng.choice([0.5, 1.0, 3.0], 900))
    base = np.concatenate([[0], np.cumsum(sizes)])
    chosen = [sorted(rng.choice(len(sizes), rng.integers(2, 5), replace=False)) for _ in range(400)]
    features = list(dict.fromkeys(tuple(int(base[v]) + int(rng.integers(1, sizes[v])) for v in variables) for variables in chosen))
    assert len(features) > 256
    search = SearchState(data, alpha=0.2, work=Work.start(threads=2))
    search.begin(features[:100])
    search.weights.update(dict.fromkeys(features[100:], 0.0))
    found = {c.feature: c.gain for c in Conjunctions(search, None)._join(search)}
    variable = domain.literal_variable
    joins = {tuple(sorted({*a, *b})) for a, b in combinations(features, 2) if min(len({*a} - {*b}), len({*b} - {*a})) >= 2}
    joins = [join for join in joins if len({int(variable[literal]) for literal in join}) == len(join)]
    expected = {join: gain for join, gain in zip(joins, search.find_gains(joins)[1].tolist(), strict=True) if gain > 1e-6}
    assert len(expected) > 50
    assert found == pytest.approx(expected, abs=1e-5)
    search.work = one_thread()
    assert found == {c.feature: c.gain for c in Conjunctions(search, None)._join(search)}


@pytest.mark.parametrize("n_features", [3, 200])
def test_screening_is_the_same_for_any_number_of_threads(n_features):
    """60 literals, for which threads part the literals or the features: equal to the bit, and to the NumPy kernel in single precision."""
    rng = np.random.default_rng(3)
    data = Dataset(Domain.from_sizes([2, 3] * 20), rng.integers(0, [2, 3] * 20, (700, 40)), rng.choice([0.5, 1.0, 2.0], 700))
    base, extra = data.domain.base, np.concatenate([np.arange(a + 1, b) for a, b in pairwise(data.domain.base)]).astype(np.int32)
    features = FeatureSet.from_lists([[int(base[v]) + 1 for v in rng.choice(40, 2, replace=False)] for _ in range(n_features)], data.domain)
    weights = rng.normal(size=len(features))

    def screened(module, threads):
        kernel = module.Search(data.distinct.columns, data.domain.n_states, data.distinct.weights)
        kernel.load(features.start, features.literals, weights, 1)
        return kernel.screen(features.start, features.literals, extra, threads)

    alone = screened(backend().module, 1)
    for threads in (2, 5):
        np.testing.assert_array_equal(screened(backend().module, threads), alone)
    np.testing.assert_allclose(alone, screened(reference, 1), atol=1e-3)


@pytest.mark.parametrize("module", [backend().module, reference])
def test_the_best_weight_is_found_where_the_odds_are_steep(module):
    """Rows that nearly match, each held back by the odds of one literal: Newton's steps alone go to and fro there."""
    for n_rows in (2, 5, 20, 60):
        for odds in np.arange(0, 8, 0.37):
            data = Dataset(Domain.from_sizes([2, 2]), np.tile([0, 1], (n_rows, 1)))
            kernel = module.Search(data.distinct.columns, data.domain.n_states, data.distinct.weights)
            kernel.load(np.array([0, 1]), np.array([A], np.int32), np.array([odds]), 1)
            nobody = (np.array([-1], np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))
            weight, gain, _ = kernel.gains(np.array([0, 2]), np.array([A, B], np.int32), *nobody, 0.0, 0.0, 1.0, np.zeros(5), True, 1)
            best = minimize_scalar(
                lambda w, n=n_rows, q=odds: n * np.logaddexp(0, q + w) + w * w / 2, bounds=(-30, 30), options={"xatol": 1e-9}
            )
            assert gain[0] == pytest.approx(n_rows * np.logaddexp(0, odds) - best.fun, abs=1e-4)
            assert weight[0] == pytest.approx(best.x, abs=1e-2)


@pytest.mark.parametrize("grid", [{"search_sd": [None]}, {}])
def test_a_tuning_never_searches_without_a_prior_of_its_own(grid, triple):
    """Where none is named it is that of the learner, or 1 where that has none; a fit of the settings it reports searches alike."""
    train, valid = triple.subset(np.arange(1500)), triple.subset(np.arange(1500, 2500))
    for learner, expected in ((DellaPietra(sd=0.5), 0.5), (DellaPietra(l1=1, sd=float("inf")), 1.0)):
        tuned = tune(learner, {"alpha": [1.0], "sd": [0.1], **grid}, train, valid)
        assert tuned.settings["search_sd"] == expected
        assert DellaPietra(**tuned.settings).fit(train).network_.features == tuned.learner.network_.features


def test_blankets_are_found_once_for_all_settings(triple):
    record = Record()
    tuned = tune(BUSL(), {"alpha": [2.0, 5.0], "sd": [1.0]}, triple, progress=record)
    assert [event.done for event in record.events if isinstance(event, Counted)] == [1, 2, 3, 4, 5]  # one count of the five variables
    assert len(tuned.rows) == 2


def test_blankets_of_a_chain():
    """A - B - C - D with couplings of 2, 5,000 rows: the blanket of each is its neighbours."""
    domain = Domain.from_sizes([2] * 4)
    features = FeatureSet.from_lists([[A, B], [B, C], [C, D], [A], [B], [C], [D]], domain)
    data = datasets.exact_sample(MarkovNetwork(features, [2.0, 2.0, 2.0, -1.0, -2.0, -2.0, -1.0]), 5000, seed=5)
    assert find_blankets(data, 0.001, one_thread()) == [[1], [0, 2], [1, 3], [2]]


def test_independence_equals_scipy(triple):
    from scipy.stats import chi2_contingency

    codes = triple.codes
    tests = Independence(triple)
    chi, expected, free, _ = chi2_contingency(np.histogram2d(codes[:, 0], codes[:, 3], bins=2)[0], correction=False)
    p, strength = tests.test(0, tests.all_rows, np.array([1, 3]))
    assert (strength[1], p[1]) == (pytest.approx(chi / free), pytest.approx(expected))
    strength = tests.test(0, tests.split(tests.all_rows, 2), np.array([1]))[1]
    parts = [chi2_contingency(np.histogram2d(*codes[codes[:, 2] == s][:, [0, 1]].T, bins=2)[0], correction=False)[0] for s in (0, 1)]
    assert strength[0] == pytest.approx(sum(parts) / 2)


def test_thin_strata_are_no_evidence():
    """In one stratum 40 rows, in the other two, which agree: chi-square of the two alone would be 2 with an expected count of half."""
    rows = [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]] * 10 + [[0, 0, 1], [1, 1, 1]]
    tests = Independence(Dataset(Domain.from_sizes([2] * 3), np.array(rows)))
    p, strength = tests.test(0, tests.split(tests.all_rows, 2), np.array([1]))
    assert (p[0], strength[0]) == (pytest.approx(1.0), pytest.approx(0.0))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shares", [[0.97, 0.03], [0.4, 0.395, 0.2, 0.005], [0.0, 0.5, 0.5]])
def test_blankets_of_equal_columns_with_rare_states(shares, weighted):
    """Two equal columns and one of noise, 1,000 rows: rare states, or states never seen, do not hide what is plain."""
    rng = np.random.default_rng(4)
    own = np.repeat(np.arange(len(shares)), np.round(1000 * np.array(shares)).astype(int))
    codes = np.column_stack([own, own, rng.integers(2, size=1000)])
    weights = rng.uniform(0.9, 1.1, 1000) if weighted else None
    data = Dataset(Domain.from_sizes([len(shares), len(shares), 2]), codes, weights)
    assert find_blankets(data, 1e-4, one_thread()) == [[1], [0], []]


def test_blankets_of_a_common_effect():
    """A and C are independent, B is a noisy AND of them, 20,000 rows: given B they depend on each other, so all are neighbours."""
    rng = np.random.default_rng(0)
    a, c = rng.integers(2, size=(2, 20_000))
    b = np.where(rng.random(20_000) < 0.9, a & c, rng.integers(2, size=20_000))
    data = Dataset(Domain.from_sizes([2] * 3), np.column_stack([a, b, c]))
    assert find_blankets(data, 1e-4, one_thread()) == [[1, 2], [0, 2], [0, 1]]


def test_constant_columns_and_single_rows():
    """Nothing to learn is no error."""
    for codes in ([[0, 0, 0]], [[0, 1, 0]] * 5, [[1, 1, 1], [0, 0, 0]]):
        data = Dataset(Domain.from_sizes([2, 2, 2]), np.array(codes))
        for learner in LEARNERS.values():
            assert np.isfinite(learner.fit(data).score(data))
    one = Dataset(Domain.from_sizes([2]), np.array([[0], [1]]))
    for learner in LEARNERS.values():
        assert len(learner.fit(one).network_.features) == 1


def test_the_time_budget_stops_the_search():
    data = datasets.load("digits")
    with pytest.warns(Unconverged, match="stopped by time"):
        learner = BLM(alpha=0.1, time_budget=0.5).fit(data)
    assert learner.trace_.stopped_by == "time"
    assert learner.score(data) > -40


def test_an_early_stop_is_told_and_kept(triple, tmp_path, monkeypatch):
    """Ctrl-C in the middle of a search: the network so far, an early stop, and a checkpoint from which the rest is the same."""
    file = tmp_path / "search.json"
    whole = DellaPietra(alpha=0.5, relearn_every=1).fit(triple)
    original = SearchState.move

    def interrupted(self, *args):
        original(self, *args)
        if self.n_moves == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SearchState, "move", interrupted)
        with pytest.warns(Unconverged, match="stopped by interrupt"):
            early = DellaPietra(alpha=0.5, relearn_every=1, checkpoint=file).fit(triple)
    assert early.fit_.stopped_by == "interrupt"
    assert early.trace_.points[-1].n_moves == 4
    assert len(early.network_.features) == 5 + 4
    again = DellaPietra(alpha=0.5, relearn_every=1, checkpoint=file).fit(triple)
    assert again.network_.features == whole.network_.features
    np.testing.assert_array_equal(again.network_.weights, whole.network_.weights)
    assert again.trace_.points[-1].n_moves == whole.trace_.points[-1].n_moves > 4


def test_a_listener_that_keeps_interrupting_costs_nothing(triple, tmp_path):
    """A stop button that stays pressed: every event after the third interrupts."""
    record = Record()

    def pressed(event):
        record(event)
        if len(record.events) > 3:
            raise KeyboardInterrupt

    file = tmp_path / "search.json"
    with pytest.warns(Unconverged, match="interrupt"):
        learner = DellaPietra(alpha=0.5, relearn_every=1, checkpoint=file, progress=pressed).fit(triple)
    assert learner.fit_.stopped_by is StoppedBy.INTERRUPT
    assert learner.trace_.points[-1].n_moves > 0
    assert len(learner.network_.features) > 5
    assert file.exists()


def test_a_budget_leaves_a_ledger_open(triple, tmp_path):
    """What a time budget did not let happen is not called complete, and happens without one."""
    train, valid = triple.subset(np.arange(3000)), triple.subset(np.arange(3000, 4000))
    grid = {"alpha": [5.0, 1.0, 0.5]}
    with pytest.warns(Unconverged):
        first = tune(BLM(time_budget=1e-6), grid, train, valid, ledger=tmp_path / "ledger.jsonl")
    assert not first.complete
    second = tune(BLM(), grid, train, valid, ledger=tmp_path / "ledger.jsonl")
    assert second.complete
    assert {row["alpha"] for row in second.rows} == {5.0, 1.0, 0.5}


class CutBLM(BLM):
    """Ends at once with nothing, but for a price of ``cut_at``: there it has the pair when the whole time has passed."""

    clock = Clock()

    def explore(self, search, state):
        search.begin()
        if self.alpha == self.cut_at:
            search.begin([(D, E)])
            self.clock.advance(10)
            raise Stopped(StoppedBy.TIME)


class CutAtOne(CutBLM):
    cut_at = 1.0


class CutAtFive(CutBLM):
    cut_at = 5.0


def test_a_search_cut_by_the_budget_is_weighed(triple):
    """The first search ends in time with nothing, the second is cut when it has the pair: its features are not thrown away."""
    train, valid = triple.subset(np.arange(3000)), triple.subset(np.arange(3000, 4000))
    work = Work.start(time_budget=2, clock=CutBLM.clock)
    tuned = tune(CutAtOne(), {"alpha": [5.0, 1.0, 0.5], "sd": [1.0]}, train, valid, work=work)
    assert [row["alpha"] for row in tuned.rows] == [5.0, 1.0]
    assert tuned.settings["alpha"] == 1.0
    assert not tuned.complete


def test_a_first_search_that_uses_up_the_budget_is_the_only_one(triple):
    train, valid = triple.subset(np.arange(3000)), triple.subset(np.arange(3000, 4000))
    work = Work.start(time_budget=1, clock=CutBLM.clock)
    tuned = tune(CutAtFive(), {"alpha": [5.0, 1.0], "sd": [0.3, 1.0]}, train, valid, refine=False, work=work)
    assert [(row["alpha"], row["sd"]) for row in tuned.rows] == [(5.0, 0.3), (5.0, 1.0)]
    assert tuned.rows[0]["valid_pll"] != tuned.rows[1]["valid_pll"]


def test_larger_trees_only_where_kappa_is_not_given(triple):
    train, valid = triple.subset(np.arange(3000)), triple.subset(np.arange(3000, 4000))
    grid = {"alpha": [5.0], "sd": [1.0]}
    assert {row["kappa"] for row in tune(DTBLM(kappa=0.001), grid, train, valid, refine=False).rows} == {0.001}
    assert len({row["kappa"] for row in tune(DTBLM(kappa="auto"), grid, train, valid, refine=False).rows}) == 2


def test_where_the_trees_take_all_the_time_their_features_are_kept(triple):
    train, valid = triple.subset(np.arange(1500)), triple.subset(np.arange(1500, 2500))
    own = {"conversion": ["prune"], "kappa": [0.1], "sd": [1.0]}
    trees = tune(DTSL(), own, train, valid, refine=False).learner.network_
    clock = Clock()

    def pass_time(event):
        if isinstance(event, SolverStep) and clock.time == 0:  # the trees are grown, and are being weighed
            clock.advance(1000)

    work = Work.start(time_budget=1000, clock=clock, progress=pass_time)
    tuned = tune(DTBLM(), {"search_sd": [0.1], "alpha": [0.5, 2.0], **own}, train, valid, refine=False, work=work)
    assert len(trees.features) > 5
    assert tuned.learner.network_.features == trees.features
    assert not tuned.complete


@pytest.mark.parametrize("learner", [BLM(), DellaPietra(l1=4)])
def test_tuned_settings_give_the_tuned_network(learner, triple):
    """Whatever penalties the weights get: the search of a tuning knows one prior alone, and its settings say which."""
    train, valid = triple.subset(np.arange(1500)), triple.subset(np.arange(1500, 2500))
    tuned = tune(learner, {"alpha": [0.2], "l1": [4.0], "sd": [0.3]}, train, valid)
    again = type(learner)(**tuned.settings).fit(train)
    assert again.network_.features == tuned.learner.network_.features
    np.testing.assert_allclose(again.network_.weights, tuned.learner.network_.weights, atol=1e-3)
    assert tuned.learner.trace_.points[-1].n_moves == again.trace_.points[-1].n_moves


def test_a_tuned_learner_has_what_its_search_found(triple):
    grid = {"alpha": [20.0, 2.0], "sd": [1.0]}
    tuned = tune(BUSL(), grid, triple, triple)
    again = BUSL(**tuned.settings).fit(triple)
    assert tuned.learner.blankets_ == again.blankets_
    assert tuned.learner.trace_.points[-1].n_features == len(tuned.learner.network_.features)


def test_learners_with_a_progress_line_can_be_cloned():
    class Line:
        def __init__(self):
            self.lock = threading.RLock()  # what a line on a terminal holds, and nobody can copy

        def __call__(self, text):
            self.text = text

    line = Line()
    learner = clone(BLM(progress=Screen(False, line), alpha=5))
    learner.fit(datasets.load("digits"))
    assert "moves" in line.text or "weights" in line.text


class Kill(BaseException):
    pass


@pytest.mark.parametrize("name", LEARNERS)
def test_a_search_goes_on_from_its_checkpoint(name, triple, tmp_path, monkeypatch):
    """Stopped after each of its savings in turn, a search ends as if nothing had happened."""
    monkeypatch.setattr(search_state, "SECONDS_BETWEEN_SAVES", 0.0)
    data = triple.subset(np.arange(2000))
    learner = clone(LEARNERS[name]).set_params(relearn_every=1, alpha=0.5)
    undisturbed = clone(learner).fit(data)
    original = SearchState.save
    file = tmp_path / "search.json"
    learner.set_params(checkpoint=file)
    kills = 0

    def save(self, state, finished=False):
        original(self, state, finished)
        if not finished:
            raise Kill

    monkeypatch.setattr(SearchState, "save", save)
    while True:
        try:
            learner.fit(data)
            break
        except Kill:
            kills += 1
    assert kills > 2
    assert learner.network_.features == undisturbed.network_.features
    np.testing.assert_array_equal(learner.network_.weights, undisturbed.network_.weights)
    assert learner.trace_.points[-1].n_moves == undisturbed.trace_.points[-1].n_moves


def test_a_killed_command_goes_on(tmp_path):
    """SIGKILL in the middle; the command, started again, writes the network of an undisturbed run."""
    command = [sys.executable, "-m", "undirected.cli.main", "learn", "digits", "-a", "dp", "--alpha", "10", "--relearn-every", "25", "-q"]
    code = "import undirected.structure.search_state as s; s.SECONDS_BETWEEN_SAVES = 0.0; from undirected.cli import main; main()"
    command[1:3] = ["-c", code]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    file = tmp_path / "search.json"
    subprocess.run([*command, "-o", tmp_path / "whole.json"], env=environment, check=True, capture_output=True)
    process = subprocess.Popen([*command, "--checkpoint", file, "-o", tmp_path / "late.json"], env=environment)
    while process.poll() is None and not (file.exists() and json.loads(file.read_text())["n_moves"] > 60):
        time.sleep(0.02)
    assert process.poll() is None, "the search was over before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run([*command, "--checkpoint", file, "-o", tmp_path / "late.json"], env=environment, check=True, capture_output=True)
    assert (tmp_path / "late.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_checkpoints_of_others_are_refused(triple, tmp_path):
    file = tmp_path / "search.json"
    DellaPietra(alpha=50, checkpoint=file).fit(triple)
    with pytest.raises(FormatError, match="other data or with other settings"):
        DellaPietra(alpha=20, checkpoint=file).fit(triple)
    content = json.loads(file.read_text())
    del content["features"]
    file.write_text(json.dumps(content))
    with pytest.raises(FormatError, match="damaged"):
        DellaPietra(alpha=50, checkpoint=file).fit(triple)
    with pytest.raises(DataError, match="does not exist"):
        DellaPietra(alpha=50, checkpoint=tmp_path / "nowhere" / "search.json").fit(triple)
    file.write_text("{")
    with pytest.raises(FormatError, match="not a checkpoint"):
        DellaPietra(alpha=50, checkpoint=file).fit(triple)


def test_tuning_keeps_finished_searches(triple, tmp_path, monkeypatch):
    """A second tuning with the same ledger searches nothing again, and ends with the same network."""
    train, valid = triple.subset(np.arange(1500)), triple.subset(np.arange(1500, 2500))
    grid = {"alpha": [5.0, 1.0], "sd": [0.5, 1.0]}
    first = tune(BLM(), grid, train, valid, ledger=tmp_path / "ledger.jsonl")
    assert len(list((tmp_path / "ledger.searches").iterdir())) == 2
    (tmp_path / "ledger.jsonl").unlink()

    def nothing(self, search, state):
        raise AssertionError("searched again")

    monkeypatch.setattr(BLM, "explore", nothing)
    second = tune(BLM(), grid, train, valid, ledger=tmp_path / "ledger.jsonl")
    assert first.settings == second.settings
    np.testing.assert_array_equal(first.learner.network_.weights, second.learner.network_.weights)


def test_wrong_parameters(five):
    for learner, what in (
        (BLM(alpha=-1), "alpha"),
        (BLM(nearest=()), "nearest"),
        (BLM(distance="far"), "distance"),
        (BLM(power=0), "power"),
        (BLM(initial="none"), "initial"),
        (BLM(relearn_every=0), "relearn_every"),
        (BLM(min_rows=-1), "min_rows"),
        (DellaPietra(min_rows="x"), "min_rows"),
        (DellaPietra(surcharge=-1), "surcharge"),
        (DellaPietra(surcharge=float("inf")), "surcharge"),
        (DellaPietra(search_sd=0.0), "search_sd"),
        (DellaPietra(max_length=1), "max_length"),
        (BUSL(test_level=1.0), "test_level"),
        (DTBLM(distance="far"), "distance"),
        (BLM(nearest=5), "nearest"),
        (BLM(nearest=("a",)), "nearest"),
        (BLM(power=1.5), "power"),
        (BLM(alpha=None), "alpha"),
        (BLM(start="late"), "start"),
        (DellaPietra(search_sd="x"), "search_sd"),
        (DellaPietra(search_sd=1e-200), "search_sd"),
        (DellaPietra(max_length=2.5), "max_length"),
        (BUSL(max_length=None), "max_length"),
    ):
        with pytest.raises(ParameterError, match=what):
            learner.fit(five)


def test_the_trace_can_be_drawn(triple):
    figure = DellaPietra(alpha=2).fit(triple).trace_.plot()
    assert len(figure.axes) == 2
    assert len(figure.axes[0].lines[0].get_xdata()) > 1
