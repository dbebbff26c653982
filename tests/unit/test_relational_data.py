"""Lists of facts as relational data: the published sizes of real data, small truths, and clear words for what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain, Variable
from undirected.errors import DataError, TableWarning
from undirected.relational.data import Entities, RelationalData
from undirected.relational.schema import Argument, EntityType, Schema


def write_folder(folder, **tables):
    for name, text in tables.items():
        (folder / f"{name}.tsv").write_text(text.replace(" ", "\t"))
    return folder


def write_triples(folder, text):
    path = folder / "facts.tsv"
    path.write_text(text.replace(" ", "\t"))
    return path


def read_pairs(data):
    """The states of each pair's attributes, by the names of its entities."""
    table = data["pair"]
    names = [tuple(data.name(a.target, e) for a, e in zip(table.type.arguments, row, strict=True)) for row in table.arguments.tolist()]
    variables = table.type.attributes.variables
    return {pair: [v.states[c] if c >= 0 else None for v, c in zip(variables, row, strict=True)]
            for pair, row in zip(names, table.cells.codes.tolist(), strict=True)}  # fmt: skip


ABC = "thing\na\nb\nc\n"


class TestRealData:
    """The sizes that the paper and its data tell of."""

    def read(self, data_folder, name):
        folder = data_folder / "relational" / name
        if not folder.is_dir():
            pytest.skip(f"needs relational/{name} in UNDIRECTED_DATA")
        return RelationalData.from_folder(folder)

    def test_animals(self, data_folder):
        data = self.read(data_folder, "animals")
        assert data.schema.names == ["animal"]
        assert (len(data["animal"]), len(data["animal"].type.attributes), data.n_observed) == (50, 85, 50 * 85)

    def test_nations(self, data_folder):
        data = self.read(data_folder, "nations")
        listed = pd.read_csv(data_folder / "relational" / "nations" / "relations.tsv", sep="\t")
        unknown = pd.read_csv(data_folder / "relational" / "nations" / "unknown.tsv", sep="\t")
        assert len(data["nation"]) == 14
        assert (len(data["pair"]), len(data["pair"].type.attributes)) == (14 * 13, listed["relation"].nunique())
        assert (data["pair"].cells.codes == 1).sum() == (listed["subject"] != listed["object"]).sum()
        assert (data["pair"].cells.codes < 0).sum() == (unknown["subject"] != unknown["object"]).sum()

    def test_umls(self, data_folder):
        with pytest.warns(TableWarning, match="left out, as they hold between no two different entities"):
            data = self.read(data_folder, "umls")
        assert (len(data["pair"]), len(data["pair"].type.attributes)) == (135 * 135, 46)

    def test_kinship(self, data_folder):
        data = self.read(data_folder, "kinship")
        pairs = data["pair"]
        assert (len(data["person"]), len(pairs), len(pairs.type.attributes[0].states)) == (104, 104 * 104, 26)
        assert (pairs.cells.codes < 0).sum() == 26

    def test_triples_hold_the_same_as_a_folder(self, data_folder, tmp_path):
        with pytest.warns(TableWarning):
            folder = self.read(data_folder, "umls")
        facts = pd.read_csv(data_folder / "relational" / "umls" / "relations.tsv", sep="\t", keep_default_na=False)
        facts[["subject", "relation", "object"]].to_csv(tmp_path / "umls.tsv", sep="\t", header=False, index=False)
        with pytest.warns(TableWarning):
            triples = RelationalData.from_triples(tmp_path / "umls.tsv", self_pairs=True)
        first, second = read_pairs(folder), read_pairs(triples)
        assert set(second) <= set(first)
        order = [folder["pair"].type.attributes.names.index(name) for name in triples["pair"].type.attributes.names]
        for pair, states in second.items():
            assert states == [first[pair][k] for k in order]


