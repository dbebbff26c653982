"""Tables in chunks: the chunks of a source are the table, whatever the format, the options and the size of the chunks."""

from __future__ import annotations

import gzip
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tables import write
from undirected import DataError, Dataset, FormatError, ParameterError, TableWarning, UndirectedError, open_source, read_data
from undirected.data import counted

RNG = np.random.default_rng(7)


def check_same(source, whole):
    """Every pass gives the rows of the whole table, and a pass that begins at the end of a chunk gives the rest."""
    assert source.domain == whole.domain
    assert source.domain.named == whole.domain.named
    for _ in range(2):
        merged = Dataset.merge(source)
        np.testing.assert_array_equal(merged.codes, whole.codes)
        np.testing.assert_array_equal(merged.weights, whole.weights)
        assert merged.source == whole.source
        if whole.lines is None:
            assert merged.lines is None
        else:
            np.testing.assert_array_equal(merged.lines, whole.lines)
    parts = list(source.chunks())
    assert all(part.stop - part.start <= source.chunk_rows for part in parts)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    for k, part in enumerate(parts):
        rest = [again.data.codes for again in source.chunks(part.stop)]
        expected = [later.data.codes for later in parts[k + 1 :]]
        np.testing.assert_array_equal(
            np.concatenate([np.zeros((0, len(whole.domain))), *rest]), np.concatenate([whole.codes[:0], *expected])
        )


def check_law(table, sizes=(1, 2, 3, 7, 1000), **options):
    """What is read whole is read the same by chunks; what is refused whole is refused in the same words."""
    seen = []
    for size in (None, *sizes):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = read_data(table, **options) if size is None else open_source(table, size, **options)
                result = None if size is None else Dataset.merge(found)
            except UndirectedError as error:
                found, result = str(error), None
        seen.append((found, result, sorted(str(w.message) for w in caught)))
    whole = seen[0][0]
    for found, _, told in seen[1:]:
        assert told == seen[0][2]
        if isinstance(whole, str):
            assert found == whole
        else:
            assert not isinstance(found, str), found
            check_same(found, whole)
    return whole


