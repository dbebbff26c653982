"""Tables as people have them: indexes, truth values, declared categories, identifiers, odd encodings, and hostile files."""

from __future__ import annotations

import gzip
import io
import os
import warnings
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from tables import states, write
from undirected import ChowLiu, DataError, Dataset, FormatError, ParameterError, read_data
from undirected.data import arrays, files
from undirected.errors import TableWarning


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"smoker": rng.choice(["no", "yes"], 40), "cough": rng.choice(["no", "yes"], 40)})


class TestIndexColumns:
    def test_an_index_that_pandas_wrote_is_left_out_and_said(self, tmp_path, frame):
        frame.to_csv(tmp_path / "t.csv")
        with pytest.warns(TableWarning, match="index and is left out"):
            data = read_data(tmp_path / "t.csv")
        assert data.domain.names == ["smoker", "cough"]
        assert len(data) == 40
        np.testing.assert_array_equal(data.codes, read_data(frame).codes)

    def test_with_numbered_columns_repeated_numbers_and_texts(self, tmp_path, frame):
        twice = pd.concat([frame, frame]).set_axis([0, 1], axis=1)
        twice.to_csv(tmp_path / "t.csv")
        with pytest.warns(TableWarning, match="index"):
            assert read_data(tmp_path / "t.csv", header=True).domain.names == ["0", "1"]
        frame.set_axis([0, 1], axis=1).to_csv(tmp_path / "n.csv")
        with pytest.warns(TableWarning, match="index"):
            assert read_data(tmp_path / "n.csv").domain.names == ["0", "1"]
        frame.set_axis([f"person {k}" for k in range(40)]).to_csv(tmp_path / "p.csv")
        with pytest.warns(TableWarning, match="index"):
            assert read_data(tmp_path / "p.csv").domain.names == ["smoker", "cough"]

    def test_row_names_that_r_writes_without_a_header_cell(self, tmp_path):
        rows = "\n".join(f'"{k}" "yes" "no"' if k % 2 else f'"{k}" "no" "no"' for k in range(1, 31))
        with pytest.warns(TableWarning, match="index"):
            data = read_data(write(tmp_path, "t.txt", '"smoker" "cough"\n' + rows + "\n"))
        assert data.domain.names == ["smoker", "cough"]
        assert len(data) == 30

    def test_a_column_that_counts_rows_is_left_out_unless_it_is_wanted(self, tmp_path):
        rows = "\n".join(f"{k},{'ab'[k % 2]},{'xy'[k % 3 == 0]}" for k in range(1, 31))
        path = write(tmp_path, "t.csv", "id,letter,mark\n" + rows + "\n")
        with pytest.warns(TableWarning, match="counts the rows"):
            data = read_data(path)
        assert data.domain.names == ["letter", "mark"]
        with pytest.warns(TableWarning, match="identifier"):
            assert read_data(path, numeric=["id"]).domain.names == ["id", "letter", "mark"]
        test = write(tmp_path, "u.csv", rows.split("\n")[0] + "\n" + rows.split("\n")[1] + "\n")
        bare = write(tmp_path, "bare.csv", rows + "\n")
        with pytest.warns(TableWarning, match="counts the rows"):
            train = read_data(bare)
        np.testing.assert_array_equal(read_data(test, domain=train.domain).codes, train.codes[:2])

    def test_a_nameless_column_of_answers_is_kept(self, tmp_path):
        rng = np.random.default_rng(0)
        text = ",b\n" + "\n".join(f"{a},{b}" for a, b in rng.integers(0, 2, (100, 2))) + "\n"
        with pytest.warns(TableWarning, match="called 'v0'"):
            assert read_data(write(tmp_path, "t.csv", text), header=True).domain.names == ["v0", "b"]

    def test_an_index_that_is_wanted_stays(self, tmp_path, frame):
        frame.to_csv(tmp_path / "t.csv")
        with pytest.warns(TableWarning, match="called 'v0'"):
            assert read_data(tmp_path / "t.csv", categorical=["v0"]).domain.names[0] == "v0"

    def test_an_empty_name_does_not_end_the_run(self, tmp_path):
        path = write(tmp_path, "t.csv", "a,,c\n" + "x,yes,1\ny,no,0\nx,no,1\n" * 3)
        with pytest.warns(TableWarning, match="called 'v1'"):
            assert read_data(path, header=True).domain.names == ["a", "v1", "c"]

    def test_a_trailing_delimiter_is_not_a_column(self, tmp_path):
        with pytest.warns(TableWarning, match="neither a name nor a cell"):
            data = read_data(write(tmp_path, "t.csv", "a,b,\n" + "x,yes,\ny,no,\n" * 3))
        assert data.domain.names == ["a", "b"]
        bare = write(tmp_path, "u.csv", "x,yes,\ny,no,\nx,no,\n" * 3)
        with pytest.raises(DataError, match="--drop 'v2'"):
            read_data(bare, header=False)
        kept = read_data(bare, header=False, drop=["v2"])
        assert kept.domain.names == ["v0", "v1"]


