"""Files of networks, evidence and results: what they say is kept, and what is wrong with them is told in time."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from strategies import all_rows, domains, feature_sets, networks
from undirected import (
    DataError,
    Dataset,
    Domain,
    FeatureError,
    FeatureSet,
    FormatError,
    FormatWarning,
    MarkovNetwork,
    Variable,
    fit_weights,
    formats,
    load,
)
from undirected.cli.main import cli
from undirected.features.conjunction import normalise
from undirected.formats import libra, native, uai

SURVEY = Domain([Variable("smoker", ("no", "yes")), Variable("age", ("young", "middle", "old")), Variable("cough", ("no", "yes"))])
LOADS = {".json": native.loads, ".mn": libra.loads, ".uai": uai.loads}


def scores(network):
    """The log score of every assignment by the definition; minus infinity where a rule is broken."""
    domain, n = network.domain, network.domain.n_literals
    out = []
    for row in all_rows(domain):
        true = {int(domain.base[v] + s) for v, s in enumerate(row)}
        total = 0.0
        for literals, weight in zip(network.features, network.weights.tolist(), strict=True):
            holds = all((x % n in true) == (x < n) for x in literals)
            if np.isinf(weight):
                total = total if holds == (weight > 0) else -np.inf
            elif holds:
                total += weight
        out.append(total)
    return np.array(out)


def log_z(values):
    return float(np.logaddexp.reduce(values))


def product_of_factors(sizes, factors):
    """The value of every assignment: each factor is a function of the assignment."""
    return np.array([np.prod([f(row) for f in factors]) for row in itertools.product(*map(range, sizes))])


# Constants


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("MARKOV 1 2 1 1 0 2 2 3", 5),
        ("MARKOV 2 2 2 2 1 0 1 1 2 2 3 2 5 7", 60),
        ("MARKOV 1 2 2 0 1 0 1 4 2 1 1", 8),  # a factor over nothing
        ("MARKOV 2 1 2 2 1 0 1 1 1 4 2 1 1", 8),  # a factor over a variable of one state
        ("MARKOV 1 3 1 1 0 3 0 2 3", 5),
        ("MARKOV 1 2 2 1 0 1 0 2 0.5 1 2 2 4", 5),
    ],
)
def test_reading_uai_keeps_the_partition_function(text, total):
    network = uai.loads(text, "x.uai")
    assert float(network.log_partition()) == pytest.approx(np.log(total))
    assert log_z(scores(network)) == pytest.approx(np.log(total))
    assert network.features.texts().count("true") <= 1


def test_factors_without_a_constant_make_no_constant_feature():
    assert "true" not in uai.loads("MARKOV 1 2 1 1 0 2 1 3", "x").features.texts()
    assert "true" not in uai.loads("MARKOV 1 2 2 1 0 1 0 2 0.5 3 2 2 4", "x").features.texts()  # 0.5 * 2
    assert "true" in uai.loads("MARKOV 1 2 1 1 0 2 2 2", "x").features.texts()


@pytest.mark.parametrize("constant", [1.5, -2.25, 50_000.0])
def test_a_constant_feature_shifts_scores_and_nothing_else(tmp_path, constant):
    texts = ["smoker=yes", "smoker=yes & age=old", "true", "age!=young & cough=yes"]
    features = FeatureSet.from_texts(texts, SURVEY)
    plain, shifted = (MarkovNetwork(features, [0.3, -0.7, c, 1.1]) for c in (0.0, constant))
    table = Dataset(SURVEY, all_rows(SURVEY))
    truth = log_z(scores(plain))
    assert float(shifted.log_partition(method="exact")) == pytest.approx(truth + constant)
    for method in ("ais", "bp", "trw", "mean-field"):
        both = [float(network.log_partition(method=method, seed=1, time_budget=None)) for network in (plain, shifted)]
        assert both[1] - both[0] == pytest.approx(constant)
    for method in ("junction-tree", "enumeration", "gibbs", "mcsat", "bp", "mean-field"):
        both = [network.query(method=method)["age"] for network in (plain, shifted)]
        assert both[0] == pytest.approx(both[1], abs=1e-9)
    for method in ("exact", "annealing", "icm"):
        best = shifted.map_state(method=method)
        assert best.log_scores[0] == pytest.approx(scores(plain).max() + constant)
    np.testing.assert_allclose(shifted.log_score(table), scores(plain) + constant)
    assert shifted.pll(table) == pytest.approx(plain.pll(table))
    assert shifted.log_likelihood(table) == pytest.approx(scores(plain).mean() - truth)
    assert shifted.graph().edges == plain.graph().edges
    assert fit_weights(features, table).weights[2] == 0  # it changes no probability, so the prior decides
    assert "1 of 0" in shifted.summary()
    for suffix in (".json", ".mn", ".uai"):
        if suffix != ".uai" or constant < 700:
            shifted.save(tmp_path / f"net{suffix}")
            assert float(load(tmp_path / f"net{suffix}").log_partition()) == pytest.approx(truth + constant)


def test_show_takes_a_network_with_a_constant(tmp_path):
    (tmp_path / "net.uai").write_text("MARKOV 1 2 1 1 0 2 2 3\n")
    found = CliRunner().invoke(cli, ["show", str(tmp_path / "net.uai"), "--json"])
    assert json.loads(found.stdout)["n_features"] == 2


# Writing


@given(networks())
def test_uai_keeps_scores_to_the_constant(network):
    back = uai.loads(uai.dumps(network), "x.uai")
    np.testing.assert_allclose(scores(back), scores(network), atol=1e-9)


@given(st.data())
def test_uai_keeps_rules(data):
    features = data.draw(feature_sets(data.draw(domains())))
    weights = data.draw(st.lists(st.sampled_from([-np.inf, np.inf, -1.5, 0.0, 2.0]), min_size=len(features), max_size=len(features)))
    network = MarkovNetwork(features, weights)
    assume(np.isfinite(scores(network)).any())
    back = uai.loads(uai.dumps(network), "x.uai")
    np.testing.assert_allclose(scores(back), scores(network), atol=1e-9)


def test_uai_writes_plain_values():
    features = FeatureSet.from_texts(["smoker=yes", "true"], SURVEY)
    lines = uai.dumps(MarkovNetwork(features, [np.log(3), np.log(2)])).splitlines()
    assert lines[:5] == ["MARKOV", "3", "2 3 2", "1", "1 0"]
    np.testing.assert_allclose([float(x) for x in lines[-1].split()], [2, 6])
    only = uai.dumps(MarkovNetwork(FeatureSet.from_texts(["true"], SURVEY), [np.log(2)]))
    np.testing.assert_allclose([float(x) for x in only.splitlines()[-1].split()], [2, 2])


def test_uai_says_what_does_not_fit_into_plain_numbers():
    features = FeatureSet.from_texts(["smoker=yes", "cough=yes"], SURVEY)
    network = MarkovNetwork(features, [800.0, 1.0])
    with pytest.warns(FormatWarning, match="log Z is 100 lower") as told:
        text = uai.dumps(network)
    back = uai.loads(text, "x.uai")
    assert len(told) == 1
    assert log_z(scores(back)) == pytest.approx(log_z(scores(network)) - 100)
    np.testing.assert_allclose(back.conditional("v2", [0, 0, -1])["1"], network.conditional("cough", [0, 0, -1])["yes"])
    with pytest.warns(FormatWarning, match="1 values of factors are too small"):
        uai.dumps(MarkovNetwork(features, [-800.0, 1.0]))
    with pytest.raises(FormatError, match="every assignment breaks"):
        uai.dumps(MarkovNetwork(FeatureSet.from_texts(["smoker=yes", "smoker=no"], SURVEY), [-np.inf, -np.inf]))


def test_a_large_constant_is_spread_over_factors():
    features = FeatureSet.from_texts(["smoker=yes", "cough=yes", "age=old", "true"], SURVEY)
    for constant in (850.0, -850.0):
        network = MarkovNetwork(features, [1.0, 2.0, -1.0, constant])
        np.testing.assert_allclose(scores(uai.loads(uai.dumps(network), "x")), scores(network), atol=1e-9)


# Files of other programs

PYAGRUM_BAYES = """BAYES
3
2 2 2
3
1 0   # A
2 0 1   # B
2 1 2   # C


