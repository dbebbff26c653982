"""How well hidden attributes were predicted: log-likelihood, precision and recall, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score

from undirected.kernels.types import Array
from undirected.relational.data import RelationalData

CLIP = 1e-6  # of probabilities, before their logarithm is taken
RANKS = (1, 3, 10)


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


@dataclass(frozen=True)
class Ranks:
    """``mrr``: the mean of 1 / rank of hidden true facts; ``hits``: the share of ranks up to 1, 3 and 10."""

    mrr: float
    hits: dict[int, float]
    n: int


def rank_facts(truth: RelationalData, marks: Sequence[Array], predicted: Sequence[Sequence[Array]]) -> Ranks:
    """Rank each hidden true fact of a link among the hidden facts of its relation that share one of its entities and are false, once for
    each argument; ties count half. Every attribute of two states counts as a relation. Facts that are known need no rank: true ones are
    left out, false ones would come last."""
    ranks = [np.zeros(0)]
    for table, marked, chances in zip(truth.tables, marks, predicted, strict=True):
        if not table.type.is_link:
            continue
        for v in np.flatnonzero(table.type.attributes.n_states == 2).tolist():
            rows = np.flatnonzero(marked[:, v] & (table.cells.codes[:, v] >= 0))
            p, true = chances[v][rows, 1], table.cells.codes[rows, v] == 1
            ranks += [_rank_within(table.arguments[rows, k], p, true) for k in range(len(table.type.arguments))]
    rank = np.concatenate(ranks)
    if not len(rank):
        return Ranks(float("nan"), {k: float("nan") for k in RANKS}, 0)
    return Ranks(float((1 / rank).mean()), {k: float((rank <= k).mean()) for k in RANKS}, len(rank))


def _rank_within(groups: Array, chances: Array, true: Array) -> Array:
    """The rank of each true fact among the false ones of its group; facts without a group (-1) have none."""
    order = np.argsort(groups, kind="stable")
    order = order[groups[order] >= 0]
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    out = [np.zeros(0)]
    for inside in np.split(order, cuts):
        mine = chances[inside[true[inside]]]
        if len(mine):
            false = np.sort(chances[inside[~true[inside]]])
            above, below = (np.searchsorted(false, mine, side=side) for side in ("right", "left"))
            out.append(1 + (len(false) - above) + (above - below) / 2)
    return np.concatenate(out)
