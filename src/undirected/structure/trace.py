"""The course of a search: where it stood, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from undirected.work import Event, StoppedBy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """Where a search stood."""

    seconds: float
    score: float
    n_features: int
    n_literals: int
    n_moves: int


@dataclass(frozen=True)
class SearchStep(Event):
    """A search has moved on."""

    point: Point
    n_scored: int

    def __str__(self) -> str:
        at = self.point
        return f"search: {at.n_moves:,} moves, {at.n_features:,} features, score {at.score:,.1f}, {self.n_scored:,} candidates"


@dataclass
class Trace:
    """The course of a search: its points, why it ended (``converged``, ``time`` or ``interrupt``), and candidates scored."""

    points: list[Point] = field(default_factory=list)
    stopped_by: StoppedBy | None = None
    n_scored: int = 0

    def plot(self) -> Figure:
        """Draw the score against time."""
        from undirected.plots import draw_trace

        return draw_trace(self)

    def __str__(self) -> str:
        last = self.points[-1]
        return (
            f"{last.n_moves:,} moves, {self.n_scored:,} candidates scored in {last.seconds:.1f} s ({self.stopped_by or ''}); "
            f"score {last.score:.4f}, {last.n_features:,} features"
        )
