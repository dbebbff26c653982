"""Files of IRM, MRC and MSL: what is read back predicts the same, and damaged files are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relations import make_blocks, make_random
from undirected.errors import DataError, FormatError
from undirected.relational import IRM, MRC, MSL
from undirected.relational.explain import list_clusters
from undirected.relational.model_file import load_model, save_model
from undirected.relational.treermn import TreeRMN

LEARNERS = {
    "irm": IRM(n_clusters=6, restarts=2, sweeps=4),
    "mrc": MRC(n_hierarchies=2),
    "msl": MSL(max_literals=3, max_clauses=8),
}


def make_hidden(seed=2):
    data, _ = make_blocks(14, 3, 4, seed=seed)
    return data.hide(data.draw_fold(6, 0))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each learner, and the model that was written."""
    folder, found = tmp_path_factory.mktemp("files"), {}
    for name, learner in LEARNERS.items():
        model = learner.fit(make_hidden())
        save_model(model, folder / f"{name}.json")
        found[name] = folder / f"{name}.json", model
    return found


def assert_same(one, two):
    for a, b in zip([m for part in one for m in part], [m for part in two for m in part], strict=True):
        assert (a == b).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_that_is_read_back_predicts_the_same(files, name):
    file, model = files[name]
    again = load_model(file)
    assert type(again) is type(model)
    assert_same(again.predict_proba(make_hidden()), model.predict_proba())
    if name != "msl":
        assert_same(again.predict_proba(), model.predict_proba())  # these carry their data
        assert list_clusters(again) == list_clusters(model)


def test_other_data_than_that_learned_from_is_predicted_alike(files):
    other = make_hidden(seed=5)
    for name in ("irm", "msl"):
        file, model = files[name]
        assert_same(load_model(file).predict_proba(other), model.predict_proba(other))


@pytest.mark.parametrize("seed", range(6))
def test_models_of_random_schemas_survive_their_files(tmp_path, seed):
    data = make_random(seed, unknown=0.3)
    for learner in (IRM(n_clusters=3, restarts=1, sweeps=2), MRC(n_hierarchies=1)):
        try:
            model = learner.fit(data)
        except DataError:  # nothing to learn from
            continue
        save_model(model, tmp_path / "model.json")
        assert_same(load_model(tmp_path / "model.json").predict_proba(), model.predict_proba())


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("irm", lambda tree: tree["data"].pop()),
        ("irm", lambda tree: tree["data"][1]["codes"][0].__setitem__(0, 7)),
        ("irm", lambda tree: tree["data"][1]["arguments"][0].__setitem__(0, 99)),
        ("irm", lambda tree: tree["data"][0]["keys"].pop()),
        ("irm", lambda tree: tree["samples"][0].update(prior=9)),
        ("irm", lambda tree: tree["samples"][0]["clusters"][0].__setitem__(0, -5)),
        ("irm", lambda tree: tree["samples"][0]["clusters"][0].__setitem__(0, "a")),
        ("irm", lambda tree: tree["samples"].clear()),
        ("irm", lambda tree: tree["priors"][0].__setitem__(1, -1.0)),
        ("irm", lambda tree: tree["settings"].update(alpha="much")),
        ("irm", lambda tree: tree["settings"].update(colour=1)),
        ("irm", lambda tree: tree.update(learner="nobody")),
        ("irm", lambda tree: tree.update(learner=[])),
        ("mrc", lambda tree: tree["hierarchies"][0]["clusters"].pop()),
        ("mrc", lambda tree: tree["hierarchies"][0]["clusters"][0].append(0)),
        ("mrc", lambda tree: tree["hierarchies"][0].update(inside=[{"place": 999, "clusters": [], "inside": []}])),
        ("mrc", lambda tree: tree["hierarchies"].clear()),
        ("mrc", lambda tree: tree.pop("data")),
        ("msl", lambda tree: tree["clauses"].append("nobody(x)")),
        ("msl", lambda tree: tree["clauses"].__setitem__(0, " v ".join(f"a0(x{k},x{k + 1})" for k in range(7)))),
        ("msl", lambda tree: tree["weights"].pop()),
        ("msl", lambda tree: tree["weights"].__setitem__(0, None)),
        ("msl", lambda tree: tree.update(inference="magic")),
    ],
)
def test_damaged_files_are_refused_in_a_sentence(files, tmp_path, name, spoil):
    tree = json.loads(files[name][0].read_text())
    spoil(tree)
    (tmp_path / "model.json").write_text(json.dumps(tree))
    with pytest.raises(FormatError, match=r"model\.json"):
        load_model(tmp_path / "model.json")


def test_designs_that_do_not_fit_are_refused():
    data, _ = make_blocks(30, 2, 3)
    with pytest.raises(DataError, match="sums along paths, more than fit into"):
        TreeRMN(order=1, hidden=0, memory=20_000).fit(data)
    assert np.isfinite(TreeRMN(order=1, hidden=0, beta=1, memory=1 << 20).fit(data).weights_).all()
