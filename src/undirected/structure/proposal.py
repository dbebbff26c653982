"""What a learner proposes: features, and what it learned on the way to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import StoppedBy


@dataclass
class Structure:
    """Candidate features, atomic ones not necessarily among them.

    ``learned`` are the learner's attributes that came out beside the features, by name. ``stopped_by`` says what ended the search for
    features early, None if nothing did. ``weights``, where the search has learned some, are those of the features with the atomic
    ones, in canonical order; ``objective`` is that of these weights, where it has been prepared.
    """

    features: FeatureSet
    learned: dict[str, Any] = field(default_factory=dict)
    stopped_by: StoppedBy | None = None
    weights: Array | None = None
    objective: PseudoLikelihood | None = field(default=None, repr=False)


@dataclass
class Proposal:
    """A structural setting of a grid and what it gives.

    ``seconds`` is set where the clock cannot tell them, parts of the work having been found in a ledger. Not ``complete`` if time ended
    the search for the features, or for those they are made of. ``last`` if it has used up the time: it is weighed, but nothing after it.
    ``penalties`` are those to weigh it with, in place of the grid's.
    """

    settings: dict[str, Any]
    structure: Structure
    seconds: float | None = None
    complete: bool = True
    last: bool = False
    penalties: list[tuple[float, float]] | None = None
