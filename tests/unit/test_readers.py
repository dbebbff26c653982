"""Tables from files, frames and arrays, good and bad."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from tables import states, write
from undirected import DataError, Dataset, FormatError, ParameterError, holdout, read_data


def test_csv_with_header_text_and_numbers(tmp_path):
    lines = "\n".join(f"{c},{a},{k}" for c, a, k in zip("rgbrgbrg", range(10, 90, 10), [1, 2, 3, 1, 2, 3, 1, 2], strict=True))
    data = read_data(write(tmp_path, "t.csv", "colour,age,class\n" + lines + "\n"))
    assert data.domain.names == ["colour", "age", "class"]
    assert data.domain.named
    assert states(data, "colour") == ("b", "g", "r")
    assert states(data, "class") == ("1", "2", "3")
    assert states(data, "age") == ("10", "20", "30", "40", "50", "60", "70", "80")  # few integers are states
    binned = read_data(tmp_path / "t.csv", numeric=["age"])
    assert binned.domain[1].edges == (20, 40, 60)
    np.testing.assert_array_equal(binned.codes[:, 1], [0, 0, 1, 1, 2, 2, 3, 3])
    assert states(binned, "age") == ("(-inf, 20]", "(20, 40]", "(40, 60]", "(60, inf)")


def test_test_data_is_coded_with_the_training_edges(tmp_path):
    train = read_data(np.column_stack([np.arange(100.0) + 0.5, np.arange(100) % 2]))
    test = read_data(np.array([[-1000.0, 1], [1000.0, 0], [30.2, 1]]), domain=train.domain)
    np.testing.assert_array_equal(test.codes, [[0, 1], [3, 0], [1, 1]])
    assert len(train.domain[0].states) == 4
    np.testing.assert_array_equal(np.bincount(train.codes[:, 0]), [25, 25, 25, 25])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("0,1\n1,0\n", False),
        ("a,b\n0,1\n1,0\n", True),
        ("yes,no\nno,no\nyes,yes\n", False),
        ("x;y\n1;2\n3;4\n", True),
        ("a b\n1 2\n", True),
    ],
)
def test_header_and_delimiter_are_found(tmp_path, text, named):
    data = read_data(write(tmp_path, "t.csv", text))
    assert data.domain.named == named
    assert len(data.domain) == 2
    assert len(data) == text.count("\n") - named


def test_header_can_be_overridden(tmp_path):
    path = write(tmp_path, "t.csv", "0,1\n1,0\n")
    assert read_data(path, header=True).domain.names == ["0", "1"]
    assert len(read_data(write(tmp_path, "u.csv", "a,b\nc,d\n"), header=False)) == 2


def test_compressed_and_windows_files(tmp_path):
    content = "a,b\r\n0,1\r\n1,0\r\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(content.encode()))
    data = read_data(tmp_path / "t.csv.gz")
    assert data.domain.names == ["a", "b"]
    np.testing.assert_array_equal(data.codes, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(read_data(write(tmp_path, "d.csv", "0,1\r\n1,0\r\n")).codes, [[0, 1], [1, 0]])


def test_quoted_cells_and_byte_order_mark(tmp_path):
    data = read_data(write(tmp_path, "t.csv", '﻿name,kind\n"a, b",x\n"c ""d""",y\n'))
    assert states(data, "name") == ("a, b", 'c "d"')


def test_basket(tmp_path):
    data = read_data(write(tmp_path, "b.basket", "bread,milk\n\nmilk\nbeer, bread\n"))
    assert data.domain.names == ["beer", "bread", "milk"]
    assert states(data, "milk") == ("no", "yes")
    np.testing.assert_array_equal(data.codes, [[0, 1, 1], [0, 0, 0], [0, 0, 1], [1, 1, 0]])
    assert read_data(write(tmp_path, "n.txt", "3 1\n2\n"), format="basket").domain.names == ["1", "2", "3"]


