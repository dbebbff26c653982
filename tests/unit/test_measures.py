"""What a paper reports: centrality against networkx by hand, predictability against its definition."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from undirected import AllPairs, Atomic, Dataset, Domain, FeatureSet, MarkovNetwork, bootstrap, datasets
from undirected.evaluation.findings import list_findings
from undirected.evaluation.predictability import measure_predictability


def test_centrality_of_a_chain():
    domain = Domain.from_sizes([2] * 4)
    network = MarkovNetwork(FeatureSet.from_lists([[1, 3], [3, 5], [5, 7]], domain), [2.0, -1.0, 0.5])
    found = network.centrality()
    assert list(found["strength"].values()) == pytest.approx([2, 3, 1.5, 0.5])
    assert list(found["expected_influence"].values()) == pytest.approx([2, 1, -0.5, 0.5])
    assert list(found["betweenness"].values()) == pytest.approx([0, 2, 2, 0])
    distances = np.array([[0, 0.5, 1.5, 3.5], [0.5, 0, 1, 3], [1.5, 1, 0, 2], [3.5, 3, 2, 0]])
    assert list(found["closeness"].values()) == pytest.approx(3 / distances.sum(axis=1))


def test_strength_is_that_of_the_graph():
    network = AllPairs(l1=5).fit(datasets.load("digits")).network_
    degree = dict(nx.Graph(network.graph()).degree(weight="strength"))
    assert network.centrality()["strength"] == pytest.approx(degree)


def test_predictability_is_the_share_of_entropy_explained():
    data = datasets.exact_sample(datasets.grid_ising(2, 3, coupling=1.0, seed=2), 4000, seed=1)
    network = AllPairs(l1=1).fit(data).network_
    found = measure_predictability(network, data)
    loss = -network.pll_terms(data)[1]
    for v, name in enumerate(data.domain.names):
        p = data.codes[:, v].mean()
        assert found[name] == pytest.approx(1 - loss[v] / -(p * np.log(p) + (1 - p) * np.log(1 - p)))
    nothing = measure_predictability(Atomic(sd=100).fit(data).network_, data)
    assert max(map(abs, nothing.values())) < 1e-3
    flat = Dataset(Domain.from_sizes([2, 2]), np.array([[0, 1], [0, 0]] * 5))
    assert measure_predictability(Atomic().fit(flat).network_, flat)["v0"] == 0


def test_bootstrapped_centralities_tell_a_hub_from_a_leaf():
    domain = Domain.from_sizes([2] * 5)
    features = FeatureSet.from_lists([[1, 2 * k + 1] for k in range(1, 5)], domain)
    data = datasets.exact_sample(MarkovNetwork(features, [1.5] * 4), 1500, seed=1)
    found = bootstrap(AllPairs(l1=3, tol=1e-3), data, n=20, n_dropping=0)
    low, high, differs = found.measure_difference("strength", "v0", "v1")
    assert differs
    assert 0 < low < high
    rows = found.rows("centrality")
    assert {row["measure"] for row in rows} == {"strength", "expected_influence", "closeness", "betweenness"}
    assert found.centrality["strength"]["v0"].value == pytest.approx(found.strength["v0"].value)


def test_findings_are_shares_of_rows():
    codes = np.array([[0, 0]] * 30 + [[0, 1]] * 10 + [[1, 1]] * 15 + [[1, 0]] * 5)
    data = Dataset(Domain.from_sizes([2, 2]), codes)
    (finding,) = list_findings(AllPairs(l1=1).fit(data).network_, data)
    assert {finding.with_a, finding.without_a} in ({15 / 20, 10 / 40}, {15 / 25, 5 / 35})
    assert "% of the rows with" in str(finding)
