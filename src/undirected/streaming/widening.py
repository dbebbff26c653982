"""New states in a domain: features keep their meaning, and their literals get new numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import drop_negation, get_state, get_variable, is_negated, make_literal
from undirected.data.variables import MISSING_STATE, Domain
from undirected.errors import DataError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array


def widen_domain(domain: Domain, new: Mapping[int, Sequence[str]]) -> Domain:
    """Add states, by the number of their variable, behind those that it has."""
    variables = list(domain.variables)
    for v, states in new.items():
        if variables[v].edges is not None and list(states) != [MISSING_STATE]:
            raise DataError(f"variable {variables[v].name!r} holds numbers in bins; {states[0]!r} cannot become a state of it")
        variables[v] = replace(variables[v], states=(*variables[v].states, *states))
    return Domain(variables, domain.named)


def translate_literals(literals: Array, old: Domain, new: Domain) -> Array:
    """Number literals of a domain as one with more states numbers them."""
    return np.asarray(
        make_literal(new, get_variable(old, literals), get_state(old, literals), is_negated(old, literals).astype(np.int64))
    ).astype(np.int32)


def widen_features(features: FeatureSet, domain: Domain) -> FeatureSet:
    """The same features over a domain that has more states; their order stays."""
    return FeatureSet(domain, features.start, translate_literals(features.literals, features.domain, domain))


def widen_data(data: Dataset, domain: Domain) -> Dataset:
    """The same rows over a domain that has more states."""
    return Dataset(domain, data.codes, data.weights, data.source, data.lines)


def spread_by_literal(values: Array, old: Domain, new: Domain) -> Array:
    """Values kept by literal, with zeros for new states; the first axis is that of the literals."""
    out = np.zeros((new.n_literals, *values.shape[1:]), dtype=values.dtype)
    place = translate_literals(np.arange(old.n_literals), old, new)
    out[drop_negation(new, place)] = values
    return out
