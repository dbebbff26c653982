"""Where chains start, so that a mode which some of them never leave shows: at random, cooled down, at the best assignments known, at data.

The best assignments come from cooling further down, and from making long features of large weight true, which chance would hardly ever do.
One whose neighbourhood can carry only a negligible share of the probability is left out: chains that stay there would tell nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.inference.problem import Problem
from undirected.kernels import backend
from undirected.kernels.types import Array

RANDOM, COOLED, BEST, DATA = range(4)
FEW = 64  # chains that look for good starts
COOLING, FREEZING = 48, 64  # sweeps
COLDEST = 8.0  # inverse temperature at the end of freezing
MODES = 8  # at which chains are started
MAX_CLIMBS = 500  # sweeps
SHARE = 0.25  # of the time budget, for looking for starts
LONG = 3  # literals from which a feature is made true on purpose
NEGLIGIBLE = 0.1  # of the precision: modes of a smaller share are left out
MARGIN = 2.0  # by which a mode's log mass may be underestimated
RULE_SECONDS = 2.0  # for different assignments that keep all rules


@dataclass
class Starts:
    """First states, ``[chains][variables]``, how each was made, and about how much probability the modes have that were left out."""

    states: Array
    kinds: Array
    left_out: float = 0.0


def make_sampler(problem: Problem, states: Array, order: Array | None = None) -> Any:
    """Chains that all have the problem's evidence."""
    rows = np.zeros(len(states), dtype=np.int32)
    order = np.arange(len(problem.domain), dtype=np.int32) if order is None else order
    return backend().module.Sampler(problem.model, problem.evidence, rows, np.ascontiguousarray(states), order, problem.seed)


def run_schedule(sampler: Any, beta: Array, threads: int, deadline: float, reference: Array | None = None, anneal: bool = False) -> None:
    """Sweeps at these inverse temperatures, thinned out to as many as there is time for; ends at the last one in any case."""
    began, first = time.monotonic(), min(2, len(beta) - 1)
    sampler.run(first, np.ascontiguousarray(beta[:first]), reference, False, anneal, False, threads)
    each = max((time.monotonic() - began) / max(1, first), 1e-9)
    left = len(beta) - first
    n = int(np.clip((deadline - time.monotonic()) / each, 1, left)) if np.isfinite(deadline) else left
    rest = np.ascontiguousarray(beta[first:][np.linspace(left - 1, 0, n).round().astype(int)[::-1]])
    sampler.run(n, rest, reference, False, anneal, False, threads)


def choose_starts(problem: Problem, chains: int, data: Array | None, precision: float = 0.005, time_budget: float | None = None) -> Starts:
    """A quarter of the chains at cooled, a quarter at best assignments, the others at random ones, half of these at rows of data. Looking
    for them takes up to a quarter of the time budget."""
    deadline = np.inf if time_budget is None else time.monotonic() + SHARE * time_budget
    rng = np.random.default_rng(problem.seed)
    states = first_states(problem, chains, rng, time_budget)
    kinds = np.full(chains, RANDOM)
    number = np.arange(chains) % 4
    cooled, best = _cool(problem, states[:FEW], rng, deadline)
    share, hold = _shares(problem, best, deadline)
    negligible = share < NEGLIGIBLE * precision
    left_out = float(share[negligible].sum())
    best = best[~negligible][np.argsort(-hold[~negligible], kind="stable")][:MODES]  # those first that chains hardly leave
    kinds[number == 2], states[number == 2] = COOLED, cooled[np.arange(int((number == 2).sum())) % len(cooled)]
    if len(best):
        kinds[number == 3], states[number == 3] = BEST, best[np.arange(int((number == 3).sum())) % len(best)]
    if data is not None and len(data):
        rows = data[rng.integers(len(data), size=int((number == 1).sum()))]
        kinds[number == 1], states[number == 1] = DATA, problem.fitted(rows, rng)
    return Starts(states, kinds, left_out)


def first_states(problem: Problem, n: int, rng: np.random.Generator, time_budget: float | None = None) -> Array:
    """Random states; where there are infinite weights, assignments that keep them, as different as time allows."""
    if problem.rules is None:
        return problem.random_states(n, rng)
    if time_budget is not None:
        problem.assignment(seconds=max(RULE_SECONDS, time_budget))
    found = problem.other_assignments(FEW, rng, RULE_SECONDS if time_budget is None else min(RULE_SECONDS, SHARE * time_budget))
    return np.ascontiguousarray(found[np.arange(n) % len(found)], dtype=np.int16)


