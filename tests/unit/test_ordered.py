"""Variables with an order: literals of thresholds, in texts, evidence and features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undirected import AllPairs, Atomic, Auto, Dataset, Domain, FeatureError, FeatureSet, MarkovNetwork, Variable
from undirected.features.conjunction import format_feature, parse_feature
from undirected.features.feature_set import Indicators

DOMAIN = Domain(
    [
        Variable("pain", ("1", "2", "3", "4", "5")),
        Variable("colour", ("blue", "green", "red")),
        Variable("size", ("S", "M", "L"), ordered=True),
        Variable("age", ("(-inf, 34]", "(34, 50]", "(50, 68]", "(68, inf)"), edges=(34.0, 50.0, 68.0)),
        Variable("x<y", ("no", "yes")),
    ]
)


def list_states(text):
    """The states of each variable that a text leaves."""
    codes = np.array([[s if u == v else 0 for u in range(len(DOMAIN))] for v, k in enumerate(DOMAIN.n_states) for s in range(k)])
    literals = parse_feature(text, DOMAIN)
    network = MarkovNetwork(FeatureSet.from_lists([literals], DOMAIN), [1.0])
    v = DOMAIN.index(text.split(">")[0].split("<")[0].split("=")[0].strip())
    base = int(DOMAIN.base[v])
    return [DOMAIN[v].states[s] for s in range(len(DOMAIN[v].states)) if network.log_score(Dataset(DOMAIN, codes[base + s][None]))[0] > 0]


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("pain>=3", ["3", "4", "5"]),
        ("pain<3", ["1", "2"]),
        ("pain>3", ["4", "5"]),
        ("pain <= 3", ["1", "2", "3"]),
        ("pain>=5", ["5"]),
        ("pain<2", ["1"]),
        ("size>=M", ["M", "L"]),
        ('age<"(50, 68]"', ["(-inf, 34]", "(34, 50]"]),
    ],
)
def test_thresholds_are_read(text, states):
    assert list_states(text) == states
    assert parse_feature(format_feature(parse_feature(text, DOMAIN), DOMAIN), DOMAIN) == parse_feature(text, DOMAIN)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("colour>=red", "no order, so that there is no >="),
        ("pain>5", "no state of 'pain' is > '5'"),
        ("pain<1", "can never be true"),
        ("pain>=7", "has no state '7'"),
        ("pain>=4 & pain<3", "two states of 'pain' at once"),
        ("pain>=", "cannot be read"),
    ],
)
def test_what_makes_no_sense_is_told(text, match):
    with pytest.raises(FeatureError, match=match):
        parse_feature(text, DOMAIN)


def test_names_and_states_with_angles():
    domain = Domain([Variable("x<y", ("no", "yes")), Variable("income", ("<=50K", ">50K"))])
    literals = parse_feature("x<y=yes & income=>50K", domain)
    assert format_feature(literals, domain) == '"x<y"=yes & income=>50K'
    assert parse_feature('"x<y"=yes & income=>50K', domain) == literals
    assert parse_feature('income="<=50K"', domain) == (2,)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4), st.sampled_from([">=", "<", ">", "<="]), st.data())
def test_texts_survive_a_round_trip(state, sign, data):
    try:
        literals = parse_feature(f"pain{sign}{state + 1} & colour=red", DOMAIN)
    except FeatureError:
        return
    assert parse_feature(format_feature(literals, DOMAIN), DOMAIN) == literals


def test_evidence_takes_thresholds_and_numbers_of_bins():
    features = FeatureSet.from_texts(["pain>=4 & size>=M", "age>=" + '"(34, 50]"' + " & pain>=3"], DOMAIN)
    network = MarkovNetwork(features.union(FeatureSet.atomic(DOMAIN)), np.linspace(-1, 1, len(features.union(FeatureSet.atomic(DOMAIN)))))
    asked = network.query(["pain>=4"], ["size"])["size"]
    by_list = network.query({"pain": ["4", "5"]}, ["size"])["size"]
    assert asked == pytest.approx(by_list)
    assert network.query(["age>=40"], ["pain"])["pain"] == pytest.approx(
        network.query({"age": ["(34, 50]", "(50, 68]", "(68, inf)"]}, ["pain"])["pain"]
    )


def test_pairs_of_thresholds_say_as_much_as_pairs_of_states():
    domain = Domain([Variable("a", ("1", "2", "3")), Variable("b", ("1", "2", "3", "4"))])
    codes = np.array([(i, k) for i in range(3) for k in range(4)])
    pairs, *_ = Indicators(domain).join_all()
    assert len(pairs) == 6
    columns = np.array([MarkovNetwork(pairs.subset([j]), [1.0]).log_score(Dataset(domain, codes)) for j in range(6)]).T
    states = np.array([[(c[0] == i) & (c[1] == k) for i in (1, 2) for k in (1, 2, 3)] for c in codes], dtype=float)
    atoms = np.array([[*(c[0] == i for i in (1, 2)), *(c[1] == k for k in (1, 2, 3)), 1] for c in codes], dtype=float)
    both = [np.linalg.matrix_rank(np.hstack([atoms, part])) for part in (columns, states, np.hstack([columns, states]))]
    assert both == [12, 12, 12]
    assert (pairs.n_variables == 2).all()


def make_likert(n, r, seed, k=5):
    """Items whose latent normal variables all have the correlation ``r``, cut into ``k`` answers."""
    rng = np.random.default_rng(seed)
    cov = np.full((4, 4), r)
    np.fill_diagonal(cov, 1)
    latent = rng.multivariate_normal(np.zeros(4), cov, n)
    cuts = np.quantile(latent, np.linspace(0, 1, k + 1)[1:-1])
    domain = Domain([Variable(f"item{i}", tuple(str(s + 1) for s in range(k))) for i in range(4)])
    return Dataset(domain, np.digitize(latent, cuts))


def test_likert_items_have_edges():
    """Four items with a correlation of 0.4, and 470 rows."""
    train, test = make_likert(470, 0.4, 1), make_likert(4000, 0.4, 2)
    learner = Auto(time_budget=30).fit(train)
    graph = learner.network_.graph()
    assert graph.number_of_edges() == 6
    assert all(edge["signed"] > 0 for _, _, edge in graph.edges(data=True))
    assert learner.score(test) > Atomic().fit(train).score(test) + 0.3


def test_thresholds_need_fewer_weights_than_states():
    """The same rows with and without an order, under one penalty: held-out rows are better predicted with it."""
    train, test = make_likert(470, 0.5, 3), make_likert(4000, 0.5, 4)
    plain = Domain([Variable(v.name, tuple("abcde"[: len(v.states)])) for v in train.domain.variables])
    ordered = max(AllPairs(l1=l1).fit(train).score(test) for l1 in (2, 5, 10))
    unordered = max(AllPairs(l1=l1).fit(Dataset(plain, train.codes)).score(Dataset(plain, test.codes)) for l1 in (2, 5, 10))
    assert ordered > unordered + 0.1
