"""A stream learner under river's own evaluation."""

from __future__ import annotations

import numpy as np
from river import evaluate, metrics, naive_bayes

from undirected import StreamClassifier, StreamedDTSL


def draw(n, seed=0):
    """The target is one variable or another, which a third decides: predictors that take each alone cannot see that."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (n, 5))
    target = np.where(rng.random(n) < 0.95, np.where(rows[:, 1], rows[:, 0], rows[:, 2]), rng.integers(0, 2, n))
    return [({f"x{k}": int(v) for k, v in enumerate(row)}, bool(y)) for row, y in zip(rows, target, strict=True)]


def test_it_beats_a_classifier_that_cannot_see_interactions():
    model = StreamClassifier(StreamedDTSL(chunk_rows=200, watch="none", conversion="default"), "y")
    ours = evaluate.progressive_val_score(draw(2000), model, metrics.Accuracy()).get()
    theirs = evaluate.progressive_val_score(draw(2000), naive_bayes.BernoulliNB(), metrics.Accuracy()).get()
    assert ours > theirs + 0.1
    assert set(model.predict_proba_one({f"x{k}": 0 for k in range(5)})) == {False, True}


def test_before_the_first_chunk_it_says_nothing():
    model = StreamClassifier(StreamedDTSL(), "y")
    assert model.predict_proba_one({"x0": 0}) == {}
    assert model.predict_one({"x0": 0}) is None
    copied = model.clone()
    copied.learn_one({"x0": 0}, True)
    assert len(copied.learner.waiting_) == 1
    assert not getattr(model.learner, "waiting_", [])


def test_classes_that_are_numbers_are_classes():
    rng = np.random.default_rng(0)
    model = StreamClassifier(StreamedDTSL(chunk_rows=300, watch="none"), "y")
    for _ in range(900):
        y = int(rng.integers(0, 12))
        model.learn_one({"a": y % 3, "b": y // 3}, y)
    assert model.predict_one({"a": 1, "b": 2}) == 7
    assert not hasattr(model.clone().learner, "network_")
