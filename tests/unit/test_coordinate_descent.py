"""Coordinate descent: its kernels against their twin, its optima against other solvers, its laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import Clock
from instructions import INSTRUCTION_SETS, using
from strategies import problems
from undirected import Dataset, Domain, FeatureSet, ParameterError, PseudoLikelihood, Unconverged, datasets, fit_path, fit_weights
from undirected.kernels import backend, reference
from undirected.weights import coordinate_descent
from undirected.weights.coordinate_descent import CoordinateDescent, _Run, find_newton_step, suits_descent
from undirected.weights.fit import minimise
from undirected.weights.penalty import Penalty
from undirected.weights.sum_objective import SumObjective
from undirected.weights.thread_choice import ThreadChoice
from undirected.work import StoppedBy, Work


@pytest.fixture(scope="module")
def case():
    truth = datasets.random_conjunctions(12, 150, seed=1)
    return truth.features, datasets.exact_sample(truth, 2000, seed=2)


def random_table(seed, n_features=120, n_rows=300):
    """Variables of two to five states with row weights, and features with several negated literals of one variable among them."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes([2, 3, 2, 5, 2, 4, 1, 2])
    codes = np.column_stack([rng.integers(0, k, n_rows) for k in domain.n_states])
    codes[:, 4] = codes[:, 0] ^ (rng.random(n_rows) < 0.1)
    lists = []
    for _ in range(n_features):
        literals = []
        for v in sorted(rng.choice(len(domain), rng.integers(1, 5), replace=False)):
            k, first = int(domain.n_states[v]), int(domain.base[v])
            if k > 2 and rng.random() < 0.4:
                literals += [domain.n_literals + first + int(s) for s in sorted(rng.choice(k, rng.integers(1, k), replace=False))]
            else:
                literals.append(first + int(rng.integers(k)))
        lists.append(literals)
    return FeatureSet.from_lists(lists, domain), Dataset(domain, codes, rng.choice([0.5, 1.0, 3.0], n_rows))


