"""Markov networks of relational data against enumeration, explicit matrices, finite differences and published counts."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from relations import build_path_matrix, make_blocks, make_domain, make_entities, make_random
from undirected.data.dataset import Dataset
from undirected.errors import DataError, FormatError, ParameterError
from undirected.kernels import reference
from undirected.relational import RelationalData, TreeRMN
from undirected.relational.beliefs import Beliefs, count_marginals
from undirected.relational.contrastive import ContrastiveDivergence
from undirected.relational.cvi import Statistics, cluster_entities, estimate_weight, measure_gain
from undirected.relational.data import Entities
from undirected.relational.field import RelationalField
from undirected.relational.measures import measure_area, score_cells
from undirected.relational.model_file import load_model, save_model
from undirected.relational.objective import RelationalPseudoLikelihood
from undirected.relational.paths import list_paths
from undirected.relational.schema import Argument, EntityType, Schema
from undirected.relational.templates import Templates
from undirected.relational.wiring import Wiring
from undirected.work import StoppedBy

native = pytest.importorskip("undirected.kernels._native", reason="the compiled kernels are not there")
PUBLISHED_SIZES = {"animals": [3655], "nations": [7812, 21840, 40489], "umls": [1081, 2162, 6440], "kinship": [25, 350, 1625]}


def read_folder(folder, name):
    return RelationalData.from_folder(folder / "relational" / name)


def make_model(data, seed=0, order=2, hidden=None, templates="full"):
    """Templates, wiring, beliefs and random weights; ``hidden`` gives the number of categories of each type."""
    rng = np.random.default_rng(seed)
    templates = Templates(data.schema, order, templates, hidden or ())
    wiring = Wiring(data, templates.paths)
    categories = [np.eye(h + 1)[rng.integers(0, h + 1, len(t)), :h] for h, t in zip(templates.hidden, data.tables, strict=True)]
    return templates, wiring, Beliefs.of(data, categories), 0.3 * rng.normal(size=templates.n_weights)


# -- paths and templates
@pytest.mark.parametrize("name", PUBLISHED_SIZES)
@pytest.mark.filterwarnings("ignore::undirected.errors.TableWarning")
def test_weights_are_as_many_as_the_paper_says(data_folder, name):
    schema = read_folder(data_folder, name).schema
    assert [Templates(schema, order).n_weights for order in range(len(PUBLISHED_SIZES[name]))] == PUBLISHED_SIZES[name]


@pytest.mark.filterwarnings("ignore::undirected.errors.TableWarning")
def test_weights_of_hidden_variables_are_as_many_as_the_paper_says(data_folder):
    concepts, persons = (read_folder(data_folder, name).schema for name in ("umls", "kinship"))
    assert Templates(concepts, 1, "unary", (75, 0)).n_weights == Templates(concepts, 1, "full", (52, 0)).n_weights == 6946
    assert Templates(persons, 1, "full", (11, 0)).n_weights == 900


@given(st.integers(0, 10_000), st.integers(0, 3))
def test_trees_are_closed_under_inversion(seed, order):
    schema = make_random(seed).schema
    trees = {name: list_paths(schema, name, order) for name in schema.names}
    for path in itertools.chain.from_iterable(trees.values()):
        assert path.invert() in trees[path.end]
        assert path.invert().invert() == path


@given(st.integers(0, 10_000), st.integers(0, 4))
def test_sums_along_paths_are_those_of_boolean_matrices(seed, order):
    data = make_random(seed)
    rng = np.random.default_rng(seed)
    values = [rng.random((len(table), 3)) for table in data.tables]
    paths = [path for name in data.schema.names for path in list_paths(data.schema, name, order)]
    wiring = Wiring(data, paths)
    for path in paths:
        expected = build_path_matrix(data, path) @ values[data.schema.index(path.end)]
        assert wiring.add_up(values, path) == pytest.approx(expected, abs=1e-9), path.write(data.schema)


def test_paths_that_lead_to_too_many_pairs_are_refused_by_name():
    data, _ = make_blocks(40)
    paths = list_paths(data.schema, "thing", 3)
    with pytest.raises(DataError, match=r"thing <-\w+- pair -\w+-> thing.*smaller order or allow more memory"):
        Wiring(data, paths, memory=10_000)


# -- objective
@given(st.integers(0, 10_000), st.integers(0, 3), st.sampled_from(["full", "unary"]), st.booleans())
def test_slope_and_curvature_are_those_of_the_value(seed, order, kind, with_hidden):
    data = make_random(seed, unknown=0.2)
    if not data.n_observed:
        return
    hidden = [2] * len(data.schema) if with_hidden else None
    templates, wiring, beliefs, weights = make_model(data, seed, order, hidden, kind)
    objective = RelationalPseudoLikelihood(templates, wiring, beliefs)
    _, gradient, diagonal = objective.evaluate(weights, curvature=True)
    for k in np.random.default_rng(seed).choice(len(weights), min(4, len(weights)), replace=False):
        step = np.zeros(len(weights))
        step[k] = 1e-4
        up, down = objective.evaluate(weights + step), objective.evaluate(weights - step)
        assert gradient[k] == pytest.approx((up[0] - down[0]) / 2e-4, rel=1e-4, abs=1e-5)
        assert diagonal[k] == pytest.approx((up[1][k] - down[1][k]) / 2e-4, rel=1e-4, abs=1e-5)


def test_the_value_is_that_of_the_network_written_out():
    """The pseudo-likelihood of the ground network, whose conditionals are computed by another part of the package."""
    data = make_random(3, n=4, n_links=5)
    model = TreeRMN(order=2, hidden=0, beta=1).fit(data)
    names = dict.fromkeys(model.ground().domain.names)
    states = model.ground_evidence()
    assert states.keys() == names.keys()
    templates = model.templates_
    wiring = Wiring(data, templates.paths)
    value = RelationalPseudoLikelihood(templates, wiring, Beliefs.of(data)).evaluate(model.weights_)[0]
    table = Dataset(model.ground().domain, np.array([[v.index(states[v.name]) for v in model.ground().domain.variables]]))
    assert model.ground().pll(table) == pytest.approx(-value, rel=1e-6)


def test_any_number_of_threads_gives_the_same_bits():
    data, _ = make_blocks(80, seed=2)
    fits = [TreeRMN(order=2, hidden=1, beta=1, threads=n).fit(data.hide(data.cut_observed(10)[0])) for n in (1, 2, 5)]
    assert (fits[0].weights_ == fits[1].weights_).all()
    assert (fits[0].weights_ == fits[2].weights_).all()


# -- inference
@given(st.integers(0, 10_000), st.integers(0, 3))
def test_native_and_numpy_sweeps_are_the_same(seed, order):
    data = make_random(seed, unknown=0.5)
    templates, wiring, beliefs, weights = make_model(data, seed, order, [1] * len(data.schema))
    rng = np.random.default_rng(seed)
    fields = []
    for module in (native, reference):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("undirected.relational.field.backend", lambda m=module: type("B", (), {"module": m}))
            fields.append(RelationalField(templates, wiring, beliefs, weights))
    cells = fields[0].list_cells([np.ones_like(known) for known in beliefs.known])
    rng.shuffle(cells)
    uniform = rng.random(len(cells))
    for _ in range(2):
        assert fields[0].kernel.sweep(cells) == pytest.approx(fields[1].kernel.sweep(cells), rel=1e-9, abs=1e-9)
        assert fields[0].kernel.draw(cells, uniform) == pytest.approx(fields[1].kernel.draw(cells, uniform), abs=1e-9)
        for one, two in zip(fields[0].read().values, fields[1].read().values, strict=True):
            assert one == pytest.approx(two, abs=1e-9)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda f: f.add_type(np.zeros((2, 1)), np.array([0, 2], np.int32), np.zeros((2, 3))), "weights for every active state"),
        (lambda f: f.add_type(np.full((2, 2), np.nan), np.array([0, 2], np.int32), np.zeros((2, 3))), "finite"),
        (lambda f: f.add_type(np.zeros((2, 2)), np.array([1, 2], np.int32), np.zeros((2, 3))), "begin at 0"),
        (lambda f: f.add_reach(7, np.zeros((1, 2)), np.zeros(3, np.int64), np.zeros(0, np.int32)), "no such type"),
        (lambda f: f.add_reach(0, np.zeros((1, 2)), np.array([0, 1, 2], np.int64), np.array([0, 5], np.int32)), "row of sums"),
        (lambda f: f.add_reach(0, np.zeros((1, 2)), np.array([0, 1], np.int64), np.array([0], np.int32)), "every entity"),
        (lambda f: f.add_block(0, 1, 0, 9, 0, -1, None, None), "columns must exist"),
        (lambda f: f.add_block(0, 3, 0, 2, 0, -1, None, None), "fit into the design"),
        (lambda f: f.add_block(0, 1, 0, 2, 0, 4, None, None), "reach must exist"),
        (lambda f: f.add_block(0, 1, 0, 2, 0, -1, np.array([0, 9], np.int32), None), "row of a block"),
        (lambda f: f.add_block(0, 1, 0, 2, 0, -1, None, np.zeros(5, np.uint8)), "every entity of the type"),
        (lambda f: f.set_weights(0, np.full((2, 3), np.inf)), "finite"),
        (lambda f: f.set_weights(0, np.zeros((3, 3))), "keep their number"),
        (lambda f: f.sweep(np.array([[0, 9, 0]], np.int32)), "no such entity"),
        (lambda f: f.sweep(np.array([[0, 0, 5]], np.int32)), "no such attribute"),
        (lambda f: f.sweep(np.array([[0, 0]], np.int32)), "an attribute is"),
        (lambda f: f.sweep(np.array([[0, 0, 2**31 - 1]], np.int32)), "no such attribute"),
        (lambda f: f.add_block(0, 2**63 - 1, 0, 2, 0, -1, None, None), "fit into the design"),
        (lambda f: f.draw(np.array([[0, 0, 0]], np.int32), np.zeros(2)), "a number for every attribute"),
        (lambda f: f.values(-1), "no such type"),
    ],
)
def test_the_native_field_refuses_arrays_that_do_not_fit(call, text):
    field = native.RelationField()
    assert field.add_type(np.zeros((2, 2)), np.array([0, 2], np.int32), np.zeros((2, 3))) == 0
    with pytest.raises(ValueError, match=text):
        call(field)


def measure_free_energy(model, beliefs, data):
    """The free energy of independent attributes under the network written out."""
    network = model.ground(data)
    chances = {}
    for table, values in zip(data.tables, beliefs.values, strict=True):
        ends = np.cumsum(table.type.attributes.n_states - 1)
        for e, name in enumerate(data.list_names(table.type.name)):
            for v, part in enumerate(np.split(values[e, : table.type.n_active], ends[:-1]) if len(ends) else []):
                full = f"{table.type.name}{name if name[0] == '(' else f'({name})'}.{table.type.attributes[v].name}"
                chances[full] = np.append(1 - part.sum(), part)
    energy = 0.0
    domain = network.domain
    for weight, literals in zip(network.weights, network.features, strict=True):
        p = 1.0
        for literal in literals:
            v = int(domain.literal_variable[literal])
            p *= chances[domain[v].name][literal - domain.base[v]]
        energy -= weight * p
    return energy + sum(float((p * np.log(np.where(p > 0, p, 1))).sum()) for p in chances.values())


@pytest.mark.parametrize("seed", range(6))
def test_sweeps_tell_how_much_the_free_energy_changes_and_never_raise_it(seed):
    data = make_random(seed, unknown=0.6, n=3, n_links=4)
    model = TreeRMN(order=3, hidden=0, beta=0.1).fit(data)
    wiring = Wiring(data, model.templates_.paths)
    field = RelationalField(model.templates_, wiring, Beliefs.of(data), 3 * model.weights_)
    model.weights_ = 3 * model.weights_
    cells = field.list_cells([~known for known in field.beliefs.known])
    before = measure_free_energy(model, field.read(), data)
    for _ in range(4):
        fall = field.fall(cells)
        after = measure_free_energy(model, field.read(), data)
        assert fall == pytest.approx(before - after, abs=1e-6)
        assert fall >= -1e-9
        before = after


@pytest.mark.parametrize("seed", range(4))
def test_one_unknown_attribute_is_predicted_as_the_ground_network_says(seed):
    data = make_random(seed, n=3, n_links=4)
    model = TreeRMN(order=3, hidden=1, beta=0.3, beta_cluster=0.01).fit(data)
    for k, table in enumerate(data.tables):
        for e, v in itertools.product(range(len(table)), range(len(table.type.attributes))):
            marks = [np.zeros(t.cells.codes.shape, bool) for t in data.tables]
            marks[k][e, v] = True
            hidden = data.hide(marks)
            evidence = model.ground_evidence(hidden)
            network = model.ground(hidden)
            (name,) = set(network.domain.names) - evidence.keys()
            answer = list(network.query(evidence, variables=[name], method="enumeration")[name].values())
            assert model.predict_proba(hidden)[k][v][e] == pytest.approx(answer, abs=1e-6)


def test_gibbs_sampling_agrees_with_the_ground_network():
    data = make_random(11, n=4, n_links=6)
    model = TreeRMN(order=2, hidden=0, beta=1, inference="gibbs", random_state=1).fit(data)
    rng = np.random.default_rng(0)
    hidden = data.hide([rng.random(t.cells.codes.shape) < 0.4 for t in data.tables])
    evidence = model.ground_evidence(hidden)
    answer = model.ground(hidden).query(evidence, method="junction-tree")
    predicted = model.predict_proba(hidden)
    seen = 0
    for k, table in enumerate(hidden.tables):
        for e, v in zip(*np.nonzero(table.cells.codes < 0), strict=True):
            name = data.list_names(table.type.name)[e]
            full = f"{table.type.name}{name if name[0] == '(' else f'({name})'}.{table.type.attributes[int(v)].name}"
            assert predicted[k][int(v)][e] == pytest.approx(list(answer[full].values()), abs=0.12)
            seen += 1
    assert seen > 3


# -- contrastive divergence
def test_contrastive_divergence_is_never_negative_and_its_counts_are_those_of_the_network():
    data = make_random(5, unknown=0.3, n=4, n_links=5)
    templates, wiring, beliefs, weights = make_model(data, 5, 2)
    objective = ContrastiveDivergence(templates, wiring, beliefs)
    for scale in (0.1, 1, 10):
        assert objective.evaluate(scale * weights)[0] >= 0
    model = TreeRMN(order=2, hidden=0, beta=1).fit(data)
    counts = objective.count_features(beliefs)
    for k in range(0, templates.n_weights, 7):
        model.weights_ = np.eye(templates.n_weights)[k]
        entropy = measure_free_energy_without_features(beliefs, data)
        assert counts[k] == pytest.approx(-(measure_free_energy(model, beliefs, data) - entropy), abs=1e-6)


def measure_free_energy_without_features(beliefs, data):
    total = 0.0
    for table, values in zip(data.tables, beliefs.values, strict=True):
        ends = np.cumsum(table.type.attributes.n_states - 1)
        for part in np.split(values[:, : table.type.n_active], ends[:-1], axis=1) if len(ends) else []:
            p = np.concatenate([1 - part.sum(axis=1, keepdims=True), part], axis=1)
            total += float((p * np.log(np.where(p > 0, p, 1))).sum())
    return total


def test_contrastive_divergence_learns_to_predict():
    data, _ = make_blocks(12, n_relations=3, seed=1)
    hidden = data.hide(data.cut_observed(5)[0])
    settings = [{"templates": "unary"}, {"objective": "cd1", "order": 1}, {"objective": "pl", "order": 1}]
    alone, contrastive, pseudo = (TreeRMN(hidden=0, beta=1, **s).fit(hidden).score(data).cll for s in settings)
    assert contrastive > alone + 0.5 * (pseudo - alone) > alone


# -- hidden variables
@given(st.floats(-20, 20), st.floats(0, 20), st.floats(0, 2), st.floats(0.1, 10))
def test_gain_and_weight_are_those_of_a_one_dimensional_maximum(error, variance, l1, beta):
    def loss(w):
        return error * w + (variance + beta) * w * w / 2 + l1 * abs(w)

    best = minimize_scalar(loss, bounds=(-300, 300), method="bounded", options={"xatol": 1e-9})
    gain, weight = (
        measure_gain(np.array(error), np.array(variance), l1, beta),
        estimate_weight(np.array(error), np.array(variance), l1, beta),
    )
    assert gain == pytest.approx(max(-best.fun, 0), abs=1e-5 * (1 + abs(best.fun)))
    assert loss(float(weight)) <= best.fun + 1e-6 * (1 + abs(best.fun))


@given(st.integers(0, 10_000), st.integers(2, 14), st.booleans())
def test_merging_is_the_plain_algorithm(seed, n, move):
    """Algorithm 2 by its words: at each turn all pairs, the best of which is merged."""
    rng = np.random.default_rng(seed)
    error, variance = rng.normal(size=(n, 5)) * 3, rng.random((n, 5))

    def measure(members):
        return measure_gain(error[members].sum(axis=0), variance[members].sum(axis=0), 0.1, 1.0).sum()

    clusters = [[i] for i in range(n)]
    while len(clusters) > 1:
        rises = {
            (i, j): measure(clusters[i] + clusters[j]) - measure(clusters[i]) - measure(clusters[j])
            for i, j in itertools.combinations(range(len(clusters)), 2)
        }
        (i, j), best = max(rises.items(), key=lambda item: item[1])
        if not best > 0:
            break
        clusters = [c for k, c in enumerate(clusters) if k not in (i, j)] + [clusters[i] + clusters[j]]
    found = cluster_entities(Statistics(error, variance), 0.1, 1.0, move)
    groups = {frozenset(np.flatnonzero(found.of == k).tolist()) for k in range(len(found.gains))}
    if move:
        assert found.gains.sum() >= sum(measure(c) for c in clusters) - 1e-9
    else:
        assert groups == {frozenset(c) for c in clusters if measure(c) > 0}
    assert found.gains == pytest.approx([measure(np.flatnonzero(found.of == k)) for k in range(len(found.gains))])


@pytest.mark.parametrize("templates", ["full", "unary"])
def test_planted_groups_are_found(templates):
    data, group = make_blocks(30, 3, 6, seed=4)
    model = TreeRMN(order=1, hidden=1, beta=1, beta_cluster=10, templates=templates).fit(data.hide(data.cut_observed(10)[0]))
    (found,) = model.hidden_
    for k in range(3):
        assert len(set(found.of[group == k].tolist())) == 1  # nobody is apart from their group
    assert len(set(found.of.tolist())) == 3


def test_validation_stops_where_hidden_variables_do_not_help():
    rng = np.random.default_rng(0)
    data, _ = make_blocks(24, 1, 4, seed=0, noise=0.5)  # noise alone
    assert len(TreeRMN(order=1, hidden="auto", beta=1).fit(data).hidden_) <= 1
    planted, _ = make_blocks(24, 4, 6, seed=int(rng.integers(9)))
    assert TreeRMN(order=1, hidden="auto", beta=1, beta_cluster=10).fit(planted).hidden_


def test_categories_tell_entities_and_features():
    data, group = make_blocks(30, 3, 6, seed=4)
    model = TreeRMN(order=1, hidden=1, beta=1, beta_cluster=10).fit(data)
    categories = model.describe_categories(3)
    told = {e for c in categories for e in c.entities}
    assert all(len({group[int(e)] for e in c.entities}) == 1 for c in categories)
    assert len(told) >= 20
    for category in categories:
        assert len(category.positive) <= 3
        assert all(weight > 0 for _, weight in category.positive)
        assert all("thing <-" in text for text, _ in category.positive + category.negative)


# -- laws
def rearrange(data, rng):
    """The same data with the entities of each type in another order and under other names."""
    orders = [rng.permutation(len(table)) for table in data.tables]
    places = [np.append(np.argsort(order), -1) for order in orders]
    tables = []
    for table, order in zip(data.tables, orders, strict=True):
        targets = [data.schema.index(a.target) for a in table.type.arguments]
        named = table.arguments[order]
        columns = [places[target][named[:, k]] for k, target in enumerate(targets)]
        arguments = np.stack(columns, axis=1).astype(np.int32) if columns else named
        keys = None if table.keys is None else tuple(f"new {table.keys[e]}" for e in order)
        tables.append(Entities(table.type, Dataset(table.type.attributes, table.cells.codes[order]), arguments, keys))
    return RelationalData(tables), orders


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_other_orders_and_names_of_entities_change_nothing(seed):
    data = make_random(seed, unknown=0.2, n=8, n_links=14)
    other, orders = rearrange(data, np.random.default_rng(seed))
    settings = {"order": 2, "hidden": 1, "l1": 0.01, "beta": 1, "beta_cluster": 0.1, "tol": 1e-9, "inference": "mean-field"}
    fits = [TreeRMN(**settings).fit(d) for d in (data, other)]
    assert fits[0].outcome_.objective == pytest.approx(fits[1].outcome_.objective, rel=1e-7)
    for one, two, order in zip(fits[0].predict_proba(), fits[1].predict_proba(), orders, strict=True):
        for a, b in zip(one, two, strict=True):
            assert a[order] == pytest.approx(b, abs=5e-3)


def test_hidden_attributes_do_not_influence_what_is_learned():
    data, _ = make_blocks(12, 2, 3, seed=3)
    marks = data.cut_observed(5, seed=1)[2]
    turned = RelationalData(
        [
            Entities(t.type, Dataset(t.type.attributes, np.where(m, 1 - t.cells.codes, t.cells.codes)), t.arguments, t.keys)
            for t, m in zip(data.tables, marks, strict=True)
        ]
    )
    fits = [TreeRMN(order=2, hidden="auto").fit(d.hide(marks)) for d in (data, turned)]
    assert (fits[0].weights_ == fits[1].weights_).all()


def test_folds_hide_each_known_attribute_once():
    data = make_random(2, unknown=0.3)
    folds = data.cut_observed(4, seed=9)
    for k, table in enumerate(data.tables):
        total = sum(fold[k].astype(int) for fold in folds)
        assert (total == (table.cells.codes >= 0)).all()
    assert [sum(int(m.sum()) for m in fold) for fold in folds] == [len(p) for p in np.array_split(np.arange(data.n_observed), 4)]


# -- published and closed-form values
def test_kinship_without_pairs_has_the_scores_of_its_frequencies(data_folder):
    """The entropy of the frequencies is 2.963; those of nine parts predict the tenth a little worse, and shrunken ones more so."""
    data = read_folder(data_folder, "kinship")
    codes = data["pair"].cells.codes.ravel()
    shares = np.bincount(codes[codes >= 0]) / (codes >= 0).sum()
    entropy = -float(shares @ np.log(shares))
    assert entropy == pytest.approx(2.963, abs=0.0005)
    parts = [TreeRMN(order=0, hidden=0, beta=0.001).fit(data.hide(marks)).score(data) for marks in data.cut_observed(10, seed=0)]
    assert np.mean([s.cll for s in parts]) == pytest.approx(-entropy - 25 / (2 * 0.9 * (codes >= 0).sum()), abs=0.003)
    assert np.mean([s.auc for s in parts]) == pytest.approx(0.078, abs=0.001)


def test_scores_are_those_of_their_definitions():
    domain = make_domain([2, 3])
    kind = EntityType("thing", domain)
    data = RelationalData([Entities(kind, Dataset(domain, np.array([[1, 2], [0, 0]])), np.zeros((2, 0), np.int32))])
    chances = [[np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([[0.2, 0.3, 0.5], [1e-9, 0.5, 0.5]])]]
    everything = [np.ones((2, 2), bool)]
    found = score_cells(data, everything, chances)
    assert found.cll == pytest.approx(np.mean(np.log([0.75, 1.0, 0.5, 1e-6])))
    atoms = np.array([0.75, 0, 0.2, 0.3, 0.5, 1e-9, 0.5, 0.5])
    hits = np.array([1, 0, 0, 0, 1, 1, 0, 0])
    likely = np.clip(np.where(hits > 0, atoms, 1 - atoms), 1e-6, 1)
    assert found.binary_cll == pytest.approx(np.log(likely).mean())
    assert found.auc == pytest.approx(measure_area(hits, atoms))
    assert np.isnan(score_cells(data, [np.zeros((2, 2), bool)], chances).cll)


# -- files
def test_a_model_survives_its_file(tmp_path):
    data, _ = make_blocks(15, 3, 4, seed=1)
    hidden = data.hide(data.cut_observed(5)[0])
    model = TreeRMN(order=2, hidden=2, beta=1, beta_cluster=5).fit(hidden)
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    for one, two in zip(model.predict_proba(), again.predict_proba(hidden), strict=True):
        for a, b in zip(one, two, strict=True):
            assert (a == b).all()
    assert [c.entities for c in again.describe_categories()] == [c.entities for c in model.describe_categories()]
    with pytest.raises(DataError, match="holds no data"):
        again.predict_proba()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tree: tree.pop("weights"),
        lambda tree: tree["weights"].append(1.0),
        lambda tree: tree["weights"].__setitem__(0, "x"),
        lambda tree: tree.update(weights={"a": 1}),
        lambda tree: tree["hidden"][0].update(n_categories=10**30),
        lambda tree: tree["hidden"][0]["of"].__setitem__(0, 99),
        lambda tree: tree["hidden"][0].update(type="nobody"),
        lambda tree: tree["types"][1]["arguments"][0].__setitem__(1, "nobody"),
        lambda tree: tree["types"].clear(),
        lambda tree: tree["types"].append(tree["types"][0]),
        lambda tree: tree["settings"].update(order=10**9),
        lambda tree: tree["settings"].update(order="1"),
        lambda tree: tree["settings"].update(templates="none"),
        lambda tree: tree["marginals"][1].pop(),
        lambda tree: tree["marginals"].__setitem__(1, [2.0] * len(tree["marginals"][1])),
        lambda tree: tree.update(version=2),
        lambda tree: tree.update(format="other"),
        lambda tree: tree.update(beta=[]),
    ],
)
def test_damaged_models_are_refused_in_a_sentence(tmp_path, spoil):
    data, _ = make_blocks(8, 2, 2)
    file = tmp_path / "model.json"
    save_model(TreeRMN(order=1, hidden=1, beta=1, beta_cluster=1).fit(data), file)
    tree = json.loads(file.read_text())
    assert tree["hidden"]
    spoil(tree)
    file.write_text(json.dumps(tree))
    with pytest.raises(FormatError, match=r"model\.json"):
        load_model(file)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": "undirected-relational", "weights": [NaN]}', b"[" * 100_000]
)
def test_files_that_are_no_models_are_refused(tmp_path, content):
    file = tmp_path / "x.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json"):
        load_model(file)


# -- wrong use
def test_wrong_settings_are_refused_by_name():
    data, _ = make_blocks(6, 2, 2)
    for settings, text in [
        ({"order": -1}, "order=-1"),
        ({"order": 99}, "order=99"),
        ({"hidden": "many"}, "hidden='many'"),
        ({"templates": "some"}, "templates='some'"),
        ({"objective": "ml"}, "objective='ml'"),
        ({"beta": -1}, "beta=-1"),
        ({"l1": float("nan")}, "l1=nan"),
        ({"inference": "bp"}, "inference='bp'"),
        ({"rounds": 0}, "rounds=0"),
        ({"beta": float("inf")}, "beta=inf"),
    ]:
        with pytest.raises(ParameterError, match=text):
            TreeRMN(**settings).fit(data)
    with pytest.raises(DataError, match=r"no type 'thnig'.*'thing'"):
        TreeRMN(hidden_types=["thnig"]).fit(data)
    with pytest.raises(DataError, match="relational data is needed"):
        TreeRMN().fit(np.zeros((3, 3)))
    with pytest.raises(DataError, match="every attribute is unknown"):
        TreeRMN().fit(data.hide([np.ones(t.cells.codes.shape, bool) for t in data.tables]))


def test_data_of_other_types_is_refused():
    data, _ = make_blocks(6, 2, 2)
    model = TreeRMN(order=1, hidden=0, beta=1).fit(data)
    more, _ = make_blocks(6, 2, 3)
    with pytest.raises(DataError, match="not learned from"):
        model.predict_proba(more)
    fewer, _ = make_blocks(6, 2, 1)
    with pytest.raises(DataError, match="has no attribute 'a1'"):
        model.predict_proba(fewer)


def test_types_that_refer_to_each_other_in_a_circle_are_refused():
    empty = make_domain([])
    with pytest.raises(DataError, match="a -> b -> a"):
        Schema([EntityType("a", empty, (Argument("x", "b"),)), EntityType("b", empty, (Argument("y", "a"),))])
    Schema([EntityType("employee", empty, (Argument("manager", "employee"),))])


def test_types_without_entities_are_learned_around():
    rng = np.random.default_rng(0)
    people = make_entities("person", [2], 5, [], rng)
    towns = make_entities("town", [2], 0, [], rng)
    links = make_entities("visit", [2], 7, [("who", "person")], rng, targets={"person": 5}, keys=False)
    empty = np.full((7, 1), -1, np.int32)
    kind = EntityType("visit", links.type.attributes, (*links.type.arguments, Argument("where", "town")))
    data = RelationalData([people, towns, Entities(kind, links.cells, np.concatenate([links.arguments, empty], axis=1))])
    model = TreeRMN(order=2, hidden=1, beta=0.1, beta_cluster=0.01).fit(data)
    assert {h.type for h in model.hidden_} <= {"person"}
    assert TreeRMN(order=2).fit(data).hidden_ == []  # too little is known to judge by


@pytest.mark.parametrize("order", [1, 2, 3])
def test_an_attribute_that_is_never_known_keeps_even_chances_and_says_nothing(order):
    data, _ = make_blocks(10, 2, 3, seed=1)
    marks = [np.zeros(t.cells.codes.shape, bool) for t in data.tables]
    marks[1][:, 1] = True
    model = TreeRMN(order=order, hidden=0, beta=1).fit(data.hide(marks))
    assert model.predict_proba()[1][1] == pytest.approx(np.full((90, 2), 0.5), abs=1e-6)
    touched = model.templates_.mark_weights([np.zeros(0, bool), np.array([False, True, False])])
    assert (model.weights_[touched] == 0).all()
    assert (model.weights_[~touched] != 0).any()


def test_a_model_reads_new_data_with_its_own_states(tmp_path):
    """Bins and states are those of the model, though the new tables would make others."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"name": [f"p{k}" for k in range(40)], "age": rng.normal(40, 12, 40), "town": rng.choice(["x", "y", "z"], 40)})
    first = RelationalData.from_frames({"person": (people, "name")})
    model = TreeRMN(order=0, hidden=1, beta=1, beta_cluster=0.1).fit(first)
    later = pd.DataFrame({"name": ["p1", "new"], "age": [200.0, None], "town": ["y", "w"]})
    with pytest.warns(UserWarning, match="1 cells hold states that the network does not know"):
        data = RelationalData.from_frames({"person": (later, "name")}, like=model.schema_)
    assert data.schema == model.schema_
    assert data["person"].cells.codes.tolist() == [[3, 1], [-1, -1]]
    assert model.predict_proba(data)[0][1][1].sum() == pytest.approx(1)
    with pytest.raises(DataError, match="has the states"):
        model.predict_proba(RelationalData.from_frames({"person": (people.assign(age=people["age"] + 1), "name")}))


