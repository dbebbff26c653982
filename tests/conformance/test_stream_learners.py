"""What every stream learner must do. A learner joins by having a name in `undirected.streaming.names`."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from undirected import DTSL, GSSL, ClusterNet, DataError, Dataset, Domain, ParameterError, fit_weights
from undirected.errors import FormatError
from undirected.streaming.names import LEARNERS, find_stream_learner
from undirected.streaming.packing import pack, unpack
from undirected.work import Milestone

QUICK = {
    "clusternet": {"n_clusters": 5, "alpha": 40}, "gssl": {"n_generated": 2000}, "dtsl": {},
    "dtsl, growing": {"hoeffding": True, "grace": 50},
    "blm": {"time_budget": None, "alpha": 2}, "dp": {"time_budget": None, "alpha": 2},
}  # fmt: skip
BATCH = {
    "clusternet": lambda: ClusterNet(n_clusters=5, alpha=40, l1=1, sd=1, tol=1e-7),
    "gssl": lambda: GSSL(n_generated=2000, l1=1, sd=1, tol=1e-7),
    "dtsl": lambda: DTSL(max_features=None, l1=1, sd=1, tol=1e-7),
}


def make(name, **params):
    kind, fixed = find_stream_learner(name.split(",")[0])
    return kind(**{"watch": "none", **QUICK[name], **fixed, **params})


@pytest.fixture(params=QUICK)
def name(request):
    return request.param


def draw_codes(n_rows, seed=0, flip=False):
    """Rows of eight variables, one of three states, that follow the first; with ``flip`` two of them turn round."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, n_rows)
    columns = [first]
    for v in range(1, 7):
        side = 1 - first if flip and v in (2, 5) else first
        columns.append(np.where(rng.random(n_rows) < 0.8, side, rng.integers(0, 2, n_rows)))
    columns.append(np.where(rng.random(n_rows) < 0.6, 2 * first, rng.integers(0, 3, n_rows)))
    return np.column_stack(columns)


DOMAIN = Domain.from_sizes([2] * 7 + [3])


def cut(codes, size=150):
    return [Dataset(DOMAIN, codes[at : at + size]) for at in range(0, len(codes), size)]


def learn(learner, chunks):
    for chunk in chunks:
        learner.learn_many(chunk)
    return learner


def assert_equal(one, other):
    assert one.network_.features == other.network_.features
    np.testing.assert_array_equal(one.network_.weights, other.network_.weights)


def test_every_name_is_tried():
    assert {name.split(",")[0] for name in QUICK} == set(LEARNERS)


def test_parameters_are_scikit_learns(name):
    learner = make(name, l1=2.5)
    assert clone(learner).get_params() == learner.get_params()
    with pytest.raises(ParameterError, match="decay=2"):
        make(name, decay=2).learn_many(cut(draw_codes(50))[0])
    with pytest.raises(ParameterError, match="remember='all'"):
        make(name, remember="all").learn_many(cut(draw_codes(50))[0])


def test_it_learns_better_than_independent_variables(name):
    learner = learn(make(name), cut(draw_codes(900)))
    fresh = Dataset(DOMAIN, draw_codes(1000, seed=1))
    alone = fit_weights(type(learner.network_.features).atomic(DOMAIN), Dataset(DOMAIN, draw_codes(900)))
    assert learner.score_many(fresh) > alone.network().pll(fresh) + 0.3
    assert learner.n_chunks_ == 6
    assert learner.n_rows_ == 900


def test_the_number_of_threads_changes_no_bit(name):
    chunks = cut(draw_codes(600))
    assert_equal(learn(make(name, threads=1), chunks), learn(make(name, threads=3), chunks))


def test_a_stream_that_was_cut_and_taken_up_equals_one_that_was_not(name):
    chunks = cut(draw_codes(750))
    whole = learn(make(name, watch="rows"), chunks)
    for at in (0, 1, 3):
        first = learn(make(name, watch="rows"), chunks[:at])
        kind = type(first)
        second = learn(kind.restore(first.snapshot(), threads=2), chunks[at:])
        assert_equal(whole, second)
        assert second.n_rows_ == whole.n_rows_
        assert second.last_.mean_npll == whole.last_.mean_npll
        assert second.snapshot() == learn(kind.restore(first.snapshot()), chunks[at:]).snapshot() or second.last_.seconds  # seconds differ


def test_rows_one_by_one_make_the_same_chunks(name):
    codes = draw_codes(450)
    many = learn(make(name, domain=DOMAIN), cut(codes))
    one = make(name, domain=DOMAIN, chunk_rows=150)
    for row in codes.tolist():
        one.learn_one({f"v{v}": x for v, x in enumerate(row)})
    assert_equal(many, one)
    one.learn_one({f"v{v}": x for v, x in enumerate(codes[0].tolist())})
    assert len(one.waiting_) == 1
    assert type(one).restore(one.snapshot()).flush().n_rows_ == 451


@pytest.mark.parametrize("name", BATCH)
def test_one_chunk_equals_the_batch_learner(name):
    data = Dataset(DOMAIN, draw_codes(400))
    batch = BATCH[name]().fit(data)
    stream = make(name, screen=False, l1=1.0, sd=1.0, tol=1e-7).learn_many(data)
    assert stream.network_.features.canonical() == batch.network_.features
    weights = dict(zip(stream.network_.features, stream.network_.weights, strict=True))
    np.testing.assert_allclose([weights[f] for f in batch.network_.features], batch.network_.weights, atol=2e-4)