TEXTS = {
    "plain.csv": "colour,age,class\n" + "".join(f"{'red' if k % 3 else 'blue'},{20 + k},{k % 2}\n" for k in range(30)),
    "no_names.csv": "a,1\nb,0\na,1\nb,0\n",
    "digits.csv": "".join(f"{k % 2},{k % 3},{k % 7}\n" for k in range(20)),
    "digits_crlf.csv": "0,1\r\n1,0\r\n1,1\r\n0,0",
    "nearly_digits.csv": "0,1\n1,0\n1,11\n0,0\n",
    "commas.tsv": "0,1\n1,0\n1,1\n",
    "nearly_commas.tsv": "0,1\n1,0\n1,11\n",
    "blanks.txt": "0 1\n1 0\n\n\n1 1\n",
    "late_text.csv": "a,b\n" + "1.0,x\n2.0,y\n" * 6 + "odd,x\n",
    "truth.csv": "a,b\nTRUE,1\nfalse,0\n" + "True,1\n" * 5 + "1,0\n",
    "whole.csv": "a,b\n1.0,x\n2.0,y\n1,x\n",
    "commas.csv": "a;b\n1,5;x\n" + "2,25;y\n3.000;x\n" * 6,
    "missing.csv": "a,b,c\nx,?,1\ny,1,0\nNA,0,1\nx,1,\nx,1,0\n",
    "codes.csv": "a,b\n99,x\n1,y\n99.0,x\n2,.\n",
    "index.csv": ",a,b\n" + "".join(f"{k},{'xy'[k % 2]},{k % 3}\n" for k in range(15)),
    "counted.csv": "".join(f"{k},{'xy'[k % 2]},{k % 3}\n" for k in range(15)),
    "counted_id.csv": "id,a\n" + "".join(f"{k + 1},{'xy'[k % 2]}\n" for k in range(15)),
    "r_style.csv": "a,b\n" + "".join(f"row{k},x,{k % 2}\n" for k in range(6)),
    "trailing.csv": "a,b,\n" + "x,yes,\ny,no,\n" * 3,
    "quoted.csv": 'name,kind\n"a, b",x\n"c ""d""\nof two lines",y\nplain,x\n',
    "mac.csv": "a,b\rx,1\ry,0\rx,1\r",
    "mixed_ends.csv": "a,b\r\nx,1\ny,0\r\nx,1",
    "numbers.csv": "x,y\n" + "".join(f"{v:.3f},{v * 2:.1f}\n" for v in RNG.normal(size=40)),
    "constant.csv": "a,b\n" + "0,5\n" * 4,
    "blank_lines.csv": "\n\na,b\n\nx,1\n\n\ny,0\n\n",
    "identifier.csv": "who,a\n" + "".join(f"p{k}q,{k % 2}\n" for k in range(40)),
    "things.basket": "bread,milk\n\nmilk\nbeer, bread\n\n\n",
    "words.basket": "3 1\n2\n\n1\n",
    "late_comma.basket": "a b;c\nd\ne,f;g\n",
    "quoted.basket": 'a,"b, c"\nd\n',
    "plain.data": "1,0\n2,1\n1,1\n0,0\n",
    "wide.data": "1,0\n12,1\n1,1\n0,0\n",
    "weights.data": "0.5|0,2,*\n1, 0, 1\n\n0.25|1,1,1\n",
    "form_feed.data": "1,0\x0c0,1\n1,1\n",
}  # fmt: skip
OPTIONS = {
    "missing.csv": [{"missing": "drop"}, {"missing": "mode"}, {"missing": "state"}, {"drop": ["c"]}, {"columns": ["c", "a"]}],
    "codes.csv": [{"na": ["99"]}, {"na": ["99", "."], "missing": "state"}],
    "plain.csv": [{"numeric": ["class"]}, {"categorical": ["age"]}, {"bins": 2}, {"drop": ["age"]}, {"columns": ["class", "colour"]},
                  {"columns": ["nothing"]}, {"drop": ["colr"]}, {"header": False}, {"bins": 3, "drop": "colour"}],
    "commas.csv": [{"decimal": "."}, {"decimal": ","}],
    "weights.data": [{"missing": "mode"}, {"missing": "state"}, {"missing": "drop"}],
    "counted.csv": [{"categorical": ["v0"]}, {"drop": ["v1"]}],
    "counted_id.csv": [{"drop": ["id"]}, {"columns": ["a"]}, {"numeric": ["id"]}],
    "index.csv": [{"categorical": ["v0"]}, {"drop": ["v0"]}, {"columns": ["b"]}],
    "no_names.csv": [{"header": True}, {"header": False}, {"drop": ["v0"]}],
    "digits.csv": [{"header": True}, {"header": False}, {"numeric": ["v2"], "bins": 3}, {"encoding": "latin-1"}],
}  # fmt: skip


@pytest.mark.parametrize(("name", "options"), [(name, more) for name in TEXTS for more in ({}, *OPTIONS.get(name, ()))])
def test_the_chunks_of_a_file_of_text_are_the_table(tmp_path, name, options):
    check_law(write(tmp_path, name, TEXTS[name]), **options)


@pytest.mark.parametrize("name", ["plain.csv", "digits.csv", "digits_crlf.csv", "things.basket", "weights.data", "plain.data"])
def test_packed_files_come_in_chunks_too(tmp_path, name):
    check_law(write(tmp_path, f"{name}.gz", gzip.compress(TEXTS[name].encode())))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1", "utf-16-le"])
def test_encodings_are_the_same_in_chunks(tmp_path, encoding):
    path = write(tmp_path, "t.csv", "größe,b\nklein,1\ngroß,0\n".encode(encoding))
    whole = check_law(path, encoding=None if encoding in ("utf-16", "utf-8-sig") else encoding.removesuffix("-le"))
    assert whole.domain.names == ["größe", "b"]


