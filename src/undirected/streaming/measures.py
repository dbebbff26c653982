"""What a stream learner tells of every chunk, and the means of its scores over all, over the last ones, and fading."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from undirected.work import Milestone

FADING = 0.9  # the weight of a chunk falls to this share with each that follows
LAST = 10  # chunks in the mean over the last ones


@dataclass(frozen=True)
class ChunkLearned(Milestone):
    """A chunk has been learned. ``npll`` and ``pll`` are of its rows under the network before it, NaN for the first chunk."""

    chunk: int
    rows: int
    total_rows: int
    pll: float
    npll: float
    mean_npll: float
    fading_npll: float
    window_npll: float  # the mean of the last ten chunks
    n_features: int
    n_nonzero: int
    added: int
    removed: int
    violation: float
    converged: bool
    seconds: dict[str, float] = field(default_factory=dict)
    drift: str | None = None
    counts: dict[str, int] = field(default_factory=dict)  # of rows that were left out, and of items passed over
    lag: float | None = None
    cmll: float | None = None
    dead: int = 0  # rows of the whole stream that could not be learned

    def __str__(self) -> str:
        score = "first chunk, learned without a score" if math.isnan(self.npll) else f"NPLL {self.npll:.4f} (so far {self.mean_npll:.4f})"
        drift = f"; drift: {self.drift}" if self.drift else ""
        return (
            f"chunk {self.chunk}: {self.rows:,} rows, {score}, {self.n_features:,} features (+{self.added:,} -{self.removed:,}), "
            f"{sum(self.seconds.values()):.2f} s{drift}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON has them: numbers that are not known are null."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["seconds"] = {name: round(seconds, 4) for name, seconds in self.seconds.items()}
        return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}


@dataclass(frozen=True)
class Scores:
    """Prequential scores so far, by row: sums over all rows, the last chunks, and a fading mean."""

    rows: float = 0.0
    total: float = 0.0
    fading: float = math.nan
    last: tuple[float, ...] = ()

    def add(self, npll: float, rows: float) -> Scores:
        """These scores with that of one more chunk."""
        fading = npll if math.isnan(self.fading) else FADING * self.fading + (1 - FADING) * npll
        return Scores(self.rows + rows, self.total + rows * npll, fading, (*self.last, npll)[-LAST:])

    @property
    def mean(self) -> float:
        """The mean over all rows that were scored."""
        return self.total / self.rows if self.rows else math.nan

    @property
    def mean_of_last(self) -> float:
        """The mean over the last chunks."""
        return sum(self.last) / len(self.last) if self.last else math.nan

    def to_list(self) -> list[Any]:
        """The scores as JSON has them."""
        return [self.rows, self.total, None if math.isnan(self.fading) else self.fading, list(self.last)]

    @classmethod
    def from_list(cls, values: list[Any]) -> Scores:
        """Take up what `to_list` gave."""
        rows, total, fading, last = values
        return cls(float(rows), float(total), math.nan if fading is None else float(fading), tuple(map(float, last)))
