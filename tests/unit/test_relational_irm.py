"""The infinite relational model: its posterior, its sampler, what it finds and what it predicts."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import Clock, Record
from undirected.data.dataset import Dataset
from undirected.data.variables import Domain, Variable
from undirected.errors import ParameterError
from undirected.relational.blocks import Blocks, Chain, Prior, find_entities, list_places
from undirected.relational.data import Entities, RelationalData
from undirected.relational.irm import IRM
from undirected.relational.schema import Argument, EntityType
from undirected.work import StoppedBy, Work

PRIORS = [Prior(1.0, 0.1, "uniform"), Prior(0.7, 0.3, "marginal")]


def make_type(name, states, codes, arguments=(), rows=None, keys=None):
    domain = Domain([Variable(f"{name}{v}", tuple(f"s{k}" for k in range(n))) for v, n in enumerate(states)])
    codes = np.asarray(codes)
    codes = codes if codes.ndim == 2 else codes[:, None]
    rows = np.zeros((len(codes), 0), np.int32) if rows is None else np.asarray(rows, np.int32)
    kind = EntityType(name, domain, tuple(Argument(f"a{k}", target) for k, target in enumerate(arguments)))
    return Entities(kind, Dataset(domain, codes), rows, keys)


def make_everything(seed, masked=0.2):
    """People with attributes, places, pairs of people with themselves, triples with gaps, notes on people, and links of pairs."""
    rng = np.random.default_rng(seed)

    def draw(n, states):
        codes = np.stack([rng.integers(0, s, n) for s in states], axis=1)
        return np.where(rng.random(codes.shape) < masked, -1, codes)

    pairs = np.array(list(itertools.product(range(5), repeat=2)))
    triples = np.stack([rng.integers(-1, 5, 20), rng.integers(0, 3, 20), rng.integers(-1, 5, 20)], axis=1)
    tables = [
        make_type("person", [2, 3], draw(5, [2, 3])),
        make_type("place", [2], draw(3, [2])),
        make_type("pair", [2, 2, 4], draw(25, [2, 2, 4]), ["person", "person"], pairs),
        make_type("triple", [2, 3], draw(20, [2, 3]), ["person", "place", "person"], triples),
        make_type("note", [2], draw(6, [2]), ["person"], rng.integers(0, 5, (6, 1))),
        make_type("claim", [2], draw(9, [2]), ["person", "pair"], np.stack([rng.integers(0, 5, 9), rng.integers(0, 25, 9)], axis=1)),
    ]
    return RelationalData(tables)


def draw_partitions(data, seed, n_clusters=3):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, n_clusters + 1, len(table)) for table in data.tables]


def sum_log_chances(data, partitions, prior):
    """The log-posterior as a product of chances: of each entity's cluster given those before it, and of each cell given those before it."""
    total, places = 0.0, list_places(data.schema)
    for k in {k for own in places for k in own}:
        seen = Counter()
        for e, cluster in enumerate(partitions[k].tolist()):
            total += np.log((seen[cluster] or prior.alpha) / (e + prior.alpha))
            seen[cluster] += 1
    for k, table in enumerate(data.tables):
        entities = find_entities(table)
        for v, n in enumerate(table.type.attributes.n_states.tolist()):
            codes = table.cells.codes[:, v]
            share = (np.bincount(codes[codes >= 0], minlength=n) + 0.5) / ((codes >= 0).sum() + 0.5 * n)
            weights = n * prior.beta * (np.full(n, 1 / n) if prior.base == "uniform" else share)
            seen = {}
            for row, code in zip(entities, codes.tolist(), strict=True):
                if code >= 0:
                    key = tuple(partitions[t][e] if e >= 0 else 0 for t, e in zip(places[k], row, strict=True))
                    counts = seen.setdefault(key, weights.copy())
                    total += np.log(counts[code] / counts.sum())
                    counts[code] += 1
    return total


def list_partitions(n):
    """Every partition of n entities, once."""
    found = {(1,)}
    for _ in range(n - 1):
        found = {(*p, k) for p in found for k in range(1, max(p) + 2)}
    return sorted(found)


def plant_blocks(seed=0, n=30, strength=0.9):
    """Three kinds of people, who like each other by kind; the kind of each."""
    rng = np.random.default_rng(seed)
    kind = rng.permutation(np.arange(n) % 3)
    pairs = np.array(list(itertools.product(range(n), repeat=2)))
    likes = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]])[kind[pairs[:, 0]], kind[pairs[:, 1]]]
    codes = np.where(rng.random(len(pairs)) < strength, likes, 1 - likes)
    keys = tuple(f"p{e}" for e in range(n))
    person = make_type("person", [], np.zeros((n, 0), int), keys=keys)
    return RelationalData([person, make_type("pair", [2], codes, ["person"] * 2, pairs)]), kind