2
  0.4 0.6

4
  0.3 0.7
  0.7 0.3

4
  0.1 0.9
  0.9 0.1
"""
PYAGRUM_PARENTS = """BAYES
3
2 3 2
3
1 0   # A
1 1   # B
3 0 1 2   # C


2
  0.5 0.5

3
  0.2 0.3 0.5

12
  0.99 0.01
  0.98 0.02
  0.89 0.11
  0.88 0.12
  0.79 0.21
  0.78 0.22
"""
PYAGRUM_MARKOV = """MARKOV
5 # nbr Nodes
2 3 2 4 2
2 # nbr Factors
3 3 2 0
2 1 0

16 # {2, 0, 3}
  1 2
  3 4
  5 6
  7 8
  9 10
  11 12
  13 14
  15 16

6 # {1, 0}
  0.1 0.2 0.3
  0.4 0.5 0.6
"""


def test_a_bayesian_network_of_pyagrum_sums_to_one():
    network = uai.loads(PYAGRUM_BAYES, "x.uai")
    assert float(network.log_partition()) == pytest.approx(0, abs=1e-12)
    assert network.query({"v0": "1"})["v1"]["0"] == pytest.approx(0.7)
    assert network.query({"v1": "1"})["v2"]["1"] == pytest.approx(0.1)


def test_several_parents_in_a_file_of_pyagrum():
    """P(C=1 | a, b) was made as 0.01 + 0.01 a + 0.1 b; the file has A, not B, as the faster of the two."""
    with pytest.warns(FormatWarning, match="pyAgrum"):
        network = uai.loads(PYAGRUM_PARENTS, "x.uai")
    assert float(network.log_partition()) == pytest.approx(0, abs=1e-12)
    for a, b in itertools.product(range(2), range(3)):
        assert network.query({"v0": a, "v1": b})["v2"]["1"] == pytest.approx(0.01 + 0.01 * a + 0.1 * b)
    plain = uai.loads("\n".join(line.split("#")[0] for line in PYAGRUM_PARENTS.splitlines()), "x.uai")
    assert plain.query({"v0": 0, "v1": 1})["v2"]["1"] == pytest.approx(0.02)  # without its marks a file is read as the format says


def test_a_markov_network_of_pyagrum_has_the_order_of_its_comments():
    """Its scope lines are sets in any order; the first variable in the braces is the fastest of the table."""
    with pytest.warns(FormatWarning, match="pyAgrum"):
        network = uai.loads(PYAGRUM_MARKOV, "x.uai")
    truth = product_of_factors(
        [2, 3, 2, 4, 2], [lambda x: 1 + x[2] + 2 * x[0] + 4 * x[3], lambda x: (1 + x[1] + 3 * x[0]) / 10]
    )  # fmt: skip
    np.testing.assert_allclose(np.exp(scores(network)), truth)


def test_comments_and_words_after_the_end():
    assert float(uai.loads("BAYES\n1\n2\n2\n0   # x\n1 0   # y\n1 2 2 1 1", "x").log_partition()) == pytest.approx(np.log(4))
    text = "MARKOV # a comment with 7 numbers\n2\n2 2\n1\n# another\n2 0 1\n4\n1 2 3 4"
    np.testing.assert_allclose(np.exp(scores(uai.loads(text, "x"))), [1, 2, 3, 4])
    with pytest.warns(FormatWarning, match="x.uai: '9' stands after the last factor"):
        network = uai.loads(text + " 9 words", "x.uai")
    np.testing.assert_allclose(np.exp(scores(network)), [1, 2, 3, 4])


def test_the_last_variable_of_a_scope_is_the_fastest():
    text = "MARKOV 3 2 3 2 2 3 2 0 1 1 1 12 1 2 3 4 5 6 7 8 9 10 11 12 3 1 2 3"
    truth = product_of_factors([2, 3, 2], [lambda x: 1 + x[1] + 3 * x[0] + 6 * x[2], lambda x: 1 + x[1]])
    np.testing.assert_allclose(np.exp(scores(uai.loads(text, "x"))), truth)


# Size


def test_large_uai_files_take_no_time():
    rng = np.random.default_rng(0)
    scopes = [rng.choice(2000, 13, replace=False) for _ in range(19)]
    lines = ["MARKOV 2000", " ".join(["2"] * 2000), str(len(scopes)), *(" ".join(map(str, (13, *s))) for s in scopes)]
    lines += [f"8192 {' '.join(map(repr, (rng.random(8192) + 0.1).tolist()))}" for _ in scopes]
    began = time.process_time()
    network = uai.loads("\n".join(lines), "x.uai")
    assert time.process_time() - began < 4
    assert len(network.features) == 19 * 8191 + 1


def test_a_literal_costs_the_same_on_variables_of_many_states():
    domain = Domain.from_sizes([30_000, 30_000])
    n = domain.n_literals
    began = time.process_time()
    for s in range(2000):
        assert normalise([n + s, n + 30_000 + s, s + 1], domain) == (s + 1, n + 30_000 + s)
    assert time.process_time() - began < 2
    assert normalise([n + s for s in range(30_000) if s != 12_345], domain) == (12_345,)
    with pytest.raises(FeatureError, match="two states of 'v0'"):
        normalise([n + s for s in range(30_000)], domain)


@given(st.data())
def test_flat_arrays_and_single_features_have_the_same_shortest_form(data):
    domain = data.draw(domains())
    literals = st.lists(st.integers(0, 2 * domain.n_literals - 1), max_size=6)
    rows = data.draw(st.lists(literals, max_size=4))

    def meaning(row):
        n = domain.n_literals
        true = [{int(domain.base[v] + s) for v, s in enumerate(codes)} for codes in all_rows(domain)]
        return [all((x % n in states) == (x < n) for x in row) for states in true]

    possible = [row for row in rows if any(meaning(row))]
    if len(possible) < len(rows):
        with pytest.raises(FeatureError, match="two states"):
            FeatureSet.from_lists(rows, domain)
    found = list(FeatureSet.from_lists(possible, domain))
    assert found == [normalise(row, domain) for row in possible]
    assert [meaning(row) for row in found] == [meaning(row) for row in possible]
    for row in found:
        variables = [int(domain.literal_variable[x % domain.n_literals]) for x in row]
        assert variables == sorted(variables)


def trees(domain, depth=4):
    leaf = st.integers(-9, 9)
    test = st.integers(0, domain.n_literals - 1)
    return st.recursive(leaf, lambda below: st.tuples(test, below, below), max_leaves=2**depth)


@given(st.data())
def test_a_tree_is_worth_its_leaf(data):
    domain = data.draw(domains())
    tree = data.draw(trees(domain))

    def written(node):
        if isinstance(node, int):
            return str(node)
        v = int(domain.literal_variable[node[0]])
        return f"(v{v}_{node[0] - domain.base[v]} {written(node[1])} {written(node[2])})"

    def worth(node, true):
        return node if isinstance(node, int) else worth(node[1] if node[0] in true else node[2], true)

    network = libra.loads(f"{','.join(map(str, domain.n_states))}\nMN {{\ntree {{ {written(tree)} }}\n}}\n", "x.mn")
    truth = [worth(tree, {int(domain.base[v] + s) for v, s in enumerate(row)}) for row in all_rows(domain)]
    np.testing.assert_array_equal(scores(network), truth)


def chain(n, test):
    return "".join(f"({test(i)} {i} " for i in range(n)) + "1" + ")" * n


def test_deep_trees_are_refused_before_they_cost_much():
    began = time.process_time()
    text = f"{','.join(['2'] * 20_000)}\nMN {{\ntree {{ {chain(20_000, lambda i: f'v{i}_1')} }}\n}}\n"
    with pytest.raises(FormatError, match="literals, more than .* a tree is too deep"):
        libra.loads(text, "x.mn")
    same = libra.loads(f"2,2\nMN {{\ntree {{ {chain(100_000, lambda i: f'v{i % 2}_1')} }}\n}}\n", "x.mn")
    assert same.features.texts() == ["v0=1", "v0=0 & v1=1", "v0=0 & v1=0"]
    assert time.process_time() - began < 10
    assert len(libra.loads(f"{','.join(['2'] * 500)}\nMN {{\ntree {{ {chain(500, lambda i: f'v{i}_1')} }}\n}}\n", "x.mn").features) == 501


@pytest.mark.parametrize("text", [",".join(["30000"] * 150) + "\nMN {\n}\n", "MARKOV 150 " + "30000 " * 150 + "0"])
def test_declared_sizes_are_checked_before_anything_is_built(text):
    began = time.process_time()
    with pytest.raises(FormatError, match=r"x.*4,500,000 states together; up to 4,194,304"):
        (libra if "MN" in text else uai).loads(text, "x")
    assert time.process_time() - began < 1


def test_numbers_that_are_too_large_are_no_rules():
    with pytest.raises(FormatError, match="x.mn, line 3: '1e999' is too large for a weight"):
        libra.loads("2\nMN {\n1e999 +v0_1\n}\n", "x.mn")
    with pytest.raises(FormatError, match="factor 0 has a value that is negative or not a number"):
        uai.loads("MARKOV 1 2 1 1 0 2 1 1e999", "x.uai")


def test_contradictions_name_their_line():
    with pytest.raises(FormatError, match="x.mn, line 5: .*two states of 'v1'"):
        libra.loads("2,3\nMN {\n1 +v0_1\n\n2 +v1_0 +v1_2\n}\n", "x.mn")
    with pytest.raises(FormatError, match="x.json: feature 1: .*two states of 'v1'"):
        native.loads(native.dumps(uai.loads("MARKOV 2 2 3 0", "x")).replace("[\n\n", "[\n[1.0,0],[1.0,2,3]\n"), "x.json")


# Names from elsewhere


def test_a_domain_gives_names(tmp_path):
    network = MarkovNetwork(FeatureSet.from_texts(["smoker=yes & age!=old", "cough=yes"], SURVEY), [1.0, -2.0])
    for suffix in (".mn", ".uai"):
        path = tmp_path / f"net{suffix}"
        network.save(path)
        for source in (SURVEY, network, Dataset(SURVEY, all_rows(SURVEY))):
            back = load(path, domain=source)
            assert back.domain == SURVEY
            np.testing.assert_allclose(scores(back), scores(network), atol=1e-12)
    with pytest.raises(DataError, match=r"net.mn has 3 variables, but the domain given has 1"):
        load(tmp_path / "net.mn", domain=Domain.from_sizes([2]))
    with pytest.raises(DataError, match=r"variable 1 of .*net.mn has 3 states, but 'b' of the domain given has 2 \(x, y\)"):
        load(tmp_path / "net.mn", domain=Domain([Variable("a", ("0", "1")), Variable("b", ("x", "y")), Variable("c", ("0", "1"))]))
    network.save(tmp_path / "net.json")
    assert load(tmp_path / "net.json", domain=SURVEY).domain == SURVEY
    with pytest.raises(DataError, match="has names of its own"):
        load(tmp_path / "net.json", domain=Domain.from_sizes([2, 3, 2]))


# Evidence


@pytest.mark.parametrize(
    ("text", "literals"),
    [
        ("0", []),
        ("2 0 1 1 2", ["smoker=yes", "age=old"]),
        ("1\n2 0 1 1 2\n", ["smoker=yes", "age=old"]),
        ("1\n0\n", []),
        ("1 2 0 # cough", ["cough=no"]),
        ("2 0 1 0 1", ["smoker=yes"]),
    ],
)
def test_both_forms_of_evid_files(tmp_path, text, literals):
    path = tmp_path / "x.EVID"
    path.write_text(text)
    found = formats.read_evidence(path, SURVEY)
    assert found == literals
    network = MarkovNetwork(FeatureSet.from_texts(["smoker=yes & cough=yes"], SURVEY), [1.0])
    assert len(network.query(found)) == 3 - len(literals)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2\n1 0 1\n1 0 0\n", "holds 2 samples of evidence; one sample is expected"),
        ("1 3 0", "'3' is not a variable .*from 0 to 2"),
        ("1 1 3", "'3' is not a state of variable 1 .*from 0 to 2"),
        ("1 x 0", "'x' is not a variable"),
        ("one 0 0", "'one' is not the number of known variables"),
        ("2 0 1 1", "2 variables and their states are 4 numbers, but 3 follow"),
        ("1 2 0 1 1", "2 variables and their states are 4 numbers, but 3 follow"),
        ("2 0 1 0 0", "variable 0 is in the states 1 and 0 at once"),
        ("1 -1 0", "'-1' is not a variable"),
        ("999999999999 1 1", "is not the number of known variables"),
    ],
)
def test_bad_evid_files(text, message):
    with pytest.raises(FormatError, match=f"x.evid: .*{message}"):
        uai.loads_evidence(text, "x.evid", SURVEY)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A network of the survey's domain in all formats, and evidence."""
    monkeypatch.chdir(tmp_path)
    features = FeatureSet.from_texts(["smoker=yes", "smoker=yes & cough=yes", "age=old & cough=yes", "true"], SURVEY)
    network = MarkovNetwork(features, [-0.5, 1.5, 0.7, 0.4])
    for suffix in LOADS:
        network.save(f"net{suffix}")
    (tmp_path / "known.evid").write_text("1 0 1")
    (tmp_path / "known.txt").write_text("# what is known\n\nsmoker=yes\nage!=young\n")
    return network


