"""One interface to all engines, and the choice between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undirected.data.literals import get_slice
from undirected.errors import NothingFound, ParameterError, did_you_mean
from undirected.inference import belief_propagation, enumeration, gibbs, mcsat, mean_field
from undirected.inference.answer import Answer, name_values
from undirected.inference.gibbs import Sampling
from undirected.inference.junction_tree import Plan, count_cells, count_cheap_cells, format_count
from undirected.inference.reduced import ReducedNetwork
from undirected.kernels.types import Array
from undirected.work import StoppedBy, Work

METHODS = ("auto", "junction-tree", "gibbs", "mcsat", "bp", "trw", "mean-field", "enumeration")
BOUNDS = {"bp": "log_partition_bethe", "trw": "log_partition_upper", "mean-field": "log_partition_lower"}


def check_method(method: str, known: Sequence[str]) -> None:
    """Raise if there is no method of this name."""
    if method not in known:
        raise ParameterError(f"method={method!r} is not known.{did_you_mean(method, known)} Choose one of {', '.join(known)}")


def check_feasible(reduced: ReducedNetwork, method: str, work: Work) -> None:
    """Raise if nothing is possible, by the plan that the method needs anyway if it needs one."""
    if reduced.rules is None:
        return
    if method == "auto":
        reduced.check_feasible(reduced.plan(count_cheap_cells(work), work))
    elif method in ("junction-tree", "exact"):
        reduced.check_feasible(reduced.plan(count_cells(work), work))
    else:
        reduced.check_feasible_alone(work)


def answer_query(reduced: ReducedNetwork, wanted: list[int], method: str, work: Work, sampling: Sampling) -> Answer:
    """Marginals of the wanted variables by one of the methods."""
    if method == "auto":
        return _answer_auto(reduced, wanted, work, sampling)
    if method in ("gibbs", "mcsat"):
        return _answer_sampled(reduced, wanted, method, work, sampling, "Asked for.")
    if method in ("bp", "trw", "mean-field"):
        return _answer_approximately(reduced, wanted, method, work)
    return _answer_exactly(reduced, wanted, method, work)


def find_wanted(reduced: ReducedNetwork, variables: Sequence[str] | None) -> list[int]:
    """The numbers of the variables asked about: all that evidence leaves open, if none are named."""
    if variables is None:
        return [int(v) for v in reduced.asked_variables()]
    if isinstance(variables, str):
        variables = [variables]
    return [reduced.domain.index(name) for name in variables]


def _make_answer(reduced: ReducedNetwork, wanted: list[int], p: Array, errors: Array, **how: Any) -> Answer:
    """Put values and errors by literal under the names of variables and states."""
    how.setdefault("diagnostics", {})
    return Answer(name_values(reduced.domain, p, wanted), name_values(reduced.domain, errors, wanted), seconds=0.0, **how)


def _answer_exactly(reduced: ReducedNetwork, wanted: list[int], method: str, work: Work) -> Answer:
    """Sum out everything, or enumerate it."""
    if method == "enumeration":
        p, log_z = enumeration.find_marginals(reduced)
        why = "All states, one by one."
    else:
        plan = reduced.plan_exact("exact inference", work)
        p, log_z = reduced.solve(plan)
        why = f"Asked for; {plan.describe()}."
    figures = {"log_partition": log_z}
    return _make_answer(reduced, wanted, p, np.zeros(len(p)), method=method, exact=True, mixed=None, why=why, diagnostics=figures)


def _answer_approximately(reduced: ReducedNetwork, wanted: list[int], method: str, work: Work) -> Answer:
    """Pass messages, or find the closest independent distribution."""
    if method == "mean-field":
        found = mean_field.approximate(reduced, work)
    else:
        found = belief_propagation.propagate(reduced, work, reweighted=method == "trw")
    figures = {BOUNDS[method]: found.log_z, "updates": found.updates, "damping": found.damping}
    unknown = np.full(len(found.marginals), np.nan)
    return _make_answer(
        reduced, wanted, found.marginals, unknown, method=method, exact=False, mixed=None, why="Asked for.", diagnostics=figures,
        converged=found.converged,
    )  # fmt: skip


def find_literals(reduced: ReducedNetwork, variables: Sequence[int] | Array) -> Array:
    """The literals that name states of these variables."""
    slices = [get_slice(reduced.domain, v) for v in variables]
    return np.concatenate([np.arange(mine.start, mine.stop) for mine in slices] or [np.zeros(0, dtype=np.int64)]).astype(np.int64)


def _answer_sampled(reduced: ReducedNetwork, wanted: list[int], method: str, work: Work, sampling: Sampling, why: str) -> Answer:
    """Sample for the whole time budget, whatever the work before took of it."""
    open_ones = np.intersect1d(wanted, reduced.open_variables())
    literals = find_literals(reduced, open_ones)
    if not len(literals):
        p = reduced.given.allowed.astype(float)
        return _make_answer(reduced, wanted, p, np.zeros(len(p)), method="evidence", exact=True, mixed=None, why="Every state is known.")
    find_marginals = gibbs.find_marginals if method == "gibbs" else mcsat.find_marginals
    found = find_marginals(reduced, literals, work.extend(work.budget), sampling)
    known = np.setdiff1d(np.arange(reduced.domain.n_literals), find_literals(reduced, reduced.open_variables()))
    p, errors = found.diagnosis.mean.copy(), found.diagnosis.standard_error.copy()
    if not found.mixed:
        errors[:] = np.nan  # chains that disagree on one literal may well be wrong on the others
    p[known], errors[known] = reduced.given.allowed[known], 0.0
    return _make_answer(
        reduced, wanted, p, errors, method=method, exact=False, mixed=found.mixed, why=why, diagnostics=found.summarise(literals),
        stopped_by=found.stopped_by,
    )  # fmt: skip


def _answer_auto(reduced: ReducedNetwork, wanted: list[int], work: Work, sampling: Sampling) -> Answer:
    """Exact for every part that can be summed out within the time budget, sampling for what remains of the variables asked for; where
    chains do not mix, exact in whatever time it takes, if memory allows."""
    cheap, fitting = count_cheap_cells(work), count_cells(work)
    found = nothing = None
    try:
        found = _answer_by_parts(reduced, wanted, work, sampling, cheap)
    except NothingFound as error:
        nothing = error
    unsure = found is None or (found.mixed is False and found.stopped_by != StoppedBy.INTERRUPT)
    if unsure and cheap < fitting and _fits(reduced.plan(fitting, work), wanted):
        return _answer_by_parts(reduced, wanted, work, sampling, fitting)
    if found is None:
        assert nothing is not None
        raise nothing
    return found


def _fits(plan: Plan, wanted: list[int]) -> bool:
    """Whether every part with a variable asked for is solvable."""
    needed = plan.of[wanted]
    return bool(plan.solvable[np.unique(needed[needed >= 0])].all())


def _answer_by_parts(reduced: ReducedNetwork, wanted: list[int], work: Work, sampling: Sampling, limit: float) -> Answer:
    """Exact for every part of at most so many table cells, sampling for the others."""
    plan = reduced.plan(limit, work)
    needed = np.unique(plan.of[wanted]) if len(wanted) else np.zeros(0, dtype=int)
    needed = needed[needed >= 0]
    aside = reduced.freeze(np.flatnonzero((plan.of >= 0) & ~np.isin(plan.of, needed)), work)
    p, log_z = aside.solve(aside.plan(limit, work))
    unsolved = np.isnan(np.add.reduceat(p, reduced.domain.base[:-1])) if len(p) else np.zeros(0, dtype=bool)
    if not unsolved[wanted].any():
        whole = len(needed) == len(plan.cells) and np.isfinite(log_z)
        figures = {"log_partition": log_z} if whole else {}
        why = f"Cheap enough to be exact: {plan.describe()}."
        return _make_answer(
            reduced, wanted, p, np.zeros(len(p)), method="junction-tree", exact=True, mixed=None, why=why, diagnostics=figures
        )
    ruled = np.isinf(reduced.network.weights)[reduced.network.features.owner]
    hard = bool(unsolved[reduced.network.features.variables[ruled]].any())  # a rule among what is to be sampled
    method = "mcsat" if hard else "gibbs"
    rest = aside.freeze(np.setdiff1d(aside.open_variables(), np.flatnonzero(unsolved)), work)
    found = _answer_sampled(rest, wanted, method, work, sampling, _explain_sampling(plan, needed, hard))
    exact_ones = [v for v in wanted if not unsolved[v]]
    found.marginals |= name_values(reduced.domain, p, exact_ones)
    found.standard_errors |= name_values(reduced.domain, np.zeros(len(p)), exact_ones)
    if len(np.intersect1d(exact_ones, reduced.open_variables())):
        found.method = f"junction-tree and {method}"
    return found


def _explain_sampling(plan: Plan, needed: Array, hard: bool) -> str:
    """Why what is asked for was sampled, in a sentence."""
    worst = needed[np.argmax(plan.cells[needed])]
    size = int((plan.of == worst).sum())
    text = f"{size} variables hang together too densely to be summed out (a clique of {format_count(plan.largest[worst])} cells or more)"
    return text + ("; infinite weights ask for MC-SAT." if hard else ".")
