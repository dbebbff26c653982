"""A network and evidence, ready for the engines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import ImpossibleEvidence, NothingFound, ParameterError, check_work
from undirected.inference.evidence import Evidence, Given, read_evidence
from undirected.inference.feasible import IMPOSSIBLE, Rules
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import MEMORY, count_cores

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

CELL_BYTES = 16  # a table cell, and its part in messages and scratch
TRIES = 6  # elimination orders looked at
CELLS_PER_SECOND = 2e7  # of elimination, roughly
EXACT_SECONDS = 10.0  # what exact work may take, where nothing else is said, before sampling is preferred
SEARCH_SECONDS = 10.0  # for an assignment that keeps all infinite weights


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
        check_work(threads, memory, None, seed)
        self.given = read_evidence(network.domain, evidence)
        self.asked = self.given.allowed  # before the rules have narrowed it
        self.max_cells = memory / CELL_BYTES
        self.memory, self.threads, self.seed = memory, threads or count_cores(), seed
        features = network.features
        soft = float(np.abs(list(self.given.likelihood.values())).sum()) if self.given.likelihood else 0.0
        weights, self.hard = network.stand_in_weights(soft)
        self.constant = -self.hard * int((network.weights == np.inf).sum()) if np.isfinite(self.hard) else 0.0
        self._assignment: Array | None = None
        self.rules = Rules(network, self.given.allowed) if np.isfinite(self.hard) else None
        if self.rules is not None:
            if not self.rules.possible:
                raise ImpossibleEvidence(IMPOSSIBLE)
            self.given = Given(self.rules.marks(), self.given.likelihood)
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
        return min(self.max_cells, CELLS_PER_SECOND * seconds)

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

    def assignment(self, hint: Array | None = None, seconds: float = SEARCH_SECONDS) -> Array:
        """Some assignment that meets the evidence and all infinite weights, remembered; raises `NothingFound` where none was found in time,
        and `ImpossibleEvidence` where there is none."""
        if self._assignment is None:
            rng = np.random.default_rng(self.seed)
            if self.rules is None:
                self._assignment = self.random_states(1, rng)[0]
            else:
                self._assignment = Rules(self.network, self.given.allowed).search(seconds, rng, hint)
        if self._assignment is None:
            raise NothingFound(
                f"no assignment that meets the evidence and all features of infinite weight was found in {seconds:g} s, which does not "
                "prove that there is none; allow more memory for exact work, or give more evidence"
            )
        return self._assignment

    def other_assignments(self, n: int, rng: np.random.Generator, seconds: float) -> Array:
        """Up to so many assignments that keep all rules, found from random choices; those that a time limit allows."""
        found = [self.assignment()]
        rules = None if self.rules is None else Rules(self.network, self.given.allowed)
        began = time.monotonic()
        while rules is not None and len(found) < n and time.monotonic() - began < seconds:
            one = rules.search(seconds, rng, self.random_states(1, rng)[0])
            if one is None:
                break
            found.append(one)
        return np.stack(found)

    def keeps_rules(self, states: Array) -> Array:
        """For each row of states, whether it breaks no feature of infinite weight."""
        return np.array([not self._breaks(row) for row in states], dtype=bool)

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
        other._assignment = None
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
        return self._open(self.given.allowed)

    def asked_variables(self) -> Array:
        """Variables that the evidence leaves open, even where the rules then decide them."""
        return self._open(self.asked)

    def _open(self, allowed: Array) -> Array:
        left = np.add.reduceat(allowed.astype(np.int64), self.domain.base[:-1]) if len(self.domain) else np.zeros(0)
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