def run(*args):
    found = CliRunner().invoke(cli, list(args))
    return found.exit_code, found.stdout, found.exception


def marginals(*args):
    code, out, error = run("query", *args, "--json")
    assert code == 0, error
    return json.loads(out)["marginals"]


def test_evidence_on_the_command_line(folder):
    truth = folder.query({"smoker": "yes"}, method="enumeration")
    assert marginals("net.json", "--evidence", "known.evid")["cough"] == pytest.approx(truth["cough"])
    assert marginals("net.json", "--evidence", "smoker=yes")["cough"] == pytest.approx(truth["cough"])
    assert list(marginals("net.uai", "--evidence", "known.evid")["v1"].values()) == pytest.approx(list(truth["age"].values()))
    both = folder.query(["smoker=yes", "age!=young", "cough=no"], method="enumeration")
    assert marginals("net.json", "--evidence", "known.txt", "-e", "cough=no")["age"] == pytest.approx(both["age"])
    assert "smoker=yes" in run("map", "net.json", "--evidence", "known.evid")[1]
    drawn = run("sample", "net.json", "-e", "cough=no", "--evidence", "known.evid", "-q")[1].splitlines()[1:]
    assert len(drawn) == 10
    assert all(row.startswith("yes,") and row.endswith(",no") for row in drawn)
    assert run("explain", "net.json", "cough", "--evidence", "known.txt", "-e", "age=old")[0] == 0
    error = run("query", "net.json", "--evidence", "known.evd")[2]
    assert "there is no file 'known.evd'. Did you mean 'known.evid'" in str(error)


