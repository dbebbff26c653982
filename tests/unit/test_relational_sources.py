"""Relational data from frames, databases and Alchemy's files: the same data whichever way it comes, and clear words for errors."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from undirected.errors import DataError, FormatError, FormatWarning, MissingExtra, ParameterError, TableWarning
from undirected.relational import databases
from undirected.relational.data import RelationalData

sa = pytest.importorskip("sqlalchemy")
duckdb = pytest.importorskip("duckdb")

READ = RelationalData.from_frames
SHOP = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, "group" VARCHAR(20), "o'clock ""x"" größe" INTEGER, member BOOLEAN, since DATE);
CREATE TABLE product (maker VARCHAR(20), "no" INTEGER, price NUMERIC(10, 2), PRIMARY KEY (maker, "no"));
CREATE TABLE "order" (
    id INTEGER PRIMARY KEY, "customer id" INTEGER REFERENCES customer (id), paid BOOLEAN
);
CREATE TABLE "order line" (
    "order" INTEGER, maker VARCHAR(20), product INTEGER, amount INTEGER,
    FOREIGN KEY ("order") REFERENCES "order" (id), FOREIGN KEY (maker, product) REFERENCES product (maker, "no")
);
CREATE TABLE staff (id INTEGER PRIMARY KEY, manager_id INTEGER REFERENCES staff (id), grade DOUBLE PRECISION);
INSERT INTO customer VALUES (1, 'old', 3, TRUE, '2020-01-02'), (2, 'new', NULL, FALSE, '2020-01-02'), (30, NULL, 4, TRUE, '2021-05-06');
INSERT INTO product VALUES ('Ab, c', 1, 1.50), ('Ab', 1, 2.25), ('Ab', 2, 1.50);
INSERT INTO "order" VALUES (10, 30, TRUE), (11, NULL, FALSE), (12, 1, NULL);
INSERT INTO "order line" VALUES (10, 'Ab, c', 1, 2), (10, 'Ab', 2, NULL), (12, 'Ab', 1, 2), (12, NULL, NULL, 7), (12, 'Ab', 1, 7);
INSERT INTO staff VALUES (1, NULL, 1.5);
INSERT INTO staff VALUES (2, 1, 2.5);
INSERT INTO staff VALUES (3, 1, 2.5);
"""


def make_sqlite(path, script):
    with sqlite3.connect(path) as connection:
        connection.executescript(f"PRAGMA synchronous = OFF; {script}")  # nothing waits for the disk
    connection.close()
    return path


def make_duckdb(path, script):
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"BEGIN; {script.strip().rstrip(';')}; COMMIT")
    return path


def read_states(data, kind):
    """The states of a type's attributes by key, as texts."""
    table = data[kind]
    names = [data.name(kind, row) for row in range(len(table))]
    variables = table.type.attributes.variables
    return {name: [v.states[c] if c >= 0 else None for v, c in zip(variables, row, strict=True)]
            for name, row in zip(names, table.cells.codes.tolist(), strict=True)}  # fmt: skip


def check_equal(first, second):
    assert first.schema == second.schema
    for a, b in zip(first.tables, second.tables, strict=True):
        np.testing.assert_array_equal(a.cells.codes, b.cells.codes)
        np.testing.assert_array_equal(a.arguments, b.arguments)
        assert a.keys == b.keys


def check_shop(data):
    """The shop is the same in every database, but for what each knows of truth values and decimals."""
    assert sorted(data.schema.names) == ["customer", "order", "order line", "product", "staff"]
    assert data["customer"].keys == ("1", "2", "30")
    assert data["customer"].type.attributes.names == ["group", 'o\'clock "x" größe', "member", "since"]
    assert read_states(data, "customer") == {
        "1": ["old", "3", "True", "2020-01-02"], "2": ["new", None, "False", "2020-01-02"], "30": [None, "4", "True", "2021-05-06"],
    }  # fmt: skip
    assert data["product"].keys == ("Ab, 1", "Ab, 2", '"Ab, c", 1')
    price = data["product"].type.attributes[0]
    assert (price.name, price.edges) == ("price", (2.0,))
    assert data["product"].cells.codes.ravel().tolist() == [1, 0, 0]
    order = data["order"]
    assert [(a.name, a.target) for a in order.type.arguments] == [("customer id", "customer")]
    assert order.arguments.ravel().tolist() == [2, -1, 0]
    assert order.type.attributes.names == ["paid"]
    lines = data["order line"]
    assert lines.keys is None
    assert {(a.name, a.target) for a in lines.type.arguments} == {("order", "order"), ("maker, product", "product")}
    assert lines.type.attributes.names == ["amount"]
    place = {a.name: k for k, a in enumerate(lines.type.arguments)}
    found = sorted(
        (data.name("order", row[place["order"]]), row[place["maker, product"]], code)
        for row, (code,) in zip(lines.arguments.tolist(), lines.cells.codes.tolist(), strict=True)
    )
    assert found == [("10", 1, -1), ("10", 2, 0), ("12", -1, 1), ("12", 0, 0), ("12", 0, 1)]
    assert data["staff"].arguments.ravel().tolist() == [-1, 0, 0]


