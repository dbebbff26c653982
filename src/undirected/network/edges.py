"""How strongly two variables of a network are joined, and in which direction, however their states are coded."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, triu

from undirected.data.literals import drop_negation, get_state, get_variable, is_negated, make_literal
from undirected.data.variables import Domain
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array

MAX_TERMS = 1 << 24  # how many terms features may be expanded into; those left over are multiplied two by two
MAX_SQUARE = 2000  # variables, for a table of all pairs
VANISHING = 1e-7  # a mean smaller than this share of the strength has no sign
ROUNDING = 1e-13  # a difference of squares smaller than this share of them is zero
ALMOST_ZERO = 1e-60  # stands for the overlap of states that exclude each other, so that it can be divided out again


class Edge(NamedTuple):
    """How two variables go together: the usual size of their log odds ratios, and 1, -1 or 0 for the direction."""

    strength: float
    sign: int

    @property
    def signed(self) -> float:
        """The strength with its sign; 0 where there is none."""
        return self.sign * self.strength


def find_joined_pairs(features: FeatureSet, weights: Array) -> Array:
    """The pairs of variables that share a feature of non-zero weight, a row each, in the order of the domain."""
    used = features.subset(np.asarray(weights) != 0)
    holds = csr_array((np.ones(len(used.literals)), (used.owner, used.variables)), shape=(len(used), len(used.domain)))
    pairs = triu(holds.T @ holds, 1).tocoo()
    found = np.stack([pairs.row, pairs.col], axis=1).astype(np.int64)
    return np.asarray(found[np.lexsort(found.T[::-1])])


def find_directed(domain: Domain) -> Array:
    """For each variable whether it has an up and a down: two states, or states whose order means something."""
    return np.array([len(v.states) == 2 or v.has_order for v in domain.variables], dtype=bool)


def measure_edges(features: FeatureSet, weights: Array) -> dict[tuple[int, int], Edge]:
    """Strength and sign for each pair of variables that share a feature of non-zero weight.

    *Strength* is the root mean square of the log odds ratios of the two variables, over every two different states of each and
    over the states of all other variables, each as likely as the next. It belongs to the distribution, not to its features:
    other names, another order or another reference state change nothing. Two binary variables joined by one feature of weight
    ``w`` on both have strength ``|w|``.

    *Sign* is that of the mean log odds ratio between lower and higher states: 1 where higher states go together, -1 where they
    avoid each other. It is 0 where the mean vanishes, and where a variable has three or more states without an order.

    Infinite weights count as plus or minus (10 + 4 times the largest finite absolute weight).

    Notes
    -----
    With all assignments equally likely, the score (the sum of the weights of true features) is a sum of uncorrelated parts, one
    for each set of variables, and a feature has a share in the parts of all subsets of its variables. The mean square of the log
    odds ratios is the variance of all parts that hold both variables, times ``4 k / (k - 1) l / (l - 1)`` for ``k`` and ``l``
    states. Long features have too many subsets; they are multiplied two by two instead.
    """
    domain = features.domain
    nonzero = np.asarray(weights) != 0
    pairs = find_joined_pairs(features, weights)
    if not len(pairs):
        return {}
    terms = _Terms(features.subset(nonzero), _replace_infinite(np.asarray(weights, dtype=float)[nonzero]))
    short = _choose_expanded(terms)
    variance = _PairSums(pairs, len(domain))
    _add_expanded(variance, terms, short)
    _add_two_by_two(variance, terms, short)
    k = domain.n_states.astype(float)
    spread = np.divide(k, k - 1, out=np.zeros(len(k)), where=k > 1)
    strength = np.sqrt(np.maximum(4 * spread[pairs].prod(axis=1) * variance.sums, 0.0))
    mean = _average_in_order(terms, pairs)
    clear = find_directed(domain)[pairs].all(axis=1) & (strength > 0) & (np.abs(mean) > VANISHING * strength)
    sign = np.where(clear, np.sign(mean), 0.0).astype(int)
    return {(a, b): Edge(s, d) for (a, b), s, d in zip(pairs.tolist(), strength.tolist(), sign.tolist(), strict=True)}


def _replace_infinite(weights: Array) -> Array:
    infinite = np.isinf(weights)
    large = 10 + 4 * float(np.abs(weights[~infinite]).max(initial=0.0))
    return np.where(infinite, np.sign(weights) * large, weights)


class _Terms:
    """Weighted features as restrictions: for each feature and variable in it, the literals and the share of states they allow.

    Restriction ``r`` belongs to feature ``owner[r]`` and has ``count[r]`` literals from ``first[r]`` on: one state that must be, or
    some that must not.
    """

    def __init__(self, features: FeatureSet, weights: Array) -> None:
        self.domain, self.weights = features.domain, weights
        self.literals = drop_negation(self.domain, features.literals)
        variable = get_variable(self.domain, self.literals)
        new = np.ones(len(variable), dtype=bool)
        new[1:] = (np.diff(variable) != 0) | (np.diff(features.owner) != 0)
        self.first = np.flatnonzero(new)
        self.count = np.diff(np.append(self.first, len(variable)))
        self.owner, self.variable = features.owner[self.first], variable[self.first].astype(np.int64)
        self.negated = is_negated(self.domain, features.literals[self.first])
        self.n_states = self.domain.n_states[self.variable]
        self.share = np.where(self.negated, self.n_states - self.count, 1) / self.n_states
        self.start = np.searchsorted(self.owner, np.arange(len(weights) + 1))
        self.lengths = np.diff(self.start)

    def multiply(self, values: Array) -> Array:
        """For each feature the product of a number per restriction."""
        out = np.ones(len(self.weights))
        np.multiply.at(out, self.owner, values)
        return out


class _PairSums:
    """A sum for each joined pair of variables."""

    def __init__(self, pairs: Array, n: int) -> None:
        self.n, self.keys = n, pairs[:, 0] * n + pairs[:, 1]
        self.sums = np.zeros(len(pairs))
        self.place = None
        if n <= MAX_SQUARE:  # a table is quicker than a search
            self.place = np.zeros(n * n, dtype=np.int32)
            self.place[self.keys] = np.arange(len(pairs))

    def add(self, a: Array, b: Array, values: Array) -> None:
        """Add values to the pairs of variables ``a < b``."""
        keys = a * self.n + b
        at = np.searchsorted(self.keys, keys) if self.place is None else self.place[keys]
        self.sums += np.bincount(at, weights=values, minlength=len(self.keys))


def _average_in_order(terms: _Terms, pairs: Array) -> Array:
    """For each pair the mean log odds ratio between lower and higher states, in the order of the states."""
    k = terms.domain.n_states[terms.domain.literal_variable].astype(float)
    state = get_state(terms.domain, np.arange(terms.domain.n_literals))
    rise = (2 * state - (k - 1)) * 2 / np.maximum(k * (k - 1), 1)  # mean difference of higher and lower states, by state
    moved = np.add.reduceat(rise[terms.literals], terms.first) * np.where(terms.negated, -1, 1)
    shape = (len(terms.weights), len(terms.domain))
    by_variable = csr_array((moved / terms.share, (terms.owner, terms.variable)), shape=shape)
    total = terms.weights * terms.multiply(terms.share)
    mean = by_variable.T @ csr_array((moved / terms.share * total[terms.owner], (terms.owner, terms.variable)), shape=shape)
    return np.asarray(mean.tocsr()[pairs[:, 0], pairs[:, 1]], dtype=float).ravel()


def _choose_expanded(terms: _Terms) -> Array:
    """Which features are cheaper to expand into subsets than to multiply with all others, as far as memory goes."""
    size = terms.multiply(terms.count * np.where(terms.n_states == 2, 2.0, 3.0))
    size = np.where(terms.lengths <= 2, terms.multiply(terms.count.astype(float)), size)
    chosen = size <= 150 + len(size) * terms.lengths / 60
    order = np.argsort(size, kind="stable")
    chosen[order[np.cumsum(size[order]) > MAX_TERMS]] = False
    return np.asarray(chosen | (terms.lengths < 2))


def _add_expanded(variance: _PairSums, terms: _Terms, which: Array) -> None:
    """Add the variances of the parts of the score in which the chosen features have a share."""
    rows = [_choose_literals(terms, np.flatnonzero(which & (terms.lengths == m))) for m in np.unique(terms.lengths[which]) if m > 1]
    for size in range(2, max((len(literals) for _, literals, _, _ in rows), default=1) + 1):
        found: list[tuple[Array, Array]] = []
        for weights, literals, signs, shares in rows:
            for chosen in itertools.combinations(range(len(literals)), size):
                values = weights.copy()
                for c in range(len(literals)):
                    values *= signs[c] if c in chosen else shares[c]
                found.append((literals[list(chosen)].T, values))
        if found:
            _add_parts(variance, terms.domain, np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found]))


def _choose_literals(terms: _Terms, which: Array) -> tuple[Array, Array, Array, Array]:
    """Features of the same length as terms with one state a variable: weights, and by variable literals, signs and shares allowed.

    Apart from a constant, "not s and not t" is minus "s" minus "t": such a feature becomes a term per choice of one. So is the
    first of two states minus the second.
    """
    weights = terms.weights[which]
    columns = terms.start[which][:, None] + np.arange(terms.lengths[which[0]])
    place = np.zeros_like(columns)
    for c in range(columns.shape[1]):
        repeats = terms.count[columns[:, c]]
        if repeats.max() > 1:
            row = np.repeat(np.arange(len(columns)), repeats)
            columns, place, weights = columns[row], place[row], weights[row]
            place[:, c] = np.arange(len(row)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    literals = terms.literals[terms.first[columns] + place].astype(np.int64)
    other = (terms.n_states[columns] == 2) & (literals == make_literal(terms.domain, terms.variable[columns], 0))
    signs = np.where(terms.negated[columns] | other, -1.0, 1.0)
    shares = terms.share[columns] / terms.count[columns]
    return weights, (literals + other).T, np.ascontiguousarray(signs.T), np.ascontiguousarray(shares.T)


def _add_parts(variance: _PairSums, domain: Domain, literals: Array, values: Array) -> None:
    """Add the variance of the parts of one size, given as sums of values on states, to the pairs of variables in them.

    A part is a table over the states of its variables, centred along each of them. The sum of squares of a centred table is found
    from the sums of the plain one by inclusion and exclusion; on two states only the second carries values, and it halves.
    """
    _, first, group = np.unique(_number_rows(literals, domain.n_literals), return_index=True, return_inverse=True)
    sums, bound = (np.bincount(group, weights=w) for w in (values, np.abs(values)))
    literals = literals[first]
    variables = get_variable(domain, literals).astype(np.int64)
    _, first, part = np.unique(_number_rows(variables, len(domain)), return_index=True, return_inverse=True)
    n_states = domain.n_states[variables].astype(float)
    squares = np.bincount(part, weights=sums**2)
    size = literals.shape[1]
    wide = np.flatnonzero((n_states > 2).any(axis=0)).tolist()
    for summed in itertools.chain.from_iterable(itertools.combinations(wide, n) for n in range(1, len(wide) + 1)):
        rows = np.flatnonzero((n_states[:, summed] > 2).all(axis=1))
        kept = np.column_stack([part[rows], *(literals[rows, c] for c in range(size) if c not in summed)])
        _, at, group = np.unique(_number_rows(kept, max(domain.n_literals, len(first))), return_index=True, return_inverse=True)
        factor = (-1 / n_states[rows[at]][:, summed]).prod(axis=1)
        squares += np.bincount(part[rows[at]], weights=factor * np.bincount(group, weights=sums[rows]) ** 2, minlength=len(first))
    squares[squares <= ROUNDING * np.bincount(part, weights=bound**2)] = 0.0
    squares *= np.where(n_states[first] > 2, 1 / n_states[first], 0.25 * (n_states[first] > 1)).prod(axis=1)
    for a, b in itertools.combinations(range(size), 2):
        variance.add(variables[first, a], variables[first, b], squares)


def _number_rows(columns: Array, radix: int) -> Array:
    """A number for each row of whole numbers below ``radix``, the same for the same row."""
    key, span = np.zeros(len(columns), dtype=np.int64), 1
    for column in columns.T:
        if span * radix >= 1 << 62:
            values, key = np.unique(key, return_inverse=True)
            span = len(values)
        key, span = key * radix + column, span * radix
    return key


def _add_two_by_two(variance: _PairSums, terms: _Terms, done: Array) -> None:
    """Add what the features not yet done add to the variances: their products with each other and with those done before.

    The mean product of two features is a product over variables of the shares of states that both allow. For a pair of variables
    their two factors are taken out and covariances put in.
    """
    if done.all():
        return
    order = np.concatenate([np.flatnonzero(done & (terms.lengths > 1)), np.flatnonzero(~done)])
    codes, overlaps = _number_restrictions(terms, order)
    total = (terms.weights * terms.multiply(terms.share))[order]
    for i in range(len(order) - int((~done).sum()), len(order)):
        mine = np.arange(terms.start[order[i]], terms.start[order[i] + 1])
        variables = terms.variable[mine]
        others = codes[variables, : i + 1]
        near = np.flatnonzero((others > 0).sum(axis=0) > 1)
        both = np.stack([overlaps[v][codes[v, i]].take(others[c, near]) for c, v in enumerate(variables)])
        possible = (both == 0).sum(axis=0) < 3  # three variables that exclude each other leave nothing for any pair
        near, both = near[possible], np.maximum(both[:, possible], ALMOST_ZERO)
        alone = np.stack([overlaps[v][0].take(others[c, near]) for c, v in enumerate(variables)])
        moved = 1 - alone * terms.share[mine, None] / both
        products = terms.weights[order[i]] * total[near] * (both / alone).prod(axis=0)
        products[near != i] *= 2
        a, b = np.triu_indices(len(mine), 1)
        variance.add(variables[a], variables[b], np.einsum("ig,jg->ij", moved * products, moved)[a, b])


def _number_restrictions(terms: _Terms, order: Array) -> tuple[Array, list[Array]]:
    """What each feature asks of each variable, as codes ``[variable][feature]`` (0 for nothing), and for each variable the share of
    states that two codes allow together."""
    place = np.full(len(terms.weights), -1)
    place[order] = np.arange(len(order))
    mine = np.flatnonzero(place[terms.owner] >= 0)
    positive = terms.literals[terms.first]
    what = make_literal(terms.domain, terms.variable, get_state(terms.domain, positive), terms.negated).astype(np.int64)
    several: dict[bytes, int] = {}
    for r in mine[terms.count[mine] > 1].tolist():
        key = terms.literals[terms.first[r] : terms.first[r] + terms.count[r]].tobytes()
        what[r] = 2 * terms.domain.n_literals + several.setdefault(key, len(several))
    keys = _number_rows(np.stack([terms.variable[mine], what[mine]], axis=1), 2 * terms.domain.n_literals + len(several))
    _, at, group = np.unique(keys, return_index=True, return_inverse=True)  # by variable, as the keys rise with it
    kinds = mine[at]
    begin = np.searchsorted(terms.variable[kinds], np.arange(len(terms.domain) + 1))
    codes = np.zeros((len(terms.domain), len(order)), dtype=np.int32)
    codes[terms.variable[mine], place[terms.owner[mine]]] = 1 + group - begin[terms.variable[mine]]
    overlaps = []
    for v, k in enumerate(terms.domain.n_states.tolist()):
        masks = np.ones((1 + begin[v + 1] - begin[v], k))
        for mask, r in zip(masks[1:], kinds[begin[v] : begin[v + 1]], strict=True):
            mask[:] = terms.negated[r]
            mask[terms.literals[terms.first[r] : terms.first[r] + terms.count[r]] - terms.domain.base[v]] = not terms.negated[r]
        overlaps.append(masks @ masks.T / k)
    return codes, overlaps