def tall_table(seed, n_features=60, n_rows=20_000):
    """So many rows that several threads share them out, most of them of one weight, and a variable of three states among binary ones."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes([3] + [2] * 19)
    codes = np.column_stack([rng.integers(0, k, n_rows) for k in domain.n_states])
    codes[:, 1:4] = codes[:, :1] > rng.integers(0, 3, (n_rows, 3))
    chosen = [sorted(rng.choice(len(domain), rng.integers(1, 4), replace=False)) for _ in range(n_features)]
    lists = [[int(domain.base[v] + rng.integers(domain.n_states[v])) for v in variables] for variables in chosen]
    return FeatureSet.from_lists(lists, domain).canonical(), Dataset(domain, codes, rng.choice([1.0, 1.0, 1.0, 2.5], n_rows))


def penalties(n, seed):
    rng = np.random.default_rng(seed)
    return rng.choice([0.0, 0.5, 2.0], n), rng.choice([0.1, 1.0, 4.0], n), rng.normal(0, 0.5, n)


def descents(features, data, threads=1):
    """The native state and its twin."""
    table = data.distinct
    args = (table.columns, features.domain.n_states, table.weights, features.start, features.literals, 1 << 30, threads)
    return [module.Descent(module.PseudoLikelihoodTables(*args), threads) for module in (backend().module, reference)]


def sweep(descent, order, penalty, weights, refresh=True, least=(0.0, 0.0), curvature=None, threads=1):
    """One sweep from these weights: weights, slopes, gains and curvatures after it."""
    n = len(weights)
    out = [weights.copy(), np.zeros(n) if curvature is None else curvature.copy(), np.zeros(n), np.zeros(n)]
    descent.sweep(order, *penalty, *out, refresh, *least, threads)
    return out


# -- the kernels against their twin
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("seed", range(3))
def test_native_sweeps_are_those_of_the_twin(instruction_set, seed):
    features, data = random_table(seed)
    rng = np.random.default_rng(seed)
    n = len(features)
    start = np.where(rng.random(n) < 0.4, 0, rng.normal(0, 0.5, n))
    penalty = penalties(n, seed)
    with using(instruction_set):
        native, twin = descents(features, data)
        order = native.spread_out(rng.permutation(n).astype(np.int32))
        results = []
        for descent in (native, twin):
            descent.set_weights(start, 1)
            first = sweep(descent, order, penalty, start)
            descent.keep_image(0, 1)
            second = sweep(descent, order[::-1].copy(), penalty, first[0], refresh=False, least=(0.05, 0.5), curvature=first[1])
            descent.keep_image(1, 1)
            results.append((first, second, descent.measure(np.zeros(2), 1), descent.measure(np.array([0.3, -0.2]), 1)))
        for ours, theirs in zip(*(r[:2] for r in results), strict=True):
            for found, expected in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
        for ours, theirs in zip(*(r[2:] for r in results), strict=True):
            for found, expected in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sweeps_over_many_rows_are_those_of_the_twin_on_any_number_of_threads(instruction_set, threads):
    features, data = tall_table(1)
    assert len(data.distinct) > 4 * 64 * 64  # four strips
    rng = np.random.default_rng(1)
    n = len(features)
    penalty = penalties(n, 1)
    start = np.where(rng.random(n) < 0.4, 0, rng.normal(0, 0.5, n))
    with using(instruction_set):
        native, twin = descents(features, data, threads)
        order = native.spread_out(rng.permutation(n).astype(np.int32))
        results = []
        for descent in (native, twin):
            descent.set_weights(start, threads)
            first = sweep(descent, order, penalty, start, threads=threads)
            descent.keep_image(0, threads)
            second = sweep(descent, order[::-1].copy(), penalty, first[0], refresh=False, curvature=first[1], threads=threads)
            results.append((*first, *second, *descent.measure(np.array([0.3]), threads)))
        for found, expected in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=0.05)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("table", [random_table, tall_table])
def test_slopes_are_those_of_the_objective(instruction_set, table):
    features, data = table(5)
    objective = PseudoLikelihood(features, data)
    rng = np.random.default_rng(5)
    w = rng.normal(0, 0.7, len(features))
    _, gradient, diagonal = objective.evaluate(w, curvature=True)
    with using(instruction_set):
        for descent in descents(features, data):
            descent.set_weights(w, 1)
            none = np.zeros(len(w))
            _, curvature, slope, _ = sweep(descent, np.arange(len(w), dtype=np.int32), (none, none, none), w, least=(np.inf, np.inf))
            close = 1e-6 * data.total_weight  # no step is taken, so that all are at the same weights
            np.testing.assert_allclose(slope, gradient, atol=max(2e-3, close))
            assert (curvature <= diagonal + max(1e-2, close)).all()


def test_moving_the_state_equals_building_it_anew():
    features, data = random_table(6)
    rng = np.random.default_rng(6)
    penalty = penalties(len(features), 6)
    for descent in descents(features, data):
        w = rng.normal(0, 0.3, len(features))
        descent.set_weights(w, 1)
        directions = []
        for k in range(2):
            after = sweep(descent, rng.permutation(len(w)).astype(np.int32), penalty, w)[0]
            descent.keep_image(k, 1)
            directions.append(after - w)
            w = after
        extra = np.where(rng.random(len(w)) < 0.2, rng.normal(0, 0.1, len(w)), 0)
        gone = np.where(rng.random(len(w)) < 0.2, directions[0], 0)
        descent.correct_image(0, gone, 1)
        directions[0] = directions[0] - gone
        amounts = np.array([0.5, -0.25])
        expected = w + amounts @ directions + extra
        descent.move(amounts, 1, extra, 1)
        moved = descent.measure(np.zeros(2), 1)
        descent.set_weights(expected, 1)
        descent.set_image(0, directions[0], 1)
        descent.set_image(1, directions[1] + expected - w, 1)
        for found, anew in zip(moved, descent.measure(np.zeros(2), 1), strict=True):
            np.testing.assert_allclose(found, anew, rtol=1e-3, atol=1e-2)
        assert moved[0] == pytest.approx(PseudoLikelihood(features, data).evaluate(expected)[0], rel=1e-5)


def test_slopes_along_directions_are_those_of_the_value():
    features, data = random_table(7)
    rng = np.random.default_rng(7)
    native, twin = descents(features, data)
    for descent, h, close in ((twin, 1e-4, 1e-6), (native, 3e-2, 1e-2)):
        descent.set_weights(rng.normal(0, 0.3, len(features)), 1)
        for k in range(3):
            descent.keep_image(k, 1)
            descent.set_image(k, rng.normal(0, 0.1, len(features)), 1)
        at = np.array([0.1, -0.2, 0.05])
        _, slope, hessian = descent.measure(at, 1)
        for k, e in enumerate(np.eye(3)):
            up, down = descent.measure(at + h * e, 1), descent.measure(at - h * e, 1)
            assert slope[k] == pytest.approx((up[0] - down[0]) / (2 * h), rel=close, abs=close * 20)
            np.testing.assert_allclose(hessian[k], (up[1] - down[1]) / (2 * h), rtol=close * 10, atol=close * 100)


def test_the_order_holds_every_feature_once_and_spreads_variables():
    rng = np.random.default_rng(8)
    domain = Domain.from_sizes([2] * 30)
    lists = [sorted(2 * rng.choice(30, 3, replace=False) + 1) for _ in range(400)]
    features, data = FeatureSet.from_lists(lists, domain), Dataset(domain, rng.integers(0, 2, (50, 30)))
    native, twin = descents(features, data)
    order = rng.permutation(400).astype(np.int32)
    spread = native.spread_out(order)
    np.testing.assert_array_equal(spread, twin.spread_out(order))
    np.testing.assert_array_equal(np.sort(spread), np.arange(400))

    def clashes(order):
        return sum(bool(set(lists[a]) & set(lists[b])) for a, b in zip(order, order[1:], strict=False))

    assert clashes(spread) < 0.3 * clashes(order)


# -- the solver against others
def solve(features, data, penalty, tol=1e-8, start=None, solver="descent", threads=1, **kwargs):
    objective = PseudoLikelihood(features, data, threads)
    start = np.zeros(len(features)) if start is None else start
    return minimise(objective, penalty, start, tol=tol, solver=solver, **kwargs)


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_the_optimum_of_the_plain_solver(seed):
    features, data = random_table(seed)
    l1, ridge, centre = penalties(len(features), seed)
    for penalty in (Penalty(l1, ridge, centre), Penalty(1.0, 0.5), Penalty(0.0, ridge)):
        found, plain = solve(features, data, penalty), solve(features, data, penalty, solver="plain")
        assert found.stopped_by is StoppedBy.TOLERANCE
        assert found.violation <= 1e-8
        assert found.objective == pytest.approx(plain.objective, rel=1e-9)
        np.testing.assert_allclose(found.weights, plain.weights, atol=1e-3)
        np.testing.assert_array_equal(found.weights == 0, np.abs(plain.weights) < 1e-9)


@settings(max_examples=25)
@given(problems(), st.floats(0, 2), st.floats(0.05, 5), st.integers(0, 100))
def test_it_finds_the_optimum_of_any_small_problem(problem, l1, ridge, seed):
    check_optimum(*problem, l1, ridge, seed)


@pytest.mark.slow
@settings(max_examples=3000)
@given(problems(), st.floats(0, 2), st.floats(0.05, 5), st.integers(0, 100))
def test_it_finds_the_optimum_of_thousands_of_problems(problem, l1, ridge, seed):
    check_optimum(*problem, l1, ridge, seed)


def check_optimum(network, table, l1, ridge, seed):
    """The objective of the plain solver, from random weights, with a random centre."""
    rng = np.random.default_rng(seed)
    n = len(network.features)
    penalty = Penalty(l1, np.full(n, ridge), rng.normal(0, 1, n))
    start = np.where(rng.random(n) < 0.5, 0, rng.normal(0, 1, n))
    found = solve(network.features, table, penalty, 1e-6, start)
    plain = solve(network.features, table, penalty, 1e-6, start, solver="plain")
    assert found.violation <= 1e-6
    assert found.objective == pytest.approx(plain.objective, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("k", [0, 3, 6])
def test_it_finds_known_optima(k, spec_folder):
    import json

    from undirected import MarkovNetwork, read_data

    known = json.loads((spec_folder / "fixtures" / "fixtures.json").read_text())[k]
    network = MarkovNetwork.load(spec_folder / "fixtures" / known["features"])
    train = read_data(f"{known['data']}:{known['split']}", domain=network.domain)
    fit = fit_weights(network.features, train, known["l1"], known["sd"], tol=1e-8, solver="descent")
    assert fit.converged
    assert fit.objective == pytest.approx(known["objective"], rel=1e-6)
    assert fit.n_nonzero == known["n_nonzero"]


# -- laws
@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_the_number_of_threads_changes_no_bit(l1):
    features, data = tall_table(2, n_features=400)
    fits = [solve(features, data, Penalty(l1, 0.5), 1e-7, threads=t) for t in (1, 2, 5)]
    assert fits[0].iterations > 5
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.weights, fits[0].weights)
        assert fit.iterations == fits[0].iterations


def test_the_objective_is_never_above_the_start(case):
    features, data = case
    rng = np.random.default_rng(3)
    penalty = Penalty(0.5, 0.2)
    for scale in (0.01, 1.0, 5.0):
        start = rng.normal(0, scale, len(features))
        before = penalty.add_value(PseudoLikelihood(features, data).evaluate(start)[0], start)
        for sweeps in (0, 1, 2, 5):
            assert solve(features, data, penalty, 1e-9, start, max_iterations=sweeps).objective <= before * (1 + 1e-9)


def test_a_start_at_the_optimum_ends_at_once(case):
    features, data = case
    first = solve(features, data, Penalty(1.0, 0.5), 1e-6)
    again = solve(features, data, Penalty(1.0, 0.5), 1e-5, first.weights)
    assert again.iterations == 0
    np.testing.assert_array_equal(again.weights, first.weights)


def test_an_enormous_ridge_holds_weights_at_their_centre(case):
    features, data = case
    n = len(features)
    centre = np.random.default_rng(4).normal(0, 0.3, n)
    held = np.arange(n) % 3 == 0
    found = solve(features, data, Penalty(0.0, np.where(held, 1e12, 1.0), centre), 1e-6, centre)
    np.testing.assert_allclose(found.weights[held], centre[held], atol=1e-8)
    assert np.abs(found.weights[~held] - centre[~held]).max() > 0.01


def test_a_centre_at_the_optimum_changes_nothing(case):
    features, data = case
    best = solve(features, data, Penalty(1.0, 0.0, None), 1e-7)
    again = solve(features, data, Penalty(1.0, 50.0, best.weights), 1e-7)
    np.testing.assert_allclose(again.weights, best.weights, atol=1e-4)


def test_a_path_goes_from_setting_to_setting(case):
    features, data = case
    grid = [(0.0, 1.0), (1.0, 1.0), (5.0, 0.5)]
    fits = fit_path(features, data, grid, tol=1e-6, solver="descent")
    for fit, (l1, sd) in zip(fits, grid, strict=True):
        assert fit.objective == pytest.approx(fit_weights(features, data, l1, sd, tol=1e-6, solver="quasi-newton").objective, rel=1e-6)


# -- ends before the end
def test_time_and_ctrl_c_return_what_there_is(case, monkeypatch):
    features, data = case
    monkeypatch.setattr(coordinate_descent, "SLICE", 2000)
    start = np.zeros(len(features))
    penalty = Penalty(0.5, 0.5)
    before = penalty.add_value(PseudoLikelihood(features, data).evaluate(start)[0], start)
    out = solve(features, data, penalty, 1e-9, start, work=Work.start(time_budget=30, clock=Clock(1.0)))
    assert out.stopped_by is StoppedBy.TIME
    assert out.objective < before
    assert out.objective == pytest.approx(penalty.add_value(PseudoLikelihood(features, data).evaluate(out.weights)[0], out.weights))

    def interrupt(step):
        if step.iteration == 3:
            raise KeyboardInterrupt

    with pytest.warns(Unconverged, match="stopped by interrupt"):
        fit = fit_weights(features, data, tol=1e-9, solver="descent", progress=interrupt)
    assert fit.stopped_by == "interrupt"
    assert fit.iterations == 3


def test_where_single_precision_ends_the_other_solver_goes_on(case):
    features, data = case
    seen = []
    out = solve(features, data, Penalty(0.0, 0.01), 1e-10, work=Work.start(progress=seen.append))
    assert out.violation <= 1e-10
    sweeps = next(k for k, (a, b) in enumerate(zip(seen, seen[1:], strict=False)) if b.iteration < a.iteration)
    assert seen[sweeps].violation > 1e-10


def test_an_objective_that_only_seems_to_fall_ends_the_sweeps(case, monkeypatch):
    features, data = case
    honest = coordinate_descent._Run.accelerate  # values are right for as long as the state is
    monkeypatch.setattr(coordinate_descent._Run, "accelerate", lambda run: honest(run) - run.sweeps)  # lower and lower, as drift makes it
    seen = []
    out = solve(features, data, Penalty(0.0, 1.0), 1e-10, work=Work.start(progress=seen.append))
    sweeps = next(k for k, (a, b) in enumerate(zip(seen, seen[1:], strict=False)) if b.iteration < a.iteration)
    last = seen[sweeps].iteration
    assert 1 < last < 1000
    assert last % coordinate_descent.REBUILD_EVERY == 1  # the value of a state that was just computed anew tells
    assert out.violation <= 1e-10


@pytest.mark.parametrize("near", [True, False])
def test_what_single_precision_says_is_not_believed_at_the_end(case, monkeypatch, near):
    features, data = case
    honest = PseudoLikelihood.evaluate
    lies = []

    def evaluate(self, weights, single=False, curvature=False):  # in single precision all is well, or nothing is
        loss, gradient, diagonal = honest(self, weights, single, curvature)
        lies.append(single)
        return loss, (0.0 if near else 0.9e-6 * data.total_weight) * np.ones_like(gradient) if single else gradient, diagonal

    monkeypatch.setattr(PseudoLikelihood, "evaluate", evaluate)
    tol = 1e-6 if near else 1e-7
    out = CoordinateDescent(PseudoLikelihood(features, data)).solve(Penalty(), np.zeros(len(features)), tol, Work.start())
    assert any(lies)
    assert out.stopped_by == StoppedBy.TOLERANCE
    assert out.iterations > 3
    gradient = honest(PseudoLikelihood(features, data), out.weights)[1]
    assert np.abs(gradient).max() <= tol * data.total_weight


def test_an_optimum_beyond_single_precision_is_left_alone(case):
    features, data = case
    best = fit_weights(features, data, 0, 1.0, tol=0.9e-8, solver="quasi-newton")
    again = fit_weights(features, data, 0, 1.0, tol=1e-8, solver="descent", start=best.weights)
    assert again.iterations == 0
    assert again.converged
    assert np.array_equal(again.weights, best.weights)


def test_features_that_were_never_visited_get_a_curvature_first(case):
    features, data = case
    objective = PseudoLikelihood(features, data)
    start = objective.independent_start
    _, gradient, curvature = objective.evaluate(start, curvature=True)
    run = _Run(CoordinateDescent(objective), Penalty(0.0, 1.0), start.copy(), 1e-6, Work.start())
    run.state = run.owner.find_state(run.work)
    run.state.set_weights(start, 1)
    run.slope = np.where(np.arange(len(start)) == np.abs(gradient).argmax(), gradient, 0.0)
    run.revisit(np.arange(len(start)), 1, 1, refresh=True)
    moved = np.flatnonzero(run.weights != start)
    assert moved.tolist() == [np.abs(gradient).argmax()]
    assert run.curvature[moved] == pytest.approx(curvature[moved], rel=1e-4)


def test_nothing_to_weigh_and_no_step_to_find():
    empty = PseudoLikelihood(FeatureSet.from_lists([], Domain.from_sizes([2])), Dataset(Domain.from_sizes([2]), [[0], [1]]))
    assert not suits_descent(empty, Penalty(0.0, np.zeros(0)))
    step, expected = find_newton_step(np.ones(2), np.array([[-1e-7, 1.0], [1.0, -1e-7]]) * 1e3)
    assert np.isfinite(step).all()
    assert np.isfinite(expected)


# -- the choice
def test_it_is_chosen_for_many_long_features_where_there_is_room(case, monkeypatch):
    features, data = case
    objective = PseudoLikelihood(features, data)
    assert (features.lengths > 2).mean() > 0.2
    plain = Penalty(0.0, 1.0)
    assert not suits_descent(objective, plain)
    monkeypatch.setattr(coordinate_descent, "LEAST_FEATURES", 149)
    assert suits_descent(objective, plain)
    assert not suits_descent(PseudoLikelihood(features, data, memory=1000), plain)
    assert not suits_descent(PseudoLikelihood(features.subset(features.lengths <= 2), data), plain)
    ours, other = (fit_weights(features, data, 1, 1, tol=1e-5, solver=s) for s in ("auto", "quasi-newton"))
    assert ours.objective == pytest.approx(other.objective, rel=1e-5)
    assert not np.array_equal(ours.weights, other.weights)  # another way to the same end


def test_it_is_chosen_for_hundreds_of_features_under_l1_with_a_weak_ridge(case, monkeypatch):
    features, data = case
    short = PseudoLikelihood(features.subset(features.lengths <= 2), data)
    weak = Penalty(np.where(np.arange(len(short)) % 2, 1.0, 0.0), np.full(len(short), 0.01))
    assert not suits_descent(short, weak)
    monkeypatch.setattr(coordinate_descent, "LEAST_WITH_L1", len(short) - 1)
    assert suits_descent(short, weak)
    assert suits_descent(short, Penalty(1.0))
    assert not suits_descent(short, Penalty(1.0, 4.0))  # strong
    assert not suits_descent(short, Penalty(0.0, 0.01))  # no L1
    assert not suits_descent(PseudoLikelihood(short.features, data, memory=1000), weak)


def test_it_says_what_an_objective_lacks(case):
    with pytest.raises(ParameterError, match="cannot be minimised by coordinate descent: it has no .*start_descent"):
        CoordinateDescent(SumObjective([PseudoLikelihood(*case)]))


def test_it_takes_over_where_the_other_solver_takes_many_steps(case, monkeypatch):
    features, data = case
    monkeypatch.setattr(coordinate_descent, "LEAST_TO_TAKE_OVER", 100)
    monkeypatch.setattr(coordinate_descent, "PATIENCE_WITH_STEPS", 3)
    seen = []
    ours = fit_weights(features, data, 1, 1, progress=seen.append)
    other = fit_weights(features, data, 1, 1, solver="quasi-newton")
    assert ours.converged
    assert ours.objective == pytest.approx(other.objective, rel=1e-5)
    assert [step.iteration for step in seen][:5] == [0, 1, 2, 1, 2]  # three steps, the third unseen, then sweeps
    assert ours.iterations > 3
    with pytest.warns(Unconverged, match="stopped by iterations"):
        assert fit_weights(features, data, 1, 1, max_iterations=5).iterations == 5  # in both together


def test_sweeps_run_on_as_many_threads_as_are_fastest():
    choice, order = ThreadChoice(4), np.arange(80)
    seconds = {4: 2.0, 1: 1.0}
    used = []
    for k in range(90):
        if k == 30:
            seconds = {4: 0.3, 1: 1.0}  # the other work has ended
        parts = choice.share_out(order)
        assert np.array_equal(np.concatenate([part for part, _ in parts]), order)
        used.append([(len(part), threads) for part, threads in parts])
        for part, threads in parts:
            choice.learn(threads, seconds[threads] * len(part), len(part))
    assert used[:7] == [[(80, 4)]] * 4 + [[(10, 1), (70, 4)]] + [[(80, 1)]] * 2
    assert used[27:30] == [[(80, 1)], [(10, 4), (70, 1)], [(80, 1)]]  # tried again, too early
    assert used[51:54] == [[(80, 1)], [(10, 4), (70, 1)], [(80, 4)]]
    assert used[75:78] == [[(80, 4)], [(10, 1), (70, 4)], [(80, 4)]]
    assert [threads for _, threads in ThreadChoice(1).share_out(order)] == [1]


def test_a_judge_ends_the_work_near_the_end_as_far_as_the_last_sweeps_tell(case):
    class Patient:
        """Gives nothing up."""

        tol = 0.0

        def __init__(self, gap):
            self.gap = gap

        def begin(self, weights):
            assert len(weights) == len(features)

        def is_hopeless(self, weights, near):
            return False

    features, data = case
    objective = PseudoLikelihood(features, data)
    start = objective.independent_start
    penalty = Penalty(1.0, 0.1)
    end = CoordinateDescent(objective).solve(penalty, start, 1e-8, Work.start())
    for gap in (1e-3, 1e-4, 1e-5):
        out = CoordinateDescent(objective).solve(penalty, start, 1e-8, Work.start(), judge=Patient(gap))
        assert out.stopped_by == "close"
        assert out.iterations < end.iterations
        found = (out.objective - end.objective) / end.objective
        assert gap / 10 < found < 5 * gap  # an estimate may be off
    assert CoordinateDescent(objective).solve(penalty, start, 1e-8, Work.start(), judge=Patient(0.0)).stopped_by == "tolerance"


def test_directions_without_the_weights_that_cross_zero_keep_their_images(case, monkeypatch):
    """What the state says of a point along the directions is the loss there, computed from the weights alone."""
    features, data = case
    objective = PseudoLikelihood(features, data, threads=1)
    left_out, find_amounts, leave_out = [], _Run.find_amounts, _Run.leave_out

    def note(run, marked):
        left_out.append(int((marked & (run.weights != 0)).sum()))
        leave_out(run, marked)

    def compare(run):
        amounts, value = find_amounts(run)
        along = np.linspace(0.3, -0.2, len(run.steps))
        expected = objective.evaluate(run.weights + along @ run.steps)[0]
        assert run.state.measure(along, 1)[0] == pytest.approx(expected, rel=1e-5)
        assert not ((run.weights == 0) & (run.steps != 0)).any()
        return amounts, value

    monkeypatch.setattr(_Run, "leave_out", note)
    monkeypatch.setattr(_Run, "find_amounts", compare)
    fit_weights(features, data, l1=3, sd=2, solver="descent", threads=1)
    assert max(left_out) > 0  # weights that are not zero, but would have crossed it


def test_a_newton_step_minimises_its_model_or_is_none():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    hessian, slope = root @ root.T + np.eye(4), rng.normal(size=4)
    step, expected = find_newton_step(slope, hessian)
    assert np.allclose(hessian @ step, -slope, rtol=1e-4)
    assert expected == pytest.approx(-(slope @ step + 0.5 * step @ hessian @ step), rel=1e-4)
    step, expected = find_newton_step(np.full(4, np.nan), hessian)
    assert not step.any()
    assert expected == 0
