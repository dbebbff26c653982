"""Resampling: equal to a plain loop over repeated rows, and right about what is stable."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from undirected import L1, AllPairs, ChowLiu, DataError, Dataset, ParameterError, bootstrap, datasets
from undirected.evaluation.stability import DROPPED, Estimate, Stability, _resample
from undirected.plots.graph import APART, UNDIRECTED


@pytest.fixture(scope="module")
def table():
    return datasets.exact_sample(datasets.grid_ising(2, 3, seed=4), 400, seed=5)


def test_equals_a_plain_loop_over_repeated_rows(table):
    learner = AllPairs(l1=2.0)
    found = bootstrap(learner, table, n=6, n_dropping=0, seed=9, level=0.5)
    weights, present = {}, {}
    for k in range(6):
        sample = _resample(table.distinct, 0.0, 9, k)
        assert sample.total_weight == len(table)
        repeated = Dataset(table.domain, np.repeat(sample.codes, sample.weights.astype(int), axis=0))
        network = AllPairs(l1=2.0).fit(repeated).network_
        for text, w in zip(network.features.texts(), network.weights, strict=True):
            weights.setdefault(text, []).append(w)
            present[text] = present.get(text, 0) + (w != 0)
    for text, estimate in found.features.items():
        assert estimate.frequency == pytest.approx(present[text] / 6)
        assert estimate.mean == pytest.approx(np.mean(weights[text]), abs=1e-3)
        np.testing.assert_allclose([estimate.low, estimate.high], np.quantile(weights[text], [0.25, 0.75]), atol=2e-3)
    assert {text for text, count in present.items() if count} <= set(found.features)
    whole = AllPairs(l1=2.0).fit(table).network_
    for (a, b), estimate in found.edges.items():
        text = next(t for t in whole.features.texts() if a in t and b in t)
        assert estimate.value == pytest.approx(whole.weights[whole.features.texts().index(text)], abs=1e-4)
        assert estimate.frequency == found.features[text].frequency
    edges = {name: sum(abs(e.value) for pair, e in found.edges.items() if name in pair) for name in table.domain.names}
    for name, estimate in found.strength.items():
        assert estimate.value == pytest.approx(edges[name])


def test_the_same_for_any_number_of_threads(table):
    one, two = (bootstrap(L1(), table, n=8, seed=1, threads=k) for k in (1, 3))
    assert one.rows() == two.rows()
    assert one.correlations == two.correlations
    assert one.rows() != bootstrap(L1(), table, n=8, seed=2, threads=2).rows()


def test_true_edges_come_back_and_others_do_not():
    truth = datasets.grid_ising(3, 3, seed=1)
    data = datasets.exact_sample(truth, 5000, seed=2)
    found = bootstrap(L1(), data, n=40, n_dropping=20)
    true = {tuple(sorted(edge)) for edge in truth.graph().edges}
    strong = {tuple(sorted((a, b))) for a, b, d in truth.graph().edges(data=True) if d["strength"] > 0.4}
    for pair, estimate in found.edges.items():
        if tuple(sorted(pair)) in strong:
            assert estimate.frequency == 1.0
        if tuple(sorted(pair)) not in true:
            assert abs(estimate.value) < 0.35
    missed = true - {tuple(sorted(pair)) for pair, e in found.edges.items() if e.frequency > 0.5}
    assert not missed & strong


def test_intervals_cover_the_truth():
    """Without a penalty to speak of, 90 % intervals of 24 parameters hold the true value about nine times in ten."""
    truth = datasets.grid_ising(3, 4, seed=3)
    hits = total = 0
    for seed in range(3):
        data = datasets.exact_sample(truth, 4000, seed=seed)
        found = bootstrap(AllPairs(l1=0.0, sd=100.0), data, n=60, n_dropping=0, level=0.9, seed=seed)
        for text, w in zip(truth.features.texts(), truth.weights, strict=True):
            hits += found.features[text].low <= w <= found.features[text].high
            total += 1
    assert 0.8 < hits / total < 0.98


def test_dropping_cases():
    truth = datasets.grid_ising(3, 3, seed=1)
    strong = bootstrap(AllPairs(), datasets.exact_sample(truth, 20_000, seed=2), n=1, n_dropping=30)
    assert strong.coefficient == 0.75
    rng = np.random.default_rng(0)
    noise = bootstrap(L1(C=0.5), rng.integers(2, size=(60, 8)), n=1, n_dropping=60)
    assert noise.coefficient < 0.25
    assert list(noise.correlations) == sorted(DROPPED)
    kept = _resample(datasets.exact_sample(truth, 1000, seed=2).distinct, 0.25, 0, 0)
    assert kept.total_weight == 750


def test_the_coefficient_by_its_definition():
    values = {0.05: [0.9] * 20, 0.3: [0.8] * 19 + [0.1], 0.5: [0.8] * 18 + [0.1] * 2, 0.7: [0.9] * 20}
    estimate = Estimate(1.0, 1.0, 1.0, 1.0, 1.0)
    assert Stability(1, 0.9, {("a", "b"): estimate}, {}, {}, values).coefficient == 0.3
    assert Stability(1, 0.9, {}, {}, {}, {0.05: [0.0]}).coefficient == 0.0


def test_weights_that_are_no_counts(table):
    """Every row is a case then, and keeps its weight."""
    halves = Dataset(table.domain, table.codes, np.full(len(table), 0.5))
    sample = _resample(halves, 0.0, 0, 0)
    assert sample.total_weight == pytest.approx(200)
    tiny = Dataset(table.domain, table.codes, np.linspace(0.1, 1, len(table)) / 1000)
    assert 100 < len(_resample(tiny, 0.0, 0, 0)) < 400
    assert len(_resample(tiny, 0.25, 0, 0)) == 300
    small, large = (
        bootstrap(ChowLiu(), Dataset(table.domain, table.codes, w), n=4, n_dropping=2) for w in (halves.weights, halves.weights * 3)
    )
    assert small.n == 4
    assert [e.frequency for e in small.edges.values()] == [e.frequency for e in large.edges.values()]


def test_ctrl_c_keeps_what_is_done(table):
    def stop(event):
        if event.done == 3:
            raise KeyboardInterrupt

    found = bootstrap(ChowLiu(), table, n=50, threads=1, progress=stop)
    assert found.stopped_by == "interrupt"
    assert found.n == 3
    with pytest.raises(DataError, match="no resample"):
        bootstrap(ChowLiu(), table, n=50, time_budget=0.0)
    assert bootstrap(ChowLiu(), table, n=100_000, n_dropping=0, time_budget=0.5).stopped_by == "time"


def test_warnings_come_back_afterwards(table):
    before = list(warnings.filters)
    bootstrap(ChowLiu(), table, n=8, threads=4)
    assert warnings.filters == before


def test_pictures_show_what_comes_back():
    edges = {(f"a{i}", f"b{i}"): Estimate(0.0, 0.1, 0.0, 0.0, 0.0) for i in range(80)}
    edges["last", "often"] = Estimate(0.0, 0.6, 0.4, 0.0, 0.9)
    edges["last", "always"] = Estimate(-1.0, 1.0, -1.0, -1.5, -0.5)
    found = Stability(10, 0.9, edges, {}, {}, {}, unsigned=frozenset({("last", "often")}))
    assert [row["b"] for row in found.rows()[:2]] == ["always", "often"]
    axes = found.plot("edges").axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == 60
    assert {"last - often   60%", "last - always   100%"} <= set(labels)
    bars = {round(line.get_ydata()[0]): line.get_color() for line in axes.lines if line.get_linewidth() > 3}
    assert bars[labels.index("last - often   60%")] == UNDIRECTED
    assert bars[labels.index("last - always   100%")] == APART


def test_edges_without_order_have_strengths():
    rng = np.random.default_rng(0)
    x = rng.integers(3, size=300)
    frame = {"number": x, "text": np.array(["p", "q", "r"])[(x + (rng.random(300) < 0.2)) % 3], "other": (x + (rng.random(300) < 0.3)) % 3}
    found = bootstrap(ChowLiu(), pd.DataFrame(frame), n=4, n_dropping=4)
    assert found.unsigned == {pair for pair in found.edges if "text" in pair}
    assert all(found.edges[pair].low >= 0 for pair in found.unsigned)
    for name, estimate in found.strength.items():
        assert estimate.value == pytest.approx(sum(abs(e.value) for pair, e in found.edges.items() if name in pair))


def test_pictures_and_tables(table):
    found = bootstrap(L1(C=0.1), table, n=5)
    figure = found.plot("edges")
    assert len(figure.axes[0].get_yticklabels()) == len(found.edges)
    assert found.plot("dropping").axes[0].lines[0].get_xdata()[0] == 5
    assert "no test under" in str(found)
    assert list(found.to_frame("strength")["variable"]) == [row["variable"] for row in found.rows("strength")]
    for call in (
        lambda: found.plot("pie"),
        lambda: found.rows("pie"),
        lambda: bootstrap(L1(), table, n=0),
        lambda: bootstrap(L1(), table, level=1),
    ):
        with pytest.raises(ParameterError):
            call()
    with pytest.raises(ParameterError, match="n_dropping"):
        bootstrap(L1(C=0.1), table, n=1, n_dropping=0).plot("dropping")
