"""A sentence on methods, for a paper."""

from __future__ import annotations

import platform
from importlib.metadata import version

import numpy as np

from undirected.data.dataset import Dataset
from undirected.structure.auto import Auto
from undirected.structure.learner import Learner

LIMITS = ("threads", "memory", "time_budget", "progress", "domain", "tol", "prune", "bins", "missing", "l1", "sd", "random_state")


def describe_methods(learner: Learner, data: Dataset) -> str:
    """What was done, with versions and settings: how many rows and variables, the learner, penalties, gaps, and how exact weights are."""
    fit = learner.fit_
    name = type(learner).__name__
    parts = [
        f"A Markov network (undirected graphical model, log-linear model) of {len(data.domain)} discrete variables was learned from "
        f"{data.total_weight:,.0f} rows with undirected {version('undirected')} (Python {platform.python_version()}, "
        f"NumPy {np.__version__})."
    ]
    choice = learner.choice_ if isinstance(learner, Auto) else None
    if choice is not None:
        held = (
            f"{len(choice.folds)}-fold cross-validation"
            if len(choice.folds) > 1
            else f"{choice.folds[0].held_out.total_weight:,.0f} held-out rows"
        )
        longer = "" if choice.penalties.features == "pairs" else ", conjunctions of trees"
        parts.append(
            f"Pairs of states{longer} and single states were weighed in one fit; penalties ({choice.penalties}) were chosen by the "
            f"pseudo-likelihood of {held}."
        )
    else:
        own = {key: value for key, value in learner.get_params().items() if key not in LIMITS}
        settings = ", ".join(f"{key}={value!r}" for key, value in own.items())
        parts.append(f"Structure was learned with {name}{f' ({settings})' if settings else ''}; penalties: l1 {fit.l1:g}, sd {fit.sd:g}.")
    if hasattr(learner, "gaps_"):
        gaps = learner.gaps_
        parts.append(
            f"{gaps.n_cells:,} missing cells in {gaps.n_rows:,} rows were completed by Monte-Carlo EM in {gaps.rounds} rounds"
            + ("." if gaps.settled else ", which had not settled.")
        )
    end = f"to a violation of optimality of {fit.violation:.1g} a row" if fit.converged else f"until they were stopped by {fit.stopped_by}"
    parts.append(f"{len(fit.features):,} weights were learned by penalised pseudo-likelihood {end}.")
    return " ".join(parts)