class TestFrames:
    def test_numbers_texts_and_truths_of_pandas_and_polars(self):
        people = {"name": ["Ann", "Bob", "Cyd"], "smokes": [True, False, True], "age": [31, 45, None]}
        pairs = {"a": ["Ann", "Cyd"], "b": ["Bob", "Ann"], "kind": ["x", None]}
        links = {"a": "person", "b": "person"}
        first = READ({"person": (pd.DataFrame(people), "name")}, {"knows": (pd.DataFrame(pairs), links)})
        second = READ({"person": (pl.DataFrame(people), "name")}, {"knows": (pl.DataFrame(pairs), links)})
        check_equal(first, second)
        assert first["person"].keys == ("Ann", "Bob", "Cyd")
        assert read_states(first, "person") == {"Ann": ["True", "31"], "Bob": ["False", "45"], "Cyd": ["True", None]}
        assert first["knows"].arguments.tolist() == [[0, 1], [2, 0]]
        assert first["knows"].cells.codes.tolist() == [[0], [-1]]

    def test_files_are_read_as_frames_are(self, tmp_path):
        rng = np.random.default_rng(0)
        people = pd.DataFrame({"id": np.arange(30), "height": rng.normal(size=30), "sex": rng.choice(["f", "m"], 30)})
        pairs = pd.DataFrame({"a": rng.integers(0, 30, 50), "b": rng.integers(0, 30, 50), "n": rng.integers(0, 3, 50)})
        people.to_csv(tmp_path / "people.csv", index=False)
        pairs.to_csv(tmp_path / "pairs.csv")
        links = {"a": "person", "b": "person"}
        frames = READ({"person": (people, "id")}, {"pair": (pairs, links)})
        check_equal(frames, READ({"person": (tmp_path / "people.csv", "id")}, {"pair": (str(tmp_path / "pairs.csv"), links)}))
        assert len(frames["person"].type.attributes[0].states) == 4

    def test_numbers_are_cut_as_read_data_cuts_them(self):
        from undirected import read_data

        rng = np.random.default_rng(1)
        frame = pd.DataFrame({"x": rng.normal(size=200), "y": rng.integers(0, 50, 200), "z": rng.choice([1.0, 2.0, np.nan], 200)})
        frame.loc[7, "x"] = np.nan
        expected = read_data(frame)
        found = READ({"row": (frame.assign(key=[f"row {k}" for k in range(200)]), "key")})["row"].cells
        assert found.domain == expected.domain
        np.testing.assert_array_equal(found.codes, expected.codes)

    def test_keys_written_as_floats_meet_whole_numbers(self, tmp_path):
        people = pd.DataFrame({"id": [1, 2, 3], "x": ["u", "v", "v"]})
        pairs = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [2, 2, 1]})
        pairs.to_csv(tmp_path / "pairs.csv", index=False)
        for table in (pairs, tmp_path / "pairs.csv"):
            data = READ({"p": (people, "id")}, {"l": (table, {"a": "p", "b": "p"})})
            assert data["l"].arguments.tolist() == [[0, 1], [-1, 1], [2, 0]]

    def test_keys_that_look_like_missing_cells_or_numbers_are_keys(self, tmp_path):
        (tmp_path / "land.csv").write_text("land,x\nNA,u\n1.10,v\n1.1,v\n")
        (tmp_path / "pair.csv").write_text("a,b\nNA,1.10\n1.1,None\n")
        data = READ({"land": (tmp_path / "land.csv", "land")}, {"pair": (tmp_path / "pair.csv", {"a": "land", "b": "land"})})
        assert data["land"].keys == ("NA", "1.10", "1.1")
        assert data["pair"].arguments.tolist() == [[0, 1], [2, -1]]

    def test_composite_keys_stay_apart(self):
        people = pd.DataFrame({"first": ["a, b", "a"], "last": ["c", "b, c"], "x": ["u", "v"]})
        pairs = pd.DataFrame({"f": ["a"], "l": ["b, c"], "g": ["a, b"], "m": ["c"]})
        data = READ({"p": (people, ["first", "last"])}, {"pair": (pairs, {("f", "l"): "p", ("g", "m"): "p"})})
        assert len(set(data["p"].keys)) == 2
        assert data["pair"].arguments.tolist() == [[1, 0]]
        assert data["pair"].type.arguments[0].name == "f, l"

    def test_entities_lead_to_others_and_to_their_own_type(self):
        staff = pd.DataFrame({"id": ["x", "y"], "boss": [None, "x"], "pay": [1, 2]})
        towns = pd.DataFrame({"town": ["U", "V"], "mayor": ["y", "x"], "big": [True, False]})
        data = READ({"town": (towns, "town", {"mayor": "staff"}), "staff": (staff, "id", {"boss": "staff"})})
        assert data["town"].arguments.tolist() == [[1], [0]]
        assert data["staff"].arguments.tolist() == [[-1], [0]]

    def test_links_with_keys_can_be_named(self):
        people = pd.DataFrame({"id": ["x", "y"], "u": [0, 1]})
        deals = pd.DataFrame({"deal": ["d", "e"], "a": ["x", "y"], "b": ["y", "y"]})
        marks = pd.DataFrame({"mark": [1, 2], "of": ["e", "d"], "good": [True, False]})
        links = {"deal": (deals, {"a": "p", "b": "p"}, "deal")}
        data = READ({"p": (people, "id"), "mark": (marks, "mark", {"of": "deal"})}, links)
        assert data["deal"].keys == ("d", "e")
        assert data["mark"].arguments.tolist() == [[1], [0]]
        with pytest.raises(DataError, match="'deal', which has no key; name its key column"):
            READ({"p": (people, "id"), "mark": (marks, "mark", {"of": "deal"})}, {"deal": (deals, {"a": "p", "b": "p"})})

    @pytest.mark.parametrize(
        ("people", "pairs", "match"),
        [
            ({"id": ["x", "x"]}, {}, "frame of 'p', row 2: the key 'x' stands in the frame of 'p', row 1, too"),
            ({"id": ["x", None]}, {}, "frame of 'p', row 2: the key 'id' is empty"),
            ({"idd": ["x", "y"]}, {}, "frame of 'p' has no column 'id'. Did you mean"),
            ({}, {"b": ["anna", "y"]}, "frame of 'l', row 1: column 'b' names the p 'anna', which is not there"),
            ({}, {"c": ["x", "y"], "b": None}, "frame of 'l' has no column 'b'"),
        ],
    )
    def test_bad_tables_are_told_with_table_row_and_column(self, people, pairs, match):
        people = pd.DataFrame({"u": [0, 1]} | ({"id": ["x", "y"]} | people if "idd" not in people else people))
        pairs = pd.DataFrame({k: v for k, v in ({"a": ["x", "y"], "b": ["y", "x"]} | pairs).items() if v is not None})
        with pytest.raises(DataError, match=match):
            READ({"p": (people, "id")}, {"l": (pairs, {"a": "p", "b": "p"})})

    def test_bad_arguments(self):
        frame = pd.DataFrame({"id": ["x", "y"], "u": [0, 1], "other": ["x", "y"]})
        with pytest.raises(ParameterError, match="'p' is given as DataFrame"):
            READ({"p": frame})
        with pytest.raises(ParameterError, match="the key column comes before"):
            READ({"p": (frame, {"other": "p"})})
        with pytest.raises(ParameterError, match="two entities or more"):
            READ({"p": (frame, "id")}, {"l": (frame, {"other": "p"})})
        with pytest.raises(DataError, match="leads to 'q', which is no type"):
            READ({"p": (frame, "id", {"other": "q"})})
        with pytest.raises(DataError, match="type of entities and of links"):
            READ({"p": (frame, "id")}, {"p": (frame, {"id": "p", "other": "p"})})
        with pytest.raises(ParameterError, match="numeric: no table has a column 'v'"):
            READ({"p": (frame, "id")}, numeric=["v"])
        with pytest.raises(ParameterError, match="cross_product: there is no link type 'm'"):
            READ({"p": (frame, "id")}, {"l": (frame, {"id": "p", "other": "p"})}, cross_product=["m"])
        with pytest.raises(DataError, match="1 column.* for the 2 of the key of 'p'"):
            READ({"p": (frame, ["id", "other"])}, {"l": (frame, {"id": "p", "other": "p"})})
        with pytest.raises(DataError, match="circle"):
            READ({"p": (frame, "id", {"other": "q"}), "q": (frame, "id", {"other": "p"})})
        twice = pd.DataFrame([["x", 1.0, 2.0]], columns=["id", "u", "u"])
        with pytest.raises(DataError, match="two columns called 'u'"):
            READ({"p": (twice, "id")})

    def test_rules_hold_for_all_tables_or_for_one(self):
        frame = pd.DataFrame({"id": [str(k) for k in range(12)], "n": range(0, 24, 2), "m": range(12)})
        data = READ({"p": (frame, "id"), "q": (frame, "id")}, categorical=["p.n"], numeric="m", bins=3, drop="q.m")
        assert data["p"].type.attributes.n_states.tolist() == [12, 3]
        assert data["q"].type.attributes.n_states.tolist() == [3]

    def test_columns_that_tell_nothing_are_left_out_with_the_reason(self):
        n = 100
        frame = pd.DataFrame({"id": range(n), "name": [f"n{k}" for k in range(n)], "none": None, "x": np.arange(n) % 2, "inf": np.inf})
        with pytest.warns(TableWarning, match=r"frame of 'p': left out.*'name' \(100 states.*'none' \(empty\), 'inf' \(holds 'inf'"):
            data = READ({"p": (frame, "id")})
        assert data["p"].type.attributes.names == ["x"]

    def test_very_many_different_texts_are_left_out_quickly(self):
        n = 300_000
        frame = pd.DataFrame({"id": range(n), "text": [f"text {k}" for k in range(n)], "x": np.arange(n) % 2})
        began = time.perf_counter()
        with pytest.warns(TableWarning, match="'text' .300,000 texts"):
            data = READ({"p": (frame, "id")})
        assert data["p"].type.attributes.names == ["x"]
        assert time.perf_counter() - began < 20  # about 1 second


