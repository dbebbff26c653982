"""A network and evidence, ready for the engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import ImpossibleEvidence, ParameterError
from undirected.inference.evidence import Evidence, Given, read_evidence
from undirected.kernels import backend, default_threads
from undirected.kernels.types import Array
from undirected.network.network import MEMORY

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

IMPOSSIBLE = "no state meets the evidence and all features of infinite weight; drop part of the evidence"
CELL_BYTES = 16  # a table cell, and its part in messages and scratch
TRIES = 6  # elimination orders looked at
CELLS_PER_SECOND = 2e7  # of elimination, roughly
EXACT_SECONDS = 2.0  # what exact work may take before sampling is preferred
HARD = 1e4  # an infinite weight counts as more than this and all finite ones together


@dataclass
class Parts:
    """The components that evidence leaves: which one each variable is in (-1: its state is known), and what summing it out costs."""

    of: Array
    cells: Array
    largest: Array
    width: Array
    solvable: Array

    def told(self) -> str:
        """The cost in words, as part of a sentence."""
        if not len(self.cells):
            return "every state is known"
        k = int(np.argmax(self.cells))
        n = len(self.cells)
        size = f"{int(self.width[k]) + 1} variables and {counted(self.largest[k])} cells"
        return f"{n} separate part{'s' if n > 1 else ''}, the largest clique of {size}"


def counted(n: float) -> str:
    """A number of cells, in words' length."""
    return f"{n:,.0f}" if n < 1e9 else f"{n:.0e}"