def test_a_time_budget_gives_the_best_so_far():
    data, _ = make_blocks(40, 4, 6, seed=1)
    model = TreeRMN(order=2, hidden="auto", time_budget=1e-9).fit(data)
    assert model.stopped_by_ is StoppedBy.TIME
    assert np.isfinite(model.predict_proba()[1][0]).all()


def test_ctrl_c_gives_the_best_so_far():
    data, _ = make_blocks(30, 3, 6, seed=1)
    calls = 0

    def press(event):
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    model = TreeRMN(order=2, hidden=3, beta=1, progress=press).fit(data)
    assert model.stopped_by_ is StoppedBy.INTERRUPT
    assert np.isfinite(model.weights_).all()


def test_data_with_one_entity_or_one_state_is_learned():
    rng = np.random.default_rng(0)
    alone = RelationalData([make_entities("thing", [2, 1, 3], 1, [], rng)])
    assert TreeRMN(order=2).fit(alone).predict_proba()[0][2].sum() == pytest.approx(1)
    constant = RelationalData([make_entities("thing", [1], 4, [], rng)])
    assert TreeRMN().fit(constant).predict_proba()[0][0] == pytest.approx(np.ones((4, 1)))


def test_marginals_count_known_attributes_only():
    domain = make_domain([2, 3])
    table = Entities(EntityType("t", domain), Dataset(domain, np.array([[1, -1], [0, 2], [1, 2], [-1, 0]])), np.zeros((4, 0), np.int32))
    assert count_marginals(table, pseudo=0) == pytest.approx([2 / 3, 0, 2 / 3])
