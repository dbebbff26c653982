"""Penalties for each feature, sums over shards, and what solvers ask of an objective."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from undirected import FeatureError, FeatureSet, ParameterError, PseudoLikelihood, datasets
from undirected.weights.fit import fit_weights, minimise
from undirected.weights.nodewise import solve_nodewise
from undirected.weights.objective import CurvedObjective, Objective, SeparableObjective, check_needs
from undirected.weights.penalty import Penalty
from undirected.weights.sum_objective import SumObjective
from undirected.work import StoppedBy, Work


@pytest.fixture(scope="module")
def case():
    truth = datasets.random_conjunctions(9, 40, seed=1)
    return truth.features, datasets.exact_sample(truth, 1500, seed=2)


@pytest.fixture(scope="module", params=["binary", "several states"])
def shards(request):
    """An objective, and the same as a sum over three parts of its rows, with weights of rows."""
    rng = np.random.default_rng(5)
    if request.param == "binary":
        truth = datasets.random_conjunctions(8, 50, seed=3)
    else:
        truth = _several_states()
    data = datasets.exact_sample(truth, 900, seed=4)
    data = type(data)(data.domain, data.codes, rng.choice([0.5, 1.0, 2.0], len(data)))
    parts = [data.subset(np.arange(a, b)) for a, b in ((0, 100), (100, 500), (500, 900))]
    return PseudoLikelihood(truth.features, data), SumObjective([PseudoLikelihood(truth.features, part) for part in parts])


def _several_states():
    from undirected import Domain, MarkovNetwork

    domain = Domain.from_sizes([2, 3, 4, 2, 3])
    features = FeatureSet.all_pairs(domain)
    return MarkovNetwork(features, np.random.default_rng(1).normal(size=len(features)))


def minimise_by_scipy(objective, penalty):
    """The same minimum from another program: weights split into their positive and negative parts, so that L1 is smooth."""
    n = len(objective)

    def value(z):
        w = z[:n] - z[n:]
        loss, gradient, _ = objective.evaluate(w)
        centre = 0 if penalty.centre is None else penalty.centre
        smooth = gradient + penalty.ridge * (w - centre)
        total = loss + (0.5 * penalty.ridge * (w - centre) ** 2).sum() + (penalty.l1 * (z[:n] + z[n:])).sum()
        return total, np.concatenate([smooth + penalty.l1, penalty.l1 - smooth])

    bounds = [(0, None)] * (2 * n)
    options = {"maxiter": 5000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-7}
    out = scipy.optimize.minimize(value, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return out.x[:n] - out.x[n:], float(out.fun)


PENALTIES = {
    "one ridge": lambda n, rng: Penalty(ridge=1.0),
    "a ridge for each": lambda n, rng: Penalty(ridge=rng.uniform(0.1, 5, n)),
    "a centre": lambda n, rng: Penalty(ridge=2.0, centre=rng.normal(size=n)),
    "l1 for each": lambda n, rng: Penalty(rng.choice([0.0, 3.0, 15.0], n), 0.5),
    "all for each": lambda n, rng: Penalty(rng.choice([0.0, 2.0, 10.0], n), rng.uniform(0.1, 5, n), rng.normal(size=n)),
}


@pytest.mark.parametrize("solver", ["auto", "plain"])
@pytest.mark.parametrize("kind", PENALTIES)
def test_any_penalty_leads_to_its_minimum(case, kind, solver):
    objective = PseudoLikelihood(*case)
    penalty = PENALTIES[kind](len(objective), np.random.default_rng(3))
    out = minimise(objective, penalty, objective.independent_start, tol=1e-8, solver=solver)
    assert out.stopped_by is StoppedBy.TOLERANCE
    weights, value = minimise_by_scipy(objective, penalty)
    assert out.objective == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(out.weights, weights, atol=2e-4)


@pytest.mark.parametrize("kind", PENALTIES)
def test_the_certificate_is_the_smallest_subgradient(case, kind):
    """By its definition, entry by entry, at the optimum and away from it."""
    objective = PseudoLikelihood(*case)
    rng = np.random.default_rng(4)
    penalty = PENALTIES[kind](len(objective), rng)
    out = minimise(objective, penalty, np.zeros(len(objective)), tol=1e-7)
    for w in (out.weights, rng.normal(size=len(objective)) * (rng.random(len(objective)) < 0.5)):
        loss, gradient, _ = objective.evaluate(w)
        smooth = gradient + penalty.ridge * (w - (0 if penalty.centre is None else penalty.centre))
        l1 = np.broadcast_to(penalty.l1, len(w))
        expected = [
            g + p * np.sign(x) if x else min((g + t * p for t in np.linspace(-1, 1, 20001)), key=abs)
            for g, p, x in zip(smooth, l1, w, strict=True)
        ]
        found = penalty.subgradient(w, penalty.add_gradient(gradient, w))
        np.testing.assert_allclose(found, expected, atol=2e-3 * (1 + l1.max()))
        value = loss + (l1 * np.abs(w)).sum() + (0.5 * penalty.ridge * (w - (0 if penalty.centre is None else penalty.centre)) ** 2).sum()
        assert penalty.add_value(loss, w) == pytest.approx(value, rel=1e-12)
        if w is out.weights:
            assert np.abs(found).max() / objective.total_weight == pytest.approx(out.violation, rel=1e-6)


def test_arrays_of_equal_penalties_equal_numbers(case):
    objective = PseudoLikelihood(*case)
    n, start = len(objective), objective.independent_start
    one = minimise(objective, Penalty(3.0, 0.5), start, tol=1e-8)
    each = minimise(objective, Penalty(np.full(n, 3.0), np.full(n, 0.5), np.zeros(n)), start, tol=1e-8)
    np.testing.assert_allclose(each.weights, one.weights, atol=1e-6)
    np.testing.assert_array_equal(each.weights == 0, one.weights == 0)


def test_bad_penalties_are_refused(case):
    objective = PseudoLikelihood(*case)
    start = objective.independent_start
    for bad, message in (
        (Penalty(np.ones(3)), "l1 must be a number or 40"),
        (Penalty(ridge=np.full(40, -1.0)), "negative"),
        (Penalty(-1.0), "l1=-1"),
        (Penalty(ridge=1.0, centre=np.full(40, np.nan)), "centre must be"),
    ):
        with pytest.raises(ParameterError, match=message):
            minimise(objective, bad, start)


class TestSums:
    def test_values_gradients_and_curvature_are_those_of_the_whole(self, shards):
        whole, parts = shards
        w = np.random.default_rng(1).normal(size=len(whole))
        for ours, theirs in zip(parts.evaluate(w, curvature=True), whole.evaluate(w, curvature=True), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-8)
        assert parts.pll(w) == pytest.approx(whole.pll(w), rel=1e-12)
        assert parts.total_weight == whole.total_weight
        np.testing.assert_array_equal(parts.independent_start, whole.independent_start)
        active = np.random.default_rng(2).random(len(whole)) < 0.4
        for objective in (parts, whole):
            objective.restrict(active)
        np.testing.assert_allclose(parts.evaluate(w)[1][active], whole.evaluate(w)[1][active], rtol=1e-10, atol=1e-8)
        for objective in (parts, whole):
            objective.restrict(None)

    def test_blocks_of_curvature_are_those_of_the_whole(self, shards):
        """With all rows in the sample the parts' blocks add up to those of the whole; so do their inverses."""
        whole, parts = shards
        w = np.random.default_rng(1).normal(size=len(whole))
        free = np.ones(len(whole), dtype=bool)
        diagonal = whole.evaluate(w, curvature=True)[2] + 0.7
        blocks = whole.list_blocks(free, 16)
        for objective in (whole, parts):
            objective.sample_curvature(w, 10_000)
        for block in blocks:
            np.testing.assert_allclose(parts.block_curvature(block), whole.block_curvature(block), rtol=1e-3, atol=1e-2)
        x, y = np.random.default_rng(3).normal(size=(2, len(whole))).astype(np.float32)
        ours = parts.invert_blocks(blocks, diagonal, 0.7).multiply_both(x, y)
        theirs = whole.invert_blocks(blocks, diagonal, 0.7).multiply_both(x, y)
        np.testing.assert_allclose(ours, theirs, rtol=5e-3, atol=5e-3 * np.abs(theirs).max())

    @pytest.mark.parametrize(("l1", "sd"), [(0.0, 1.0), (4.0, 0.7)])
    def test_a_fit_of_the_sum_is_the_fit_of_the_whole(self, shards, l1, sd):
        whole, parts = shards
        expected = minimise(whole, Penalty.from_prior(l1, sd), whole.independent_start, tol=1e-8)
        found = minimise(parts, Penalty.from_prior(l1, sd), parts.independent_start, tol=1e-8)
        assert found.stopped_by is StoppedBy.TOLERANCE
        assert found.objective == pytest.approx(expected.objective, rel=1e-10)
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-4)
        assert found.iterations < 3 * expected.iterations + 10

    def test_the_number_of_threads_changes_no_bit(self, case):
        features, data = case
        found = []
        for threads in (1, 3):
            parts = [PseudoLikelihood(features, data.subset(np.arange(k, len(data), 2)), threads) for k in (0, 1)]
            found.append(minimise(SumObjective(parts), Penalty(1.0, 1.0), np.zeros(len(features))).weights)
        np.testing.assert_array_equal(*found)

    def test_sums_that_cannot_be(self, case):
        features, data = case
        with pytest.raises(ParameterError, match="at least one"):
            SumObjective([])
        with pytest.raises(FeatureError, match="same features"):
            SumObjective([PseudoLikelihood(features, data), PseudoLikelihood(features.subset(np.arange(5)), data)])