class Problem:
    """The kernels' model of a network under evidence.

    Infinite weights become weights larger than all others together, so that a state which breaks one is told apart from
    every state that breaks none; ``constant`` takes out what they add to log-probabilities.
    """

    def __init__(
        self, network: MarkovNetwork, evidence: Evidence | Given = None, memory: int = MEMORY, threads: int | None = None, seed: int = 0
    ) -> None:
        self.network, self.domain = network, network.domain
        if seed < 0:
            raise ParameterError(f"seed={seed}: zero or more")
        self.given = read_evidence(network.domain, evidence)
        self.max_cells = memory / CELL_BYTES
        self.memory, self.threads, self.seed = memory, threads or default_threads(), seed
        features, weights = network.features, network.weights
        infinite = np.isinf(weights)
        soft = float(np.abs(list(self.given.likelihood.values())).sum()) if self.given.likelihood else 0.0
        total = HARD + 4 * (float(np.abs(weights[~infinite]).sum()) + soft)
        self.hard = float(2 ** np.ceil(np.log2(total))) if infinite.any() else np.inf  # a power of two loses nothing in single precision
        weights = np.where(infinite, np.sign(weights) * self.hard, weights) if infinite.any() else weights
        self.constant = -self.hard * int((network.weights == np.inf).sum()) if infinite.any() else 0.0
        start, literals = features.start, features.literals
        if self.given.likelihood:
            extra = np.array(list(self.given.likelihood), dtype=np.int32)
            start = np.concatenate([start, start[-1] + np.arange(1, len(extra) + 1)])
            literals = np.concatenate([literals, extra])
            weights = np.concatenate([weights, list(self.given.likelihood.values())])
        self.model: Any = backend().module.Model(
            self.domain.n_states, np.ascontiguousarray(start), np.ascontiguousarray(literals), np.ascontiguousarray(weights, dtype=float)
        )

    @property
    def evidence(self) -> Array:
        """Marks of the allowed states, as one row."""
        return np.ascontiguousarray(self.given.allowed[None, :], dtype=np.uint8)

    def cheap_cells(self, seconds: float = EXACT_SECONDS) -> float:
        """Table cells that fit into memory and are worked within so many seconds, roughly."""
        return min(self.max_cells, CELLS_PER_SECOND * min(EXACT_SECONDS, seconds))

    def parts(self, max_cells: float | None = None) -> Parts:
        limit = self.max_cells if max_cells is None else max_cells
        return Parts(*self.model.components(self.evidence, limit, TRIES, self.seed))

    def require_exact(self, what: str) -> Parts:
        """The parts, or an error that tells how much memory exact work would take."""
        parts = self.parts()
        if len(parts.cells) and not parts.solvable.all():
            worst = float(parts.cells[~parts.solvable.astype(bool)].max()) * CELL_BYTES
            raise ParameterError(
                f"{what} would need more than {worst / 2**30:,.1f} GiB for its tables (memory is {self.memory / 2**30:.3g} GiB); "
                "give more evidence, more memory, or choose a sampling method such as gibbs"
            )
        return parts

    def check_feasible(self, max_cells: float = 1 << 20) -> None:
        """Raises if no state meets the evidence and all infinite weights, as far as that can be told cheaply."""
        if np.isfinite(self.hard):
            states, _ = self.model.maximise(self.evidence, min(max_cells, self.max_cells), 2, self.seed, 1)
            if self._breaks(np.asarray(states[0])):
                raise ImpossibleEvidence(IMPOSSIBLE)

    def _breaks(self, states: Array) -> bool:
        """Whether a feature of infinite weight is broken, whatever the variables that are not known (-1) may be. Best states break one
        only if they have to."""
        network, domain = self.network, self.domain
        hard = np.isinf(network.weights) & (network.features.lengths > 0)
        if not hard.any():
            return False
        features = network.features.subset(hard)
        literal = features.literals % domain.n_literals
        variable = domain.literal_variable[literal]
        known = states[variable] >= 0
        holds = (states[variable] == literal - domain.base[variable]) == (features.literals < domain.n_literals)
        false = np.logical_or.reduceat(known & ~holds, features.start[:-1])
        true = np.logical_and.reduceat(known & holds, features.start[:-1])
        return bool(np.where(network.weights[hard] > 0, false, true).any())

    def check_possible(self, log_z: float) -> None:
        """Raises if no state meets the evidence and all infinite weights."""
        if np.isfinite(self.hard) and log_z < -self.hard / 2:
            raise ImpossibleEvidence(IMPOSSIBLE)

    def under(self, allowed: Array, seed: int | None = None) -> Problem:
        """The same network under other evidence; likelihoods stay."""
        other = object.__new__(Problem)
        other.__dict__.update(self.__dict__)
        other.given = Given(allowed, self.given.likelihood)
        other.seed = self.seed if seed is None else seed
        return other

    def frozen(self, variables: Array) -> Problem:
        """The same with some variables (of parts that need no sampling) fixed: at a best state where there are infinite weights to
        keep, at their first allowed one otherwise."""
        allowed = self.given.allowed.copy()
        best = np.full(len(self.domain), -1)
        if np.isfinite(self.hard) and len(variables):
            best = np.asarray(self.model.maximise(self.evidence, self.max_cells, 2, self.seed, 1)[0][0])
        for v in variables:
            mine = slice(int(self.domain.base[v]), int(self.domain.base[v + 1]))
            first = int(best[v]) if best[v] >= 0 else int(np.argmax(allowed[mine]))
            allowed[mine] = 0
            allowed[mine.start + first] = 1
        return self.under(allowed)

    def open_variables(self) -> Array:
        """Variables with more than one state left."""
        left = np.add.reduceat(self.given.allowed.astype(np.int64), self.domain.base[:-1]) if len(self.domain) else np.zeros(0)
        return np.flatnonzero(left > 1)

    def random_states(self, n: int, rng: np.random.Generator) -> Array:
        """States drawn evenly among the allowed ones: ``[n][variables]``."""
        out = np.empty((n, len(self.domain)), dtype=np.int16)
        for v in range(len(self.domain)):
            states = np.flatnonzero(self.given.allowed[self.domain.base[v] : self.domain.base[v + 1]])
            out[:, v] = states[0] if len(states) == 1 else rng.choice(states, n)
        return out

    def fitted(self, codes: Array, rng: np.random.Generator) -> Array:
        """Rows of data with every cell that contradicts the evidence, or is missing, drawn anew."""
        out = codes.astype(np.int16)
        fresh = self.random_states(len(out), rng)
        rows = np.arange(len(out))
        for v in range(len(self.domain)):
            column = out[:, v]
            bad = (column < 0) | (self.given.allowed[self.domain.base[v] + np.maximum(column, 0)] == 0)
            out[rows[bad], v] = fresh[bad, v]
        return out
