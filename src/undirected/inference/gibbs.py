"""Gibbs sampling of many chains at once, until a precision is reached or the chains are seen not to agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.errors import ParameterError, check_number
from undirected.inference.diagnostics import ROUNDING, Diagnosis, diagnose
from undirected.inference.protocols import Sampler
from undirected.inference.reduced import ReducedNetwork
from undirected.inference.starts import choose_starts, find_first_assignments, make_sampler
from undirected.kernels.types import Array
from undirected.network.edges import find_joined_pairs
from undirected.work import StoppedBy, Work

SCANS = ("systematic", "coloured", "random")
FIRST_SWEEPS = 32
LEAST_SWEEPS = 2  # of a run, however little time there is
MAX_CHAINS = 1024
LEAST_CHAINS = 4  # that can be compared with each other
SECONDS_PER_LOOK = 0.1  # between looks at the clock, about
SECONDS_PER_LITERAL = 2e-8  # of a feature, for a sweep of 64 chains, roughly


@dataclass(frozen=True)
class Sampling:
    """How chains are run: until every standard error is below ``precision``; so many ``chains`` (None for as many as there is time and
    memory for) of up to ``max_sweeps`` sweeps in the order ``scan``; some start at rows of ``data``."""

    precision: float = 0.005
    chains: int | None = None
    scan: str = "systematic"
    data: Array | None = None
    max_sweeps: int = 100_000

    def check(self) -> None:
        """Raise where something makes no sense."""
        check_number("precision", self.precision, 0, above=True)
        if self.scan not in SCANS:
            raise ParameterError(f"scan={self.scan!r} is not known; choose one of {', '.join(SCANS)}")

    def check_chains(self, chains: int) -> int:
        """The number of chains, if they can be compared."""
        if chains < LEAST_CHAINS:
            raise ParameterError(f"chains={chains}: at least {LEAST_CHAINS}, so that they can be compared")
        return chains


@dataclass
class Sampled:
    """What the chains tell: a diagnosis by literal, how much was run, and the assignments that the chains end in."""

    diagnosis: Diagnosis
    mixed: bool
    chains: int
    sweeps: int
    stopped_by: StoppedBy | None
    assignments: Array

    def summarise(self, literals: Array) -> dict[str, Any]:
        """Diagnostics over the literals asked for."""
        d = self.diagnosis
        return {
            "r_hat": float(np.nanmax(d.r_hat[literals], initial=1.0)),
            "effective_samples": float(np.nanmin(d.effective[literals], initial=np.inf)) if len(literals) else None,
            "chains": self.chains,
            "sweeps": self.sweeps,
        }


def order_sweep(reduced: ReducedNetwork, scan: str, work: Work) -> Array:
    """The order of a sweep: by number, by colour of the Markov graph (no two neighbours alike), or at random."""
    n = len(reduced.domain)
    if scan == "systematic":
        return np.arange(n, dtype=np.int32)
    if scan == "random":
        return np.random.default_rng(work.seed).permutation(n).astype(np.int32)
    import networkx as nx

    graph = nx.empty_graph(n)
    graph.add_edges_from(find_joined_pairs(reduced.network.features, reduced.network.weights).tolist())
    colours = nx.greedy_color(graph, strategy="largest_first")
    return np.array(sorted(range(n), key=lambda v: (colours[v], v)), dtype=np.int32)


def find_marginals(reduced: ReducedNetwork, literals: Array, work: Work, sampling: Sampling) -> Sampled:
    """Sample until every literal asked for has a standard error below the precision, or time is up.

    Each round is as long as all before it together, which serve as its burn-in.
    """
    half = work.share(0.5)
    chains = sampling.check_chains(sampling.chains or _count_affordable(reduced, work))
    first = choose_starts(reduced, chains, sampling.data, work, sampling.precision)
    sampler = make_sampler(reduced, first.assignments, work, order_sweep(reduced, sampling.scan, work))
    done, before, found = 0, None, None
    stopped_by: StoppedBy | None = None
    try:
        done = _run(sampler, FIRST_SWEEPS, False, half)
        while True:
            sampler.reset()
            length = _run(sampler, max(done, LEAST_SWEEPS), True, work)
            done += length
            found = diagnose(sampler.sums().astype(float), sampler.squares().astype(float), length, first.kinds, before, first.left_out)
            before = found.mean
            if found.agree[literals].all() and (found.standard_error[literals] <= max(sampling.precision, ROUNDING)).all():
                break
            is_late = work.is_over
            if is_late or done * 2 > sampling.max_sweeps:
                stopped_by = StoppedBy.TIME if is_late else StoppedBy.SWEEPS
                break
    except KeyboardInterrupt:
        if found is None:
            raise
        stopped_by = StoppedBy.INTERRUPT
    return Sampled(found, bool(found.agree[literals].all()), chains, done, stopped_by, np.asarray(sampler.states()))


def _run(sampler: Sampler, n_sweeps: int, collect: bool, work: Work) -> int:
    """Sweep up to so many times, looking at the clock in between; at least twice."""
    done, length = 0, LEAST_SWEEPS
    while done < n_sweeps and (done < LEAST_SWEEPS or not work.is_over):
        length = min(length, n_sweeps - done)
        began = work.now()
        sampler.run(length, None, None, collect, False, False, work.threads)
        done += length
        if work.now() - began < SECONDS_PER_LOOK:
            length *= 2
    return done


def draw(reduced: ReducedNetwork, n: int, work: Work, *, sweeps: int = 500, data: Array | None = None) -> Array:
    """One assignment from each of ``n`` chains after so many sweeps."""
    rng = np.random.default_rng(work.seed)
    first = find_first_assignments(reduced, n, rng, work)
    if data is not None and len(data):
        first[1::2] = reduced.adapt_rows(data[rng.integers(len(data), size=n // 2)], rng)
    sampler = make_sampler(reduced, first, work)
    sampler.run(sweeps, None, None, False, False, False, work.threads)
    return np.asarray(sampler.states())


def _count_affordable(reduced: ReducedNetwork, work: Work) -> int:
    """As many chains as are useful, whose sums fit into a quarter of the memory and whose first rounds into a third of the time."""
    each = 16.0 * max(1, reduced.domain.n_literals)
    chains = min(MAX_CHAINS, work.memory / 4 / each)
    if work.limited:
        seconds = 4 * FIRST_SWEEPS * SECONDS_PER_LITERAL * max(1, len(reduced.network.features.literals)) / work.threads
        chains = min(chains, 64 * work.budget / 3 / seconds)
    return int(max(128, chains // 64 * 64))
