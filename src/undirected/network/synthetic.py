"""Networks with known truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undirected.data.variables import Domain
from undirected.errors import ParameterError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork


def grid_ising(rows: int, columns: int, coupling: float = 0.5, field: float = 0.1, seed: int = 0) -> MarkovNetwork:
    """An Ising model on a grid, as conjunctions of ones.

    Spins are plus or minus one; couplings are plus or minus ``coupling`` and fields uniform in plus or minus ``field``.
    """
    if rows < 1 or columns < 1:
        raise ParameterError(f"a grid of {rows} by {columns} has no variables")
    rng = np.random.default_rng(seed)
    n = rows * columns
    edges = [(r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)]
    edges += [(r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)]
    j = coupling * rng.choice([-1.0, 1.0], size=len(edges))
    h = rng.uniform(-field, field, size=n)
    # J s t with s = 2x - 1, t = 2y - 1 is 4J xy - 2J x - 2J y plus a constant.
    single = 2 * h
    for (a, b), weight in zip(edges, j, strict=True):
        single[[a, b]] -= 2 * weight
    features = FeatureSet.from_lists(
        [[2 * v + 1] for v in range(n)] + [[2 * a + 1, 2 * b + 1] for a, b in edges], Domain.from_sizes([2] * n)
    )
    return MarkovNetwork(features, np.concatenate([single, 4 * j]))


def random_conjunctions(
    n_variables: int, n_features: int, max_length: int = 3, n_states: int = 2, scale: float = 1.0, seed: int = 0
) -> MarkovNetwork:
    """Distinct random conjunctions of up to ``max_length`` literals with normal weights of deviation ``scale``."""
    if not 1 <= max_length <= n_variables:
        raise ParameterError(f"max_length={max_length} is not between 1 and the {n_variables} variables")
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes([n_states] * n_variables)
    chosen: dict[tuple[int, ...], None] = {}
    for _ in range(100 * n_features):
        if len(chosen) == n_features:
            break
        members = np.sort(rng.choice(n_variables, size=rng.integers(1, max_length + 1), replace=False))
        chosen[tuple((domain.base[members] + rng.integers(n_states, size=len(members))).tolist())] = None
    if len(chosen) < n_features:
        raise ParameterError(f"there are not {n_features} distinct conjunctions of up to {max_length} literals")
    features = FeatureSet.from_lists(chosen, domain)
    return MarkovNetwork(features, rng.normal(scale=scale, size=len(features)))


def hard_clauses(
    n_variables: int, n_clauses: int, length: int = 3, soft: float = 0.5, window: int | None = None, seed: int = 0
) -> MarkovNetwork:
    """Random clauses that must hold, written as conjunctions of weight minus infinity that must not.

    One assignment, drawn first, breaks none of them, so the network is never impossible. Every variable also has a feature of
    its own with a normal weight of deviation ``soft``. A clause's variables are among ``window`` consecutive ones (of all, if left
    out), so that a small window keeps even long networks easy to solve exactly.
    """
    window = n_variables if window is None else window
    if not 1 <= length <= window <= n_variables:
        raise ParameterError(f"length={length} and window={window} must rise from 1 up to the {n_variables} variables")
    rng = np.random.default_rng(seed)
    planted = rng.integers(2, size=n_variables)
    chosen: dict[tuple[int, ...], None] = {}
    for _ in range(100 * n_clauses):
        if len(chosen) == n_clauses:
            break
        members = rng.integers(n_variables - window + 1) + np.sort(rng.choice(window, size=length, replace=False))
        states = rng.integers(2, size=length)
        if (states != planted[members]).any():
            chosen[tuple((2 * members + states).tolist())] = None
    if len(chosen) < n_clauses:
        raise ParameterError(f"there are not {n_clauses} distinct clauses of {length} literals that one assignment meets")
    rows = [(2 * v + 1,) for v in range(n_variables)] + list(chosen)
    weights = np.concatenate([rng.normal(scale=soft, size=n_variables), np.full(n_clauses, -np.inf)])
    return MarkovNetwork(FeatureSet.from_lists(rows, Domain.from_sizes([2] * n_variables)), weights)


def single_conjunction(n_literals: int, weight: float, n_variables: int | None = None) -> MarkovNetwork:
    """One feature that asks for ones of the first ``n_literals`` binary variables.

    With n literals and weight w, log Z of these variables is ``log(2^n - 1 + e^w)``: at w = n log 2 the one assignment that
    makes the feature true weighs as much as all others together, and no walk that changes one variable at a time finds it.
    """
    n_variables = n_literals if n_variables is None else n_variables
    if not 1 <= n_literals <= n_variables:
        raise ParameterError(f"n_literals={n_literals} is not between 1 and the {n_variables} variables")
    features = FeatureSet.from_lists([[2 * v + 1 for v in range(n_literals)]], Domain.from_sizes([2] * n_variables))
    return MarkovNetwork(features, [weight])


def clusters(
    n_clusters: int, size: int, coupling: float = 2.0, tilt: float = 1.0, link: float = 0.2, n_states: int = 2, seed: int = 0
) -> MarkovNetwork:
    """Groups of variables that agree within themselves: each group has a mode a state, far from one another and of different mass.

    Every pair of a group gains ``coupling`` in equal states. The log masses of a group's modes differ by normal numbers of
    deviation ``tilt``, spread evenly over its variables; first variables of neighbouring groups gain ``link`` in equal states.
    """
    if n_clusters < 1 or size < 1 or n_states < 2:
        raise ParameterError(f"{n_clusters} groups of {size} variables with {n_states} states make no clusters")
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes([n_states] * (n_clusters * size))
    rows: list[list[int]] = []
    weights: list[float] = []
    for c in range(n_clusters):
        members = range(c * size, (c + 1) * size)
        pairs = [(a, b, coupling) for a in members for b in members if a < b]
        if c:
            pairs.append(((c - 1) * size, c * size, link))
        for s, mass in enumerate(rng.normal(scale=tilt, size=n_states)):
            rows += [[n_states * v + s] for v in members]
            weights += [float(mass) / size] * size
            rows += [[n_states * a + s, n_states * b + s] for a, b, _ in pairs]
            weights += [w for _, _, w in pairs]
    return MarkovNetwork(FeatureSet.from_lists(rows, domain), weights)


class _Directed:
    """A Bayesian network as features, one a table entry, and an assignment drawn from it on the way.

    A zero entry becomes a feature of weight minus infinity, an entry of one needs none. Without observations log Z is zero; the
    assignment has positive probability, so what is observed of it is never impossible.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator) -> None:
        self.domain, self.rng = Domain.from_sizes(sizes), rng
        self.drawn = np.full(len(self.domain), -1)
        self.rows: list[list[int]] = []
        self.weights: list[float] = []

    def add(self, child: int, parents: Sequence[int], table: Array) -> None:
        """Add P(child | parents): one axis a parent, in order, then the child's states."""
        self.drawn[child] = self.rng.choice(table.shape[-1], p=table[tuple(self.drawn[v] for v in parents)])
        base = self.domain.base
        for place in np.ndindex(table.shape):
            if table[place] != 1:
                self.rows.append([int(base[v]) + s for v, s in zip((*parents, child), place, strict=True)])
                self.weights.append(float(np.log(table[place])) if table[place] > 0 else -np.inf)

    def observe(self, variable: int) -> None:
        """Rule out every state of a variable but the one drawn."""
        for s in range(int(self.domain.n_states[variable])):
            if s != self.drawn[variable]:
                self.rows.append([int(self.domain.base[variable]) + s])
                self.weights.append(-np.inf)

    def network(self) -> MarkovNetwork:
        return MarkovNetwork(FeatureSet.from_lists(self.rows, self.domain), self.weights)


