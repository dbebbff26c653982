"""Domains that differ a little, joined into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from undirected.data.variables import MISSING_STATE, TRUTH, Domain, Variable, sort_states
from undirected.errors import DataError, did_you_mean


def merge_domains(domains: Sequence[Domain], sources: Sequence[str]) -> Domain:
    """Join domains over the same variables, in the order of the first; ``sources`` name their tables in errors.

    A variable has the states of all domains. Where each domain has them sorted, so are they together (numbers by size, texts by the
    alphabet); else those of the first come first, and the new ones of each other follow. Zeros and ones among truth values are such. A
    state for missing cells stays the last. Bins that differ, and orders that contradict each other, cannot be joined.
    """
    first = domains[0]
    if all(domain == first and domain.named == first.named for domain in domains):
        return first
    named = all(domain.named for domain in domains)
    for domain, source in zip(domains, sources, strict=True):
        _check_variables(first, domain, named, source)
    variables = []
    for v, variable in enumerate(first.variables):
        found = dict.fromkeys(domain[domain.index(variable.name) if named else v] for domain in domains)  # the different ones, in order
        variables.append(_merge_variables(variable.name, list(found)))
    return Domain(variables, named=first.named)


def _check_variables(first: Domain, domain: Domain, named: bool, source: str) -> None:
    """Raise where a domain has other variables than the first."""
    missing, extra = (sorted(set(a.names) - set(b.names)) if named else [] for a, b in ((first, domain), (domain, first)))
    if missing:
        raise DataError(f"{source} has no variable {missing[0]!r}, which the first table has.{did_you_mean(missing[0], domain.names)}")
    if extra:
        raise DataError(f"{source} has the variable {extra[0]!r}, which the first table has not.{did_you_mean(extra[0], first.names)}")
    if len(first) != len(domain):
        raise DataError(f"{source} has {len(domain)} variables where the first table has {len(first)}")


def _merge_variables(name: str, variables: list[Variable]) -> Variable:
    first = variables[0]
    if len({variable.edges for variable in variables}) > 1:
        raise DataError(f"variable {name!r} was cut into different bins; read all tables with the domain of one (domain=...)")
    listed = [_leave_out_missing(variable) for variable in variables]
    last = (MISSING_STATE,) if any(MISSING_STATE in variable.states for variable in variables) else ()
    ordered = any(variable.ordered for variable in variables)
    if ordered:
        states = _join_orders(name, listed)
    elif first.edges is not None:
        states = listed[0]
    elif all(states in (("0", "1"), TRUTH) for states in listed):
        states = TRUTH
    elif all(list(states) == sort_states(states) for states in listed):
        states = tuple(sort_states({state for part in listed for state in part}))
    else:
        states = tuple(dict.fromkeys(state for part in listed for state in part))
    return Variable(name, (*states, *last), first.edges, ordered and not last)


def _leave_out_missing(variable: Variable) -> tuple[str, ...]:
    return tuple(state for state in variable.states if state != MISSING_STATE) if len(variable.states) > 1 else variable.states


def _join_orders(name: str, listed: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Take the longest of several orders, if all others are parts of it."""
    longest = max(listed, key=len)
    for states in listed:
        if states != tuple(state for state in longest if state in states):
            raise DataError(
                f"the states of variable {name!r} are ordered in different ways: {', '.join(longest[:8])} and {', '.join(states[:8])}; "
                "declare the same order in all tables"
            )
    return longest