def _cool(problem: Problem, first: Array, rng: np.random.Generator, deadline: float) -> tuple[Array, Array]:
    """States after cooling down to the network's own temperature, and the best ones found by going on from there."""
    half = deadline - (deadline - time.monotonic()) / 2 if np.isfinite(deadline) else np.inf
    sampler = make_sampler(problem, first)
    run_schedule(sampler, np.geomspace(0.1, 1, COOLING).astype(np.float32), problem.threads, half)
    cooled = _kept(problem, np.asarray(sampler.states()), first)
    run_schedule(sampler, np.geomspace(1, COLDEST, FREEZING).astype(np.float32), problem.threads, half)
    frozen, scores = climb(problem, np.concatenate([sampler.states(), plain_states(problem)]), deadline)
    top = frozen[int(np.argmax(scores))]
    held, held_scores = climb(problem, _with_features_true(problem, top, rng), deadline)
    states = np.concatenate([frozen, held])
    scores = np.concatenate([scores, held_scores])
    states, place = np.unique(states, axis=0, return_index=True)
    order = np.argsort(-scores[place], kind="stable")[: FEW // 2]
    good = states[order]
    return cooled, good[problem.keeps_rules(good)] if problem.rules is not None else good


def plain_states(problem: Problem) -> Array:
    """Two states that random ones may be far from: every variable in the first state that is left to it, and in the one that its
    features of one literal prefer."""
    domain, features = problem.domain, problem.network.features
    single = features.lengths == 1
    literals, weights = features.literals[features.start[:-1][single]], problem.network.stand_in_weights()[0][single]
    positive, negative = literals < domain.n_literals, literals >= domain.n_literals
    score = np.zeros(domain.n_literals)
    np.add.at(score, literals[positive], weights[positive])
    np.add.at(score, literals[negative] - domain.n_literals, -weights[negative])  # against that state, in favour of the others
    for literal, value in problem.given.likelihood.items():
        score[literal] += value
    pairs = [slice(int(a), int(b)) for a, b in zip(domain.base, domain.base[1:], strict=False)]
    allowed = problem.given.allowed
    first = [int(np.argmax(allowed[mine])) for mine in pairs]
    best = [int(np.argmax(np.where(allowed[mine] > 0, score[mine], -np.inf))) for mine in pairs]
    return np.array([first, best], dtype=np.int16)


def _kept(problem: Problem, states: Array, otherwise: Array) -> Array:
    """The states, with others in place of those that break a rule."""
    if problem.rules is None:
        return states
    return np.where(problem.keeps_rules(states)[:, None], states, otherwise)


def climb(problem: Problem, states: Array, deadline: float = np.inf) -> tuple[Array, Array]:
    """To the nearest states that no change of one variable improves, as far as there is time, and their scores."""
    sampler = make_sampler(problem, states)
    for _ in range(MAX_CLIMBS):
        before = sampler.states()
        sampler.run(1, None, None, False, False, True, problem.threads)
        if np.array_equal(before, sampler.states()) or time.monotonic() > deadline:
            break
    return np.asarray(sampler.states()), np.asarray(sampler.scores(problem.threads))


def _with_features_true(problem: Problem, state: Array, rng: np.random.Generator) -> Array:
    """The state, and random ones, each with one long feature of large weight made true; the state itself if there are none."""
    domain, allowed = problem.domain, problem.given.allowed
    features, weights = problem.network.features, problem.network.weights
    long = np.flatnonzero((features.lengths >= LONG) & np.isfinite(weights) & (weights > 0))
    long = long[np.argsort(-weights[long], kind="stable")[:FEW]]
    bases = np.concatenate([np.tile(state, (len(long), 1)), problem.random_states(len(long), rng)])
    out = [state]
    for base, j in zip(bases, np.tile(long, 2), strict=True):
        open_states = allowed.copy()
        for literal in features[int(j)]:
            v = int(domain.literal_variable[literal % domain.n_literals])
            mine = slice(int(domain.base[v]), int(domain.base[v + 1]))
            same = np.arange(mine.start, mine.stop) == literal % domain.n_literals
            open_states[mine] &= same if literal < domain.n_literals else ~same
        variables = np.unique(features.variables[features.start[j] : features.start[j + 1]])
        choices = [np.flatnonzero(open_states[domain.base[v] : domain.base[v + 1]]) for v in variables]
        if all(len(c) for c in choices):
            one = base.copy()
            one[variables] = [one[v] if one[v] in c else c[0] for v, c in zip(variables, choices, strict=True)]
            out.append(one)
    return np.ascontiguousarray(np.stack(out), dtype=np.int16)


def _shares(problem: Problem, modes: Array, deadline: float) -> tuple[Array, Array]:
    """At most about which share of the probability each mode carries, by its mass and a lower bound on that of everything; and how firmly
    it holds a chain: the logarithm of the probability that no variable leaves it."""
    if not len(modes):
        return np.zeros(0), np.zeros(0)
    mass, hold = log_masses(problem, modes)
    late = time.monotonic() > deadline
    lower = -np.inf if late else float(problem.model.mean_field(problem.evidence, 1e-4, 50, 2, problem.seed)[1])
    return np.exp(np.minimum(mass + MARGIN - max(lower, float(mass.max()) - MARGIN), 0.0)), hold


def log_masses(problem: Problem, modes: Array) -> tuple[Array, Array]:
    """The logarithm of the mass around each mode, as if its variables moved on their own: its score less the logarithm of its
    probability given that each other variable stays; and that logarithm."""
    base, given = problem.domain.base[:-1], problem.given
    p = problem.network.conditionals(Dataset(problem.domain, modes), problem.threads) * given.allowed
    for literal, value in given.likelihood.items():
        p[:, literal] *= np.exp(value)
    chosen = np.take_along_axis(p, base + modes.astype(np.int64), axis=1) / np.add.reduceat(p, base, axis=1)
    hold = np.log(np.maximum(chosen, 1e-12)).sum(axis=1)
    return np.asarray(make_sampler(problem, modes).scores(problem.threads) - hold), hold