BROKEN = {
    "ragged.csv": b"a,b\n1,x\n2,y\n3\n4,x\n",
    "ragged_r.csv": b"a,b\nr,1,x\nr,2,y\nr,3\n",
    "open_quote.csv": b'a,b\n1,x\n3,"y\n5,z\n7,x\n',
    "not_text.csv": b"a,b\n1,x\n3,\xff\n5,z\n",
    "not_text_with_mark.csv": b"\xef\xbb\xbfa,b\n1,x\n3,\xff\n5,z\n",
    "ragged_before_no_text.csv": b"a,b\n1,x\n3\n5,\xff\n",
    "half_character.csv": b"a,b\n1,x\n3,\xc3",
    "half_of_two_bytes.data": b"\xff\xfe0,12\n3,7\n",
    "only_names.csv": b"a,b\n",
    "empty.csv": b" \n\n",
    "only_missing.csv": b"a,b\n?,1\n,0\n",
    "infinite.csv": b"a\n0.5\n1.5\ninf\n",
    "twice.csv": b"a,a\nx,1\ny,0\n",
    "no_items.basket": b",\n,\n",
    "bad_cell.data": b"0,1\n0,x\n",
    "bad_width.data": b"0,1,1\n0,1\n",
    "bad_weight.data": b"0,1\nz|0,1\n",
    "large.data": b"0,1\n0,99999\n",
    "not_gzip.csv.gz": gzip.compress(b"a,b\nx,1\n")[:-6],
    "text.npz": b"a,b\nx,1\n",
    "text.parquet": b"a,b\nx,1\n",
    "long_field.csv": b"a,b\nx," + b"y" * 200_000 + b"\n",
    "control.csv": b"a,b\nx\x1b[31m,1\ny,0\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_damaged_files_are_refused_in_the_same_words(tmp_path, name):
    assert isinstance(check_law(write(tmp_path, name, BROKEN[name]), header=True if name == "only_names.csv" else None), str)


def test_damage_far_from_the_start_is_found_at_its_line(tmp_path):
    lines = [b"0,1"] * 700_000
    for damaged, told in ((b"0,\xff", "line 600001: not UTF-8 text (byte 2400002)"), (b"0,1,1", "line 600001: 3 cells")):
        path = write(tmp_path, "t.csv", b"\n".join([*lines[:600_000], damaged, *lines[600_001:]]))
        with pytest.raises(FormatError) as whole:
            read_data(path)
        with pytest.raises(FormatError) as chunked:
            open_source(path, 50_000)
        assert str(whole.value) == str(chunked.value)
        assert told in str(whole.value)


class TestMemory:
    frame = pd.DataFrame(
        {
            "level": pd.Categorical(["hi", "lo", None, "mid"] * 3, categories=["lo", "mid", "hi", "never"], ordered=True),
            "flag": [True, False, True, True] * 3,
            "x": RNG.normal(size=12),
            "kind": ["a", "b", None, "c"] * 3,
            "few": [1.0, 2.0, np.nan, 1.0] * 3,
            "when": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01", None] * 3),
        }
    )

    @pytest.mark.parametrize("missing", ["error", "drop", "mode", "state"])
    def test_frames(self, missing):
        check_law(self.frame, missing=missing)
        check_law(pl.from_pandas(self.frame.drop(columns=["level", "when"])), missing=missing)
        check_law(pl.DataFrame([pl.Series("level", ["b", None, "a", "b"], dtype=pl.Enum(["a", "b", "c"]))]), missing=missing)

    @pytest.mark.parametrize("kind", [int, float, str, object, bool, "S2"])
    def test_arrays(self, kind):
        check_law(RNG.integers(0, 3, size=(25, 4)).astype(kind))

    def test_weights(self):
        table, weights = RNG.normal(size=(23, 3)), RNG.random(23)
        check_law(table, weights=weights, bins=3)
        for wrong in (weights[:-1], np.append(weights, 1.0)):
            with pytest.raises(DataError, match="one weight a row"):
                open_source(table, 5, weights=wrong)

    def test_sparse_matrices(self):
        check_law(sp.random(40, 6, density=0.3, format="csr", random_state=1))
        check_law(sp.random(40, 6, density=0.3, format="coo", random_state=1).astype(bool))

    def test_datasets(self):
        data = read_data(self.frame, missing="mode")
        check_law(data)
        assert open_source(data, 5, columns=["kind"]).domain.names == ["kind"]

    @pytest.mark.parametrize("name", ["digits", "digits:test"])
    def test_named_data(self, name):
        check_law(name, sizes=(100, 5000))


class TestBinaryFiles:
    def test_parquet(self, tmp_path):
        frame = TestMemory.frame.drop(columns="when").assign(large=pd.array([2**60 + 1, None, 2**60 + 3, 5] * 3, dtype="Int64"))
        for rows in (1, 5, 100):
            frame.to_parquet(tmp_path / "t.parquet", row_group_size=rows)
            check_law(tmp_path / "t.parquet")
        assert read_data(tmp_path / "t.parquet", categorical=["large"]).domain[5].states == ("5", str(2**60 + 1), str(2**60 + 3))

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_npz(self, tmp_path, save):
        bits = RNG.integers(0, 2, size=(31, 11), dtype=np.uint8)
        save(tmp_path / "packed.npz", train=np.packbits(bits, axis=1), test=np.packbits(bits[:5], axis=1), n_vars=11)
        check_law(tmp_path / "packed.npz")
        check_law(f"{tmp_path}/packed.npz:test")
        check_law(f"{tmp_path}/packed.npz:valid")
        save(tmp_path / "plain.npz", X=RNG.normal(size=(20, 3)), names=np.array(["a", "b", "c"]), weights=RNG.random(20))
        check_law(tmp_path / "plain.npz")
        check_law(f"{tmp_path}/plain.npz:test")
        save(tmp_path / "alone.npz", np.array([["x", "y"], ["z", "y"], ["x", "y"]]))
        check_law(tmp_path / "alone.npz")
        save(tmp_path / "short.npz", X=RNG.normal(size=(20, 3)), weights=RNG.random(19))
        check_law(tmp_path / "short.npz")

    def test_what_cannot_be_cut_into_chunks_says_so(self, tmp_path):
        np.savez(tmp_path / "columns.npz", X=np.asfortranarray(RNG.integers(0, 2, size=(5, 3))))
        with pytest.raises(FormatError, match="column by column"):
            open_source(tmp_path / "columns.npz")
        sp.save_npz(tmp_path / "sparse.npz", sp.random(5, 3, density=0.5, format="csr"))
        with pytest.raises(FormatError, match="sparse matrix, which is read whole"):
            open_source(tmp_path / "sparse.npz")


class TestGivenDomain:
    def test_chunks_are_coded_with_it(self, tmp_path):
        train = read_data(write(tmp_path, "a.csv", "x,y,z\nno,1,0.5\nyes,2,1.5\nyes,1,2.5\n"))
        test = write(tmp_path, "b.csv", "y,extra,x,z\n2,q,no,9.25\n1.0,r,yes,0\n1,s,no,-3\n")
        check_law(test, domain=train.domain)
        strange = write(tmp_path, "c.csv", "y,x,z\n2,no,1\n1,yes,1\n1,perhaps,1\n2,perhaps,1\n")
        assert "line 4, column 2 ('x'): 'perhaps'" in check_law(strange, domain=train.domain)
        check_law(strange, domain=train.domain, unknown="missing")
        check_law(strange, domain=train.domain, unknown="missing", missing="drop")
        check_law(strange, domain=train.domain, unknown="missing", missing="state")
        check_law(write(tmp_path, "d.csv", "y,z\n2,no\n"), domain=train.domain)
        check_law(tmp_path / "a.csv", domain_from=strange)

    def test_baskets(self, tmp_path):
        train = read_data(write(tmp_path, "a.basket", "a b\nb\na\n"))
        check_law(write(tmp_path, "b.basket", "b z\nb\n\nz\n"), domain=train.domain)

    def test_row_numbers_by_position(self, tmp_path):
        bare = write(tmp_path, "a.csv", "".join(f"{k},{'xy'[k % 2]}z,{k % 3}a\n" for k in range(20)))
        with pytest.warns(TableWarning):
            train = read_data(bare)
        check_law(write(tmp_path, "b.csv", "0,xz,1a\n1,yz,0a\n"), domain=train.domain)


CELL = st.sampled_from(
    ["0", "1", "2", "1.0", "2.5", "3,5", "1.234,5", "x", "y z", "", "?", "NA", "99", "TRUE", "false", "True", "1e3", '"q"']
)


@given(
    st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=12),
    st.sampled_from([None, "a", "id,b,c"]),
    st.sampled_from(",;\t"),
    st.sampled_from(["error", "drop", "mode", "state"]),
    st.integers(1, 13),
)
def test_any_small_file(tmp_path_factory, rows, names, delimiter, missing, size):
    head = [] if names is None else [["a", "b", "c"]] if names == "a" else [names.split(",")]
    text = "\n".join(delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in row) for row in [*head, *rows])
    path = write(tmp_path_factory.getbasetemp(), "any.csv", text + "\n")
    check_law(path, sizes=(size,), missing=missing, na=["99"])