class TestFolders:
    def test_attributes_relations_and_gaps(self, tmp_path):
        data = RelationalData.from_folder(
            write_folder(
                tmp_path, entities=ABC, attributes="key x\nc 1\na 0\n", relations="relation subject object\nr a b\ns b c\n",
                unknown="relation subject object\nr c a\n",
            )
        )  # fmt: skip
        assert data["thing"].cells.codes.tolist() == [[0], [-1], [1]]
        pairs = {(a, b): ["no", "no"] for a in "abc" for b in "abc" if a != b}
        pairs["a", "b"], pairs["b", "c"], pairs["c", "a"] = ["yes", "no"], ["no", "yes"], [None, "no"]
        assert read_pairs(data) == pairs

    def test_one_relation_a_pair_is_one_attribute(self, tmp_path):
        folder = write_folder(
            tmp_path, entities="p\na\nb\n", relations="relation subject object\nr a b\ns b a\ns b b\n", unknown="subject object\na a\n"
        )
        data = RelationalData.from_folder(folder)
        assert read_pairs(data) == {("a", "a"): [None], ("a", "b"): ["r"], ("b", "a"): ["s"], ("b", "b"): ["s"]}
        write_folder(tmp_path, unknown="subject object\n")
        with pytest.raises(DataError, match="has no rows|1 pairs have no relation"):
            RelationalData.from_folder(folder)
        write_folder(tmp_path, unknown="subject object\na a\n", relations="relation subject object\nr a b\ns a b\ns b a\ns b b\n")
        with pytest.raises(DataError, match="line 2: this pair has another relation, too"):
            RelationalData.from_folder(folder)

    def test_self_pairs(self, tmp_path):
        folder = write_folder(tmp_path, entities=ABC, relations="relation subject object\nr a a\nr a b\n")
        assert len(RelationalData.from_folder(folder)["pair"]) == 9
        without = RelationalData.from_folder(folder, self_pairs=False)
        assert len(without["pair"]) == 6
        assert (without["pair"].cells.codes == 1).sum() == 1
        write_folder(tmp_path, relations="relation subject object\nr b a\nr a b\n")
        assert len(RelationalData.from_folder(folder)["pair"]) == 6
        assert len(RelationalData.from_folder(folder, self_pairs=True)["pair"]) == 9

    def test_further_columns_of_entities(self, tmp_path):
        folder = write_folder(tmp_path, entities="thing kind\na u\nb v\nc u\n")
        with pytest.raises(DataError, match="nothing to learn"):
            RelationalData.from_folder(folder)
        assert RelationalData.from_folder(folder, entity_columns=True)["thing"].cells.codes.ravel().tolist() == [0, 1, 0]

    def test_keys_that_look_like_missing_cells_are_keys(self, tmp_path):
        folder = write_folder(tmp_path, entities="land\nNA\n1.10\n1.1\n", relations="relation subject object\nr NA 1.10\n")
        assert read_pairs(RelationalData.from_folder(folder))["NA", "1.10"] == ["yes"]

    @pytest.mark.parametrize(
        ("tables", "match"),
        [
            ({"entities": ""}, "entities.tsv"),
            ({"entities": "thing\n"}, "entities.tsv"),
            ({"entities": "thing\na\nb\na\n"}, "entities.tsv, line 4: the key 'a' stands in .*entities.tsv, line 2, too"),
            ({"attributes": "key x\na 1\nz 0\n"}, "attributes.tsv, line 3: column 'key' names the thing 'z', which is not there"),
            ({"attributes": "key x\na 1\na 0\n"}, "attributes.tsv, line 3: the key 'a' stands in"),
            ({"relations": "relation subject object\nr a z\n"}, "relations.tsv, line 2: column 'object' names the thing 'z'"),
            ({"relations": "relation subject\nr a\n"}, "relations.tsv: 2 columns; relation, subject and object are needed"),
            ({"relations": ""}, "relations.tsv"),
            ({"relations": "relation subject object\nr a ?\n"}, "line 2: the object is empty; a fact needs all of its parts"),
            ({"relations": "relation subject object\nr a a\n"}, "no relation holds between two different entities"),
            ({"relations": "relation subject object\nr a b\n", "predicates": "relation\ns\n"}, "the relation 'r', which is not there"),
            ({"relations": "relation subject object\nr a b\n", "unknown": "relation subject object\nr a q\n"}, "unknown.tsv, line 2"),
        ],
    )  # fmt: skip
    @pytest.mark.filterwarnings("ignore::undirected.errors.TableWarning")
    def test_bad_folders_are_told_with_file_and_line(self, tmp_path, tables, match):
        folder = write_folder(tmp_path, **({"entities": ABC, "attributes": "key x\na 1\nb 0\n"} | tables))
        with pytest.raises(DataError, match=match):
            RelationalData.from_folder(folder)

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match="there is no folder"):
            RelationalData.from_folder(tmp_path / "none")
        with pytest.raises(DataError, match="entities.tsv"):
            RelationalData.from_folder(tmp_path)


