"""Parameters that make no sense, learners that are not fitted, targets, domains, notebooks."""

from __future__ import annotations

import re
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import undirected
from undirected import (
    AllPairs,
    Atomic,
    ChowLiu,
    DataError,
    Dataset,
    Domain,
    FeatureSet,
    MarkovNetwork,
    ParameterError,
    TableWarning,
    Variable,
    datasets,
    fit_weights,
    read_data,
)
from undirected.weights.pseudo_likelihood import PseudoLikelihood


@pytest.fixture(scope="module")
def network():
    return datasets.grid_ising(3, 3, seed=1)


@pytest.fixture(scope="module")
def rows(network):
    return datasets.exact_sample(network, 200, seed=2)


@pytest.mark.parametrize(
    "options",
    [{"sd": "x"}, {"sd": None}, {"l1": "1"}, {"l1": float("nan")}, {"memory": -5}, {"time_budget": float("nan")}, {"threads": 2.5}],
)
def test_learners_name_what_is_wrong(rows, options):
    name = next(iter(options))
    with pytest.raises(ParameterError, match=f"{name}="):
        AllPairs(**options).fit(rows)
    with pytest.raises(ParameterError, match=f"{name}="):
        fit_weights(FeatureSet.atomic(rows.domain), rows, **options)


@pytest.mark.parametrize("options", [{"seed": 10**21}, {"seed": -1}, {"memory": -5}, {"time_budget": float("nan")}, {"threads": "all"}])
def test_questions_name_what_is_wrong(network, options):
    name = next(iter(options))
    for ask in (network.query, network.map_state, network.log_partition):
        with pytest.raises(ParameterError, match=f"{name}="):
            ask(**options)


def test_a_learner_that_is_not_fitted_says_so(rows):
    for call in (lambda one: one.score(rows), lambda one: one.score_samples(rows), lambda one: one.predict_proba(rows)):
        with pytest.raises(NotFittedError):
            call(Atomic())
    assert not hasattr(Atomic(), "predict_proba")


class TestTargets:
    frame = pd.DataFrame({"a": list("xyxyxyxxyy"), "b": list("uvuvuvuuvv")})
    target = pd.Series(list("0101010011"), name="t")

    def test_a_named_series_is_a_column(self):
        learner = ChowLiu().fit(self.frame, self.target)
        assert learner.domain_.names == ["a", "b", "t"]
        joined = ChowLiu().fit(self.frame.assign(t=self.target))
        np.testing.assert_array_equal(learner.network_.weights, joined.network_.weights)
        assert learner.score(self.frame.assign(t=self.target)) == joined.score(self.frame.assign(t=self.target))
        level = pd.Series(pd.Categorical(["lo", "hi"] * 5, ["lo", "mid", "hi"], ordered=True), index=range(10, 20), name="level")
        assert ChowLiu().fit(self.frame, level).domain_[2].states == ("lo", "mid", "hi")
        with pytest.raises(DataError, match="9 entries for 10 rows"):
            ChowLiu().fit(self.frame, self.target[:9])
        with pytest.raises(DataError, match="already"):
            ChowLiu().fit(self.frame, self.target.rename("a"))

    def test_anything_else_is_refused_or_said_to_be_left_out(self, rows):
        with pytest.warns(TableWarning, match="left out"):
            assert ChowLiu().fit(self.frame, np.arange(10)).domain_.names == ["a", "b"]
        with pytest.raises(ParameterError, match="make it a column"):
            ChowLiu().fit(rows, np.arange(200))


class TestDomains:
    def frame(self):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"a": rng.choice(["x", "y"], 50), "b": rng.choice(["u", "v"], 50)})
        frame.loc[0, "a"] = "rare"  # in one fold only
        return frame

    def test_cross_validation_with_states_that_a_fold_lacks(self, tmp_path):
        frame = self.frame()
        with pytest.warns(UserWarning, match="failed"):
            assert np.isnan(cross_val_score(ChowLiu(), frame, cv=5)).any()
        table = read_data(frame)
        network = ChowLiu().fit(frame).network_
        network.save(tmp_path / "net.json")
        expected = cross_val_score(ChowLiu(domain=table.domain), frame, cv=5)
        assert np.isfinite(expected).all()
        for domain in (table, network, tmp_path / "net.json", str(tmp_path / "net.json")):
            np.testing.assert_array_equal(cross_val_score(ChowLiu(domain=domain), frame, cv=5), expected)
        with pytest.raises(ParameterError, match="domain="):
            ChowLiu(domain=3).fit(frame)

    def test_declared_categories_need_no_domain(self):
        frame = self.frame().astype("category")
        assert np.isfinite(cross_val_score(ChowLiu(), frame, cv=5)).all()

    def test_missing_as_a_state(self, data_folder):
        table = read_data("mushroom", missing="state")
        scores = cross_val_score(ChowLiu(missing="state", domain=table), table.to_frame(), cv=3)
        assert np.isfinite(scores).all()


def test_the_start_of_very_many_states():
    """Log-odds against the state without a feature, for each variable; it was quadratic in the states."""
    rng = np.random.default_rng(0)
    domain = Domain([Variable("many", tuple(f"s{k}" for k in range(20_000))), Variable("few", ("a", "b", "c"))])
    data = Dataset(domain, np.column_stack([rng.integers(0, 20_000, 500), rng.integers(0, 3, 500)]))
    features = FeatureSet.atomic(domain)
    start = PseudoLikelihood(features, data).independent_start
    counts = data.literal_counts() + 0.5
    np.testing.assert_allclose(start[:19_999], np.log(counts[1:20_000] / counts[0]))
    np.testing.assert_allclose(start[19_999:], np.log(counts[20_001:] / counts[20_000]))
    every = FeatureSet.from_lists([[20_000], [20_001], [20_002], [20_001]], domain)
    np.testing.assert_array_equal(PseudoLikelihood(every, data).independent_start, 0)  # no state is left to measure against
    twice = FeatureSet.from_lists([[20_001], [20_001]], domain)
    np.testing.assert_allclose(PseudoLikelihood(twice, data).independent_start, [np.log(counts[20_001] / counts[20_000]), 0])


class TestNotebooks:
    def test_tables(self):
        table = Dataset(Domain([Variable("a<b", ("x&y", "z")), Variable("c", ("0", "1"))]), np.array([[0, 1], [1, -1]]))
        html = table._repr_html_()
        assert "<th>a&lt;b</th>" in html
        assert "<td>x&amp;y</td><td>1</td>" in html
        assert "<td>z</td><td></td>" in html
        assert "2 rows" in html

    def test_best_assignments_show_what_is_out_of_the_ordinary(self):
        n = 60
        domain = Domain([Variable(f"item{k}", ("no", "yes")) for k in range(n)])
        weights = np.full(n, -3.0)
        weights[[4, 9]] = 2.0
        network = MarkovNetwork(FeatureSet.atomic(domain), weights)
        found = network.map_state(k=2)
        first, second = str(found).splitlines()[:2]
        assert re.search(r"item4=yes, item9=yes \(and 58 variables in their first state\)$", first)
        assert re.search(r": item[49]=no$", second)
        assert len(found[0]) == n
        assert "item4=yes" in found._repr_html_()
        assert "references" not in found.to_dict()
        small = MarkovNetwork(FeatureSet.atomic(Domain.from_sizes([2] * 3)), [1.0, -1.0, -1.0]).map_state()
        assert "v0=1, v1=0, v2=0" in str(small)


def test_the_package_shows_its_names_and_types():
    assert dir(undirected) == sorted(undirected.__all__)
    assert resources.files("undirected").joinpath("py.typed").is_file()
