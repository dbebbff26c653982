"""Tuning: the best of all settings, ledgers that survive anything."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from clocks import Record
from undirected import DTL1, DTSL, GSSL, L1, AllPairs, FormatError, ParameterError, Unconverged, datasets, tune
from undirected.tuning.run import StructureTried
from undirected.weights.outcome import SolverStep


@pytest.fixture(scope="module")
def tables():
    truth = datasets.grid_ising(3, 3, seed=1)
    return [datasets.exact_sample(truth, n, seed=k) for k, n in enumerate((800, 400))]


def test_best_setting_equals_a_plain_loop(tables):
    grid = {"C": [0.02, 0.2], "consistency": ["and", "or"], "sd": [0.1, 1.0]}
    tuned = tune(L1(), grid, *tables, search_tol=0, refine=False)
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


def test_a_ledger_is_taken_up_where_it_stopped(tables, tmp_path):
    grid = {"kappa": [0.01, 1.0], "conversion": ["prune", "nonzero"], "sd": [0.1, 1.0]}
    whole = tune(DTSL(), grid, *tables)
    path = tmp_path / "new" / "ledger.jsonl"
    tried = []

    def interrupt_the_third(event):
        tried.extend([event] if isinstance(event, StructureTried) else [])
        if len(tried) == 2 and isinstance(event, SolverStep):
            raise KeyboardInterrupt

    with pytest.warns(Unconverged, match="interrupt"):
        cut = tune(DTSL(), grid, *tables, ledger=path, progress=interrupt_the_third)
    assert not cut.complete
    assert cut.valid_pll == max(row["valid_pll"] for row in cut.rows)  # the best of what was done
    assert cut.learner.network_.pll(tables[1]) == pytest.approx(cut.valid_pll)
    assert len(path.read_text().splitlines()) == 2  # two structures
    with path.open("a") as file:
        file.write('{"owner": "cut in the mid')
    record = Record()
    resumed = tune(DTSL(), grid, *tables, ledger=path, progress=record)
    # Trees are grown; two structures come from the ledger, two are weighed, and the best is settled and refined.
    assert record.kinds() == ["Counted", "StructureTried", "SolverStep", "StructureTried", "SolverStep", "StructureTried", "SolverStep"]
    assert resumed.settings == whole.settings
    np.testing.assert_array_equal(resumed.learner.network_.weights, whole.learner.network_.weights)
    for a, b in zip(resumed.rows, whole.rows, strict=True):
        assert {k: v for k, v in a.items() if "seconds" not in k} == {k: v for k, v in b.items() if "seconds" not in k}
    assert all(json.loads(line) for line in path.read_text().splitlines())
    record = Record()
    again = tune(DTSL(), grid, *tables, ledger=path, progress=record)
    assert record.kinds() == ["SolverStep", "Counted"]  # the best is settled and refined, and its trees are grown
    assert again.features == whole.features
    np.testing.assert_array_equal(again.learner.network_.weights, whole.learner.network_.weights)
    path.write_text(path.read_text().replace('"literals": "', '"literals": "nonsense'))
    with pytest.raises(FormatError, match="cannot be read"):
        tune(DTSL(), grid, *tables, ledger=path)


def test_ctrl_c_at_the_tolerance_is_not_lost(tables):
    """Even where the weights are already as good as they were asked to be, what comes after does not begin."""
    pressed = []

    def interrupt(event):
        if isinstance(event, SolverStep) and event.violation <= 1e-5 and not pressed:
            pressed.append(event)
            raise KeyboardInterrupt

    with pytest.warns(Unconverged, match="interrupt"):
        tuned = tune(AllPairs(), {"l1": [5.0, 2.0, 1.0], "sd": [1.0]}, *tables, progress=interrupt)
    assert pressed
    assert not tuned.complete
    assert tuned.fit.stopped_by == "interrupt"


def test_parts_of_a_tuning_have_no_milestones_of_their_own(tables):
    record = Record()
    tune(DTL1(), "quick", *tables, progress=record)
    tried = [event for event in record.events if isinstance(event, StructureTried)]
    assert [event.structures for event in tried] == list(range(1, len(tried) + 1))


def test_searches_share_a_ledger_without_mixing(tables, tmp_path):
    path = tmp_path / "ledger.jsonl"
    searches = [(AllPairs(), {"l1": [1.0]}, tables), (AllPairs(), {"l1": [2.0]}, tables), (AllPairs(), {"l1": [1.0]}, tables[::-1])]
    apart = [tune(learner, grid, *pair) for learner, grid, pair in searches]
    for _ in range(2):
        for alone, (learner, grid, pair) in zip(apart, searches, strict=True):
            assert tune(learner, grid, *pair, ledger=path).valid_pll == alone.valid_pll
        assert len(path.read_text().splitlines()) == 6  # for each a structure and the end
    path.write_text("hello\n")
    with pytest.raises(FormatError, match="not a ledger"):
        tune(AllPairs(), {"l1": [1.0]}, *tables, ledger=path)
    assert path.read_text() == "hello\n"


def test_dt_l1_takes_what_its_parts_left_in_the_ledger(tables, tmp_path):
    alone = tune(DTL1(), "quick", *tables)
    path = tmp_path / "ledger.jsonl"
    for part in (DTSL(), L1()):
        tune(part, "quick", *tables, ledger=path)
    record = Record()
    joined = tune(DTL1(), "quick", *tables, ledger=path, progress=record)
    assert record.kinds() == ["SolverStep", "StructureTried", "SolverStep"]  # no trees, no regressions; the joined features alone
    assert joined.settings == alone.settings
    assert joined.valid_pll == alone.valid_pll


def test_the_search_tolerance_hardly_matters():
    train, valid = datasets.load("digits"), datasets.load("digits", "valid")
    grid = {"kappa": ["best"], "conversion": ["prune", "nonzero"], "sd": [0.1, 1.0, 10.0]}
    loose, strict = (tune(DTSL(), grid, train, valid, search_tol=tol) for tol in (None, 0))
    assert loose.settings == strict.settings
    assert loose.valid_pll == pytest.approx(strict.valid_pll, abs=1e-3)
    for a, b in zip(loose.rows, strict.rows, strict=True):
        if a["valid_pll"] > strict.valid_pll - 1:
            assert a["valid_pll"] == pytest.approx(b["valid_pll"], abs=0.02)
    assert loose.fit.violation <= 1e-5


def test_a_ledger_that_cannot_be_written_or_read(tables, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for path in (tmp_path, tmp_path / "file" / "ledger.jsonl", tmp_path / "binary"):
        with pytest.raises(FormatError, match="cannot serve"):
            tune(AllPairs(), {"l1": [1.0]}, *tables, ledger=path)


def test_without_validation_data_a_tenth_is_set_aside(tables):
    a, b = (tune(AllPairs(), {"l1": [1.0, 30.0]}, tables[0], seed=3).rows for _ in range(2))
    assert [r["valid_pll"] for r in a] == [r["valid_pll"] for r in b]


def test_refining_tries_what_lies_between(tables):
    plain, refined = (tune(AllPairs(l1=0.0), {"sd": [0.001, 0.05, 100.0]}, *tables, refine=flag) for flag in (False, True))
    assert [row["sd"] for row in plain.rows] == [0.001, 0.05, 100.0]
    assert plain.settings["sd"] == 100.0
    assert [row["sd"] for row in refined.rows][:4] == [0.001, 0.05, 100.0, 2.24]
    plain, refined = (tune(AllPairs(l1=0.0), {"sd": [0.001, 0.02]}, *tables, refine=flag) for flag in (False, True))
    assert [row["sd"] for row in refined.rows][:3] == [0.001, 0.02, 0.00447]
    assert refined.settings["sd"] == plain.settings["sd"] == 0.02  # a tighter prior is worse here, and is not taken


def test_refining_takes_what_is_clearly_better():
    """Weights of a dense network from few rows: the best prior lies between one that is too tight and one that is too loose."""
    truth = datasets.grid_ising(3, 3, seed=1)
    train, valid = datasets.exact_sample(truth, 60, seed=1), datasets.exact_sample(truth, 20_000, seed=2)
    grid = {"sd": [0.01, 100.0]}
    plain, refined = (tune(AllPairs(l1=0.0), grid, train, valid, refine=flag) for flag in (False, True))
    assert refined.settings["sd"] not in grid["sd"]
    assert refined.valid_pll > plain.valid_pll
    assert refined.learner.score(valid) == pytest.approx(refined.valid_pll, abs=1e-3)
    assert refined.learner.sd == refined.settings["sd"]
    best = max(refined.rows, key=lambda row: row["valid_pll"])
    assert refined.valid_pll == pytest.approx(best["valid_pll"], abs=0.02)


def test_settings_and_score_belong_to_the_fit():
    """Also where several structures are nearly equal and the full tolerance changes their order."""
    truth = datasets.grid_ising(3, 3, seed=1)
    for seed in range(12):
        train, valid = (datasets.exact_sample(truth, 150, seed=100 * k + seed) for k in (1, 2))
        tuned = tune(L1(), {"C": [0.1, 0.15, 0.2, 0.25], "consistency": ["and", "or"], "sd": [0.3, 1.0]}, train, valid)
        assert tuned.valid_pll == tuned.fit.network().pll(valid)
        again = L1(**tuned.settings).fit(train)
        assert again.fit_.features == tuned.features
        assert again.score(valid) == pytest.approx(tuned.valid_pll, abs=1e-4)


def test_a_grid_with_infinity(tables):
    tuned = tune(AllPairs(), {"l1": [1.0], "sd": [10.0, float("inf")]}, *tables)
    assert [row["sd"] for row in tuned.rows] == [10.0, float("inf")]


def test_bad_grids(tables):
    with pytest.raises(ParameterError, match="kapa"):
        tune(DTSL(), {"kapa": [1]}, *tables)
    with pytest.raises(ParameterError, match="list"):
        tune(DTSL(), {"sd": 1.0}, *tables)
    with pytest.raises(ParameterError, match="quick, paper"):
        tune(DTSL(), "papers", *tables)
    with pytest.raises(ParameterError, match="training data"):
        tune(DTSL())
