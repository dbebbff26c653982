"""What every objective must do. An objective joins by being listed here under the protocols that it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import Dataset, Domain, FeatureSet, PseudoLikelihood
from undirected.weights.objective import CoordinateObjective, CurvedObjective, SeparableObjective, check_needs
from undirected.weights.sum_objective import SumObjective


def make_sum(features, data, threads=1):
    cuts = [0, len(data) // 4, len(data)]
    return SumObjective([PseudoLikelihood(features, data.subset(np.arange(a, b)), threads) for a, b in zip(cuts, cuts[1:], strict=False)])


def make_separate(features, data, threads=1):
    """Each feature in the conditional of its first variable alone."""
    return PseudoLikelihood(features, data, threads, targets=features.variables[features.start[:-1]])


CURVED = {"a table": lambda features, data, threads=1: PseudoLikelihood(features, data, threads), "a sum of shards": make_sum}
BY_COORDINATES = {"a table": CURVED["a table"]}
SEPARABLE = {"separate regressions": make_separate}


@pytest.fixture(scope="module")
def tables():
    """Random rows with weights over variables of two to four states, and features of one to three literals on them."""
    rng = np.random.default_rng(7)
    domain = Domain.from_sizes([2, 3, 2, 4, 2])
    data = Dataset(domain, np.column_stack([rng.integers(0, n, 300) for n in domain.n_states]), rng.choice([1.0, 2.0, 3.0], 300))
    lists = [[int(domain.base[v]) + int(rng.integers(domain.n_states[v])) for v in sorted(rng.choice(5, k, False))] for k in (1, 2, 3) * 8]
    return FeatureSet.from_lists(lists, domain).canonical(), data


@pytest.fixture(params={**CURVED, **SEPARABLE}.items(), ids=lambda item: item[0])
def make(request):
    return request.param[1]


@pytest.mark.parametrize(
    ("makers", "needs"), [(CURVED, CurvedObjective), (BY_COORDINATES, CoordinateObjective), (SEPARABLE, SeparableObjective)]
)
def test_it_has_what_its_solvers_need(makers, needs, tables):
    for make in makers.values():
        check_needs(make(*tables), needs, "its solvers")


def test_the_gradient_is_that_of_the_value(make, tables):
    objective, rng = make(*tables), np.random.default_rng(1)
    w, h = rng.normal(size=len(objective)), 1e-5
    value, gradient, none = objective.evaluate(w)
    assert none is None
    for _ in range(3):
        d = rng.normal(size=len(w))
        slope = (objective.evaluate(w + h * d)[0] - objective.evaluate(w - h * d)[0]) / (2 * h)
        assert gradient @ d == pytest.approx(slope, rel=1e-6, abs=1e-4)
    for single in objective.evaluate(w, single=True)[:2]:
        assert np.all(np.isfinite(single))
    assert objective.evaluate(w, single=True)[0] == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(objective.evaluate(w, single=True)[1], gradient, atol=1e-3 * objective.total_weight)


def test_it_is_convex(make, tables):
    objective, rng = make(*tables), np.random.default_rng(2)
    for _ in range(10):
        a, b = rng.normal(size=(2, len(objective))) * 2
        middle = objective.evaluate((a + b) / 2)[0]
        assert middle <= (objective.evaluate(a)[0] + objective.evaluate(b)[0]) / 2 + 1e-9


def test_the_diagonal_is_that_of_the_hessian_or_above(make, tables):
    objective, h = make(*tables), 1e-5
    w = np.random.default_rng(3).normal(size=len(objective))
    diagonal = objective.evaluate(w, curvature=True)[2]
    steps = h * np.eye(len(w))
    exact = [(objective.evaluate(w + s)[1] - objective.evaluate(w - s)[1])[j] / (2 * h) for j, s in enumerate(steps)]
    assert (diagonal >= np.array(exact) - 1e-4).all()


def test_restricting_leaves_the_other_gradients_as_they_are(make, tables):
    objective = make(*tables)
    w = np.random.default_rng(4).normal(size=len(objective))
    value, gradient, _ = objective.evaluate(w)
    active = np.arange(len(w)) % 3 == 0
    objective.restrict(active)
    restricted = objective.evaluate(w)
    objective.restrict(None)
    assert restricted[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(restricted[1][active], gradient[active], rtol=1e-10, atol=1e-9)
    np.testing.assert_array_equal(objective.evaluate(w)[1], gradient)


def test_a_weight_of_two_equals_a_repeated_row(make, tables):
    features, data = tables
    repeated = Dataset(data.domain, np.repeat(data.codes, data.weights.astype(int), axis=0))
    w = np.random.default_rng(5).normal(size=len(features))
    for ours, theirs in zip(make(features, data).evaluate(w)[:2], make(features, repeated).evaluate(w)[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-8)
    assert make(features, data).total_weight == make(features, repeated).total_weight == data.weights.sum()


def test_the_number_of_threads_changes_no_bit(make, tables):
    w = np.random.default_rng(6).normal(size=len(tables[0]))
    one, three = (make(*tables, threads=n).evaluate(w, curvature=True) for n in (1, 3))
    assert one[0] == three[0]
    for ours, theirs in zip(one[1:], three[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("make", CURVED.values(), ids=CURVED)
def test_blocks_hold_the_free_features_of_their_terms(make, tables):
    features, _ = tables
    objective = make(*tables)
    free = np.random.default_rng(7).random(len(features)) < 0.7
    blocks = objective.list_blocks(free, 4)
    assert max(len(block.members) for block in blocks) <= 4
    found = sorted((block.term, int(j)) for block in blocks for j in block.members)
    expected = sorted({(int(v), int(j)) for v, j in zip(features.variables, features.owner, strict=True) if free[j]})
    assert found == expected
    np.testing.assert_array_equal(
        objective.term_sizes[np.unique(features.variables)], np.bincount(features.variables)[np.unique(features.variables)]
    )
    assert 0 < objective.density <= 1
    assert objective.evaluation_cost > 0


@pytest.mark.parametrize("make", CURVED.values(), ids=CURVED)
def test_blocks_of_curvature_are_parts_of_the_hessian(make, tables):
    """With all rows sampled, the terms' blocks over all features add up to the Hessian, here by differences of gradients."""
    objective, h = make(*tables), 1e-4
    w = np.random.default_rng(8).normal(size=len(objective))
    objective.sample_curvature(w, 10**6)
    total = np.zeros((len(w), len(w)))
    for block in objective.list_blocks(np.ones(len(w), dtype=bool), len(w)):
        total[np.ix_(block.members, block.members)] += objective.block_curvature(block)
    steps = h * np.eye(len(w))
    hessian = np.array([(objective.evaluate(w + s)[1] - objective.evaluate(w - s)[1]) / (2 * h) for s in steps])
    np.testing.assert_allclose(total, hessian, rtol=2e-3, atol=0.02)


@pytest.mark.parametrize("make", SEPARABLE.values(), ids=SEPARABLE)
def test_terms_add_up_and_share_no_feature(make, tables):
    objective, rng = make(*tables), np.random.default_rng(9)
    w = rng.normal(size=len(objective))
    losses = objective.term_losses(w)
    assert len(losses) == objective.n_terms
    assert losses.sum() == pytest.approx(objective.evaluate(w)[0], rel=1e-10)
    for term in range(objective.n_terms):
        moved = w + rng.normal(size=len(w)) * (objective.targets == term)
        np.testing.assert_allclose(np.delete(objective.term_losses(moved), term), np.delete(losses, term), rtol=1e-12)
