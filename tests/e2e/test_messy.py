"""A messy table through every command that reads one."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from undirected import load

COMMAND = [sys.executable, "-c", "from undirected.cli import main; main()"]
HOW = ("--encoding", "latin-1", "--na", "99", "--drop", "Größe id", "--drop", "when")


def run(*args, cwd, code=0):
    done = subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, cwd=cwd, env=dict(os.environ))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An index, an identifier, dates, truth values, decimal commas, 99 for missing cells, not in UTF-8."""
    folder = tmp_path_factory.mktemp("messy")
    rng = np.random.default_rng(0)
    lines = [";Größe id;when;flag;pain;level"]
    for k in range(120):
        flag, pain = rng.random() < 0.5, rng.integers(0, 3)
        level = f"{rng.random() * 10 + 5 * flag:.2f}".replace(".", ",")
        lines.append(f"{k};P{k * 77 % 997};2024-0{1 + k % 9}-{10 + k % 19};{flag};{99 if k == 7 else pain};{level}")
    (folder / "t.csv").write_bytes(("\n".join(lines) + "\n").encode("latin-1"))
    return folder


def test_the_first_command_names_what_is_odd(folder):
    done = run("data", "describe", "t.csv", "--encoding", "latin-1", cwd=folder)
    assert "index and is left out" in done.stderr
    assert "--drop 'Größe id' --drop when" in done.stderr
    assert "pain: 0" in done.stdout


def test_every_command_reads_it(folder):
    learned = run("learn", "t.csv", *HOW, "--missing", "mode", "-a", "chow-liu", "-o", "net.json", "--json", cwd=folder)
    assert json.loads(learned.stdout)["held_out_pll"] is not None
    names = [v.name for v in load(folder / "net.json").domain.variables]
    assert names == ["flag", "pain", "level"]
    assert load(folder / "net.json").domain[0].states == ("False", "True")
    only = run("data", "describe", "t.csv", "--encoding", "latin-1", "--columns", "pain,flag", "--na", "99", "--json", cwd=folder)
    assert [v["name"] for v in json.loads(only.stdout)["variables"]] == ["pain", "flag"]
    scored = run("score", "net.json", "t.csv", *HOW, "--missing", "drop", "--json", cwd=folder)
    assert json.loads(scored.stdout)["rows"] == 119
    run("impute", "net.json", "t.csv", *HOW, "-o", "full.csv", cwd=folder)
    with (folder / "full.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[7]["pain"] in ("0", "1", "2")
    assert set(rows[0]) == {"flag", "pain", "level"}
    told = run("explain", "net.json", "flag", "--data", "t.csv", "--row", 2, *HOW, "--json", cwd=folder)
    assert json.loads(told.stdout)["variable"] == "flag"
    run("weights", "net.json", "t.csv", *HOW, "--missing", "mode", cwd=folder)
    run("bootstrap", "t.csv", *HOW, "--missing", "mode", "-n", 3, "--n-dropping", 0, "-a", "chow-liu", cwd=folder)
    compared = run("compare", "--datasets", "t.csv", *HOW, "--missing", "mode", "--learners", "chow-liu,atomic", "--json", cwd=folder)
    assert {row["dataset"] for row in json.loads(compared.stdout)["rows"]} == {"t.csv"}


def test_unknown_states_at_scoring_time(folder):
    run("learn", "t.csv", *HOW, "--missing", "mode", "-a", "chow-liu", "--valid", "none", "-o", "unknown.json", cwd=folder)
    text = (folder / "t.csv").read_bytes().decode("latin-1").replace("True;0;", "Maybe;0;", 1)
    (folder / "u.csv").write_bytes(text.encode("latin-1"))
    refused = run("score", "unknown.json", "u.csv", *HOW, "--missing", "mode", cwd=folder, code=3)
    assert "--unknown missing" in refused.stderr
    scored = run("score", "unknown.json", "u.csv", *HOW, "--missing", "mode", "--unknown", "missing", "--json", cwd=folder)
    assert json.loads(scored.stdout)["rows"] == 120
    assert "1 cells hold states" in scored.stderr


def test_ends_with_codes_that_tell(folder):
    run("data", "describe", "t.csv", cwd=folder, code=3)
    run("data", "describe", "t.csv", *HOW, "--drop", "nowhere", cwd=folder, code=2)
    run("learn", "t.csv", *HOW, "--seed", 10**21, cwd=folder, code=2)
    pairs = "".join(f"1.5 +v{a}_1 +v{b}_1\n" for a in range(40) for b in range(a))  # all on, or all off
    single = "".join(f"{-1.5 * 39 / 2} +v{a}_1\n" for a in range(40))
    (folder / "glued.mn").write_text("2" + ",2" * 39 + "\nMN {\n" + pairs + single + "}\n")
    sampled = run(
        "query", "glued.mn", "--memory", 64, "--time-budget", "1s", "--require-mixed", "--variables", "v0", "--json", cwd=folder, code=6
    )
    assert json.loads(sampled.stdout)["mixed"] is False
    found = run("map", "glued.mn", "--memory", 64, "--time-budget", "1s", "--json", cwd=folder)
    assert json.loads(found.stdout)["exact"] is False