def test_memory_stays_below_the_caps(name):
    caps = {"clusternet": {"max_initial": 60, "max_generated": 90}, "gssl": {"max_counted": 80}}.get(name, {})
    learner = make(name, max_features=40, l1=0.1, **caps)
    sizes = []
    for chunk in cut(draw_codes(1500)):
        learner.learn_many(chunk)
        assert len(learner.network_.features) <= 40
        sizes.append(len(learner.snapshot()))
    structure = learner._structure
    if name == "clusternet":
        assert len(structure.rows) <= 60
        assert len(structure.made) <= 90
    if name == "gssl":
        assert len(structure.features) <= 80
    assert max(sizes[5:]) <= 2.0 * max(sizes[:5])


def test_whatever_ends_a_chunk_leaves_the_learner_as_it_was(name):
    chunks = cut(draw_codes(450))

    def interrupt(event):
        raise KeyboardInterrupt

    learner = learn(make(name), chunks[:2])
    before, network = learner.snapshot(), learner.network_
    learner.set_params(progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        learner.learn_many(chunks[2])
    learner.set_params(progress=None)
    assert learner.network_ is network
    assert learner.snapshot() == before
    assert_equal(learn(learner, chunks[2:]), learn(make(name), chunks))


def test_new_states_are_left_out_or_added_or_an_error(name):
    names = [f"c{k}" for k in range(4)]
    rng = np.random.default_rng(0)
    first = [dict(zip(names, row, strict=True)) for row in np.repeat(rng.choice(["a", "b"], (80, 1)), 4, axis=1).tolist()]
    later = [*first[:40], {"c0": "new", "c1": "a", "c2": "a", "c3": "b"}, {"c0": None, "c1": "a", "c2": "a", "c3": "b"}]
    skipping = make(name).learn_many(first).learn_many(later)
    assert [(one.row, one.reason.split("has")[1]) for one in skipping.rejected_] == [
        (40, " the unknown state 'new'"), (41, " a missing cell"),
    ]  # fmt: skip
    assert skipping.n_rows_ == 120
    widened = make(name, unknown="extend").learn_many(first)
    before = widened.network_
    widened.learn_many(later)
    assert widened.domain_[0].states == ("a", "b", "new")
    assert len(widened.rejected_) == 1
    old = {text: w for text, w in zip(before.features.texts(), before.weights, strict=True) if w}
    assert set(widened.network_.features.texts()) & set(old)  # features kept their meaning
    assert_equal(type(widened).restore(widened.snapshot()).learn_many(later), widened.learn_many(later))
    with pytest.raises(DataError, match="unknown state 'new'.*extend"):
        make(name, unknown="error").learn_many(first).learn_many(later)


def test_chunks_without_rows_change_nothing(name):
    learner = learn(make(name), cut(draw_codes(300)))
    before = learner.snapshot()
    learner.learn_many([{"v0": "neither"}] * 3)
    assert learner.n_chunks_ == 2
    assert len(learner.rejected_) == 3
    learner.learn_many([])
    assert learner.snapshot() == before


def test_hostile_snapshots_are_refused(name):
    learner = learn(make(name), cut(draw_codes(300)))
    kind, good = type(learner), learner.snapshot()
    for broken in (b"", b"nothing", good[:-1], good[: len(good) // 2], good[:200] + b"x" + good[201:], good + b"x"):
        with pytest.raises(FormatError):
            kind.restore(broken)
    tree, arrays = unpack(good, "it")
    for changed in ({**tree, "domain": 3}, {**tree, "coder": None}, {k: v for k, v in tree.items() if k != "chunks"}):
        with pytest.raises(FormatError):
            kind.restore(pack(changed, arrays))
    with pytest.raises(FormatError, match="another"):
        make(name).take_up({**tree, "learner": "another"}, arrays)
    for missing in ("network.weights", "network.start"):
        with pytest.raises(FormatError):
            kind.restore(pack(tree, {k: v for k, v in arrays.items() if k != missing}))
    short = {**arrays, "network.weights": arrays["network.weights"][:-1]}
    with pytest.raises(FormatError):
        kind.restore(pack(tree, short))


def test_progress_and_reports_tell_the_same(name):
    seen = []
    learner = learn(make(name, progress=seen.append), cut(draw_codes(450)))
    reports = [event for event in seen if isinstance(event, Milestone) and hasattr(event, "npll")]
    assert [report.chunk for report in reports] == [1, 2, 3]
    assert reports[-1] == learner.last_
    assert np.isnan(reports[0].npll)
    assert reports[2].total_rows == 450
    assert all(r.n_features == before.n_features + r.added - r.removed for before, r in zip(reports, reports[1:], strict=False))
    assert str(reports[1]).startswith("chunk 2: 150 rows, NPLL -0.")
    assert reports[0].to_dict()["npll"] is None


def test_the_score_of_a_chunk_is_that_of_the_network_before_it(name):
    chunks = cut(draw_codes(300))
    learner = make(name).learn_many(chunks[0])
    expected = learner.score_many(chunks[1])
    learner.learn_many(chunks[1])
    assert learner.last_.pll == pytest.approx(expected, rel=1e-9)


def test_it_answers_for_one_row(name):
    learner = make(name)
    assert learner.predict_proba_one({"v0": 1}, "v1") == {}
    learn(learner, cut(draw_codes(450)))
    row = {f"v{v}": x for v, x in enumerate(draw_codes(1, seed=3)[0].tolist())}
    p = learner.predict_proba_one(row, "v1")
    assert sum(p.values()) == pytest.approx(1)
    truth = learner.network_.conditional("v1", {k: str(v) for k, v in row.items() if k != "v1"})
    assert p == pytest.approx(truth)
    gap = learner.predict_proba_one({"v0": 1}, "v1")
    assert gap["1"] > 0.6
