"""A network prepared once: the same answers, fewer preparations, limits that hold."""

from __future__ import annotations

import numpy as np
import pytest

from clocks import Clock
from undirected import Dataset, Domain, FeatureSet, ImpossibleEvidence, MarkovNetwork, NothingFound, ParameterError, datasets
from undirected.inference import Session
from undirected.inference.junction_tree import PLANS_KEPT
from undirected.inference.rows import find_row_marginals
from undirected.work import Counted, StoppedBy


@pytest.fixture
def grid():
    return datasets.grid_ising(3, 3, seed=1)


@pytest.fixture
def ruled():
    """A network with features of infinite weight that is easy to solve exactly."""
    return datasets.hard_clauses(12, 15, window=4, seed=2)


def figures(answer):
    return answer.marginals, answer.standard_errors, answer.method, answer.why


QUESTIONS = {
    "query": lambda asked: figures(asked.query({"v0": "1"})),
    "query exactly": lambda asked: figures(asked.query({"v0": "1"}, method="junction-tree")),
    "map_state": lambda asked: (asked.map_state({"v0": "1"}).states, asked.map_state({"v0": "1"}, method="exact").log_scores),
    "log_partition": lambda asked: asked.log_partition({"v0": "1"}).value,
    "sample": lambda asked: asked.sample(20, {"v0": "1"}).codes.tolist(),
    "expectations": lambda asked: asked.expectations({"v0": "1"}).tolist(),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kind", ["grid", "ruled"])
def test_a_session_answers_as_the_network_does(question, kind, request):
    network = request.getfixturevalue(kind)
    session = Session(network)
    session.query({"v0": {"0": 0.3, "1": 0.9}})  # what one question brings must not stay for the next
    session.query({"v1": "0"}, method="gibbs", precision=0.05)
    for _ in range(2):
        assert QUESTIONS[question](session) == QUESTIONS[question](network)


@pytest.mark.parametrize("kind", ["grid", "ruled"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda session: session.query({"v0": "1"}),
        lambda session: session.query({"v0": "1"}, method="junction-tree"),
        lambda session: session.map_state({"v0": "1"}),
        lambda session: session.map_state({"v0": "1"}, method="exact"),
        lambda session: session.log_partition({"v0": "1"}),
        lambda session: session.log_partition({"v0": "1"}, method="exact"),
        lambda session: session.sample(3, {"v0": "1"}),
        lambda session: session.expectations({"v0": "1"}),
    ],
)
def test_an_elimination_is_planned_once_for_some_evidence(kind, ask, request):
    session = Session(request.getfixturevalue(kind))
    ask(session)
    assert session.plans_made == 1
    ask(session)
    assert session.plans_made == 1
    session.query({"v1": "1"})
    assert session.plans_made == 2


def test_only_the_last_plans_are_remembered(grid):
    session = Session(grid)
    for v in range(PLANS_KEPT + 1):
        session.query({f"v{v}": "1"})
    assert session.plans_made == PLANS_KEPT + 1
    session.query({f"v{PLANS_KEPT}": "1"})
    assert session.plans_made == PLANS_KEPT + 1
    session.query({"v0": "1"})
    assert session.plans_made == PLANS_KEPT + 2


def test_limits_are_checked_at_the_door(grid):
    for limits in ({"threads": 0}, {"memory": -1}, {"seed": -1}, {"seed": 1.5}, {"progress": 3}):
        with pytest.raises(ParameterError, match=next(iter(limits))):
            Session(grid, **limits)
    for ask in (Session(grid).query, Session(grid).map_state, Session(grid).log_partition):
        with pytest.raises(ParameterError, match="time_budget"):
            ask(time_budget=-1)


def test_sampling_ends_with_the_time_budget():
    network = datasets.random_conjunctions(30, 200, max_length=5, scale=0.2, seed=1)

    def ask(seconds):
        return network.query(method="gibbs", precision=1e-6, time_budget=seconds, chains=64, clock=Clock(0.2))

    answer, longer, again = ask(4.0), ask(12.0), ask(4.0)
    assert answer.stopped_by is StoppedBy.TIME
    assert answer.to_dict()["stopped_by"] == "time"
    assert "the time budget ended before the precision" in str(answer)
    assert longer.diagnostics["sweeps"] > answer.diagnostics["sweeps"]
    assert again.marginals == answer.marginals  # with the same clock the same result, to the bit


def test_annealing_and_climbing_end_with_the_time_budget():
    network = datasets.grid_ising(5, 5, coupling=2.5, seed=2)  # the two ends hardly meet
    truth = network.log_partition(method="exact").value
    seconds = []
    for budget in (2.0, 20.0):
        found = network.log_partition(method="ais", memory=64, chains=16, steps=5, time_budget=budget, clock=Clock(0.2))
        assert found.lower <= truth <= found.upper
        seconds.append(found.seconds)
    assert seconds[0] < seconds[1] < 40
    clock = Clock(0.2)
    network.map_state(method="annealing", time_budget=3.0, clock=clock)
    assert clock.time < 12


def test_a_search_that_finds_nothing_in_time_proves_nothing():
    network = datasets.hard_clauses(60, 250, seed=1)
    with pytest.raises(NothingFound, match="in 2 s, which does not prove") as caught:
        network.query(method="gibbs", memory=64, time_budget=1, clock=Clock(1000.0))
    assert caught.value.exit_code == 6


def test_impossible_evidence_is_told_by_every_question():
    """Two rules that leave nothing together, in a network whose parts are large enough to need a proof by elimination."""
    domain = Domain.from_sizes([2] * 4)
    texts = ["v0=1 & v1=0", "v0=1 & v1=1 & v2=0", "v0=1 & v1=1 & v2=1 & v3=0", "v0=1 & v1=1 & v2=1 & v3=1"]
    session = Session(MarkovNetwork(FeatureSet.from_texts(texts, domain), [-np.inf] * 4))
    for ask in (session.query, session.map_state, session.log_partition, session.expectations):
        with pytest.raises(ImpossibleEvidence):
            ask({"v0": "1"})
    assert session.query()["v0"]["1"] == 0


def test_rows_that_are_answered_are_counted():
    network = datasets.grid_ising(3, 3, seed=1)
    heard = []
    session = Session(network, progress=heard.append)
    rows = Dataset(network.domain, np.unique(network.sample(60, seed=1).codes, axis=0))
    session.predict_proba(rows, "v4")
    assert heard
    assert all(isinstance(event, Counted) for event in heard)
    assert heard[-1].done == heard[-1].total
    heard.clear()
    marks = np.ones((1, network.domain.n_literals), dtype=np.uint8)
    find_row_marginals(session.reduce(), marks, session.start(), method="gibbs", sweeps=10)
    assert [str(event) for event in heard] == ["rows answered: 1 of 1"]
