"""What is known when a question is asked: states, excluded states, likelihoods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undirected.data.discretize import bin_codes
from undirected.data.literals import get_slice, make_literal, split_literals
from undirected.data.variables import Domain, Variable, as_number
from undirected.errors import DataError, FeatureError, ImpossibleEvidence
from undirected.features.conjunction import parse_feature
from undirected.kernels.types import Array

Evidence = Mapping[str, Any] | Sequence[str] | None


@dataclass
class Given:
    """Evidence in numbers: ``allowed`` marks the states that are left, ``likelihood`` holds logarithms by literal (soft evidence)."""

    allowed: Array
    likelihood: dict[int, float] = field(default_factory=dict)


def read_evidence(domain: Domain, evidence: Evidence | Given) -> Given:
    """Read evidence as users write it.

    A mapping of names to a state (``{"smoker": "yes"}``), to a list or set of states of which one holds, or to likelihoods
    (``{"test": {"positive": 0.9, "negative": 0.2}}``, or an array in the order of the states); or texts such as
    ``"smoker=yes"``, ``"age!=old"`` and, of ordered variables, ``"pain>=3"``. A number given for a variable of bins means its bin.
    """
    if isinstance(evidence, Given):
        return evidence
    given = Given(np.ones(domain.n_literals, dtype=np.uint8))
    if evidence is None:
        return given
    if isinstance(evidence, str):
        evidence = [evidence]
    if isinstance(evidence, Mapping):
        for name, value in evidence.items():
            take(domain, given, domain.index(str(name)), value)
    else:
        for text in evidence:
            _take_text(domain, given, text)
    check_left(domain, given)
    return given


def check_left(domain: Domain, given: Given) -> None:
    """Raise if a variable has no state left."""
    for v, variable in enumerate(domain.variables):
        if not given.allowed[get_slice(domain, v)].any():
            raise ImpossibleEvidence(f"the evidence leaves no state of {variable.name!r}; it has {', '.join(variable.states[:8])}")


def _take_text(domain: Domain, given: Given, text: str) -> None:
    """Add what a text such as ``age!=old`` says."""
    if not isinstance(text, str):
        raise DataError(f"evidence is a mapping of names to states, or texts such as 'smoker=yes', not {text!r}")
    try:
        literals = parse_feature(text, domain, find_state)
    except FeatureError as error:
        raise FeatureError(str(error).replace("in the feature", "in the evidence").replace("the feature", "the evidence")) from None
    for v, state, is_negated in split_literals(domain, literals):
        given.allowed[get_slice(domain, v)] &= (np.arange(domain.n_states[v]) == state) != is_negated


def find_state(variable: Variable, value: Any) -> int:
    """The code of a state, or of the bin that a number falls into."""
    try:
        text = str(value)
    except ValueError:  # a whole number of thousands of digits
        raise DataError(f"variable {variable.name!r} has no state that is so large a number") from None
    number = as_number(text)
    if variable.find(text) is None and variable.edges is not None and number is not None:
        return int(bin_codes(variable, np.array([number]))[0])
    if variable.find(text) is None and number is not None and number == int(number):
        text = str(int(number))  # 1.0 or True for the state 1
    return variable.index(text)


def take(domain: Domain, given: Given, v: int, value: Any) -> None:
    """Add what is known of one variable: a state, states of which one holds, or likelihoods."""
    variable, mine = domain[v], get_slice(domain, v)
    first, k = mine.start, len(variable.states)
    if isinstance(value, Mapping):
        values = np.zeros(k)
        for state, likelihood in value.items():
            code = find_state(variable, state)
            try:
                values[code] = float(likelihood)
            except (TypeError, ValueError, OverflowError):
                raise DataError(f"the likelihood of {variable.name}={state} is not a finite number") from None
        value = values
    if isinstance(value, np.ndarray) and value.ndim:
        if value.dtype.kind not in "biuf" or value.shape != (k,) or not np.isfinite(value).all() or (value < 0).any():
            raise DataError(f"the likelihoods of {variable.name!r} are not {k} numbers of zero or more, one a state")
        given.allowed[mine] &= value > 0
        for s in np.flatnonzero(value > 0):
            given.likelihood[first + int(s)] = given.likelihood.get(first + int(s), 0.0) + float(np.log(value[s]))
        return
    states = value if isinstance(value, list | tuple | AbstractSet) else [value]
    keep = np.zeros(k, dtype=bool)
    for state in states:
        keep[find_state(variable, state)] = True
    given.allowed[mine] &= keep


def mark_rows(domain: Domain, codes: Array) -> Array:
    """The cells of many rows as evidence: marks by row and literal; a negative code leaves the variable open."""
    rows = np.arange(len(codes))
    marks = np.zeros((len(codes), domain.n_literals), dtype=np.uint8)
    for v in range(len(domain)):
        column = codes[:, v].astype(np.int64)
        known = column >= 0
        marks[rows[known], make_literal(domain, v, column[known])] = 1
        marks[~known, get_slice(domain, v)] = 1
    return marks
