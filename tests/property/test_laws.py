"""Laws that hold for any input, tried on random small problems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instructions import INSTRUCTION_SETS, using
from strategies import all_rows, domains, feature_sets, networks, problems, tables
from undirected import Dataset, Domain, FeatureSet, MarkovNetwork, PseudoLikelihood, Variable, fit_weights
from undirected.errors import FeatureError, FormatError
from undirected.features.conjunction import format_feature, parse_feature
from undirected.formats import libra, native, uai
from undirected.kernels import backend, reference


def log_joint(network):
    """Log-probabilities of all states, by enumeration."""
    rows = all_rows(network.domain)
    scores = network.log_score(Dataset(network.domain, rows))
    return rows, scores - np.logaddexp.reduce(scores)


@given(problems())
def test_pll_equals_enumeration(problem):
    network, table = problem
    rows, logp = log_joint(network)
    shape = tuple(network.domain.n_states)
    joint = np.exp(logp).reshape(shape)
    expected = []
    for row in table.codes:
        terms = []
        for v in range(len(shape)):
            line = joint[tuple(slice(None) if u == v else row[u] for u in range(len(shape)))]
            terms.append(np.log(line[row[v]] / line.sum()))
        expected.append(terms)
    by_row, by_variable = network.pll_terms(table)
    np.testing.assert_allclose(by_row, np.sum(expected, axis=1), atol=1e-9)
    np.testing.assert_allclose(by_variable, np.average(expected, axis=0, weights=table.weights), atol=1e-9)
    assert network.pll(table) == pytest.approx(np.average(np.sum(expected, axis=1), weights=table.weights), abs=1e-9)
    assert len(rows) == joint.size


@given(problems())
def test_conditionals_agree_with_each_other_and_sum_to_one(problem):
    network, table = problem
    p = network.conditionals(table)
    np.testing.assert_allclose(np.add.reduceat(p, network.domain.base[:-1], axis=1), 1, atol=1e-12)
    for v, variable in enumerate(network.domain.variables):
        one = network.conditional(variable.name, table.codes[0])
        np.testing.assert_allclose(list(one.values()), p[0, network.domain.base[v] : network.domain.base[v + 1]], atol=1e-9)


@given(networks())
def test_elimination_gives_the_partition_function(network):
    scores = network.log_score(Dataset(network.domain, all_rows(network.domain)))
    assert network.log_partition().value == pytest.approx(np.logaddexp.reduce(scores), abs=1e-9)


@given(problems(), st.integers(0, 2**32 - 1))
def test_gradient_equals_finite_differences(problem, seed):
    network, table = problem
    objective = PseudoLikelihood(network.features, table)
    w = network.weights
    _, gradient, curvature = objective.evaluate(w, curvature=True)
    direction = np.random.default_rng(seed).normal(size=len(w))
    h = 1e-5
    up, down = (objective.evaluate(w + sign * h * direction)[0] for sign in (1, -1))
    assert gradient @ direction == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-5)
    for j, step in enumerate(h * np.eye(len(w))):
        slopes = [objective.evaluate(w + sign * step)[1][j] for sign in (1, -1)]
        # the exact diagonal, or an upper bound where a feature allows several states
        assert curvature[j] >= (slopes[0] - slopes[1]) / (2 * h) - 1e-5


@given(st.data())
def test_literals_and_pairs_are_counted_with_their_weights(data):
    table = data.draw(tables(data.draw(domains())))
    base = table.domain.base
    held = np.zeros((len(table), table.domain.n_literals))
    np.put_along_axis(held, table.codes + base[:-1], 1.0, axis=1)
    np.testing.assert_allclose(table.literal_counts(), table.weights @ held, atol=1e-9)
    np.testing.assert_allclose(table.pair_counts(), held.T @ (table.weights[:, None] * held), atol=1e-9)


@given(problems(), st.sampled_from([0, 300, 1 << 30]), st.integers(0, 2**32 - 1))
def test_native_equals_reference(problem, memory, seed):
    if backend().name != "native":
        pytest.skip("the native kernels are not built")
    network, table = problem
    table = table.distinct
    f, n = network.features, network.domain.n_literals
    args = (table.columns, network.domain.n_states, table.weights, f.start, f.literals, memory, 2)
    truth = reference.PseudoLikelihoodTables(*args)
    active = (np.random.default_rng(seed).random(len(f)) < 0.7).astype(np.uint8)
    expected = []
    for marks in (active, None):
        truth.set_active(marks)
        expected.append((marks, truth.evaluate(network.weights, True, True, False, 1)))
    probabilities, terms = truth.probabilities(network.weights, n, 1), truth.terms(network.weights, 1)
    truth.sample(network.weights, 1, 1)
    touching = [(v, np.unique(f.owner[f.variables == v]).astype(np.int32)) for v in np.flatnonzero(network.domain.n_states > 1)]
    grams = [(v, features, truth.gram(v, features)) for v, features in touching if len(features)]
    for instruction_set in INSTRUCTION_SETS:
        with using(instruction_set):
            ours = backend().module.PseudoLikelihoodTables(*args)
            for marks, values in expected:
                ours.set_active(marks)
                for single, tol in ((False, 1e-10), (True, 1e-4)):
                    for a, b in zip(ours.evaluate(network.weights, True, True, single, 2), values, strict=True):
                        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * table.total_weight)
            np.testing.assert_allclose(ours.probabilities(network.weights, n, 2), probabilities, atol=1e-12)
            for a, b in zip(ours.terms(network.weights, 2), terms, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-9)
            ours.sample(network.weights, 1, 1)
            for v, features, gram in grams:
                np.testing.assert_allclose(ours.gram(v, features), gram, atol=1e-3)


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 2**32 - 1), st.integers(0, 3), st.integers(1, 300))
def test_native_generation_equals_reference(width, n, seed, threshold, n_generated):
    if backend().name != "native":
        pytest.skip("the native kernels are not built")
    rng = np.random.default_rng(seed)
    held = rng.random((n, width)) < 0.7
    start = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64)
    literals = np.nonzero(held)[1].astype(np.int32)
    for a, b in zip(
        backend().module.gssl_generate(start, literals, n_generated, threshold, seed, 2),
        reference.gssl_generate(start, literals, n_generated, threshold, seed, 1),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("length", "n_states"), [(2, 2), (7, 2), (2, 3), (5, 3)])
def test_blocks_of_curvature_equal_dense_inverses(length, n_states):
    """Short features have contexts in most rows, long ones in few: the kernels take different ways."""
    rng = np.random.default_rng(length)
    domain = Domain([Variable(f"v{v}", tuple("abc"[:n_states])) for v in range(9)])
    table = Dataset(domain, rng.integers(0, n_states, size=(700, 9))).distinct
    chosen = [np.sort(rng.choice(9, size=length, replace=False)) for _ in range(150)]
    f = FeatureSet.from_lists([[int(domain.base[v] + rng.integers(n_states)) for v in vs] for vs in chosen], domain)
    weights, ridge = rng.normal(size=len(f)), 0.5
    args = (table.columns, domain.n_states, table.weights, f.start, f.literals, 1 << 30, 2)
    truth = reference.PseudoLikelihoodTables(*args)
    truth.sample(weights, 1, 1)
    diagonal = truth.evaluate(weights, True, True, False, 1)[2] + ridge
    blocks = [np.unique(f.owner[f.variables == v]).astype(np.int32) for v in range(9)]
    start = np.concatenate([[0], np.cumsum([len(b) for b in blocks])]).astype(np.int64)
    members = np.concatenate(blocks)
    dense, total = np.zeros((2, len(f), len(f)))
    for v, b in enumerate(blocks):
        gram = truth.gram(v, b)
        total[np.ix_(b, b)] += gram
        reference.fit_diagonal(gram, diagonal[b], ridge)
        dense[np.ix_(b, b)] += np.linalg.inv(gram.astype(float))
    x, y = rng.normal(size=(2, len(f))).astype(np.float32)

    def check(module):
        problem = module.PseudoLikelihoodTables(*args)
        problem.sample(weights, 1, 2)
        summed = np.zeros((len(f), len(f)), dtype=np.float32)
        for v, b in enumerate(blocks):
            module.add_block(summed, b.astype(np.int64), problem.gram(v, b))
        np.testing.assert_allclose(summed, total, rtol=1e-4, atol=1e-3)
        factors = problem.factors(np.arange(9, dtype=np.int32), start, members, diagonal, ridge, 2)
        out = module.times_blocks(start, members, factors, x, y, 2)
        np.testing.assert_allclose(out, [dense @ x, dense @ y], rtol=1e-2, atol=1e-3 * abs(dense @ x).max())

    check(reference)
    for instruction_set in INSTRUCTION_SETS:
        with using(instruction_set):
            check(backend().module)


@given(problems(), st.integers(0, 2**32 - 1))
def test_untied_problems_and_their_newton_steps(problem, seed):
    """Features with a target enter one conditional: native equals reference, and steps meet the optimality conditions."""
    network, table = problem
    table, f, rng = table.distinct, network.features, np.random.default_rng(seed)
    if not len(f):
        return
    targets = np.array(
        [rng.choice(f.variables[f.start[j] : f.start[j + 1]]) if f.lengths[j] else -1 for j in range(len(f))], dtype=np.int32
    )
    args = (table.columns, network.domain.n_states, table.weights, f.start, f.literals, 1 << 30, 2, targets)
    truth = reference.PseudoLikelihoodTables(*args)
    expected = truth.evaluate(network.weights, True, False, False, 1)
    gradient, penalty = expected[1], np.full(len(f), 0.3)

    def check(kernels):
        for a, b in zip(kernels.evaluate(network.weights, True, False, False, 2), expected, strict=True):
            if a is not None:
                np.testing.assert_allclose(a, b, atol=1e-9)
        kernels.sample(network.weights, 1, 1)
        for v in np.unique(targets[targets >= 0]):
            if network.domain.n_states[v] == 1:
                continue
            members = np.flatnonzero(targets == v).astype(np.int32)
            start = np.array([0, len(members)])
            hessian = kernels.gram(v, members)
            step = kernels.steps(np.array([v], dtype=np.int32), start, members, gradient, network.weights, penalty, 1)
            slope = gradient[members] + hessian @ step + 1e-5 * hessian.diagonal() * step
            at = network.weights[members] + step
            moved = np.where(at != 0, slope + 0.3 * np.sign(at), np.sign(slope) * np.maximum(np.abs(slope) - 0.3, 0))
            assert np.abs(moved).max() < 1e-2 * (1 + np.abs(gradient[members]).max())

    check(truth)
    for instruction_set in INSTRUCTION_SETS:
        with using(instruction_set):
            check(backend().module.PseudoLikelihoodTables(*args))


@given(problems())
def test_row_weights_equal_repeated_rows(problem):
    network, table = problem
    repeated = Dataset(table.domain, np.repeat(table.codes, table.weights.astype(int), axis=0))
    assert network.pll(table) == pytest.approx(network.pll(repeated), abs=1e-12)
    a = fit_weights(network.features, table, l1=0.3, sd=2, tol=1e-9)
    b = fit_weights(network.features, repeated, l1=0.3, sd=2, tol=1e-9)
    np.testing.assert_array_equal(a.weights, b.weights)
    np.testing.assert_allclose(network.features.support(table), network.features.support(repeated))


@given(problems())
def test_support_counts_rows_where_all_literals_hold(problem):
    network, table = problem
    n = network.domain.n_literals
    expected = []
    for row in network.features:
        holds = np.ones(len(table), bool)
        for literal in row:
            v = network.domain.literal_variable[literal % n]
            is_state = table.codes[:, v] == literal % n - network.domain.base[v]
            holds &= is_state if literal < n else ~is_state
        expected.append(table.weights[holds].sum())
    np.testing.assert_allclose(network.features.support(table), expected)


@given(problems(), st.randoms(use_true_random=False))
def test_order_of_variables_changes_nothing(problem, random):
    network, table = problem
    order = list(range(len(network.domain)))
    random.shuffle(order)
    shuffled = Domain((network.domain[v] for v in order), named=True)
    texts = network.features.texts()
    other = MarkovNetwork(FeatureSet.from_texts(texts, shuffled), network.weights)
    moved = Dataset(shuffled, table.codes[:, order], table.weights)
    assert other.pll(moved) == pytest.approx(network.pll(table), abs=1e-10)


@given(problems())
def test_the_optimum_is_certified_and_the_same_for_any_number_of_threads(problem):
    network, table = problem
    fits = [fit_weights(network.features, table, l1=0.5, sd=1.5, tol=1e-8, threads=t) for t in (1, 2, 3)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.weights, fits[0].weights)
        assert fit.objective == fits[0].objective
    fit = fits[0]
    assert fit.converged
    assert fit.violation <= 1e-8
    loss, gradient, _ = PseudoLikelihood(network.features, table).evaluate(fit.weights)
    assert fit.objective == pytest.approx(loss + 0.5 * np.abs(fit.weights).sum() + (fit.weights**2).sum() / (2 * 1.5**2))
    gradient = gradient + fit.weights / 1.5**2
    at_zero = fit.weights == 0
    assert (np.abs(gradient[at_zero]) <= 0.5 + 1e-8 * table.total_weight).all()
    np.testing.assert_allclose(gradient[~at_zero], -0.5 * np.sign(fit.weights[~at_zero]), atol=2e-8 * table.total_weight)


@given(networks(names=True))
def test_json_survives_a_round_trip(network):
    back = native.loads(native.dumps(network), "x.json")
    assert back.domain == network.domain
    assert back.features == network.features
    np.testing.assert_array_equal(back.weights, network.weights)


@given(networks())
def test_libra_survives_a_round_trip(network):
    back = libra.loads(libra.dumps(network), "x.mn")
    assert back.features == network.features
    np.testing.assert_array_equal(back.weights, network.weights)


@given(networks())
def test_uai_keeps_the_distribution(network):
    back = uai.loads(uai.dumps(network), "x.uai")
    np.testing.assert_allclose(log_joint(back)[1], log_joint(network)[1], atol=1e-9)


@given(networks(names=True))
def test_feature_text_survives_a_round_trip(network):
    for row in network.features:
        assert parse_feature(format_feature(row, network.domain), network.domain) == row


@given(st.data())
def test_set_algebra(data):
    domain = data.draw(domains())
    a, b = data.draw(feature_sets(domain)), data.draw(feature_sets(domain))
    assert set(a.union(b)) == set(a) | set(b)
    assert set(a.difference(b)) == set(a) - set(b)
    assert list(a.canonical()) == sorted(set(a), key=lambda row: (len(row), row))
    assert a.union(b) == b.union(a)


@given(st.text(max_size=200))
def test_readers_of_untrusted_files_only_raise_their_own_error(text):
    for loads in (native.loads, libra.loads, uai.loads):
        try:
            loads(text, "x")
        except (FormatError, FeatureError) as error:
            assert str(error)


@given(st.data())
def test_distinct_rows_keep_the_weight(data):
    table = data.draw(tables(data.draw(domains()), most=30))
    distinct = table.distinct
    assert distinct.total_weight == pytest.approx(table.total_weight)
    np.testing.assert_array_equal(np.unique(table.codes, axis=0), distinct.codes)
    np.testing.assert_array_equal(distinct.codes[table.group], table.codes)
    assert sum(shard.total_weight for shard in table.shards(3)) == pytest.approx(table.total_weight)


def test_distinct_rows_are_sorted_for_many_states_and_missing_cells():
    for k in (2, 126, 127, 128, 400):
        codes = np.random.default_rng(k).integers(-1, k, size=(500, 2))
        np.testing.assert_array_equal(Dataset(Domain.from_sizes([k, k]), codes).distinct.codes, np.unique(codes, axis=0))


def test_states_sort_as_numbers_or_as_text():
    from undirected.data.variables import sort_states

    assert sort_states(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert sort_states(["b", "10", "9"]) == ["10", "9", "b"]
    assert Variable("a", ("x", "y")).index("y") == 1