def test_names_on_the_command_line(folder):
    for command in (("query",), ("map",), ("sample", "-q"), ("show",), ("explain", "cough", "-e", "smoker=no", "-e", "age=old")):
        code, out, error = run(command[0], "net.mn", *command[1:], "--domain-from", "net.json")
        assert code == 0, error
        assert "cough" in out
    run("convert", "net.uai", "back.json", "--domain-from", "net.json")
    assert load("back.json").domain == SURVEY
    table = Dataset(SURVEY, all_rows(SURVEY))
    Path("rows.csv").write_text(table.to_csv())
    for files in (["net.json"], ["net.mn", "--domain-from", "net.json"]):
        code, out, error = run("score", files[0], "rows.csv", "--json", *files[1:])
        assert json.loads(out)["pll"] == pytest.approx(folder.pll(table))
    assert run("impute", "net.mn", "rows.csv", "--domain-from", "net.json", "-o", "full.csv")[0] == 0
    assert run("plot", "net.mn", "-o", "graph.svg", "--domain-from", "net.json")[0] == 0
    assert "no variable 'smoker'" in str(run("query", "net.mn", "-e", "smoker=yes")[2])


# Results


def test_marginals_as_a_mar_file(folder):
    assert run("query", "net.uai", "--evidence", "known.evid", "-o", "out.MAR")[0] == 0
    head, body = Path("out.MAR").read_text().splitlines()
    found = [float(x) for x in body.split()]
    truth = folder.query({"smoker": "yes"}, method="enumeration")
    assert head == "MAR"
    assert found == pytest.approx([3, 2, 0, 1, 3, *truth["age"].values(), 2, *truth["cough"].values()])


