"""One interface to all engines, and the choice between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.readers import read_data
from undirected.errors import NothingFound, ParameterError, check_number, check_work, did_you_mean
from undirected.inference import belief_propagation, enumeration, gibbs, junction_tree, mcsat
from undirected.inference import mean_field as mean_field_engine
from undirected.inference.answer import Answer, by_name
from undirected.inference.evidence import Evidence
from undirected.inference.problem import Parts, Problem, counted
from undirected.kernels.types import Array
from undirected.work import MEMORY

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

METHODS = ("auto", "junction-tree", "gibbs", "mcsat", "bp", "trw", "mean-field", "enumeration")


def check_method(method: str, known: Sequence[str]) -> None:
    if method not in known:
        raise ParameterError(f"method={method!r} is not known.{did_you_mean(method, known)} Choose one of {', '.join(known)}")


def query(
    network: MarkovNetwork,
    evidence: Evidence = None,
    variables: Sequence[str] | None = None,
    method: str = "auto",
    *,
    precision: float = 0.005,
    time_budget: float | None = 10.0,
    chains: int | None = None,
    scan: str = "systematic",
    data: Any = None,
    memory: int = MEMORY,
    threads: int | None = None,
    seed: int = 0,
) -> Answer:
    """See `MarkovNetwork.query`."""
    began = time.monotonic()
    check_method(method, METHODS)
    check_number("precision", precision, 0, above=True)
    check_work(threads, memory, time_budget, seed)
    if scan not in gibbs.SCANS:
        raise ParameterError(f"scan={scan!r} is not known; choose one of {', '.join(gibbs.SCANS)}")
    problem = Problem(network, evidence, memory, threads, seed)
    problem.check_feasible()
    wanted = _wanted(problem, variables)
    rows = None if data is None else read_data(data, domain=network.domain).codes
    sampling: dict[str, Any] = {"precision": precision, "time_budget": time_budget, "chains": chains}
    if method in ("gibbs", "auto"):
        sampling |= {"scan": scan, "data": rows}
    if method == "auto":
        out = _auto(problem, wanted, sampling)
    elif method in ("gibbs", "mcsat"):
        out = _sampled(problem, wanted, method, sampling, "Asked for.")
    elif method in ("bp", "trw", "mean-field"):
        out = _approximated(problem, wanted, method)
    else:
        out = _exact(problem, wanted, method)
    out.seconds = time.monotonic() - began
    return out


def _wanted(problem: Problem, variables: Sequence[str] | None) -> list[int]:
    if variables is None:
        return [int(v) for v in problem.asked_variables()]
    if isinstance(variables, str):
        variables = [variables]
    return [problem.domain.index(name) for name in variables]


def _answer(problem: Problem, wanted: list[int], p: Array, errors: Array, **how: Any) -> Answer:
    how.setdefault("diagnostics", {})
    return Answer(by_name(problem.domain, p, wanted), by_name(problem.domain, errors, wanted), seconds=0.0, **how)


def _exact(problem: Problem, wanted: list[int], method: str) -> Answer:
    if method == "enumeration":
        p, log_z = enumeration.marginals(problem)
        why = "All states, one by one."
    else:
        parts = problem.require_exact("exact inference")
        p, log_z = junction_tree.marginals(problem)
        why = f"Asked for; {parts.told()}."
    figures = {"log_partition": log_z}
    return _answer(problem, wanted, p, np.zeros(len(p)), method=method, exact=True, mixed=None, why=why, diagnostics=figures)


def _approximated(problem: Problem, wanted: list[int], method: str) -> Answer:
    if method == "mean-field":
        found = mean_field_engine.mean_field(problem)
    else:
        found = belief_propagation.propagate(problem, reweighted=method == "trw")
    kind = {"bp": "log_partition_bethe", "trw": "log_partition_upper", "mean-field": "log_partition_lower"}[method]
    figures = {kind: found.log_z, "updates": found.updates, "damping": found.damping}
    unknown = np.full(len(found.marginals), np.nan)
    return _answer(
        problem, wanted, found.marginals, unknown, method=method, exact=False, mixed=None, why="Asked for.", diagnostics=figures,
        converged=found.converged,
    )  # fmt: skip


def literals_of(problem: Problem, variables: Sequence[int] | Array) -> Array:
    base = problem.domain.base
    return np.concatenate([np.arange(base[v], base[v + 1]) for v in variables] or [np.zeros(0, dtype=np.int64)]).astype(np.int64)


def _sampled(problem: Problem, wanted: list[int], method: str, options: dict[str, Any], why: str) -> Answer:
    open_ones = np.intersect1d(wanted, problem.open_variables())
    literals = literals_of(problem, open_ones)
    if not len(literals):
        p = problem.given.allowed.astype(float)
        return _answer(problem, wanted, p, np.zeros(len(p)), method="evidence", exact=True, mixed=None, why="Every state is known.")
    found = (gibbs if method == "gibbs" else mcsat).marginals(problem, literals, **options)
    known = np.setdiff1d(np.arange(problem.domain.n_literals), literals_of(problem, problem.open_variables()))
    p, errors = found.diagnosis.mean.copy(), found.diagnosis.standard_error.copy()
    if not found.mixed:
        errors[:] = np.nan  # chains that disagree on one literal may well be wrong on the others
    p[known], errors[known] = problem.given.allowed[known], 0.0
    return _answer(
        problem, wanted, p, errors, method=method, exact=False, mixed=found.mixed, why=why, diagnostics=found.figures(literals),
        stopped_by=found.stopped_by,
    )  # fmt: skip


def _auto(problem: Problem, wanted: list[int], sampling: dict[str, Any]) -> Answer:
    """Exact for every part that can be summed out within the time budget, sampling for what remains of the variables asked for; where
    chains do not mix, exact in whatever time it takes, if memory allows."""
    budget = sampling["time_budget"]
    cheap = problem.cheap_cells() if budget is None else problem.cheap_cells(budget)
    found = nothing = None
    try:
        found = _mixture(problem, wanted, sampling, cheap)
    except NothingFound as error:
        nothing = error
    unsure = found is None or (found.mixed is False and found.stopped_by != "interrupt")
    if unsure and cheap < problem.max_cells and _fits(problem, wanted):
        return _mixture(problem, wanted, sampling, problem.max_cells)
    if found is None:
        assert nothing is not None
        raise nothing
    return found


def _fits(problem: Problem, wanted: list[int]) -> bool:
    """Whether every part with a variable asked for fits into memory."""
    parts = problem.parts()
    needed = parts.of[wanted]
    return bool(parts.solvable[np.unique(needed[needed >= 0])].all())


def _mixture(problem: Problem, wanted: list[int], sampling: dict[str, Any], limit: float) -> Answer:
    """Exact for every part of at most so many table cells, sampling for the others."""
    parts = problem.parts(limit)
    needed = np.unique(parts.of[wanted]) if len(wanted) else np.zeros(0, dtype=int)
    needed = needed[needed >= 0]
    aside = problem.frozen(np.flatnonzero((parts.of >= 0) & ~np.isin(parts.of, needed)))
    p, log_z = junction_tree.marginals(aside, limit)
    unsolved = np.isnan(np.add.reduceat(p, problem.domain.base[:-1])) if len(p) else np.zeros(0, dtype=bool)
    if not unsolved[wanted].any():
        whole = len(needed) == len(parts.cells) and np.isfinite(log_z)
        figures = {"log_partition": log_z} if whole else {}
        why = f"Cheap enough to be exact: {parts.told()}."
        return _answer(problem, wanted, p, np.zeros(len(p)), method="junction-tree", exact=True, mixed=None, why=why, diagnostics=figures)
    ruled = np.isinf(problem.network.weights)[problem.network.features.owner]
    hard = bool(unsolved[problem.network.features.variables[ruled]].any())  # a rule among what is to be sampled
    method = "mcsat" if hard else "gibbs"
    rest = aside.frozen(np.setdiff1d(aside.open_variables(), np.flatnonzero(unsolved)))
    options = sampling if method == "gibbs" else {k: v for k, v in sampling.items() if k not in ("scan", "data")}
    found = _sampled(rest, wanted, method, options, _why_sampled(parts, needed, hard))
    exact_ones = [v for v in wanted if not unsolved[v]]
    found.marginals |= by_name(problem.domain, p, exact_ones)
    found.standard_errors |= by_name(problem.domain, np.zeros(len(p)), exact_ones)
    if len(np.intersect1d(exact_ones, problem.open_variables())):
        found.method = f"junction-tree and {method}"
    return found


def _why_sampled(parts: Parts, needed: Array, hard: bool) -> str:
    worst = needed[np.argmax(parts.cells[needed])]
    size = int((parts.of == worst).sum())
    text = f"{size} variables hang together too densely to be summed out (a clique of {counted(parts.largest[worst])} cells or more)"
    return text + ("; infinite weights ask for MC-SAT." if hard else ".")
