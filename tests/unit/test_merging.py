"""Tables joined row after row: over one domain, and over domains that differ in order or states."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import domains, tables
from undirected import DataError, Dataset, Domain, Variable, read_data


@given(st.data())
def test_merging_the_pieces_of_a_table_gives_the_table(data):
    table = data.draw(tables(data.draw(domains(names=True))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=3)))
    pieces = [table.subset(np.arange(a, b)) for a, b in zip([0, *cuts], [*cuts, len(table)], strict=True)]
    merged = Dataset.merge(pieces)
    assert merged.domain is table.domain
    np.testing.assert_array_equal(merged.codes, table.codes)
    np.testing.assert_array_equal(merged.weights, table.weights)
    assert merged.source == table.source
    np.testing.assert_array_equal(merged.distinct.codes, table.distinct.codes)
    np.testing.assert_array_equal(merged.distinct.weights, table.distinct.weights)


WORDS = st.sampled_from(["red", "green", "blue", "7", "10", "2.5x", None])


@given(st.lists(st.tuples(WORDS, WORDS), min_size=2, max_size=12), st.data())
def test_tables_that_were_read_apart_make_the_table_read_whole(rows, data):
    """Each piece has the states that it holds, in sorted order; together they are those of the whole."""
    rows = [("red", "blue"), *rows, ("green", "10")]
    cut = data.draw(st.integers(1, len(rows) - 1))
    whole, *pieces = (pd.DataFrame(part, columns=["a", "b"], dtype=object) for part in (rows, rows[:cut], rows[cut:]))
    merged = Dataset.merge([read_data(pieces[0]), read_data(pieces[1][["b", "a"]])])
    expected = read_data(whole)
    assert merged.domain == expected.domain
    np.testing.assert_array_equal(merged.codes, expected.codes)


def merge_states(*states, **options):
    return Dataset.merge(Dataset(Domain([Variable("x", s, **options)]), np.zeros((1, 1), dtype=int)) for s in states).domain[0].states


def test_states_are_joined_in_a_defined_order():
    assert merge_states(("2", "10"), ("3",)) == ("2", "3", "10")
    assert merge_states(("b", "a"), ("c", "b")) == ("b", "a", "c")
    assert merge_states(("0", "1"), ("False", "True")) == ("False", "True")
    assert merge_states(("a", "?"), ("b",)) == ("a", "b", "?")
    assert merge_states(("lo", "hi"), ("lo", "mid", "hi"), ordered=True) == ("lo", "mid", "hi")
    with pytest.raises(DataError, match="ordered in different ways"):
        merge_states(("lo", "hi"), ("hi", "lo"), ordered=True)


def test_a_state_for_missing_cells_is_the_same_read_apart_or_whole():
    rows = pd.DataFrame({"a": ["x", None, "z", "y"], "b": ["u", "v", None, "u"]})
    merged = Dataset.merge([read_data(rows[:2], missing="state"), read_data(rows[2:], missing="state")])
    whole = read_data(rows, missing="state")
    assert merged.domain == whole.domain
    np.testing.assert_array_equal(merged.codes, whole.codes)


def test_zeros_and_ones_among_truth_values():
    merged = Dataset.merge([read_data(np.array([["0"], ["1"]])), read_data(np.array([["True"], ["False"]]))])
    np.testing.assert_array_equal(merged.codes[:, 0], [0, 1, 1, 0])


def test_sources_and_lines_are_kept_where_they_tell_something():
    domain = Domain([Variable("a", ("x", "y"))])
    one, two = (Dataset(domain, [[k]], source="t.csv", lines=[k + 2]) for k in (0, 1))
    assert Dataset.merge([one, two]).where(1) == "t.csv, line 3"
    other = Dataset(domain, [[0]], source="u.csv", lines=[2])
    merged = Dataset.merge([one, other])
    assert merged.source == "t.csv, u.csv"
    assert merged.lines is None
    many = Dataset.merge(Dataset(domain, [[0]], source=f"{k}.csv") for k in range(5))
    assert many.source == "0.csv, 1.csv, 2.csv and 2 more"


def test_what_cannot_be_merged_says_why():
    numbers = np.arange(100.0)[:, None]
    with pytest.raises(DataError, match="different bins"):
        Dataset.merge([read_data(numbers + 0.5), read_data(numbers * 2 + 0.5)])
    a, b = (read_data(pd.DataFrame({name: ["x", "y"], "c": ["u", "v"]})) for name in ("colour", "color"))
    with pytest.raises(DataError, match="has no variable 'colour', which the first table has. Did you mean 'color'"):
        Dataset.merge([a, b])
    with pytest.raises(DataError, match="has the variable 'd', which the first table has not"):
        Dataset.merge([a, read_data(pd.DataFrame({"colour": ["x"], "c": ["u"], "d": ["z"]}))])
    with pytest.raises(DataError, match="3 variables where the first table has 2"):
        Dataset.merge([read_data(np.eye(2, dtype=int)), read_data(np.eye(3, dtype=int))])
    with pytest.raises(DataError, match="no tables to merge"):
        Dataset.merge([])
