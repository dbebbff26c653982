"""Candidate features of several kinds: pairs that are not independent, paths of trees, and groups of states that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import negate
from undirected.data.variables import Domain
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.structure.dtsl import convert
from undirected.structure.trees import grow_trees
from undirected.work import Work

LEAST_SLOPE = 1.0  # of a pair at the model of independent variables: pairs below it would need a weaker penalty than any that is tried
BLOCK_COLUMNS, BLOCK_ROWS = 1024, 8192  # of a product of tables of states
SURE_GAIN = -np.log(1e-4)  # of log-likelihood, for each parameter that a split of a tree adds, beyond which it is no chance
LEAST_EXPECTED = 10.0  # rows in which two states would be together by chance, for their absence to tell something
MOST_TOGETHER = 0.01  # of these, in which they may be together and still exclude each other
LEAST_GROUP = 3  # states that exclude each other; two are a pair
MOST_GROUPED = 60  # states in a group
MOST_LITERALS = 3000  # beyond which groups are not looked for


def screen_pairs(data: Dataset, most: int, work: Work, least: float = LEAST_SLOPE) -> FeatureSet:
    """The pairs of non-reference states of two variables with the steepest slopes of the pseudo-likelihood at the model of independent
    variables: twice the rows in which both hold, less those expected. Pairs below ``least`` are left out, and all but the first ``most``.

    This is a strong rule: with an L1 penalty above it, hardly any pair with a smaller slope gets a weight.
    """
    domain = data.domain
    found: list[tuple[Array, Array]] = []
    bar = least
    for pairs, slopes in _list_slopes(data, work):
        kept = np.flatnonzero(np.abs(slopes) >= bar)
        found.append((pairs[kept], np.abs(slopes[kept])))
        if sum(len(part) for part, _ in found) > 4 * most:
            found = [_take_steepest(found, most)]
            bar = max(bar, float(found[0][1].min()))
    pairs, _ = _take_steepest(found, most)
    pairs = pairs[np.lexsort(pairs.T[::-1])]
    return FeatureSet(domain, np.arange(len(pairs) + 1, dtype=np.int64) * 2, pairs.ravel().astype(np.int32))


def _take_steepest(found: list[tuple[Array, Array]], most: int) -> tuple[Array, Array]:
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *(part for part, _ in found)])
    slopes = np.concatenate([np.zeros(0), *(part for _, part in found)])
    order = np.argsort(-slopes, kind="stable")[:most]
    return pairs[order], slopes[order]


def _list_slopes(data: Dataset, work: Work) -> Iterator[tuple[Array, Array]]:
    """All pairs of non-reference states of two variables, block by block, with their slopes."""
    for literals, block, together, expected in _count_together(data, work):
        a, b = np.meshgrid(block, np.arange(len(literals)), indexing="ij")
        variable = data.domain.literal_variable[literals]
        once = (b > a) & (variable[a] != variable[b])
        slopes = 2 * (together[once] - expected[once])
        yield np.stack([literals[a[once]], literals[b[once]]], axis=1).astype(np.int64), slopes


def _count_together(data: Dataset, work: Work) -> Iterator[tuple[Array, Array, Array, Array]]:
    """The non-reference states, numbers of a block of them, and by block and state the weight of rows in which both hold, as it is and as
    it would be if they were independent."""
    domain, table = data.domain, data.distinct
    literals = np.setdiff1d(np.arange(domain.n_literals), domain.base[:-1])
    variable = domain.literal_variable[literals]
    state = literals - domain.base[variable]
    counts = table.literal_counts()[literals]
    for first in range(0, len(literals), BLOCK_COLUMNS):
        block = np.arange(first, min(first + BLOCK_COLUMNS, len(literals)))
        together = np.zeros((len(block), len(literals)))
        for rows in np.array_split(np.arange(len(table)), len(table) // BLOCK_ROWS + 1):
            work.check()
            held = (table.codes[rows][:, variable] == state).astype(np.float32)
            together += (held[:, block] * table.weights[rows, None].astype(np.float32)).T @ held
        yield literals, block, together, counts[block][:, None] * counts / max(table.total_weight, 1e-300)


def list_tree_conjunctions(data: Dataset, most: int, min_rows: float, work: Work) -> tuple[FeatureSet, FeatureSet]:
    """The paths of probability trees, one for each variable, to all nodes, of three literals and more: those of splits that gain much, and
    the others. Of the latter, those that gain least are left out until there are about ``most`` in all."""
    trees = grow_trees(data, min_rows, 1.0, work)
    costs = trees.domain.n_states[trees.targets][trees.tree].astype(float)
    least = trees.find_least_gain(costs, float(most))
    sure, all_of_them = (convert(trees.cut_at(bar), "prune") for bar in (max(least, SURE_GAIN), least))
    sure, all_of_them = (found.subset(found.lengths > 2) for found in (sure, all_of_them))
    return sure, all_of_them.difference(sure)


def find_exclusive_groups(data: Dataset, work: Work) -> list[Array]:
    """Groups of non-reference states of three or more variables, of which hardly any row has two, though it would by chance.

    Greedy: the most frequent states first, each with those that it and all members so far exclude.
    """
    if data.domain.n_literals > MOST_LITERALS:
        return []
    blocks = list(_count_together(data, work))
    if not blocks:
        return []
    literals = blocks[0][0]
    excludes = np.concatenate([(e >= LEAST_EXPECTED) & (together <= MOST_TOGETHER * e) for _, _, together, e in blocks])
    variable = data.domain.literal_variable[literals]
    excludes &= excludes.T & (variable[:, None] != variable)
    groups = []
    left = set(np.flatnonzero(excludes.sum(axis=1) >= LEAST_GROUP - 1).tolist())
    counts = data.literal_counts()[literals]
    for seed in np.argsort(-counts, kind="stable").tolist():
        if seed not in left:
            continue
        members, able = [seed], excludes[seed].copy()
        for other in np.argsort(-counts, kind="stable").tolist():
            if other in left and able[other] and len(members) < MOST_GROUPED:
                members.append(other)
                able &= excludes[other]
        if len(members) >= LEAST_GROUP:
            groups.append(np.sort(literals[members]))
            left -= set(members)
    return groups


def list_group_conjunctions(domain: Domain, groups: list[Array]) -> FeatureSet:
    """For each group the conjunction that none of its states holds, and for each state the one that it holds alone."""
    rows = []
    for group in groups:
        absent = negate(domain, group)
        rows.append(absent.tolist())
        rows += [[int(state), *np.delete(absent, k).tolist()] for k, state in enumerate(group)]
    return FeatureSet.from_lists(rows, domain)
