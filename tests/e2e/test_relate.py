"""The commands for relational data, as a user runs them."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time

import pytest

from relations import make_blocks
from undirected.relational import RelationalData
from undirected.relational.model_file import load_model


def run(*args, cwd=None, **kwargs):
    command = [sys.executable, "-c", "from undirected.cli import main; main()", "relate", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, **kwargs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Triples of a planted block model, and a model of them."""
    folder = tmp_path_factory.mktemp("relate")
    data, _ = make_blocks(20, 2, 3, seed=3)
    table = data["pair"]
    lines = []
    for (a, b), codes in zip(table.arguments.tolist(), table.cells.codes.tolist(), strict=True):
        lines += [f"e{a}\tr{v}\te{b}" for v, code in enumerate(codes) if code]
    (folder / "graph.tsv").write_text("\n".join(lines) + "\n")
    pairs = folder / "tables"
    pairs.mkdir()
    (pairs / "entities.tsv").write_text("thing\n" + "".join(f"e{k}\n" for k in range(20)))
    facts = [line.split("\t") for line in lines]
    kept = [(r, a, b) for a, r, b in facts if (a, b) != ("e0", "e1")]
    (pairs / "relations.tsv").write_text("relation\tsubject\tobject\n" + "".join("\t".join(f) + "\n" for f in kept))
    (pairs / "unknown.tsv").write_text("relation\tsubject\tobject\n" + "".join(f"r{v}\te0\te1\n" for v in range(3)))
    done = run("learn", "tables", "--beta", 1, "--beta-cluster", 10, "--hidden", 1, "-o", "model.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "wrote model.json" in done.stderr
    return folder


def test_learning_tells_what_was_learned(folder):
    done = run("learn", "graph.tsv", "--hidden", 0, "--beta", 1, "--json", "-q", cwd=folder)
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["dim_theta"] == 3 + 3 + 6  # states, pairs of relations, and those of a pair and its twin
    assert report["violation"] <= 1e-4
    assert done.stderr == ""


def test_missing_cells_are_predicted_with_their_distributions(folder):
    done = run("predict", "model.json", "tables", "-o", "filled.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((folder / "filled.csv").read_text().splitlines()))
    assert [(row["type"], row["entity"], row["attribute"]) for row in rows] == [("pair", "(e0, e1)", f"r{v}") for v in range(3)]
    expected = load_model(folder / "model.json").predict_proba(RelationalData.from_folder(folder / "tables"))[1]
    assert [float(row["probability"]) for row in rows] == pytest.approx([float(chances[0].max()) for chances in expected], abs=1e-4)
    report = json.loads(run("predict", "model.json", "tables", "--json", "-q", cwd=folder).stdout)
    assert [list(row["distribution"].values()) for row in report["predictions"]] == [chances[0].tolist() for chances in expected]


def test_what_was_learned_is_shown_explained_and_drawn(folder):
    shown = run("show", "model.json", cwd=folder)
    assert shown.returncode == 0
    assert "goes with" in shown.stdout or "goes against" in shown.stdout
    assert "thing.H0 = C0: e" in shown.stdout
    told = run("explain", "model.json", "tables", "pair(e0, e1).r1", "--json", cwd=folder)
    report = json.loads(told.stdout)
    predicted = json.loads(run("predict", "model.json", "tables", "--json", "-q", cwd=folder).stdout)["predictions"][1]
    assert report["distribution"] == pytest.approx(predicted["distribution"], abs=2e-3)
    drawn = run("plot", "model.json", "tables", "-o", "model.svg", cwd=folder)
    assert drawn.returncode == 0, drawn.stderr
    assert "<svg" in (folder / "model.svg").read_text()


@pytest.mark.parametrize(("learner", "text"), [("irm", "clusters of thing"), ("mrc", "clusters of thing"), ("msl", "clauses")])
def test_other_learners_are_learned_shown_and_predict(folder, learner, text):
    file = f"{learner}.json"
    done = run("learn", "tables", "--model", learner, "-o", file, "--json", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["learner"] == learner
    shown = run("show", file, cwd=folder)
    assert text in shown.stdout
    predicted = run("predict", file, "tables", cwd=folder)
    assert predicted.returncode == 0, predicted.stderr
    expected = load_model(folder / file).predict_proba(RelationalData.from_folder(folder / "tables"))[1]
    rows = list(csv.DictReader(predicted.stdout.splitlines()))
    assert [float(row["probability"]) for row in rows] == pytest.approx([float(chances[0].max()) for chances in expected], abs=1e-4)
    refused = run("plot", file, "tables", "-o", "x.svg", cwd=folder)
    assert "has no weights along paths to draw" in refused.stderr
    assert refused.returncode == 3


def test_a_comparison_goes_on_where_it_was_stopped(folder):
    arguments = ["compare", "tables", "--learners", "rmn0,rmn1", "--folds", 2, "-o", "out"]
    first = run(*arguments, "--json", cwd=folder)
    assert first.returncode == 0, first.stderr
    report = json.loads(first.stdout)
    assert [(line["learner"], line["folds"]) for line in report["rows"]] == [("rmn0", 2), ("rmn1", 2)]
    began = time.perf_counter()
    second = json.loads(run(*arguments, "--json", cwd=folder).stdout)
    assert second["folds"] == report["folds"]  # seconds, too: nothing was done again
    assert time.perf_counter() - began < 60
    assert "| tables | rmn1 |" in (folder / "out" / "relations.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["learn", "nowhere.db"], "there is no file or folder 'nowhere.db'", 3),
        (["learn", "grahp.tsv"], "Did you mean 'graph.tsv'?", 3),
        (["learn", "x.mln"], "needs one .db file", 2),
        (["learn", "tables", "--beta", "much"], "a number or auto is needed", 2),
        (["learn", "tables", "--open-world"], "--open-world does not go with 'tables'", 2),
        (["learn", "tables", "-o", "nowhere/model.json"], "the folder nowhere does not exist", 3),
        (["learn", "graph.tsv", "--hidden-types", "entiti"], "Did you mean 'entity'?", 3),
        (["predict", "graph.tsv", "tables"], "graph.tsv: not a model", 3),
        (["predict", "model.json", "graph.tsv"], "there is no type 'thing'", 3),
        (["explain", "model.json", "tables", "pair(x).r0"], "there is no pair '(x)'", 3),
        (["explain", "model.json", "tables", "thing(e0).r0"], "no variable 'r0'", 3),
        (["explain", "model.json", "tables", "r0"], "'r0' is no atom", 2),
        (["plot", "model.json", "tables", "-o", "x.gif"], "the suffix '.gif' is not one of", 3),
        (["plot", "model.json", "tables", "--relations", "r7", "-o", "x.svg"], "there is no attribute 'r7'", 3),
        (["compare", "tables", "--learners", "rmn7"], "learner 'rmn7' is not known", 2),
        (["learn", "tables", "--model", "mrc", "--order", "2"], "--order is an option of treermn; mrc does not have it", 2),
        (["compare"], "name data, or benchmark sets", 2),
        (["compare", "--datasets", "aminals"], "no relational data set 'aminals'", 3),
    ],
)
def test_wrong_use_is_told_in_one_line(folder, arguments, text, code):
    done = run(*arguments, cwd=folder)
    assert text in done.stderr
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_ctrl_c_writes_what_there_is(folder, data_folder):
    command = [sys.executable, "-c", "from undirected.cli import main; main()", "relate", "learn"]
    where = data_folder / "relational" / "umls"
    process = subprocess.Popen(
        [*command, where, "--order", "2", "-o", folder / "early.json"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs are deaf to it
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "read RelationalData" in line:
            break
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert (folder / "early.json").exists()
    assert "Traceback" not in errors