class TestCrossProduct:
    people = pd.DataFrame({"id": ["x", "y", "z"], "u": [0, 1, 0]})
    shops = pd.DataFrame({"shop": ["s", "t"], "v": [0, 1]})

    def read(self, pairs, link=None, **options):
        links = link or {"a": "p", "b": "p"}
        return READ({"p": (self.people, "id"), "s": (self.shops, "shop")}, {"l": (pd.DataFrame(pairs), links)}, **options)

    def test_a_list_becomes_an_attribute(self):
        data = self.read({"a": ["x", "z"], "b": ["y", "x"]}, cross_product=True)
        assert data["l"].arguments.tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]
        assert data["l"].type.attributes.names == ["l"]
        assert data["l"].type.attributes[0].states == ("no", "yes")
        assert data["l"].cells.codes.ravel().tolist() == [1, 0, 0, 0, 1, 0]

    def test_self_pairs_are_there_if_listed_or_wanted(self):
        pairs = {"a": ["x", "z"], "b": ["x", "x"]}
        assert len(self.read(pairs, cross_product=True)["l"]) == 9
        assert len(self.read(pairs, cross_product="l", self_pairs=False)["l"]) == 6
        assert len(self.read({"a": ["z"], "b": ["x"]}, cross_product=["l"], self_pairs=True)["l"]) == 9
        assert self.read(pairs, self_pairs=False)["l"].arguments.tolist() == [[2, 0]]

    def test_what_is_not_listed_is_false_or_unknown(self):
        pairs = {"a": ["x", "y", "z"], "b": ["t", "s", "t"], "likes": ["yes", "yes", "yes"], "stars": [1, 3, 3], "was": [True, None, False]}
        data = self.read(pairs, {"a": "p", "b": "s"}, cross_product=True)
        assert [v.states for v in data["l"].type.attributes.variables] == [("no", "yes"), ("1", "3"), ("False", "True")]
        expected = {(0, 1): [1, 0, 1], (1, 0): [1, 1, -1], (2, 1): [1, 1, 0]}
        for pair, codes in zip(data["l"].arguments.tolist(), data["l"].cells.codes.tolist(), strict=True):
            assert codes == expected.get(tuple(pair), [0, -1, 0])

    def test_three_arguments(self):
        data = self.read({"a": ["x"], "b": ["y"], "c": ["t"]}, {"a": "p", "b": "p", "c": "s"}, cross_product=True)
        assert len(data["l"]) == 3 * 2 * 2
        assert data["l"].arguments[data["l"].cells.codes[:, 0] == 1].tolist() == [[0, 1, 1]]

    def test_errors(self):
        with pytest.raises(DataError, match="row 2: the same entities are named in the frame of 'l', row 1, too"):
            self.read({"a": ["x", "x"], "b": ["y", "y"]}, cross_product=True)
        with pytest.raises(DataError, match="row 2: an argument is empty"):
            self.read({"a": ["x", None], "b": ["y", "y"]}, cross_product=True)
        many = pd.DataFrame({"id": range(20_000), "x": np.arange(20_000) % 2})
        pair = pd.DataFrame({"a": [0], "b": [1]})
        with pytest.raises(DataError, match="all 400,000,000 tuples"):
            READ({"p": (many, "id")}, {"l": (pair, {"a": "p", "b": "p"})}, cross_product=True)
        with pytest.warns(TableWarning, match="empty"):
            none = self.read({"a": pd.Series([], dtype=str), "b": pd.Series([], dtype=str), "w": pd.Series([], dtype=str)})
        assert len(none["l"]) == 0


