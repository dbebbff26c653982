"""Networks with known truth: they are possible, they sum to what they should, and a seed makes the same one again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from undirected import ParameterError, datasets
from undirected.inference import Session
from undirected.inference.enumeration import enumerate_assignments

SEEDS = range(5)
MAKERS = {
    "hard_clauses": lambda seed: datasets.hard_clauses(8, 25, seed=seed),
    "single_conjunction": lambda seed: datasets.single_conjunction(5, 3.0, 7),
    "clusters": lambda seed: datasets.clusters(2, 4, seed=seed),
    "noisy_or": lambda seed: datasets.noisy_or(5, 5, n_observed=3, seed=seed),
    "dynamic_chain": lambda seed: datasets.dynamic_chain(4, 3, n_observed=2, seed=seed),
    "pedigree": lambda seed: datasets.pedigree(5, n_typed=2, seed=seed),
}


def possible_states(network):
    """All assignments, as codes, and whether each breaks no feature of weight minus infinity; told by the features' literals alone."""
    domain = network.domain
    states = np.array(list(itertools.product(*(range(k) for k in domain.n_states))))
    possible = np.ones(len(states), dtype=bool)
    for row, weight in zip(network.features, network.weights, strict=True):
        if weight == -np.inf:
            variables = domain.literal_variable[list(row)]
            possible &= (states[:, variables] != np.array(row) - domain.base[variables]).any(axis=1)
    return states, possible


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_a_seed_makes_the_same_network_again(maker):
    first, again, other = maker(1), maker(1), maker(2)
    assert first.features == again.features
    assert np.array_equal(first.weights, again.weights)
    fixed = maker is MAKERS["single_conjunction"]  # nothing is drawn
    assert (first.features == other.features and np.array_equal(first.weights, other.weights)) is fixed


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MAKERS)
def test_every_network_is_possible(name, seed):
    network = MAKERS[name](seed)
    _, possible = possible_states(network)
    assert possible.any()
    assert np.isinf(network.weights).any() == (name not in ("single_conjunction", "clusters"))
    found = enumerate_assignments(Session(network).reduce())  # of the states that rules leave to each variable on its own
    assert int((found.probabilities > 0).sum()) == int(possible.sum())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: datasets.noisy_or(5, 6, seed=seed),
        lambda seed: datasets.noisy_or(4, 4, leak=0.0, seed=seed),
        lambda seed: datasets.dynamic_chain(4, 3, seed=seed),
        lambda seed: datasets.dynamic_chain(3, 2, n_states=3, zeros=0.6, seed=seed),
        lambda seed: datasets.dynamic_chain(3, 1, noise=0.0, seed=seed),
        lambda seed: datasets.pedigree(5, seed=seed),
        lambda seed: datasets.pedigree(3, n_loci=2, seed=seed),
        lambda seed: datasets.pedigree(4, n_alleles=3, seed=seed),
    ],
)
def test_tables_of_probabilities_sum_to_one(make, seed):
    network = make(seed)
    assert abs(float(network.log_partition(method="exact"))) < 1e-9
    assert abs(enumerate_assignments(Session(network).reduce()).log_z) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: datasets.noisy_or(6, 6, n_observed=6, seed=seed),
        lambda seed: datasets.dynamic_chain(4, 3, n_observed=3, seed=seed),
        lambda seed: datasets.pedigree(5, n_typed=5, seed=seed),
    ],
)
def test_observations_are_an_event(make, seed):
    assert -50 < float(make(seed).log_partition(method="exact")) < 0


def test_genes_are_inherited():
    """Each allele of a child is the one of the parent's that its selector names, whatever the parents are."""
    network = datasets.pedigree(3, seed=3)
    states, possible = possible_states(network)
    # Alleles of two founders and their child are variables 0 to 5, the selectors 6 and 7.
    parents = {}
    for side in (0, 1):
        fits = {p: all(x[4 + side] == x[2 * p + x[6 + side]] for x in states[possible]) for p in (0, 1)}
        assert sum(fits.values()) == 1
        parents[side] = next(p for p, fit in fits.items() if fit)
    assert set(parents.values()) == {0, 1}
    assert possible.sum() == 2**6


def test_clauses_stay_within_their_window():
    network = datasets.hard_clauses(60, 150, window=5, seed=1)
    spans = [max(row) // 2 - min(row) // 2 for row in network.features]
    assert max(spans) == 4
    assert np.isfinite(float(network.log_partition(method="exact")))


@pytest.mark.parametrize(("n", "weight"), [(3, 2.0), (10, 7.0), (12, 9.0)])
def test_a_single_conjunction_has_its_formula(n, weight):
    network = datasets.single_conjunction(n, weight, n + 2)
    log_z = np.log(2.0**n - 1 + np.exp(weight)) + 2 * np.log(2)
    assert float(network.log_partition(method="exact")) == pytest.approx(log_z, abs=1e-9)
    p = (2.0 ** (n - 1) - 1 + np.exp(weight)) / (2.0**n - 1 + np.exp(weight))
    found = enumerate_assignments(Session(network).reduce())
    assert found.probabilities @ found.assignments[:, 0] == pytest.approx(p)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n_states", [2, 3])
def test_clusters_have_their_mass_in_far_modes(n_states, seed):
    network = datasets.clusters(1, 6, coupling=3.0, tilt=1.0, n_states=n_states, seed=seed)
    found = enumerate_assignments(Session(network).reduce())
    modes = np.flatnonzero((found.assignments == found.assignments[:, :1]).all(axis=1))
    masses = found.probabilities[modes]
    assert len(modes) == n_states
    assert masses.sum() > 0.99
    assert masses.min() > 0.002
    assert len(np.unique(masses.round(6))) == n_states


@pytest.mark.parametrize(
    "make",
    [
        lambda: datasets.hard_clauses(2, 1),
        lambda: datasets.hard_clauses(3, 8),
        lambda: datasets.hard_clauses(9, 2, window=2),
        lambda: datasets.single_conjunction(3, 1.0, 2),
        lambda: datasets.clusters(0, 3),
        lambda: datasets.noisy_or(2, 2),
        lambda: datasets.noisy_or(3, 2, n_observed=3),
        lambda: datasets.dynamic_chain(2, 0),
        lambda: datasets.pedigree(0),
    ],
)
def test_sizes_that_cannot_be_are_refused(make):
    with pytest.raises(ParameterError):
        make()
