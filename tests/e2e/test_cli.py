"""The command line, as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from undirected import load


def run(*args, cwd=None, env=None, **kwargs):
    command = [sys.executable, "-c", "from undirected.cli import main; main()", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **(env or {})}, **kwargs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    smoker = rng.integers(0, 2, 400)
    cough = np.where(rng.random(400) < 0.8, smoker, 1 - smoker)
    age = rng.integers(20, 80, 400)
    rows = [f"{('no', 'yes')[s]},{('no', 'yes')[c]},{a}" for s, c, a in zip(smoker, cough, age, strict=True)]
    (folder / "survey.csv").write_text("smoker,cough,age\n" + "\n".join(rows) + "\n")
    (folder / "features.txt").write_text("# pairs\nsmoker=yes\ncough=yes\nsmoker=yes & cough=yes\n")
    done = run("learn", "survey.csv", "--n-generated", 2000, "--l1", 1, "-o", "net.json", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_importing_and_help_load_nothing_heavy():
    code = (
        "import sys, undirected; from undirected.cli.main import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'networkx', 'matplotlib', 'rich') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert "learn" in out


def test_learn_reports_what_json_promises(folder):
    done = run("learn", "survey.csv", "--n-generated", 2000, "--l1", 1, "--valid", 0.2, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    keys = {"objective", "violation", "converged", "stopped_by", "n_features", "n_nonzero", "iterations", "seconds", "threads"}
    assert keys <= report.keys()
    assert report["converged"]
    assert report["valid_npll"] == pytest.approx(report["valid_pll"] / 3)


@pytest.mark.parametrize("algorithm", ["dtsl", "l1", "dt+l1", "all-pairs", "chow-liu", "atomic"])
def test_every_learner_has_a_name(folder, algorithm):
    done = run("learn", "survey.csv", "-a", algorithm, "--json", "-q", "-o", "other.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["algorithm"] == algorithm
    assert len(load(folder / "other.json").features) == report["n_features"]
    assert (report["n_features"] > 5) == (algorithm != "atomic")  # two binary columns and one of four bins


def test_tuning_goes_on_from_its_ledger(folder):
    command = ("learn", "survey.csv", "-a", "dtsl", "--tune", "--ledger", "ledger.jsonl", "--json", "-o", "tuned.json")
    first, second = (run(*command, cwd=folder) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert one["settings"] == two["settings"]
    # To the last digit of the seconds: nothing was done again but bringing the best to the full tolerance.
    assert [{**row, "weights_seconds": 0} for row in one["tried"]] == [{**row, "weights_seconds": 0} for row in two["tried"]]
    assert max(row["valid_pll"] for row in one["tried"]) == pytest.approx(one["valid_pll"], abs=1e-4)
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == 1 + len({(r["kappa"], r["conversion"]) for r in one["tried"]})


def test_learned_network_knows_that_smokers_cough(folder):
    network = load(folder / "net.json")
    p = network.conditional("cough", {"smoker": "yes", "age": network.domain[2].states[0]})
    assert p["yes"] > 0.6


def test_weights_use_exactly_the_features_given(folder):
    done = run("weights", "features.txt", "survey.csv", "--sd", "inf", "--tol", "1e-9", "--json", "-o", "w.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_features"] == 3
    table = np.zeros((2, 2))
    for line in (folder / "survey.csv").read_text().splitlines()[1:]:
        s, c, _ = line.split(",")
        table[int(s == "yes"), int(c == "yes")] += 1
    odds = np.log(table[1, 1] * table[0, 0] / (table[1, 0] * table[0, 1]))
    assert load(folder / "w.json").weights[2] == pytest.approx(odds, abs=1e-4)  # a saturated model: the log odds ratio
    warm = run("weights", "w.json", "survey.csv", "--sd", "inf", "--warm-start", "--json", cwd=folder)
    assert json.loads(warm.stdout)["iterations"] == 0


def test_score_show_plot_convert(folder):
    score = json.loads(run("score", "net.json", "survey.csv", "--metric", "pll", "--json", cwd=folder).stdout)
    assert score["pll"] == pytest.approx(load(folder / "net.json").pll(str(folder / "survey.csv")))
    assert score["npll"] == pytest.approx(score["pll"] / 3)
    assert score["rows"] == 400
    shown = json.loads(run("show", "net.json", "--json", "--top", 2, cwd=folder).stdout)
    assert shown["n_variables"] == 3
    assert len(shown["strongest"]) == 2
    assert "strongest interactions" in run("show", "net.json", cwd=folder).stdout
    assert run("plot", "net.json", "-o", "g.svg", cwd=folder).returncode == 0
    assert "smoker" in (folder / "g.svg").read_text() or (folder / "g.svg").stat().st_size > 1000
    for suffix in ("mn", "uai", "graphml"):
        done = run("convert", "net.json", f"copy.{suffix}", cwd=folder)
        assert done.returncode == 0, done.stderr
    assert "names of variables" in run("convert", "net.json", "copy.mn", cwd=folder).stderr


def test_data_commands(folder):
    listed = json.loads(run("data", "list", "--json").stdout)["rows"]
    assert {"digits", "nltcs"} <= {row["name"] for row in listed}
    described = json.loads(run("data", "describe", "survey.csv", "--json", cwd=folder).stdout)
    assert described["rows"] == 400
    assert sum(described["variables"][0]["states"].values()) == pytest.approx(1)
    assert "400 rows" in run("data", "describe", "survey.csv", cwd=folder).stdout


def test_doctor_knows_the_kernels():
    found = json.loads(run("doctor", "--json").stdout)
    assert found["kernels_agree"] is True
    plain = json.loads(run("doctor", "--json", env={"UNDIRECTED_ISA": "baseline"}).stdout)
    assert plain["kernels"] == "reference" or plain["instruction_set"] == "baseline"
    assert plain["kernels_agree"] is True
    reference = json.loads(run("doctor", "--json", env={"UNDIRECTED_KERNELS": "reference"}).stdout)
    assert reference["kernels"] == "reference"
    assert "many times slower" in run("doctor", env={"UNDIRECTED_KERNELS": "reference"}).stdout


def test_everything_works_on_the_reference_kernels(folder):
    command = ("learn", "survey.csv", "--n-generated", 500, "--l1", 1, "--tol", "1e-7", "--json", "-q")
    native = json.loads(run(*command, cwd=folder).stdout)
    slow = json.loads(run(*command, cwd=folder, env={"UNDIRECTED_KERNELS": "reference"}).stdout)
    assert slow["objective"] == pytest.approx(native["objective"], rel=1e-8)
    assert slow["n_features"] == native["n_features"]


def test_demo(tmp_path):
    done = run("demo", "--json", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["pll"] > report["independent_pll"] + 8
    assert (tmp_path / "undirected-demo.png").read_bytes()[:4] == b"\x89PNG"
    assert load(tmp_path / "undirected-demo.json").domain.names[0] == "r0c0"


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["learn"], 2, "Missing argument 'DATA'"),
        (["lern"], 2, "Did you mean 'learn'"),
        (["learn", "survey.csv", "--sd", "0"], 2, "above zero"),
        (["learn", "survey.csv", "--l1", "-1"], 2, "--l1"),
        (["learn", "survey.csv", "--time-budget", "soon"], 2, "60s"),
        (["learn", "survey.csv", "--memory", "lots"], 2, "2GiB"),
        (["learn", "survey.csv", "--seed", "-1"], 2, "--seed"),
        (["learn", "survey.csv", "--threads", "3000000000"], 2, "--threads"),
        (["learn", "survey.csv", "--sd", "1e-200"], 2, "this narrow"),
        (["learn", "survey.csv", "--initial", "positive"], 2, "needs two states"),
        (["learn", "no.csv"], 3, "there is no file 'no.csv'"),
        (["learn", "survey.csv", "-o", "no/where.json"], 3, "folder no does not exist"),
        (["learn", "survey.csv", "-o", "net.txt"], 3, "suffix '.txt'"),
        (["learn", "empty.csv"], 3, "is empty"),
        (["score", "cut.json", "survey.csv"], 3, "cut.json, line"),
        (["score", "net.json", "other.csv"], 3, "line 2, column 1 ('smoker'): 'maybe'"),
        (["show", "nothing.json"], 3, "there is no file"),
        (["plot", "net.json", "-o", "g.xyz"], 3, ".svg, .png, .pdf"),
        (["weights", "bad.txt", "survey.csv"], 3, "Did you mean 'smoker'"),
        (["data", "fetch", "survey"], 3, "cannot be downloaded"),
    ],
)
def test_errors_are_one_line_with_the_right_code(folder, args, code, message):
    (folder / "empty.csv").write_text("")
    (folder / "cut.json").write_text((folder / "net.json").read_text()[:200])
    (folder / "other.csv").write_text("smoker,cough,age\nmaybe,no,30\n")
    (folder / "bad.txt").write_text("smokr=yes\n")
    done = run(*args, cwd=folder)
    assert done.returncode == code
    last = done.stderr.strip().splitlines()[-1]
    assert message in last
    assert last.startswith("undirected: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-a", "l1", "--threshold", "2"), "--threshold does not belong to l1"),
        (("-a", "dtsl", "--C", "1"), "--C does not belong to dtsl"),
        (("-a", "dtsl", "--tune", "--sd", "1"), "--sd is what --tune chooses"),
        (("-a", "dtsl", "--kappa", "best"), "neither a number nor auto"),
        (("-a", "l1", "--C", "-1"), "above zero"),
        (("-a", "dtls"), "dtls"),
    ],
)
def test_options_of_another_learner(folder, args, message):
    done = run("learn", "survey.csv", *args, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_debug_shows_the_traceback(folder):
    assert "Traceback" in run("learn", "no.csv", "--debug", cwd=folder).stderr


def test_early_stop_still_writes_and_says_so(folder):
    done = run(
        "weights", "features.txt", "survey.csv", "--tol", "1e-30", "--time-budget", "0.01s", "-o", "early.json", "--json", cwd=folder
    )
    assert done.returncode == 5
    assert json.loads(done.stdout)["converged"] is False
    assert len(load(folder / "early.json").features) == 3


def wait_for_work(pid, seconds):
    """Until a process has worked so long, which on a busy machine is longer by the clock; where that cannot be told, by the clock."""
    stat, began = Path(f"/proc/{pid}/stat"), time.monotonic()
    while time.monotonic() - began < (10 * seconds if stat.exists() else seconds):
        time.sleep(0.2)
        if stat.exists():
            ticks = stat.read_text().rpartition(")")[2].split()[11:13]
            if sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") >= seconds:
                return


@pytest.mark.skipif(sys.platform == "win32", reason="signals work differently there")
def test_interrupt_still_writes(tmp_path):
    command = [sys.executable, "-c", "from undirected.cli import main; main()"]
    command += ["learn", "digits", "--n-generated", "3000000", "--sd", "inf", "--tol", "1e-15", "-o", "net.json", "--json"]
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # a shell's background jobs are deaf to it
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard) as process:
        try:
            wait_for_work(process.pid, 7)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert json.loads(out)["stopped_by"] == "interrupt"
    assert len(load(tmp_path / "net.json").domain) == 64


def test_compare_writes_tables_and_figures(folder):
    command = (
        "compare",
        "--datasets",
        "survey.csv",
        "--learners",
        "chow-liu,all-pairs,atomic",
        "--sizes",
        "0.5,1",
        "--plot",
        "-o",
        "results",
    )
    done = run(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "6/6" in done.stderr
    written = {path.name for path in (folder / "results").iterdir()}
    assert {"results.json", "results.csv", "results.md", "relative.svg", "runtime.svg", "curves.svg"} <= written
    again = run(*command, "--json", "-q", cwd=folder)
    rows = json.loads(again.stdout)["rows"]
    assert rows == json.loads((folder / "results" / "results.json").read_text())["rows"]
    keys = {"learner", "dataset", "npll", "published_npll", "n_features", "mean_length", "structure_seconds", "weights_seconds", "settings"}
    assert all(keys <= set(row) for row in rows)
    best = max((row for row in rows if row["fraction"] == 1), key=lambda row: row["npll"])
    assert f"{best['npll']:.4f} *" in done.stdout
    drawn = run("compare", "--plot", "-o", "results", cwd=folder)
    assert drawn.returncode == 0, drawn.stderr
    assert f"{best['npll']:.4f} *" in drawn.stdout


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ((), 2, "name data sets"),
        (("--datasets", "survey.csv", "--plot"), 2, "-o results/"),
        (("--datasets", "survey.csv", "--learners", "dtls"), 2, "dtls"),
        (("--datasets", "nowhere.csv"), 3, "nowhere.csv"),
        (("--datasets", "survey.csv", "--sizes", "a"), 2, "--sizes"),
        (("--datasets", "survey.csv", "--sizes", "2"), 2, "at most 1"),
        (("--plot", "-o", "empty"), 3, "run compare"),
        (("--datasets", "survey.csv", "--quick", "--paper-grids"), 2, "exclude"),
    ],
)
def test_compare_refuses(folder, options, code, text):
    done = run("compare", *options, cwd=folder)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_bootstrap(folder):
    command = ("bootstrap", "survey.csv", "-n", "6", "--plot", "edges.svg", "--plot-dropping", "drop.svg", "-o", "edges.csv")
    done = run(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "no test under an L1 penalty" in done.stdout
    report = json.loads(run(*command, "--json", "-q", cwd=folder).stdout)
    assert report["n"] == 6
    with (folder / "edges.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["a"], float(line["frequency"])) for line in lines] == [(row["a"], row["frequency"]) for row in report["edges"]]
    assert (folder / "edges.svg").read_text().startswith("<?xml")
    assert (folder / "drop.svg").exists()
    assert run("bootstrap", "survey.csv", "--plot", "edges.doc", cwd=folder).returncode == 3
    assert run("bootstrap", "survey.csv", "--conversion", "prune", cwd=folder).returncode == 2


# questions


def test_query_answers_in_bars_and_in_json(folder):
    shown = run("query", "net.json", "-e", "smoker=yes", "--variables", "cough", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert "█" in shown.stdout
    done = run("query", "net.json", "-e", "smoker=yes", "-e", "age=30", "--json", cwd=folder)
    values = json.loads(done.stdout)
    assert set(values) >= {"marginals", "standard_errors", "method", "exact", "mixed", "seconds"}
    assert list(values["marginals"]) == ["cough"]
    truth = load(folder / "net.json").query({"smoker": "yes", "age": 30})["cough"]
    assert values["marginals"]["cough"] == pytest.approx(truth)
    soft = json.loads(run("query", "net.json", "--soft", "cough=0.1,0.9", "--variables", "smoker", "--json", cwd=folder).stdout)
    truth = load(folder / "net.json").query({"cough": {"no": 0.1, "yes": 0.9}})["smoker"]
    assert soft["marginals"]["smoker"] == pytest.approx(truth)


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["-e", "smokr=yes"], 3, "Did you mean 'smoker'"),
        (["-e", "smoker=maybe"], 3, "Its states are no, yes"),
        (["-e", "smoker=yes", "-e", "smoker=no"], 4, "leaves no state of 'smoker'"),
        (["--method", "magic"], 2, "not known"),
        (["--soft", "cough=high"], 2, "one number a state"),
        (["--soft", "cough=1,2,3"], 3, "2 numbers"),
        (["--variables", "coughs"], 3, "Did you mean 'cough'"),
    ],
)
def test_query_tells_what_is_wrong_in_one_line(folder, args, code, told):
    done = run("query", "net.json", *args, cwd=folder)
    assert done.returncode == code
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_chains_that_do_not_mix_end_with_their_own_code(tmp_path):
    from undirected import Domain, FeatureSet, MarkovNetwork

    features = FeatureSet.all_pairs(Domain.from_sizes([2] * 24))
    MarkovNetwork(features, np.where(features.lengths == 1, -11.5, 1.0)).save(tmp_path / "two-modes.json")
    done = run("query", "two-modes.json", "--method", "gibbs", "--time-budget", "1s", "--json", cwd=tmp_path)
    assert done.returncode == 5
    values = json.loads(done.stdout)
    assert values["mixed"] is False
    assert values["standard_errors"]["v0"]["1"] is None


def test_map_sample_and_explain(folder):
    best = json.loads(run("map", "net.json", "-e", "smoker=yes", "--best", 2, "--json", cwd=folder).stdout)
    assert best["exact"]
    assert best["states"][0]["smoker"] == "yes"
    assert best["log_scores"][0] >= best["log_scores"][1]
    rows = list(csv.DictReader(run("sample", "net.json", "-n", 50, "-e", "cough=no", "-q", cwd=folder).stdout.splitlines()))
    assert len(rows) == 50
    assert {row["cough"] for row in rows} == {"no"}
    assert run("sample", "net.json", "-n", 5, "-o", "rows.data", "-q", cwd=folder).returncode == 0
    assert len((folder / "rows.data").read_text().splitlines()) == 5
    assert run("sample", "net.json", "-o", "rows.xlsx", cwd=folder).returncode == 2
    told = json.loads(run("explain", "net.json", "cough", "--data", "survey.csv", "--row", 3, "--json", cwd=folder).stdout)
    assert sum(part["log_odds"] for part in told["contributions"]) == pytest.approx(told["log_odds"])
    assert run("explain", "net.json", "cough", "--data", "survey.csv", "--row", 999, cwd=folder).returncode == 3


def test_impute_fills_gaps_and_keeps_what_was_written(folder):
    (folder / "gaps.csv").write_text("age,id,smoker,cough\n33,a,yes,\n,b,no,no\n50,c,,yes\n61,d,no,yes\n")
    done = run("impute", "net.json", "gaps.csv", "-o", "full.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "filled 3 missing cells" in done.stderr
    rows = list(csv.DictReader((folder / "full.csv").read_text().splitlines()))
    assert [row["id"] for row in rows] == list("abcd")
    assert rows[0]["age"] == "33"
    assert rows[3] == {"age": "61", "id": "d", "smoker": "no", "cough": "yes"}
    assert all(cell for row in rows for cell in row.values())
    assert rows[0]["cough"] == "yes"  # smokers cough


def test_score_by_three_metrics(folder):
    values = json.loads(run("score", "net.json", "survey.csv", "--metric", "cmll,pll,ll", "--json", cwd=folder).stdout)
    assert set(values) >= {"pll", "npll", "cmll", "ncmll", "cmll_se", "ll", "ll_se", "rows"}
    assert values["cmll"] == pytest.approx(values["pll"])  # three variables in four groups: one at a time
    assert values["ncmll"] == pytest.approx(values["cmll"] / 3)
    network = load(folder / "net.json")
    assert values["ll"] == pytest.approx(network.log_likelihood(folder / "survey.csv"))
    assert run("score", "net.json", "survey.csv", "--metric", "auc", cwd=folder).returncode == 2
