"""Multiple relational clustering: the gain of moves, what is recovered, what must not matter, and how work ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from undirected import Domain, Variable
from undirected.data.dataset import Dataset
from undirected.errors import DataError, ParameterError
from undirected.relational.beliefs import spread_states
from undirected.relational.data import Entities, RelationalData
from undirected.relational.measures import score_cells
from undirected.relational.mrc import MRC, find_usual_shares, gather_active, list_predicates, make_task
from undirected.relational.schema import Argument, EntityType
from undirected.relational.symbol_partition import Partition
from undirected.work import Counted, StoppedBy, Work

PENALTY, PSEUDO = 0.7, 0.3


def make_table(name, codes, arguments=None, targets=(), sizes=None):
    sizes = [2] * codes.shape[1] if sizes is None else sizes
    domain = Domain([Variable(f"{name}{v}", tuple(map(str, range(n)))) for v, n in enumerate(sizes)])
    kind = EntityType(name, domain, tuple(Argument(f"a{j}", target) for j, target in enumerate(targets)))
    arguments = np.zeros((len(codes), 0), np.int32) if arguments is None else arguments
    keys = None if targets else tuple(f"{name}{e}" for e in range(len(codes)))
    return Entities(kind, Dataset(domain, codes), arguments, keys)


def list_tuples(n, places):
    return np.stack(np.meshgrid(*[np.arange(n)] * places, indexing="ij"), axis=-1).reshape(-1, places).astype(np.int32)


def draw_data(seed, n=6):
    """Entities with attributes, a second type, pairs and triples of one type, stored links between the two (some twice), cells unknown."""
    rng = np.random.default_rng(seed)

    def draw(rows, sizes):
        return np.stack([rng.integers(-1, k, size=rows) for k in sizes], axis=1)

    links = np.stack([rng.integers(0, n, 15), rng.integers(0, 4, 15)], axis=1).astype(np.int32)
    return RelationalData(
        [
            make_table("thing", draw(n, [2, 3]), sizes=[2, 3]),
            make_table("place", draw(4, [2])),
            make_table("pair", draw(n * n, [2, 4]), list_tuples(n, 2), ("thing", "thing"), [2, 4]),
            make_table("triple", draw(n**3, [2]), list_tuples(n, 3), ("thing",) * 3),
            make_table("stay", draw(15, [2, 2]), links, ("thing", "place")),
        ]
    )


def measure_objective(data, labels_of, penalty=PENALTY, pseudo=PSEUDO):
    """The objective by its definition: one known atom after the other. ``labels_of`` gives the cluster of an entity or predicate."""
    counts = {}
    for table in data.tables:
        targets = [a.target for a in table.type.arguments] or [table.type.name]
        for row in range(len(table)):
            entities = table.arguments[row].tolist() if table.type.arguments else [row]
            for p, (v, state) in enumerate(list_predicates(table)):
                code = table.cells.codes[row, v]
                if code >= 0:
                    places = [labels_of[t][e] for t, e in zip(targets, entities, strict=True)]
                    key = (table.type.name, labels_of["predicates of " + table.type.name][p], *places)
                    true, known = counts.get(key, (0, 0))
                    counts[key] = (true + (code == state), known + 1)
    total = 0.0
    for true, known in counts.values():
        weight = math.log((true + pseudo) / (known - true + pseudo))
        total += true * weight - known * math.log1p(math.exp(weight)) - penalty
    return total


def draw_partition(data, seed, most=3):
    task, rng = make_task(data), np.random.default_rng(seed)
    labels = [rng.integers(most, size=len(s)) for s in task.symbols]
    return task, Partition(task.blocks, labels, PENALTY, PSEUDO), rng


def name_labels(task, partition):
    return dict(zip(task.names, partition.labels, strict=True))


# -- the objective and moves
@pytest.mark.parametrize("seed", range(3))
def test_the_gain_of_every_move_is_the_difference_of_the_objective(seed):
    data = draw_data(seed)
    task, partition, rng = draw_partition(data, seed)
    assert partition.score == pytest.approx(measure_objective(data, name_labels(task, partition)), abs=1e-8)
    for axis, labels in enumerate(partition.labels):
        for old in np.unique(labels).tolist():
            cluster = np.flatnonzero(labels == old)
            groups = [cluster, *cluster[:, None], rng.choice(cluster, max(1, len(cluster) // 2), replace=False)]
            for members in groups:  # a merge, moves of one symbol, a part split off
                stay = partition.score
                shares = partition.collect(axis, members)
                partition.add(shares, old, -1)
                targets = np.arange(partition.room[axis])
                gains = partition.compare(shares, targets)
                partition.add(shares, old)
                assert partition.score == pytest.approx(stay, abs=1e-9)
                for label in targets.tolist():
                    moved = [other.copy() for other in partition.labels]
                    moved[axis][members] = label
                    whole = measure_objective(data, dict(zip(task.names, moved, strict=True)))
                    assert gains[label] - gains[old] == pytest.approx(whole - stay, abs=1e-8)


def test_counts_are_in_order_after_a_search_and_nothing_gains_any_more():
    data = draw_data(3)
    task, partition, rng = draw_partition(data, 3)
    before = partition.score
    partition.climb(rng, Work.start())
    assert partition.score > before
    assert partition.score == pytest.approx(measure_objective(data, name_labels(task, partition)), abs=1e-8)
    again = Partition(task.blocks, partition.labels, PENALTY, PSEUDO)
    for axis in range(len(again.labels)):
        assert not again.sweep(axis, rng, Work.start())
        assert not again.merge(axis, Work.start())


def test_counts_stay_in_order_on_a_walk_over_all_axes():
    data = draw_data(15)
    task, partition, rng = draw_partition(data, 15)
    for step in range(60):
        axis = int(rng.integers(len(partition.labels)))
        symbol = rng.integers(len(partition.labels[axis]), size=1)
        if step % 2:
            partition.put(axis, symbol, int(rng.integers(partition.room[axis])))
        else:
            partition.move(axis, symbol)
    assert partition.score == pytest.approx(measure_objective(data, name_labels(task, partition)), abs=1e-8)


def test_moves_compared_a_few_at_a_time_gain_the_same(monkeypatch):
    _, partition, _ = draw_partition(draw_data(4), 4)
    shares = partition.collect(0, np.array([0]))
    partition.add(shares, int(partition.labels[0][0]), -1)
    whole = partition.compare(shares, np.arange(partition.room[0]))
    monkeypatch.setattr("undirected.relational.symbol_partition.SCRATCH", 1)
    np.testing.assert_array_equal(partition.compare(shares, np.arange(partition.room[0])), whole)


def test_where_there_is_no_room_for_combinations_no_cluster_is_made(monkeypatch):
    monkeypatch.setattr("undirected.relational.symbol_partition.MOST_COMBINATIONS", 30)
    task = make_task(draw_data(5))
    partition = Partition(task.blocks, [np.arange(len(s)) % 2 for s in task.symbols], PENALTY, PSEUDO)
    partition.climb(np.random.default_rng(0), Work.start())
    for axis in range(len(partition.labels)):
        assert len(np.unique(partition.labels[axis])) <= 2


# -- laws
def permute(data, seed):
    """The same data with entities in another order, and where each has gone."""
    rng = np.random.default_rng(seed)
    orders = {t.type.name: rng.permutation(len(t)) for t in data.tables}
    tables = []
    for table in data.tables:
        order = orders[table.type.name]
        arguments = table.arguments[order]
        for j, argument in enumerate(table.type.arguments):
            arguments[:, j] = np.argsort(orders[argument.target])[arguments[:, j]]
        tables.append(Entities(table.type, Dataset(table.type.attributes, table.cells.codes[order]), arguments, None))
    return RelationalData(tables), orders


def test_the_order_of_entities_and_the_numbers_of_clusters_change_nothing():
    data = draw_data(6)
    task, partition, rng = draw_partition(data, 6)
    shuffled, orders = permute(data, 7)
    other = make_task(shuffled)
    numbers = rng.permutation(3)
    labels = [numbers[label[orders[name]] if name in orders else label] for name, label in zip(task.names, partition.labels, strict=True)]
    assert other.names == task.names
    assert Partition(other.blocks, labels, PENALTY, PSEUDO).score == pytest.approx(partition.score, abs=1e-9)


def test_what_stands_in_unknown_cells_has_no_influence():
    truth, hidden_cells = plant_blocks(12, seed=8), np.random.default_rng(8).random((144, 2)) < 0.2
    flipped_codes = np.where(hidden_cells, 1 - truth.tables[1].cells.codes, truth.tables[1].cells.codes)
    flipped = RelationalData([truth.tables[0], make_table("pair", flipped_codes, truth.tables[1].arguments, ("node", "node"))])
    marks = [np.zeros((12, 0), bool), hidden_cells]
    one, other = (MRC(n_hierarchies=1, random_state=4).fit(data.hide(marks)) for data in (truth, flipped))
    assert one.score_ == other.score_
    for first, second in zip(one.predict_proba()[1], other.predict_proba()[1], strict=True):
        np.testing.assert_array_equal(first, second)


# -- weights and predictions by hand
def make_tiny(codes):
    return RelationalData([make_table("thing", np.array(codes))])


def test_weights_and_predictions_of_a_tiny_example_are_those_counted_by_hand():
    data = make_tiny([[1], [1], [1], [0], [-1]])
    model = MRC(penalty=50.0, pseudo=0.5, prior_weight=None, n_hierarchies=1).fit(data)
    (rule,) = model.hierarchies_[0].rules
    assert (rule.type, rule.clusters, rule.true, rule.false) == ("thing", (0, 0), 3, 1)
    assert rule.weight == pytest.approx(math.log(3.5 / 1.5))
    assert model.predict_proba()[0][0][4].tolist() == pytest.approx([1.5 / 5, 3.5 / 5])
    assert model.score_ == pytest.approx(3 * math.log(0.7) + math.log(0.3) - 50)
    drawn = MRC(penalty=50.0, prior_weight=2.0, n_hierarchies=1).fit(data)
    assert drawn.predict_proba()[0][0][4, 1] == pytest.approx((3 + 2 * 3.5 / 5) / (4 + 2))


def test_all_states_of_an_attribute_share_what_is_certain():
    table = make_table("thing", np.array([[0, 2], [1, -1]]), sizes=[2, 3])
    assert list_predicates(table) == [(0, 1), (1, 0), (1, 1), (1, 2)]
    active = gather_active(table, np.array([[0.25, 0.1, 0.2, 0.2], [0.5, 0.3, 0.3, 0.6]]))
    np.testing.assert_allclose(active, [[0.25, 0.4, 0.4], [0.5, 0.25, 0.5]])
    model = MRC(n_hierarchies=2).fit(draw_data(9, n=3))
    for parts in model.predict_proba():
        for part in parts:
            np.testing.assert_allclose(part.sum(axis=1), 1)


def test_the_finest_combination_predicts():
    model = MRC(penalty=0.5, prior_weight=None, n_hierarchies=1, random_state=1).fit(draw_data(10))
    table, expected = model.data_.tables[2], {}

    def walk(clustering):
        for axis in [a for a, name in enumerate(clustering.names) if name == "predicates of pair"]:
            things = [a for a, name in enumerate(clustering.names) if name == "thing"]
            find = [dict(zip(s.tolist(), lab.tolist(), strict=True)) for s, lab in zip(clustering.symbols, clustering.labels, strict=True)]
            rules = {rule.clusters: rule.weight for rule in clustering.rules if rule.type == "pair"}
            for a, b in table.arguments.tolist():
                for p in find[axis]:
                    if a in find[things[0]] and b in find[things[-1]]:
                        key = (find[axis][p], find[things[0]][a], find[things[-1]][b])
                        expected[a, b, p] = rules.get(key, 0.0)
        for inner in clustering.inside:
            walk(inner)

    walk(model.hierarchies_[0])
    assert model.hierarchies_[0].depth > 1
    for row, (a, b) in enumerate(table.arguments.tolist()):
        assert model.chances_[2][row, 0] == pytest.approx(1 / (1 + math.exp(-expected[a, b, 0])))


# -- planted truth
def plant_blocks(n, seed, noise=0.0, groups=3):
    """Nodes of so many groups; whether two are related depends on their groups only, but for noise."""
    rng = np.random.default_rng(seed)
    image = np.stack([np.eye(groups), np.roll(np.eye(groups), 1, axis=1)], axis=2).astype(int)
    group, pairs = np.arange(n) % groups, list_tuples(n, 2)
    codes = image[group[pairs[:, 0]], group[pairs[:, 1]]] ^ (rng.random((n * n, 2)) < noise)
    return RelationalData([make_table("node", np.zeros((n, 0), int)), make_table("pair", codes, pairs, ("node", "node"))])


def test_a_planted_block_model_is_recovered():
    data = plant_blocks(30, seed=1, noise=0.05)
    model = MRC(n_hierarchies=1).fit(data.hide(data.cut_observed(10, 3)[0]))
    expected = [[f"node{e}" for e in range(30) if e % 3 == g] for g in range(3)]
    assert model.list_clusters("node") == expected
    assert model.score(data).auc > 0.88  # of facts that are wrong with chance 0.05
    assert model.score(data).cll > -0.27


def plant_crossing(groups=6, noise=0.02, wide=24, seed=0):
    """Items in a grid: half of the attributes lack one row of it each, the other half have one column of it each."""
    n, rng = 2 * groups**2, np.random.default_rng(seed)
    row, column, kind = np.arange(n) % groups, np.arange(n) // groups % groups, np.arange(wide) % groups
    codes = np.concatenate([row[:, None] != kind, column[:, None] == kind], axis=1) ^ (rng.random((n, 2 * wide)) < noise)
    return RelationalData([make_table("item", codes.astype(int))])


@pytest.mark.parametrize("seed", range(2))
def test_two_clusterings_that_cross_are_predicted_by_clusterings_inside(seed, monkeypatch):
    data = plant_crossing(seed=seed)
    hidden = data.hide(data.cut_observed(10, 0)[0])
    several = MRC(penalty=4.0, n_hierarchies=1).fit(hidden).score(data)
    monkeypatch.setattr("undirected.relational.mrc.cut_combinations", lambda *_: iter([]))
    one = MRC(penalty=4.0, n_hierarchies=1).fit(hidden).score(data)
    assert several.cll > -0.22  # -0.10 for one who knows the groups, -0.47 for one who knows the share of each attribute
    assert several.auc > 0.95
    assert several.cll > one.cll + 0.03


def test_a_few_crossing_groups_are_recovered_as_their_product():
    rng = np.random.default_rng(0)
    first, second = rng.integers(3, size=60), rng.integers(3, size=60)
    codes = np.concatenate([rng.integers(2, size=(3, 12))[group] for group in (first, second)], axis=1) ^ (rng.random((60, 24)) < 0.03)
    data = RelationalData([make_table("item", codes)])
    model = MRC(n_hierarchies=1).fit(data.hide(data.cut_observed(10, 0)[0]))
    assert adjusted_rand_score(model.hierarchies_[0].labels[0], 3 * first + second) > 0.85


def test_a_hidden_fold_of_animals_is_predicted_better_than_by_shares(data_folder):
    data = RelationalData.from_folder(data_folder / "relational" / "animals")
    marks = data.cut_observed(10, 5)[0]
    hidden = data.hide(marks)
    scores = MRC(n_hierarchies=1).fit(hidden).score(data)
    shares = [spread_states(table, gather_active(table, find_usual_shares(table))) for table in hidden.tables]
    usual = score_cells(data, marks, shares)
    assert scores.auc > max(0.70, usual.auc + 0.05)
    assert scores.cll > usual.cll + 0.05


# -- how work ends, and what is refused
def test_seeds_repeat_to_the_bit_and_differ():
    data = draw_data(11, n=4)
    one, same, other = (MRC(random_state=seed, n_hierarchies=2).fit(data) for seed in (1, 1, 2))
    for first, second in zip(one.chances_, same.chances_, strict=True):
        np.testing.assert_array_equal(first, second)
    assert any((first != second).any() for first, second in zip(one.chances_, other.chances_, strict=True))


class Ticks:
    """A clock that moves on by one with every look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


