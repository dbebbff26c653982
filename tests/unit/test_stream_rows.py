"""Rows as people hand them over, against the codes that the batch reader gives the same table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from undirected import DataError, ParameterError, StreamedDTSL, datasets, read_data
from undirected.data.readers import Reading
from undirected.streaming.rows import RowCoder, Unreadable, read_row, write_row

TABLE = {"size": ["L", "S", "M", "L", "S", "M"], "n": [3.5, 10, 2, 7, 8, 1.25], "ok": [True, False, True, True, False, False]}


def test_rows_by_name_in_order_and_as_frames_are_coded_as_a_table_is():
    frame = pd.DataFrame(TABLE)
    truth = read_data(frame)
    by_name, in_order = frame.to_dict("records"), frame.to_numpy().tolist()
    for given in (frame, pl.DataFrame(TABLE), by_name, [list(row) for row in in_order]):
        coder = RowCoder()
        found = coder.encode_table(given)
        np.testing.assert_array_equal(found.data.codes, truth.codes)
        assert [v.states for v in found.data.domain.variables] == [v.states for v in truth.domain.variables]
        again = coder.encode_table(given)
        np.testing.assert_array_equal(again.data.codes, truth.codes)
    coder = RowCoder(truth.domain)
    np.testing.assert_array_equal(coder.encode_table(frame[["ok", "n", "size"]]).data.codes, truth.codes)
    numbers = np.array([[0, 1, 2], [1, 1, 0]])
    for given in (numbers, sparse.csr_matrix(numbers), [(0, 1, 2), (1, 1, 0)]):
        np.testing.assert_array_equal(RowCoder().encode_table(given).data.codes, read_data(numbers).codes)


def test_later_numbers_fall_into_the_bins_of_the_first_rows():
    coder = RowCoder(bins=3)
    first = [{"x": x} for x in np.linspace(0, 1, 50)]
    data = coder.encode(first).data
    later = [{"x": -5}, {"x": "0.5"}, {"x": 99}, {"x": "many"}]
    found = coder.encode(later)
    assert found.data.codes.ravel().tolist() == [0, 1, 2]
    assert [one.row for one in found.rejected] == [3]
    assert len(data.domain[0].states) == 3


def test_baskets_are_rows_of_items():
    coder = RowCoder()
    data = coder.encode([{"bread", "milk"}, frozenset(), {"milk"}]).data
    assert data.domain.names == ["bread", "milk"]
    assert data.codes.tolist() == [[1, 1], [0, 0], [0, 1]]
    later = coder.encode([{"bread", "beer", "chips"}])
    assert later.data.codes.tolist() == [[1, 0]]
    assert later.unknown_items == 2


def test_faults_of_rows_are_told_with_their_places():
    coder = RowCoder()
    first = [["a", "x"], ["b", "y"], Unreadable("nonsense", "not JSON"), ["a"], ["a", "x", "z"], "text", ["a", ["nested"]], ["b", "x"]]
    found = coder.encode(first)
    assert len(found.data) == 3
    assert [one.row for one in found.rejected] == [2, 3, 4, 5, 6]
    assert [one.reason for one in found.rejected] == [
        "not JSON", "1 cells where 2 are needed", "3 cells where 2 are needed",
        "a row must be cells by name, in order, or a set of items, not str", "a cell holds a list",
    ]  # fmt: skip
    with pytest.raises(DataError, match="none of the first 2 rows can be read; not JSON"):
        RowCoder().encode([Unreadable("x", "not JSON")] * 2)
    with pytest.raises(DataError, match="1 cells are missing, the first in the stream, row 2, column .a."):
        RowCoder(missing="error").encode([{"a": 1, "b": 2}, {"a": None, "b": 1}])
    with pytest.raises(DataError, match="every one of the first 2 rows"):
        RowCoder().encode([{"a": 1, "b": None}, {"a": None, "b": 1}])


def test_missing_cells_are_left_out_filled_in_or_a_state():
    rows = [{"a": x, "b": y} for x, y in [("1", "p"), ("2", "q"), ("1", "p"), (None, "q")]]
    assert len(RowCoder().encode(rows).data) == 3
    assert RowCoder(missing="mode").encode(rows).data.codes[3].tolist() == [0, 1]
    kept = RowCoder(missing="state").encode(rows)
    assert kept.data.domain[0].states[-1] not in ("1", "2")
    assert len(kept.data) == 4


def test_reading_rules_hold_for_every_chunk():
    coder = RowCoder(reading=Reading(na=("99",), drop=("id",)))
    data = coder.encode([{"id": k, "a": a, "b": "x" if k % 2 else "y"} for k, a in enumerate(["1", "99", "2", "1"])])
    assert data.data.domain.names == ["a", "b"]
    assert len(data.data) == 3
    assert len(coder.encode([{"id": 1, "a": "99", "b": "x"}]).rejected) == 1
    learner = StreamedDTSL(watch="none", reading={"drop": ["id"], "na": ["99"]})
    learner.learn_many([{"id": k, "a": k % 2, "b": (k // 2) % 2} for k in range(40)])
    assert learner.domain_.names == ["a", "b"]
    with pytest.raises(ParameterError, match="reading has 'dorp'"):
        StreamedDTSL(reading={"dorp": ["id"]}).open()


@pytest.mark.parametrize("row", [{"a": 1, "b": None, "c": 2.5, "d": True}, ["x", "y", None, 3], frozenset({"a", "b"})])
def test_rows_survive_a_checkpoint(row):
    assert read_row(write_row(row)) == row


def test_the_domain_of_a_network_may_be_given():
    data = datasets.load("digits")
    learner = StreamedDTSL(watch="none", domain=data.domain).learn_many(data.codes[:100])
    assert learner.domain_ == data.domain
    assert learner.n_rows_ == 100


def test_names_may_be_numbers_and_rows_arrays():
    learner = StreamedDTSL(watch="none", chunk_rows=4)
    row = {0: 1, 1: 0}
    for k in range(4):
        row[0] = k % 2
        learner.learn_one(row)  # the same mapping again and again
    assert learner.network_.domain.names == ["0", "1"]
    assert learner.domain_[0].states == ("0", "1")
    arrays = StreamedDTSL(watch="none").learn_many([np.array([0, 1]), np.array([1, 0])])
    assert arrays.n_rows_ == 2


def test_an_error_with_one_row_is_that_rows_alone():
    learner = StreamedDTSL(watch="none", chunk_rows=3, unknown="error")
    for k in range(3):
        learner.learn_one({"a": k % 2, "b": 1 - k % 2})
    learner.learn_one({"a": 0, "b": 1})
    with pytest.raises(DataError, match="unknown state '7'"):
        learner.learn_one({"a": 7, "b": 1})
    for k in range(2):
        learner.learn_one({"a": k, "b": 1})
    assert learner.n_chunks_ == 2


def test_weights_of_rows_count_and_zeros_do_not():
    from undirected import Dataset, Domain

    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, 2, (200, 3)), rng.integers(0, 3, 200).astype(float)
    domain = Domain.from_sizes([2] * 3)
    repeated = Dataset(domain, np.repeat(codes, weights.astype(int), axis=0))
    one, other = StreamedDTSL(watch="none"), StreamedDTSL(watch="none")
    for half in (slice(0, 100), slice(100, 200)):
        one.learn_many(Dataset(domain, codes[half], weights[half]))
        other.learn_many(Dataset(domain, np.repeat(codes[half], weights[half].astype(int), axis=0)))
    np.testing.assert_allclose(one.network_.weights, other.network_.weights, atol=1e-9)
    assert one.last_.mean_npll == pytest.approx(other.last_.mean_npll)
    assert repeated.total_weight == weights.sum()


def test_chunks_that_are_none_are_told():
    for wrong, words in (
        (None, "not NoneType"),
        ("text", "not str"),
        ([{}, {}], "have no cells"),
        ([[], []], "none of the first 2 rows has 0 cells"),
    ):
        with pytest.raises(DataError, match=words):
            StreamedDTSL(watch="none").learn_many(wrong)
    frame = pd.DataFrame([[1, 2], [2, 1]], columns=["a", "a"])
    with pytest.raises(DataError, match="called alike"):
        StreamedDTSL(watch="none").learn_many(frame)


def test_a_given_domain_goes_with_filled_in_and_kept_gaps():
    first = [{"a": "x", "b": "y"}, {"a": "z", "b": "y"}, {"a": "x", "b": "w"}]
    domain = RowCoder().encode(first).data.domain
    gaps = [*first, {"a": None, "b": "y"}]
    assert len(RowCoder(domain, missing="mode").encode(gaps).data) == 4
    kept = RowCoder(domain, missing="state").encode(gaps)
    assert len(kept.data) == 4
    assert len(kept.data.domain[0].states) == 3