def test_libra_with_weights_and_unknown(tmp_path):
    data = read_data(write(tmp_path, "t.data", "0.5|0,2,*\n1, 0, 1\n"))
    np.testing.assert_allclose(data.weights, [0.5, 1])
    np.testing.assert_array_equal(data.codes, [[0, 2, -1], [1, 0, 1]])
    np.testing.assert_array_equal(data.domain.n_states, [2, 3, 2])
    assert not data.domain.named


def test_arrays_frames_and_matrices_agree(tmp_path):
    import pandas as pd
    import polars as pl

    x = np.random.default_rng(0).integers(0, 2, size=(30, 4))
    expected = read_data(x)
    assert expected.domain.names == ["v0", "v1", "v2", "v3"]
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(x, columns=names)
    frame.to_parquet(tmp_path / "t.parquet")
    np.savez(tmp_path / "plain.npz", X=x, names=np.array(names))
    np.savez(
        tmp_path / "packed.npz", train=np.packbits(x, axis=1), test=np.packbits(x[:5], axis=1), n_vars=4, names=np.array([], dtype="U1")
    )
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_matrix(x))
    for source in (x.astype(float), x.astype(bool), sp.csr_matrix(x), x.tolist(), tmp_path / "sparse.npz", tmp_path / "packed.npz"):
        np.testing.assert_array_equal(read_data(source).codes, expected.codes)
    for source in (frame, pl.DataFrame(frame.to_dict("list")), tmp_path / "t.parquet", tmp_path / "plain.npz"):
        data = read_data(source)
        np.testing.assert_array_equal(data.codes, expected.codes)
        assert data.domain.names == names
    assert len(read_data(f"{tmp_path}/packed.npz:test")) == 5
    with pytest.raises(DataError, match="no split 'valid'"):
        read_data(f"{tmp_path}/packed.npz:valid")


def test_constant_columns():
    data = read_data(np.array([[0, 1, 5], [0, 1, 5]]))
    assert [v.states for v in data.domain.variables] == [("0", "1"), ("0", "1"), ("5",)]


def test_one_row_one_column_one_cell():
    assert read_data(np.array([[1]])).codes.shape == (1, 1)
    assert read_data(np.array([["a", "b"]])).domain[0].states == ("a",)


def test_columns_are_matched_by_name(tmp_path):
    train = read_data(write(tmp_path, "a.csv", "x,y\nno,1\nyes,2\n"))
    test = read_data(write(tmp_path, "b.csv", "y,extra,x\n2,q,no\n"), domain=train.domain)
    np.testing.assert_array_equal(test.codes, [[0, 1]])
    with pytest.raises(DataError, match="has no column 'x'"):
        read_data(write(tmp_path, "c.csv", "y,z\n2,no\n"), domain=train.domain)


def test_unseen_state_names_file_line_and_column(tmp_path):
    train = read_data(write(tmp_path, "a.csv", "x,y\nno,1\nyes,2\n"))
    path = write(tmp_path, "b.csv", "x,y\nno,1\nmaybe,2\n")
    with pytest.raises(DataError, match=rf"{path}, line 3, column 1 \('x'\): 'maybe'"):
        read_data(path, domain=train.domain)
    wide = read_data(tmp_path / "a.csv", domain_from=path)
    assert states(wide, "x") == ("maybe", "no", "yes")


