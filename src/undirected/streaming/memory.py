"""How the weights of a stream remember the rows of earlier chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import ParameterError, check_number
from undirected.kernels.types import Array
from undirected.streaming.packing import Arrays, check_array
from undirected.streaming.widening import widen_data
from undirected.weights.objective import Objective
from undirected.weights.penalty import Penalty

REMEMBER = ("curvature", "window", "none")
TRUST = 0.5  # of a chunk's stiffness that is kept: it was measured where weights were not yet what more rows make of them
POOLING = 10.0  # features of average movement that all features together count for in the stiffness of one
LEAST_STIFF, MOST_STIFF = 0.25, 8.0  # times the diagonal, of what is kept
FORGET = 0.1  # of the precision is left where drift makes weights forget


def find_stiffness(moved: Array, change: Array, curvature: Array) -> Array:
    """How much faster the gradient changed along the way of the weights than the diagonal of the Hessian says, for each weight."""
    seen, expected = moved * change, moved * curvature * moved
    if not expected.sum() > 0:
        return np.ones(len(moved))
    pooled = POOLING * expected.mean()
    return np.asarray((seen + pooled * (seen.sum() / expected.sum())) / (expected + pooled))


class Memory:
    """What the chunks so far say of the weights.

    ``curvature``: each chunk's objective stays as a quadratic, with its gradient and the diagonal of its Hessian where the weights came to
    rest. All of them together are one quadratic for each weight, of a ``centre`` and a ``precision``, so that memory does not grow. Where
    features overlap, a diagonal is too soft along the way that weights move together; so it is scaled by how stiff the objective was along
    the way that the weights went with this chunk: for each weight by itself, drawn towards that of all.
    ``window``: the rows of the last chunks are kept. ``none``: nothing is, as in the paper.
    """

    def __init__(self, remember: str = "curvature", decay: float = 1.0, window: int = 10) -> None:
        if remember not in REMEMBER:
            raise ParameterError(f"remember={remember!r} is not known; choose one of {', '.join(REMEMBER)}")
        check_number("decay", decay, 0, 1)
        check_number("window", window, 1, whole=True)
        self.remember, self.decay, self.window = remember, float(decay), int(window)
        self.centre: Array = np.zeros(0)
        self.precision: Array = np.zeros(0)
        self.kept: list[Dataset] = []  # rows of the chunks before, the oldest first

    def choose_rows(self, chunk: Dataset) -> Dataset:
        """The rows that the weights are fitted to."""
        return Dataset.merge([*self.kept, chunk]) if self.kept else chunk

    def make_penalty(self, l1: float, sd: float) -> Penalty:
        """The penalty of the weights: that of the settings, and what earlier chunks say."""
        plain = Penalty.from_prior(l1, sd)
        if not self.precision.any():
            return plain
        ridge = self.precision + plain.ridge
        return Penalty(l1, ridge, self.precision * self.centre / np.where(ridge > 0, ridge, 1.0))

    def add_chunk(self, objective: Objective, before: Array, weights: Array, chunk: Dataset) -> None:
        """Remember a chunk with which the weights went from what they were ``before`` to what they are."""
        if self.remember == "window":
            self.kept = [*self.kept, chunk.distinct][-(self.window - 1) :] if self.window > 1 else []
        if self.remember != "curvature":
            return
        _, gradient, curvature = objective.evaluate(weights, False, True)
        assert curvature is not None
        moved = weights - before
        stiff = find_stiffness(moved, gradient - objective.evaluate(before)[1], curvature)
        past, now = self.decay * self.precision, np.clip(TRUST * stiff, LEAST_STIFF, MOST_STIFF) * curvature
        pull = past * self.centre + now * weights - gradient
        self.precision = past + now
        self.centre = np.where(self.precision > 0, pull / np.maximum(self.precision, 1e-300), 0.0)

    def forget(self) -> None:
        """Let the next chunk count for much more than those before."""
        self.precision = FORGET * self.precision
        self.kept = self.kept[-1:]

    def clear(self) -> None:
        """Forget everything."""
        self.precision, self.centre, self.kept = 0 * self.precision, 0 * self.centre, []

    def align(self, order: Array, new_precision: Array) -> None:
        """Follow the features: new ones come behind those there are, held to a weight of zero by such a precision, and of all these stay
        those of ``order``."""
        if self.remember != "curvature":
            new_precision = 0 * new_precision
        self.precision = np.concatenate([self.precision, new_precision])[order]
        self.centre = np.concatenate([self.centre, np.zeros(len(new_precision))])[order]

    def widen(self, domain: Domain) -> None:
        """Follow the domain to more states."""
        self.kept = [widen_data(data, domain) for data in self.kept]

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """What is remembered, for a checkpoint."""
        arrays: Arrays = {"centre": self.centre, "precision": self.precision}
        for k, data in enumerate(self.kept):
            arrays |= {f"codes{k}": data.codes, f"weights{k}": data.weights}
        return {"kept": len(self.kept)}, arrays

    def unpack(self, tree: dict[str, Any], arrays: Arrays, domain: Domain) -> None:
        """Take up what `pack` gave."""
        n = len(arrays["centre"])
        check_array(arrays, "centre", "f", n)
        check_array(arrays, "precision", "f", n, least=0)
        used = self.remember == "curvature"  # another way of remembering begins with nothing
        self.centre, self.precision = (arrays[name] if used else np.zeros(n) for name in ("centre", "precision"))
        kept = range(int(tree["kept"])) if self.remember == "window" else ()
        self.kept = [Dataset(domain, arrays[f"codes{k}"], arrays[f"weights{k}"]).distinct for k in kept][-(self.window - 1) :]
        for data in self.kept:
            data.require_complete("remembering a chunk")