class TestDatabases:
    def test_sqlite_by_address_and_by_path(self, tmp_path):
        path = make_sqlite(tmp_path / "a %# ? b.db", SHOP)
        before = hashlib.sha256(path.read_bytes()).hexdigest()
        data = RelationalData.from_sql(path)
        check_shop(data)
        check_equal(data, RelationalData.from_sql(str(path)))
        plain = make_sqlite(tmp_path / "shop.sqlite3", SHOP)
        check_equal(data, RelationalData.from_sql(f"sqlite:///{plain}"))
        assert hashlib.sha256(path.read_bytes()).hexdigest() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a %# ? b.db", "shop.sqlite3"]

    def test_duckdb_by_address_and_by_path(self, tmp_path):
        path = make_duckdb(tmp_path / "shop.ddb", SHOP)
        before = hashlib.sha256(path.read_bytes()).hexdigest()
        data = RelationalData.from_sql(path)
        check_shop(data)
        check_equal(data, RelationalData.from_sql(f"duckdb:///{path}"))
        assert hashlib.sha256(path.read_bytes()).hexdigest() == before

    def test_postgresql(self, postgres):
        engine = sa.create_engine(postgres, poolclass=sa.pool.NullPool)
        with engine.begin() as connection:
            for statement in SHOP.split(";\n"):
                if statement.strip():
                    connection.exec_driver_sql(statement)
            connection.exec_driver_sql('CREATE SCHEMA "odd one"')
            connection.exec_driver_sql('CREATE TABLE "odd one"."100%% t" ("a%%b" integer PRIMARY KEY, "x:y" text, r uuid, j json, m money)')
            connection.exec_driver_sql("""INSERT INTO "odd one"."100%% t" VALUES (1, 'u', NULL, '{"a": 1}'), (2, 'v', NULL, NULL)""")
        data = RelationalData.from_sql(postgres)
        check_shop(data)
        check_equal(data, RelationalData.from_sql(postgres.replace("+psycopg", "").replace("+psycopg2", "")))
        with pytest.warns(TableWarning, match="empty"):
            other = RelationalData.from_sql(postgres, schema="odd one", drop="j")
        assert read_states(other, "100% t") == {"1": ["u"], "2": ["v"]}
        with pytest.raises(DataError, match="has no table or view 'custome'. Did you mean 'customer'"):
            RelationalData.from_sql(postgres, tables=["custome"])

    @pytest.mark.parametrize("make", [make_sqlite, make_duckdb])
    def test_frames_hold_the_same(self, tmp_path, make):
        rng = np.random.default_rng(0)
        people = pd.DataFrame({"id": np.arange(40), "h": rng.normal(size=40).round(3), "sex": rng.choice(["f", "m"], 40)})
        pairs = pd.DataFrame({"a": rng.integers(0, 40, 60), "b": rng.integers(0, 40, 60), "n": rng.integers(0, 3, 60)})
        pairs = pairs.sort_values(["a", "b"], kind="stable").drop_duplicates(["a", "b"])
        script = "CREATE TABLE p (id INTEGER PRIMARY KEY, h DOUBLE, sex TEXT);" + "".join(
            f"INSERT INTO p VALUES ({i}, {h}, '{sex}');" for i, h, sex in people.itertuples(index=False)
        )
        script += "CREATE TABLE q (a INTEGER REFERENCES p(id), b INTEGER REFERENCES p(id), n INTEGER);" + "".join(
            f"INSERT INTO q VALUES ({a}, {b}, {n});" for a, b, n in pairs.itertuples(index=False)
        )
        data = RelationalData.from_sql(make(tmp_path / "x.db", script))
        arguments = {a.name: a.target for a in data["q"].type.arguments}
        check_equal(data, READ({"p": (people, "id")}, {"q": (pairs, arguments)}))
        full = RelationalData.from_sql(tmp_path / "x.db", cross_product=True, self_pairs=True)
        assert len(full["q"]) == 1600

    def test_many_to_many_keys_and_links(self, tmp_path):
        script = """
        CREATE TABLE student (id INTEGER PRIMARY KEY, good BOOLEAN);
        CREATE TABLE course (code TEXT PRIMARY KEY, hard BOOLEAN);
        CREATE TABLE takes (student INTEGER REFERENCES student, course TEXT REFERENCES COURSE (CODE), PRIMARY KEY (student, course));
        CREATE TABLE sits (no INTEGER PRIMARY KEY, student INTEGER REFERENCES student, course TEXT REFERENCES course, mark INTEGER);
        CREATE TABLE note (id INTEGER PRIMARY KEY, sits INTEGER REFERENCES sits, long BOOLEAN, raw BLOB);
        INSERT INTO student VALUES (1, 0), (2, 1); INSERT INTO course VALUES ('m', 1), ('n', 0);
        INSERT INTO takes VALUES (1, 'm'), (2, 'n'); INSERT INTO sits VALUES (7, 2, 'n', 1), (8, 1, 'm', 2), (9, 1, 'm', 2);
        INSERT INTO note VALUES (1, 9, 1, x'00ff'), (2, 7, 0, NULL);
        """
        path = make_sqlite(tmp_path / "x.sqlite", script)
        with pytest.warns(TableWarning, match="table 'note': left out as attributes, as they hold bytes: raw"):
            data = RelationalData.from_sql(path)
        assert data["takes"].keys is None  # its arguments name it
        assert len(data["takes"].type.attributes) == 0
        assert data["sits"].keys == ("7", "8", "9")
        assert data["note"].arguments.ravel().tolist() == [2, 0]
        assert read_states(data, "student") == {"1": ["False"], "2": ["True"]}
        some = RelationalData.from_sql(path, tables=["student", "sits"])
        assert [a.name for a in some["sits"].type.arguments] == ["student"]
        assert some["sits"].type.attributes.names == ["mark"]
        with pytest.warns(TableWarning, match="bytes"):
            dropped = RelationalData.from_sql(path, drop=["sits.course", "takes.course", "mark"], keys={"takes": ["student", "course"]})
        assert [len(dropped[k].type.arguments) for k in ("sits", "takes")] == [1, 1]
        assert dropped["sits"].type.attributes.names == []

    def test_references_to_columns_that_are_no_key(self, tmp_path):
        script = """
        CREATE TABLE land (id INTEGER PRIMARY KEY, code TEXT UNIQUE, big BOOLEAN);
        CREATE TABLE town (id INTEGER PRIMARY KEY, land TEXT REFERENCES land (code), big BOOLEAN);
        INSERT INTO land VALUES (5, 'DE', 1), (6, NULL, 0), (7, 'FR', 0); INSERT INTO town VALUES (1, 'FR', 1), (2, 'DE', 0);
        """
        for make in (make_sqlite, make_duckdb):
            data = RelationalData.from_sql(make(tmp_path / make.__name__, script))
            assert data["town"].arguments.ravel().tolist() == [2, 0]
            assert data["land"].type.attributes.names == ["big"]
            assert data["land"].keys == ("5", "6", "7")

    def test_keys_are_exact(self, tmp_path):
        script = """
        CREATE TABLE k (k TEXT PRIMARY KEY, x INTEGER); CREATE TABLE l (a TEXT REFERENCES k, b TEXT REFERENCES k);
        INSERT INTO k VALUES ('a', 0), ('a ', 1), ('A', 0), ('NULL', 1), ('01', 1), ('1', 0);
        INSERT INTO l VALUES ('a ', 'A'), ('NULL', NULL), ('01', '1');
        """
        data = RelationalData.from_sql(make_sqlite(tmp_path / "x.db", script))
        names = [tuple(data["k"].keys[e] if e >= 0 else None for e in row) for row in data["l"].arguments.tolist()]
        assert sorted(names, key=str) == sorted([("a ", "A"), ("NULL", None), ("01", "1")], key=str)

    def test_cells_of_every_kind(self, tmp_path):
        script = """
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE TABLE t (
            id HUGEINT PRIMARY KEY, m mood, seen TIMESTAMP WITH TIME ZONE, d DECIMAL(9, 3), l INTEGER[], u UUID, i INTERVAL, f FLOAT
        );
        INSERT INTO t VALUES (1, 'sad', '2020-01-01 00:00:00+00', 1.5, [1], '00000000-0000-0000-0000-000000000001', INTERVAL 1 DAY, 'nan'),
        (170141183460469231731687303715884105727, 'ok', NULL, 2, [1, 2], '00000000-0000-0000-0000-000000000002', INTERVAL 2 DAY, 2.5);
        """
        data = RelationalData.from_sql(make_duckdb(tmp_path / "x.duckdb", script))
        assert data["t"].keys == ("1", "170141183460469231731687303715884105727")
        found = dict(zip(data["t"].type.attributes.names, read_states(data, "t")["1"], strict=True))
        assert (found["m"], found["l"], found["f"]) == ("sad", "[1]", None)

    def test_views_need_keys_or_references(self, tmp_path):
        script = (
            SHOP
            + """
        CREATE VIEW rich AS SELECT id, "group" FROM customer; CREATE VIEW met AS SELECT 1 AS a, 30 AS b, 'x' AS how;
        CREATE VIEW one AS SELECT 1 AS c, 'z' AS w;
        """
        )
        for make in (make_sqlite, make_duckdb):
            path = make(tmp_path / make.__name__, script)
            check_shop(RelationalData.from_sql(path))
            with pytest.raises(DataError, match="table 'rich' is a view, and views have no keys; name its key columns"):
                RelationalData.from_sql(path, tables=["customer", "rich"])
            data = RelationalData.from_sql(
                path, tables=["customer", "rich", "met"], keys={"rich": "id"}, references={"met": {"a": "customer", "b": "rich"}}
            )
            assert data["rich"].keys == ("1", "2", "30")
            assert data["met"].arguments.tolist() == [[0, 2]]
            with pytest.raises(DataError, match="references leads 'a' to 'custom', which is not among"):
                RelationalData.from_sql(path, tables=["met", "customer"], references={"met": {"a": "custom", "b": "customer"}})
            with pytest.raises(DataError, match="keys names 'rich', which is not among the tables read"):
                RelationalData.from_sql(path, keys={"rich": "id"})
            with pytest.raises(DataError, match="table 'one' has no column 'id'"):
                RelationalData.from_sql(path, tables="one", keys={"one": "id"})

    @pytest.mark.parametrize(
        ("script", "match"),
        [
            ("CREATE TABLE t (x INTEGER); INSERT INTO t VALUES (1)", "x.db, table 't' has no primary key and no foreign keys"),
            ("CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE TABLE u (a INTEGER REFERENCES t)", "'u' has no primary key and one foreign"),
            (
                "CREATE TABLE t (id INTEGER PRIMARY KEY, y INTEGER); CREATE TABLE u (k INTEGER PRIMARY KEY, a INTEGER REFERENCES t);"
                "INSERT INTO t VALUES (1, 0); INSERT INTO u VALUES (5, 1), (6, 99)",
                r"table 'u', row 2 \(key '6'\): column 'a' names the t '99', which is not there",
            ),
            (
                "CREATE TABLE t (id INTEGER PRIMARY KEY, y INTEGER); CREATE TABLE u (a INTEGER REFERENCES t, b INTEGER REFERENCES t);"
                "INSERT INTO t VALUES (1, 0); INSERT INTO u VALUES (1, 1), (1, 7)",
                "table 'u', row 2: column 'b' names the t '7', which is not there",
            ),
            (
                "CREATE TABLE t (id INTEGER PRIMARY KEY, u INTEGER REFERENCES u, z BOOLEAN); CREATE TABLE u (id INTEGER PRIMARY KEY,"
                "t INTEGER REFERENCES t)",
                "circle",
            ),
            ("CREATE TABLE t (id TEXT PRIMARY KEY, x INTEGER); INSERT INTO t VALUES ('a', 1), (NULL, 2)", "row 1: the key 'id' is empty"),
            (
                "CREATE TABLE t (x INTEGER, k TEXT PRIMARY KEY); CREATE TABLE u (id INTEGER PRIMARY KEY, t INTEGER REFERENCES t (gone))",
                "refers to column 'gone' of 't', which has none such",
            ),
            ("", "has no tables"),
        ],
    )  # fmt: skip
    @pytest.mark.filterwarnings("ignore::undirected.errors.TableWarning")
    def test_bad_databases_are_told_with_table_row_and_column(self, tmp_path, script, match):
        path = make_sqlite(tmp_path / "x.db", script + "; PRAGMA user_version = 1;")
        with pytest.raises(DataError, match=match):
            RelationalData.from_sql(path)

    def test_a_repeated_key_of_a_view(self, tmp_path):
        path = make_sqlite(tmp_path / "x.db", "CREATE VIEW v AS SELECT 1 AS k, 2 AS x UNION ALL SELECT 1, 3")
        with pytest.raises(DataError, match="table 'v', row 2: the key '1' stands in x.db, table 'v', row 1, too"):
            RelationalData.from_sql(path, tables="v", keys={"v": "k"})

    def test_addresses_that_cannot_be_read(self, tmp_path):
        with pytest.raises(DataError, match="there is no file"):
            RelationalData.from_sql(tmp_path / "none.db")
        with pytest.raises(DataError, match="there is no file"):
            RelationalData.from_sql(f"sqlite:///{tmp_path}/none.db")
        with pytest.raises(DataError, match="there is no file"):
            RelationalData.from_sql(f"duckdb:///{tmp_path}/none.db")
        assert not list(tmp_path.iterdir())  # neither was made
        (tmp_path / "text.db").write_text("what is this?")
        for address in (tmp_path / "text.db", f"sqlite:///{tmp_path}/text.db", f"duckdb:///{tmp_path}/text.db"):
            with pytest.raises(DataError, match="text.db.* (is not a database|cannot be read)"):
                RelationalData.from_sql(address)
        with pytest.raises(DataError, match="cannot be read") as told:
            RelationalData.from_sql("postgresql://me:secret@127.0.0.1:1/shop")
        assert "secret" not in str(told.value)
        with pytest.raises(DataError, match="cannot be read"):
            RelationalData.from_sql("nonsense://x")
        with pytest.raises(MissingExtra, match="pip install"):
            RelationalData.from_sql("mysql://me@127.0.0.1/shop")

    @pytest.mark.parametrize(("module", "address"), [("sqlalchemy", "sqlite:///x.db"), ("duckdb", "duckdb:///x.db")])
    def test_what_is_not_installed_is_named(self, monkeypatch, module, address):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtra, match=r'pip install "undirected\[sql\]"'):
            RelationalData.from_sql(address)

    def test_pieces_make_the_same_table(self, tmp_path, monkeypatch):
        whole = RelationalData.from_sql(make_sqlite(tmp_path / "x.db", SHOP))
        monkeypatch.setattr("undirected.relational.sql.PIECE_CELLS", 6)
        check_equal(whole, RelationalData.from_sql(tmp_path / "x.db"))
        small = RelationalData.from_sql(make_duckdb(tmp_path / "y.db", SHOP))
        check_shop(small)

    def test_invalid_text_and_dates_in_sqlite(self, tmp_path):
        script = """
        CREATE TABLE t (id INTEGER PRIMARY KEY, x TEXT, d DATE, b BOOLEAN);
        INSERT INTO t VALUES (1, CAST(x'ff41' AS TEXT), 'soon', 7), (2, 'ok', '2020-01-01', 1);
        """
        states = read_states(RelationalData.from_sql(make_sqlite(tmp_path / "x.db", script)), "t")
        assert states == {"1": ["\ufffdA", "soon", "7"], "2": ["ok", "2020-01-01", "1"]}

    def test_a_database_that_is_being_written_to(self, tmp_path):
        path = make_sqlite(tmp_path / "x.db", "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, x INTEGER);")
        writer = sqlite3.connect(path)
        writer.execute("INSERT INTO t VALUES (1, 0), (2, 1)")
        writer.commit()
        writer.execute("INSERT INTO t VALUES (3, 1)")
        assert RelationalData.from_sql(path)["t"].keys == ("1", "2")
        writer.commit()
        assert RelationalData.from_sql(path)["t"].keys == ("1", "2", "3")
        writer.close()

    def test_names_of_other_cases_match(self):
        assert databases.match_name("Dept", ["dept", "x"]) == "dept"
        assert databases.match_name("Dept", ["dept", "DEPT"]) == "Dept"
        assert databases.match_name("Dept", ["dept", "Dept"]) == "Dept"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A server of PostgreSQL of our own, reached by a socket in a folder; it is stopped by its process number."""
    driver = next((name for name in ("psycopg", "psycopg2") if __import__("importlib.util").util.find_spec(name)), None)
    if driver is None:
        pytest.skip("needs psycopg or psycopg2")
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    tools = homes[-1].parent if homes else Path(shutil.which("initdb") or "/none").parent
    if not (tools / "initdb").exists() or not (tools / "postgres").exists():
        pytest.skip("needs PostgreSQL's initdb and postgres")
    home = Path(tmp_path_factory.mktemp("postgres"))
    if len(str(home)) > 80:  # a socket's path may not be longer
        pytest.skip(f"the path {home} is too long for a socket")
    become = {}
    if os.geteuid() == 0:
        import pwd

        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        os.chown(home, user.pw_uid, user.pw_gid)
        for folder in (home.parent, home.parent.parent):
            folder.chmod(folder.stat().st_mode | 0o011)
        become = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    made = subprocess.run(
        [tools / "initdb", "-D", home / "data", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"],
        capture_output=True, text=True, cwd=home, check=False, **become,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"initdb failed: {made.stderr[-300:]}")
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [tools / "postgres", "-D", home / "data", "-k", home, "-c", "listen_addresses=", "-F"],
            stdout=log,
            stderr=log,
            cwd=home,
            **become,
        )
    address = f"postgresql+{driver}://tester@/postgres?host={home}"
    try:
        engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
        for _ in range(100):
            try:
                engine.connect().close()
                break
            except sa.exc.OperationalError:
                if server.poll() is not None:
                    break
                time.sleep(0.1)
        if server.poll() is not None:
            pytest.skip(f"postgres did not start: {(home / 'log').read_text()[-300:]}")
        yield address
    finally:
        server.send_signal(signal.SIGINT)  # it ends whoever is still connected
        server.wait(30)


MLN = """
// people and what they do
person = {Anna, "Bob \\"B\\" // x",
  Cyd}
