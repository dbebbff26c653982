"""Comparisons: right numbers, published values, significance, and results that survive anything."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from undirected import DTL1, DTSL, L1, Atomic, ChowLiu, DataError, ParameterError, compare, datasets, holdout, tune
from undirected.evaluation import runs
from undirected.evaluation.comparison import QUICK_TOL
from undirected.evaluation.published import PAPERS, published
from undirected.evaluation.results import Comparison, load_comparison
from undirected.evaluation.significance import compute_mean_ranks, compute_wilcoxon_p


@pytest.fixture(scope="module")
def tables():
    truth = datasets.grid_ising(3, 3, seed=1)
    return [datasets.exact_sample(truth, n, seed=k) for k, n in enumerate((600, 200, 300))]


@pytest.fixture(scope="module")
def results(tables, tmp_path_factory):
    other = [datasets.exact_sample(datasets.grid_ising(2, 4, seed=2), n, seed=k) for k, n in enumerate((500, 200, 300))]
    folder = tmp_path_factory.mktemp("results")
    done = compare(["dtsl", "chow-liu", "atomic"], {"nltcs": tables, "mine": other}, folder=folder, sizes=[0.5, 1.0], threads=1)
    return done, folder


def test_a_cell_is_what_tune_and_score_give(results, tables):
    tuned = tune(DTSL(tol=QUICK_TOL), "quick", tables[0], tables[1], refine=False)
    row = results[0].row("dtsl", "nltcs")
    assert row["settings"] == tuned.settings
    assert row["pll"] == pytest.approx(tuned.learner.score(tables[2]), abs=1e-9)
    assert row["npll"] == row["pll"] / 9
    assert row["n_features"] == len(tuned.features)
    assert row["mean_length"] == pytest.approx(tuned.features.lengths[tuned.fit.weights != 0].mean())
    assert row["n_settings"] == len(tuned.rows)
    assert row["seconds"] == row["structure_seconds"] + row["weights_seconds"] > 0
    assert 2e7 < row["peak_bytes"] < 2e9


def test_a_share_of_the_rows(results, tables):
    half = holdout(tables[0], 0.5, 0)[1]
    tuned = tune(ChowLiu(tol=QUICK_TOL), "quick", half, tables[1], refine=False)
    row = results[0].row("chow-liu", "nltcs", 0.5)
    assert row["train_rows"] == 300
    assert row["pll"] == pytest.approx(tuned.learner.score(tables[2]), abs=1e-9)


def test_what_is_written(results):
    done, folder = results
    written = json.loads((folder / "results.json").read_text())
    assert written["rows"] == done.rows
    assert load_comparison(folder).rows == done.rows
    with (folder / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["npll"]) for line in lines] == [row["npll"] for row in done.rows]
    assert float(lines[0]["setting_sd"]) == done.rows[0]["settings"]["sd"]
    assert list(done.to_frame()["npll"]) == [row["npll"] for row in done.rows]
    best = max(("dtsl", "chow-liu", "atomic"), key=lambda name: done.row(name, "nltcs")["npll"])
    line = next(line for line in done.to_markdown().splitlines() if line.startswith("| nltcs"))
    assert line.count("**") == 2
    assert f"**{done.row(best, 'nltcs')['npll']:.4f}" in line
    assert "(-0.309)" in line
    assert str(done).count("*") >= 2


def test_published_values_stand_beside_their_cells(results):
    row = results[0].row("dtsl", "nltcs")
    assert row["published_npll"] == -0.309
    assert "Table 3" in row["published_source"]
    assert results[0].row("dtsl", "mine")["published_npll"] is None
    assert results[0].row("atomic", "nltcs")["published_npll"] is None


@pytest.mark.parametrize(
    ("metric", "learner", "dataset", "paper", "table", "value"),
    [
        ("npll", "l1", "ad", "dtsl-2014", 3, -0.004),
        ("npll", "dt+l1", "bbc", "dtsl-2014", 3, -0.241),
        ("npll", "dtsl", "msnbc", "dtsl-2014", 3, -0.252),
        ("ncmll", "dt-blm", "plants", "dtsl-2014", 3, -0.141),
        ("seconds", "dt+l1", "c20ng", "dtsl-2014", 4, 601137),
        ("weights_seconds", "l1", "dna", "dtsl-2014", 5, 4532),
        ("cmll", "gssl", "pumsb_star", "gssl-2012", 2, -17.245),
        ("structure_seconds", "gssl", "nltcs", "gssl-2012", 3, 5),
        ("mean_length", "dtsl", "msweb", "gssl-2012", 4, 18.17),
        ("cmll", "atomic", "abalone", "blm-2010", 2, -17.657),
        ("seconds", "blm", "wine", "blm-2010", 2, 348),
    ],
)
def test_published_tables(metric, learner, dataset, paper, table, value):
    found = {(v.paper, v.table): v.value for v in published(metric, learner, dataset)}
    assert found[paper, table] == value
    assert paper in PAPERS


def test_published_tables_are_whole():
    from undirected.data.catalog import benchmarks

    names = list(benchmarks())
    for learner in ("dp", "blm", "l1", "dtsl", "dt-blm", "dt+l1"):
        for metric in ("npll", "ncmll", "seconds"):
            assert all(published(metric, learner, name) for name in names), (learner, metric)
    assert all(published("cmll", "gssl", name) for name in names)
    assert published("npll", "l1", "elsewhere") == []


def test_ranks_and_wilcoxon():
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [5.0, 6.0, 4.0]])
    np.testing.assert_allclose(compute_mean_ranks(scores), [(1 + 1.5 + 2) / 3, (2 + 1.5 + 1) / 3, 3])
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 8))
    # The exact distribution: every pattern of signs is equally likely.
    difference = a - b
    ranks = np.argsort(np.argsort(np.abs(difference))) + 1
    signs = np.array([[(k >> i) & 1 for i in range(8)] for k in range(256)])
    sums = signs @ ranks
    seen = ranks[difference > 0].sum()
    p = min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))
    assert compute_wilcoxon_p(a, b) == pytest.approx(p)
    assert compute_wilcoxon_p(a, a) == 1.0
    assert compute_wilcoxon_p(b, a) == pytest.approx(p)


def test_wilcoxon_as_published():
    """gssl-2012 reports 0.0193 for GSSL against DTSL and 0.0002 against BLM on its Table 2."""
    from undirected.data.catalog import benchmarks

    def column(learner):
        return [next(v.value for v in published("cmll", learner, name) if v.paper == "gssl-2012") for name in benchmarks()]

    assert compute_wilcoxon_p(column("gssl"), column("dtsl")) == pytest.approx(0.0193, abs=0.003)
    assert compute_wilcoxon_p(column("gssl"), column("blm")) == pytest.approx(0.0002, abs=0.0002)


def test_finished_cells_are_not_done_again(tables, tmp_path, monkeypatch):
    first = compare(["atomic", "chow-liu"], {"a": tables}, folder=tmp_path)
    monkeypatch.setattr(runs.CellRunner, "run", lambda self, jobs: None)  # nothing that is missing is filled
    assert compare(["chow-liu", "atomic"], {"a": tables}, folder=tmp_path).rows == first.rows[::-1]
    for content in ("", "{}", "[]", '{"identity": 1}'):
        (tmp_path / "cells" / "a--atomic.json").write_text(content)
        with pytest.raises(DataError, match="not a finished cell"):
            compare(["atomic"], {"a": tables}, folder=tmp_path)


def test_changed_data_makes_a_new_cell(tables, tmp_path):
    first = compare(["atomic"], {"a": tables}, folder=tmp_path)
    other = compare(["atomic"], {"a": [tables[1], tables[1], tables[2]]}, folder=tmp_path)
    assert first.rows[0]["npll"] != other.rows[0]["npll"]


SCRIPT = """
import sys
from undirected import compare, datasets
truth = datasets.grid_ising(3, 3, seed=1)
tables = [datasets.exact_sample(truth, n, seed=k) for k, n in enumerate((600, 200, 300))]
compare(["dtsl", "l1", "dt+l1"], {"a": tables, "b": tables[::-1]}, folder=sys.argv[1], grid="paper", jobs=2, threads=1)
"""


def lasting(folder):
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return [{k: v for k, v in row.items() if "seconds" not in k and k != "peak_bytes"} for row in rows]


def test_killed_and_started_again(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, tmp_path / "whole"], check=True, timeout=200)
    waits = iter([1.0, 2.0, 3.0, 3.5, 4.0])
    kills = 0
    while True:
        process = subprocess.Popen([sys.executable, script, tmp_path / "broken"])
        wait = next(waits, None)
        if wait is None:
            assert process.wait(timeout=200) == 0
            break
        time.sleep(wait)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills >= 1
    assert lasting(tmp_path / "broken") == lasting(tmp_path / "whole")


def test_the_work_of_a_killed_comparison_ends(tmp_path):
    """A cell's process ends when its parent does, and a folder is worked in by one comparison at a time."""
    (tmp_path / "cells").mkdir()
    with runs.lock_folder(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "WAIT_FOR_PROCESSES", 0.3)
        with pytest.raises(DataError, match="at work in"), runs.lock_folder(tmp_path):
            pass
    with runs.lock_folder(tmp_path):
        pass
    process = subprocess.Popen([sys.executable, "-m", "undirected.evaluation.cell"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdin.close()
    assert process.wait(timeout=30) != 0


def test_failures_are_told_and_tried_again(tables, tmp_path):
    learners = {"bad": DTSL(min_rows=-1), "good": Atomic()}
    done = compare(learners, {"a": tables}, folder=tmp_path)
    assert [row["learner"] for row in done.errors] == ["bad"]
    assert "min_rows" in done.errors[0]["error"]
    assert done.row("bad", "a") is None
    assert "failed" in str(done)
    again = compare({"bad": DTSL(), "good": Atomic()}, {"a": tables}, folder=tmp_path)
    assert again.errors == []


def test_a_table_is_divided(tmp_path):
    path = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    path.write_text("a,b,c\n" + "\n".join(",".join(rng.choice(["x", "y", "z"], 3)) for _ in range(200)))
    done = compare([L1(C=0.1), "gssl"], [path], grid={"gssl": {"n_generated": [np.int64(500)], "threshold": [1]}})
    assert done.rows[0]["train_rows"] == 150
    assert done.errors == []


def test_splits_are_taken_from_a_file_that_has_them(tmp_path):
    bits = np.random.default_rng(0).integers(2, size=(90, 9), dtype=np.uint8)
    parts = {name: np.packbits(rows, axis=1) for name, rows in zip(("train", "valid", "test"), np.split(bits, [50, 70]), strict=True)}
    np.savez(tmp_path / "packed.npz", n_vars=9, **parts)
    np.savez(tmp_path / "plain.npz", X=bits)
    done = compare(["atomic"], [tmp_path / "packed.npz", tmp_path / "plain.npz"])
    assert [row["train_rows"] for row in done.rows] == [50, 67]
    assert done.errors == []


def test_names_that_look_alike_in_a_file_name_stay_apart(tables, tmp_path):
    done = compare({"my atomic": Atomic(), "my_atomic": ChowLiu()}, {"a b": tables, "a_b": tables[::-1]}, folder=tmp_path, jobs=2)
    alone = [compare({"x": made}, {"y": t}).rows[0]["npll"] for t in (tables, tables[::-1]) for made in (Atomic(), ChowLiu())]
    assert [row["npll"] for row in done.rows] == alone
    assert len(json.loads((tmp_path / "results.json").read_text())["rows"]) == 4


def test_ctrl_c_returns_what_is_done(tables, tmp_path):
    def stop(event):
        raise KeyboardInterrupt

    done = compare(["atomic", "chow-liu"], {"a": tables}, folder=tmp_path, progress=stop)
    assert not done.complete
    assert [row["learner"] for row in done.rows] == ["atomic"]
    assert "stopped before all cells" in str(done)
    whole = compare(["atomic", "chow-liu"], {"a": tables}, folder=tmp_path)
    assert whole.complete
    assert len(whole.rows) == 2


def test_bad_requests(tables, tmp_path):
    for wrong in (
        {"learners": []}, {"learners": ["dtsl", "dtsl"]}, {"learners": ["dtls"]}, {"datasets": []}, {"datasets": ["digits", "digits"]},
        {"jobs": 0}, {"sizes": [0.0]}, {"sizes": []}, {"grid": "huge"}, {"datasets": {"a": tables[:2]}}, {"learners": [42]},
        {"grid": {"dtls": "quick"}}, {"learners": [Atomic(bins=3), ChowLiu()]},
    ):  # fmt: skip
        with pytest.raises(ParameterError):
            compare(**{"learners": ["atomic"], "datasets": ["digits"], "folder": tmp_path / "new", **wrong})
    assert not (tmp_path / "new").exists()
    with pytest.raises(DataError, match="run compare"):
        load_comparison(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        compare(["atomic"], ["digits"], folder=tmp_path / "file")


@pytest.mark.parametrize("kind", ["relative", "runtime", "curves"])
def test_figures_hold_what_they_should(results, kind):
    done = results[0]
    figure = done.plot(kind)
    texts = [text.get_text() for axes in figure.axes for text in axes.get_xticklabels()] + [axes.get_title() for axes in figure.axes]
    if kind == "runtime":
        assert "seconds of dtsl" in figure.axes[0].get_xlabel()
    else:
        assert {"nltcs", "mine"} <= set(texts)
    if kind == "curves":
        line = figure.axes[0].lines[0]
        np.testing.assert_allclose(line.get_xdata(), [0.3, 0.6])
        assert line.get_ydata()[-1] == done.row("dtsl", "nltcs")["npll"]
    if kind == "relative":
        bars = figure.axes[0].containers[0]
        base, other = done.row("dtsl", "nltcs")["npll"], done.row("chow-liu", "nltcs")["npll"]
        assert bars[0].get_height() == pytest.approx(100 * (base - other) / -base)
    with pytest.raises(ParameterError, match="relative, runtime, curves"):
        done.plot("pie")
    with pytest.raises(ParameterError, match="reference"):
        done.plot("relative", reference="nobody")
    assert "against atomic" in done.plot("relative", reference="atomic").axes[0].get_ylabel()


def test_figures_leave_no_learner_out_without_a_word(results):
    bars = {c.get_label(): c for c in results[0].plot("relative").axes[0].containers}
    assert set(bars) == {"chow-liu", "atomic"}
    rows = [
        {"learner": learner, "dataset": name, "fraction": 1.0, "train_rows": 10, "npll": score, "seconds": 1.0}
        for name, shift in (("one", 0.0), ("two", 0.1))
        for learner, score in (("dtsl", -0.5 - shift), ("l1", -0.51), ("l2", -0.505), ("atomic", -5.0))
    ]
    rows[5] = {"learner": "l1", "dataset": "two", "fraction": 1.0, "train_rows": 10, "error": "no"}
    rows.append({"learner": "gssl", "dataset": "one", "fraction": 1.0, "train_rows": 10, "error": "no"})
    figure = Comparison(rows).plot("relative")
    bars = {c.get_label(): [bar.get_height() for bar in c] for c in figure.axes[0].containers}
    assert bars["l1"] == pytest.approx([2.0])
    assert bars["l2"] == pytest.approx([1.0, 100 * (0.505 - 0.6) / 0.6])
    assert max(bars["atomic"]) < 100  # cut, and marked
    assert {text.get_text() for text in figure.axes[0].texts} == {"900", "733"}
    note = figure.get_supxlabel()
    assert "gssl has no score" in note
    assert "two has no score of l1" in note
    assert Comparison(rows[:4]).plot("relative").get_supxlabel() == ""
    without = Comparison([row for row in rows if "error" not in row and (row["learner"], row["dataset"]) != ("dtsl", "two")])
    assert "against l2" in without.plot("relative").axes[0].get_ylabel()


def test_a_budget_ends_the_search_with_what_there_is(tables, tmp_path):
    done = compare(["dtsl", DTL1], {"a": tables}, grid="paper", time_budget=0.0, folder=tmp_path)
    for row in done.rows:
        assert not row["complete"]
        assert row["n_settings"] < 20
    assert "time budget" in str(done)
    whole = compare(["dtsl"], {"a": tables}, grid="paper", folder=tmp_path)
    assert whole.rows[0]["npll"] == compare(["dtsl"], {"a": tables}, grid="paper").rows[0]["npll"]


def test_the_peak_of_memory_is_that_of_the_process_alone():
    """Of a process that holds 200 MB for a moment, against one that does not; what the parent holds does not count."""
    held = np.ones(300_000_000 // 8)
    code = "import numpy as np; from undirected.evaluation.cell import measure_peak_bytes; np.ones({}); print(measure_peak_bytes())"
    small, large = (int(subprocess.check_output([sys.executable, "-c", code.format(n)])) for n in (1, 200_000_000 // 8))
    assert large - small == pytest.approx(200e6, rel=0.1)
    assert small < held.nbytes


def test_empty_scores():
    row = {"learner": "a", "dataset": "b", "fraction": 1.0, "error": "no"}
    assert Comparison([row]).ranks() == {}
    with pytest.raises(ParameterError, match="nothing to draw"):
        Comparison([row]).plot()
