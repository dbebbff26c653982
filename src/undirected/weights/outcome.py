"""What solvers return, and what they tell on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from undirected.kernels.types import Array
from undirected.work import Event, StoppedBy


@dataclass
class Outcome:
    """The weights at which a solver ended, with the value and the certificate in double precision, and why it ended."""

    weights: Array
    objective: float
    violation: float
    stopped_by: StoppedBy
    iterations: int


@dataclass(frozen=True)
class SolverStep(Event):
    """A solver has taken a step."""

    iteration: int
    objective: float
    violation: float

    def __str__(self) -> str:
        return f"weights: step {self.iteration}, objective {self.objective:,.2f}, violation {self.violation:.1e}"


class Judge(Protocol):
    """Ends work early that cannot lead to the best setting, or that is close enough to its end to be compared."""

    tol: float
    gap: float  # part of the objective; a solver that can estimate how much is left to gain ends there

    def begin(self, weights: Array) -> None:
        """A setting is about to be solved from these weights."""

    def is_hopeless(self, weights: Array, near: bool) -> bool:
        """Asked every few steps, and when the violation first falls to ``tol``; ``near`` if it is there."""
