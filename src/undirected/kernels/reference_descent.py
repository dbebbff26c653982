"""Coordinate descent for the pseudo-likelihood, in NumPy and double precision: the truth for the native sweeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from undirected.kernels.types import Array

if TYPE_CHECKING:
    from undirected.kernels.reference import PseudoLikelihoodTables

LONGEST_STEP = 8.0
WORKERS, WINDOW = 8, 96


class Descent:
    """The probabilities of every state in every row, kept up to date while features are visited one after another.

    Directions are steps of all weights at once; the image of a direction is what it adds to the scores of the states.
    """

    def __init__(self, tables: PseudoLikelihoodTables, threads: int, watch: Callable[[], None] | None = None) -> None:
        self.base, self.truth, self.row_weight = tables.base, tables.truth, tables.row_weight
        self.matrix = tables.matrix
        columns = tables.matrix.tocsc()
        variable = np.repeat(np.arange(len(self.base) - 1), np.diff(self.base))
        # For each feature and variable: the states that the feature allows, and the rows of its context.
        self.parts: list[list[tuple[int, Array, Array]]] = []
        for j in range(columns.shape[1]):
            literal, row = np.divmod(columns.indices[columns.indptr[j] : columns.indptr[j + 1]], self.truth.shape[1])
            mine = []
            for v in np.unique(variable[literal]):
                own = variable[literal] == v
                states = np.unique(literal[own])
                if len(states) < self.base[v + 1] - self.base[v]:
                    mine.append((int(v), states, np.unique(row[own])))
            self.parts.append(mine)
        self.scores = np.zeros(self.truth.shape)
        self.kept = self.scores.copy()
        self.images: dict[int, Array] = {}
        self.log_p = self._normalise(self.scores)

    def _normalise(self, scores: Array) -> Array:
        out = scores.copy()
        for a, b in zip(self.base[:-1], self.base[1:], strict=True):
            out[a:b] -= out[a:b].max(axis=0)
            out[a:b] -= np.log(np.exp(out[a:b]).sum(axis=0))
        return out

    def costs(self) -> Array:
        """How many rows a visit to each feature goes through."""
        return np.array([sum(len(rows) for _, _, rows in parts) for parts in self.parts], dtype=np.int64)

    def set_weights(self, weights: Array, threads: int) -> None:
        """The state from weights."""
        self.scores = self._image(weights)
        self.kept = self.scores.copy()
        self.log_p = self._normalise(self.scores)

    def _image(self, steps: Array) -> Array:
        return np.asarray((self.matrix @ steps).reshape(self.truth.shape))

    def spread_out(self, order: Array) -> Array:
        """The features in an order in which those that are near to each other have no variable in common, as far as possible."""
        term = np.cumsum(np.diff(self.base) > 1) - 1
        marks = {int(j): sum(1 << int(t) for t in {term[v] % 64 for v, _, _ in self.parts[j]}) for j in order}
        window, waiting = [int(j) for j in order[:WINDOW]], iter(int(j) for j in order[WINDOW:])
        out: list[int] = []
        start = 0
        while window:
            busy = 0
            for j in out[-(WORKERS - 1) :]:
                busy |= marks[j]
            places = [(start + k) % len(window) for k in range(len(window))]
            chosen = next((k for k in places if not marks[window[k]] & busy), places[0])
            out.append(window[chosen])
            start = chosen + 1
            following = next(waiting, None)
            if following is None:
                del window[chosen]
            else:
                window[chosen] = following
        return np.array(out, dtype=np.int32)

    def sweep(
        self, order: Array, l1: Array, ridge: Array, centre: Array, weights: Array, curvature: Array, slope: Array, gain: Array,
        refresh: bool, least_gain: float, least_slope: float, threads: int,
    ) -> None:  # fmt: skip
        """Visit features in this order: write their slopes and gains, and take the steps that are worth it.

        Steps that gain less than ``least_gain`` with a slope below ``least_slope`` are not taken.
        """
        least = 1e-9 * self.row_weight.sum()
        for j in order:
            first, second = 0.0, 0.0
            for _, states, rows in self.parts[j]:
                q = np.exp(self.log_p[np.ix_(states, rows)]).sum(axis=0)
                first += float(self.row_weight[rows] @ (q - self.truth[np.ix_(states, rows)].sum(axis=0)))
                second += float(self.row_weight[rows] @ (q * (1 - q)))
            if refresh:
                curvature[j] = second
            first += ridge[j] * (weights[j] - centre[j])
            first, step = find_step(weights[j], first, max(curvature[j] + ridge[j], least), l1[j])
            slope[j], gain[j] = first, 0.5 * abs(first * step)
            if step == 0 or (gain[j] < least_gain and abs(first) < least_slope):
                continue
            weights[j] += step
            for v, states, rows in self.parts[j]:
                self.scores[np.ix_(states, rows)] += step
                a, b = self.base[v : v + 2]
                own = self.scores[a:b]
                self.log_p[a:b] = own - own.max(axis=0) - np.log(np.exp(own - own.max(axis=0)).sum(axis=0))

    def keep_image(self, direction: int, threads: int) -> None:
        """Keep the change of the scores since the last call as the image of a direction."""
        self.images[direction] = self.scores - self.kept
        self.kept = self.scores.copy()

    def set_image(self, direction: int, steps: Array, threads: int) -> None:
        """The image of a direction from the steps of weights that it stands for."""
        self.images[direction] = self._image(steps)

    def correct_image(self, direction: int, steps: Array, threads: int) -> None:
        """Take these steps of weights out of the image of a direction."""
        self.images[direction] = self.images[direction] - self._image(steps)

    def measure(self, amounts: Array, threads: int) -> tuple[float, Array, Array]:
        """The loss at amounts of the first directions, with its gradient and its Hessian by the amounts."""
        n = len(amounts)
        images = np.array([self.images[k] for k in range(n)]).reshape(n, *self.truth.shape)
        log_p = self._normalise(self.kept + np.tensordot(amounts, images, axes=1))
        p = np.exp(log_p)
        value = -float((log_p * self.truth).sum(axis=0) @ self.row_weight)
        first = np.einsum("sr,ksr,r->k", p - self.truth, images, self.row_weight)
        second = np.einsum("sr,ksr,lsr,r->kl", p, images, images, self.row_weight)
        for a, b in zip(self.base[:-1], self.base[1:], strict=True):
            mean = np.einsum("sr,ksr->kr", p[a:b], images[:, a:b])
            second -= np.einsum("kr,lr,r->kl", mean, mean, self.row_weight)
        return value, first, second

    def move(self, amounts: Array, direction: int, steps: Array, threads: int) -> None:
        """Move the state along the directions and by further steps of weights; the move is added to the image of one direction."""
        change = np.tensordot(amounts, np.array([self.images[k] for k in range(len(amounts))]), axes=1) + self._image(steps)
        self.scores = self.kept + change
        self.kept = self.scores.copy()
        self.images[direction] = self.images[direction] + change
        self.log_p = self._normalise(self.scores)


def find_step(weight: float, smooth: float, curvature: float, l1: float) -> tuple[float, float]:
    """The smallest subgradient of a weight, and the step that it should take.

    The curvature of a logistic loss grows by at most a factor exp(|step|), so that the step never goes too far. Under L1 it stops at zero,
    or goes on where the other side pays, too.
    """
    slope = smooth + l1 * np.sign(weight) if weight else np.sign(smooth) * max(abs(smooth) - l1, 0.0)
    if slope == 0:
        return 0.0, 0.0

    def reach(s: float) -> float:
        return -float(np.sign(s)) * min(LONGEST_STEP, float(np.log1p(abs(s) / curvature)))

    step = reach(slope)
    if l1 == 0 or weight == 0 or weight * (weight + step) > 0:
        return float(slope), step
    beyond = smooth - l1 * np.sign(weight)
    further = reach(beyond) if beyond * weight > 0 else 0.0
    return float(slope), further if abs(further) > abs(weight) else -weight