class TestTruthValues:
    def test_files_frames_and_arrays_agree(self, tmp_path):
        frame = pd.DataFrame({"flag": [True, False, True], "kind": ["a", "b", "b"]})
        frame.to_csv(tmp_path / "t.csv", index=False)
        from_file, from_frame = read_data(tmp_path / "t.csv"), read_data(frame)
        from_polars = read_data(pl.DataFrame({"flag": [True, False, True], "kind": ["a", "b", "b"]}))
        assert from_file.domain == from_frame.domain == from_polars.domain
        assert states(from_frame, "flag") == ("False", "True")
        np.testing.assert_array_equal(from_file.codes, from_frame.codes)
        np.testing.assert_array_equal(read_data(frame.assign(flag=[1, 0, 1]), domain=from_frame.domain).codes, from_frame.codes)
        r_style = write(tmp_path, "r.csv", "flag,kind\nTRUE,a\nFALSE,b\nTRUE,b\n")
        assert read_data(r_style).domain == from_frame.domain

    def test_queries_take_them_in_every_form(self):
        frame = pd.DataFrame({"flag": [True, False, True, False] * 5, "other": [1, 0, 1, 1] * 5})
        network = ChowLiu().fit(frame).network_
        expected = network.query({"flag": True})["other"]
        for value in ("True", "true", 1, "1", np.True_):
            assert network.query({"flag": value})["other"] == expected
        assert network.query(["flag=True"])["other"] == expected
        assert network.query({"other": True})["flag"] == network.query({"other": 1})["flag"]
        assert network.conditional("other", {"flag": True}) == network.conditional("other", {"flag": 1})

    def test_zeros_and_ones_among_them(self):
        assert states(read_data(pd.DataFrame({"a": ["0", "True", "False", "1"]})), "a") == ("False", "True")
        wider = read_data(pd.DataFrame({"a": [0, 1], "b": [0, 1]}), domain_from=pd.DataFrame({"a": [True, False], "b": [1, 0]}))
        assert states(wider, "a") == ("False", "True")

    def test_a_column_of_only_trues_has_both_states(self):
        assert states(read_data(pd.DataFrame({"a": [True, True], "b": [0, 1]})), "a") == ("False", "True")


class TestDeclaredCategories:
    def test_pandas_keeps_order_and_unused_categories(self):
        kind = pd.CategoricalDtype(["lo", "mid", "hi", "never"], ordered=True)
        data = read_data(pd.DataFrame({"level": pd.Series(["hi", "lo", None, "mid"], dtype=kind), "x": list("aabb")}))
        variable = data.domain[0]
        assert variable.states == ("lo", "mid", "hi", "never")
        assert variable.ordered
        assert variable.has_order
        np.testing.assert_array_equal(data.codes[:, 0], [2, 0, -1, 1])
        loose = read_data(pd.DataFrame({"level": pd.Categorical(["b", "a"], categories=["b", "a", "c"])}))
        assert loose.domain[0].states == ("b", "a", "c")
        assert not loose.domain[0].has_order

    def test_polars_enum_and_parquet_dictionaries(self, tmp_path):
        series = pl.Series("level", ["hi", "lo", None], dtype=pl.Enum(["lo", "mid", "hi"]))
        data = read_data(pl.DataFrame([series]))
        assert data.domain[0].states == ("lo", "mid", "hi")
        np.testing.assert_array_equal(data.codes[:, 0], [2, 0, -1])
        kind = pd.CategoricalDtype(["lo", "mid", "hi"], ordered=True)
        pd.DataFrame({"level": pd.Series(["hi", "lo", "mid"], dtype=kind)}).to_parquet(tmp_path / "t.parquet")
        stored = read_data(tmp_path / "t.parquet")
        assert stored.domain[0].states == ("lo", "mid", "hi")
        assert stored.domain[0].ordered

    def test_learners_keep_them_and_networks_save_them(self, tmp_path):
        kind = pd.CategoricalDtype(["lo", "mid", "hi"], ordered=True)
        frame = pd.DataFrame({"a": pd.Series(["hi", "lo"] * 6, dtype=kind), "b": list("xyxyyx") * 2})
        network = ChowLiu().fit(frame).network_
        assert network.domain[0].states == ("lo", "mid", "hi")
        network.save(tmp_path / "net.json")
        assert type(network).load(tmp_path / "net.json").domain[0].ordered


