"""Fitting weights: bad parameters, early stops, odd tables."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import (  # fmt: skip
    DataError,
    Dataset,
    Domain,
    FeatureError,
    FeatureSet,
    ParameterError,
    PseudoLikelihood,
    Unconverged,
    datasets,
    fit_path,
    fit_weights,
    read_data,
)
from undirected.weights.penalty import Penalty
from undirected.work import Stopped, StoppedBy


@pytest.fixture(scope="module")
def case():
    truth = datasets.random_conjunctions(9, 60, seed=1)
    return truth.features, datasets.exact_sample(truth, 2000, seed=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sd": 0}, "sd=0"),
        ({"sd": -1}, "sd=-1"),
        ({"sd": float("nan")}, "sd=nan"),
        ({"l1": -1}, "l1=-1"),
        ({"l1": float("inf")}, "l1=inf"),
        ({"tol": 0}, "tol=0"),
        ({"threads": 0}, "threads=0"),
        ({"solver": "magic"}, "solver='magic'"),
        ({"start": [1, 2]}, "60 finite weights"),
    ],
)
def test_bad_parameters(case, changes, message):
    with pytest.raises(ParameterError, match=message):
        fit_weights(*case, **changes)


def test_bad_parameters_are_told_before_a_table_is_read(case):
    with pytest.raises(ParameterError, match="l1=-1"):
        fit_weights(case[0], "nowhere.csv", l1=-1)


def test_missing_cells_are_an_error(case):
    features, data = case
    codes = data.codes.copy()
    codes[5, 3] = -1
    with pytest.raises(DataError, match="row 6, column 'v3'.*--missing drop"):
        fit_weights(features, Dataset(data.domain, codes))


def test_other_domain_is_an_error(case):
    features, data = case
    with pytest.raises(FeatureError, match="different domains"):
        PseudoLikelihood(FeatureSet.atomic(Domain.from_sizes([3] * 9)), data)
    with pytest.raises(DataError, match="where 9 are needed"):
        fit_weights(features, np.zeros((3, 4)))


def test_time_budget_and_iterations_return_the_best_so_far(case):
    features, data = case
    best = fit_weights(features, data)
    start = PseudoLikelihood(features, data)
    initial = start.evaluate(start.independent_start)[0]
    for limits, reason in (({"time_budget": 0.0}, "time"), ({"max_iterations": 3}, "iterations")):
        with pytest.warns(Unconverged, match=f"stopped by {reason}"):
            fit = fit_weights(features, data, sd=1e6, tol=1e-12, **limits)
        assert fit.stopped_by == reason
        assert not fit.converged
        assert fit.objective <= initial + 1e-9
    assert best.report()["stopped_by"] == "tolerance"


def test_interrupt_keeps_the_best_so_far(case):
    features, data = case

    def interrupt(step):
        if step.iteration == 5:
            raise KeyboardInterrupt

    with pytest.warns(Unconverged, match="stopped by interrupt"):
        fit = fit_weights(features, data, tol=1e-12, progress=interrupt)
    assert fit.stopped_by == "interrupt"
    objective = PseudoLikelihood(features, data)
    assert fit.objective < objective.evaluate(objective.independent_start)[0]
    with pytest.warns(Unconverged, match="stopped by interrupt"):
        fits = fit_path(features, data, [(0, 1), (1, 1), (2, 1)], tol=1e-12, progress=interrupt)
    assert [f.stopped_by for f in fits] == ["interrupt"] * 3
    assert all(np.isfinite(f.violation) for f in fits)


@pytest.mark.parametrize(("error", "reason"), [(Stopped, "time"), (KeyboardInterrupt, "interrupt")])
def test_without_time_to_prepare_features_variables_are_independent(case, monkeypatch, error, reason):
    features, data = case

    def prepare(*args, **kwargs):
        raise error(StoppedBy.TIME)

    monkeypatch.setattr("undirected.weights.fit.PseudoLikelihood", prepare)
    with pytest.warns(Unconverged, match=f"stopped by {reason} at a violation of inf"):
        fits = fit_path(features, data, [(0, 1), (1, 2)])
    objective = PseudoLikelihood(features, data)
    for fit, l1, sd in zip(fits, (0, 1), (1, 2), strict=True):
        assert fit.stopped_by == reason
        np.testing.assert_array_equal(fit.weights, objective.independent_start)
        value = objective.evaluate(fit.weights)[0] + l1 * np.abs(fit.weights).sum() + (fit.weights**2).sum() / (2 * sd**2)
        assert fit.objective == pytest.approx(value, rel=1e-9)
    start = np.arange(len(features)) / 10.0
    with pytest.warns(Unconverged, match=f"stopped by {reason}"):
        fit = fit_weights(features, data, start=start)
    np.testing.assert_array_equal(fit.weights, start)
    assert (fit.objective, fit.violation) == (np.inf, np.inf)  # not known


def test_progress_never_rises(case):
    seen = []
    fit_weights(*case, l1=1, progress=lambda step: seen.append(step.objective))
    assert (np.diff(seen) <= np.abs(seen[0]) * 3e-8).all()


def test_warm_start_from_the_optimum_ends_at_once(case):
    fit = fit_weights(*case, l1=1, tol=1e-7)
    again = fit_weights(*case, l1=1, start=fit.weights)
    assert again.iterations == 0
    np.testing.assert_array_equal(again.weights, fit.weights)


def test_l1_gives_exact_zeros_that_pruning_drops(case):
    fit = fit_weights(*case, l1=20)
    assert 0 < fit.n_nonzero < len(fit.features)
    assert len(fit.network(prune=True).features) == fit.n_nonzero
    assert len(fit.network().features) == len(fit.features)
    assert fit.network(prune=True).pll(case[1]) == pytest.approx(fit.network().pll(case[1]), abs=1e-12)


def test_memory_budget_changes_nothing_but_the_time(case):
    fits = [fit_weights(*case, l1=1, memory=m) for m in (0, 1000, 1 << 30)]
    for fit in fits[1:]:
        assert fit.objective == pytest.approx(fits[0].objective, rel=1e-9)


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((20, 4)),
        np.ones((20, 4)),
        np.array([[0, 1, 0, 1]]),
        np.eye(4),
        np.zeros((5, 1)),
        np.random.default_rng(0).integers(0, 2, size=(3, 40)),
    ],
    ids=["all zero", "all one", "one row", "as many rows as variables", "one variable", "fewer rows than variables"],
)
def test_odd_tables_are_fitted_to_the_optimum(codes):
    data = read_data(codes.astype(int))
    features = FeatureSet.all_pairs(data.domain)
    for l1, sd in ((0, 1), (0.1, 1), (0.5, float("inf"))):
        fit = fit_weights(features, data, l1, sd, tol=1e-7)
        assert fit.converged
        assert np.isfinite(fit.weights).all()
        assert fit.network().pll(data) <= 0


def test_constant_single_state_column():
    data = read_data(np.array([["a", "x"], ["a", "y"], ["a", "y"]]))
    features = FeatureSet.from_texts(["v1=y", "v0=a & v1=y", "v0=a"], data.domain)
    fit = fit_weights(features, data, sd=10, tol=1e-9)
    assert fit.weights[2] == pytest.approx(0, abs=1e-6)  # never changes anything, so the prior holds it
    assert fit.weights[0] == pytest.approx(fit.weights[1], abs=1e-6)


def test_no_features_at_all():
    data = read_data(np.array([[0, 1], [1, 1]]))
    fit = fit_weights(FeatureSet.from_lists([], data.domain), data)
    assert fit.converged
    assert fit.objective == pytest.approx(4 * np.log(2))


def test_zero_weight_rows_count_for_nothing(case):
    features, data = case
    weights = np.ones(len(data))
    weights[::3] = 0
    light = fit_weights(features, Dataset(data.domain, data.codes, weights), tol=1e-9)
    gone = fit_weights(features, data.subset(np.flatnonzero(weights)), tol=1e-9)
    np.testing.assert_array_equal(light.weights, gone.weights)
    with pytest.raises(DataError, match="no row has a weight above zero"):
        fit_weights(features, Dataset(data.domain, data.codes, weights * 0))


def test_never_matched_feature_with_a_context_gets_a_negative_weight():
    data = read_data(np.array([[1, 0], [1, 0], [0, 1], [0, 0]]))
    fit = fit_weights(FeatureSet.from_lists([[1], [3], [1, 3]], data.domain), data)
    assert fit.weights[2] < -0.1


def test_pseudo_gradient_is_the_smallest_subgradient():
    w = np.array([1.0, -1.0, 0.0, 0.0, 0.0])
    g = np.array([0.5, 0.5, 0.5, 3.0, -3.0])
    np.testing.assert_allclose(Penalty(2.0).subgradient(w, g), [2.5, -1.5, 0.0, 1.0, -1.0])
    assert Penalty().subgradient(w, g) is g


def test_plain_solver_keeps_to_the_budget_and_survives_an_interrupt(case):
    with pytest.warns(Unconverged, match="stopped by time"):
        assert fit_weights(*case, tol=1e-12, solver="plain", time_budget=0.0).stopped_by == "time"

    def interrupt(step):
        if step.iteration == 3:
            raise KeyboardInterrupt

    with pytest.warns(Unconverged, match="stopped by interrupt"):
        assert fit_weights(*case, tol=1e-12, solver="plain", progress=interrupt).stopped_by == "interrupt"


def test_two_threads_may_use_one_objective(case):
    from concurrent.futures import ThreadPoolExecutor

    features, data = case
    objective = PseudoLikelihood(features, data, threads=1)
    points = [np.random.default_rng(k).normal(size=len(features)) for k in range(40)]
    expected = [objective.evaluate(w)[0] for w in points]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda w: objective.evaluate(w)[0], points))
    assert found == expected


def test_a_variable_of_many_states_needs_little_memory():
    import tracemalloc

    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, 900, 2000), rng.integers(0, 2, 2000)])
    data = read_data(codes.astype(str), categorical=["v0"])
    tracemalloc.start()
    fit = fit_weights(FeatureSet.all_pairs(data.domain), data, tol=1e-6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fit.converged
    assert peak < 400e6


def test_a_prior_too_narrow_for_arithmetic(case):
    with pytest.raises(ParameterError, match="this narrow"):
        fit_weights(*case, sd=1e-200)
