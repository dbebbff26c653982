"""MC-SAT: slices of states that keep what is nearly certain (Poon and Domingos 2006).

In each step a feature that is as its weight wants it is kept so with probability ``1 - exp(-|weight|)``, and a state is drawn
evenly among those that keep what was chosen: exactly where the constraints fall into small parts, by SampleSAT (Wei, Erenrich
and Selman 2004) elsewhere. Infinite weights are always kept. Features of large positive weight that hold stay for long, so chains
can get stuck in one of several modes; they are then reported as not mixed.
"""

from __future__ import annotations

import time

import numpy as np

from undirected.errors import ImpossibleEvidence
from undirected.inference.diagnostics import diagnose
from undirected.inference.gibbs import Sampled
from undirected.inference.problem import Problem
from undirected.kernels.types import Array

CHAINS = 64
FIRST_SAMPLES = 32


def marginals(
    problem: Problem,
    literals: Array,
    *,
    precision: float = 0.005,
    time_budget: float | None = 10.0,
    chains: int | None = None,
    max_samples: int = 100_000,
) -> Sampled:
    """Run chains of doubling length until the precision is reached or time is up; the first quarter of each is burn-in."""
    chains = chains or CHAINS
    began = time.monotonic()
    length = FIRST_SAMPLES
    hard = problem.hard if np.isfinite(problem.hard) else 1e300
    found, good, done = None, False, 0
    stopped_by: str | None = None
    try:
        while True:
            burn = length // 4
            sums, _, _, feasible = problem.model.mcsat(problem.evidence, chains, burn, length, hard, problem.seed, problem.threads)
            if not feasible.all():
                raise ImpossibleEvidence("no state was found that meets the evidence and all infinite weights; drop part of the evidence")
            found = diagnose(np.asarray(sums), np.asarray(sums), length)  # of zeros and ones the squares are the values
            good, done = bool(found.agree[literals].all()), burn + length
            if good and (found.standard_error[literals] <= precision).all():
                break
            if 2 * length > max_samples or (time_budget is not None and (time.monotonic() - began) * 3 > time_budget):
                stopped_by = "sweeps" if 2 * length > max_samples else "time"
                break
            length *= 2
    except KeyboardInterrupt:
        if found is None:
            raise
        stopped_by = "interrupt"
    return Sampled(found, good, chains, done, stopped_by)
