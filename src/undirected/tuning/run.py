"""A tuning: every structure of a grid once, weights along warm-started paths, a ledger of what is done."""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sklearn.base import clone

from undirected.data.dataset import Dataset
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.structure.learner import Grid, Learner, describe_params
from undirected.structure.proposal import Proposal
from undirected.structure.trials import Trial, Trials
from undirected.tuning.grids import check_grid
from undirected.tuning.ledger import Ledger
from undirected.tuning.race import CLOSE_ENOUGH, Race, Validation
from undirected.weights.fit import WeightFit, WeightPath
from undirected.work import Milestone, StoppedBy, Work

LOOSEST_TOL = 1e-3  # weights are never learned to less than this while settings are compared
NEAR_END = 10  # times the tolerance: from here on a setting's score is taken for its own
LAST_SHARE = 0.1  # of the time budget, for the weights of a search that used it up, and for the best ones at the end


@dataclass(frozen=True)
class StructureTried(Milestone):
    """The settings of one more structure have been tried."""

    structures: int
    settings: int
    best: Trial

    def __str__(self) -> str:
        return f"{self.structures} structures, {self.settings} settings: best validation PLL {self.best.valid_pll:.6f}"


class Tuning:
    """A tuning of one learner over one grid on two tables. It serves as the `Tuner` of learners that are built on others."""

    def __init__(
        self,
        learner: Learner,
        grid: Grid | str,
        train: Dataset,
        valid: Dataset,
        work: Work,
        ledger: str | os.PathLike[str] | None = None,
        search_tol: float | None = None,
    ) -> None:
        self.learner, self.grid = learner, check_grid(learner, grid)
        self.train, self.valid, self.work = train, valid, work
        valid.require_complete("scoring")
        self.search_tol = search_tol
        self.tol = max(learner.tol, min(LOOSEST_TOL, 1 / train.total_weight) if search_tol is None else search_tol)
        self.budget = work.left()  # in seconds that count work found in a ledger, too
        self.path = None if ledger is None else Path(ledger)
        self.ledger = None if self.path is None else Ledger(self.path, self._describe())
        self.atoms = FeatureSet.atomic(train.domain)
        self.penalties = list(itertools.product(self.grid.get("l1", [learner.l1]), self.grid.get("sd", [learner.sd])))
        self.found = Trials([], self.atoms)
        self._weighed: dict[int, list[Trial]] = {}

    def run(self) -> Trials:
        """Try every setting, with weights at the tolerance of the search. Ctrl-C ends it with what there is."""
        finished = None if self.ledger is None else self.ledger.find_result(self.train.domain)
        if finished is not None:
            return finished
        found = self.found
        try:
            began = self.work.now()
            proposals = self.learner.proposals(self.train, self.valid, self.grid, self.work, self)
            for done, proposal in enumerate(proposals, 1):
                seconds = self.work.now() - began if proposal.seconds is None else proposal.seconds
                found.complete = found.complete and proposal.complete
                left = self._time_left(seconds)
                if proposal.last:  # it used up the time, and may still be the best
                    left = max(left, LAST_SHARE * self.budget)
                elif left <= 0 and found.trials:
                    found.complete = False
                    break
                self._try(proposal, seconds, left)
                self.work.emit(StructureTried(done, len(found.trials), found.best))
                if proposal.last:
                    break
                began = self.work.now()
        except KeyboardInterrupt:
            found.complete, found.interrupted = False, True
        if self.ledger is not None and found.complete:
            self.ledger.finish(found.trials, found.features)
        return found

    def tune_part(self, learner: Learner, grid: Grid, work: Work) -> Trials:
        part = Tuning(learner, grid, self.train, self.valid, work.without_milestones(), self.path, self.search_tol)
        return part.run().unless_interrupted()

    def find_checkpoint(self, owner: str) -> Path | None:
        if self.path is None:
            return None
        folder = self.path.with_suffix(".searches")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{owner}.json"

    def solve(
        self, features: FeatureSet, penalties: list[tuple[float, float]], settings: dict[str, Any], tol: float, left: float, **how: Any
    ) -> list[WeightFit]:
        """The weights of these features, found with some settings, for several penalties within so many seconds; raises KeyboardInterrupt
        on Ctrl-C."""
        path = WeightPath(features, self.train, self.work.extend(left))
        fits = path.solve(penalties, tol, factors=self.find_l1_factors(features, settings), **how)
        if any(fit.stopped_by is StoppedBy.INTERRUPT for fit in fits):
            raise KeyboardInterrupt
        return fits

    def find_l1_factors(self, features: FeatureSet, settings: dict[str, Any]) -> Array | None:
        """What the learner with these settings multiplies the L1 penalty of each feature by."""
        one: Learner = clone(self.learner).set_params(**settings)
        return one.find_l1_factors(features)

    def _time_left(self, seconds: float) -> float:
        """Of the budget, after all trials so far and so many seconds more."""
        return self.budget - self.found.seconds - seconds

    def _try(self, proposal: Proposal, seconds: float, left: float) -> None:
        """Weigh a structure with all penalties, unless a ledger or another setting with the same features has the answer."""
        found, structure = self.found, proposal.structure
        candidates = structure.features.union(self.atoms)
        key = hash((candidates.start.tobytes(), candidates.literals.tobytes()))
        trials = self.ledger.find(proposal.settings) if self.ledger is not None and proposal.complete else None
        fits: list[WeightFit] = []
        if trials is None:
            if key in self._weighed:
                trials = [_repeat(trial, proposal.settings, seconds) for trial in self._weighed[key]]
            else:
                validation = Validation(candidates, self.valid, self.work)
                best = found.best.valid_pll if found.trials else -math.inf
                gap = CLOSE_ENOUGH if self.search_tol is None else 0.0  # a tolerance that was asked for is kept
                race = None if self.search_tol == 0 else Race(validation, best, NEAR_END * self.tol, gap)
                penalties = proposal.penalties or self.penalties
                fits = self.solve(candidates, penalties, proposal.settings, self.tol, left, start=structure.weights, judge=race)
                trials = [measure(fit, proposal.settings, validation, seconds) for fit in fits]
                found.complete = found.complete and all(fit.stopped_by is not StoppedBy.TIME for fit in fits)
            if self.ledger is not None and found.complete:
                self.ledger.add(proposal.settings, trials)
        self._weighed.setdefault(key, trials)
        leader = max(trials, key=lambda trial: trial.valid_pll)
        if not found.trials or leader.valid_pll > found.best.valid_pll:
            found.features, found.learned = candidates, structure.learned
            found.fit = fits[trials.index(leader)] if fits else None
        found.trials += trials

    def _describe(self) -> dict[str, Any]:
        """What the trials depend on."""
        params = describe_params(self.learner, {"time_budget", *self.grid})
        tables = {"train": self.train.digest(), "valid": self.valid.digest()}
        name = type(self.learner).__name__
        return {"learner": name, "params": params, "grid": self.grid, "tol": self.tol, "all": self.search_tol == 0, **tables}


def measure(fit: WeightFit, settings: dict[str, Any], validation: Validation, structure_seconds: float) -> Trial:
    """The trial that weights make: their settings beside the structural ones, and their measures."""
    return Trial(
        {**settings, "l1": fit.l1, "sd": fit.sd},
        validation.pll(fit.weights),
        len(fit.features),
        fit.n_nonzero,
        float(fit.features.lengths.mean()),
        fit.violation,
        structure_seconds,
        fit.seconds,
    )


def _repeat(trial: Trial, settings: dict[str, Any], structure_seconds: float) -> Trial:
    """The trial of another structural setting that has led to the same features."""
    return replace(trial, settings={**trial.settings, **settings}, structure_seconds=structure_seconds, weights_seconds=0.0)
