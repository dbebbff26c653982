"""Trees, their features, and the dependency network they make."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from clocks import Clock
from strategies import domains, tables
from undirected import (
    BUSL,
    DTBLM,
    DTL1,
    DTSL,
    GSSL,
    L1,
    DataError,
    Dataset,
    DependencyNetwork,
    Domain,
    FeatureSet,
    MarkovNetwork,
    ParameterError,
    Unconverged,
    Variable,
    read_data,
    tune,
)
from undirected.errors import GenerationStopped
from undirected.kernels import backend, reference
from undirected.structure import dtsl
from undirected.structure.dtsl import CONVERSIONS, KAPPAS, convert
from undirected.structure.trees import Trees, grow_trees
from undirected.work import Work


def shape(trees: Trees, t: int, node: int = 0):
    """A tree as nested tuples: test, rounded gain, counts, branches."""
    n = trees.start[t] + node
    counts = tuple(np.round(trees.count[trees.count_start[n] : trees.count_start[n + 1]], 6))
    if trees.test[n] < 0:
        return (-1, counts)
    return (int(trees.test[n]), round(float(trees.gain[n]), 6), counts, shape(trees, t, trees.yes[n]), shape(trees, t, trees.no[n]))


def grown_by(module, data, min_rows, kappa):
    targets = np.flatnonzero(data.domain.n_states > 1).astype(np.int32)
    codes = np.ascontiguousarray(data.codes.T, dtype=np.int16)
    args = (codes, data.domain.n_states.astype(np.int32), data.weights, targets, min_rows, -np.log(kappa), 2, lambda done: True)
    return Trees(data.domain, targets, *module.grow_trees(*args))


@given(st.data(), st.sampled_from([1, 2, 5.5]), st.sampled_from([0.3, 1.0]))
def test_native_equals_reference(draw, min_rows, kappa):
    table = draw.draw(tables(draw.draw(domains())))
    ours, truth = (grown_by(module, table, min_rows, kappa) for module in (backend().module, reference))
    assert [shape(ours, t) for t in range(len(ours))] == [shape(truth, t) for t in range(len(truth))]
    weight, terms = ours.walk(table)
    for mine, theirs in zip((weight, terms), _reference_walk(ours, table), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    np.testing.assert_allclose(weight, ours.count, atol=1e-9)  # the training rows pass where they were counted


def _reference_walk(trees, table):
    codes = np.ascontiguousarray(table.codes.T, dtype=np.int16)
    nodes = (trees.targets, trees.start, trees.test, trees.yes, trees.no, trees.count_start, trees.log_probability)
    return reference.walk_trees(codes, table.domain.n_states, table.weights, *nodes, 1)


@pytest.fixture(scope="module")
def planted():
    """C is A and B with noise; D has three states and follows C; E is alone."""
    rng = np.random.default_rng(5)
    a, b, e = rng.integers(0, 2, size=(3, 4000))
    c = np.where(rng.random(4000) < 0.9, a & b, 1 - (a & b))
    d = np.where(rng.random(4000) < 0.8, 2 * c, rng.integers(0, 3, size=4000))
    variables = [Variable(name, ("0", "1")) for name in "ABC"] + [Variable("D", ("x", "y", "z")), Variable("E", ("0", "1"))]
    return Dataset(Domain(variables), np.stack([a, b, c, d, e], axis=1))


@pytest.mark.parametrize("kappa", KAPPAS)
def test_cutting_equals_growing_less(planted, kappa):
    cut, grown = grow_trees(planted).cut(kappa), grow_trees(planted, kappa=kappa)
    assert [shape(cut, t) for t in range(5)] == [shape(grown, t) for t in range(5)]


def test_kappa_is_chosen_by_the_likelihood_of_the_cut_trees(planted):
    train, valid = planted.subset(np.arange(3000)), planted.subset(np.arange(3000, 4000))
    trees = grow_trees(train)
    kappa, values = trees.choose_kappa(KAPPAS, valid)
    expected = [DependencyNetwork(trees.cut(k)).pll(valid) for k in KAPPAS]
    np.testing.assert_allclose(values, expected, atol=1e-9)
    assert kappa == KAPPAS[int(np.argmax(expected))]


def test_leaves_are_smoothed_shares(planted):
    trees = grow_trees(planted, min_rows=3000)  # no split leaves that many on both sides: one leaf each
    assert trees.n_leaves == 5
    for t, v in enumerate(trees.targets):
        counts = np.bincount(planted.codes[:, v], minlength=planted.domain.n_states[v])
        at = slice(trees.count_start[t], trees.count_start[t + 1])
        np.testing.assert_allclose(np.exp(trees.log_probability[at]), (counts + 1 / len(counts)) / (counts.sum() + 1))


def test_a_planted_triple_is_found_and_noise_is_not(planted):
    """4,000 rows: the interaction of A and B on C is far above, and a link to E far below, -log(0.001)."""
    learner = DTSL(conversion="default", kappa=1e-3).fit(planted)
    texts = set(learner.network_.features.texts())
    assert {"A=1 & B=1 & C=1", "A=1 & B=1 & C=0"} <= {" & ".join(sorted(t.split(" & ")[:3])) for t in texts}
    assert [t for t in texts if "E=" in t] == ["E=1"] or {t for t in texts if "E=" in t} == {"E=0", "E=1"}
    assert "A=1" in learner.trees_.text("C")
    assert learner.trees_.text("E").count("\n") == 1


def test_conversions_relate_as_the_paper_says(planted):
    trees = grow_trees(planted)
    sets = {name: set(convert(trees, name)) for name in CONVERSIONS}
    assert sets["default"] < sets["prune"]
    assert sets["prune-5"] <= sets["prune-10"] <= sets["prune"]
    assert max(len(f) for f in sets["prune-5"]) <= 5
    base, n = planted.domain.base, planted.domain.n_literals
    for feature in sets["nonzero"]:
        assert all(not (x < n and x in base) for x in feature)  # no literal on a first state
    dropped = {tuple(x for x in f if x < n and x not in base) for f in sets["default"] if all(x < n for x in f)}
    assert dropped - {()} <= sets["nonzero"]


@pytest.mark.parametrize(
    ("name", "file", "conversion"),
    [
        ("nltcs", "fixtures/nltcs.nonzero.mn", "nonzero"),
        ("nltcs", "fixtures/nltcs.default.mn", "default"),
        ("dna", "fixtures/dna.nonzero.mn", "nonzero"),
        ("dna", "features/dna.default.mn", "default"),
        ("plants", "features/plants.nonzero.mn", "nonzero"),
        ("accidents", "features/accidents.nonzero.mn", "nonzero"),
        ("bnetflix", "features/bnetflix.nonzero.mn", "nonzero"),
    ],
)
def test_features_equal_those_of_the_papers_program(name, file, conversion, spec_folder):
    network = MarkovNetwork.load(spec_folder / file)
    train = read_data(name, domain=network.domain)
    atoms = FeatureSet.atomic(train.domain)
    ours = set(convert(grow_trees(train, kappa=0.01), conversion).union(atoms))
    theirs = set(network.features)
    assert theirs <= ours
    assert all(len(feature) == 1 for feature in ours - theirs)  # ours adds the atomic features


def test_same_for_any_number_of_threads_and_for_repeated_rows(planted):
    one, three = (grow_trees(planted, work=Work.start(threads=n)) for n in (1, 3))
    doubled = grow_trees(Dataset(planted.domain, planted.codes, np.full(4000, 2.0)))
    repeated = grow_trees(Dataset(planted.domain, np.repeat(planted.codes, 2, axis=0)))
    for t in range(5):
        assert shape(one, t) == shape(three, t)
        assert shape(doubled, t) == shape(repeated, t)


def test_bad_parameters_and_tables(planted):
    for wrong in ({"conversion": "nozero"}, {"kappa": 0}, {"kappa": 2.0}, {"kappa": "best"}, {"min_rows": 0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            DTSL(**wrong).fit(planted)
    other = Dataset(Domain([Variable("A", ("0", "1"))]), np.zeros((2, 1), dtype=int))
    with pytest.raises(DataError, match="different domains"):
        grow_trees(planted).walk(other)
    missing = Dataset(planted.domain, np.where(planted.codes == 2, -1, planted.codes))
    with pytest.raises(DataError, match="missing"):
        grow_trees(missing)


def test_trees_that_time_did_not_suffice_for_are_single_leaves(planted):
    whole = grow_trees(planted)
    cut = grow_trees(planted, work=Work.start(threads=1, time_budget=1.5, clock=Clock(step=1)))  # time for one piece of work
    assert whole.finished
    assert not cut.finished
    assert not cut.cut(0.5).finished
    for t in range(len(whole)):
        ours, theirs = (slice(trees.start[t], trees.start[t + 1]) for trees in (cut, whole))
        if t < 2:
            assert cut.test[ours].tolist() == whole.test[theirs].tolist()
        else:
            root = cut.count_start[cut.start[t]]
            states = planted.domain.n_states[cut.targets[t]]
            assert cut.test[ours].tolist() == [-1]
            counts = np.bincount(planted.codes[:, cut.targets[t]], minlength=states)
            assert cut.count[root : root + states].tolist() == counts.tolist()
    assert convert(cut, "prune").lengths.max() > 1


class SharedOutLate(Work):
    """Work that has time left, but whose shares are over when they are made."""

    def share(self, part):
        return replace(self, deadline=self.now() - 1)


@pytest.mark.parametrize("learner", [DTSL(), L1(), L1(C=1.0), DTL1(), DTBLM()])
def test_a_budget_that_ends_among_the_trees_or_regressions_is_said(planted, learner, tmp_path):
    """Whatever time there is for the weights; and nothing of it is taken up by a later run that has the time."""
    train, valid = planted.subset(np.arange(2000)), planted.subset(np.arange(2000, 4000))
    grid = {"sd": [1.0]}
    late = SharedOutLate.start(time_budget=np.float64(60))
    with pytest.warns(Unconverged):
        assert clone(learner).fit(planted, work=late).fit_.stopped_by == "time"
    assert not tune(learner, grid, train, valid, ledger=tmp_path / "a", work=late).complete
    again, fresh = (tune(learner, grid, train, valid, ledger=tmp_path / name) for name in "ab")
    assert again.complete
    assert again.features == fresh.features


@pytest.mark.parametrize("learner", [DTSL(), L1(), DTL1(), DTBLM(), BUSL(), GSSL(n_generated=2000)])
def test_a_finished_ledger_gives_back_the_whole_learner(planted, learner, tmp_path):
    train, valid = planted.subset(np.arange(2000)), planted.subset(np.arange(2000, 4000))
    grid = {"sd": [1.0]}
    first = tune(learner, grid, train, valid, ledger=tmp_path / "a").learner
    late = clone(learner).set_params(time_budget=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)
        again = tune(late, grid, train, valid, ledger=tmp_path / "a")
    assert again.learner.network_.features == again.features == first.network_.features
    assert {*vars(again.learner)} == {*vars(first)}


def test_a_tuned_learner_has_the_attributes_of_a_fitted_one(planted):
    for grid in ({"C": [0.5, 0.05]}, {"C": ["ebic"]}):
        tuned = tune(L1(), grid, planted, planted).learner
        fitted = clone(tuned).fit(planted)
        assert hasattr(tuned, "path_") == hasattr(fitted, "path_")
        if hasattr(fitted, "path_"):
            assert tuned.path_.penalties == fitted.path_.penalties
        assert (tuned.picked_ == fitted.picked_).all()


@pytest.mark.parametrize("learner", [DTSL(threads=-1), L1(threads=0), DTL1(threads=-3)])
def test_no_threads_are_an_error(planted, learner):
    with pytest.raises(ParameterError, match="threads"):
        learner.fit(planted)
    with pytest.raises(ParameterError, match="threads"):
        tune(learner, {"sd": [1.0]}, planted)


def test_pieces_of_work_make_the_same_trees(planted):
    few, many = (grow_trees(planted, work=Work.start(threads=n)) for n in (1, 64))
    assert few.start.tolist() == many.start.tolist()
    assert few.test.tolist() == many.test.tolist()
    assert few.count_start.tolist() == many.count_start.tolist()
    assert few.count.tolist() == many.count.tolist()


@pytest.mark.parametrize("grid", [{"kappa": ["x"]}, {"kappa": [2.0]}, {"conversion": ["flat"]}])
def test_bad_values_in_a_grid_are_named(planted, grid):
    with pytest.raises(ParameterError, match=str(next(iter(grid.values()))[0])):
        tune(DTSL(), grid, planted)


@given(st.data(), st.integers(1, 60), st.sampled_from(CONVERSIONS))
def test_splits_that_gain_least_leave_until_the_features_are_few_enough(draw, most, conversion):
    table = draw.draw(tables(draw.draw(domains())))

    def propose(limit):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GenerationStopped)
            structure = DTSL(kappa=1.0, min_rows=1, max_features=limit, conversion=conversion).propose(table, Work.start())
        return structure.features, structure.learned["trees_"], structure.learned["kappa_"]

    def count(trees):  # one feature for each state of a node, equal ones counted each
        nodes = np.ones(len(trees.test), bool) if conversion.startswith("prune") else trees.test < 0
        nodes &= trees.depth < {"prune-10": 10, "prune-5": 5}.get(conversion, 1000)
        return int(table.domain.n_states[trees.targets][trees.tree][nodes].sum())

    (all_features, whole, _), (features, trees, kappa) = propose(None), propose(most)
    assert len(features) <= count(trees) <= max(most, int(table.domain.n_states[trees.targets].sum()))
    assert (kappa < 1.0) == (count(whole) > most and len(trees.test) < len(whole.test))
    assert np.array_equal(whole.cut(kappa).test, trees.test)  # kappa_ gives the same trees back
    if conversion.startswith("prune"):
        assert set(features) <= set(all_features)
    if kappa < 1.0:  # the next splits that were left out gain what was asked for, and would have been too many
        assert count(whole.cut_at(-np.log(kappa) * (1 - 1e-9))) > most


@pytest.mark.parametrize("conversion", ["prune", "default"])
def test_rows_that_contexts_hold_in_decide_how_many_features_can_be_weighed(planted, monkeypatch, conversion):
    whole = DTSL(kappa=1.0).propose(planted, Work.start()).learned["trees_"]
    states = planted.domain.n_states[whole.targets][whole.tree]
    shares = np.add.reduceat(whole.count, whole.count_start[:-1]) / planted.distinct.total_weight  # of the rows that come to each node
    costs = states * (whole.depth + 1) * shares * len(planted.distinct)
    cost = float(costs.sum() if conversion == "prune" else costs[whole.test < 0].sum())

    def propose():
        return DTSL(kappa=1.0, conversion=conversion).propose(planted, Work.start()).learned["trees_"]

    monkeypatch.setattr(dtsl, "MOST_CONTEXTS", cost * 1.001)
    assert len(propose().test) == len(whole.test)
    monkeypatch.setattr(dtsl, "MOST_CONTEXTS", cost / 2)
    with pytest.warns(GenerationStopped, match=f"trees have {len(whole.test):,} nodes"):
        half = propose()
    assert 0.1 * len(whole.test) < len(half.test) < len(whole.test)


def test_dtsl_says_when_splits_are_left_out(planted):
    with pytest.warns(GenerationStopped, match="max_features sets the limit") as seen:
        learner = DTSL(kappa=1.0, max_features=40).fit(planted)
    assert seen[0].filename == __file__
    assert len(learner.network_.features) <= 40 + len(planted.domain)
    with pytest.raises(ParameterError, match="max_features"):
        DTSL(max_features=0).fit(planted)


def test_a_limit_so_low_that_no_kappa_would_do_still_gives_one():
    column = np.arange(6000) % 2
    table = Dataset(Domain.from_sizes([2, 2]), np.column_stack([column, column]))
    with pytest.warns(GenerationStopped), np.errstate(all="raise"):
        learner = DTSL(max_features=1).fit(table)
    assert 0 < learner.kappa_ < 1e-200
    assert len(DTSL(kappa=learner.kappa_, max_features=None).fit(table).trees_.test) >= 2


@pytest.mark.parametrize("kind", [DTSL, DTL1])
def test_a_grid_may_have_limits_and_rows_of_leaves(planted, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GenerationStopped)
        trials = tune(kind(kappa=1.0), {"max_features": [12, None], "min_rows": [5, 500], "sd": [1.0]}, planted, refine=False).trials
    if kind is DTSL:
        sizes = {(t.settings["max_features"], t.settings["min_rows"]): t.n_features for t in trials}
        assert len(sizes) == 4
        assert sizes[12, 5] < sizes[None, 500] < sizes[None, 5]
    else:  # its part takes the best
        assert trials[0].settings["max_features"] in (12, None)
    with pytest.raises(ParameterError, match="max_features"):
        tune(kind(), {"max_features": [-5]}, planted)
