"""The metrics of the quasi-Newton solver: against inverses of the exact Hessian, and against other solvers."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import DTSL, Domain, FeatureSet, PseudoLikelihood, datasets, fit_weights
from undirected.weights import coordinate_descent, preconditioner
from undirected.weights.coordinate_descent import suits_descent
from undirected.weights.penalty import Penalty
from undirected.weights.preconditioner import WholeMatrix, mark_main, suits_main_matrix
from undirected.work import Work


@pytest.fixture(scope="module")
def leaves():
    """The leaves of trees, which overlap little, and the rows they were grown on."""
    truth = datasets.random_conjunctions(12, 150, seed=1)
    data = datasets.exact_sample(truth, 3000, seed=2)
    features = DTSL(conversion="default", kappa=1.0).propose(data, Work.start()).features
    return features.union(FeatureSet.atomic(data.domain)), data


def differentiate(objective, weights, step=1e-4):
    """The Hessian of an objective, from differences of its gradient."""
    columns = []
    for k in range(len(weights)):
        there = np.array([weights, weights])
        there[:, k] += (-step, step)
        below, above = (objective.evaluate(w)[1] for w in there)
        columns.append((above - below) / (2 * step))
    return np.array(columns)


@pytest.mark.parametrize("n_marked", [1, 40, 60])
def test_a_whole_matrix_is_the_inverse_for_the_features_marked_and_scales_the_others(leaves, n_marked):
    features, data = leaves[0].subset(np.arange(len(leaves[0])) < 60), leaves[1]
    objective, weights, ridge = PseudoLikelihood(features, data), np.random.default_rng(0).normal(0, 0.3, 60), 50.0
    hessian = differentiate(objective, weights) + ridge * np.eye(60)
    diagonal = objective.evaluate(weights, curvature=True)[2] + ridge
    assert diagonal == pytest.approx(hessian.diagonal(), rel=1e-4)
    marked = np.arange(60) < n_marked
    metric = WholeMatrix(objective, weights, diagonal, ridge, marked, len(data))
    x, y = np.random.default_rng(1).normal(size=(2, 60))
    expected = hessian * np.outer(marked, marked)
    expected[np.diag_indices(60)] = diagonal
    for got, vector in zip(metric.multiply_both(x, y), (x, y), strict=True):
        assert got == pytest.approx(np.linalg.solve(expected, vector), rel=5e-3, abs=5e-5)


def test_the_main_features_are_the_free_ones_of_most_curvature(monkeypatch):
    monkeypatch.setattr(preconditioner, "MAX_WHOLE", 3)
    free = np.array([True, True, False, True, True, True])
    assert mark_main(free, np.array([1.0, 5.0, 9.0, 2.0, 5.0, 0.5])).tolist() == [False, True, False, True, True, False]
    assert mark_main(free & [True, False, True, False, False, False], np.ones(6)).tolist() == [True] + [False] * 5


def test_it_is_taken_for_features_that_hardly_overlap(leaves, monkeypatch):
    features, data = leaves
    objective, pairs = PseudoLikelihood(features, data), PseudoLikelihood(FeatureSet.all_pairs(data.domain), data)
    assert not suits_main_matrix(objective)  # few enough for one matrix of all
    monkeypatch.setattr(preconditioner, "MAX_WHOLE", len(objective) // 2)
    columns, rows = data.distinct.codes.T, len(data.distinct)
    holding = 0
    for literals in features:  # how many contexts of a variable hold in a row, counted here
        holds = [columns[k // 2] == k % 2 for k in literals]
        holding += sum(np.logical_and.reduce(holds[:k] + holds[k + 1 :], initial=True, axis=0).sum() if len(holds) > 1 else rows
                       for k in range(len(holds)))  # fmt: skip
    overlap = holding / rows / len(data.domain)
    monkeypatch.setattr(preconditioner, "MOST_OVERLAP", overlap * 1.001)
    assert suits_main_matrix(objective)
    monkeypatch.setattr(preconditioner, "MOST_OVERLAP", overlap * 0.999)
    assert not suits_main_matrix(objective)
    monkeypatch.setattr(preconditioner, "MOST_OVERLAP", 1e9)
    monkeypatch.setattr(preconditioner, "MAX_WHOLE", 10)
    assert suits_main_matrix(pairs)
    monkeypatch.setattr(preconditioner, "MAX_BESIDE_MAIN", len(pairs) - 1)
    assert not suits_main_matrix(pairs)


def test_then_quasi_newton_steps_come_before_sweeps_unless_priors_are_weak(leaves, monkeypatch):
    objective = PseudoLikelihood(*leaves)
    monkeypatch.setattr(coordinate_descent, "LEAST_FEATURES", 100)
    assert suits_descent(objective, Penalty(0.0, 1.0))
    monkeypatch.setattr(preconditioner, "MAX_WHOLE", len(objective) // 2)
    assert not suits_descent(objective, Penalty(0.0, 1.0))
    assert suits_descent(objective, Penalty(0.0, 0.01))
    monkeypatch.setattr(coordinate_descent, "MAIN_ROWS", objective.n_rows - 1)
    assert suits_descent(objective, Penalty(0.0, 1.0))  # a matrix of some rows says less
    assert suits_descent(objective, Penalty(1.0, 1.0))


@pytest.mark.parametrize("sd", [1.0, 10.0])
@pytest.mark.parametrize("kind", ["binary", "states"])
def test_with_it_the_optimum_is_that_of_the_plain_solver(leaves, monkeypatch, kind, sd):
    features, data = leaves
    if kind == "states":
        domain = Domain.from_sizes([4, 4, 4, 4])
        data = type(data)(domain, data.codes[:, ::3] + 2 * data.codes[:, 1::3])
        features = DTSL(conversion="default", kappa=1.0).propose(data, Work.start()).features.union(FeatureSet.atomic(domain))
    plain = fit_weights(features, data, 0, sd, tol=1e-8, solver="plain", max_iterations=100_000)
    monkeypatch.setattr(preconditioner, "MAX_WHOLE", len(features) // 3)
    monkeypatch.setattr("undirected.weights.quasi_newton.MAX_WHOLE", len(features) // 3)
    monkeypatch.setattr("undirected.weights.quasi_newton.MAX_WHOLE_LATE", len(features) // 3)
    built = []
    honest = preconditioner.WholeMatrix.__init__
    monkeypatch.setattr(preconditioner.WholeMatrix, "__init__", lambda self, *args: built.append(args[4].sum()) or honest(self, *args))
    fits = [fit_weights(features, data, 0, sd, tol=1e-8, solver="quasi-newton", threads=threads) for threads in (1, 2)]
    assert built
    assert max(built) <= len(features) // 3
    assert plain.converged
    assert fits[0].converged
    assert fits[0].objective == pytest.approx(plain.objective, rel=1e-9)
    assert np.array_equal(fits[0].weights, fits[1].weights)
