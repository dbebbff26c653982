"""How the weights of a stream remember, and which candidates enter."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import Dataset, Domain, FeatureSet, MarkovNetwork, ParameterError, PseudoLikelihood, fit_weights
from undirected.streaming.fitting import Fitting, Limits, View
from undirected.streaming.memory import Memory
from undirected.work import Work

WORK = Work.start(threads=1)


def draw(n_rows, seed=0, n=6):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, n_rows)
    codes = np.column_stack([first, *(np.where(rng.random(n_rows) < 0.45, first, rng.integers(0, 2, n_rows)) for _ in range(n - 1))])
    return Dataset(Domain.from_sizes([2] * n), codes)


def limits(**changed):
    return Limits(**{"l1": 1.0, "sd": 1.0, "tol": 1e-8, "screened": False, "patience": 2, "max_features": 1 << 30, **changed})


def learn(fitting, chunks, candidates, how):
    for chunk in chunks:
        fitting.learn(chunk, candidates, how, WORK)
    return fitting


def pairs_of(data):
    features = FeatureSet.all_pairs(data.domain)
    return features.subset(features.lengths > 1)


def test_copies_of_one_chunk_come_to_the_fit_of_all_of_them():
    """With decay 1 the quadratic's centre absorbs what a chunk's gradient says, whatever its stiffness was."""
    chunk = draw(200)
    fitting, gaps = Fitting.start(chunk.domain, Memory()), []
    for n in range(1, 81):
        fitting.learn(chunk, pairs_of(chunk), limits(), WORK)
        if n in (5, 20, 80):
            batch = fit_weights(fitting.features, Dataset(chunk.domain, chunk.codes, n * chunk.weights), 1.0, 1.0, tol=1e-9)
            objective = PseudoLikelihood(fitting.features, chunk).evaluate(fitting.weights)[0] * n
            ours = objective + np.abs(fitting.weights).sum() + 0.5 * fitting.weights @ fitting.weights
            gaps.append(ours / batch.objective - 1)
    assert gaps[2] < gaps[1] / 2
    assert gaps[2] < 2e-4


def test_one_pass_comes_closer_to_all_rows_than_the_last_chunk_alone():
    data = draw(4000)
    chunks = [Dataset(data.domain, data.codes[at : at + 400]) for at in range(0, 4000, 400)]
    batch = fit_weights(FeatureSet.all_pairs(data.domain), data, 1.0, 1.0)
    fresh = draw(20_000, seed=3)
    loss = {}
    for how in ("curvature", "none", "window"):
        fitting = learn(Fitting.start(data.domain, Memory(how, window=3)), chunks, pairs_of(data), limits(tol=1e-6))
        loss[how] = -MarkovNetwork(fitting.features, fitting.weights).pll(fresh)
    best = -batch.network().pll(fresh)
    assert loss["curvature"] < 1.01 * best
    assert loss["curvature"] < loss["window"] < loss["none"]


def test_none_is_the_fit_to_the_last_chunk_and_window_that_to_the_last_ones():
    chunks = [draw(150, seed) for seed in range(5)]
    none = learn(Fitting.start(chunks[0].domain, Memory("none")), chunks, pairs_of(chunks[0]), limits())
    alone = fit_weights(none.features, chunks[-1], 1.0, 1.0, tol=1e-9)
    np.testing.assert_allclose(none.weights, alone.weights, atol=1e-4)
    window = learn(Fitting.start(chunks[0].domain, Memory("window", window=3)), chunks, pairs_of(chunks[0]), limits())
    together = fit_weights(window.features, Dataset.merge(chunks[-3:]), 1.0, 1.0, tol=1e-9)
    np.testing.assert_allclose(window.weights, together.weights, atol=1e-4)


def test_the_penalty_is_the_quadratic_of_the_past_and_the_prior():
    memory = Memory()
    memory.precision, memory.centre = np.array([4.0, 0.0]), np.array([0.5, 0.0])
    penalty = memory.make_penalty(0.7, 0.5)
    w = np.array([1.0, -2.0])
    expected = 0.7 * 3 + 0.5 * 4 * (1 - 0.5) ** 2 + (1 + 4) / (2 * 0.25)
    constant = penalty.add_value(0.0, np.zeros(2)) - 0.5 * 4 * 0.25
    assert penalty.add_value(0.0, w) - constant == pytest.approx(expected)


def test_memory_fades_and_drift_lowers_it():
    chunk = draw(300)
    kept, fading = (learn(Fitting.start(chunk.domain, Memory(decay=d)), [chunk] * 30, pairs_of(chunk), limits()) for d in (1.0, 0.5))
    assert kept.memory.precision.sum() > 10 * fading.memory.precision.sum()
    before = kept.memory.precision.copy()
    kept.memory.forget()
    np.testing.assert_allclose(kept.memory.precision, before / 10)
    with pytest.raises(ParameterError, match="decay=1.5"):
        Memory(decay=1.5)
    with pytest.raises(ParameterError, match="window=0"):
        Memory(window=0)


def test_slopes_and_their_errors_are_those_of_the_gradient():
    chunk = draw(300)
    atoms = FeatureSet.atomic(chunk.domain)
    view = View(atoms, chunk, WORK)
    weights = view.objective.independent_start
    pairs = pairs_of(chunk)
    slope, error = view.find_slopes(pairs, weights)
    both = atoms.concatenate(pairs)
    start = np.concatenate([weights, np.zeros(len(pairs))])
    gradient = PseudoLikelihood(both, chunk).evaluate(start)[1][len(atoms) :]
    np.testing.assert_allclose(slope, -gradient, atol=1e-8)
    by_row = np.array([PseudoLikelihood(both, Dataset(chunk.domain, row[None])).evaluate(start)[1][len(atoms) :] for row in chunk.codes])
    np.testing.assert_allclose(error, np.sqrt((by_row**2).sum(axis=0)), rtol=1e-8)


def test_noise_stays_out_and_what_matters_enters():
    rng = np.random.default_rng(0)
    fitting, data = None, draw(20_000, n=6)
    noise = rng.integers(0, 2, (20_000, 6))
    domain = Domain.from_sizes([2] * 12)
    for at in range(0, 20_000, 500):
        chunk = Dataset(domain, np.hstack([data.codes, noise])[at : at + 500])
        fitting = fitting or Fitting.start(domain, Memory())
        fitting.learn(chunk, pairs_of(chunk), limits(screened=True, tol=1e-5, l1=2.0), WORK)
    variables = [set(domain.literal_variable[list(f)]) for f in fitting.features if len(f) == 2]
    batch = fit_weights(FeatureSet.all_pairs(domain), Dataset(domain, np.hstack([data.codes, noise])), 2.0, 1.0)
    weighed = [set(domain.literal_variable[list(f)]) for f, w in zip(batch.features, batch.weights, strict=True) if len(f) == 2 and w]
    edges = [{0, v} for v in range(1, 6)]  # all other pairs know nothing of each other but through the first variable
    assert all(edge in variables for edge in edges)
    assert len(variables) < len(weighed)


def test_features_leave_when_their_weights_stay_zero_and_room_is_made_by_what_matters_least():
    chunk = draw(400)
    triples = FeatureSet.from_lists([[1, 3, 5], [3, 5, 7], [5, 7, 9]], chunk.domain)
    fitting = Fitting.start(chunk.domain, Memory("none"))
    fitting.learn(chunk, pairs_of(chunk).union(triples), limits(tol=1e-5), WORK)
    strong = limits(screened=True, l1=60.0, tol=1e-5)
    none = FeatureSet.from_normalised([], chunk.domain)
    for _ in range(3):
        fitting.learn(chunk, none, strong, WORK)
    assert (fitting.weights[fitting.features.lengths > 1] != 0).all()
    small = Fitting.start(chunk.domain, Memory("none"))
    for seed in range(4):
        small.learn(draw(400, seed), pairs_of(chunk), limits(screened=True, tol=1e-5, max_features=10), WORK)
        assert len(small.features) <= 10
        assert (small.features.lengths == 1).sum() == 6
