"""Questions to networks: samplers against exact values, evidence as users write it, and what happens where it cannot work."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import (
    DataError,
    Dataset,
    Domain,
    FeatureSet,
    ImpossibleEvidence,
    MarkovNetwork,
    ParameterError,
    Variable,
    cmll,
    datasets,
    read_data,
)  # fmt: skip
from undirected.errors import FeatureError
from undirected.evaluation.cmll import make_groups
from undirected.inference import Session, completion, gibbs, mcsat
from undirected.inference.diagnostics import diagnose
from undirected.inference.enumeration import enumerate_assignments
from undirected.inference.gibbs import Sampling
from undirected.inference.partition import anneal
from undirected.inference.starts import make_sampler
from undirected.kernels import backend, reference


@pytest.fixture(scope="module")
def survey():
    """Smoking and age act on cough; one variable has three states, one is numeric."""
    domain = Domain(
        [Variable("smoker", ("no", "yes")), Variable("age", ("young", "middle", "old")), Variable("cough", ("no", "yes")),
         Variable("weight", ("(-inf, 60]", "(60, 80]", "(80, inf)"), (60.0, 80.0))]
    )  # fmt: skip
    texts = [
        "smoker=yes",
        "age=old",
        "cough=yes",
        "smoker=yes & cough=yes",
        "age=old & cough=yes",
        "age!=young & smoker=yes",
        "weight=(80, inf)",
    ]
    return MarkovNetwork(FeatureSet.from_texts(texts, domain), [-1.0, -0.5, -2.0, 1.5, 1.0, 0.7, 0.3])


def ferromagnet(n, strength):
    """All pairs pull together: two modes, further apart the stronger the pull."""
    domain = Domain.from_sizes([2] * n)
    features = FeatureSet.all_pairs(domain)
    weights = np.where(features.lengths == 1, -strength * (n - 1) / 2, strength)
    return MarkovNetwork(features, weights)


def exact(network, evidence=None):
    session = Session(network)
    reduced = session.reduce(evidence)
    return reduced.solve(reduced.plan_exact("a test", session.start()))[0]


# evidence


@pytest.mark.parametrize(
    ("evidence", "same"),
    [
        ({"smoker": "yes"}, ["smoker=yes"]),
        ({"age": ["middle", "old"]}, ["age!=young"]),
        ({"age": {"young": 0, "middle": 1, "old": 1}}, {"age": ("middle", "old")}),
        ({"weight": 70}, ["weight=(60, 80]"]),
        (["weight=70"], {"weight": "(60, 80]"}),
        (["smoker=yes & age=old"], {"smoker": "yes", "age": "old"}),
        (["age!=young", "age!=old"], {"age": "middle"}),
    ],
)
def test_evidence_may_be_written_in_many_ways(survey, evidence, same):
    names = ["smoker", "cough"]
    a, b = survey.query(evidence, names), survey.query(same, names)
    for name in names:
        assert a[name] == pytest.approx(b[name], abs=1e-12)


def test_soft_evidence_is_bayes_rule(survey):
    prior = survey.query()["age"]
    likelihood = {"young": 0.2, "middle": 0.5, "old": 0.9}
    posterior = survey.query({"age": likelihood})["age"]
    joint = {s: prior[s] * likelihood[s] for s in prior}
    assert posterior == pytest.approx({s: p / sum(joint.values()) for s, p in joint.items()}, abs=1e-9)


def test_numbers_and_truth_values_name_states():
    network = ferromagnet(3, 1.0)
    same = [network.query({"v0": value})["v1"]["1"] for value in ("1", 1, 1.0, True, np.int64(1), np.True_)]
    assert same == pytest.approx([same[0]] * 6)


@pytest.mark.parametrize(
    ("evidence", "error", "match"),
    [
        ({"smokr": "yes"}, DataError, "Did you mean 'smoker'"),
        ({"smoker": "yess"}, DataError, "Did you mean 'yes'"),
        (["smokr=yes"], FeatureError, "in the evidence .*Did you mean 'smoker'"),
        (["smoker"], FeatureError, "the evidence 'smoker' cannot be read as a list of literals"),
        (["smoker=yes", "smoker=no"], ImpossibleEvidence, "leaves no state of 'smoker'"),
        ({"age": {"young": 0}}, ImpossibleEvidence, "leaves no state of 'age'"),
        ({"age": np.array([0.1, -1, 2])}, DataError, "not 3 numbers"),
        ({"age": np.array([0.1, np.nan, 2])}, DataError, "not 3 numbers"),
        ([3], DataError, "evidence is a mapping"),
    ],
)
def test_bad_evidence_is_told(survey, evidence, error, match):
    with pytest.raises(error, match=match):
        survey.query(evidence)


# answers


def test_an_answer_prints_and_converts(survey):
    answer = survey.query({"smoker": "yes"}, ["cough", "age"])
    assert answer.exact
    assert answer.mixed is None
    assert list(answer) == ["cough", "age"]
    assert answer.largest_error == 0
    text = str(answer)
    assert "█" in text
    assert "exact" in text
    frame = answer.to_frame()
    assert frame["probability"].sum() == pytest.approx(2)
    assert "<table>" in answer._repr_html_()
    assert set(answer.to_dict()) >= {"marginals", "standard_errors", "method", "exact", "mixed", "seconds"}


def test_observed_variables_may_be_asked_for(survey):
    answer = survey.query({"smoker": "yes", "age": ["young", "old"]}, ["smoker", "age"])
    assert answer["smoker"] == {"no": 0.0, "yes": 1.0}
    assert answer["age"]["middle"] == 0


def test_unknown_methods_and_options_are_told(survey):
    with pytest.raises(ParameterError, match="Did you mean 'gibbs'"):
        survey.query(method="gibs")
    with pytest.raises(ParameterError, match="precision"):
        survey.query(precision=0)
    with pytest.raises(ParameterError, match="at least 4"):
        survey.query(method="gibbs", chains=2)
    with pytest.raises(ParameterError, match="scan"):
        survey.query(method="gibbs", scan="zigzag")
    with pytest.raises(DataError, match="no variable 'smokers'"):
        survey.query(variables=["smokers"])


def test_what_does_not_fit_into_memory_is_told_before_it_starts():
    network = ferromagnet(40, 0.01)
    with pytest.raises(ParameterError, match=r"more than .* GiB .* gibbs"):
        network.query(method="junction-tree", memory=1 << 20)
    with pytest.raises(ParameterError, match="more than"):
        network.log_partition(method="exact", memory=1 << 20)
    with pytest.raises(ParameterError, match="more than"):
        network.expectations(memory=1 << 20)
    with pytest.raises(ParameterError, match="too much"):
        network.query(method="enumeration")
    assert network.query(memory=1 << 20, precision=0.02).method == "gibbs"


def test_only_what_hangs_together_too_densely_is_sampled():
    dense, pair = ferromagnet(40, 0.02), ferromagnet(2, 1.0)
    domain = Domain.from_sizes([2] * 42)
    rows = [*dense.features, *([80 + literal for literal in row] for row in pair.features)]
    network = MarkovNetwork(FeatureSet.from_lists(rows, domain), np.concatenate([dense.weights, pair.weights]))
    answer = network.query(precision=0.02)
    assert answer.method == "junction-tree and gibbs"
    assert answer.standard_errors["v41"]["1"] == 0
    assert answer["v41"]["1"] == pytest.approx(exact(pair)[3], abs=1e-12)
    assert answer["v0"]["1"] == pytest.approx(0.5, abs=0.1)  # by symmetry
    alone = network.query(variables=["v41"])
    assert alone.exact  # the dense part does not matter


@pytest.mark.parametrize("weight", [25.0, -25.0, 3.0])
def test_long_conjunctions_need_no_large_tables(weight):
    """Independent variables and one conjunction of all 60: log Z has a closed form."""
    rng = np.random.default_rng(0)
    fields = rng.normal(size=60)
    domain = Domain.from_sizes([2] * 60)
    wanted = (fields > 0).astype(int)
    features = FeatureSet.from_lists([*([2 * v + 1] for v in range(60)), [2 * v + int(wanted[v]) for v in range(60)]], domain)
    network = MarkovNetwork(features, [*fields, weight])
    best = fields @ wanted
    log_z0 = np.logaddexp(0, fields).sum()
    log_z = np.log(np.exp(log_z0) + np.expm1(weight) * np.exp(best))
    found = network.log_partition(method="exact")
    assert found.exact
    assert found.value == pytest.approx(log_z, abs=1e-9)
    assert network.expectations()[-1] == pytest.approx(np.exp(best + weight - log_z), abs=1e-9)
    assert network.map_state().log_scores[0] == pytest.approx(max(best + weight, best - np.abs(fields).min()), abs=1e-9)
    answer = network.query(method="junction-tree")
    for v in range(60):
        rest = log_z0 - np.logaddexp(0, fields[v]) + fields[v]
        held = np.exp(rest) + (np.expm1(weight) * np.exp(best) if wanted[v] else 0.0)
        assert answer[f"v{v}"]["1"] == pytest.approx(held / np.exp(log_z), abs=1e-9)


# infinite weights


def test_infinite_weights_are_constraints():
    domain = Domain.from_sizes([2, 2, 2])
    features = FeatureSet.from_texts(["v0=1 & v1=0", "v1=1 & v2=0", "v2=1"], domain)
    network = MarkovNetwork(features, [-np.inf, -np.inf, 0.3])  # v0 implies v1 implies v2
    for method in ("auto", "enumeration", "mcsat", "gibbs"):
        answer = network.query({"v0": "1"}, method=method)
        assert answer["v2"]["1"] == pytest.approx(1, abs=1e-6)
    assert network.map_state({"v0": "1"})[0] == {"v0": "1", "v1": "1", "v2": "1"}
    assert network.log_partition().value == pytest.approx(np.log(1 + 3 * np.exp(0.3)), abs=1e-6)
    for method in ("auto", "enumeration", "mcsat"):
        with pytest.raises(ImpossibleEvidence, match="infinite"):
            network.query({"v0": "1", "v2": "0"}, method=method)
    with pytest.raises(ImpossibleEvidence):
        network.map_state({"v0": "1", "v2": "0"})
    required = MarkovNetwork(FeatureSet.from_texts(["v0=1 & v1=0", "v1=0"], domain), [np.inf, -5.0])
    assert required.query()["v1"]["0"] == 1
    assert required.log_partition().value == pytest.approx(np.log(2) - 5, abs=1e-6)
    rows = Dataset(domain, np.array([[1, 0, 0], [1, 0, 1]]))
    assert required.log_likelihood(rows) == pytest.approx(-np.log(2), abs=1e-6)


def test_rules_elsewhere_do_not_disturb():
    domain = Domain.from_sizes([2, 2, 2])
    network = MarkovNetwork(FeatureSet.from_texts(["v0=0", "v1=1 & v2=1"], domain), [-np.inf, 1.0])
    assert network.query(variables=["v1"])["v1"] == pytest.approx(network.query()["v1"])
    dense = ferromagnet(40, 0.02)
    both = MarkovNetwork(
        FeatureSet.from_lists([*dense.features, [81]], Domain.from_sizes([2] * 41)), np.concatenate([dense.weights, [np.inf]])
    )
    assert both.query(precision=0.05).method == "gibbs"  # the rule is in another part, and decides it
    assert both.query(variables=["v0"], precision=0.05).method == "gibbs"


def test_impossible_evidence_is_noticed_by_every_question():
    domain = Domain.from_sizes([2, 2])
    network = MarkovNetwork(FeatureSet.from_texts(["v0=1 & v1=0", "v0=1 & v1=1"], domain), [-np.inf, -np.inf])
    evidence = {"v0": "1"}
    for ask in (
        lambda: network.sample(3, evidence),
        lambda: network.expectations(evidence),
        lambda: network.log_partition(evidence, method="ais"),
        lambda: network.query(evidence, method="gibbs"),
        lambda: network.query(evidence, method="bp"),
        lambda: network.map_state(evidence, method="icm"),
        lambda: network.predict_proba(Dataset(domain, np.array([[1, -1]])), "v1"),
        lambda: network.impute(Dataset(domain, np.array([[1, -1]])), "sample"),
    ):
        with pytest.raises(ImpossibleEvidence):
            ask()
    assert len(MarkovNetwork(FeatureSet.from_texts(["v0=1 & v1=1"], domain), [-np.inf]).map_state(k=4)) == 3


def test_annealing_under_many_rules():
    domain = Domain.from_sizes([2] * 110)
    rows = [*([2 * v + 1] for v in range(100)), *([2 * v + 1] for v in range(100, 110))]
    network = MarkovNetwork(FeatureSet.from_lists(rows, domain), [np.inf] * 100 + [0.5] * 10)
    found = network.log_partition(method="ais", chains=256, steps=200)
    assert found.value == pytest.approx(10 * np.log1p(np.exp(0.5)), abs=5 * found.standard_error)
    assert found.standard_error < 0.3


def test_long_conjunctions_of_large_weight_in_belief_propagation():
    domain = Domain.from_sizes([2] * 12)
    rows = [*([2 * v + 1] for v in range(12)), [2 * v + 1 for v in range(12)]]
    for single, together in ((2.0, -50.0), (-3.0, 1000.0), (0.5, 40.0)):
        network = MarkovNetwork(FeatureSet.from_lists(rows, domain), [single] * 12 + [together])
        truth = exact(network)
        for method in ("bp", "trw"):
            answer = network.query(method=method)
            assert answer.converged
            assert answer["v0"]["1"] == pytest.approx(truth[1], abs=1e-6)
            assert network.log_partition(method=method).value == pytest.approx(network.log_partition().value, abs=1e-5)


def test_many_long_conjunctions_are_planned_and_sampled():
    network = datasets.random_conjunctions(200, 2000, max_length=8, scale=0.2, seed=1)
    answer = network.query(precision=0.02, time_budget=2.0)
    assert answer.method.endswith("gibbs")


def test_excluded_states_are_never_drawn():
    domain = Domain.from_sizes([3, 3])
    network = MarkovNetwork(FeatureSet.from_texts(["v0=1 & v1=1"], domain), [1.0])
    session = Session(network)
    reduced = session.reduce({"v0": ["0", "1"], "v1": ["1", "2"]})
    sampler = make_sampler(reduced, reduced.draw_assignments(6400, np.random.default_rng(0)), session.start())
    for _ in range(100):
        sampler.run(5, None, None, False, False, False, 2)
        states = sampler.states()
        assert (states[:, 0] != 2).all()
        assert (states[:, 1] != 0).all()


def test_imputations_of_different_seeds_are_independent(survey):
    table = Dataset(survey.domain, np.tile([[-1, -1, -1, -1]], (60, 1)))
    a, b = (survey.impute(table, "sample", seed=seed).codes for seed in (0, 1))
    assert not (a[1:] == b[:-1]).all()
    assert not (a == b).all()


def test_the_error_of_cmll_counts_rows_that_share_their_chains():
    """All rows have the same evidence, none, so that they err together. 20 z-scores with one degree of freedom each are wild, so only
    their median is looked at: reported errors are about the actual ones, not a tenth of them."""
    network = ferromagnet(10, 0.15)
    table = network.sample(500, seed=1)
    truth = cmll(network, table, groups=1, method="exact").value
    z = []
    for seed in range(20):
        found = cmll(network, table, groups=1, seed=seed, method="gibbs", burn_in=20, sweeps=100)
        z.append(abs(found.value - truth) / found.standard_error)
    assert np.median(z) < 3


# samplers by z-scores. Chains are independent, so z follows Student's t with the number of chains less one degrees of freedom.


def z_scores(network, means, errors, evidence=None):
    truth = exact(network, evidence)
    loose = errors > 2e-4  # below, rounding and not chance
    assert (np.abs(means - truth)[~loose] < 2e-3).all()
    return (means - truth)[loose] / errors[loose]


def random_networks(n, scale, **kwargs):
    for seed in range(n):
        rng = np.random.default_rng(seed)
        yield datasets.random_conjunctions(7, 18, max_length=4, n_states=int(rng.integers(2, 4)), scale=scale, seed=seed)


@pytest.mark.parametrize("n", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_gibbs_agrees_with_exact_values(n):
    """About 15 z-scores of 512 chains a network: a false alarm (one beyond 6) happens in 1 of 10,000 runs of 1,000 networks."""
    scores = []
    for network in random_networks(n, 1.0):
        session = Session(network, seed=len(scores))
        literals = np.arange(network.domain.n_literals)
        sampling = Sampling(precision=0.003, chains=512, max_sweeps=256)
        found = gibbs.find_marginals(session.reduce(), literals, session.start(10), sampling)
        scores += z_scores(network, found.diagnosis.mean, found.diagnosis.standard_error).tolist()
    assert len(scores) > 10 * n
    assert np.abs(scores).max() < 6
    assert 0.9 < np.std(scores) < 1.1  # the errors are neither too small nor too large


@pytest.mark.parametrize(("n", "limit"), [(30, 6.0), pytest.param(2000, 7.0, marks=pytest.mark.slow)])
def test_mcsat_agrees_with_exact_values_under_hard_rules(n, limit):
    """About ten z-scores of 64 chains a network: false alarms (one beyond the limit) happen in less than 1 of 1,000 runs."""
    scores = []
    for seed, network in enumerate(random_networks(n, 0.7)):
        rng = np.random.default_rng(seed)
        weights = network.weights.copy()
        long = np.flatnonzero(network.features.lengths > 1)
        weights[rng.choice(long, 4, replace=False)] = [-20.0, -20.0, -np.inf, -np.inf]
        network = MarkovNetwork(network.features, weights)
        session = Session(network, seed=seed)
        literals = np.arange(network.domain.n_literals)
        found = mcsat.find_marginals(session.reduce(), literals, session.start(10), Sampling(precision=0.01, max_sweeps=600))
        if found.mixed:
            scores += z_scores(network, found.diagnosis.mean, found.diagnosis.standard_error).tolist()
    assert len(scores) > 6 * n
    assert np.abs(scores).max() < limit
    assert np.std(scores) < 1.2


@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_exact_samples_follow_the_distribution(kernels):
    """The chi-square statistic of 20,000 samples over all states; beyond 6 standard deviations once in a billion runs."""
    network = datasets.random_conjunctions(4, 10, n_states=2, seed=3)
    reduced = Session(network).reduce({"v1": "1"})
    module, f = reference if kernels == "reference" else backend().module, network.features
    model = module.Model(network.domain.n_states, f.start, f.literals, network.weights)
    truth = enumerate_assignments(reduced)
    codes = module.Elimination(model, reduced.evidence, 1e6, 2, 0).draw(20_000, 1e6, 0, 1)
    counts = np.array([(codes == one).all(axis=1).sum() for one in truth.assignments])
    want = 20_000 * truth.probabilities
    statistic, df = ((counts - want) ** 2 / want).sum(), len(want) - 1
    assert (statistic - df) / np.sqrt(2 * df) < 6
    assert counts.sum() == 20_000


def test_the_reference_sampler_agrees_with_exact_values():
    """48 z-scores of 200 chains: a false alarm (one beyond 5) happens in 5 of 100,000 runs."""
    for seed in range(3):
        network = datasets.random_conjunctions(4, 10, n_states=3, seed=seed)
        f, domain = network.features, network.domain
        model = reference.Model(domain.n_states, f.start, f.literals, network.weights)
        rng = np.random.default_rng(seed)
        states = np.stack([rng.integers(0, k, 200) for k in domain.n_states], axis=1)
        marks = np.ones((1, domain.n_literals), dtype=np.uint8)
        chains = reference.Sampler(model, marks, np.zeros(200, dtype=int), states, np.arange(4), seed)
        chains.run(20, None, None, False, False, False, 1)
        chains.run(40, None, None, True, False, False, 1)
        found = diagnose(chains.sums(), chains.squares(), 40)
        assert np.abs(z_scores(network, found.mean, found.standard_error)).max() < 5


def test_the_reference_mcsat_agrees_with_exact_values():
    network = datasets.random_conjunctions(4, 8, seed=1)
    weights = network.weights.copy()
    weights[int(np.argmax(network.features.lengths))] = -np.inf
    network = MarkovNetwork(network.features, weights)
    reduced = Session(network).reduce()
    model = reference.Model(
        network.domain.n_states, network.features.start, network.features.literals, np.clip(weights, -reduced.hard, reduced.hard)
    )
    sums, _, _, feasible = model.mcsat(reduced.evidence, 20, 20, 300, reduced.hard, 0, 1)
    assert feasible.all()
    found = diagnose(sums, sums, 300)
    assert np.abs(z_scores(network, found.mean, found.standard_error)).max() < 6  # Student's t with 19: 1e-5 each


def test_samplers_do_not_depend_on_the_number_of_threads():
    network = datasets.random_conjunctions(12, 60, seed=2)
    answers = [network.query(method="gibbs", precision=0.02, chains=300, threads=n).marginals for n in (1, 2, 3)]
    assert answers[0] == answers[1] == answers[2]
    rows = [network.sample(500, threads=n).codes for n in (1, 3)]
    np.testing.assert_array_equal(*rows)
    hard = [network.query(method="mcsat", precision=0.2, chains=8, threads=n).marginals for n in (1, 3)]
    assert hard[0] == hard[1]


@pytest.mark.parametrize("scan", ["systematic", "coloured", "random"])
def test_scans_agree(scan):
    network = datasets.grid_ising(3, 3, seed=4)
    answer = network.query(method="gibbs", scan=scan, precision=0.004)
    truth = exact(network)
    for v in range(9):
        assert answer[f"v{v}"]["1"] == pytest.approx(truth[2 * v + 1], abs=0.02)  # five standard errors


def test_chains_that_do_not_mix_are_told():
    """Two modes that no chain leaves: by symmetry the mean is right, but no chain has seen both."""
    network = ferromagnet(24, 1.0)
    answer = network.query(method="gibbs", time_budget=1.0)
    assert answer.mixed is False
    assert np.isnan(answer.largest_error)
    assert "NOT MIXED" in str(answer)
    one_mode = np.ones((50, 24), dtype=int)  # chains from data and from random states disagree
    answer = network.query({"v0": {"0": 0.4, "1": 0.6}}, method="gibbs", time_budget=1.0, data=Dataset(network.domain, one_mode))
    assert answer.mixed is False


def test_variables_that_exclude_each_other_move_together():
    """Two attributes of four values each, one variable a value: one at a time no chain would ever change a value.

    16 z-scores of 1,024 chains: one beyond 5 happens in 1 of 100,000 runs.
    """
    rng = np.random.default_rng(1)
    domain = Domain.from_sizes([2] * 8)
    pairs = [[2 * a + 1, 2 * b + 1] for a in range(8) for b in range(a + 1, 8)]
    weights = [-30.0 if a // 8 == b // 8 else rng.normal() for a, b in pairs]
    rows = [[2 * v + 1] for v in range(8)]
    network = MarkovNetwork(FeatureSet.from_lists([*rows, *pairs], domain), [*rng.normal(12, 1, 8), *weights])
    session = Session(network)
    found = gibbs.find_marginals(session.reduce(), np.arange(16), session.start(10), Sampling(precision=0.004))
    assert found.mixed
    assert (found.diagnosis.standard_error <= 0.004).all()
    truth = exact(network)
    assert truth[1::2].sum() == pytest.approx(2, abs=1e-3)
    assert np.abs(found.diagnosis.mean - truth).max() < 5 * 0.004


def test_gibbs_reaches_the_precision_asked_for():
    network = datasets.grid_ising(4, 4, coupling=0.3, seed=1)
    answer = network.query(method="gibbs", precision=0.002, time_budget=60)
    assert answer.mixed
    assert answer.largest_error <= 0.002
    assert answer.diagnostics["effective_samples"] > 10_000


# the partition function


def test_annealing_brackets_the_partition_function():
    """Bounds stay four standard errors clear of the means they come from: a false alarm happens in 4 of 1,000 runs of this test."""
    for seed in range(30):
        network = datasets.random_conjunctions(8, 30, scale=1.5, seed=seed)
        session = Session(network, seed=seed)
        log_z = session.log_partition(method="exact").value
        found = anneal(session.reduce(), 64, 100, None, session.start())
        assert found.lower <= log_z <= found.upper
        assert found.value == pytest.approx(log_z, abs=8 * max(found.standard_error, 1e-3))
        assert found.gap < 2.0


def test_log_likelihood_is_normalised():
    network = datasets.random_conjunctions(5, 12, n_states=3, seed=7)
    every = np.stack([g.ravel() for g in np.meshgrid(*[np.arange(3)] * 5, indexing="ij")], axis=1)
    scores = network.log_score(Dataset(network.domain, every))
    assert np.exp(scores - network.log_partition().value).sum() == pytest.approx(1, abs=1e-9)
    table = network.sample(3000, seed=1)
    best = network.log_likelihood(table)
    assert best > MarkovNetwork(network.features, 0.5 * network.weights).log_likelihood(table)
    assert network.log_likelihood(table, method="ais", chains=256, steps=500) == pytest.approx(best, abs=0.1)


# most probable states


@pytest.mark.parametrize("method", ["annealing", "icm"])
def test_climbing_finds_the_best_state_of_small_networks(method):
    found = 0
    for seed in range(20):
        network = datasets.random_conjunctions(10, 50, scale=1.0, seed=seed)
        best = network.map_state(method="exact").log_scores[0]
        climbed = network.map_state(method=method, seed=seed)
        assert not climbed.exact
        assert climbed.log_scores[0] <= best + 1e-5
        found += climbed.log_scores[0] > best - 1e-4
    assert found == 20  # 256 starts on 1,024 states


def test_sampling_given_evidence_and_from_dense_networks():
    dense = ferromagnet(40, 0.02)
    table = dense.sample(2000, {"v0": "1"}, memory=1 << 20)
    assert "Gibbs" in table.source
    assert (table.codes[:, 0] == 1).all()
    assert 0.45 < table.codes[:, 1:].mean() < 0.7
    with pytest.raises(DataError, match="at least one"):
        dense.sample(0)


def test_imputation_by_sampling_and_by_marginals(survey):
    table = survey.sample(400, seed=1)
    codes = table.codes.copy()
    gaps = np.random.default_rng(0).random(codes.shape) < 0.3
    codes[gaps] = -1
    for method in ("map", "sample", "marginal"):
        full = survey.impute(Dataset(survey.domain, codes), method)
        assert not full.has_missing
        assert (full.codes[~gaps] == table.codes[~gaps]).all()
    with pytest.raises(ParameterError, match="not known"):
        survey.impute(table, "mean")


def test_prediction_without_the_target_column(survey):
    import pandas as pd

    frame = pd.DataFrame({"smoker": ["yes", "no"], "age": ["old", None], "weight": [70, 95]})
    p = survey.predict_proba(frame, "cough")
    assert p[0, 1] == pytest.approx(survey.query({"smoker": "yes", "age": "old", "weight": 70})["cough"]["yes"], abs=1e-9)
    assert p[1, 1] == pytest.approx(survey.query({"smoker": "no", "weight": 95})["cough"]["yes"], abs=1e-9)


def test_a_learner_predicts_as_well_as_its_network():
    from undirected import L1

    train, test = datasets.load("digits"), datasets.load("digits", "test")
    learner = L1().fit(train)
    name = train.domain.names[20]
    p = learner.predict_proba(test, name)
    truth = test.codes[:, 20]
    log_loss = -np.log(p[np.arange(len(p)), truth]).mean()
    assert log_loss == pytest.approx(-learner.network_.pll_terms(test)[1][20], abs=1e-9)
    assert learner.predict_proba(test).shape == (len(test), 2)


# CMLL


def brute_cmll(network, table, groups):
    total = 0.0
    for row in table.codes:
        for hidden in groups:
            evidence = {network.domain[v].name: network.domain[v].states[row[v]] for v in range(len(row)) if v not in hidden}
            answer = network.query(evidence, method="enumeration")
            total += sum(np.log(answer[network.domain[v].name][network.domain[v].states[row[v]]]) for v in hidden)
    return total / len(table)


def test_cmll_equals_enumeration_and_gibbs_errs_as_it_says():
    network = datasets.random_conjunctions(8, 30, seed=5)
    table = network.sample(60, seed=2)
    for split in ("random", "contiguous", "every"):
        found = cmll(network, table, seed=3, split=split)
        assert found.exact_share == 1
        assert found.value == pytest.approx(brute_cmll(network, table, make_groups(8, 4, 3, split)), abs=1e-9)
        assert found.per_variable == found.value / 8
    truth = cmll(network, table, seed=3)
    sampled = cmll(network, table, seed=3, method="gibbs", burn_in=30, sweeps=400)
    assert sampled.method == "gibbs"
    assert 0 < sampled.standard_error < 0.02
    assert sampled.value == pytest.approx(truth.value, abs=6 * sampled.standard_error)
    np.testing.assert_allclose(sampled.by_row, truth.by_row, atol=0.5)


def test_tables_are_worked_in_pieces_of_bounded_memory(monkeypatch):
    from undirected.inference import rows

    network = datasets.random_conjunctions(6, 15, seed=5)
    table = network.sample(40, seed=2)
    codes = np.where(np.random.default_rng(0).random(table.codes.shape) < 0.3, -1, table.codes)
    gaps = Dataset(table.domain, codes)
    whole = cmll(network, table), network.predict_proba(table, "v2")
    filled = {method: network.impute(gaps, method).codes.tolist() for method in completion.METHODS}
    monkeypatch.setattr(rows, "TABLE_BYTES", 40 * 12 * 7)  # seven rows at a time
    assert len(rows.cut_rows(40, 12)) == 6
    assert cmll(network, table).value == pytest.approx(whole[0].value, abs=1e-12)
    np.testing.assert_allclose(network.predict_proba(table, "v2"), whole[1], atol=1e-12)
    assert {method: network.impute(gaps, method).codes.tolist() for method in completion.METHODS} == filled


def test_cmll_counts_weights_and_groups_as_documented():
    network = datasets.random_conjunctions(6, 15, seed=5)
    table = network.sample(40, seed=2)
    weights = np.random.default_rng(0).integers(0, 3, 40).astype(float)
    weighted = Dataset(table.domain, table.codes, weights)
    repeated = table.subset(np.repeat(np.arange(40), weights.astype(int)))
    assert cmll(network, weighted).value == pytest.approx(cmll(network, repeated).value, abs=1e-12)
    assert cmll(network, table, groups=6).value == pytest.approx(network.pll(table), abs=1e-9)  # one hidden variable at a time
    assert [len(g) for g in make_groups(10, 4, 0)] == [3, 3, 2, 2]
    assert sorted(np.concatenate(make_groups(10, 4, 1)).tolist()) == list(range(10))
    assert make_groups(6, 3, split="contiguous")[0].tolist() == [0, 1]
    assert make_groups(6, 3, split="every")[0].tolist() == [0, 3]
    with pytest.raises(ParameterError):
        make_groups(6, 0)
    with pytest.raises(ParameterError, match="split"):
        make_groups(6, 2, split="half")
    with pytest.raises(ParameterError):
        cmll(network, table, method="bp")


def test_published_tree_features_reach_the_figure_of_another_program(spec_folder):
    """Libra, by Gibbs sampling with every fourth variable hidden: -4.999 on nltcs with the nonzero features, up to its early stop."""
    from undirected import fit_weights, load

    features = load(spec_folder / "fixtures" / "nltcs.nonzero.mn").features
    network = fit_weights(features, read_data("nltcs"), 1.0, 0.5).network()
    found = cmll(network, "nltcs:test", split="every")
    assert found.value == pytest.approx(-4.999, abs=0.08)


def test_impossible_evidence_in_one_part_is_told_while_another_is_too_dense():
    """v0 forbids v1, v2 needs it; beside them 60 variables all joined with each other."""
    domain = Domain.from_sizes([2] * 63)
    rules = [(1, 3), (2, 5)]
    dense = [(2 * i + 1, 2 * j + 1) for i in range(3, 63) for j in range(i + 1, 63)]
    features = FeatureSet.from_lists([*map(list, rules), *map(list, dense)], domain)
    weights = [-np.inf if tuple(f) in rules else 0.1 for f in features]
    network = MarkovNetwork(features, weights)
    evidence = {domain.names[0]: "1", domain.names[2]: "1"}
    for asked in (network.query, lambda given: network.sample(2, given), network.log_partition, network.map_state):
        with pytest.raises(ImpossibleEvidence, match="drop part"):
            asked(evidence)
    assert network.sample(2, {domain.names[0]: "1"}, sweeps=5).codes[:, 1].tolist() == [0, 0]
