"""Random small problems for hypothesis: domains, tables, features, networks."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from undirected import Dataset, Domain, FeatureSet, MarkovNetwork, Variable


@st.composite
def domains(draw, most_variables=5, most_states=4, names=False):
    sizes = draw(st.lists(st.integers(1, most_states), min_size=1, max_size=most_variables))
    if not names:
        return Domain.from_sizes(sizes)
    text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
    chosen = draw(st.lists(text, min_size=len(sizes), max_size=len(sizes), unique=True))
    states = [draw(st.lists(text, min_size=k, max_size=k, unique=True)) for k in sizes]
    return Domain(Variable(n, tuple(s)) for n, s in zip(chosen, states, strict=True))


@st.composite
def feature_sets(draw, domain, most=8):
    rows = []
    for _ in range(draw(st.integers(0, most))):
        members = draw(st.lists(st.integers(0, len(domain) - 1), unique=True, max_size=4))
        row = []
        for v in members:
            k = int(domain.n_states[v])
            if k > 2 and draw(st.booleans()):
                out = draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=k - 1, unique=True))
                row += [domain.n_literals + int(domain.base[v]) + s for s in out]
            else:
                row.append(int(domain.base[v]) + draw(st.integers(0, k - 1)))
        rows.append(row)
    return FeatureSet.from_lists(rows, domain)


@st.composite
def networks(draw, names=False, **kwargs):
    features = draw(feature_sets(draw(domains(names=names, **kwargs))))
    weights = draw(st.lists(st.floats(-3, 3), min_size=len(features), max_size=len(features)))
    return MarkovNetwork(features, weights)


@st.composite
def tables(draw, domain, most=12):
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    codes = np.stack([rng.integers(0, k, n) for k in domain.n_states], axis=1)
    return Dataset(domain, codes, rng.integers(1, 4, n).astype(float))


@st.composite
def problems(draw, **kwargs):
    """A network and a table over its domain."""
    network = draw(networks(**kwargs))
    return network, draw(tables(network.domain))


def all_rows(domain):
    """Every state of a small domain, one a row."""
    grids = np.meshgrid(*[np.arange(k) for k in domain.n_states], indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=1)