age = {1, ..., 3}
Smokes(person)  // unary
Friends(person, person)
/* a comment
Gone(person) */
Age(person, age!)
Advisor(person, professor!)
Teaches(professor)
1.5 Smokes(x) => Cancer(x)
Smokes(x) ^ Friends(x, y) =>
Smokes(y)
!Smokes(x) v Friends(x, x).
Smokes(x)
"""
DB = """
Smokes(Anna) // yes
!Smokes(Cyd)
Friends(Anna, "Bob \\"B\\" // x")
?Friends(Cyd, Anna)
Age(Anna, 3)
Age(Dan, 2)
Advisor(Anna, Prof1)
Teaches(Prof2)
"""


class TestAlchemy:
    def read(self, folder, mln=MLN, db=DB, **options):
        (folder / "x.mln").write_text(mln)
        (folder / "x.db").write_text(db)
        return RelationalData.from_alchemy(folder / "x.mln", folder / "x.db", **options)

    def test_predicates_become_attributes(self, tmp_path):
        data = self.read(tmp_path)
        assert data.schema.names == ["person", "professor", "person_person", "person_professor"]
        assert data["person"].keys == ("Anna", 'Bob "B" // x', "Cyd", "Dan")
        assert data["person"].type.attributes.names == ["Smokes", "Age"]
        assert [v.states for v in data["person"].type.attributes.variables] == [("no", "yes"), ("1", "2", "3")]
        assert data["person"].cells.codes.tolist() == [[1, 2], [0, -1], [0, -1], [0, 1]]
        assert data["professor"].cells.codes.tolist() == [[0], [1]]
        pairs = data["person_person"]
        friends = {tuple(p): code for p, (code,) in zip(pairs.arguments.tolist(), pairs.cells.codes.tolist(), strict=True)}
        assert friends == {(a, b): {(0, 1): 1, (2, 0): -1}.get((a, b), 0) for a in range(4) for b in range(4) if a != b}
        advisor = data["person_professor"]
        assert advisor.cells.codes.ravel().tolist() == [1, 0, -1, -1, -1, -1, -1, -1]

    def test_open_world(self, tmp_path):
        data = self.read(tmp_path, MLN, closed_world=False)
        assert data["person"].cells.codes[:, 0].tolist() == [1, -1, 0, -1]
        assert data["person_person"].arguments.tolist() == [[0, 1], [2, 0]]
        assert data["person_person"].cells.codes.ravel().tolist() == [1, -1]
        every = self.read(tmp_path, MLN, cross_product=True, self_pairs=True)
        assert len(every["person_person"]) == 16

    def test_kinship_as_one_attribute(self, tmp_path):
        mln = "Kind(person, person, kind!)\n"
        db = "Kind(A, B, mother)\nKind(B, A, child)\nKind(A, A, self)\n"
        data = self.read(tmp_path, mln, db)
        assert data["person_person"].type.attributes[0].states == ("mother", "child", "self")
        assert data["person_person"].cells.codes.ravel().tolist() == [2, 0, 1, -1]

    def test_values_of_a_model_are_taken(self, tmp_path):
        mln = "Kind(person, person, kind!)\n"
        model = self.read(tmp_path, mln, "Kind(A, B, mother)\nKind(B, A, child)\nKind(A, A, self)\n").schema
        later = self.read(tmp_path, mln, "Kind(C, D, self)\nKind(D, C, child)\n", like=model, self_pairs=True)
        assert later.schema == model
        codes = dict(
            zip(map(tuple, later["person_person"].arguments.tolist()), later["person_person"].cells.codes.ravel().tolist(), strict=True)
        )
        assert codes == {(0, 0): -1, (0, 1): 2, (1, 0): 1, (1, 1): -1}
        with pytest.raises(DataError, match="the value 'mather' of kind is not known to the model. Did you mean 'mother'"):
            self.read(tmp_path, mln, "Kind(C, D, mather)\n", like=model)

    @pytest.mark.parametrize(
        ("mln", "db", "match"),
        [
            ("P(a)\n", "Q(X)\n", "x.db, line 1: the predicate 'Q' is not declared. Did"),
            ("P(a)\n", "\nP(X, Y)\n", "line 2: P has 2 arguments here and 1 in its declaration"),
            ("P(a)\n", "P X\n", "line 1: 'P X' is no ground atom"),
            ("P(a)\n", "P(X,)\n", "is no list of constants"),
            ("P(a)\n", "P(X)\n!P(X)\n", "line 1: this atom of P is told otherwise further on"),
            ("P(a, b!)\n", "P(X, U)\nP(X, V)\n", "line 1: this atom of P has another value, too"),
            ("P(a, b!)\nQ(b)\n", "P(X, U)\nP(X, V)\n", "this atom of P has another value, too"),
            ("P(a, b!)\nQ(a)", "Q(X)\n", "nothing tells which values the predicate 'P' may have"),
            ("P(a, b!, c!)\n", "", "one functional value at most"),
            ("P(a!)\n", "", "needs entities among its arguments"),
            ("P(a)\nP(a, b)\n", "", "line 2: the predicate 'P' is declared twice"),
            ("P(a)\n\nwhat\n", "", "line 3: 'what' is no predicate, type or formula"),
            ("P(a)\nperson Mother(person)\n", "", "line 2: functions are not read"),
            ('P(a)\n#include "y.mln"\n', "", "line 2: #include is not followed"),
            ("a = {A, B}\n", "", "declares no predicates"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_read_is_told_with_its_line(self, tmp_path, mln, db, match):
        with pytest.raises(DataError, match=match.replace(" Did", "")):
            self.read(tmp_path, mln, db)

    def test_missing_files(self, tmp_path):
        with pytest.raises(DataError, match="there is no file"):
            RelationalData.from_alchemy(tmp_path / "x.mln", tmp_path / "x.db")

    def test_lines_are_counted_over_comments_and_lists(self, tmp_path):
        with pytest.raises(FormatError, match="x.mln, line 6: 'what'"):
            self.read(tmp_path, "a = {A,\n B}\n/* one\n two */\nP(a)\nwhat\n", "")

    def test_false_values_alone_are_told(self, tmp_path):
        with pytest.warns(FormatWarning, match="false atoms of P"):
            data = self.read(tmp_path, "P(a, b!)\n", "!P(X, U)\nP(Y, V)\nP(Y, V)\n")
        assert data["a"].cells.codes.tolist() == [[-1], [1]]

    def test_round_trip(self, tmp_path):
        data = self.read(tmp_path)
        data.to_alchemy(tmp_path / "y.mln", tmp_path / "y.db")
        check_equal(data, RelationalData.from_alchemy(tmp_path / "y.mln", tmp_path / "y.db"))

    def test_round_trip_of_random_data(self, tmp_path):
        rng = np.random.default_rng(3)
        n = 9
        people = pd.DataFrame({"id": [f"Person {k}" for k in range(n)], "Rich": rng.choice(["no", "yes", None], n)})
        people["Hair"] = rng.choice(["a", "b", "?c"], n)
        shops = pd.DataFrame({"id": ["S1", "s 2"], "Big": ["yes", "no"]})
        grid = pd.DataFrame([(a, b) for a in people["id"] for b in people["id"] if a != b], columns=["a", "b"])
        grid["Likes"] = rng.choice(["no", "yes"], len(grid))
        grid["Kind"] = rng.choice(["x", "y", "Z, z"], len(grid))
        visits = pd.DataFrame({"p": ["Person 1", "Person 3"], "s": ["S1", "s 2"]})
        links = {"person_person": (grid, {"a": "person", "b": "person"}), "visits": (visits, {"p": "person", "s": "shop"})}
        data = READ({"person": (people, "id"), "shop": (shops, "id")}, links, cross_product=["visits"])
        data.to_alchemy(tmp_path / "y.mln", tmp_path / "y.db")
        back = RelationalData.from_alchemy(tmp_path / "y.mln", tmp_path / "y.db")
        for kind, other in (("person", "person"), ("shop", "shop"), ("person_person", "person_person"), ("visits", "person_shop")):
            assert back[other].type.attributes.names == data[kind].type.attributes.names
            assert read_states(back, other) == read_states(data, kind)

    def test_names_that_alchemy_cannot_read(self, tmp_path):
        frame = pd.DataFrame({"id": ["x", "y"], "100 % sure": ["yes", "no"], "P100___sure": ["no", "no"], "boss": ["y", None]})
        data = READ({"Old person": (frame, "id", {"boss": "Old person"})})
        with pytest.warns(FormatWarning, match="'Old person' as old_person, '100 % sure' as P100___sure, 'P100___sure' as P100___sure_Old"):
            data.to_alchemy(tmp_path / "y.mln", tmp_path / "y.db")
        back = RelationalData.from_alchemy(tmp_path / "y.mln", tmp_path / "y.db")
        assert back["old_person"].cells.codes.tolist() == [[1, 0], [0, 0]]
        assert back["old_person_old_person"].type.attributes.names == ["boss"]

    def test_what_alchemy_has_no_form_for(self, tmp_path):
        people = pd.DataFrame({"id": ["x", "y"], "u": [0, 1]})
        links = {"a": "p", "b": "p"}
        paths = tmp_path / "y.mln", tmp_path / "y.db"
        with pytest.raises(DataError, match="row 2: an argument is unknown"):
            READ({"p": (people, "id")}, {"l": (pd.DataFrame({"a": ["x", None], "b": ["y", "y"]}), links)}).to_alchemy(*paths)
        with pytest.raises(DataError, match="row 2: the same entities"):
            READ({"p": (people, "id")}, {"l": (pd.DataFrame({"a": ["x", "x"], "b": ["y", "y"]}), links)}).to_alchemy(*paths)
        named = pd.DataFrame({"k": ["l", "m"], "a": ["x", "x"], "b": ["y", "x"]})
        marks = pd.DataFrame({"id": ["m"], "of": ["l"], "v": [1]})
        with pytest.raises(DataError, match="'l' are links that others name"):
            READ({"p": (people, "id"), "m": (marks, "id", {"of": "l"})}, {"l": (named, links, "k")}).to_alchemy(*paths)
        assert not paths[0].exists()