# -- the posterior
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("seed", range(4))
def test_log_posterior_is_the_product_of_chances(prior, seed):
    data = make_everything(seed)
    partitions = draw_partitions(data, seed)
    assert Blocks(data, partitions, prior).log_posterior == pytest.approx(sum_log_chances(data, partitions, prior), abs=1e-8)


def test_probabilities_of_all_partitions_and_all_cells_sum_to_one():
    pairs = list(itertools.product(range(2), repeat=2))
    total = 0.0
    for cells in itertools.product(range(2), repeat=6):
        person = make_type("person", [2], cells[:2])
        data = RelationalData([person, make_type("pair", [2], cells[2:], ["person"] * 2, pairs)])
        for partition in list_partitions(2):
            total += np.exp(Blocks(data, [np.array(partition), np.ones(4, int)], PRIORS[0]).log_posterior)
    assert total == pytest.approx(1)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("seed", range(4))
def test_weights_of_slots_are_differences_of_the_log_posterior(prior, seed):
    data = make_everything(seed)
    blocks = Blocks(data, draw_partitions(data, seed), prior)
    for k in blocks.kinds:
        for e in range(min(blocks.n[k], 5)):
            before = blocks.copy_partitions()
            parts = blocks.describe(k, e)
            blocks.put(k, e, int(before[k][e]), parts, -1)
            slots = blocks.list_slots(k)
            weights = blocks.weigh_slots(k, parts, slots)
            blocks.put(k, e, int(before[k][e]), parts)
            truth = []
            for slot in slots.tolist():
                after = [p.copy() for p in before]
                after[k][e] = slot
                truth.append(sum_log_chances(data, after, prior))
            assert np.allclose(weights - weights[0], np.array(truth) - truth[0], atol=1e-8)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_order_and_names_of_entities_change_nothing(seed, order):
    data = make_everything(seed % 50)
    partitions = draw_partitions(data, seed)
    rng = np.random.default_rng(order)
    orders = [rng.permutation(len(table)) for table in data.tables]
    back = [np.append(np.argsort(order), -1) for order in orders]
    tables, moved = [], []
    for k, table in enumerate(data.tables):
        targets = [data.schema.index(a.target) for a in table.type.arguments]
        rows = [back[t][table.arguments[orders[k], p]] for p, t in enumerate(targets)]
        arguments = np.stack(rows, axis=1) if rows else table.arguments
        tables.append(Entities(table.type, Dataset(table.cells.domain, table.cells.codes[orders[k]]), arguments))
        names = np.append(0, 1 + rng.permutation(3))
        moved.append(names[partitions[k][orders[k]]])
    same = Blocks(RelationalData(tables), moved, PRIORS[1]).log_posterior
    assert same == pytest.approx(Blocks(data, partitions, PRIORS[1]).log_posterior, abs=1e-8)


# -- the sampler
def test_counts_after_many_moves_are_those_of_a_fresh_count():
    data = make_everything(1)
    blocks = Blocks(data, draw_partitions(data, 1), PRIORS[0])
    chain = Chain(blocks, np.random.default_rng(0), Work.start())
    for temperature in (1.0, 3.0, 3.0, 0.5, 0.0):
        chain.sweep(temperature)
        fresh = Blocks(data, blocks.copy_partitions(), PRIORS[0])
        assert blocks.log_posterior == pytest.approx(fresh.log_posterior, abs=1e-7)
        assert blocks.log_posterior == pytest.approx(sum_log_chances(data, blocks.copy_partitions(), PRIORS[0]), abs=1e-7)


@pytest.mark.parametrize(("move", "temperature"), [("visit", 1.0), ("split or merge", 1.0), ("split or merge", 2.0)])
def test_partitions_are_drawn_as_often_as_they_are_probable(move, temperature):
    rng = np.random.default_rng(5)
    data = RelationalData([make_type("person", [2, 3], np.stack([[0, 0, 1, 1], [0, 1, 1, 2]], axis=1))])
    every = list_partitions(4)
    logs = np.array([sum_log_chances(data, [np.array(p)], PRIORS[1]) for p in every]) / temperature
    truth = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    blocks = Blocks(data, [np.ones(4, int)], PRIORS[1])
    chain = Chain(blocks, rng, Work.start())
    seen, n = Counter(), 1500
    for step in range(n):
        if move == "visit":
            chain.visit(0, step % 4, temperature)
        else:
            chain.split_or_merge(0, temperature)
        first = {}
        seen[tuple(first.setdefault(c, len(first) + 1) for c in blocks.of[0][:-1].tolist())] += 1
    assert truth.max() < 0.5
    assert np.abs(np.array([seen[p] / n for p in every]) - truth).max() < 0.05


# -- the learner
def test_planted_blocks_are_found_and_predicted():
    data, kind = plant_blocks(n=21)
    marks = data.cut_observed(10, 3)[0]
    model = IRM(restarts=1, sweeps=8).fit(data.hide(marks))
    found = model.partition_["person"]
    assert len(set(zip(kind.tolist(), found.tolist(), strict=True))) == 3
    assert found.max() == 2
    assert model.score(data).cll > -0.42  # the entropy of what was planted is 0.325
    assert model.stopped_by_ is StoppedBy.CONVERGED
    blocks = Blocks(model.data_, [found + 1, np.ones(len(data.tables[1]), int)], model.prior_)
    assert model.log_posterior_ == pytest.approx(blocks.log_posterior)


