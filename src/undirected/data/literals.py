"""Literal numbers: the one place that knows how a statement about one variable becomes a number, and back.

The literals of a domain are numbered variable by variable and state by state: ``base[v] + s`` says that variable ``v`` is in state
``s``. The same number plus ``domain.n_literals`` says that it is not. Every function takes one number or an array of them;
`split_literals` is for loops over the few literals of a feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from undirected.data.variables import Domain
    from undirected.kernels.types import Array


def make_literal(domain: Domain, variable: Any, state: Any, negated: Any = False) -> Any:
    """The literal that says that a variable is in a state, or, ``negated``, that it is not."""
    return domain.base[variable] + state + domain.n_literals * negated


def is_literal(domain: Domain, numbers: Any) -> Any:
    """Whether these numbers are literals of the domain."""
    return (numbers >= 0) & (numbers < 2 * domain.n_literals)


def is_negated(domain: Domain, literals: Any) -> Any:
    """Whether a literal excludes its state."""
    return literals >= domain.n_literals


def negate(domain: Domain, literals: Any) -> Any:
    """The literal that says the opposite; with two states it is the same as naming the other state."""
    return (literals + domain.n_literals) % (2 * domain.n_literals)


def drop_negation(domain: Domain, literals: Any) -> Any:
    """The literal that names the same variable and state without negation: a column of the table's bits."""
    return literals % max(1, domain.n_literals)


def get_variable(domain: Domain, literals: Any) -> Any:
    """The variable that a literal is about."""
    return domain.literal_variable[drop_negation(domain, literals)]


def get_state(domain: Domain, literals: Any) -> Any:
    """The state that a literal names or excludes."""
    positive = drop_negation(domain, literals)
    return positive - domain.base[domain.literal_variable[positive]]


def name_other_state(domain: Domain, literals: Array) -> Array:
    """The same literals, but those that exclude one of two states name the other one instead."""
    negated = is_negated(domain, literals)
    if not negated.any():
        return literals
    variable = get_variable(domain, literals)
    other = 2 * domain.base[variable] + 1 - drop_negation(domain, literals)
    return np.where(negated & (domain.n_states[variable] == 2), other, literals)


def split_literals(domain: Domain, literals: Iterable[int]) -> Iterator[tuple[int, int, bool]]:
    """Of each literal the variable, the state that it names or excludes, and whether it excludes it."""
    n, base, variables = domain.n_literals, domain.base, domain.literal_variable
    for literal in literals:
        positive = int(literal) % n
        v = int(variables[positive])
        yield v, positive - int(base[v]), bool(literal >= n)


def get_slice(domain: Domain, variable: int) -> slice:
    """The literals that name a state of a variable, as a slice of anything that is kept by literal."""
    return slice(int(domain.base[variable]), int(domain.base[variable + 1]))


def holds_in(domain: Domain, literals: Any, states: Any) -> Any:
    """Whether literals hold where their variables are in these states."""
    return (get_state(domain, literals) == states) != is_negated(domain, literals)


def holds_for_reference(domain: Domain, literals: Array) -> Array:
    """Whether a literal holds where its variable is in the first state, the one without an atomic feature."""
    return np.asarray(holds_in(domain, literals, 0))