@pytest.mark.parametrize("budget", [0, 30, 300])
def test_at_the_deadline_the_best_so_far_is_kept(budget):
    data = draw_data(12)
    model = MRC().fit(data, work=Work.start(time_budget=budget, clock=Ticks()))
    assert model.stopped_by_ == StoppedBy.TIME
    single = measure_objective(data, dict.fromkeys(make_task(data).names, np.zeros(999, int)), model.penalty, model.pseudo)
    assert model.score_ >= single - 1e-8
    assert all(np.isfinite(part).all() for part in model.chances_)


@pytest.mark.parametrize("after", [1, 5])
def test_an_interrupt_keeps_the_best_so_far(after):
    seen = []

    def interrupt(event):
        seen.append(event)
        if len(seen) == after:
            raise KeyboardInterrupt

    model = MRC(progress=interrupt).fit(draw_data(13))
    assert model.stopped_by_ == StoppedBy.INTERRUPT
    assert all(isinstance(event, Counted) for event in seen)
    assert all(np.isfinite(part).all() for part in model.chances_)


def test_an_interrupt_in_the_middle_of_a_move_leaves_counts_in_order(monkeypatch):
    calls, compare = [], Partition.compare

    def interrupt(self, shares, labels):
        calls.append(0)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return compare(self, shares, labels)

    monkeypatch.setattr(Partition, "compare", interrupt)
    data = draw_data(14)
    model = MRC().fit(data)
    root = model.hierarchies_[0]
    assert model.stopped_by_ == StoppedBy.INTERRUPT
    assert root.score == pytest.approx(measure_objective(data, dict(zip(root.names, root.labels, strict=True)), 1.0, 1.0), abs=1e-8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("penalty", -1),
        ("pseudo", 0),
        ("prior_weight", 0),
        ("n_hierarchies", 0),
        ("n_starts", 1.5),
        ("start_clusters", "many"),
        ("start_inside", 0),
    ],
)
def test_wrong_parameters_are_refused(name, value):
    with pytest.raises(ParameterError, match=name):
        MRC(**{name: value}).fit(draw_data(0))