def noisy_or(
    n_causes: int, n_findings: int, max_causes: int = 3, prior: float = 0.1, leak: float = 0.02, n_observed: int = 0, seed: int = 0
) -> MarkovNetwork:
    """Rare causes (variables 0, 1, ...) and findings after them, as in medical diagnosis.

    Causes have priors up to ``prior``. A finding has up to ``max_causes`` causes, each of which brings it about with a probability
    of its own; every other finding also comes without a cause (``leak``), the others never do. The first ``n_observed`` findings
    are observed, as drawn from the network.
    """
    if not 1 <= max_causes <= n_causes or not 0 <= n_observed <= n_findings or not 0 < prior < 1 or not 0 <= leak < 1:
        raise ParameterError("noisy_or needs 1 <= max_causes <= n_causes, 0 <= n_observed <= n_findings and probabilities below 1")
    rng = np.random.default_rng(seed)
    made = _Directed([2] * (n_causes + n_findings), rng)
    for v in range(n_causes):
        p = rng.uniform(prior / 10, prior)
        made.add(v, [], np.array([1 - p, p]))
    for f in range(n_findings):
        parents = np.sort(rng.choice(n_causes, size=rng.integers(1, max_causes + 1), replace=False)).tolist()
        fails = np.array(1.0 if f % 2 else 1.0 - leak)  # P(finding absent), by the parents' states
        for strength in rng.uniform(0.3, 0.95, size=len(parents)):
            fails = np.stack([fails, fails * (1 - strength)], axis=-1)
        made.add(n_causes + f, parents, np.stack([fails, 1 - fails], axis=-1))
    for f in range(n_observed):
        made.observe(n_causes + f)
    return made.network()


