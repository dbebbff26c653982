"""Groups of rows: tests that keep their level, find what is there, and say what they cannot do."""

from __future__ import annotations

import json

import numpy as np
import pytest

from undirected import AllPairs, Dataset, Domain, Variable, compare_groups, datasets
from undirected.errors import DataError
from undirected.evaluation.groups import _correct
from undirected.plots import draw_groups


def make_table(n, differ, seed, n_variables=4):
    """Rows of two groups; in the second the last two variables go together, if groups are to differ."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 2
    codes = rng.integers(0, 2, (n, n_variables))
    codes[:, 1] = np.where(rng.random(n) < 0.75, codes[:, 0], codes[:, 1])
    if differ:
        copies = (group == 1) & (rng.random(n) < 0.7)
        codes[copies, 3] = codes[copies, 2]
    domain = Domain([Variable("sex", ("m", "f")), *(Variable(f"q{k}", ("no", "yes")) for k in range(n_variables))])
    return Dataset(domain, np.column_stack([group, codes]))


def test_a_difference_is_found_where_it_is():
    found = compare_groups(make_table(600, True, 1), "sex", learner=AllPairs(l1=2, tol=1e-4), permutations=99)
    assert found.structure_p == 0.01
    first = found.edges[0]
    assert (first.a, first.b) == ("q2", "q3")
    assert first.p_corrected <= 0.06  # of six edges, and 99 permutations
    assert first.values["f"] > first.values["m"] + 1
    assert {(e.a, e.b): e.p for e in found.edges}["q0", "q1"] > 0.05


def test_equal_groups_are_called_different_no_more_often_than_the_level():
    """Under the hypothesis p is uniform: of 40 tables, 8 or more below 0.1 come once in 25, 9 or more once in 70, 10 once in 200."""
    p = [compare_groups(make_table(120, False, s), "sex", learner=AllPairs(l1=2, tol=1e-3), permutations=19).structure_p for s in range(40)]
    assert sum(value <= 0.1 for value in p) < 10
    assert min(p) >= 0.05


def test_the_number_of_threads_changes_nothing():
    table = make_table(200, True, 2)
    one, other = (compare_groups(table, "sex", permutations=20, threads=n).to_dict() for n in (1, 3))
    assert json.dumps(one) == json.dumps(other)


def test_holm_is_what_statsmodels_has():
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="statsmodels is not installed")
    p = np.random.default_rng(0).random(30) ** 3
    np.testing.assert_allclose(_correct(p), multitest.multipletests(p, method="holm")[1])


def test_holm_by_hand():
    assert _correct(np.array([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.06, 0.06])


def test_gaps_and_rows_without_a_group():
    table = make_table(300, True, 3)
    codes = table.codes.copy()
    codes[:5, 0] = -1
    codes[5:40, 2] = -1
    with pytest.warns(match="5 rows without 'sex' are left out|35 missing cells are filled in once"):
        found = compare_groups(Dataset(table.domain, codes), "sex", permutations=19)
    assert sum(found.sizes.values()) == 295


@pytest.mark.parametrize(
    ("table", "by", "match"),
    [
        (make_table(40, False, 1), "sexx", "Did you mean 'sex'"),
        (make_table(16, False, 1), "sex", "group sex=m has 8 rows; 10 are needed"),
        (make_table(40, False, 1).subset(np.arange(0, 40, 2)), "sex", "has one group only"),
    ],
)
def test_wrong_use_is_told(table, by, match):
    with pytest.raises(DataError, match=match):
        compare_groups(table, by)


def test_the_picture_has_a_panel_for_each_group_and_one_for_the_difference():
    figure = draw_groups(compare_groups(make_table(200, True, 1), "sex", permutations=19))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "m (100 rows)"
    assert titles[2].startswith("f less m")
    places = [{text.get_text(): text.xy for text in axes.texts} for axes in figure.axes]
    assert places[0] == places[1] == places[2]


def test_three_groups():
    data = datasets.exact_sample(datasets.grid_ising(2, 2, seed=1), 300, seed=1)
    group = np.arange(300) % 3
    table = Dataset(Domain([Variable("g", ("a", "b", "c")), *data.domain.variables]), np.column_stack([group, data.codes]))
    found = compare_groups(table, "g", permutations=19)
    assert set(found.networks) == {"a", "b", "c"}
    edge = found.edges[0]
    assert edge.difference == pytest.approx(max(edge.values.values()) - min(edge.values.values()))