def test_without_an_average_predictions_are_the_shares_in_the_combinations_of_clusters():
    data, _ = plant_blocks(n=12)
    model = IRM(base="uniform", average=False, restarts=1, sweeps=4).fit(data.hide(data.cut_observed(5, 0)[0]))
    of, table = model.partition_["person"], model.data_.tables[1]
    codes, at = table.cells.codes[:, 0], of[table.arguments]
    chances = model.predict_proba()[1][0][:, 1]
    for row in np.flatnonzero(codes < 0):
        own = codes[(at == at[row]).all(axis=1) & (codes >= 0)]
        assert chances[row] == pytest.approx((own.sum() + 0.1) / (len(own) + 0.2))


def test_masked_cells_have_no_influence():
    data, _ = plant_blocks(n=15)
    marks = data.cut_observed(5, 0)[0]
    table = data.tables[1]
    flipped = np.where(marks[1], 1 - table.cells.codes, table.cells.codes)
    other = RelationalData([data.tables[0], Entities(table.type, Dataset(table.cells.domain, flipped), table.arguments)])
    a, b = (IRM(restarts=1, sweeps=4).fit(d.hide(marks)) for d in (data, other))
    assert a.log_posterior_ == b.log_posterior_
    assert np.array_equal(a.predict_proba()[1][0], b.predict_proba()[1][0])


def test_a_seed_repeats_to_the_bit():
    data = make_everything(3)
    a, b = (IRM(base="marginal", restarts=2, sweeps=2, random_state=7).fit(data) for _ in range(2))
    assert a.log_posterior_ == b.log_posterior_
    for x, y in zip(a.predict_proba(), b.predict_proba(), strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(x, y, strict=True))
    assert all(np.allclose(p.sum(axis=1), 1) for x in a.predict_proba() for p in x)


def test_other_data_keeps_known_entities_and_places_new_ones():
    data, kind = plant_blocks(strength=0.97)
    marks = data.cut_observed(10, 0)[0]
    model = IRM(restarts=1, sweeps=4, base="uniform").fit(data.hide(marks))
    copy = data.hide(marks)
    assert np.allclose(model.predict_proba(copy)[1][0], model.predict_proba()[1][0], atol=1e-12)
    more, kinds = plant_blocks(seed=0, strength=0.97)
    names = tuple(f"p{e}" if e < 27 else f"new{e}" for e in range(30))
    person = more.tables[0]
    renamed = RelationalData([Entities(person.type, person.cells, person.arguments, names), more.tables[1]]).hide(marks)
    assert np.array_equal(kind, kinds)
    unlike = np.abs(model.predict_proba(renamed)[1][0] - model.predict_proba()[1][0])
    assert unlike.max() < 0.05


@pytest.mark.parametrize("step", [0.001, 0.01, 1.0])
def test_the_end_of_the_time_leaves_the_best_so_far(step):
    data, _ = plant_blocks(n=9)
    marks = data.cut_observed(10, 0)[0]
    model = IRM().fit(data.hide(marks), work=Work.start(time_budget=1, clock=Clock(step)))
    assert model.stopped_by_ is StoppedBy.TIME
    assert len(model.partition_["person"]) == 9
    assert model.score(data).cll > np.log(0.5) - 0.1


@pytest.mark.parametrize("after", [1, 20, 40])  # at once, while the restarts run, on all data
def test_ctrl_c_leaves_the_best_so_far(after):
    data, _ = plant_blocks(n=9)
    record = Record()

    def interrupt(event):
        record(event)
        if len(record.events) == after:
            raise KeyboardInterrupt

    model = IRM(restarts=1, progress=interrupt).fit(data)
    assert model.stopped_by_ is StoppedBy.INTERRUPT
    assert len(record.events) == after
    assert np.isfinite(model.log_posterior_)
    assert all(np.isfinite(p).all() for x in model.predict_proba(make_everything_unknown(data)) for p in x)


def make_everything_unknown(data):
    return data.hide([np.ones(table.cells.codes.shape, bool) for table in data.tables])


def test_memory_limits_the_number_of_clusters():
    data, _ = plant_blocks(n=30)
    model = IRM(base="uniform", restarts=1, sweeps=3, memory=4 * 8 * 4 * 36).fit(data)
    assert model.partition_["person"].max() < 6


def test_parameters_are_checked():
    data, _ = plant_blocks(n=6)
    for wrong in ({"alpha": 0}, {"beta": -1}, {"base": "margin"}, {"restarts": 0}, {"sweeps": 1.5}, {"n_clusters": 0}, {"validation": 0.9}):
        with pytest.raises(ParameterError):
            IRM(**wrong).fit(data)