def test_a_file_that_changes_is_noticed(tmp_path):
    path = write(tmp_path, "t.csv", "a,b\nx,1\ny,0\n" * 1)
    source = open_source(path, 1)
    write(tmp_path, "t.csv", "a,b\nx,1\ny,0\nz,1\n")
    with pytest.raises(DataError, match="has changed since it was opened"):
        list(source)


def test_a_source_tells_what_it_is_and_checks_what_it_is_asked(tmp_path):
    source = open_source(write(tmp_path, "t.csv", TEXTS["late_text.csv"]), 7)
    assert repr(source) == f"<Source of 13 rows, 2 variables, from {tmp_path}/t.csv, in chunks of 7>"
    assert source.name == f"{tmp_path}/t.csv"
    for wrong in ({"chunk_rows": 0}, {"chunk_rows": 2.5}, {"missing": "nope"}, {"unknown": "nope"}, {"bins": 1}):
        with pytest.raises(ParameterError):
            open_source(tmp_path / "t.csv", **wrong)
    with pytest.raises(ParameterError, match="start"):
        list(source.chunks(14))


def test_too_many_different_cells_are_refused_unless_they_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "MAX_KEPT_TEXTS", 50)
    path = write(tmp_path, "t.csv", "id,a,x\n" + "".join(f"{k * 7},{k % 2},{k / 3}\n" for k in range(100)))
    with pytest.raises(DataError, match="more than 50 different cells, most of them .* column 'id'"):
        open_source(path, 10)
    check_law(path, drop=["id", "x"])
    with pytest.raises(DataError, match="column 'x'"):
        open_source(path, 10, drop=["id"])


def test_memory_is_bounded_by_the_chunk(tmp_path):
    """Ten times the rows take hardly more memory; read whole, they take ten times as much."""

    def peak(path, read):
        tracemalloc.start()
        read(path)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    row = ",".join(["yes", "no", "maybe", "0", "1"] * 4) + "\n"
    for header, line in ((",".join(f"c{k}" for k in range(20)) + "\n", row), ("", ",".join("01" * 10) + "\n")):
        short, long = (write(tmp_path, f"{n}.csv", header + line * n) for n in (4_000, 40_000))
        for path in (short, long):
            peak(path, lambda path: list(open_source(path, 100)))  # what is imported and cached once
        chunked = [peak(path, lambda path: [len(chunk) for chunk in open_source(path, 500)]) for path in (short, long)]
        whole = [peak(path, read_data) for path in (short, long)]
        assert chunked[1] < 1.5 * chunked[0] + (1 << 20)
        assert whole[1] > 4 * whole[0]
        assert chunked[1] < whole[1]
