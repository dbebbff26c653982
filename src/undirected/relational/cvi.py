"""Hidden variables found by contrastive variable induction (CVI): entities that a model errs on in the same way make a category."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from undirected.kernels.types import Array

LEAST_CURVATURE = 1e-6
MOST_ROUNDS = 20  # of moving entities
MOST_ENTITIES = 3000  # that are merged pair by pair; more are brought together first


@dataclass(frozen=True)
class Statistics:
    """For each entity (rows) and candidate feature (columns): how far the model's expectation is above what is known, and its variance."""

    error: Array
    variance: Array


@dataclass(frozen=True)
class Clustering:
    """A cluster for each entity (-1 for none), the estimated gain of each cluster, and the estimated weights of its features."""

    of: Array
    gains: Array
    weights: Array


def measure_gain(error: Array, variance: Array, l1: float, beta: float) -> Array:
    """The most that a feature can gain (equation 5 of the paper), from its error and variance over a cluster."""
    soft = np.maximum(np.abs(error) - l1, 0)
    return np.asarray(np.square(soft) / (2 * np.maximum(variance + beta, LEAST_CURVATURE)))


def estimate_weight(error: Array, variance: Array, l1: float, beta: float) -> Array:
    """The weight at which a feature gains most (equation 6)."""
    soft = np.sign(error) * np.maximum(np.abs(error) - l1, 0)
    return np.asarray(-soft / np.maximum(variance + beta, LEAST_CURVATURE))


def cluster_entities(
    statistics: Statistics, l1: float, beta: float, move: bool = False, watch: Callable[[], None] = lambda: None
) -> Clustering:
    """Merge entities bottom-up while that raises the estimated gain (algorithm 2), and keep the clusters of positive gain.

    ``move``: afterwards let entities go to other clusters, one by one, while that raises it further. ``watch`` is called now and then.

    Costs n^2 features once and n features for each merge. More than 3,000 entities are first brought together into as many groups of
    similar errors, so that memory does not grow with their square.
    """
    error, variance, group = _bring_together(statistics)
    cluster = _merge(error.copy(), variance.copy(), l1, beta, watch)
    if move:
        cluster = _move(error, variance, cluster, l1, beta, watch)
    _, cluster = np.unique(cluster, return_inverse=True)
    error, variance = _add_up(error, cluster), _add_up(variance, cluster)
    gains = measure_gain(error, variance, l1, beta).sum(axis=1)
    kept = np.flatnonzero(gains > 0)
    kept = kept[np.argsort(-gains[kept], kind="stable")]
    number = np.full(len(gains), -1)
    number[kept] = np.arange(len(kept))
    return Clustering(number[cluster][group], gains[kept], estimate_weight(error[kept], variance[kept], l1, beta))


def _merge(error: Array, variance: Array, l1: float, beta: float, watch: Callable[[], None]) -> Array:
    """The cluster of each entity after merging pairs while the best of them raises the gain."""
    n = len(error)
    cluster = np.arange(n)
    gains = measure_gain(error, variance, l1, beta).sum(axis=1)
    rises = np.full((n, n), -np.inf)
    for i in range(n - 1):
        watch()
        rises[i, i + 1 :] = _measure_rises(error, variance, gains, i, np.arange(i + 1, n), l1, beta)
    alive = np.ones(n, dtype=bool)
    best = rises.argmax(axis=1)
    for _ in range(n - 1):
        watch()
        heights = rises[np.arange(n), best]
        i = int(heights.argmax())
        if not heights[i] > 0:
            break
        j = int(best[i])
        error[i] += error[j]
        variance[i] += variance[j]
        gains[i] = measure_gain(error[i], variance[i], l1, beta).sum()
        cluster[cluster == j] = i
        alive[j] = False
        rises[j], rises[:, j] = -np.inf, -np.inf
        others = np.flatnonzero(alive & (np.arange(n) != i))
        new = _measure_rises(error, variance, gains, i, others, l1, beta)
        rises[i, others[others > i]] = new[others > i]
        rises[others[others < i], i] = new[others < i]
        stale = (best == i) | (best == j)
        stale[i] = True
        best[stale] = rises[stale].argmax(axis=1)
        better = rises[:, i] > rises[np.arange(n), best]
        best[better] = i
    return cluster


def _move(error: Array, variance: Array, cluster: Array, l1: float, beta: float, watch: Callable[[], None]) -> Array:
    """Let entities, one after another, go to the cluster where the gain is largest, until none does."""
    _, cluster = np.unique(cluster, return_inverse=True)
    errors, variances = _add_up(error, cluster), _add_up(variance, cluster)
    for _ in range(MOST_ROUNDS):
        moved = False
        for i in range(len(error)):
            watch()
            home = cluster[i]
            without = measure_gain(errors[home] - error[i], variances[home] - variance[i], l1, beta).sum()
            gains = measure_gain(errors, variances, l1, beta).sum(axis=1)
            rises = measure_gain(errors + error[i], variances + variance[i], l1, beta).sum(axis=1) - gains
            rises[home] = gains[home] - without
            best = int(rises.argmax())
            if rises[best] > rises[home] + 1e-9 * abs(rises[home]):
                for sums, own in ((errors, error[i]), (variances, variance[i])):
                    sums[home] -= own
                    sums[best] += own
                cluster[i], moved = best, True
        if not moved:
            break
    return cluster


def _add_up(rows: Array, cluster: Array) -> Array:
    """The sums of the rows of each cluster."""
    sums = np.zeros((int(cluster.max(initial=-1)) + 1, rows.shape[1]))
    np.add.at(sums, cluster, rows)
    return sums


def _measure_rises(error: Array, variance: Array, gains: Array, i: int, others: Array, l1: float, beta: float) -> Array:
    """How much the gain rises if cluster ``i`` is merged with each of the others."""
    merged = measure_gain(error[i] + error[others], variance[i] + variance[others], l1, beta).sum(axis=1)
    return np.asarray(merged - gains[i] - gains[others])


def _bring_together(statistics: Statistics) -> tuple[Array, Array, Array]:
    """Errors and variances of at most so many groups of entities, and the group of each entity."""
    n = len(statistics.error)
    if n <= MOST_ENTITIES:
        return statistics.error.copy(), statistics.variance.copy(), np.arange(n)
    from sklearn.cluster import MiniBatchKMeans

    pull = statistics.error / np.sqrt(statistics.variance + 1)
    group = MiniBatchKMeans(MOST_ENTITIES, random_state=0, n_init=1, batch_size=4 * MOST_ENTITIES).fit_predict(pull)
    _, group = np.unique(group, return_inverse=True)
    return _add_up(statistics.error, group), _add_up(statistics.variance, group), group
