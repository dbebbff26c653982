"""What every engine must do. An engine joins by its name in `undirected.inference.engine`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from undirected import Dataset, Domain, FeatureSet, ImpossibleEvidence, MarkovNetwork, datasets
from undirected.inference.engine import METHODS

EXACT = ("auto", "junction-tree", "enumeration")  # on networks as small as these
SAMPLED = ("gibbs", "mcsat")
LOOSE = {"bp": 0.1, "trw": 0.15, "mean-field": 0.15}  # approximations without an error of their own: how far off they may be here
OPTIONS = {"time_budget": 3.0, "seed": 1}


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


@pytest.fixture(scope="module")
def network():
    """Six variables of two and three states, twenty conjunctions of moderate weights."""
    truth = datasets.random_conjunctions(6, 20, n_states=3, seed=4)
    return MarkovNetwork(truth.features, 0.5 * truth.weights)


def enumerate_marginals(network, known):
    """By adding up all assignments that agree with the evidence: by variable and state."""
    domain = network.domain
    grid = np.array(list(itertools.product(*(range(n) for n in domain.n_states))))
    keep = np.all([grid[:, domain.index(name)] == domain[domain.index(name)].states.index(state) for name, state in known.items()], axis=0)
    grid = grid[keep] if known else grid
    scores = network.log_score(Dataset(domain, grid))
    p = np.exp(scores - np.logaddexp.reduce(scores))
    return {
        domain[v].name: {state: float(p[grid[:, v] == s].sum()) for s, state in enumerate(domain[v].states)} for v in range(len(domain))
    }


@pytest.mark.parametrize("known", [{}, {"v1": "2"}, {"v0": "1", "v4": "0"}], ids=["nothing known", "one known", "two known"])
def test_marginals_are_right_as_far_as_they_claim(method, network, known):
    answer = network.query(known, method=method, **OPTIONS)
    truth = enumerate_marginals(network, known)
    assert answer.exact == (method in EXACT)
    for name in set(network.domain.names) - set(known):
        assert sum(answer[name].values()) == pytest.approx(1, abs=1e-6)
        for state, p in truth[name].items():
            error = answer.standard_errors[name][state]
            allowed = 1e-9 if method in EXACT else 6 * error + 1e-3 if method in SAMPLED else LOOSE[method]
            assert np.isfinite(error) == (method in EXACT + SAMPLED)  # approximations claim no error
            assert answer[name][state] == pytest.approx(p, abs=allowed)


def test_what_is_known_stays_known(method, network):
    answer = network.query({"v2": "1"}, ["v2", "v3"], method=method, **OPTIONS)
    assert answer["v2"] == pytest.approx({"0": 0.0, "1": 1.0, "2": 0.0}, abs=1e-12)


def test_odd_questions(method):
    """A network without features, one variable of one state, everything known."""
    empty = MarkovNetwork(FeatureSet.from_lists([], Domain.from_sizes([2, 3])), [])
    assert empty.query(method=method, time_budget=0.2)["v1"]["2"] == pytest.approx(1 / 3, abs=0.02)
    assert empty.query({"v0": "1", "v1": "0"}, ["v1"], method=method)["v1"]["0"] == 1
    single = MarkovNetwork(FeatureSet.from_lists([], Domain.from_sizes([1])), [])
    assert single.query(variables=["v0"], method=method)["v0"] == {"0": 1.0}


def test_evidence_that_cannot_be_is_told(method):
    """Two variables must not both be true."""
    domain = Domain.from_sizes([2, 2, 2])
    network = MarkovNetwork(FeatureSet.from_lists([[1, 3], [5]], domain), [-np.inf, 0.5])
    with pytest.raises(ImpossibleEvidence):
        network.query({"v0": "1", "v1": "1"}, method=method, **OPTIONS)


def test_the_same_for_any_number_of_threads(method, network):
    """To the bit where an answer is not cut by time: samplers end at the precision asked for, here a coarse one."""
    options = {"seed": 3, "time_budget": 60.0, "precision": 0.05}
    one, three = (network.query({"v1": "0"}, method=method, threads=n, **options) for n in (1, 3))
    assert {name: one[name] for name in network.domain.names if name != "v1"} == {
        name: three[name] for name in network.domain.names if name != "v1"
    }


def test_unknown_variables_are_refused(method, network):
    with pytest.raises(ValueError, match="v99"):
        network.query(variables=["v99"], method=method)
