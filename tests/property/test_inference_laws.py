"""Every engine against enumeration, on random small networks under random evidence."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from instructions import INSTRUCTION_SETS, using
from strategies import all_rows, networks
from undirected import Dataset, Domain, FeatureSet, ImpossibleEvidence, MarkovNetwork
from undirected.inference import Session, belief_propagation, enumeration
from undirected.inference.evidence import Given
from undirected.kernels import backend, reference
from undirected.work import Work

WORK = Work.start()
MORE = int(os.environ.get("UNDIRECTED_EXAMPLES", "1"))  # times as many examples, for thousands of networks
WEIGHTS = st.one_of(st.floats(-3, 3), st.sampled_from([20.0, -20.0]))
HARD_WEIGHTS = st.one_of(WEIGHTS, st.sampled_from([np.inf, -np.inf]))


@st.composite
def questions(draw, weights=WEIGHTS, **kwargs):
    """A network and evidence: known states, excluded states, likelihoods."""
    network = draw(networks(**kwargs))
    features = network.features
    network = MarkovNetwork(features, draw(st.lists(weights, min_size=len(features), max_size=len(features))))
    allowed = np.ones(network.domain.n_literals, dtype=np.uint8)
    likelihood = {}
    for v, k in enumerate(network.domain.n_states.tolist()):
        first = int(network.domain.base[v])
        kind = draw(st.sampled_from(["open", "open", "known", "excluded", "soft"]))
        if kind in ("known", "excluded"):
            keep = draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=1 if kind == "known" else k, unique=True))
            allowed[first : first + k] = 0
            allowed[first + np.array(keep)] = 1
        if kind == "soft":
            likelihood |= {first + s: draw(st.floats(-2, 2)) for s in range(k)}
    return network, Given(allowed, likelihood)


def truth(network, known):
    """States, scores, truth of the features: by brute force over all rows that evidence allows."""
    rows = all_rows(network.domain)
    domain = network.domain
    rows = rows[np.all([known.allowed[domain.base[v] + rows[:, v]] > 0 for v in range(len(domain))], axis=0)]
    onehot = np.zeros((len(rows), 2 * domain.n_literals), dtype=bool)
    for v in range(len(domain)):
        onehot[np.arange(len(rows)), domain.base[v] + rows[:, v]] = True
    onehot[:, domain.n_literals :] = ~onehot[:, : domain.n_literals]
    holds = np.array([onehot[:, list(row)].all(axis=1) for row in network.features], dtype=bool).reshape(len(network.features), len(rows))
    finite = np.where(np.isinf(network.weights), 0, network.weights)
    scores = finite @ holds
    scores = np.where((holds[network.weights == -np.inf]).any(axis=0), -np.inf, scores)
    scores = np.where((~holds[network.weights == np.inf]).any(axis=0), -np.inf, scores)
    for literal, value in known.likelihood.items():
        scores = scores + value * onehot[:, literal]
    return rows, scores, holds, onehot[:, : domain.n_literals]


def expected(network, known):
    rows, scores, holds, onehot = truth(network, known)
    log_z = np.logaddexp.reduce(scores)
    p = np.exp(scores - log_z)
    return rows, scores, log_z, p @ onehot, holds @ p


def eliminate(reduced):
    """Marginals and log Z by elimination."""
    return reduced.solve(reduced.plan_exact("a law", WORK))


@settings(max_examples=1000 * MORE)
@given(questions(weights=HARD_WEIGHTS))
def test_exact_engines_equal_enumeration(question):
    network, known = question
    scores = truth(network, known)[1]
    if np.isneginf(scores).all():  # no state meets the infinite weights
        for attempt in (eliminate, enumeration.find_marginals):
            with pytest.raises(ImpossibleEvidence):
                attempt(Session(network).reduce(known))
        return
    reduced = Session(network).reduce(known)
    _, _, log_z, marginals, features = expected(network, known)
    for engine in (eliminate, enumeration.find_marginals):
        found, value = engine(reduced)
        np.testing.assert_allclose(found, marginals, atol=1e-7)
        assert value == pytest.approx(log_z, abs=1e-6)
    np.testing.assert_allclose(Session(network).expectations(known), features, atol=1e-7)


@settings(max_examples=300)
@given(questions(), st.integers(1, 6))
def test_best_states_are_the_best(question, k):
    network, known = question
    rows, scores, *_ = truth(network, known)
    found = network.map_state(known, k=k, method="exact")
    assert found.exact
    assert len(found) == min(k, len(rows))
    np.testing.assert_allclose(found.log_scores, np.sort(scores)[::-1][: len(found)], atol=1e-7)
    states = [tuple(network.domain[v].index(s) for v, s in enumerate(state.values())) for state in found.states]
    assert len(set(states)) == len(states)
    by_row = {tuple(row): score for row, score in zip(rows.tolist(), scores, strict=True)}
    np.testing.assert_allclose([by_row[state] for state in states], found.log_scores, atol=1e-7)


@settings(max_examples=200)
@given(questions())
def test_native_and_reference_kernels_agree(question):
    network, known = question
    f = network.features
    weights = np.concatenate([network.weights, list(known.likelihood.values())])
    extra = np.array(list(known.likelihood), dtype=np.int32)
    start = np.concatenate([f.start, f.start[-1] + np.arange(1, len(extra) + 1)])
    plain = reference.Model(network.domain.n_states, start, np.concatenate([f.literals, extra]), weights)
    native = backend().module.Model(network.domain.n_states, start, np.concatenate([f.literals, extra]), weights)
    marks = Session(network).reduce(known).evidence
    solved, best = plain.solve(marks, 1e9, 3, 0, 1), plain.maximise(marks, 1e9, 3, 0, 1)[1]
    theirs = reference.Elimination(plain, marks, 1e9, 1, 0)
    for instruction_set in INSTRUCTION_SETS:
        with using(instruction_set):
            for a, b in zip(native.solve(marks, 1e9, 3, 0, 1), solved, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-7)
            np.testing.assert_allclose(native.maximise(marks, 1e9, 3, 0, 1)[1], best, atol=1e-7)
            ours = backend().module.Elimination(native, marks, 1e9, 1, 0)
            np.testing.assert_allclose(ours.expectations(1e9), theirs.expectations(1e9), atol=1e-7)
            for limit in (0.0, 1e9):  # with every part left out, and with none
                for a, b in zip(ours.solve(limit), theirs.solve(limit), strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-7)
                np.testing.assert_allclose(ours.maximise(limit)[1], theirs.maximise(limit)[1], atol=1e-7)
                np.testing.assert_array_equal(ours.draw(1, limit, 0, 1) < 0, theirs.draw(1, limit, 0, 1) < 0)
    np.testing.assert_array_equal(ours.parts()[0] < 0, theirs.parts()[0] < 0)
    assert len(ours.parts()[1]) == len(theirs.parts()[1])
    ours, theirs = native.mean_field(marks, 1e-10, 5000, 1, 0), plain.mean_field(marks, 1e-10, 5000, 1, 0)
    assume(ours[4] and theirs[4])
    assert ours[1] == pytest.approx(theirs[1], abs=1e-4)


@settings(max_examples=300)
@given(questions(weights=st.floats(-3, 3)))
def test_bounds_hold(question):
    network, known = question
    log_z = expected(network, known)[2]
    assert network.log_partition(known, method="mean-field").lower <= log_z + 1e-7
    sent = belief_propagation.propagate(Session(network).reduce(known), WORK, reweighted=True)
    upper = network.log_partition(known, method="trw").upper
    assert upper >= log_z - 1e-5
    assert upper == (sent.log_z if sent.converged else np.inf)  # messages that have not converged bound nothing


@st.composite
def trees(draw):
    """Networks whose graph is a forest, with several features an edge."""
    sizes = draw(st.lists(st.integers(2, 3), min_size=1, max_size=6))
    domain = Domain.from_sizes(sizes)
    rows = [[int(domain.base[v]) + draw(st.integers(0, k - 1))] for v, k in enumerate(sizes)]
    for v in range(1, len(sizes)):
        u = draw(st.integers(-1, v - 1))
        for _ in range(2 if u >= 0 else 0):
            rows.append([int(domain.base[w]) + draw(st.integers(0, sizes[w] - 1)) for w in (u, v)])
    features = FeatureSet.from_lists(rows, domain)
    return MarkovNetwork(features, draw(st.lists(WEIGHTS, min_size=len(rows), max_size=len(rows))))


@settings(max_examples=300 * MORE)
@given(trees())
def test_belief_propagation_is_exact_on_trees(network):
    known = Given(np.ones(network.domain.n_literals, dtype=np.uint8))
    _, scores, log_z, marginals, _ = expected(network, known)
    found = belief_propagation.propagate(Session(network).reduce(known), WORK)
    assert found.converged
    np.testing.assert_allclose(found.marginals, marginals, atol=1e-6)
    assert found.log_z == pytest.approx(log_z, abs=1e-6)
    best = belief_propagation.propagate(Session(network).reduce(known), WORK, maximum=True)
    order = np.sort(scores)
    if len(order) == 1 or order[-1] - order[-2] > 1e-6:  # with a single best state, max-marginals point at it
        state = [int(np.argmax(best.marginals[network.domain.base[v] : network.domain.base[v + 1]])) for v in range(len(network.domain))]
        assert network.log_score(Dataset(network.domain, np.array([state])))[0] == pytest.approx(order[-1], abs=1e-6)
    for kernels in (reference,):
        f = network.features
        model = kernels.Model(network.domain.n_states, f.start, f.literals, network.weights)
        out = model.propagate(known.allowed[None], False, False, 0.0, 1e-10, 500, 0)
        np.testing.assert_allclose(out[0], marginals, atol=1e-6)
        assert out[1] == pytest.approx(log_z, abs=1e-6)


@settings(max_examples=200)
@given(networks(), st.data())
def test_explanations_add_up_to_the_log_odds(network, data):
    row = [data.draw(st.integers(0, k - 1)) for k in network.domain.n_states.tolist()]
    v = data.draw(st.integers(0, len(network.domain) - 1))
    assume(network.domain.n_states[v] > 1)
    name = network.domain[v].name
    found = network.explain(name, row)
    p = network.conditional(name, row)
    assert found.state == network.domain[v].states[row[v]]
    assert found.log_odds == pytest.approx(np.log(p[found.state]) - np.log(p[found.against]), abs=1e-9)
    assert sum(value for _, value in found.contributions) == pytest.approx(found.log_odds, abs=1e-12)


@settings(max_examples=150)
@given(networks(), st.integers(0, 2**32 - 1))
def test_imputation_and_prediction_equal_enumeration(network, seed):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, k, 5) for k in network.domain.n_states], axis=1)
    codes[rng.random(codes.shape) < 0.4] = -1
    table = Dataset(network.domain, codes)
    full = network.impute(table).codes
    v = int(rng.integers(len(network.domain)))
    p = network.predict_proba(table, network.domain[v].name)
    for r, row in enumerate(codes):
        known = Given(np.ones(network.domain.n_literals, dtype=np.uint8))
        hidden = Given(known.allowed.copy())
        for u, code in enumerate(row):
            if code >= 0:
                mine = slice(int(network.domain.base[u]), int(network.domain.base[u + 1]))
                known.allowed[mine] = np.arange(mine.stop - mine.start) == code
                if u != v:
                    hidden.allowed[mine] = known.allowed[mine]
        assert (full[r][row >= 0] == row[row >= 0]).all()
        _, scores, *_ = truth(network, known)
        assert network.log_score(Dataset(network.domain, full[r][None]))[0] == pytest.approx(scores.max(), abs=1e-7)
        marginals = expected(network, hidden)[3]
        np.testing.assert_allclose(p[r], marginals[network.domain.base[v] : network.domain.base[v + 1]], atol=1e-7)
