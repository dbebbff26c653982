"""A table is read once and coded once on its way: commands open its file once, learners look at a frame once."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tables import write
from undirected import ChowLiu, read_data
from undirected.cli.main import cli

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def opened():
    """How often each file is opened, by name, as Python itself tells."""
    counts, watching = Counter(), [True]

    def hook(event, arguments):
        if watching and event == "open" and isinstance(arguments[0], str):
            counts[arguments[0].rsplit("/", 1)[-1]] += 1

    sys.addaudithook(hook)  # it cannot be taken away again, only be told to rest
    yield counts
    watching.clear()


@pytest.fixture
def table(tmp_path):
    rows = [",".join(f"s{cell}" for cell in row) for row in RNG.integers(0, 2, size=(60, 4)).tolist()]
    return write(tmp_path, "once.csv", "\n".join(["a,b,c,d", *rows, ""]))


def run(opened, *arguments):
    opened.clear()
    done = CliRunner().invoke(cli, [*map(str, arguments), "-q"], standalone_mode=False)
    assert done.exception is None, done.exception
    assert opened["once.csv"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("-a", "chow-liu"),
        ("-a", "chow-liu", "--tune"),
        ("-a", "chow-liu", "--valid", "0.2"),
        ("-a", "dtsl", "--missing", "mode"),
        ("--time-budget", "2s"),
    ],
)
def test_learn_opens_its_table_once(opened, table, arguments):
    run(opened, "learn", table, *arguments)


def test_other_commands_open_their_table_once(opened, table, tmp_path):
    run(opened, "data", "describe", table)
    run(opened, "bootstrap", table, "-a", "chow-liu", "-n", "2", "--n-dropping", "0")
    run(opened, "compare", "--datasets", table, "--learners", "atomic,chow-liu", "-o", tmp_path / "out")
    run(opened, "learn", table, "-a", "chow-liu", "--valid", "none", "-o", tmp_path / "net.json")
    run(opened, "weights", tmp_path / "net.json", table)
    run(opened, "score", tmp_path / "net.json", table)
    run(opened, "impute", tmp_path / "net.json", table)


def test_only_the_split_that_is_asked_for_is_unpacked(tmp_path):
    bits = np.packbits(RNG.integers(0, 2, size=(60, 8)), axis=1)
    np.savez_compressed(tmp_path / "set.npz", train=bits, valid=bits[:9], test=np.array([None]), n_vars=8)  # the last cannot be read
    assert len(read_data(tmp_path / "set.npz")) == 60
    assert len(read_data(f"{tmp_path}/set.npz:valid")) == 9


def test_learners_look_at_each_column_of_a_frame_once():
    looked = Counter()

    class Watched(pd.DataFrame):
        def __getitem__(self, key):
            looked[key] += 1
            return super().__getitem__(key)

        def __array__(self, *arguments, **options):
            looked["all"] += 1
            return super().__array__(*arguments, **options)

    frame = Watched({"a": ["x", "y"] * 10, "b": ["u", "v", "v", "u"] * 5})
    learner = ChowLiu().fit(frame)
    assert looked == {"a": 1, "b": 1}
    assert learner.network_.domain.names == ["a", "b"]
    looked.clear()
    learner.score(frame)
    assert looked == {"a": 1, "b": 1}


def test_a_coded_table_passes_through_as_it_is():
    data = read_data(np.eye(4, dtype=int))
    assert read_data(data) is data
    assert read_data(data, domain=data.domain, missing="mode") is data
