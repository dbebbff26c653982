"""What the engines ask of the kernels; the native module and the NumPy one both answer to it."""

from __future__ import annotations

from typing import Protocol

from undirected.kernels.types import Array

Approximation = tuple[Array, float, float, int, bool]  # marginals, log Z, last change, updates, whether it came to rest


class Elimination(Protocol):
    """What one row of evidence leaves of a model, with the plan by which its variables are summed out.

    Parts of more than ``max_cells`` table cells are left out of an answer: NaN or -1 stands in their place.
    """

    def parts(self) -> tuple[Array, Array, Array, Array, Array]: ...

    def solve(self, max_cells: float) -> tuple[Array, float]: ...

    def maximise(self, max_cells: float) -> tuple[Array, float]: ...

    def draw(self, n: int, max_cells: float, seed: int, threads: int) -> Array: ...

    def expectations(self, max_cells: float) -> Array: ...


class Model(Protocol):
    """Weighted conjunctions over variables. Evidence comes in rows of marks, one a literal: which states are allowed."""

    def solve(self, evidence: Array, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Array, Array]: ...

    def maximise(self, evidence: Array, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Array, Array]: ...

    def propagate(
        self, evidence: Array, maximum: bool, reweighted: bool, damping: float, tol: float, max_rounds: int, seed: int
    ) -> Approximation: ...

    def mean_field(self, evidence: Array, tol: float, max_rounds: int, tries: int, seed: int) -> Approximation: ...

    def mcsat(
        self, evidence: Array, chains: int, burn_in: int, samples: int, hard: float, seed: int, threads: int, first: Array | None = None
    ) -> tuple[Array, Array, Array, Array]: ...


class Sampler(Protocol):
    """Many Gibbs chains that run side by side."""

    def run(
        self, n_sweeps: int, beta: Array | None, reference: Array | None, collect: bool, anneal: bool, greedy: bool, threads: int
    ) -> None: ...

    def scores(self, threads: int) -> Array: ...

    def states(self) -> Array: ...

    def sums(self) -> Array: ...

    def squares(self) -> Array: ...

    def log_weights(self) -> Array: ...

    def reset(self) -> None: ...