def test_the_partition_function_as_a_pr_file(folder):
    assert run("query", "net.uai", "--evidence", "known.evid", "-o", "out.pr")[0] == 0
    head, value = Path("out.pr").read_text().splitlines()
    smokers = scores(folder)[all_rows(SURVEY)[:, 0] == 1]
    assert head == "PR"
    assert float(value) == pytest.approx(log_z(smokers) / np.log(10))


def test_the_best_assignment_as_a_map_file(folder):
    assert run("map", "net.uai", "-e", "v0=0", "-o", "out.Map")[0] == 0
    rows = all_rows(SURVEY)
    best = rows[rows[:, 0] == 0][np.argmax(scores(folder)[rows[:, 0] == 0])]
    assert Path("out.Map").read_text() == f"MAP\n3 {' '.join(map(str, best))}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("query", "missing.json", "-o", "out.txt"), "'.txt' is not one of .mar, .pr"),
        (("map", "missing.json", "-o", "out.MAR"), "'.mar' is not one of .map"),
        (("query", "missing.json", "-o", "nowhere/out.MAR"), "the folder nowhere does not exist"),
        (("query", "missing.json", "-o", "out.MAR", "--variables", "a"), "leave out --variables"),
    ],
)
def test_results_that_cannot_be_written_are_told_before_any_work(folder, args, message):
    found = CliRunner().invoke(cli, list(args))
    assert found.exit_code != 0
    assert message in str(found.exception) + found.output


