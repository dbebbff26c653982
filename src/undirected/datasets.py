"""Data sets by name, and synthetic networks whose truth is known.

>>> from undirected import datasets
>>> train = datasets.load("digits")
>>> truth = datasets.grid_ising(3, 3, seed=1)
>>> sample = datasets.exact_sample(truth, 1000, seed=2)
"""

from undirected.data.catalog import fetch, load, names, where
from undirected.inference import exact_sample
from undirected.network.synthetic import (
    clusters,
    dynamic_chain,
    grid_ising,
    hard_clauses,
    noisy_or,
    pedigree,
    random_conjunctions,
    single_conjunction,
)

__all__ = [
    "clusters", "dynamic_chain", "exact_sample", "fetch", "grid_ising", "hard_clauses", "load", "names", "noisy_or", "pedigree",
    "random_conjunctions", "single_conjunction", "where",
]  # fmt: skip