def dynamic_chain(
    n_slices: int, width: int, n_states: int = 2, noise: float = 0.05, zeros: float = 0.3, n_observed: int = 0, seed: int = 0
) -> MarkovNetwork:
    """Slices of ``width`` variables, each of which nearly follows from two variables of the slice before.

    The state that a random function names is taken with probability ``1 - noise``; the others share the noise, but a share
    ``zeros`` of them is impossible. The first ``n_observed`` variables of the last slice are observed, as drawn from the network.
    """
    if n_slices < 1 or width < 1 or n_states < 2 or not 0 <= n_observed <= width or not 0 <= noise < 1:
        raise ParameterError("dynamic_chain needs slices, variables, two states or more, 0 <= n_observed <= width and 0 <= noise < 1")
    rng = np.random.default_rng(seed)
    made = _Directed([n_states] * (n_slices * width), rng)
    for v in range(n_slices * width):
        slice_, place = divmod(v, width)
        parents = [] if slice_ == 0 else sorted({v - width, (slice_ - 1) * width + (place + 1) % width})
        table = np.full([n_states] * (len(parents) + 1), 1 / n_states)
        for states in np.ndindex(table.shape[:-1]) if parents else ():
            others = np.where(rng.random(n_states) < zeros, 0.0, rng.random(n_states))
            target = rng.integers(n_states)
            others[target] = 0.0
            table[states] = others * (noise / others.sum() if others.any() else 0.0)
            table[states][target] = 1 - noise if others.any() else 1.0
        made.add(v, parents, table)
    for place in range(n_observed):
        made.observe((n_slices - 1) * width + place)
    return made.network()


def pedigree(
    n_people: int, n_loci: int = 1, n_alleles: int = 2, recombination: float = 0.1, n_typed: int = 0, seed: int = 0
) -> MarkovNetwork:
    """Genes of a family, as in linkage analysis: a third are founders, the others have two parents among those before them.

    A person has two alleles a locus; those of a child are copies, and a selector for each says which of the parent's two was
    copied. Selectors of neighbouring loci differ with probability ``recombination``. Of the last ``n_typed`` people the pair of alleles
    is known at each locus, but not which came from whom.
    """
    if n_people < 1 or n_loci < 1 or n_alleles < 2 or not 0 <= n_typed <= n_people or not 0 <= recombination <= 1:
        raise ParameterError("pedigree needs people, loci, two alleles or more, 0 <= n_typed <= n_people and 0 <= recombination <= 1")
    rng = np.random.default_rng(seed)
    founders = min(n_people, max(2, n_people // 3))
    # Per locus: two alleles a person, then two selectors a child.
    a_locus = 2 * n_people + 2 * (n_people - founders)
    made = _Directed(([n_alleles] * (2 * n_people) + [2] * (a_locus - 2 * n_people)) * n_loci, rng)
    parents = [rng.choice(person, size=2, replace=False).tolist() for person in range(founders, n_people)]
    copies = np.zeros((2, n_alleles, n_alleles, n_alleles))  # selector, the parent's two alleles, the child's
    for first in range(n_alleles):
        copies[0, first, :, first] = 1
        copies[1, :, first, first] = 1
    stays = np.array([[1 - recombination, recombination], [recombination, 1 - recombination]])
    for locus in range(n_loci):
        start, frequency = locus * a_locus, rng.dirichlet(np.full(n_alleles, 3.0))
        for person in range(n_people):
            for side in range(2):
                allele = start + 2 * person + side
                if person < founders:
                    made.add(allele, [], frequency)
                    continue
                selector = start + 2 * n_people + 2 * (person - founders) + side
                before = [selector - a_locus] if locus else []
                made.add(selector, before, stays if locus else np.array([0.5, 0.5]))
                source = start + 2 * parents[person - founders][side]
                made.add(allele, [selector, source, source + 1], copies)
        for person in range(n_people - n_typed, n_people):
            _type_person(made, start + 2 * person, n_alleles)
    return made.network()


def _type_person(made: _Directed, allele: int, n_alleles: int) -> None:
    """Rule out the pairs of alleles that differ from the one drawn in more than their order."""
    seen = sorted(made.drawn[[allele, allele + 1]])
    base = made.domain.base
    for pair in np.ndindex(n_alleles, n_alleles):
        if sorted(pair) != seen:
            made.rows.append([int(base[allele]) + pair[0], int(base[allele + 1]) + pair[1]])
            made.weights.append(-np.inf)
