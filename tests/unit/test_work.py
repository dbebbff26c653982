"""Limits, clock and events: shares of time add up, and nothing listens where nobody was asked to."""

from __future__ import annotations

import math

import pytest

from clocks import Clock, Record
from undirected import DTSL, L1, AllPairs, ParameterError, datasets, tune
from undirected.structure.trace import SearchStep
from undirected.tuning.run import StructureTried
from undirected.weights.outcome import SolverStep
from undirected.work import Counted, Milestone, Stopped, StoppedBy, Work, count_cores


@pytest.fixture
def data():
    return datasets.exact_sample(datasets.grid_ising(3, 3, seed=1), 500, seed=2)


def test_a_watch_tells_how_long_something_goes_on_and_ends_it_at_the_deadline():
    clock, record = Clock(), Record()
    watch = Work.start(time_budget=10, clock=clock, progress=record).watch("counting")
    clock.advance(0.5)
    watch()
    assert record.events == []  # too short to be told of
    clock.advance(3.5)
    watch()
    assert [str(event) for event in record.events] == ["counting: 4 s so far"]
    clock.advance(7)
    with pytest.raises(Stopped):
        watch()
    assert len(record.events) == 1


def test_time_is_told_by_the_clock_that_was_given():
    clock = Clock()
    work = Work.start(time_budget=10, clock=clock)
    assert (work.left(), work.is_over) == (10, False)
    clock.advance(4)
    assert (work.now(), work.left()) == (4, 6)
    half = work.share(0.5)
    assert half.left() == 3
    assert work.left() == 6  # sharing out takes nothing away
    clock.advance(3.5)
    assert half.is_over
    assert half.left() == 0
    with pytest.raises(Stopped) as stopped:
        half.check()
    assert stopped.value.why is StoppedBy.TIME
    work.check()
    assert half.extend(7).left() == 7  # beyond its deadline
    assert work.limit(100).left() == work.left() == 2.5
    assert not work.extend().limited


def test_without_a_budget_there_is_no_end():
    work = Work.start(clock=Clock(step=1e9))
    assert not work.limited
    assert work.left() == math.inf
    assert not work.is_over
    work.check()
    assert work.share(0.5).left() == math.inf
    assert Work.start().threads == count_cores()


def test_listeners_hear_what_they_should():
    record = Record()
    work = Work.start(progress=record)
    event, milestone = Counted("trees", 2, 1000), Milestone()
    work.emit(event)
    work.silent().emit(event)
    work.without_milestones().emit(event)
    work.without_milestones().emit(milestone)
    work.share(0.3).alone().emit(milestone)
    assert record.events == [event, event, milestone]
    assert str(event) == "trees: 2 of 1,000"
    assert work.alone().threads == 1


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"threads": 0}, "threads=0"),
        ({"threads": 2.5}, "threads=2.5"),
        ({"memory": -1}, "memory=-1"),
        ({"time_budget": -1}, "time_budget=-1"),
        ({"time_budget": "soon"}, "time_budget='soon'"),
        ({"seed": -1}, "seed=-1"),
        ({"progress": 3}, "progress=3"),
    ],
)
def test_limits_that_make_no_sense(limits, message):
    with pytest.raises(ParameterError, match=message):
        Work.start(**limits)


def test_why_work_ended_is_written_as_a_plain_text():
    assert f"stopped by {StoppedBy.GIVEN_UP}" == "stopped by given up"
    assert StoppedBy.TIME == "time"


def test_one_stream_tells_of_all_parts_of_a_tuning(data):
    """Trees, weights and structures come in the order in which the work is done."""
    record = Record()
    tune(DTSL(), {"kappa": [0.1], "conversion": ["prune"], "sd": [1.0]}, data, progress=record)
    assert record.kinds() == ["Counted", "SolverStep", "StructureTried", "SolverStep"]
    tried = next(event for event in record.events if isinstance(event, StructureTried))
    assert (tried.structures, tried.settings) == (1, 1)
    assert tried.best.settings["kappa"] == 0.1


@pytest.mark.parametrize(("name", "kinds"), [("all-pairs", {SolverStep}), ("l1", {Counted, SolverStep}), ("dp", {SearchStep, SolverStep})])
def test_learners_tell_of_their_work(name, kinds, data):
    from undirected.structure.names import find_learner_class

    record = Record()
    find_learner_class(name)(progress=record).fit(data)
    assert {type(event) for event in record.events} == kinds
    assert all(str(event) for event in record.events)


def test_a_larger_task_lends_its_limits_to_a_fit(data):
    clock, record = Clock(), Record()
    work = Work.start(threads=1, time_budget=5, clock=clock, progress=record)
    learner = AllPairs(threads=2, time_budget=1e-9)  # its own budget would end at once
    assert learner.fit(data, work=work).fit_.converged
    assert learner.fit_.threads == 1
    assert learner.fit_.seconds == 0  # by the clock that was lent
    assert record.events
    clock.advance(6)
    with pytest.warns(UserWarning, match="time"):
        assert L1().fit(data, work=work).fit_.stopped_by is StoppedBy.TIME
