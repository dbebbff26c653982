"""Trees that grow over a stream, against counts made row by row, and against trees grown on all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undirected import Dataset, Domain
from undirected.streaming.hoeffding import Forest, Growth, _measure
from undirected.structure.trees import grow_trees
from undirected.work import Work


def growth(**changed):
    return Growth(
        **{"grace": 100, "delta": 1e-4, "tau": 0.05, "least_gain": 3.0, "min_rows": 5, "max_leaves": 100, "memory": 1 << 28, **changed}
    )


def draw(n_rows, sizes, seed=0, strength=0.8):
    """Variables that follow the first, the others noise."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, sizes[0], n_rows)
    columns = [first]
    for k, size in enumerate(sizes[1:], 1):
        follow = rng.random(n_rows) < (strength if k % 2 else 0.0)
        columns.append(np.where(follow, first % size, rng.integers(0, size, n_rows)))
    return Dataset(Domain.from_sizes(sizes), np.column_stack(columns))


def learn(data, chunk=200, **changed):
    forest = Forest.plant(data, 1 << 28)
    for at in range(0, len(data), chunk):
        forest.learn(Dataset(data.domain, data.codes[at : at + chunk]), growth(**changed), Work.start(threads=1))
    return forest


def leaf_of(forest, t, row):
    node = root = int(forest.start[t])
    domain = forest.domain
    while forest.test[node] >= 0:
        v = domain.literal_variable[forest.test[node]]
        holds = row[v] == forest.test[node] - domain.base[v]
        node = root + int(forest.yes[node] if holds else forest.no[node])
    return node


@given(st.integers(0, 10_000), st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_leaves_hold_the_counts_of_the_rows_that_came_to_them(seed, sizes):
    """From its last split on, a leaf's block is the table of literals and states of the rows that came to it."""
    data = draw(600, sizes, seed)
    forest = learn(data, chunk=600, grace=200)
    before = forest.copy()
    later = draw(150, sizes, seed + 1)
    forest.learn(later, growth(grace=10**9), Work.start(threads=1))  # counts, but does not split
    for t, target in enumerate(forest.targets):
        for node in range(forest.start[t], forest.start[t + 1]):
            if forest.block[node] < 0:
                continue
            rows = np.array([leaf_of(forest, t, row) == node for row in later.codes], dtype=bool)
            k = int(data.domain.n_states[target])
            size = data.domain.n_literals * k
            own = (forest.seen[forest.block[node] :][:size] - before.seen[before.block[node] :][:size]).reshape(-1, k)
            for literal in range(data.domain.n_literals):
                v = data.domain.literal_variable[literal]
                state = literal - data.domain.base[v]
                holds = rows & (later.codes[:, v] == state) & (state != forest.common[v])
                np.testing.assert_allclose(own[literal], np.bincount(later.codes[holds, target], minlength=k))


def test_every_row_is_in_one_leaf_and_children_share_their_parents_rows_out():
    data = draw(3000, [2, 3, 2, 2, 4])
    forest = learn(data)
    trees = forest.read_trees()
    assert len(trees.test) > 2 * len(trees)
    for n in np.flatnonzero(trees.test >= 0):
        root = trees.start[trees.tree[n]]
        parts = [trees.count[trees.count_start[c] : trees.count_start[c + 1]] for c in (root + trees.yes[n], root + trees.no[n])]
        own = trees.count[trees.count_start[n] : trees.count_start[n + 1]]
        assert np.all(parts[0] + parts[1] <= own + 1e-6 * (1 + own))  # later rows are counted in both, earlier ones shared out
    assert {data.domain.names[v] for v in trees.targets} == set(data.domain.names)


def test_a_split_gains_what_its_counts_say():
    data = draw(400, [2, 2, 3], strength=0.9)
    forest = learn(data, chunk=400, grace=400, min_rows=5)
    trees = forest.read_trees()
    t = 0
    root = int(trees.start[t])
    v, state = (
        data.domain.literal_variable[trees.test[root]],
        trees.test[root] - data.domain.base[data.domain.literal_variable[trees.test[root]]],
    )
    holds = data.codes[:, v] == state
    tables = [np.bincount(data.codes[rows, trees.targets[t]], minlength=2).astype(float) for rows in (holds, ~holds, np.ones(400, bool))]
    assert trees.gain[root] == pytest.approx(float(_measure(tables[0]) + _measure(tables[1]) - _measure(tables[2])))
    np.testing.assert_allclose(trees.count[trees.count_start[root] : trees.count_start[root + 1]], tables[2])


def test_on_a_long_stationary_stream_they_come_to_predict_like_trees_of_all_rows():
    data, fresh = draw(40_000, [2, 3, 2, 4, 3]), draw(5000, [2, 3, 2, 4, 3], seed=9)
    batch = grow_trees(data, min_rows=5, kappa=0.01)
    growing = learn(data, chunk=2000).read_trees()
    alone = Forest.plant(data, 0)
    alone.learn(data, growth(), Work.start(threads=1))
    scores = [float(trees.walk(fresh)[1].mean()) for trees in (batch, growing, alone.read_trees())]
    assert scores[1] > scores[0] - 0.02 * abs(scores[0])
    assert scores[2] < scores[0] - 0.1 * abs(scores[0])  # single leaves


def test_noise_does_not_split():
    rng = np.random.default_rng(1)
    data = Dataset(Domain.from_sizes([2] * 6), rng.integers(0, 2, (20_000, 6)))
    forest = learn(data, chunk=2000, least_gain=-np.log(1e-4))
    assert (forest.test >= 0).sum() <= 2


def test_caps_hold():
    data = draw(20_000, [4] * 6)
    capped = learn(data, max_leaves=3)
    leaves = np.bincount(capped.tree[capped.test < 0])
    assert leaves.max() <= 4
    assert (capped.block[np.isin(capped.tree, np.flatnonzero(leaves >= 3))] < 0).all()
    memory = 8 * data.domain.n_literals * 4 * 8
    small = Forest.plant(data, memory)
    small.learn(data, growth(memory=memory), Work.start(threads=1))
    assert small.seen.nbytes <= memory
    assert (small.block >= 0).sum() > 0


def test_cutting_chunks_elsewhere_changes_nothing():
    data = draw(2400, [2, 3, 2])
    one, other = learn(data, chunk=200), learn(data, chunk=1200)
    for name, array in one.pack().items():
        np.testing.assert_array_equal(array, other.pack()[name])


def test_more_states_leave_trees_as_they_are():
    data = draw(2000, [2, 3, 2])
    forest = learn(data)
    wide = forest.copy()
    domain = Domain.from_sizes([3, 3, 4])
    wide.widen(domain)
    fresh = draw(500, [2, 3, 2], seed=5)
    wider = Dataset(domain, fresh.codes)
    for trees, rows in ((forest, fresh), (wide, wider)):
        trees.learn(rows, growth(grace=10**9), Work.start(threads=1))
    np.testing.assert_array_equal(forest.read_trees().weight, wide.read_trees().weight)
    old, new = forest.read_trees().walk(fresh)[0], wide.read_trees().walk(wider)[0]
    assert old.sum() == new.sum()
    wide.learn(Dataset(domain, np.array([[2, 0, 3]] * 20)), growth(), Work.start(threads=1))
    assert wide.count.sum() > 0