def test_data_that_cannot_be_clustered_is_refused():
    with pytest.raises(DataError, match="no attribute has two states"):
        MRC().fit(RelationalData([make_table("thing", np.zeros((3, 1), int), sizes=[1])]))
    model = MRC(n_hierarchies=1).fit(make_tiny([[1], [0], [-1]]))
    with pytest.raises(DataError, match="not those that were clustered"):
        model.predict_proba(make_tiny([[1], [0]]))


def test_links_that_lack_an_argument_have_the_share_of_their_predicate():
    arguments = np.array([[0, 0], [0, 1], [1, 0], [1, -1]], np.int32)
    pairs = make_table("pair", np.array([[1], [1], [0], [-1]]), arguments, ("thing", "thing"))
    model = MRC(n_hierarchies=1).fit(RelationalData([make_table("thing", np.zeros((2, 0), int)), pairs]))
    assert model.predict_proba()[1][0][3, 1] == pytest.approx(2.5 / 4)


def test_types_without_predicates_have_no_clusters():
    data = RelationalData([make_table("thing", np.array([[1], [0]])), make_table("other", np.zeros((2, 0), int))])
    model = MRC(n_hierarchies=1).fit(data)
    with pytest.raises(DataError, match="in no clusters"):
        model.list_clusters("other")
    with pytest.raises(DataError, match="no type"):
        model.list_clusters("othre")