class TestColumnsThatLookOutOfPlace:
    def test_identifiers_dates_and_free_text_are_named(self, tmp_path):
        n = 60
        frame = pd.DataFrame(
            {
                "who": [f"person{k * 7919 % 1000}" for k in range(n)],
                "when": [f"2024-{1 + k // 28:02d}-{1 + k % 28:02d}" for k in range(n)],
                "answer": ["yes", "no"] * (n // 2),
                "id": np.random.default_rng(0).permutation(n) + 5000,
            }
        )
        with pytest.warns(TableWarning, match="--drop who --drop when --drop id") as caught:
            read_data(frame)
        assert "60 dates" in str(caught[0].message)
        assert "answer" not in str(caught[0].message)
        clean = read_data(frame, drop=["who", "when", "id"])
        assert clean.domain.names == ["answer"]
        assert read_data(frame, columns=["answer"]).domain == clean.domain
        coded = Dataset(clean.domain, clean.codes)
        assert read_data(coded, columns=["answer"]).domain == clean.domain

    def test_unknown_columns_are_errors_with_suggestions(self, frame):
        with pytest.raises(ParameterError, match="Did you mean 'smoker'"):
            read_data(frame, drop=["smokr"])
        with pytest.raises(ParameterError, match="no column is left"):
            read_data(frame, drop=["smoker", "cough"])


class TestWaysOfWriting:
    def test_decimal_commas(self, tmp_path):
        rows = [(k + 0.5, k % 2) for k in range(40)]
        comma = write(tmp_path, "t.csv", "x;y\n" + "\n".join(f"{x:g};{y}".replace(".", ",") for x, y in rows) + "\n")
        point = write(tmp_path, "u.csv", "x;y\n" + "\n".join(f"{x:g};{y}" for x, y in rows) + "\n")
        assert read_data(comma).domain == read_data(point).domain
        bare = write(tmp_path, "b.csv", "\n".join(f"{x:g};{x + 1:g}".replace(".", ",") for x, _ in rows) + "\n")
        assert len(read_data(bare).domain) == 2
        quoted = write(tmp_path, "q.csv", "x,y\n" + "\n".join(f'"{1000 + x:.1f}",{y}'.replace(".", ",") for x, y in rows) + "\n")
        assert read_data(quoted, decimal=",").domain[0].edges == (1010, 1020, 1030)

    def test_encodings(self, tmp_path):
        path = write(tmp_path, "t.csv", "größe,b\nklein,1\ngroß,0\n".encode("latin-1"))
        with pytest.raises(FormatError, match="--encoding latin-1"):
            read_data(path)
        assert read_data(path, encoding="latin-1").domain.names == ["größe", "b"]
        assert read_data(write(tmp_path, "u.csv", "größe,b\nklein,1\ngroß,0\n".encode("utf-16"))).domain.names == ["größe", "b"]
        with pytest.raises(ParameterError, match="not known"):
            read_data(path, encoding="klingon")

    def test_texts_for_missing_cells(self, tmp_path):
        path = write(tmp_path, "t.csv", "a,b\n1,x\n99,.\n2,y\n")
        data = read_data(path, na=["99", "."])
        np.testing.assert_array_equal(data.codes, [[0, 0], [-1, -1], [1, 1]])
        numbers = pd.DataFrame({"a": [1.0, 99.0, 2.0]})
        np.testing.assert_array_equal(read_data(numbers, na=["99"]).codes[:, 0], [0, -1, 1])

    def test_baskets_of_words(self, tmp_path):
        path = write(tmp_path, "t.txt", 'whole milk,"cheese, sliced"\nrolls\n\nwhole milk,rolls\n')
        with pytest.raises(FormatError, match="--format basket"):
            read_data(path)
        data = read_data(path, format="basket")
        assert data.domain.names == ["cheese, sliced", "rolls", "whole milk"]
        np.testing.assert_array_equal(data.codes, [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 1, 1]])

    def test_missing_is_no_state_where_training_data_had_none(self):
        train = read_data(pd.DataFrame({"a": ["x", "y", "x"], "b": [0, 1, 1]}), missing="state")
        with pytest.raises(DataError, match="column 'a': a missing cell where the training data had none"):
            read_data(pd.DataFrame({"a": ["x", None], "b": [0, 1]}), domain=train.domain, missing="state")

    def test_states_unknown_at_scoring_time(self, tmp_path):
        train = read_data(pd.DataFrame({"a": ["x", "y", "x"], "b": [0, 1, 1]}))
        test = pd.DataFrame({"a": ["x", "z"], "b": [0, 1]})
        with pytest.raises(DataError, match="--unknown missing"):
            read_data(test, domain=train.domain)
        with pytest.warns(TableWarning, match="1 cells hold states"):
            coded = read_data(test, domain=train.domain, unknown="missing")
        np.testing.assert_array_equal(coded.codes, [[0, 0], [-1, 1]])


