"""Where chains start, so that a mode which some of them never leave shows: at random, cooled down, at the best assignments known, at data.

The best assignments come from cooling further down, and from making long features of large weight true, which chance would hardly ever do.
One whose neighbourhood can carry only a negligible share of the probability is left out: chains that stay there would tell nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import drop_negation, get_slice, is_negated, split_literals
from undirected.inference.protocols import Sampler
from undirected.inference.reduced import ReducedNetwork
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import Work

RANDOM, COOLED, BEST, DATA = range(4)  # the kinds of starts
SEEKING_CHAINS = 64  # chains that look for good starts
COOLING_SWEEPS, FREEZING_SWEEPS = 48, 64
COLDEST = 8.0  # inverse temperature at the end of freezing
MAX_MODES = 8  # at which chains are started
MAX_CLIMBS = 500  # sweeps
STARTS_SHARE = 0.25  # of the time budget, for looking for starts
LONG_LENGTH = 3  # literals from which a feature is made true on purpose
NEGLIGIBLE = 0.1  # of the precision: modes of a smaller share are left out
MASS_MARGIN = 2.0  # by which a mode's log mass may be underestimated
RULE_SECONDS = 2.0  # for different assignments that keep all rules


@dataclass
class Starts:
    """First assignments, ``[chains][variables]``, the kind of each, and about how much probability the modes have that were left out."""

    assignments: Array
    kinds: Array
    left_out: float = 0.0


def make_sampler(reduced: ReducedNetwork, assignments: Array, work: Work, order: Array | None = None) -> Sampler:
    """Chains from these assignments, all under the same evidence."""
    rows = np.zeros(len(assignments), dtype=np.int32)
    order = np.arange(len(reduced.domain), dtype=np.int32) if order is None else order
    sampler: Sampler = backend().module.Sampler(reduced.model, reduced.evidence, rows, np.ascontiguousarray(assignments), order, work.seed)
    return sampler


def run_schedule(sampler: Sampler, beta: Array, work: Work, reference: Array | None = None, anneal: bool = False) -> None:
    """Sweep at these inverse temperatures, thinned out to as many as there is time for; ends at the last one in any case."""
    began, first = work.now(), min(2, len(beta) - 1)
    sampler.run(first, np.ascontiguousarray(beta[:first]), reference, False, anneal, False, work.threads)
    each = max((work.now() - began) / max(1, first), 1e-9)
    left = len(beta) - first
    n = int(np.clip(work.left() / each, 1, left)) if work.limited else left
    rest = np.ascontiguousarray(beta[first:][np.linspace(left - 1, 0, n).round().astype(int)[::-1]])
    sampler.run(n, rest, reference, False, anneal, False, work.threads)


def choose_starts(reduced: ReducedNetwork, chains: int, data: Array | None, work: Work, precision: float) -> Starts:
    """Start a quarter of the chains at cooled, a quarter at best assignments, the others at random ones, half of these at rows of data.

    Looking for them takes up to a quarter of the time budget.
    """
    seeking = work.share(STARTS_SHARE)
    rng = np.random.default_rng(work.seed)
    found = find_first_assignments(reduced, chains, rng, work)
    kinds = np.full(chains, RANDOM)
    number = np.arange(chains) % 4
    cooled, best = _cool(reduced, found[:SEEKING_CHAINS], rng, seeking)
    share, hold = _estimate_shares(reduced, best, seeking)
    negligible = share < NEGLIGIBLE * precision
    left_out = float(share[negligible].sum())
    best = best[~negligible][np.argsort(-hold[~negligible], kind="stable")][:MAX_MODES]  # those first that chains hardly leave
    kinds[number == 2], found[number == 2] = COOLED, cooled[np.arange(int((number == 2).sum())) % len(cooled)]
    if len(best):
        kinds[number == 3], found[number == 3] = BEST, best[np.arange(int((number == 3).sum())) % len(best)]
    if data is not None and len(data):
        rows = data[rng.integers(len(data), size=int((number == 1).sum()))]
        kinds[number == 1], found[number == 1] = DATA, reduced.adapt_rows(rows, rng)
    return Starts(found, kinds, left_out)


def find_first_assignments(reduced: ReducedNetwork, n: int, rng: np.random.Generator, work: Work) -> Array:
    """Random assignments; where there are infinite weights, such that keep them, as different as time allows."""
    if reduced.rules is None:
        return reduced.draw_assignments(n, rng)
    if work.limited:
        reduced.find_assignment(work.extend(max(RULE_SECONDS, work.budget)))
    found = reduced.find_assignments(SEEKING_CHAINS, rng, work.extend(min(RULE_SECONDS, STARTS_SHARE * work.budget)))
    return np.ascontiguousarray(found[np.arange(n) % len(found)], dtype=np.int16)


def _cool(reduced: ReducedNetwork, first: Array, rng: np.random.Generator, work: Work) -> tuple[Array, Array]:
    """Assignments after cooling down to the network's own temperature, and the best ones found by going on from there."""
    half = work.share(0.5)
    sampler = make_sampler(reduced, first, work)
    run_schedule(sampler, np.geomspace(0.1, 1, COOLING_SWEEPS).astype(np.float32), half)
    cooled = _replace_broken(reduced, np.asarray(sampler.states()), first)
    run_schedule(sampler, np.geomspace(1, COLDEST, FREEZING_SWEEPS).astype(np.float32), half)
    frozen, scores = climb(reduced, np.concatenate([sampler.states(), make_plain_assignments(reduced)]), work)
    top = frozen[int(np.argmax(scores))]
    held, held_scores = climb(reduced, _make_features_true(reduced, top, rng), work)
    both = np.concatenate([frozen, held])
    scores = np.concatenate([scores, held_scores])
    both, place = np.unique(both, axis=0, return_index=True)
    order = np.argsort(-scores[place], kind="stable")[: SEEKING_CHAINS // 2]
    good = both[order]
    return cooled, good[reduced.keeps_rules(good)] if reduced.rules is not None else good


def make_plain_assignments(reduced: ReducedNetwork) -> Array:
    """Two assignments that random ones may be far from: every variable in the first state that is left to it, and in the one that its
    features of one literal prefer."""
    domain, features = reduced.domain, reduced.network.features
    single = features.lengths == 1
    literals, weights = features.literals[features.start[:-1][single]], reduced.network.stand_in_weights()[0][single]
    negative = is_negated(domain, literals)
    score = np.zeros(domain.n_literals)
    np.add.at(score, literals[~negative], weights[~negative])
    np.add.at(score, drop_negation(domain, literals[negative]), -weights[negative])  # against that state, in favour of the others
    for literal, value in reduced.given.likelihood.items():
        score[literal] += value
    by_variable = [get_slice(domain, v) for v in range(len(domain))]
    allowed = reduced.given.allowed
    first = [int(np.argmax(allowed[mine])) for mine in by_variable]
    best = [int(np.argmax(np.where(allowed[mine] > 0, score[mine], -np.inf))) for mine in by_variable]
    return np.array([first, best], dtype=np.int16)


def _replace_broken(reduced: ReducedNetwork, assignments: Array, otherwise: Array) -> Array:
    """The assignments, with others in place of those that break a rule."""
    if reduced.rules is None:
        return assignments
    return np.where(reduced.keeps_rules(assignments)[:, None], assignments, otherwise)


def climb(reduced: ReducedNetwork, assignments: Array, work: Work) -> tuple[Array, Array]:
    """Go to the nearest assignments that no change of one variable improves, as far as there is time; them and their scores."""
    sampler = make_sampler(reduced, assignments, work)
    for _ in range(MAX_CLIMBS):
        before = sampler.states()
        sampler.run(1, None, None, False, False, True, work.threads)
        if np.array_equal(before, sampler.states()) or work.is_over:
            break
    return np.asarray(sampler.states()), np.asarray(sampler.scores(work.threads))


def _make_features_true(reduced: ReducedNetwork, assignment: Array, rng: np.random.Generator) -> Array:
    """The assignment, and random ones, each with one long feature of large weight made true; the first as it is before them."""
    domain = reduced.domain
    features, weights = reduced.network.features, reduced.network.weights
    long = np.flatnonzero((features.lengths >= LONG_LENGTH) & np.isfinite(weights) & (weights > 0))
    long = long[np.argsort(-weights[long], kind="stable")[:SEEKING_CHAINS]]
    bases = np.concatenate([np.tile(assignment, (len(long), 1)), reduced.draw_assignments(len(long), rng)])
    out = [assignment]
    for base, j in zip(bases, np.tile(long, 2), strict=True):
        open_states: dict[int, Array] = {}
        for v, state, is_not in split_literals(domain, features[int(j)]):
            mine = open_states.setdefault(v, reduced.given.allowed[get_slice(domain, v)] > 0)
            mine &= (np.arange(len(mine)) == state) != is_not
        choices = {v: np.flatnonzero(open_states[v]) for v in sorted(open_states)}
        if all(len(c) for c in choices.values()):
            one = base.copy()
            for v, c in choices.items():
                one[v] = one[v] if one[v] in c else c[0]
            out.append(one)
    return np.ascontiguousarray(np.stack(out), dtype=np.int16)


def _estimate_shares(reduced: ReducedNetwork, modes: Array, work: Work) -> tuple[Array, Array]:
    """At most about which share of the probability each mode carries, by its mass and a lower bound on that of everything; and how firmly
    it holds a chain: the logarithm of the probability that no variable leaves it."""
    if not len(modes):
        return np.zeros(0), np.zeros(0)
    mass, hold = estimate_log_masses(reduced, modes, work)
    lower = -np.inf if work.is_over else float(reduced.model.mean_field(reduced.evidence, 1e-4, 50, 2, work.seed)[1])
    return np.exp(np.minimum(mass + MASS_MARGIN - max(lower, float(mass.max()) - MASS_MARGIN), 0.0)), hold


def estimate_log_masses(reduced: ReducedNetwork, modes: Array, work: Work) -> tuple[Array, Array]:
    """The logarithm of the mass around each mode, as if its variables moved on their own: its score less the logarithm of its
    probability given that each other variable stays; and that logarithm."""
    base, given = reduced.domain.base[:-1], reduced.given
    p = reduced.network.conditionals(Dataset(reduced.domain, modes), work.threads) * given.allowed
    for literal, value in given.likelihood.items():
        p[:, literal] *= np.exp(value)
    chosen = np.take_along_axis(p, base + modes.astype(np.int64), axis=1) / np.add.reduceat(p, base, axis=1)
    hold = np.log(np.maximum(chosen, 1e-12)).sum(axis=1)
    return np.asarray(make_sampler(reduced, modes, work).scores(work.threads) - hold), hold
