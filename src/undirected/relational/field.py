"""Inference for unknown attributes: mean field, one attribute after another, and Gibbs sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.errors import UndirectedError
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.relational.beliefs import Beliefs
from undirected.relational.templates import Templates
from undirected.relational.wiring import Wiring
from undirected.work import Counted, StoppedBy, Work

TOLERANCE, MOST_SWEEPS = 1e-3, 50  # of mean field
GIBBS_SWEEPS, BURN_IN, PARTS = 200, 50, 10  # parts of a chain whose means are compared
ROUNDING = 1e-7  # of the free energy's change, by the number of attributes: what rounding may add


@dataclass(frozen=True)
class Inferred:
    """Beliefs after inference, and how it ended: the largest change in the last sweep of mean field, or the largest standard error of
    sampling; the sweeps made, and why they ended."""

    beliefs: Beliefs
    residual: float
    sweeps: int
    stopped_by: StoppedBy


class RelationalField:
    """Beliefs about all entities under some weights, ready to be changed."""

    def __init__(self, templates: Templates, wiring: Wiring, beliefs: Beliefs, weights: Array) -> None:
        self.templates, self.beliefs = templates, beliefs
        self.kernel = backend().module.RelationField()
        padded = np.append(weights, 0.0)
        for k, design in enumerate(templates.designs):
            segments = templates.segments[k]
            starts = np.append(np.flatnonzero(np.diff(segments, prepend=-1)), len(segments)).astype(np.int32)
            matrix = np.ascontiguousarray((padded[design.index] * design.scale).T)
            self.kernel.add_type(np.ascontiguousarray(beliefs.values[k]), starts, matrix)
        numbers = [-1] * len(wiring.reaches)
        for k, reach in enumerate(wiring.reaches):
            if reach.matrix is not None:
                back = reach.matrix.tocsc()
                sums = np.ascontiguousarray(reach.matrix @ beliefs.values[reach.source])
                numbers[k] = self.kernel.add_reach(reach.source, sums, back.indptr.astype(np.int64), back.indices.astype(np.int32))
        for k, design in enumerate(templates.designs):
            for block in design.blocks:
                lookup = wiring.lookups[block.path]
                rows = None if lookup.rows is None else np.ascontiguousarray(lookup.rows, dtype=np.int32)
                own = None if lookup.own is None else np.ascontiguousarray(lookup.own, dtype=np.uint8)
                end = templates.schema.index(block.path.end)
                self.kernel.add_block(k, block.at, block.first, block.last, end, numbers[lookup.reach], rows, own)

    def list_cells(self, marks: list[Array]) -> Array:
        """The attributes that are marked and have states to choose from: type, entity and number."""
        cells = [np.zeros((0, 3), np.int32)]
        for k, mark in enumerate(marks):
            segments = self.templates.segments[k]
            attributes = segments[np.flatnonzero(np.diff(segments, prepend=-1))]
            entity, number = np.nonzero(mark[:, attributes])
            cells.append(np.stack([np.full(len(entity), k), entity, number], axis=1).astype(np.int32))
        return np.concatenate(cells)

    def read(self) -> Beliefs:
        """The beliefs as they are now."""
        return Beliefs([self.kernel.values(k) for k in range(len(self.beliefs.values))], self.beliefs.known)

    def run_mean_field(self, work: Work, tol: float = TOLERANCE, most_sweeps: int = MOST_SWEEPS) -> Inferred:
        """Sweep over the unknown attributes until none changes by more than ``tol``.

        Each is set to its distribution given all others, so that the free energy never rises; the result is a local optimum, of which
        there may be several.
        """
        cells = self.list_cells([~known for known in self.beliefs.known])
        residual, sweeps, stopped_by = 0.0, 0, StoppedBy.CONVERGED
        while len(cells) and sweeps < most_sweeps:
            if work.is_over:
                stopped_by = StoppedBy.TIME
                break
            try:
                residual = self.sweep(cells)
                sweeps += 1
                work.emit(Counted("sweeps over unknown attributes", sweeps, most_sweeps))
            except KeyboardInterrupt:
                stopped_by = StoppedBy.INTERRUPT
                break
            if residual < tol:
                break
        else:
            stopped_by = StoppedBy.SWEEPS if len(cells) else StoppedBy.CONVERGED
        return Inferred(self.read(), residual, sweeps, stopped_by)

    def sweep(self, cells: Array) -> float:
        """One sweep of mean field; the largest change of a probability."""
        return self._sweep(cells)[0]

    def fall(self, cells: Array) -> float:
        """One sweep of mean field; how much the free energy falls."""
        return -self._sweep(cells)[1]

    def _sweep(self, cells: Array) -> tuple[float, float]:
        largest, energy = self.kernel.sweep(cells)
        if energy > ROUNDING * max(1, len(cells)):
            raise UndirectedError(f"the free energy rose by {energy:.3g} in a sweep, which cannot be; please report this")
        return float(largest), float(energy)

    def run_gibbs(self, work: Work, n_sweeps: int = GIBBS_SWEEPS, burn_in: int = BURN_IN) -> Inferred:
        """The mean of the distributions from which unknown attributes are drawn, over sweeps after the first ``burn_in``.

        The residual is the largest standard error of a probability, from the means of parts of the chain. It knows nothing of states that
        the chain has not come to.
        """
        cells = self.list_cells([~known for known in self.beliefs.known])
        rng = np.random.default_rng(work.seed)
        sums: list[Array] = []  # of each part of the chain
        sweeps, stopped_by, chances = 0, StoppedBy.CONVERGED, None
        for done in range(-burn_in, n_sweeps if len(cells) else -burn_in):
            if work.is_over and done > -burn_in:
                stopped_by = StoppedBy.TIME
                break
            try:
                chances = self.kernel.draw(cells, rng.random(len(cells)))
                work.emit(Counted("sweeps of Gibbs sampling", done + burn_in + 1, burn_in + n_sweeps))
            except KeyboardInterrupt:
                stopped_by = StoppedBy.INTERRUPT
                break
            if done >= 0:
                if done % (n_sweeps // PARTS) == 0:
                    sums.append(np.zeros(len(chances)))
                sums[-1] += chances
                sweeps += 1
        if not sweeps and len(cells):
            return Inferred(self._fill_in(chances) if chances is not None else self.beliefs, float("nan"), 0, stopped_by)
        mean = np.sum(sums, axis=0) / max(sweeps, 1)
        whole = np.array(sums[: sweeps // (n_sweeps // PARTS)]) / (n_sweeps // PARTS)
        error = float((whole.std(axis=0, ddof=1) / np.sqrt(len(whole))).max(initial=0.0)) if len(whole) > 1 else float("nan")
        return Inferred(self._fill_in(mean), error if len(cells) else 0.0, sweeps, stopped_by)

    def _fill_in(self, chances: Array) -> Beliefs:
        """The beliefs with these probabilities for the unknown attributes, one after another."""
        beliefs = self.beliefs.copy()
        place = 0
        for k, known in enumerate(self.beliefs.known):
            segments = self.templates.segments[k]
            gaps = ~known[:, segments]
            n = int(gaps.sum())
            if n:
                beliefs.values[k][:, : len(segments)][gaps] = chances[place : place + n]
            place += n
        return beliefs
