"""Tuning: the best of all settings, ledgers that survive anything."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from undirected import DTL1, DTSL, GSSL, L1, AllPairs, FormatError, ParameterError, datasets, tune
from undirected.weights import tuning


@pytest.fixture(scope="module")
def tables():
    truth = datasets.grid_ising(3, 3, seed=1)
    return [datasets.exact_sample(truth, n, seed=k) for k, n in enumerate((800, 400))]


def test_best_setting_equals_a_plain_loop(tables):
    grid = {"C": [0.02, 0.2], "consistency": ["and", "or"], "sd": [0.1, 1.0]}
    tuned = tune(L1(), grid, *tables)
    scores = {}
    for c, way, sd in itertools.product(*grid.values()):
        scores[c, way, sd] = L1(C=c, consistency=way, sd=sd).fit(tables[0]).score(tables[1])
    best = max(scores, key=scores.get)
    assert (tuned.settings["C"], tuned.settings["consistency"], tuned.settings["sd"]) == best
    assert len(tuned.rows) == 8
    for row in tuned.rows:
        assert row["valid_pll"] == pytest.approx(scores[row["C"], row["consistency"], row["sd"]], abs=1e-4)
    assert tuned.learner.score(tables[1]) == pytest.approx(tuned.valid_pll, abs=1e-4)
    assert str(tuned).splitlines()[1].split()[0] == str(best[0])


@pytest.mark.parametrize("learner", [DTSL(), GSSL(n_generated=500), DTL1(), AllPairs()])
def test_own_grids(learner, tables):
    quick = tune(learner, "quick", *tables)
    assert quick.learner.network_.pll(tables[1]) > AllPairs(l1=1e6).fit(tables[0]).score(tables[1])
    for grid in (learner.paper_grid, learner.quick_grid):
        assert set(grid) <= set(learner.get_params())


def test_a_ledger_is_taken_up_where_it_stopped(tables, tmp_path, monkeypatch):
    grid = {"kappa": [0.01, 1.0], "conversion": ["prune", "nonzero"], "sd": [0.1, 1.0]}
    whole = tune(DTSL(), grid, *tables)
    path = tmp_path / "new" / "ledger.jsonl"
    real, calls = tuning._weigh, []

    def dies_at_third(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(tuning, "_weigh", dies_at_third)
    with pytest.raises(KeyboardInterrupt):
        tune(DTSL(), grid, *tables, ledger=path)
    assert len(path.read_text().splitlines()) == 3  # what it is, and two structures
    with path.open("a") as file:
        file.write('{"key": "cut in the mid')
    resumed = tune(DTSL(), grid, *tables, ledger=path)
    assert len(calls) == 5  # two, one that died, two more
    assert resumed.settings == whole.settings
    np.testing.assert_array_equal(resumed.learner.network_.weights, whole.learner.network_.weights)
    for a, b in zip(resumed.rows, whole.rows, strict=True):
        assert {k: v for k, v in a.items() if "seconds" not in k} == {k: v for k, v in b.items() if "seconds" not in k}
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_ledger_of_something_else_is_refused(tables, tmp_path):
    path = tmp_path / "ledger.jsonl"
    tune(AllPairs(), {"l1": [1.0]}, *tables, ledger=path)
    before = path.read_text()
    for grid, train in (({"l1": [2.0]}, tables[0]), ({"l1": [1.0]}, tables[1])):
        with pytest.raises(FormatError, match="belongs to another"):
            tune(AllPairs(), grid, train, tables[1], ledger=path)
    assert path.read_text() == before
    path.write_text("hello\n")
    with pytest.raises(FormatError, match="not a ledger"):
        tune(AllPairs(), {"l1": [1.0]}, *tables, ledger=path)


def test_a_ledger_that_cannot_be_written_or_read(tables, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for path in (tmp_path, tmp_path / "file" / "ledger.jsonl", tmp_path / "binary"):
        with pytest.raises(FormatError, match="cannot serve"):
            tune(AllPairs(), {"l1": [1.0]}, *tables, ledger=path)


def test_without_validation_data_a_tenth_is_set_aside(tables):
    a, b = (tune(AllPairs(), {"l1": [1.0, 30.0]}, tables[0], seed=3).rows for _ in range(2))
    assert [r["valid_pll"] for r in a] == [r["valid_pll"] for r in b]


def test_bad_grids(tables):
    with pytest.raises(ParameterError, match="kapa"):
        tune(DTSL(), {"kapa": [1]}, *tables)
    with pytest.raises(ParameterError, match="list"):
        tune(DTSL(), {"sd": 1.0}, *tables)
    with pytest.raises(ParameterError, match="quick, paper"):
        tune(DTSL(), "papers", *tables)
    with pytest.raises(ParameterError, match="training data"):
        tune(DTSL())
