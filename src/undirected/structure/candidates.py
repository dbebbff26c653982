"""Candidate features: pairs that are not independent, and groups of states that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import negate
from undirected.data.variables import Domain
from undirected.features.feature_set import FeatureSet, Indicators
from undirected.kernels.types import Array
from undirected.work import Work

LEAST_SLOPE = 1.0  # of a pair at the model of independent variables: pairs below it would need a weaker penalty than any that is tried
BLOCK_COLUMNS, BLOCK_ROWS = 1024, 8192  # of a product of tables of states
LEAST_EXPECTED = 10.0  # rows in which two states would be together by chance, for their absence to tell something
MOST_TOGETHER = 0.01  # of these, in which they may be together and still exclude each other
LEAST_GROUP = 3  # states that exclude each other; two are a pair
MOST_GROUPED = 60  # states in a group
MOST_LITERALS = 3000  # beyond which groups are not looked for


def screen_pairs(data: Dataset, most: int, work: Work, least: float = LEAST_SLOPE) -> FeatureSet:
    """The pairs of indicators of two variables with the steepest slopes of the pseudo-likelihood at the model of independent variables:
    twice the rows in which both hold, less those expected. Pairs below ``least`` are left out, and all but the first ``most``.

    This is a strong rule: with an L1 penalty above it, hardly any pair with a smaller slope gets a weight.
    """
    indicators = Indicators(data.domain)
    found: list[tuple[Array, Array]] = []
    bar = least
    for block, together, expected in _count_together(data, indicators, work):
        a, b = np.meshgrid(block, np.arange(len(indicators)), indexing="ij")
        slopes = 2 * np.abs(together - expected)
        once = (b > a) & (indicators.variable[a] != indicators.variable[b]) & (slopes >= bar)
        found.append((np.stack([a[once], b[once]], axis=1), slopes[once]))
        if sum(len(part) for part, _ in found) > 4 * most:
            found = [_take_steepest(found, most)]
            bar = max(bar, float(found[0][1].min()))
    pairs, _ = _take_steepest(found, most)
    return indicators.join(pairs[:, 0], pairs[:, 1]).canonical()


def _take_steepest(found: list[tuple[Array, Array]], most: int) -> tuple[Array, Array]:
    pairs = np.concatenate([np.zeros((0, 2), np.int64), *(part for part, _ in found)])
    slopes = np.concatenate([np.zeros(0), *(part for _, part in found)])
    order = np.argsort(-slopes, kind="stable")[:most]
    return pairs[order], slopes[order]


def _count_together(data: Dataset, indicators: Indicators, work: Work) -> Iterator[tuple[Array, Array, Array]]:
    """Numbers of a block of indicators, and by block and indicator the weight of rows in which both hold, as it is and as it would be if
    they were independent."""
    table = data.distinct
    counts = indicators.add_up(table.literal_counts())
    for first in range(0, len(indicators), BLOCK_COLUMNS):
        block = np.arange(first, min(first + BLOCK_COLUMNS, len(indicators)))
        together = np.zeros((len(block), len(indicators)))
        for rows in np.array_split(np.arange(len(table)), len(table) // BLOCK_ROWS + 1):
            work.check()
            held = indicators.hold(table.codes[rows]).astype(np.float32)
            together += (held[:, block] * table.weights[rows, None].astype(np.float32)).T @ held
        yield block, together, counts[block][:, None] * counts / max(table.total_weight, 1e-300)


def find_exclusive_groups(data: Dataset, work: Work) -> list[Array]:
    """Groups of states of three or more unordered variables, of which hardly any row has two, though it would by chance.

    Greedy: the most frequent states first, each with those that it and all members so far exclude.
    """
    indicators = Indicators(data.domain)
    if not 0 < len(indicators) <= MOST_LITERALS:
        return []
    literals = data.domain.base[indicators.variable] + indicators.state
    blocks = list(_count_together(data, indicators, work))
    excludes = np.concatenate([(e >= LEAST_EXPECTED) & (together <= MOST_TOGETHER * e) for _, together, e in blocks])
    plain, variable = ~indicators.upward, indicators.variable
    excludes &= excludes.T & (variable[:, None] != variable) & plain & plain[:, None]
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
