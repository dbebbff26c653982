"""Weights of clauses: the weighted pseudo-likelihood of a Markov logic network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from undirected.kernels.types import Array
from undirected.relational.clauses import Clause, GroundAtoms
from undirected.relational.data import RelationalData
from undirected.relational.measures import CLIP
from undirected.work import Work

UNIT_SD = 3.0  # of the weights of unit clauses, at least
Differences = dict[int, Array]  # of a clause: see `GroundAtoms.count_differences`


class WeightedPseudoLikelihood:
    """The log-probability of each known attribute given everything else, summed, and weights for a growing list of clauses.

    With ``weighting="predicate"`` each attribute counts the same, however many entities it is known of; with ``"atom"`` each of these does.
    ``marks[t]`` tells which attributes of which entities of type ``t`` are learned from; ``data`` must know these. The atoms' beliefs are
    fixed, so that this is concave in the weights.
    """

    def __init__(self, atoms: GroundAtoms, data: RelationalData, marks: Sequence[Array], weighting: str = "atom") -> None:
        self.atoms, self.clauses, self.known = atoms, list[Clause](), set[Clause]()
        self.holds: list[Array] = []  # predicates by entities
        self.shares: list[Array] = []  # how much each atom counts
        self.groups: list[list[tuple[slice, bool]]] = []  # predicates of one attribute with many states, or of many with two
        mean = sum(mark.sum() for mark in marks) / max(1, sum(int(mark.any(axis=0).sum()) for mark in marks))
        for number, (table, marked) in enumerate(zip(data.tables, marks, strict=True)):
            predicates = [p for _, p in atoms.list_predicates(number)]
            holds, shares = np.zeros((len(predicates), len(table))), np.zeros((len(predicates), len(table)))
            groups: list[tuple[slice, bool]] = []
            for k, predicate in enumerate(predicates):
                holds[k] = table.cells.codes[:, predicate.attribute] == predicate.state
                times = mean / max(1, marked[:, predicate.attribute].sum()) if weighting == "predicate" else 1.0
                shares[k] = times * marked[:, predicate.attribute]
                binary = predicate.constant is None
                if groups and groups[-1][1] == binary and (binary or predicates[k - 1].attribute == predicate.attribute):
                    groups[-1] = slice(groups[-1][0].start, k + 1), binary
                else:
                    groups.append((slice(k, k + 1), binary))
            self.holds.append(holds)
            self.shares.append(shares)
            self.groups.append(groups)
        self.numbers: list[list[int]] = [[] for _ in atoms.vocabulary.predicates]
        self.columns: list[list[Array]] = [[] for _ in atoms.vocabulary.predicates]
        self._matrices: dict[int, Array] = {}

    def add(self, clause: Clause, differences: Differences) -> None:
        """Give a clause a weight."""
        for k, column in differences.items():
            self.numbers[k].append(len(self.clauses))
            self.columns[k].append(column)
        self.clauses.append(clause)
        self.known.add(clause)

    def cut(self, n: int) -> None:
        """Keep only the first ``n`` clauses."""
        self.clauses = self.clauses[:n]
        self.known = set(self.clauses)
        for numbers, columns in zip(self.numbers, self.columns, strict=True):
            kept = sum(number < n for number in numbers)
            del numbers[kept:], columns[kept:]

    def find_logits(self, weights: Array) -> list[Array]:
        """For each type, predicates by entities: the weighted count differences."""
        return [
            np.stack([weights[self.numbers[k]] @ self._stack(k) for k in self._list(t)]) if len(holds) else holds
            for t, holds in enumerate(self.holds)
        ]

    def find_chances(self, weights: Array) -> list[Array]:
        """How probable each atom is: for each type, predicates by entities."""
        return self._squash(self.find_logits(weights))

    def _squash(self, logits: Sequence[Array]) -> list[Array]:
        chances = []
        for groups, own in zip(self.groups, logits, strict=True):
            out = np.empty_like(own)
            for span, binary in groups:
                out[span] = expit(own[span]) if binary else softmax(own[span], axis=0)
            chances.append(out)
        return chances

    def evaluate(self, weights: Array, sd: Array | float) -> tuple[float, Array]:
        """Minus the weighted pseudo-log-likelihood with its prior, and the slope."""
        logits = self.find_logits(weights)
        value = 0.5 * float(np.square(weights / sd).sum())
        slope = weights / sd**2
        for t, (own, holds, shares) in enumerate(zip(logits, self.holds, self.shares, strict=True)):
            for span, binary in self.groups[t]:
                if binary:
                    value += float((shares[span] * (np.logaddexp(0, own[span]) - holds[span] * own[span])).sum())
                else:
                    value -= float((shares[span] * holds[span] * log_softmax(own[span], axis=0)).sum())
        for t, chances in enumerate(self._squash(logits)):
            error = self.shares[t] * (chances - self.holds[t])
            for k, own in zip(self._list(t), error, strict=True):
                if self.numbers[k]:
                    slope[self.numbers[k]] += self._stack(k) @ own
        return value, slope

    def find_prior(self, sd: float) -> Array:
        """The standard deviation of each weight's prior: ``sd``, and for unit clauses at least 3."""
        return np.array([sd if len(clause) > 1 else max(sd, UNIT_SD) for clause in self.clauses])

    def fit(self, weights: Array, sd: float, steps: int, work: Work) -> Array:
        """Better weights, by L-BFGS; each is scaled by its curvature at the start."""
        spread = self.find_prior(sd)
        start = np.zeros(len(self.clauses))
        start[: len(weights)] = weights
        if not self.clauses:
            return start
        scale = 1 / np.sqrt(self._find_curvature(start) + 1 / spread**2)

        def evaluate(scaled: Array) -> tuple[float, Array]:
            value, slope = self.evaluate(scaled * scale, spread)
            return value, slope * scale

        def look(_: Array) -> None:
            if work.is_over:
                raise StopIteration

        options = {"maxiter": steps, "maxcor": 20, "gtol": 1e-6, "ftol": 1e-9}
        found = minimize(evaluate, start / scale, jac=True, method="L-BFGS-B", callback=look, options=options)
        return np.asarray(found.x * scale)

    def list_scores(self, chances: Sequence[Array], marks: Sequence[Array]) -> Array:
        """The log-probability of each marked attribute."""
        scores = [np.zeros(0)]
        for t, own in enumerate(chances):
            for place, (_, predicate) in enumerate(self.atoms.list_predicates(t)):
                marked = marks[t][:, predicate.attribute]
                holds, chance = self.holds[t][place][marked] > 0, np.clip(own[place][marked], CLIP, 1 - CLIP)
                scores.append(np.log(np.where(holds, chance, 1 - chance)) if predicate.constant is None else np.log(chance[holds]))
        return np.concatenate(scores)

    def _find_curvature(self, weights: Array) -> Array:
        curvature = np.zeros(len(self.clauses))
        for t, chances in enumerate(self.find_chances(weights)):
            for place, k in enumerate(self._list(t)):
                if self.numbers[k]:
                    spread = self.shares[t][place] * chances[place] * (1 - chances[place])
                    np.add.at(curvature, self.numbers[k], np.square(self._stack(k)) @ spread)
        return curvature

    def _list(self, table: int) -> range:
        span = self.atoms.vocabulary.slices[table]
        return range(span.start, span.stop)

    def _stack(self, predicate: int) -> Array:
        """The differences of all clauses with a predicate: clauses by entities."""
        columns, matrix = self.columns[predicate], self._matrices.get(predicate)
        if matrix is None or len(matrix) != len(columns):
            table = self.atoms.vocabulary.predicates[predicate].table
            matrix = np.stack(columns).astype(float, copy=False) if columns else np.zeros((0, self.holds[table].shape[1]))
            self._matrices[predicate] = matrix
            self.columns[predicate] = list(matrix)  # views, so that nothing is kept twice
        return matrix
