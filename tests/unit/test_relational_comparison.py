"""Comparing learners of relational data, and the ranks of hidden facts."""

from __future__ import annotations

import numpy as np
import pytest

from relations import make_blocks
from undirected.errors import DataError, ParameterError
from undirected.evaluation.published import published
from undirected.evaluation.relations import compare_relations
from undirected.relational.measures import rank_facts
from undirected.relational.names import LEARNERS, make_relational_learner


def test_ranks_count_hidden_false_facts_above():
    data, _ = make_blocks(4, 1, 1, noise=0)
    pair = data["pair"]
    pair.cells.codes[:] = 0
    pair.cells.codes[pair.arguments.tolist().index([0, 1])] = 1
    marks = [np.zeros((4, 0), bool), np.ones((12, 1), bool)]
    chances = np.full(12, 0.1)
    for (a, b), p in {(0, 1): 0.5, (0, 2): 0.7, (0, 3): 0.2, (2, 1): 0.5, (3, 1): 0.1}.items():
        chances[pair.arguments.tolist().index([a, b])] = p
    found = rank_facts(data, marks, [[], [np.stack([1 - chances, chances], axis=1)]])
    # Among the facts of 0 one is likelier: rank 2. Among those about 1, one is as likely, which counts half: rank 1.5.
    assert found.n == 2
    assert found.mrr == pytest.approx((1 / 2 + 1 / 1.5) / 2)
    assert found.hits == {1: 0, 3: 1, 10: 1}
    assert np.isnan(rank_facts(data, [marks[0], np.zeros((12, 1), bool)], [[], [np.ones((12, 2))]]).mrr)


def test_a_comparison_scores_every_learner_on_the_same_folds(tmp_path):
    data, _ = make_blocks(14, 2, 2, seed=1)
    found = compare_relations(["rmn0", "rmn1", "irm"], {"blocks": data}, folds=2, folder=tmp_path, time_budget=5)
    assert found.complete
    assert [(row["learner"], row["fold"]) for row in found.rows] == [(n, k) for n in ("rmn0", "rmn1", "irm") for k in range(2)]
    assert len({row["n"] for row in found.rows if row["fold"] == 0}) == 1
    again = compare_relations(["rmn0", "rmn1", "irm"], {"blocks": data}, folds=2, folder=tmp_path, time_budget=5)
    assert again.rows == found.rows
    summary = {line["learner"]: line for line in found.summary()}
    cll = [row["cll"] for row in found.rows if row["learner"] == "irm"]
    assert summary["irm"]["cll"] == pytest.approx(np.mean(cll))
    assert summary["irm"]["cll_sd"] == pytest.approx(np.std(cll))
    assert summary["irm"]["cll"] > summary["rmn0"]["cll"]  # links come in blocks
    assert "| blocks | rmn1 |" in found.to_markdown()


def test_published_values_stand_in_table_4():
    assert [published("relational_auc", name, "umls")[0].value for name in ("rmn0", "cvi", "mrc", "irm", "msl")] == [
        0.70,
        0.94,
        0.97,
        0.79,
        0.47,
    ]
    assert published("relational_binary_cll", "mrc", "kinship")[0].value == -0.048
    assert published("dim_theta", "rmn2", "nations")[0].value == 40489
    assert "NIPS 2010" in published("relational_cll", "cvi", "animals")[0].source


def test_learners_are_made_by_name_with_the_papers_settings():
    assert make_relational_learner("rmn2", "umls").get_params()["order"] == 2
    assert make_relational_learner("rmn2", "umls").get_params()["beta"] == 10
    assert make_relational_learner("cvi", "animals").get_params()["templates"] == "unary"
    assert make_relational_learner("treermn", "umls").get_params()["beta"] == "auto"
    assert all(make_relational_learner(name, "other", threads=1).threads == 1 for name in LEARNERS)
    with pytest.raises(ParameterError, match=r"'rmn'.*Did you mean"):
        make_relational_learner("rmn", "umls")


def test_wrong_folds_and_folders_are_refused(tmp_path):
    data, _ = make_blocks(6, 2, 1)
    with pytest.raises(ParameterError, match="folds=11"):
        compare_relations(["rmn0"], {"blocks": data}, folds=11)
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be used"):
        compare_relations(["rmn0"], {"blocks": data}, folder=tmp_path / "file")
