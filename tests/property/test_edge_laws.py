"""Strength and sign of edges belong to the distribution, however its states are named, ordered and coded."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import all_rows, networks
from undirected import AllPairs, Domain, FeatureSet, MarkovNetwork, Variable
from undirected.network import edges as edges_module
from undirected.network.edges import Edge, find_joined_pairs, measure_edges

CLOSE = {"rtol": 1e-6, "atol": 3e-6}


def measure(network):
    return measure_edges(network.features, network.weights)


def enumerate_edges(network):
    """Strength and mean log odds ratio in the order of the states, from the scores of all assignments."""
    domain = network.domain
    sizes = tuple(domain.n_states.tolist())
    holds = np.ones((len(network.features), *sizes), dtype=bool)
    rows = all_rows(domain)
    for j, feature in enumerate(network.features):
        for literal in feature:
            positive = literal % domain.n_literals
            v = int(domain.literal_variable[positive])
            true = (rows[:, v] == positive - domain.base[v]) == (literal < domain.n_literals)
            holds[j] &= true.reshape(sizes)
    score = np.tensordot(network.weights, holds, 1)
    out = {}
    for a, b in itertools.combinations(range(len(domain)), 2):
        table = np.moveaxis(score, (a, b), (0, 1)).reshape(sizes[a], sizes[b], -1)
        steps = table[:, None] - table[None]  # [s, s', t, context]
        ratios = steps[:, :, :, None] - steps[:, :, None]
        apart = [(s, u, t, w) for s, u in itertools.permutations(range(sizes[a]), 2) for t, w in itertools.permutations(range(sizes[b]), 2)]
        found = np.array([ratios[index] for index in apart]).reshape(len(apart), table.shape[2])
        rising = np.array([s < u and t < w for s, u, t, w in apart], dtype=bool)
        out[a, b] = (np.sqrt((found**2).mean()), found[rising].mean()) if apart else (0.0, 0.0)
    return out


@pytest.mark.parametrize("way", ["chosen", "two by two", "mixed"])
@given(network=networks(most_variables=4))
def test_edges_are_what_enumeration_finds(way, network):
    with pytest.MonkeyPatch.context() as patch:
        if way != "chosen":
            first = 0 if way == "two by two" else 2
            patch.setattr(edges_module, "_choose_expanded", lambda terms: (np.arange(len(terms.weights)) < first) | (terms.lengths < 2))
        found = measure(network)
    assert set(found) == set(map(tuple, find_joined_pairs(network.features, network.weights).tolist()))
    for pair, (strength, mean) in enumerate_edges(network).items():
        edge = found.get(pair, Edge(0.0, 0))
        np.testing.assert_allclose(edge.strength, strength, **CLOSE)
        if abs(mean) > 1e-5:
            assert edge.sign == np.sign(mean)


@given(networks(most_variables=4), st.randoms(use_true_random=False))
def test_the_order_of_states_matters_only_for_signs(network, random):
    domain = network.domain
    texts = Domain(Variable(f"v{v}", tuple("abcd"[:k])) for v, k in enumerate(domain.n_states))
    plain = MarkovNetwork(FeatureSet.from_lists(network.features, texts), network.weights)
    moved = [random.sample(range(k), k) for k in domain.n_states.tolist()]
    place = np.concatenate([domain.base[v] + np.array(new) for v, new in enumerate(moved)])
    n = domain.n_literals
    rows = [[int(place[x % n]) + n * (x >= n) for x in feature] for feature in network.features]
    turned = measure(MarkovNetwork(FeatureSet.from_lists(rows, texts), network.weights))
    numbered = measure(network)
    for (a, b), edge in measure(plain).items():
        np.testing.assert_allclose([edge.strength, numbered[a, b].strength], turned[a, b].strength, **CLOSE)
        if edge.strength > 1e-5:
            flips = (-1) ** (moved[a] == [1, 0]) * (-1) ** (moved[b] == [1, 0])
            assert turned[a, b].sign == flips * edge.sign
            if max(len(moved[a]), len(moved[b])) > 2:
                assert edge.sign == 0


@given(networks(most_variables=4))
def test_names_do_not_matter(network):
    domain = Domain(Variable(f"other {v.name}", tuple(str(10 * int(s) - 5) for s in v.states)) for v in network.domain.variables)
    assert measure(MarkovNetwork(FeatureSet.from_lists(network.features, domain), network.weights)) == measure(network)


@given(st.integers(2, 5), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_the_reference_state_does_not_matter(k, m, seed):
    """Numbers added to whole rows and columns of a pair's table change what the single variables do, not how they go together."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes([k, m])
    table = rng.normal(size=(k, m))
    cells = FeatureSet.from_lists([(s, k + t) for s in range(k) for t in range(m)], domain)
    for other in (table + rng.normal(size=(k, 1)) + rng.normal(size=m), table - table[:1] - table[:, :1] + table[0, 0]):
        one, two = (measure_edges(cells, values.ravel())[0, 1] for values in (table, other))
        assert one == (pytest.approx(two.strength), two.sign)


@given(st.floats(-5, 5).filter(lambda w: abs(w) > 1e-3))
def test_two_binary_variables_have_the_weight_itself(weight):
    features = FeatureSet.all_pairs(Domain.from_sizes([2, 2]))
    edge = measure_edges(features, np.array([0.3, -2.0, weight]))[0, 1]
    assert edge.signed == pytest.approx(weight)


def test_ratings_as_numbers_and_as_texts():
    """The same two columns of ratings, once as numbers and once as words whose alphabet is not their order."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=3000)
    ratings = [np.clip(np.round(3 + level + rng.normal(size=3000)), 1, 5).astype(int) for _ in range(2)]
    words = np.array(["", "never", "rarely", "at times", "often", "always"])
    found = []
    for frame in ({f"q{i}": r for i, r in enumerate(ratings)}, {f"q{i}": words[r] for i, r in enumerate(ratings)}):
        network = AllPairs(l1=0, sd=10).fit(pd.DataFrame(frame)).network_
        found.append(network.graph().edges["q0", "q1"])
    assert found[0]["strength"] == pytest.approx(found[1]["strength"], rel=0.05)
    assert found[0]["signed"] == found[0]["strength"] > 0
    assert found[1]["signed"] == 0.0
