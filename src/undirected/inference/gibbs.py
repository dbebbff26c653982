"""Gibbs sampling of many chains at once, until a precision is reached or the chains are seen not to agree."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.errors import ParameterError
from undirected.inference.diagnostics import ROUNDING, Diagnosis, diagnose
from undirected.inference.problem import Problem
from undirected.inference.starts import choose_starts, first_states, make_sampler
from undirected.kernels.types import Array
from undirected.network.edges import find_joined_pairs

SCANS = ("systematic", "coloured", "random")
FIRST_SWEEPS = 32
CHAINS = 1024
SECONDS_PER_LITERAL = 2e-8  # of a feature, for a sweep of 64 chains, roughly


@dataclass
class Sampled:
    """What the chains tell: a diagnosis by literal, and how much was run."""

    diagnosis: Diagnosis
    mixed: bool
    chains: int
    sweeps: int
    stopped_by: str | None = None
    states: Array | None = None  # where the chains are at the end

    def figures(self, literals: Array) -> dict[str, Any]:
        """Diagnostics over the literals asked for."""
        d = self.diagnosis
        return {
            "r_hat": float(np.nanmax(d.r_hat[literals], initial=1.0)),
            "effective_samples": float(np.nanmin(d.effective[literals], initial=np.inf)) if len(literals) else None,
            "chains": self.chains,
            "sweeps": self.sweeps,
        }


def scan_order(problem: Problem, scan: str) -> Array:
    """The order of a sweep: by number, by colour of the Markov graph (no two neighbours alike), or at random."""
    n = len(problem.domain)
    if scan == "systematic":
        return np.arange(n, dtype=np.int32)
    if scan == "random":
        return np.random.default_rng(problem.seed).permutation(n).astype(np.int32)
    if scan == "coloured":
        import networkx as nx

        graph = nx.empty_graph(n)
        graph.add_edges_from(find_joined_pairs(problem.network.features, problem.network.weights).tolist())
        colours = nx.greedy_color(graph, strategy="largest_first")
        return np.array(sorted(range(n), key=lambda v: (colours[v], v)), dtype=np.int32)
    raise ParameterError(f"scan={scan!r} is not known; choose one of {', '.join(SCANS)}")


def marginals(
    problem: Problem,
    literals: Array,
    *,
    precision: float = 0.005,
    time_budget: float | None = 10.0,
    chains: int | None = None,
    max_sweeps: int = 100_000,
    scan: str = "systematic",
    data: Array | None = None,
) -> Sampled:
    """Sample until every literal asked for has a standard error below ``precision``, or time is up.

    Each round is as long as all before it together, which serve as its burn-in.
    """
    deadline = np.inf if time_budget is None else time.monotonic() + time_budget
    chains = chains or _affordable(problem, time_budget)
    if chains < 4:
        raise ParameterError(f"chains={chains}: at least 4, so that they can be compared")
    first = choose_starts(problem, chains, data, precision, time_budget)
    sampler = make_sampler(problem, first.states, scan_order(problem, scan))
    done, before, found = 0, None, None
    stopped_by: str | None = None
    try:
        done = _run(sampler, FIRST_SWEEPS, False, problem.threads, deadline - (time_budget or 0) / 2)
        while True:
            sampler.reset()
            length = _run(sampler, max(done, 2), True, problem.threads, deadline)
            done += length
            found = diagnose(sampler.sums().astype(float), sampler.squares().astype(float), length, first.kinds, before, first.left_out)
            before = found.mean
            if found.agree[literals].all() and (found.standard_error[literals] <= max(precision, ROUNDING)).all():
                break
            if time.monotonic() > deadline or done * 2 > max_sweeps:
                stopped_by = "time" if time.monotonic() > deadline else "sweeps"
                break
    except KeyboardInterrupt:
        if found is None:
            raise
        stopped_by = "interrupt"
    return Sampled(found, bool(found.agree[literals].all()), chains, done, stopped_by, np.asarray(sampler.states()))


def _run(sampler: Any, n_sweeps: int, collect: bool, threads: int, deadline: float) -> int:
    """Up to so many sweeps, looking at the clock in between; at least two."""
    done, length = 0, 2
    while done < n_sweeps and (done < 2 or time.monotonic() < deadline):
        length = min(length, n_sweeps - done)
        began = time.monotonic()
        sampler.run(length, None, None, collect, False, False, threads)
        done += length
        if time.monotonic() - began < 0.1:
            length *= 2
    return done


def samples(problem: Problem, n: int, *, sweeps: int = 500, scan: str = "systematic", data: Array | None = None) -> Array:
    """One state from each of ``n`` chains after so many sweeps."""
    rng = np.random.default_rng(problem.seed)
    first = first_states(problem, n, rng)
    if data is not None and len(data):
        first[1::2] = problem.fitted(data[rng.integers(len(data), size=n // 2)], rng)
    sampler = make_sampler(problem, first, scan_order(problem, scan))
    sampler.run(sweeps, None, None, False, False, False, problem.threads)
    return np.asarray(sampler.states())


def _affordable(problem: Problem, time_budget: float | None) -> int:
    """As many chains as are useful, whose sums fit into a quarter of the memory and whose first rounds into a third of the time."""
    each = 16.0 * max(1, problem.domain.n_literals)
    chains = min(CHAINS, problem.memory / 4 / each)
    if time_budget is not None:
        seconds = 4 * FIRST_SWEEPS * SECONDS_PER_LITERAL * max(1, len(problem.network.features.literals)) / problem.threads
        chains = min(chains, 64 * time_budget / 3 / seconds)
    return int(max(128, chains // 64 * 64))
