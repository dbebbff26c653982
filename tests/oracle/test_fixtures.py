"""Optima known to nine digits, and other programs on the same quantity."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.optimize

from undirected import MarkovNetwork, PseudoLikelihood, datasets, fit_path, fit_weights, read_data
from undirected.weights.penalty import Penalty
from undirected.weights.plain import solve_plain
from undirected.work import Work


@pytest.mark.parametrize("k", range(10))
def test_known_optimum(k, spec_folder):
    case = json.loads((spec_folder / "fixtures" / "fixtures.json").read_text())[k]
    network = MarkovNetwork.load(spec_folder / "fixtures" / case["features"])
    train = read_data(f"{case['data']}:{case['split']}", domain=network.domain)
    fit = fit_weights(network.features, train, case["l1"], case["sd"], tol=1e-8)
    assert fit.converged
    assert fit.objective == pytest.approx(case["objective"], rel=1e-9)
    assert fit.n_nonzero == case["n_nonzero"]
    test = read_data(f"{case['data']}:test", domain=network.domain)
    assert fit.network().pll(test) == pytest.approx(case["test_pll"], abs=1e-6)


@pytest.fixture(scope="module")
def ising():
    truth = datasets.grid_ising(3, 4, seed=3)
    return truth, datasets.exact_sample(truth, 3000, seed=4)


@pytest.mark.parametrize(("l1", "sd"), [(0.0, 1.0), (2.0, 0.5), (1.0, float("inf"))])
def test_solver_agrees_with_plain_quasi_newton(ising, l1, sd):
    truth, data = ising
    ours = fit_weights(truth.features, data, l1, sd, tol=1e-9)
    plain = fit_weights(truth.features, data, l1, sd, tol=1e-8, solver="plain")
    assert ours.objective == pytest.approx(plain.objective, rel=1e-12)
    np.testing.assert_allclose(ours.weights, plain.weights, atol=1e-5)


def test_plain_quasi_newton_agrees_with_scipy(ising):
    truth, data = ising
    objective = PseudoLikelihood(truth.features, data)

    def smooth(w):
        loss, gradient, _ = objective.evaluate(w)
        return loss + w @ w / 2, gradient + w

    start = np.zeros(len(truth.features))
    expected = scipy.optimize.minimize(smooth, start, jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-6, "maxiter": 5000})
    found = solve_plain(objective, Penalty(ridge=1.0), start, 1e-8, Work.start())
    assert found.objective == pytest.approx(expected.fun, rel=1e-11)


def test_pairwise_fit_agrees_with_scikit_learn():
    """With one variable predicted and the others constant in no feature, a pseudo-likelihood term is a logistic regression."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(400, 4))
    y = (rng.random(400) < 1 / (1 + np.exp(0.5 - x @ [1.5, -1.0, 0.5, 0.0]))).astype(int)
    table = read_data(np.column_stack([y, x]))
    from undirected import FeatureSet

    rows = [[1]] + [[1, 2 * v + 1] for v in range(1, 5)]
    features = FeatureSet.from_lists(rows, table.domain)
    objective = PseudoLikelihood(features, table)
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(x, y)
    w = np.concatenate([model.intercept_, model.coef_[0]])
    _, by_variable = objective.score_terms(w)
    expected = np.log(model.predict_proba(x)[np.arange(400), y]).sum()
    assert by_variable[0] == pytest.approx(expected, rel=1e-9)


def test_path_equals_single_fits(ising):
    truth, data = ising
    settings = [(l1, sd) for l1 in (1, 5) for sd in (0.1, 1.0)]
    for fit, (l1, sd) in zip(fit_path(truth.features, data, settings, tol=1e-9), settings, strict=True):
        assert (fit.l1, fit.sd) == (l1, sd)
        assert fit.objective == pytest.approx(fit_weights(truth.features, data, l1, sd, tol=1e-9).objective, rel=1e-12)


def test_weights_recover_the_truth():
    truth = datasets.grid_ising(3, 3, coupling=0.4, seed=1)
    data = datasets.exact_sample(truth, 100_000, seed=2)
    fit = fit_weights(truth.features, data, sd=100)
    assert np.abs(fit.weights - truth.weights).max() < 0.12


def test_exact_samples_follow_the_distribution():
    truth = datasets.random_conjunctions(4, 8, n_states=3, seed=5)
    sample = datasets.exact_sample(truth, 200_000, seed=6)
    grids = np.meshgrid(*[np.arange(3)] * 4, indexing="ij")
    rows = np.stack([g.ravel() for g in grids], axis=1)
    from undirected import Dataset

    scores = truth.log_score(Dataset(truth.domain, rows))
    p = np.exp(scores - np.logaddexp.reduce(scores))
    found = np.bincount(sample.codes @ [27, 9, 3, 1], minlength=81) / len(sample)
    assert np.abs(found - p).max() < 5 * np.sqrt(p.max() / len(sample))