class TestTriples:
    TEXT = "a likes b\nb likes c\nc knows a\n"

    def test_closed_and_open_world(self, tmp_path):
        path = write_triples(tmp_path, self.TEXT)
        closed = RelationalData.from_triples(path)
        assert closed["pair"].type.attributes.names == ["knows", "likes"]
        expected = {(a, b): ["no", "no"] for a in "abc" for b in "abc" if a != b}
        expected |= {("a", "b"): ["no", "yes"], ("b", "c"): ["no", "yes"], ("c", "a"): ["yes", "no"]}
        assert read_pairs(closed) == expected
        open_world = RelationalData.from_triples(path, closed_world=False)
        unknown = {pair: [None, None] for pair in expected}
        assert read_pairs(open_world) == unknown | {("a", "b"): [None, "yes"], ("b", "c"): [None, "yes"], ("c", "a"): ["yes", None]}
        told = RelationalData.from_triples(path, closed_world=False, cross_product=False)
        assert read_pairs(told) == {("a", "b"): [None, "yes"], ("b", "c"): [None, "yes"], ("c", "a"): ["yes", None]}

    def test_relations_of_a_model_are_taken(self, tmp_path):
        first = RelationalData.from_triples(write_triples(tmp_path, self.TEXT))
        fewer = write_triples(tmp_path, "x likes y\n")
        again = RelationalData.from_triples(fewer, like=first.schema)
        assert again.schema == first.schema
        assert read_pairs(again) == {("x", "y"): ["no", "yes"], ("y", "x"): ["no", "no"]}

    def test_without_the_cross_product(self, tmp_path):
        path = write_triples(tmp_path, self.TEXT + "a likes a\n")
        listed = RelationalData.from_triples(path, cross_product=False)
        assert set(read_pairs(listed)) == {("a", "a"), ("a", "b"), ("b", "c"), ("c", "a")}
        assert read_pairs(listed)["c", "a"] == ["yes", "no"]
        assert ("a", "a") not in read_pairs(RelationalData.from_triples(path, cross_product=False, self_pairs=False))
        every = RelationalData.from_triples(path, closed_world=False, cross_product=True, entity="person")
        assert (len(every["pair"]), every["pair"].type.arguments[0].target) == (9, "person")

    def test_a_large_graph_is_not_multiplied_out(self, tmp_path):
        rng = np.random.default_rng(0)
        n = 20_000
        path = tmp_path / "large.tsv"
        path.write_text(
            "".join(f"e{a}\tr{r}\te{b}\n" for a, r, b in zip(rng.integers(0, n, n), rng.integers(0, 2, n), range(n), strict=True))
        )
        data = RelationalData.from_triples(path)
        assert len(data["pair"]) == n

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("", "facts.tsv"),
            ("a b\nb c\n", "2 columns; head, relation and tail are needed"),
            ("a r b x\n", "4 columns; head, relation and tail"),
            ("a r b\na  b\n", "line 2: the relation is empty"),
            ("a r b\n r b\n", "line 2: the subject is empty"),
            ("a r a\n", "no relation holds between two different entities"),
        ],
    )
    @pytest.mark.filterwarnings("ignore::undirected.errors.TableWarning")
    def test_bad_lists_are_told_with_their_line(self, tmp_path, text, match):
        with pytest.raises(DataError, match=match):
            RelationalData.from_triples(write_triples(tmp_path, text))


class TestRelationalData:
    """What every source goes through."""

    def make(self, codes=((0,), (1,)), arguments=((0, 1), (1, 0)), keys=("x", "y")):
        p = EntityType("p", Domain([Variable("u", ("no", "yes"))]))
        links = EntityType("l", Domain([Variable("w", ("no", "yes"))]), (Argument("a", "p"), Argument("b", "p")))
        plain = Entities(p, Dataset(p.attributes, np.array(codes)), np.zeros((len(codes), 0), np.int32), keys)
        arguments = np.array(arguments, dtype=np.int32).reshape(-1, 2)
        return RelationalData([plain, Entities(links, Dataset(links.attributes, np.ones((len(arguments), 1), np.int8)), arguments)])

    def test_names(self):
        data = self.make(arguments=((0, 1), (1, -1)))
        assert [data.name("l", 0), data.name("l", 1), data.name("p", 1)] == ["(x, y)", "(y, -)", "y"]
        assert (data.find("p", "y"), data.find("l", "(x, y)")) == (1, 0)
        with pytest.raises(DataError, match="there is no p 'z'"):
            data.find("p", "z")
        with pytest.raises(DataError, match="there is no type 'q'"):
            data["q"]

    def test_shapes_are_checked(self):
        with pytest.raises(DataError, match="leads beyond the 2 entities"):
            self.make(arguments=((0, 2),))
        with pytest.raises(DataError, match="1 keys for 2 entities"):
            self.make(keys=("x",))

    def test_folds_cut_every_known_cell_once(self):
        data = self.make(codes=((0,), (-1,)))
        folds = data.cut_observed(3, seed=1)
        total = [sum(fold[k].astype(int) for fold in folds) for k in range(2)]
        assert [t.ravel().tolist() for t in total] == [[1, 0], [1, 1]]
        assert data.hide(folds[0]).n_observed == data.n_observed - sum(int(marks.sum()) for marks in folds[0])

    def test_circles(self):
        empty = Domain([])
        with pytest.raises(DataError, match="a -> b -> a"):
            Schema([EntityType("a", empty, (Argument("x", "b"),)), EntityType("b", empty, (Argument("y", "a"),))])
        Schema([EntityType("a", empty, (Argument("boss", "a"),))])


def test_the_folder_of_real_data_is_read_from_anywhere(data_folder, monkeypatch, tmp_path):
    folder = data_folder / "relational" / "animals"
    if not folder.is_dir():
        pytest.skip("needs relational/animals in UNDIRECTED_DATA")
    monkeypatch.chdir(tmp_path)
    assert RelationalData.from_folder(str(Path(folder))).source == "animals"
