"""MC-SAT: slices of states that keep what is nearly certain (after Poon and Domingos 2006).

In each step a feature that is as its weight wants it is kept so with probability ``1 - exp(-|weight|)``, and a state is drawn
evenly among those that keep what was chosen: exactly where the constraints fall into small parts; elsewhere the present state is moved
about within the slice, which leaves the even distribution as it is. (SampleSAT, by which the paper draws, does not draw evenly, so that
chains can agree on something false; here it only finds first states.) Infinite weights are always kept. Features of large positive
weight that hold stay for long, so chains can get stuck in one of several modes; they are then reported as not mixed.
"""

from __future__ import annotations

import time

import numpy as np

from undirected.errors import ParameterError
from undirected.inference.diagnostics import diagnose
from undirected.inference.gibbs import Sampled
from undirected.inference.problem import Problem
from undirected.inference.starts import RANDOM, Starts, choose_starts
from undirected.kernels.types import Array

CHAINS = 64
FIRST_SAMPLES = 2  # few, since a step can take long
LEAST_SAMPLES = 64  # before chains are believed


def marginals(
    problem: Problem,
    literals: Array,
    *,
    precision: float = 0.005,
    time_budget: float | None = 10.0,
    chains: int | None = None,
    max_samples: int = 100_000,
) -> Sampled:
    """Run chains until the precision is reached or time is up; each round is as long as all before it, which are its burn-in."""
    chains = chains or CHAINS
    if chains < 4:
        raise ParameterError(f"chains={chains}: at least 4, so that they can be compared")
    began = time.monotonic()
    first = _first_states(problem, chains, precision, time_budget)
    states, length, done, k = first.states, FIRST_SAMPLES, 0, 0
    found, before, good = None, None, False
    stopped_by: str | None = None
    try:
        while True:
            burn, k = (length if done == 0 else 0), k + 1
            sums, states = _run(problem, states, burn, length, k)
            done += burn + length
            found = diagnose(sums, sums, length, first.kinds, before, first.left_out)  # of zeros and ones the squares are the values
            before, good = found.mean, bool(found.agree[literals].all()) and length >= LEAST_SAMPLES
            if good and (found.standard_error[literals] <= precision).all():
                break
            if 2 * done > max_samples or (time_budget is not None and (time.monotonic() - began) * 2 > time_budget):
                stopped_by = "sweeps" if 2 * done > max_samples else "time"
                break
            length = done
    except KeyboardInterrupt:
        if found is None:
            raise
        stopped_by = "interrupt"
    return Sampled(found, good, chains, done, stopped_by, states)


def _run(problem: Problem, states: Array, burn_in: int, samples: int, number: int) -> tuple[Array, Array]:
    """How often each literal held in each chain, and where the chains are then."""
    hard = problem.hard if np.isfinite(problem.hard) else 1e300
    seed = int(np.random.SeedSequence((problem.seed, number)).generate_state(1)[0])
    first = np.ascontiguousarray(states, dtype=np.int16)
    sums, states, _, _ = problem.model.mcsat(problem.evidence, len(states), burn_in, samples, hard, seed, problem.threads, first)
    return np.asarray(sums), np.asarray(states)


def _first_states(problem: Problem, chains: int, precision: float, time_budget: float | None) -> Starts:
    """Starts of all kinds; those at random are found by SampleSAT where it finds any that keeps the rules."""
    starts = choose_starts(problem, chains, None, precision, time_budget)
    hard = problem.hard if np.isfinite(problem.hard) else 1e300
    _, states, _, feasible = problem.model.mcsat(problem.evidence, chains, 0, 1, hard, problem.seed, problem.threads)
    use = (starts.kinds == RANDOM) & np.asarray(feasible, dtype=bool)
    starts.states[use] = np.asarray(states)[use]
    return starts
