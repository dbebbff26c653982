"""What tuning a learner finds, and how a learner that is built on others asks for it.

These types stand below the room `tuning`, which tries the settings, because learners built on others (`DTL1`, `DTBLM`) read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from undirected.features.feature_set import FeatureSet
from undirected.weights.fit import WeightFit
from undirected.work import Work

if TYPE_CHECKING:
    from undirected.structure.learner import Grid, Learner

WEIGHT_SETTINGS = ("l1", "sd")  # of every learner; the other settings are structural


@dataclass(frozen=True)
class Trial:
    """One setting that was tried, and what was measured of it. ``valid_pll`` is the mean pseudo-log-likelihood of the validation rows;
    ``structure_seconds`` were spent on the features, which settings that differ in the weights alone share."""

    settings: dict[str, Any]
    valid_pll: float
    n_features: int
    n_nonzero: int
    mean_length: float
    violation: float
    structure_seconds: float
    weights_seconds: float

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Trial:
        """A trial from the flat form that ledgers keep."""
        measures = {name: row[name] for name in MEASURES}
        return cls({name: value for name, value in row.items() if name not in MEASURES}, **measures)

    def to_row(self) -> dict[str, Any]:
        """Settings and measures side by side, as ledgers, frames and ``--json`` have them."""
        return {**self.settings, **{name: getattr(self, name) for name in MEASURES}}

    @property
    def structural(self) -> dict[str, Any]:
        """The settings that decide the features."""
        return {name: value for name, value in self.settings.items() if name not in WEIGHT_SETTINGS}

    @property
    def penalties(self) -> tuple[float, float]:
        """The settings of the weights: L1 penalty and deviation of the prior."""
        return self.settings["l1"], self.settings["sd"]


MEASURES = tuple(measure.name for measure in fields(Trial) if measure.name != "settings")


@dataclass
class Trials:
    """Every setting tried, and the features of the best. Not ``complete`` if time or Ctrl-C ended the tuning.

    ``learned`` is what was learned beside the best features, by attribute; None if that is not known, as when a finished ledger tells
    the rest. ``fit`` holds the weights of the best setting, as far as they were solved here.
    """

    trials: list[Trial]
    features: FeatureSet
    complete: bool = True
    learned: dict[str, Any] | None = None
    fit: WeightFit | None = field(default=None, repr=False)
    interrupted: bool = False

    def unless_interrupted(self) -> Trials:
        """These trials; raises again the interruption that cut them."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self

    @property
    def best(self) -> Trial:
        """The trial with the best validation score."""
        return max(self.trials, key=lambda trial: trial.valid_pll)

    @property
    def structure_seconds(self) -> float:
        """Seconds of finding the features of all structural settings."""
        return float(sum({tuple(trial.structural.items()): trial.structure_seconds for trial in self.trials}.values()))

    @property
    def weights_seconds(self) -> float:
        """Seconds of learning the weights of all settings."""
        return float(sum(trial.weights_seconds for trial in self.trials))

    @property
    def seconds(self) -> float:
        """Seconds of all the work, whether it was done now or found in a ledger."""
        return self.structure_seconds + self.weights_seconds


class Tuner(Protocol):
    """Tunes the learners that another learner is built on, on the tables of the tuning that goes on."""

    def tune_part(self, learner: Learner, grid: Grid, work: Work) -> Trials:
        """Try every setting of a grid on a learner; raises KeyboardInterrupt where Ctrl-C ends it."""

    def find_checkpoint(self, owner: str) -> Path | None:
        """Where a search with this owner is kept beside the ledger of the tuning, if there is one."""
