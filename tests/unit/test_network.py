"""Features, networks and their files."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest

from undirected import DataError, Dataset, Domain, FeatureError, FeatureSet, FormatError, MarkovNetwork, Variable, datasets, load
from undirected.formats import libra, native, uai
from undirected.network.edges import measure_edges
from undirected.network.graph import place_nodes

DOMAIN = Domain([Variable("smoker", ("no", "yes")), Variable("age", ("young", "middle", "old")), Variable("a=b & c", (" x", "!"))])


def network(*texts, weights=None):
    features = FeatureSet.from_texts(texts, DOMAIN)
    return MarkovNetwork(features, weights if weights is not None else np.arange(1.0, len(features) + 1))


def test_text_form():
    features = FeatureSet.from_texts(['smoker=yes & age!=old & "a=b & c"=" x"', "true", "age!=old&age!=young", "smoker!=no"], DOMAIN)
    assert features.texts() == ['smoker=yes & age!=old & "a=b & c"=" x"', "true", "age=middle", "smoker=yes"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smoker=yes & smoker=no", "two states of 'smoker' at once"),
        ("age=old & age!=old", "two states of 'age' at once"),
        ("smokr=yes", "no variable 'smokr'.*Did you mean 'smoker'"),
        ("age=odl", "no state 'odl'.*Did you mean 'old'"),
        ("smoker", "write it like"),
        ("smoker=yes &", "write it like"),
        ("smoker=yes age=old", "write it like"),
        ("=yes", "write it like"),
        ('smoker="yes', "cannot be read"),
        ("", "write it like"),
    ],
)
def test_bad_texts_say_why(text, message):
    with pytest.raises(FeatureError, match=message):
        FeatureSet.from_texts([text], DOMAIN)


def test_features_on_unknown_literals():
    with pytest.raises(FeatureError, match="feature 1 has literal 99"):
        FeatureSet.from_lists([[0], [99]], DOMAIN)
    with pytest.raises(FeatureError, match="two states of .smoker. at once"):
        FeatureSet.from_arrays(DOMAIN, np.array([0, 2]), np.array([0, 1]))
    with pytest.raises(FeatureError, match="outside"):
        FeatureSet.from_arrays(DOMAIN, np.array([0, 1]), np.array([14]))


def test_ready_made_sets():
    assert FeatureSet.atomic(DOMAIN).texts()[:3] == ["smoker=yes", "age=middle", "age=old"]
    pairs = FeatureSet.all_pairs(DOMAIN)
    assert len(pairs) == 4 + 5  # 2 + 1 + 2 pairs of non-reference states
    assert set(pairs.lengths) == {1, 2}


def test_conditional_needs_only_the_blanket():
    model = network("smoker=yes", "smoker=yes & age=old")
    p = model.conditional("age", {"smoker": "yes"})
    assert p["old"] == pytest.approx(np.exp(2) / (2 + np.exp(2)))
    with pytest.raises(DataError, match="'age' is needed"):
        model.conditional("smoker", {})
    with pytest.raises(DataError, match="no variable 'x'"):
        model.conditional("x", {})


def test_infinite_weights_are_hard():
    model = network("smoker=yes & age=old", weights=[-np.inf])
    assert model.conditional("age", {"smoker": "yes"})["old"] == 0
    for text, loads in ((native.dumps(model), native.loads), (libra.dumps(model), libra.loads)):
        assert loads(text, "x").weights[0] == -np.inf
    back = uai.loads(uai.dumps(model), "x")
    assert back.conditional("v1", [1, -1, 0])["2"] == 0


def test_weights_must_fit():
    features = FeatureSet.atomic(DOMAIN)
    with pytest.raises(DataError, match="2 weights for 4 features"):
        MarkovNetwork(features, [1, 2])
    with pytest.raises(DataError, match="feature 1 is not a number"):
        MarkovNetwork(features, [1, np.nan, 0, 0])


def test_graph_strengths_and_signs():
    model = network(
        "smoker=yes & age=old", "smoker=no & age=middle", 'smoker=yes & age=old & "a=b & c"="!"', "age=old", weights=[1.0, 0.5, 2.0, 9.0]
    )
    edges = measure_edges(model.features, model.weights)
    # Against the first state, old is 1 and (with "!") 3 stronger, middle 0.5 weaker: all log odds ratios of smoker and age.
    ratios = [old - other for extra in (1.0, 3.0) for old, other in ((extra, 0.0), (-0.5, 0.0), (extra, -0.5))]
    assert edges[0, 1].strength == pytest.approx(np.sqrt(np.mean(np.square(ratios))))
    assert edges[0, 1].sign == 0  # young, middle, old are texts
    assert edges[0, 2] == (pytest.approx(np.sqrt(2.0**2 / 3)), 1)  # a ratio of 2 among the old, who are a third
    graph = model.graph()
    assert graph.edges["smoker", "age"]["signed"] == 0.0
    assert set(graph) == {"smoker", "age", "a=b & c"}
    assert graph.number_of_edges() == 3
    first, second = place_nodes(graph), place_nodes(model.graph())
    assert all(np.array_equal(first[n], second[n]) for n in graph)
    assert network("smoker=yes & age=old", weights=[0.0]).graph().number_of_edges() == 0


def test_infinite_weights_in_edges():
    edges = measure_edges(FeatureSet.all_pairs(Domain.from_sizes([2, 2, 2])), np.array([1.0, 0, -2.0, np.inf, -np.inf, 3.0]))
    assert edges == {(0, 1): (22.0, 1), (0, 2): (22.0, -1), (1, 2): (3.0, 1)}


def test_variables_without_edges_stand_below_the_others():
    graph = network("smoker=yes & age=old").graph()
    place = place_nodes(graph)
    assert place["a=b & c"][1] < min(place["smoker"][1], place["age"][1])
    graph.add_nodes_from("uvwxyz")
    place = place_nodes(graph, columns=3)
    assert len({place[n][1] for n in ("a=b & c", *"uvwxyz")}) == 3
    assert max(abs(x) for x, _ in place.values()) <= 1.01


def test_summary_and_html_name_the_strongest():
    model = network("smoker=yes", "smoker=yes & age=old", weights=[0.5, -3.0])
    assert model.strongest(1) == [("smoker=yes & age=old", -3.0)]
    assert "-3.0000  smoker=yes & age=old" in model.summary()
    assert "smoker=yes &amp; age=old" in model._repr_html_()
    assert "2 variables" not in MarkovNetwork(FeatureSet.from_lists([], DOMAIN), []).summary()


def test_pruning_keeps_the_distribution():
    model = network("smoker=yes", "age=old", weights=[0.0, 1.0])
    assert model.pruned().features.texts() == ["age=old"]
    table = Dataset(DOMAIN, np.array([[0, 1, 0], [1, 2, 1]]))
    np.testing.assert_allclose(model.pruned().log_score(table), model.log_score(table))


def test_graphml_can_be_read_by_others(tmp_path):
    model = network("smoker=yes & age=old")
    model.save(tmp_path / "g.graphml")
    graph = nx.read_graphml(tmp_path / "g.graphml")
    assert graph.nodes["age"]["states"] == "young, middle, old"
    assert graph.edges["smoker", "age"]["strength"] == pytest.approx(np.sqrt(2 / 3))
    with pytest.raises(FormatError, match="'.graphml' is not one of"):
        load(tmp_path / "g.graphml")


def test_libra_blocks():
    text = """2,3,2