def _npz(path, **arrays):
    np.savez(path, **arrays)
    return path


class TestHostileFiles:
    def test_sparse_matrices_with_indices_out_of_range_are_refused(self, tmp_path):
        good = sp.random(20, 8, 0.3, format="csr", random_state=0)
        for kind in ("csr", "csc", "coo", "bsr", "dia"):
            sp.save_npz(tmp_path / "good.npz", good.asformat(kind))
            np.testing.assert_array_equal(read_data(tmp_path / "good.npz").codes, read_data(good).codes)
        parts = {"format": np.array("csr"), "shape": np.array([20, 8]), "data": good.data, "indices": good.indices, "indptr": good.indptr}
        bad_indices, bad_indptr = good.indices.copy(), good.indptr.copy()
        bad_indices[3], bad_indptr[4] = 1 << 30, 10**6
        for change in ({"indices": bad_indices}, {"indptr": bad_indptr}, {"shape": np.array([20, 2])}, {"shape": np.array([-1, 8])}):
            with pytest.raises(FormatError, match="do not make a table"):
                read_data(_npz(tmp_path / "bad.npz", **parts | change))
        broken = good.copy()
        broken.indices[3] = 1 << 30
        with pytest.raises(DataError, match="broken"):
            read_data(broken)

    @pytest.mark.parametrize("header", ["{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}", "{'descr' ((", ""])
    def test_arrays_whose_header_lies(self, tmp_path, header):
        text = (header + " " * 200)[:117] + "\n"
        member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"\0" * 16
        with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
            archive.writestr("X.npy", member)
        with pytest.raises(FormatError, match="not an .npz file"):
            read_data(tmp_path / "t.npz")

    def test_packed_files_are_not_unpacked_beyond_the_budget(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "ALWAYS_UNPACKED", 1 << 16)
        monkeypatch.setattr(files, "MAX_RATIO", 10)
        write(tmp_path, "t.csv.gz", gzip.compress(b"0,1\n" * 10**6))
        with pytest.raises(FormatError, match="unpack to more than"):
            read_data(tmp_path / "t.csv.gz")
        np.savez_compressed(tmp_path / "t.npz", X=np.zeros((1000, 1000)))
        with pytest.raises(FormatError, match="unpack to"):
            read_data(tmp_path / "t.npz")

    def test_wide_baskets_are_refused_before_they_are_built(self, tmp_path, monkeypatch):
        monkeypatch.setattr(arrays, "MIN_CELL_BUDGET", 10**5)
        monkeypatch.setattr(arrays, "CELLS_PER_ENTRY", 100)
        text = " ".join(f"item{k}" for k in range(2000)) + "\n" + "item1\n" * 2000
        with pytest.raises(DataError, match="leave out rare columns"):
            read_data(write(tmp_path, "t.basket", text))
        with pytest.raises(DataError, match="leave out rare columns"):
            read_data(sp.coo_matrix(([1], ([0], [0])), shape=(2000, 2000)))

    def test_declared_states_are_held_against_a_budget(self, tmp_path):
        with pytest.raises(DataError, match="states in all"):
            read_data(write(tmp_path, "t.data", ",".join(["29999"] * 20_000) + "\n"))

    def test_one_name_twice_among_very_many_is_found(self, tmp_path):
        names = [f"c{k}" for k in range(40_000)]
        names[-1] = "c7"
        with pytest.raises(DataError, match="two columns are called 'c7'"):
            read_data(write(tmp_path, "t.csv", ",".join(names) + "\n" + ",".join(["x"] * 40_000) + "\n"), header=True)
        with pytest.raises(ParameterError, match="no column"):
            read_data(tmp_path / "t.csv", header=True, drop=["c40001"])

    def test_broken_parquet_is_a_format_error(self, tmp_path):
        buffer = io.BytesIO()
        pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_parquet(buffer)
        content = buffer.getvalue()
        rng = np.random.default_rng(0)
        for _ in range(200):
            cut = bytearray(content)
            cut[rng.integers(4, len(cut))] ^= 1 << rng.integers(8)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    read_data(write(tmp_path, "t.parquet", bytes(cut)))
                except DataError:
                    continue
        with pytest.raises(FormatError):
            read_data(write(tmp_path, "t.parquet", content[:-20]))

    def test_pipes_devices_and_names_that_cannot_be_shown(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.csv")
        with pytest.raises(DataError, match="pipe or a device"):
            read_data(tmp_path / "pipe.csv")
        with pytest.raises(DataError, match="U[+]001B"):
            read_data(write(tmp_path, "t.csv", "a\x1b[31m,b\n1,2\n2,1\n"))
        with pytest.raises(DataError, match="U[+]0000"):
            read_data(pd.DataFrame({"a": ["x\0", "y"]}))
