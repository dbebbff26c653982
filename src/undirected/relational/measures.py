"""How well hidden attributes were predicted: log-likelihood, precision and recall, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score

from undirected.kernels.types import Array
from undirected.relational.data import RelationalData

CLIP = 1e-6  # of probabilities, before their logarithm is taken


@dataclass(frozen=True)
class Scores:
    """``cll``: the mean log-probability of the true values, cut off at log 1e-6. ``auc``: the area under the precision-recall curve of all
    atoms together; an attribute of several states is one atom for each. ``binary_cll``: the mean over these atoms."""

    cll: float
    auc: float
    binary_cll: float
    n: int


def score_cells(truth: RelationalData, marks: Sequence[Array], predicted: Sequence[Sequence[Array]]) -> Scores:
    """Score the marked attributes whose value is known in ``truth``; ``predicted[k][v]`` is the distribution of attribute ``v`` for each
    entity of type ``k``."""
    logs, atoms, hits = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
    for table, marked, chances in zip(truth.tables, marks, predicted, strict=True):
        codes = table.cells.codes
        for v, n in enumerate(table.type.attributes.n_states.tolist()):
            rows = np.flatnonzero(marked[:, v] & (codes[:, v] >= 0))
            if not len(rows) or n < 2:
                continue
            p, true = chances[v][rows], codes[rows, v]
            logs.append(np.log(np.clip(p[np.arange(len(rows)), true], CLIP, 1)))
            if n == 2:
                atoms.append(p[:, 1])
                hits.append((true == 1).astype(float))
            else:
                atoms.append(p.ravel())
                hits.append((np.arange(n) == true[:, None]).astype(float).ravel())
    log, atom, hit = (np.concatenate(part) for part in (logs, atoms, hits))
    if not len(log):
        return Scores(float("nan"), float("nan"), float("nan"), 0)
    likely = np.clip(np.where(hit > 0, atom, 1 - atom), CLIP, 1)
    return Scores(float(log.mean()), measure_area(hit, atom), float(np.log(likely).mean()), len(log))


def measure_area(hits: Array, chances: Array) -> float:
    """The area under the precision-recall curve, as average precision; not a number where nothing is true."""
    if not hits.any():
        return float("nan")
    return float(average_precision_score(hits, chances))
