"""Python threads that share a native object: the same results as one after another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kernel_objects import model_of, needs_native, sampler_of, search_of, small, tables_of


def at_once(*calls, times=30):
    """Results of all calls, made again and again by as many Python threads."""
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(call) for _ in range(times) for call in calls]
        found = [f.result() for f in futures]
    return [found[k :: len(calls)] for k in range(len(calls))]


def same(found, expected):
    for one in found:
        for a, b in zip(one, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@needs_native
def test_threads_may_share_tables():
    s = small(n_rows=5000)
    tables, other = tables_of(s), -s.weights
    alone = tables_of(s)
    alone.sample(s.weights, 1, 1)
    features = np.array([0, 3, 4, 5], np.int32)
    calls = (
        lambda: tables.evaluate(s.weights, True, True, False, 2),
        lambda: tables.evaluate(other, True, True, True, 2),
        lambda: tables.terms(s.weights, 2),
        lambda: (tables.probabilities(other, 8, 1),),
        lambda: (tables.sample(s.weights, 1, 2),),
        lambda: (tables.gram(0, features),),
    )
    tables.sample(s.weights, 1, 1)
    for found, expected in zip(
        at_once(*calls),
        (
            alone.evaluate(s.weights, True, True, False, 1),
            alone.evaluate(other, True, True, True, 1),
            alone.terms(s.weights, 1),
            (alone.probabilities(other, 8, 1),),
            (alone.sample(s.weights, 1, 1),),
            (alone.gram(0, features),),
        ),
        strict=True,
    ):
        same(found, expected)


@needs_native
def test_threads_may_share_a_search():
    """Loading the same network again and again leaves that network, and changes that undo each other leave nothing."""
    s = small(n_rows=10000)
    search, alone = search_of(s), search_of(s)
    alone.load(s.start, s.literals, s.weights, 1)
    feature, extra = np.array([1, 3], np.int32), np.arange(8, dtype=np.int32)
    at_once(lambda: search.load(s.start, s.literals, s.weights, 1), lambda: search.loss(1), times=100)
    np.testing.assert_array_equal(search.logits(), alone.logits())
    at_once(lambda: search.change(feature, 0.5), lambda: search.change(feature, -0.5), search.logits)
    np.testing.assert_allclose(search.logits(), alone.logits(), atol=1e-12)
    found = at_once(lambda: (search.loss(2),), lambda: search.screen(s.start, s.literals, extra, 2), times=5)
    for some, expected in zip(found, ((search.loss(1),), search.screen(s.start, s.literals, extra, 1)), strict=True):
        same(some, expected)


@needs_native
def test_threads_may_share_a_sampler():
    """Every sweep is made once: sixty runs by eight threads leave what sixty runs by one leave."""
    s = small()
    model = model_of(s)
    together, alone = sampler_of(s, model), sampler_of(s, model)
    at_once(
        lambda: together.run(40, None, None, True, False, False, 1), lambda: together.scores(1), together.states, together.sums, times=60
    )
    for _ in range(60):
        alone.run(40, None, None, True, False, False, 1)
    for name in ("states", "sums", "squares"):
        np.testing.assert_array_equal(getattr(together, name)(), getattr(alone, name)())
    np.testing.assert_array_equal(together.scores(2), alone.scores(1))
