"""One-step mean field contrastive divergence: the objective of the treeRMN paper."""

from __future__ import annotations

import numpy as np

from undirected.kernels.types import Array
from undirected.relational.beliefs import Beliefs
from undirected.relational.field import RelationalField
from undirected.relational.objective import build_design
from undirected.relational.templates import Templates
from undirected.relational.wiring import Wiring


class ContrastiveDivergence:
    """``F(q0) - F(q1)``: how much the free energy falls in one sweep of mean field over all attributes, known ones too, that starts where
    the known ones have their values.

    The slope is that of the paper, ``<f>_q1 - <f>_q0``, which takes q1 as given. It is not exact, so that the certificate of a solver tells
    of a fixed point of these steps and not of a minimum. The sweep is sequential: only then can the free energy not rise.
    """

    def __init__(self, templates: Templates, wiring: Wiring, beliefs: Beliefs, threads: int = 1) -> None:
        self.templates, self.wiring, self.beliefs, self.threads = templates, wiring, beliefs, threads
        self.total_weight = float(max((known.any(axis=1).sum() for known in beliefs.known if known.size), default=1))
        self._share = np.ones(templates.n_weights)  # features of pairs stand at both of their ends
        for family in templates.families:
            if family.kind == "pair":
                self._share[family.offset : family.offset + len(family.rows)] = 0.5
        self._before = self.count_features(beliefs)

    def __len__(self) -> int:
        return self.templates.n_weights

    @property
    def evaluation_cost(self) -> float:
        sizes = zip(self.beliefs.values, self.templates.designs, self.templates.active, strict=True)
        return sum(len(values) * design.width * n for values, design, n in sizes) / 1e9 + 1e-4

    def restrict(self, active: Array | None) -> None:
        """A sweep costs the same for few weights as for all."""

    def count_features(self, beliefs: Beliefs) -> Array:
        """How often each feature is expected to hold."""
        counts = np.zeros(len(self) + 1)
        for k, design in enumerate(self.templates.designs):
            if self.templates.active[k]:
                sums = build_design(self.templates, self.wiring, beliefs, k).astype(float)
                held = sums.T @ beliefs.values[k][:, : self.templates.active[k]]
                counts += np.bincount((design.index + 1).ravel(), weights=(held * design.scale).ravel(), minlength=len(counts))
        return np.asarray(counts[1:] * self._share)

    def sweep(self, weights: Array) -> tuple[float, Beliefs]:
        """How much the free energy falls, and the beliefs after the sweep."""
        field = RelationalField(self.templates, self.wiring, self.beliefs, weights)
        fall = field.fall(field.list_cells([np.ones_like(known) for known in self.beliefs.known]))
        return fall, field.read()

    def evaluate(self, weights: Array, single: bool = False, curvature: bool = False) -> tuple[float, Array, Array | None]:
        fall, after = self.sweep(weights)
        gradient = self.count_features(after) - self._before
        return fall, gradient, np.ones(len(self)) if curvature else None

    def measure_errors(self, weights: Array) -> tuple[list[Array], list[Array]]:
        """For each type, how much the sweep raised each active state, and how much its variance."""
        _, after = self.sweep(weights)
        errors, variances = [], []
        for before, now, n in zip(self.beliefs.values, after.values, self.templates.active, strict=True):
            q0, q1 = before[:, :n], now[:, :n]
            errors.append(q1 - q0)
            variances.append(q1 * (1 - q1) - q0 * (1 - q0))
        return errors, variances