def test_missing_cells_and_what_to_do_with_them(tmp_path):
    path = write(tmp_path, "t.csv", "x,y\na,1\n?,2\na,NA\nb,\nb,1\na,1\n")
    data = read_data(path)
    assert data.has_missing
    np.testing.assert_array_equal((data.codes < 0).sum(axis=0), [1, 2])
    with pytest.raises(DataError, match=r"3 cells are missing, the first in .*t.csv, line 3, column 'x'.*--missing drop"):
        data.require_complete("fitting weights")
    assert len(read_data(path, missing="drop")) == 3
    np.testing.assert_array_equal(read_data(path, missing="mode").codes[:, 0], [0, 0, 0, 1, 1, 0])
    as_state = read_data(path, missing="state")
    assert states(as_state, "x") == ("a", "b", "?")
    again = read_data(path, domain=as_state.domain)
    np.testing.assert_array_equal(again.codes, as_state.codes)
    with pytest.raises(ParameterError, match="missing='nope'"):
        read_data(path, missing="nope")
    with pytest.raises(DataError, match="every row has a missing cell"):
        read_data(np.array([["?", "a"], ["b", "?"]]), missing="drop")
    with pytest.raises(DataError, match="only missing cells"):
        read_data(np.array([["?", "a"], ["", "b"]]))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "\n\n", "is empty"),
        ("t.csv", "a,b\n", "no rows"),
        ("t.csv", "a,a\n1,2\n", "two columns are called 'a'"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", "line 3: 3 cells where line 1 has 2"),
        ("t.csv", "a,b\nx,\xff\n".encode("latin-1"), "line 2: not UTF-8"),
        ("t.xyz", "1,2\n", "suffix '.xyz' is not known"),
        ("t.data", "0,x\n", "line 1, column 2: 'x' is neither"),
        ("t.data", "0,1\n0\n", "line 2: 1 states"),
        ("t.data", "0,1\n0,1000000000\n", "too large"),
        ("t.data", "-1|0,1\n", "not a row weight"),
        ("t.npz", "not a zip", "not an .npz file"),
        ("t.parquet", "not parquet", "not a Parquet file"),
        ("t.csv.gz", b"\x1f\x8b\x08cut", "cannot be read"),
    ],
)  # fmt: skip
def test_bad_files_say_what_is_wrong(tmp_path, name, text, message):
    with pytest.raises((DataError, FormatError), match=message):
        read_data(write(tmp_path, name, text), header=True if text == "a,b\n" else None)


def test_bad_sources():
    with pytest.raises(DataError, match="no file"):
        read_data("no/such/file.csv")
    with pytest.raises(DataError, match="no data set or file 'nltsc'.*Did you mean 'nltcs'"):
        read_data("nltsc")
    with pytest.raises(DataError, match="3 dimensions"):
        read_data(np.zeros((2, 2, 2)))
    with pytest.raises(DataError, match="is a folder"):
        read_data("/")
    with pytest.raises(ParameterError, match="bins=1"):
        read_data(np.zeros((3, 2)), bins=1)
    with pytest.raises(ParameterError, match="no column 'b'"):
        read_data(np.zeros((3, 1)), numeric=["b"])
    with pytest.raises(DataError, match="weight of row 2 is -1"):
        read_data(np.zeros((2, 1)), weights=np.array([1.0, -1]))


def test_wide_binary_files_are_read_without_an_object_a_cell(tmp_path):
    x = np.random.default_rng(1).integers(0, 2, size=(200, 50))
    path = write(tmp_path, "t.data", "\n".join(",".join(map(str, row)) for row in x))
    np.testing.assert_array_equal(read_data(path).codes, x)


def test_holdout_is_seeded_and_complete():
    data = read_data(np.random.default_rng(0).integers(0, 2, size=(50, 7)))
    train, valid = holdout(data, 0.2, seed=3)
    assert (len(train), len(valid)) == (40, 10)
    again = holdout(data, 0.2, seed=3)[1]
    np.testing.assert_array_equal(valid.codes, again.codes)
    both = np.concatenate([train.codes, valid.codes])
    np.testing.assert_array_equal(np.sort(both @ 2 ** np.arange(7)), np.sort(data.codes @ 2 ** np.arange(7)))
    for fraction in (0, 1, -1, 2):
        with pytest.raises(ParameterError):
            holdout(data, fraction)


def test_codes_outside_the_domain():
    domain = read_data(np.array([[0, 1]])).domain
    with pytest.raises(DataError, match="beyond its 2 states"):
        Dataset(domain, np.array([[0, 7]]))


