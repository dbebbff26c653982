"""MC-SAT: slices of assignments that keep what is nearly certain (after Poon and Domingos 2006).

In each step a feature that is as its weight wants it is kept so with probability ``1 - exp(-|weight|)``, and an assignment is drawn
evenly among those that keep what was chosen: exactly where the constraints fall into small parts; elsewhere the present one is moved
about within the slice, which leaves the even distribution as it is. (SampleSAT, by which the paper draws, does not draw evenly, so that
chains can agree on something false; here it only finds first assignments.) Infinite weights are always kept. Features of large positive
weight that hold stay for long, so chains can get stuck in one of several modes; they are then reported as not mixed.
"""

from __future__ import annotations

import numpy as np

from undirected.inference.diagnostics import diagnose
from undirected.inference.gibbs import Sampled, Sampling
from undirected.inference.reduced import ReducedNetwork
from undirected.inference.starts import RANDOM, Starts, choose_starts
from undirected.kernels.types import Array
from undirected.work import StoppedBy, Work

CHAINS = 64
FIRST_SAMPLES = 2  # few, since a step can take long
LEAST_SAMPLES = 64  # before chains are believed
NO_RULES = 1e300  # the weight from which a feature is a rule, where there are none


def find_marginals(reduced: ReducedNetwork, literals: Array, work: Work, sampling: Sampling) -> Sampled:
    """Run chains until the precision is reached or time is up; each round is as long as all before it, which are its burn-in."""
    chains = sampling.check_chains(sampling.chains or CHAINS)
    half = work.share(0.5)  # the next round takes as long as all before it
    first = _choose_starts(reduced, chains, work, sampling.precision)
    ends, length, done, k = first.assignments, FIRST_SAMPLES, 0, 0
    found, before, good = None, None, False
    stopped_by: StoppedBy | None = None
    try:
        while True:
            burn, k = (length if done == 0 else 0), k + 1
            sums, ends = _run(reduced, ends, burn, length, work, k)
            done += burn + length
            found = diagnose(sums, sums, length, first.kinds, before, first.left_out)  # of zeros and ones the squares are the values
            before, good = found.mean, bool(found.agree[literals].all()) and length >= LEAST_SAMPLES
            if good and (found.standard_error[literals] <= sampling.precision).all():
                break
            if 2 * done > sampling.max_sweeps or half.is_over:
                stopped_by = StoppedBy.SWEEPS if 2 * done > sampling.max_sweeps else StoppedBy.TIME
                break
            length = done
    except KeyboardInterrupt:
        if found is None:
            raise
        stopped_by = StoppedBy.INTERRUPT
    return Sampled(found, good, chains, done, stopped_by, ends)


def _run(reduced: ReducedNetwork, ends: Array, burn_in: int, samples: int, work: Work, number: int) -> tuple[Array, Array]:
    """How often each literal held in each chain, and where the chains are then."""
    seed = int(np.random.SeedSequence((work.seed, number)).generate_state(1)[0])
    first = np.ascontiguousarray(ends, dtype=np.int16)
    sums, ends, _, _ = reduced.model.mcsat(
        reduced.evidence, len(first), burn_in, samples, _find_rule_weight(reduced), seed, work.threads, first
    )
    return np.asarray(sums), np.asarray(ends)


def _choose_starts(reduced: ReducedNetwork, chains: int, work: Work, precision: float) -> Starts:
    """Starts of all kinds; those at random are found by SampleSAT where it finds any that keeps the rules."""
    starts = choose_starts(reduced, chains, None, work, precision)
    _, found, _, feasible = reduced.model.mcsat(reduced.evidence, chains, 0, 1, _find_rule_weight(reduced), work.seed, work.threads)
    use = (starts.kinds == RANDOM) & np.asarray(feasible, dtype=bool)
    starts.assignments[use] = np.asarray(found)[use]
    return starts


def _find_rule_weight(reduced: ReducedNetwork) -> float:
    """The weight from which a feature is a rule."""
    return NO_RULES if reduced.rules is None else reduced.hard
