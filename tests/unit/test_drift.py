"""Alarms: planted changes are found soon, and a world that stays as it is raises hardly any."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import Dataset, Domain, StreamedDTSL
from undirected.errors import MissingExtra, ParameterError
from undirected.streaming import drift
from undirected.streaming.drift import Watch

DOMAIN = Domain.from_sizes([2] * 8)
DELAY = 400  # rows after which a change of this size has been found
ALARMS = 0.05  # of stationary streams of 20,000 rows may raise one, at the default delta


def draw(n_rows, seed, turned=()):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, n_rows)
    columns = [np.where(rng.random(n_rows) < 0.8, 1 - first if v in turned else first, rng.integers(0, 2, n_rows)) for v in range(1, 8)]
    return np.column_stack([first, *columns])


def stream(codes, size=200, **params):
    learner, reports = StreamedDTSL(watch="rows", **params), []
    for at in range(0, len(codes), size):
        learner.learn_many(Dataset(DOMAIN, codes[at : at + size]))
        reports.append(learner.last_)
    return learner, reports


@pytest.mark.parametrize("seed", range(4))
def test_a_planted_change_is_found_soon_and_its_variables_named(seed):
    codes = np.vstack([draw(4000, seed), draw(2000, seed + 100, turned=(3, 6))])
    _, reports = stream(codes)
    alarms = [report for report in reports if report.drift]
    assert not [report for report in alarms if report.total_rows <= 4000]
    assert alarms[0].total_rows <= 4000 + DELAY
    named = alarms[0].drift.split("most: ")[1]
    assert {"v3", "v6"} <= {part.split(" ")[0] for part in named.split(", ")}


def test_stationary_losses_raise_no_more_alarms_than_stated():
    """The detector alone, on losses of rows as they come from a fixed distribution: 60 streams of 20,000 rows."""
    rng = np.random.default_rng(0)
    alarmed = 0
    for _ in range(60):
        watch = Watch("rows", 0.002, 1)
        found = [watch.update(chunk, ["a"]) for chunk in rng.gamma(2.0, 0.2, (10, 2000, 1))]
        alarmed += any(found)
    assert alarmed <= 60 * ALARMS


def test_a_falling_loss_is_no_drift():
    rng = np.random.default_rng(0)
    watch = Watch("rows", 0.002, 1)
    assert not any(watch.update(level + rng.gamma(2.0, 0.05, (500, 1)), ["a"]) for level in (1.0, 0.6, 0.3, 0.2, 0.1))


@pytest.mark.parametrize("reaction", ["forget", "rebuild"])
def test_reactions_bring_the_score_back_sooner(reaction):
    codes = np.vstack([draw(6000, 1), draw(3000, 2, turned=(2, 3, 5, 6))])
    scores = {}
    for how in ("none", reaction):
        learner, reports = stream(codes, drift=how)
        scores[how] = np.mean([report.npll for report in reports[-10:]])
        fresh = learner.score_many(Dataset(DOMAIN, draw(4000, 9, turned=(2, 3, 5, 6))))
        scores[how, "fresh"] = fresh
    assert scores[reaction] > scores["none"]
    assert scores[reaction, "fresh"] > scores["none", "fresh"]


def test_each_variable_may_be_watched():
    codes = np.vstack([draw(3000, 1), draw(1500, 2, turned=(4,))])
    learner = StreamedDTSL(watch="variables")
    for at in range(0, len(codes), 250):
        learner.learn_many(Dataset(DOMAIN, codes[at : at + 250]))
        if learner.last_.drift:
            break
    assert "v4" in learner.last_.drift


def test_without_river_nothing_is_watched_unless_asked_for(monkeypatch):
    def missing():
        raise MissingExtra("river is not here")

    monkeypatch.setattr(drift, "find_adwin", missing)
    drift._is_here.cache_clear()
    try:
        assert Watch("auto").watch == "none"
        with pytest.raises(MissingExtra):
            Watch("rows")
    finally:
        drift._is_here.cache_clear()
    with pytest.raises(ParameterError, match="watch='all'"):
        Watch("all")
