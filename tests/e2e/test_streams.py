"""Streams from end to end: what is written, what is lost (nothing), and how runs end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import undirected
from streams import MockKafka, draw_rows, kill_often, needs_redis, run_redis, write_csv
from undirected import StreamedDTSL, StreamedGSSL
from undirected.errors import DataError, FormatError, ParameterError
from undirected.streaming.run import learn_stream

COMMAND = [sys.executable, "-c", "from undirected.cli import main; main()"]
PARAMS = {"chunk_rows": 100, "watch": "rows", "n_generated": 1000}
NAMES, ROWS = draw_rows(1500, n_variables=8, seed=3)


def run(*args, cwd=None, **how):
    return subprocess.run([*COMMAND, "stream", *map(str, args)], capture_output=True, text=True, cwd=cwd, **how)


def make_options(folder, name):
    return {"checkpoint": str(folder / f"{name}.state"), "metrics": str(folder / f"{name}.jsonl"), "network": str(folder / f"{name}.json")}


def read_metrics(path):
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "lag")} for line in path.read_text().splitlines()]


def assert_same_outcome(folder, one, other):
    networks = [undirected.load(folder / f"{name}.json") for name in (one, other)]
    assert networks[0].features == networks[1].features
    np.testing.assert_array_equal(networks[0].weights, networks[1].weights)
    assert read_metrics(folder / f"{one}.jsonl") == read_metrics(folder / f"{other}.jsonl")


def be_killed(folder, source, times, longest, rng):
    """A run that is left alone, and one that is killed again and again."""
    learn_stream(StreamedGSSL(**PARAMS), source("calm"), **make_options(folder, "calm"))
    killed = kill_often("StreamedGSSL", PARAMS, source("hit"), make_options(folder, "hit"), rng, times, longest)
    assert_same_outcome(folder, "calm", "hit")
    assert read_metrics(folder / "hit.jsonl")[-1]["total_rows"] == len(ROWS)
    return killed


class TestKilled:
    """Signal 9 at random moments: no row is lost, none learned twice, and the network comes out the same to the bit."""

    def test_with_a_file(self, tmp_path):
        path = write_csv(tmp_path / "rows.csv", NAMES, ROWS)
        assert be_killed(tmp_path, lambda name: str(path), 4, 0.35, np.random.default_rng(0)) > 0

    @needs_redis
    def test_with_redis(self, tmp_path):
        with run_redis(tmp_path) as server:
            server.add("s", NAMES, ROWS)
            assert be_killed(tmp_path, lambda name: server.address("s", group=name), 4, 0.35, np.random.default_rng(0)) > 0
            groups = {group["name"]: group for group in server.client.xinfo_groups("s")}
            assert groups["hit"]["lag"] == 0

    def test_with_kafka(self, tmp_path):
        broker = MockKafka(topic="killed")
        broker.add(NAMES, ROWS)
        assert be_killed(tmp_path, lambda name: broker.address, 4, 0.8, np.random.default_rng(0)) > 0

    @pytest.mark.slow
    @pytest.mark.parametrize("source", ["file", pytest.param("redis", marks=needs_redis), "kafka"])
    def test_a_hundred_times(self, tmp_path, source):
        killed = 0
        for trial in range(1000):
            folder = tmp_path / str(trial)
            folder.mkdir()
            rng = np.random.default_rng(trial)
            if source == "file":
                path = write_csv(folder / "rows.csv", NAMES, ROWS)
                killed += be_killed(folder, lambda name, path=path: str(path), 100, 0.5, rng)
            elif source == "redis":
                with run_redis(folder) as server:
                    server.add("s", NAMES, ROWS)
                    killed += be_killed(folder, lambda name, server=server: server.address("s", group=name), 100, 0.5, rng)
            else:
                broker = MockKafka(topic="killed")
                broker.add(NAMES, ROWS)
                killed += be_killed(folder, lambda name, broker=broker: broker.address, 100, 0.9, rng)
            if killed >= 100:
                return
        raise AssertionError(f"only {killed} runs were killed at work")


class TestCheckpoints:
    def learn(self, tmp_path, n_rows, told=None, **how):
        path = write_csv(tmp_path / "rows.csv", NAMES, ROWS[:n_rows])
        options = {**make_options(tmp_path, "a"), "listener": (lambda event: told.append(str(event))) if told is not None else print, **how}
        return learn_stream(StreamedDTSL(chunk_rows=100, watch="rows"), str(path), **options)

    def test_a_stream_goes_on_where_it_stopped(self, tmp_path):
        self.learn(tmp_path, 1000, max_chunks=4)
        found = self.learn(tmp_path, 1000)
        assert (found.resumed, found.chunks, found.rows, found.learner.n_chunks_) == (True, 6, 600, 10)
        nothing = self.learn(tmp_path, 1000)
        assert (nothing.chunks, nothing.rows, nothing.ended) == (0, 0, True)
        whole = learn_stream(StreamedDTSL(chunk_rows=100, watch="rows"), str(tmp_path / "rows.csv"))
        np.testing.assert_array_equal(whole.learner.network_.weights, found.learner.network_.weights)

    def test_rows_of_an_unfinished_chunk_wait_in_it(self, tmp_path):
        calls = iter([False] * 4 + [True] * 50)
        first = self.learn(tmp_path, 250, stop=lambda: next(calls), follow=True)
        assert not first.ended
        assert first.learner.n_rows_ + len(first.learner.waiting_) == 250
        found = self.learn(tmp_path, 250)
        assert found.learner.n_rows_ == 250

    @pytest.mark.parametrize("damage", ["cut", "empty", "changed", "foreign"])
    def test_a_damaged_one_is_told_and_the_one_before_is_taken(self, tmp_path, damage):
        self.learn(tmp_path, 1000, max_chunks=5)
        state, content = tmp_path / "a.state", (tmp_path / "a.state").read_bytes()
        broken = {"cut": content[: len(content) // 2], "empty": b"", "foreign": b"PK" + content[2:]}
        state.write_bytes(broken.get(damage, content[:500] + bytes([content[500] ^ 1]) + content[501:]))
        told = []
        found = self.learn(tmp_path, 1000, told)
        assert "going on from the checkpoint before it" in told[0]
        assert str(state) in told[0]
        assert found.learner.n_rows_ == 1000
        assert [record["chunk"] for record in read_metrics(tmp_path / "a.jsonl")] == list(range(1, 11))
        whole = learn_stream(StreamedDTSL(chunk_rows=100, watch="rows"), str(tmp_path / "rows.csv"))
        np.testing.assert_array_equal(whole.learner.network_.weights, found.learner.network_.weights)

    def test_one_that_is_missing_between_two_renames_is_found(self, tmp_path):
        self.learn(tmp_path, 1000, max_chunks=5)
        (tmp_path / "a.state").unlink()
        told = []
        assert self.learn(tmp_path, 1000, told).learner.n_rows_ == 1000
        assert "is missing; going on" in told[0]

    def test_where_none_is_sound_nothing_is_touched(self, tmp_path):
        self.learn(tmp_path, 1000, max_chunks=5)
        for name in ("a.state", "a.state.1"):
            (tmp_path / name).write_bytes(b"nothing")
        before = (tmp_path / "a.jsonl").read_bytes()
        with pytest.raises(FormatError, match="no sound one before it"):
            self.learn(tmp_path, 1000)
        assert (tmp_path / "a.jsonl").read_bytes() == before

    def test_another_learners_and_another_sources(self, tmp_path):
        self.learn(tmp_path, 300)
        with pytest.raises(FormatError, match="'dtsl', not of 'gssl'"):
            learn_stream(StreamedGSSL(), str(tmp_path / "rows.csv"), checkpoint=tmp_path / "a.state")
        other = write_csv(tmp_path / "more.csv", NAMES[::-1], [row[::-1] for row in ROWS[300:500]])
        told = []
        options = {**make_options(tmp_path, "a"), "listener": lambda event: told.append(str(event))}
        found = learn_stream(StreamedDTSL(chunk_rows=100, watch="rows"), str(other), **options)
        assert "is another source, and all that it has is new" in told[0]
        whole = learn_stream(StreamedDTSL(chunk_rows=100, watch="rows"), str(write_csv(tmp_path / "all.csv", NAMES, ROWS[:500])))
        np.testing.assert_array_equal(whole.learner.network_.weights, found.learner.network_.weights)  # columns by their names

    def test_only_one_process_writes_it(self, tmp_path):
        from undirected.streaming.checkpoint import CheckpointFile

        keeper = CheckpointFile(tmp_path / "a.state", 2, print)
        with pytest.raises(DataError, match="another process is writing"):
            self.learn(tmp_path, 300)
        keeper.close()
        self.learn(tmp_path, 300)

    @pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None, reason="needs a small disk")
    def test_a_full_disk_does_not_end_learning(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"a small disk cannot be made here: {made.stderr.strip()}")
        try:
            path, told = write_csv(tmp_path / "rows.csv", NAMES, ROWS), []
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * 110_000)

            def listen(event):
                told.append(str(event))
                if "chunk 8" in told[-1]:
                    ballast.unlink()

            learner = StreamedDTSL(chunk_rows=100, watch="rows")
            found = learn_stream(learner, str(path), **make_options(disk, "a"), listener=listen)
            assert found.learner.n_rows_ == 1500
            assert any("no checkpoint" in text and "No space left" in text for text in told), told
            assert any("can be written again" in text for text in told), told
            assert [record["chunk"] for record in read_metrics(disk / "a.jsonl")] == list(range(1, 16))
            again = learn_stream(StreamedDTSL(chunk_rows=100, watch="rows"), str(path), **make_options(disk, "a"))
            assert (again.rows, again.learner.n_rows_) == (0, 1500)
        finally:
            subprocess.run(["umount", str(disk)], check=True)

    def test_chunks_by_time(self, tmp_path):
        path, now = write_csv(tmp_path / "rows.csv", NAMES, ROWS[:30]), iter(range(0, 10_000, 5))
        calls = iter([False] * 6 + [True] * 50)
        learner = StreamedDTSL(chunk_rows=1000, watch="none")
        found = learn_stream(learner, str(path), every=20, follow=True, clock=lambda: next(now), stop=lambda: next(calls))
        assert (found.chunks, found.learner.n_rows_) == (1, 30)


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path):
        write_csv(tmp_path / "rows.csv", NAMES, ROWS[:600])
        return tmp_path

    def test_the_files_it_writes(self, folder):
        done = run("rows.csv", "--chunk", 200, "--checkpoint", "a.state", "-o", "net.json", "--metrics", "a.jsonl", "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["chunks"], report["rows"], report["ended"]) == (3, 600, True)
        metrics = read_metrics(folder / "a.jsonl")
        assert [record["chunk"] for record in metrics] == [1, 2, 3]
        assert {"rows", "pll", "npll", "n_features", "added", "removed", "drift"} <= set(metrics[0])
        assert metrics[0]["npll"] is None
        network = undirected.load(folder / "net.json")
        assert len(network.features) == metrics[-1]["n_features"]
        status = run("--status", "a.state", cwd=folder)
        assert "3 chunks, 600 rows" in status.stdout
        assert json.loads(run("--status", "a.state", "--json", cwd=folder).stdout)["rows"] == 600
        drawn = run("--plot", "a.jsonl", "-o", "a.svg", cwd=folder)
        assert drawn.returncode == 0, drawn.stderr
        assert (folder / "a.svg").read_text().startswith("<?xml")

    def test_settings_that_are_not_named_again_are_those_of_the_checkpoint(self, folder):
        first = run("rows.csv", "-a", "gssl", "--chunk", 150, "--l1", 2, "--checkpoint", "a.state", "--n-generated", 500, cwd=folder)
        assert first.returncode == 0, first.stderr
        write_csv(folder / "rows.csv", NAMES, ROWS[:900])
        done = run("rows.csv", "--checkpoint", "a.state", "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["chunks"] == 2
        wrong = run("rows.csv", "-a", "dtsl", "--checkpoint", "a.state", cwd=folder)
        assert (wrong.returncode, "is the state of -a gssl" in wrong.stderr) == (2, True)

    def test_standard_input_and_dead_letters(self, folder):
        lines = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in ROWS[:300]]
        lines[250:250] = ["not JSON", json.dumps({"c0": "maybe", **dict.fromkeys(NAMES[1:], "no")}), ""]
        args = ("-", "--format", "jsonl", "--chunk", 100, "--dead-letter", "dead.jsonl", "--json")
        done = run(*args, cwd=folder, input="\n".join(lines) + "\n")
        assert done.returncode == 0, done.stderr
        dead = [json.loads(line) for line in (folder / "dead.jsonl").read_text().splitlines()]
        assert [(one["chunk"], one["reason"].split(":")[0]) for one in dead] == [
            (3, "not JSON"),
            (3, "column 'c0' has the unknown state 'maybe'"),
        ]
        assert dead[0]["text"] == "not JSON"
        assert dead[1]["row"]["by name"]["c0"] == "maybe"
        assert json.loads(done.stdout)["last"]["dead"] == 2
        assert "a row was left out" in done.stderr

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
    def test_signals_end_it_after_the_step(self, folder, number, code):
        args = [*COMMAND, "stream", "rows.csv", "--follow", "--chunk", "250", "--checkpoint", "a.state", "--metrics", "a.jsonl"]
        process = subprocess.Popen(args, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(300):
            if (folder / "a.jsonl").exists() and len((folder / "a.jsonl").read_text().splitlines()) == 2:
                break
            time.sleep(0.1)
        time.sleep(1.0)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == code, err
        assert "100 rows wait for their chunk" in out
        assert json.loads(run("--status", "a.state", "--json", cwd=folder).stdout)["waiting"] == 100
        write_csv(folder / "rows.csv", NAMES, ROWS[:750])
        done = run("rows.csv", "--checkpoint", "a.state", "--json", cwd=folder)
        assert json.loads(done.stdout)["last"]["total_rows"] == 750

    @pytest.mark.parametrize(
        ("args", "code", "words"),
        [
            ((), 2, "name a source"), (("none.csv",), 3, "there is no file"),
            (("rows.csv", "--n-clusters", 3), 2, "does not belong to dtsl"),
            (("rows.csv", "--checkpoint", "no/where.state"), 3, "does not exist"), (("--status", "none.state"), 3, "no checkpoint"),
            (("--plot", "rows.csv", "-o", "a.svg"), 3, "does not hold the measures"), (("--plot", "rows.csv"), 2, "add -o stream.svg"),
            (("rows.csv", "--max-features", 2), 2, "atomic features alone"), (("empty.csv",), 0, "0 chunks"),
            (("one.csv",), 0, "1 chunks"), (("same.csv",), 0, "1 chunks"),
            (("redis://127.0.0.1:1/0?stream=s",), 3, "is the server running"),
            (("twice.csv",), 3, "two columns"), (("rows.csv", "-o", "net.txt"), 3, "suffix"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_is_told_in_one_line(self, folder, args, code, words):
        (folder / "empty.csv").write_text("")
        (folder / "one.csv").write_text("a,b\n1,x\n")
        (folder / "same.csv").write_text("a\n" + "1\n" * 10)
        (folder / "twice.csv").write_text("a,a\n1,2\n2,1\n1,1\n")
        done = run(*args, cwd=folder)
        assert done.returncode == code, done.stderr
        assert words in done.stderr + done.stdout
        if code:
            assert len(done.stderr.strip().splitlines()) == 1


class TestFiles:
    """Nothing that is there is lost, whatever files are named."""

    def test_no_file_is_written_over(self, tmp_path):
        path = write_csv(tmp_path / "rows.csv", NAMES, ROWS[:300])
        before = path.read_bytes()
        for how in ({"dead_letter": path}, {"metrics": path}, {"network": tmp_path / "n.json", "metrics": tmp_path / "n.json"}):
            with pytest.raises(ParameterError, match="is named twice"):
                learn_stream(StreamedDTSL(), str(path), **how)
        notes = tmp_path / "notes.txt"
        notes.write_text("mine\n")
        with pytest.raises(DataError, match="exists already"):
            learn_stream(StreamedDTSL(), str(path), metrics=notes)
        assert (path.read_bytes(), notes.read_text()) == (before, "mine\n")
        learn_stream(StreamedDTSL(), str(path), metrics="/dev/null")

    def test_lines_stay_when_a_run_names_no_file_for_them(self, tmp_path):
        path = write_csv(tmp_path / "rows.csv", NAMES, ROWS[:600])
        how = {"checkpoint": tmp_path / "a.state", "max_chunks": 2}
        for k in range(3):
            metrics = {} if k == 1 else {"metrics": tmp_path / "m.jsonl"}
            learn_stream(StreamedDTSL(chunk_rows=100, watch="none"), str(path), **how, **metrics)
        assert [record["chunk"] for record in read_metrics(tmp_path / "m.jsonl")] == [1, 2, 5, 6]

    def test_a_source_is_known_by_what_it_is_not_by_how_it_is_named(self, tmp_path, monkeypatch):
        write_csv(tmp_path / "rows.csv", NAMES, ROWS[:300])
        monkeypatch.chdir(tmp_path)
        for name in ("rows.csv", str(tmp_path / "rows.csv"), "./rows.csv"):
            found = learn_stream(StreamedDTSL(chunk_rows=100, watch="none"), name, checkpoint="a.state")
        assert (found.rows, found.learner.n_rows_) == (0, 300)

    def test_a_damaged_checkpoint_takes_no_sound_ones_place(self, tmp_path):
        path = write_csv(tmp_path / "rows.csv", NAMES, ROWS[:600])
        how = {"checkpoint": tmp_path / "a.state"}
        learn_stream(StreamedDTSL(chunk_rows=100, watch="none"), str(path), max_chunks=3, **how)
        sound = (tmp_path / "a.state.1").read_bytes()
        (tmp_path / "a.state").write_bytes(b"damaged")
        learn_stream(StreamedDTSL(chunk_rows=100, watch="none"), str(path), max_chunks=0, **how)
        assert (tmp_path / "a.state.1").read_bytes() == sound
        assert (tmp_path / "a.state.damaged").read_bytes() == b"damaged"

    def test_the_last_checkpoint_is_tried_again(self, tmp_path, monkeypatch):
        from undirected.streaming.checkpoint import CheckpointFile

        path, real, calls = write_csv(tmp_path / "rows.csv", NAMES, ROWS[:200]), CheckpointFile.save, []

        def fail_once(self, tree, arrays):
            calls.append(1)
            return real(self, tree, arrays) if len(calls) != 3 else False

        monkeypatch.setattr(CheckpointFile, "save", fail_once)
        learn_stream(StreamedDTSL(chunk_rows=100, watch="none"), str(path), checkpoint=tmp_path / "a.state")
        found = learn_stream(StreamedDTSL(chunk_rows=100, watch="none"), str(path), checkpoint=tmp_path / "a.state")
        assert (found.rows, found.learner.n_rows_) == (0, 200)

    def test_rows_that_wait_are_the_same_after_a_restart(self, tmp_path):
        rows = [{"a": k % 2, "b": (k // 2) % 2, "c": ["nested"] if k % 5 == 0 else k % 3} for k in range(300)]
        (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        calls = iter([False, True])
        how = {"checkpoint": tmp_path / "a.state", "listener": lambda event: None}
        first = learn_stream(StreamedDTSL(watch="none"), str(tmp_path / "r.jsonl"), follow=True, stop=lambda: next(calls), **how)
        assert first.learner.n_chunks_ == 0
        found = learn_stream(StreamedDTSL(watch="none"), str(tmp_path / "r.jsonl"), **how)
        assert (found.learner.n_rows_, found.dead) == (240, 60)

    def test_rows_that_waited_are_learned_in_time(self, tmp_path):
        path, now = write_csv(tmp_path / "rows.csv", NAMES, ROWS[:50]), iter(range(0, 10_000, 5))
        calls = iter([False] * 5 + [True] * 9)
        how = {"checkpoint": tmp_path / "a.state", "follow": True}
        first = learn_stream(StreamedDTSL(watch="none"), str(path), stop=lambda: next(calls), **how)
        assert len(first.learner.waiting_) == 50
        calls = iter([False] * 9 + [True] * 9)
        found = learn_stream(
            StreamedDTSL(watch="none"), str(path), every=20, clock=lambda: next(now), stop=lambda: next(calls), listener=print, **how
        )
        assert found.learner.n_rows_ == 50


class TestWorldsThatChange:
    @pytest.mark.parametrize("kind", ["StreamedClusterNet", "StreamedDTSL", "StreamedGSSL", "StreamedSearch"])
    def test_rebuilding_with_new_states(self, kind):
        names = [f"c{k}" for k in range(6)]
        before = [
            dict(zip(names, row, strict=True)) for row in np.random.default_rng(0).integers(0, 2, (2400, 1)).repeat(6, axis=1).tolist()
        ]
        codes = np.random.default_rng(1).integers(0, 2, (1800, 1)).repeat(6, axis=1)
        codes[:, ::2] = 1 - codes[:, ::2]
        after = [dict(zip(names, ["new" if x and k % 7 == 0 else x for x in row], strict=True)) for k, row in enumerate(codes.tolist())]
        learner = getattr(undirected, kind)(watch="rows", drift="rebuild", unknown="extend")
        drifts = 0
        for at in range(0, 4200, 300):
            learner.learn_many((before + after)[at : at + 300])
            drifts += learner.last_.drift is not None
        assert drifts > 0
        assert learner.network_.domain[1].states[-1] == "new"
        report = learner.last_
        assert report.n_features == len(learner.network_.features)

    def test_counts_of_features_add_up_when_states_come(self):
        rng = np.random.default_rng(0)
        learner = StreamedDTSL(watch="none", unknown="extend", max_features=22)
        size = 0
        for k in range(5):
            rows = rng.integers(0, 2 + k, (200, 4)).astype(str).tolist()
            learner.learn_many(rows)
            report = learner.last_
            assert report.n_features == size + report.added - report.removed
            size = report.n_features
            atoms = int((learner.network_.features.lengths == 1).sum())
            assert atoms <= size <= 22