def test_libra_states_do_not_depend_on_blanks(tmp_path):
    plain = read_data(write(tmp_path, "a.data", "1,0\n2,1\n1,1\n"))
    blanks = read_data(write(tmp_path, "b.data", "1, 0\n2, 1\n1, 1\n"))
    assert plain.domain == blanks.domain
    assert plain.domain[0].states == ("0", "1", "2")
    np.testing.assert_array_equal(plain.codes, [[1, 0], [2, 1], [1, 1]])
    with pytest.raises(FormatError, match="neither a state"):
        read_data(write(tmp_path, "c.data", "1;0\n"))
    wide = read_data(tmp_path / "a.data", domain_from=write(tmp_path, "d.data", "4,0\n"))
    assert wide.domain[0].states == ("0", "1", "2", "3", "4")


def test_an_unclosed_quote_swallows_nothing(tmp_path):
    with pytest.raises(FormatError, match="line"):
        read_data(write(tmp_path, "t.csv", 'a,b\n1,x\n3,"y\n5,z\n7,x\n'))


def test_mixed_line_endings_are_read_right(tmp_path):
    data = read_data(write(tmp_path, "t.csv", "0,1\r\n1,00\n0,19\n"), header=False)
    assert data.domain[1].states == ("00", "1", "19")


def test_whole_numbers_with_a_point_are_integers(tmp_path):
    data = read_data(write(tmp_path, "t.csv", "a,b\n1,x\n1.0,y\n0,x\n"))
    assert data.domain[0].states == ("0", "1")
    assert read_data(write(tmp_path, "u.csv", "a,b\n1.0,x\n"), domain=data.domain).codes[0, 0] == 1


def test_infinite_numbers_are_an_error():
    with pytest.raises(DataError, match="holds 'inf'"):
        read_data(np.array([[0.5], [1.5], [np.inf]]))


def test_codes_are_checked_before_they_are_cast():
    domain = read_data(np.array([[0, 1]])).domain
    for codes in ([[256, 0]], [[-2, 0]]):
        with pytest.raises(DataError, match="beyond its 2 states"):
            Dataset(domain, np.array(codes))
    with pytest.raises(DataError, match="whole numbers"):
        Dataset(domain, np.array([[0.7, np.nan]]))


def test_weights_for_a_dataset_are_used():
    data = read_data(np.array([[0, 1], [1, 1]]))
    np.testing.assert_array_equal(read_data(data, weights=np.array([2.0, 3.0])).weights, [2, 3])
    with pytest.raises(ParameterError, match="coded already"):
        read_data(data, numeric=["v0"])


def test_baskets_without_an_item_are_test_data_too(tmp_path):
    train = read_data(write(tmp_path, "a.basket", "a b\nb\na\n"))
    test = read_data(write(tmp_path, "b.basket", "b z\nb\n"), domain=train.domain)
    np.testing.assert_array_equal(test.codes, [[0, 1], [0, 1]])


def test_byte_strings_and_sparse_duplicates():
    assert read_data(np.array([[b"a"], [b"b"]])).domain[0].states == ("a", "b")
    twice = sp.coo_matrix(([1, 1], ([0, 0], [0, 0])), shape=(2, 1))
    assert read_data(twice).domain[0].states == ("0", "2")


def test_broken_npz_files(tmp_path):
    np.savez(tmp_path / "whole.npz", X=np.zeros((50, 50)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:300])
    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npy").read_bytes())
    np.savez(tmp_path / "names.npz", train=np.zeros((2, 1), np.uint8), n_vars=4, names=np.array(["a"]))
    np.savez(tmp_path / "kind.npz", train=np.zeros((2, 1)), n_vars=4)
    for name in ("cut", "a", "names", "kind"):
        with pytest.raises(FormatError, match=name):
            read_data(tmp_path / f"{name}.npz")


def test_names_that_cannot_be_files():
    with pytest.raises(DataError):
        read_data("x" * 300)
    with pytest.raises(DataError):
        read_data("x" * 5000 + ".csv")
