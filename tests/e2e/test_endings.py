"""How work ends: Ctrl-C, SIGTERM, full disks, defaults that tell whether a network is any good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from undirected import DTSL, GSSL, L1, Atomic, ChowLiu, Unconverged, datasets, load, tune
from undirected.errors import CheckpointFailed
from undirected.store import OwnedFile
from undirected.weights import pseudo_likelihood

COMMAND = [sys.executable, "-c", "from undirected.cli import main; main()"]
signals = pytest.mark.skipif(sys.platform == "win32", reason="signals work differently there")


def run(*args, cwd=None, **env):
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, cwd=cwd, env={**os.environ, **env})


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """Answers of which two belong together and the others are noise."""
    folder = tmp_path_factory.mktemp("survey")
    rng = np.random.default_rng(1)
    smoker = rng.integers(0, 2, 300)
    cough = np.where(rng.random(300) < 0.8, smoker, 1 - smoker)
    noise = rng.integers(0, 3, (300, 6))
    rows = [
        ",".join([("no", "yes")[s], ("no", "yes")[c], *map("abc".__getitem__, n)]) for s, c, n in zip(smoker, cough, noise, strict=True)
    ]
    (folder / "survey.csv").write_text("smoker,cough," + ",".join(f"q{k}" for k in range(6)) + "\n" + "\n".join(rows) + "\n")
    return folder


class TestTheDefault:
    def test_the_default_chooses_and_says_how_good_it_is(self, survey):
        done = run("learn", "survey.csv", "-o", "auto.json", "--json", cwd=survey)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["chosen"]["features"] in ("pairs", "surer", "all")
        first = report["findings"][0]
        assert {first["a"], first["b"]} == {"smoker", "cough"}
        assert first["with_a"] > first["without_a"] + 0.3
        assert report["held_out_pll"] > report["independent_pll"]
        assert load(survey / "auto.json").conditional("cough", {"smoker": "yes", **{f"q{k}": "a" for k in range(6)}})["yes"] > 0.6

    def test_a_network_worse_than_none_is_called_that(self, survey):
        done = run("learn", "survey.csv", "-a", "gssl", "--l1", 0, "--sd", 1, "--n-generated", 30_000, "-o", "poor.json", cwd=survey)
        assert done.returncode == 0, done.stderr
        assert "WORSE than variables that know nothing of each other" in done.stdout
        report = json.loads(
            run("learn", "survey.csv", "-a", "gssl", "--l1", 0, "--sd", 1, "--n-generated", 30_000, "--json", cwd=survey).stdout
        )
        assert report["held_out_pll"] < report["independent_pll"]

    def test_the_check_can_be_left_out_and_splits_are_used(self, survey):
        report = json.loads(run("learn", "survey.csv", "-a", "chow-liu", "--valid", "none", "--json", cwd=survey).stdout)
        assert report["held_out_pll"] is None
        done = run("learn", "digits", "-a", "chow-liu", "--json")
        report = json.loads(done.stdout)
        assert "once more" not in done.stderr
        truth = ChowLiu().fit("digits").score(datasets.load("digits", "valid"))
        assert report["held_out_pll"] == pytest.approx(report["valid_pll"], rel=1e-12)  # the same sum in another order
        assert report["valid_pll"] == pytest.approx(truth)
        assert report["independent_pll"] == pytest.approx(Atomic(sd=10).fit("digits").score(datasets.load("digits", "valid")))

    def test_few_rows_are_learned_from_but_not_judged(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,b\nx,1\ny,0\nx,1\n")
        done = run("learn", "t.csv", "-o", "net.json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "too few to hold some out" in done.stdout

    def test_gssl_alone_does_not_overfit(self, survey):
        train, test = datasets.load("digits"), datasets.load("digits", "test")
        assert GSSL(n_generated=50_000).fit(train).score(test) > Atomic(sd=10).fit(train).score(test)


class TestInterruptions:
    @pytest.mark.parametrize("learner", [GSSL(n_generated=1000), DTSL(), L1(), ChowLiu()], ids=lambda one: type(one).__name__)
    def test_in_the_structure_phase_what_there_is_comes_back(self, learner, monkeypatch):
        def interrupted(*args, **options):
            raise KeyboardInterrupt

        data = datasets.load("digits")
        monkeypatch.setattr(type(learner), "propose", interrupted)
        with pytest.warns(Unconverged, match="interrupt"):
            learner.fit(data)
        assert learner.fit_.stopped_by == "interrupt"
        assert learner.score(data) == pytest.approx(Atomic(l1=learner.l1, sd=learner.sd).fit(data).score(data))

    def test_a_tuning_that_is_cut_before_its_first_result(self, monkeypatch):
        def interrupted(*args, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr(ChowLiu, "propose", interrupted)
        with pytest.warns(Unconverged, match="interrupt"):
            tuned = tune(ChowLiu(), "quick", datasets.load("digits"), datasets.load("digits", "valid"))
        assert not tuned.complete
        assert len(tuned.features) == 64

    @signals
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_both_signals_end_with_a_network(self, tmp_path, number):
        """Sent while features are generated or weighed; heard at the latest when a kernel comes back."""
        command = [*COMMAND, "learn", "digits", "-a", "gssl", "--n-generated", "300000", "--sd", "inf", "--l1", "0", "--tol", "1e-15"]
        heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # a shell's background jobs are deaf to it
        with subprocess.Popen(
            [*command, "-o", "net.json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard
        ) as process:
            try:
                ended = time.monotonic() + 60
                while _worked(process.pid) < 4 and time.monotonic() < ended and process.poll() is None:
                    time.sleep(0.1)
                process.send_signal(number)
                out, err = process.communicate(timeout=120)
            finally:
                process.kill()
        assert process.returncode == 130, err
        assert len(load(tmp_path / "net.json").domain) == 64, out

    @signals
    def test_during_imports_there_is_no_traceback(self, tmp_path):
        """SIGINT as soon as the entry point has been reached."""
        (tmp_path / "sitecustomize.py").write_text(
            "import sys, os, signal\n"
            "class Finder:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Finder())\n"
        )
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        done = subprocess.run([*COMMAND, "doctor"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, **heard)
        assert done.returncode == 130
        assert "Traceback" not in done.stderr
        assert "interrupted" in done.stderr

    def test_a_checkpoint_that_cannot_be_written_costs_nothing_else(self, tmp_path, monkeypatch):
        from undirected import BLM
        from undirected.errors import DataError

        def full(self, content):
            raise DataError("no space left on device")

        data = datasets.exact_sample(datasets.grid_ising(3, 3, seed=1), 500, seed=2)
        truth = BLM(alpha=2).fit(data).network_
        monkeypatch.setattr(OwnedFile, "save", full)
        with pytest.warns(CheckpointFailed, match="goes on without its checkpoint"):
            network = BLM(alpha=2, checkpoint=tmp_path / "search.json").fit(data).network_
        np.testing.assert_array_equal(network.weights, truth.weights)


class TestPreparing:
    """Preparing very many features must not take more than the time that is left."""

    def test_learners_weigh_the_shortest_features(self, monkeypatch):
        data = datasets.load("digits")
        whole = GSSL(n_generated=20_000).fit(data)
        monkeypatch.setattr(pseudo_likelihood, "ALWAYS_PREPARED", 300)
        monkeypatch.setattr(pseudo_likelihood, "TIMED_FEATURES", 100)
        monkeypatch.setattr(pseudo_likelihood, "PREPARING_SHARE", 1e-9)
        with pytest.warns(Unconverged):
            cut = GSSL(n_generated=20_000, time_budget=60).fit(data)
        assert cut.fit_.stopped_by == "time"
        assert len(cut.fit_.features) == len(cut.counts_) == 300
        assert cut.fit_.features.lengths.max() <= np.sort(whole.fit_.features.lengths)[299]
        assert len(cut.fit_.features.difference(whole.fit_.features)) == 0
        place = {f: k for k, f in enumerate(whole.fit_.features)}
        np.testing.assert_array_equal(cut.counts_, whole.counts_[[place[f] for f in cut.fit_.features]])

    def test_so_do_searches(self, monkeypatch):
        from undirected import DTBLM

        monkeypatch.setattr(pseudo_likelihood, "ALWAYS_PREPARED", 100)
        monkeypatch.setattr(pseudo_likelihood, "TIMED_FEATURES", 50)
        monkeypatch.setattr(pseudo_likelihood, "PREPARING_SHARE", 1e-9)
        data = datasets.exact_sample(datasets.random_conjunctions(12, 60, scale=1.5, seed=1), 3000, seed=2)
        trees = DTSL(kappa=1.0).fit(data).fit_.features
        assert len(trees) > 100
        learner = DTBLM(kappa=1.0, time_budget=120).fit(data)
        assert learner.trace_.points[0].n_features <= 100


def _worked(pid):
    stat = Path(f"/proc/{pid}/stat")
    ticks = stat.read_text().rpartition(")")[2].split()[11:13] if stat.exists() else [0, 0]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
