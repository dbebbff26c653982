"""The end of a tuning: the best structure's promising settings at the full tolerance, and priors between those of the grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from undirected.data.dataset import Dataset
from undirected.structure.trials import Trial, Trials
from undirected.tuning.race import Validation
from undirected.tuning.run import LAST_SHARE, Tuning, measure
from undirected.weights.fit import WeightFit, WeightPath
from undirected.work import StoppedBy

CLOSE_SHARE = 0.005  # settings whose scores differ by less than this share of the best are settled at the full tolerance
REFINEMENTS = 2  # rounds in which sd is moved halfway to its neighbours


@dataclass
class Choice:
    """The setting that won, with its weights."""

    trial: Trial
    fit: WeightFit


def settle(tuning: Tuning, refine: bool = True) -> Choice:
    """Bring the best structure's promising settings to the learner's tolerance, and choose the best of them.

    The trials of the tuning are brought up to date. With ``refine``, then also between the best ``sd`` and its neighbours, twice.
    """
    found, work = tuning.found, tuning.work
    deadline = work.extend(max(tuning.budget - found.seconds, LAST_SHARE * tuning.budget))
    validation = Validation(found.features, tuning.valid, work)
    structural = found.best.structural
    rivals = [k for k, trial in enumerate(found.trials) if trial.structural == structural]
    fits: dict[int, WeightFit] = {}
    while True:
        bar = max(found.trials[k].valid_pll for k in rivals)
        todo = [k for k in rivals if k not in fits and found.trials[k].valid_pll >= bar - CLOSE_SHARE * abs(bar)]
        if not todo:
            break
        penalties = [found.trials[k].penalties for k in todo]
        for k, fit in zip(todo, tuning.solve(found.features, penalties, structural, tuning.learner.tol, deadline.left()), strict=True):
            fits[k], old = fit, found.trials[k]
            new = measure(fit, old.settings, validation, old.structure_seconds)
            found.trials[k] = replace(new, weights_seconds=old.weights_seconds + fit.seconds)
    best = max(fits, key=lambda k: found.trials[k].valid_pll)
    choice = Choice(found.trials[best], fits[best])
    tried = [found.trials[k].settings["sd"] for k in rivals]
    for _ in range(REFINEMENTS if refine and choice.fit.converged else 0):
        penalties = [(choice.fit.l1, sd) for sd in _list_between(choice.fit.sd, tried)]
        start = choice.fit.weights
        for fit in (
            tuning.solve(found.features, penalties, structural, tuning.learner.tol, deadline.left(), start=start) if penalties else []
        ):
            trial = measure(fit, choice.trial.settings, validation, choice.trial.structure_seconds)
            found.trials.append(trial)
            tried.append(fit.sd)
            if _is_clearly_better(fit, choice.fit, tuning.valid, work.threads):
                choice = Choice(trial, fit)
    return choice


def take_best_so_far(tuning: Tuning) -> Choice:
    """After an interruption: the best setting that was weighed, or, if there is none, independent variables."""
    found, learner = tuning.found, tuning.learner
    if found.trials and found.fit is not None:
        penalties = (found.fit.l1, found.fit.sd)
        choice = Choice(max((t for t in found.trials if t.penalties == penalties), key=lambda t: t.valid_pll), found.fit)
    else:
        found.features = tuning.atoms
        fit = WeightPath(found.features, tuning.train, tuning.work.extend().silent()).solve([(learner.l1, learner.sd)], learner.tol)[0]
        choice = Choice(measure(fit, {}, Validation(found.features, tuning.valid, tuning.work), 0.0), fit)
        found.trials.append(choice.trial)
    choice.fit.stopped_by = StoppedBy.INTERRUPT
    return choice


def choose_settings(tuning: Tuning, refine: bool = True) -> tuple[Trials, Choice]:
    """Run a tuning to its end: all trials, and the setting that won. Ctrl-C ends with the best so far."""
    tuning.found = found = tuning.run()
    if not found.interrupted:
        try:
            return found, settle(tuning, refine)
        except KeyboardInterrupt:
            if found.fit is None:  # all of it came from a ledger, where nothing is lost
                raise
            found.complete, found.interrupted = False, True
    return found, take_best_so_far(tuning)


def _is_clearly_better(new: WeightFit, old: WeightFit, valid: Dataset, threads: int) -> bool:
    """By more than two standard errors of the mean difference over the validation rows: chance alone does not leave the grid."""
    counted = valid.weights > 0
    terms = [fit.network().pll_terms(valid, threads)[0][counted] for fit in (new, old)]
    gain, weights = terms[0] - terms[1], valid.weights[counted]
    mean = float(np.average(gain, weights=weights))
    variance = float(np.average((gain - mean) ** 2, weights=weights))
    return bool(mean > 2 * np.sqrt(variance / valid.total_weight))


def _list_between(value: float, grid: list[float]) -> list[float]:
    """Geometric means of a value and its neighbours in the grid; infinity has no place between."""
    below, above = (max((g for g in grid if g < value), default=0.0), min((g for g in grid if g > value), default=np.inf))
    return [float(f"{np.sqrt(value * other):.3g}") for other in (below, above) if 0 < value * other < np.inf]
