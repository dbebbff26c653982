"""Small native objects for tests of the kernels."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from undirected.data.packed import pack
from undirected.kernels import backend

needs_native = pytest.mark.skipif(backend().name != "native", reason="the native kernels are not built")


def small(seed=0, n_rows=100):
    """A network over variables of 2, 3, 1 and 2 states, and a random table, as the kernels take them."""
    rng = np.random.default_rng(seed)
    n_states = np.array([2, 3, 1, 2], dtype=np.int32)
    codes = np.stack([rng.integers(0, k, n_rows) for k in n_states], axis=1)
    features = [[1], [3], [7], [1, 3], [1, 12], [0, 2, 7], [5, 7], [3, 6]]
    return SimpleNamespace(
        n_states=n_states,
        n_literals=8,
        codes=np.ascontiguousarray(codes.T, dtype=np.int16),
        columns=pack(codes, n_states),
        row_weight=rng.integers(1, 4, n_rows).astype(float),
        start=np.concatenate([[0], np.cumsum([len(f) for f in features])]),
        literals=np.array([x for f in features for x in f], dtype=np.int32),
        weights=rng.normal(size=len(features)),
        price=np.arange(9) * 0.01,
    )


def tables_of(s, **other):
    given = {**vars(s), **other}
    args = (given[k] for k in ("columns", "n_states", "row_weight", "start", "literals"))
    return backend().module.PseudoLikelihoodTables(*args, 1 << 20, 1, given.get("targets"))


def search_of(s, **other):
    given = {**vars(s), **other}
    return backend().module.Search(given["columns"], given["n_states"], given["row_weight"])


def model_of(s, **other):
    given = {**vars(s), **other}
    return backend().module.Model(given["n_states"], given["start"], given["literals"], given["weights"])


def sampler_of(s, model, n_chains=200, **other):
    given = {"evidence": np.ones((1, 8), np.uint8), "row_of": np.zeros(n_chains, np.int32), "order": np.arange(4, dtype=np.int32)} | other
    states = other.get("states", np.zeros((n_chains, 4), np.int16))
    return backend().module.Sampler(model, given["evidence"], given["row_of"], states, given["order"], 1)