class Bare:
    """The least that an objective can be: a quadratic function without any other method."""

    threads, total_weight = 1, 10.0

    def __len__(self):
        return 3

    def evaluate(self, weights, single=False, curvature=False):
        scale = np.array([1.0, 2.0, 3.0])
        return float((scale * (weights - 1) ** 2).sum()), 2 * scale * (weights - 1), 2 * scale

    def restrict(self, active):
        assert active is None

    @property
    def evaluation_cost(self):
        return 1e-6


class TestNeeds:
    def test_a_solver_says_what_an_objective_lacks(self, case):
        with pytest.raises(ParameterError, match="Bare cannot be minimised by the quasi-Newton solver: it has no block_curvature, density"):
            minimise(Bare(), Penalty(), np.zeros(3))
        with pytest.raises(ParameterError, match="SumObjective .* by separate regressions: it has no n_terms, newton_steps"):
            solve_nodewise(SumObjective([PseudoLikelihood(*case)]), np.zeros(40), np.zeros(40), 1e-5, Work.start(), 18)

    def test_the_plain_solver_needs_no_more_than_values(self):
        out = minimise(Bare(), Penalty(np.array([0.0, 1.0, 100.0])), np.zeros(3), solver="plain", tol=1e-9)
        np.testing.assert_allclose(out.weights, [1.0, 0.75, 0.0], atol=1e-6)

    @pytest.mark.parametrize("needs", [Objective, CurvedObjective, SeparableObjective])
    def test_the_objective_of_tables_has_all_of_it(self, case, needs):
        check_needs(PseudoLikelihood(*case), needs, "anything")


def test_the_score_of_prepared_rows_is_that_of_the_network(case):
    """To the bit: validation rows are prepared once, and scores must not depend on that."""
    features, data = case
    fit = fit_weights(features, data, 1.0, 1.0)
    assert PseudoLikelihood(features, data).pll(fit.weights) == fit.network().pll(data)