mn {
0.5 +v0_1
3 -1.5e-1 +v0_1 -v1_0
1.25
features {
 1 +v2_0 +v2_0
}
table {
 -inf +v0_0 +v1_1
}
tree { (v1_0 2.0
   (v0_1 (v1_1 -1 3) 4)) }
}
"""
    model = libra.loads(text, "x.mn")
    assert list(zip(model.features.texts(), model.weights, strict=True)) == [
        ("v0=1", 0.5),
        ("v0=1 & v1!=0", -0.15),
        ("true", 1.25),
        ("v2=0", 1.0),
        ("v0=0 & v1=1", -np.inf),
        ("v1=0", 2.0),
        ("v0=1 & v1=1", -1.0),
        ("v0=1 & v1=2", 3.0),
        ("v0=0 & v1!=0", 4.0),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2,2\nMN {\n0.5 +v0_1\n", "line 3: the file ends in the middle"),
        ("2,2\nMN {\nfeatures {\n0.5 +v0_1\n", "middle of a features block"),
        ("2,2\nMN {\n0.5 +v0_1000000000\n}\n", "line 3: variable 0 has 2 states, so there is no state 1000000000"),
        ("2,2\nMN {\n0.5 +v7_1\n}\n", "no variable 7"),
        ("1000000000\nMN {\n}\n", "has 1000000000 states"),
        ("2,2\nMN {\nnan +v0_1\n}\n", "'nan' is not a weight"),
        ("2,2\nMN {\n.5 +v0_1\n}\n", "'.5' is not a weight"),
        ("2,2\nMN {\n1 +v0_0 +v0_1\n}\n", "two states of 'v0' at once"),
        ("2,2\nMN {\n1 v0_0\n}\n", "not a literal"),
        ("2,2\nMN {\ntree { (v0_1 1) }\n}\n", "exactly two branches"),
        ("2,2\nMN {\ntree { (v0_1 1 2 \n", "middle of a tree"),
        ("2,2\nMN {\n}\nmore\n", "after the end"),
        ("2,x\nMN {\n}\n", "not a number of states"),
        ("2,2\nMN {\n1 +v0_" + "1" * 5000 + "\n}\n", "not a literal"),
        ("2,2\nBN {\n}\n", "expected MN"),
    ],
)
def test_broken_libra_files(text, message):
    with pytest.raises(FormatError, match=message):
        libra.loads(text, "x.mn")


def broken(change):
    tree = json.loads(native.dumps(network("smoker=yes")))
    change(tree)
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a network of this package"),
        ("[" * 100_000, "nested too deeply"),
        (broken(lambda t: t.update(version=9)), "version 9"),
        (broken(lambda t: t["features"].append([float("nan"), 1])), "NaN is not a weight"),
        (broken(lambda t: t["features"].append(["much", 1])), "'much' is not a finite number"),
        (broken(lambda t: t["features"].append([1.0, 99])), "99 is not one of the 7 literals"),
        (broken(lambda t: t["features"].append([1.0, True])), "True is not one of"),
        (broken(lambda t: t["features"].append([1.0, 0, 1])), "two states of 'smoker' at once"),
        (broken(lambda t: t["features"].append([])), "is empty"),
        (broken(lambda t: t["variables"][0].update(states=[])), "no states"),
        (broken(lambda t: t["variables"][0].update(name="age")), "two variables are called"),
        (broken(lambda t: t["variables"][0].update(states="no")), "expected list, found str"),
        (broken(lambda t: t["variables"][0].update(edges=[1, 1])), "edges must rise"),
        (broken(lambda t: t.pop("features")), "features: expected list"),
        (broken(lambda t: t.update(variables=[], features=[])), "at least one variable"),
        (broken(lambda t: t["features"].append([10**400, 1])), "401 digits"),
        ('{"format": ' + "9" * 5000 + "}", "not JSON that can be read"),
    ],
)
def test_broken_json_files(text, message):
    with pytest.raises(FormatError, match=message):
        native.loads(text, "x.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GRAPH 1", "not with MARKOV"),
        ("MARKOV 2 2 2 1 2 0 1 4 1 2 3", "ends inside factor 0"),
        ("MARKOV 2 2 2 1 2 0 0 4 1 2 3 4", "names a variable twice"),
        ("MARKOV 2 2 2 1 1 5 2 1 1", "'5' is not a variable"),
        ("MARKOV 1 2 1 1 0 3 1 1 1", "must have 2 values"),
        ("MARKOV 1 2 1 1 0 2 -1 1", "negative"),
        ("MARKOV 1 2 1 1 0 2 0 0", "zero everywhere"),
        ("MARKOV 999999999999", "is not the number of variables"),
    ],
)
def test_broken_uai_files(text, message):
    with pytest.raises(FormatError, match=message):
        uai.loads(text, "x.uai")


def test_uai_refuses_huge_factors():
    domain = Domain.from_sizes([2] * 21)
    model = MarkovNetwork(FeatureSet.from_lists([[2 * v + 1 for v in range(21)]], domain), [1.0])
    with pytest.raises(FormatError, match="21 variables"):
        uai.dumps(model)


def test_saving_is_whole_or_not_at_all(tmp_path):
    model = network("smoker=yes")
    with pytest.raises(FormatError, match="'.xyz' is not one of"):
        model.save(tmp_path / "net.xyz")
    with pytest.raises(DataError, match="cannot be written"):
        model.save(tmp_path / "missing" / "net.json")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    import errno
    import os

    path = tmp_path / "net.json"
    network("smoker=yes").save(path)
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device; nothing was changed"):
        network("age=old").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["net.json"]


def test_synthetic_parameters():
    from undirected import ParameterError

    with pytest.raises(ParameterError):
        datasets.grid_ising(0, 3)
    with pytest.raises(ParameterError, match="not between 1 and the 2"):
        datasets.random_conjunctions(2, 3, max_length=5)
    with pytest.raises(ParameterError, match="not 1000 distinct"):
        datasets.random_conjunctions(2, 1000, max_length=1)
    with pytest.raises(ParameterError, match="an exact sample would need more than"):
        datasets.exact_sample(datasets.grid_ising(30, 30), 1)


def test_odd_names_survive_drawing_and_writing(tmp_path):
    from undirected.plots import save_figure
    from undirected.plots.graph import draw_graph

    domain = Domain([Variable("$\\foo$", ("0", "1")), Variable("#cases", ("0", "1"))])
    model = MarkovNetwork(FeatureSet.all_pairs(domain), [1.0, np.inf, -np.inf])
    save_figure(draw_graph(model), tmp_path / "g.png")
    assert model.features.texts()[1] == '"#cases"=1'
    for odd in ("\ud800", "a\0b", "\x1b[31mred"):
        with pytest.raises(DataError, match="cannot be shown or saved"):
            Variable(odd, ("0", "1"))
        with pytest.raises(DataError, match="cannot be shown or saved"):
            Variable("plain", ("0", odd))
    with pytest.raises(DataError, match="no code 9"):
        model.conditional("#cases", [9, 0])
    with pytest.raises(FeatureError, match="literal 1099511627776"):
        FeatureSet.from_lists([[2**40]], domain)


def test_features_and_weights_cannot_be_written_to():
    """Sets and networks are shared, so that nobody may change them under another's hands."""
    start, literals, weights = np.array([0, 1, 3]), np.array([1, 1, 3], dtype=np.int32), np.array([0.5, 1.0])
    features = FeatureSet.from_arrays(Domain.from_sizes([2, 2]), start, literals)
    network = MarkovNetwork(features, weights)
    rough = FeatureSet.from_lists([[3, 1], [5, 2]], Domain.from_sizes([2, 2]))
    for mine in (features, rough, features.subset(np.array([1])), features.union(rough), FeatureSet.atomic(features.domain)):
        for array in (mine.start, mine.literals, mine.owner, mine.lengths):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    with pytest.raises(ValueError, match="read-only"):
        network.weights[0] = 3.0
    literals[0] = 1
    weights[0] = 7.0  # whoever made an array may go on using it
    assert network.weights[0] == 0.5