# Broken files


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_pipes_and_folders_are_called_what_they_are(tmp_path):
    os.mkfifo(tmp_path / "net.uai")
    (tmp_path / "net.mn").mkdir()
    with pytest.raises(DataError, match="is not a regular file"):
        load(tmp_path / "net.uai")
    with pytest.raises(DataError, match="is a folder"):
        load(tmp_path / "net.mn")
    with pytest.raises(DataError, match="there is no file"):
        load(tmp_path / ("x" * 500 + ".json"))
    with pytest.raises(DataError, match="there is no file"):
        load(tmp_path / "a\0b.json")


@pytest.mark.parametrize("suffix", [*LOADS, ".evid"])
@pytest.mark.filterwarnings("ignore::undirected.errors.FormatWarning")
def test_damaged_files_raise_their_own_errors(tmp_path, suffix):
    features = FeatureSet.from_texts(["smoker=yes & age!=old", "age=old & cough=yes", "true"], SURVEY)
    network = MarkovNetwork(features, [-0.5, -np.inf, 0.25])
    rng = np.random.default_rng(7)
    path = tmp_path / f"net{suffix}"
    if suffix == ".evid":
        path.write_text("1\n2 0 1 1 2\n")
    else:
        network.save(path)
    whole = path.read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at, to = sorted(rng.integers(0, len(data) + 1, 2))
            kind = rng.integers(3)
            data[at:to] = data[at:to] * 2 if kind == 0 else b"" if kind == 1 else bytes(b ^ (1 << rng.integers(8)) for b in data[at:to])
        path.write_bytes(bytes(data))
        try:
            formats.read_evidence(path, SURVEY) if suffix == ".evid" else load(path)
        except DataError as error:
            assert str(error)
