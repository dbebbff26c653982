"""The pseudo-likelihood of relational data: every known attribute given all others, with weights shared by all entities of a type."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from undirected.kernels.types import Array
from undirected.relational.beliefs import Beliefs
from undirected.relational.templates import Design, Templates
from undirected.relational.wiring import Wiring
from undirected.weights.objective import Block
from undirected.weights.sum_objective import FactorisedBlocks, factorise_blocks

ROWS = 4096  # entities that one core works on at a time
MOST_CROSSES = 2000  # along one path; more are left out of the curvature, which only scales steps
SUM_BYTES = 4  # of a sum along a path, in a design
FLOPS = 20e9  # a second, roughly


class RelationalPseudoLikelihood:
    """Minus the sum, over the known attributes of all entities, of their log-probability given everything else.

    Convex in the weights: unknown attributes stand at their beliefs, which do not change. The result is the same to the bit for any
    number of threads, as entities are cut into parts of fixed size.
    """

    def __init__(self, templates: Templates, wiring: Wiring, beliefs: Beliefs, threads: int = 1) -> None:
        self.templates, self.beliefs, self.threads = templates, beliefs, threads
        used = [k for k in range(len(templates.schema)) if templates.active[k] and beliefs.known[k].any()]
        sizes = [(len(beliefs.values[k]), templates.designs[k].width) for k in used]
        n_sums = sum(rows * width for rows, width in sizes)
        wiring.check_room(SUM_BYTES * n_sums, f"the entities have {n_sums:,} sums along paths")
        self.types = [TypeRegression(templates, k, build_design(templates, wiring, beliefs, k), beliefs) for k in used]
        self.total_weight = float(max((kind.known.any(axis=1).sum() for kind in self.types), default=1))
        self._terms = [(kind, a) for kind in self.types for a in range(kind.n_active)]
        self._sample: dict[int, tuple[Array, Array]] = {}

    def __len__(self) -> int:
        return self.templates.n_weights

    def evaluate(self, weights: Array, single: bool = False, curvature: bool = False) -> tuple[float, Array, Array | None]:
        value, gradient, diagonal = 0.0, np.zeros(len(self)), np.zeros(len(self))
        precision = np.float32 if single else np.float64
        with ThreadPoolExecutor(self.threads) as pool:
            for kind in self.types:
                matrix = kind.place(weights)
                sums: Sums | None = None
                starts = range(0, len(kind.matrix), ROWS)
                for part in pool.map(lambda start, k=kind, m=matrix: k.evaluate(m, start, precision, curvature), starts):
                    sums = part if sums is None else sums.add(part)
                assert sums is not None
                value += sums.loss
                gradient += kind.collect(sums.slope, len(self))
                if curvature:
                    diagonal += kind.collect(sums.square * kind.design.scale, len(self))
                    for cross, crossed in zip(kind.crosses, sums.crossed, strict=True):
                        np.add.at(diagonal, cross.numbers, crossed)
        return value, gradient, diagonal if curvature else None

    def restrict(self, active: Array | None) -> None:
        """Gradients come of one product for all weights, so that nothing would be saved."""

    def start_unary(self, marginals: Sequence[Array]) -> Array:
        """Weights of the model without pairs: the log-odds of each active state against the first of its attribute."""
        weights = np.zeros(len(self))
        for kind in self.types:
            shares = marginals[kind.number]
            rest = 1 - np.bincount(kind.of, weights=shares, minlength=len(kind.starts))
            weights[kind.design.index[0]] = np.log(shares / rest[kind.of])
        return weights

    def measure_errors(self, weights: Array) -> tuple[list[Array], list[Array]]:
        """For each type, how far the expectation of each active state is above what is known, and its variance; zero where nothing is."""
        errors = [np.zeros((len(matrix), n)) for matrix, n in zip(self.beliefs.values, self.templates.active, strict=True)]
        variances = [error.copy() for error in errors]
        for kind in self.types:
            chances, _ = kind.find_chances(kind.matrix.astype(float) @ kind.place(weights))
            errors[kind.number] = (chances - kind.target) * kind.free
            variances[kind.number] = chances * (1 - chances) * kind.free
        return errors, variances

    # -- cost
    @property
    def evaluation_cost(self) -> float:
        return sum(4.0 * kind.matrix.size * kind.n_active for kind in self.types) / FLOPS + 1e-5

    @property
    def n_rows(self) -> int:
        return sum(len(kind.matrix) for kind in self.types)

    @property
    def term_sizes(self) -> Array:
        return np.array([(kind.design.index[:, a] >= 0).sum() for kind, a in self._terms], dtype=np.int64)

    @property
    def density(self) -> float:
        return 1.0

    @property
    def widest_design(self) -> int:
        return 1

    # -- curvature: a term is an active state of a type, as a regression of its own
    def sample_curvature(self, weights: Array, n_rows: int) -> None:
        for kind in self.types:
            n = len(kind.matrix)
            share = max(1, min(n, -(-n_rows * n // self.n_rows)))
            rows = np.linspace(0, n - 1, share).astype(np.int64)
            design = kind.matrix[rows].astype(float)
            chances, _ = kind.find_chances(design @ kind.place(weights))
            self._sample[kind.number] = design, chances * (1 - chances) * kind.free[rows] * (n / share)

    def list_blocks(self, free: Array, most: int) -> list[Block]:
        blocks = []
        for term, (kind, a) in enumerate(self._terms):
            index = kind.design.index[:, a]
            members = np.unique(index[index >= 0])
            members = members[free[members]]
            pieces = np.array_split(members, max(1, -(-len(members) // most)))
            blocks += [Block(term, piece.astype(np.int32)) for piece in pieces if len(piece)]
        return blocks

    def block_curvature(self, block: Block) -> Array:
        kind, a = self._terms[block.term]
        design, spread = self._sample[kind.number]
        places = np.flatnonzero(np.isin(kind.design.index[:, a], block.members))
        columns = np.zeros((len(block.members), len(design)))
        at = np.searchsorted(block.members, kind.design.index[places, a])
        np.add.at(columns, at, (design[:, places] * kind.design.scale[places, a]).T)
        return np.asarray((columns * spread[:, a]) @ columns.T, dtype=np.float32)

    def invert_blocks(self, blocks: list[Block], diagonal: Array, ridge: float) -> FactorisedBlocks:
        return factorise_blocks(self, blocks, diagonal, ridge)


class Sums(NamedTuple):
    """What some entities of a type add to loss, slope and curvature, the latter two by the entries of the type's matrix."""

    loss: float
    slope: Array
    square: Array | float
    crossed: list[Array]

    def add(self, other: Sums) -> Sums:
        both = [one + two for one, two in zip(self.crossed, other.crossed, strict=True)]
        return Sums(self.loss + other.loss, self.slope + other.slope, self.square + other.square, both)


class Cross(NamedTuple):
    """Weights ``numbers`` that stand in two places of one softmax: in rows ``there`` of active states ``a``, and ``back`` of ``b``."""

    numbers: Array
    a: Array
    b: Array
    there: Array
    back: Array


class TypeRegression:
    """The part of one type: a softmax for each attribute, all on the same design."""

    def __init__(self, templates: Templates, number: int, matrix: Array, beliefs: Beliefs) -> None:
        self.number, self.matrix = number, matrix
        self.design: Design = templates.designs[number]
        segment = templates.segments[number]
        self.n_active = len(segment)
        self.starts = np.flatnonzero(np.diff(segment, prepend=-1))
        self.of = np.cumsum(np.diff(segment, prepend=-1) > 0) - 1  # of each active state, the place of its attribute in `starts`
        self.is_binary = len(self.starts) == self.n_active
        self.target = beliefs.values[number][:, : self.n_active]
        self.known = beliefs.known[number][:, segment[self.starts]]
        self.free = self.known[:, self.of].astype(np.float32)
        self.crosses = self._find_crosses()

    def _find_crosses(self) -> list[Cross]:
        """Weights that two logits of one softmax share: those of paths from a type to itself."""
        crosses, done = [], set()
        places = {block.path: block for block in self.design.blocks if block.path.steps and block.first == 0}
        for path, block in places.items():
            back = places.get(path.invert())
            if back is None or path.start != path.end or path.invert() in done:
                continue
            done.add(path)
            a, b = np.nonzero(self.of[:, None] == self.of[None, :])
            if path.is_own_inverse:
                a, b = a[a < b], b[a < b]
            if 0 < len(a) <= MOST_CROSSES:
                crosses.append(Cross(self.design.index[block.at + b, a], a, b, block.at + b, back.at + a))
        return crosses

    def place(self, weights: Array) -> Array:
        """The matrix by which the design is multiplied."""
        return np.asarray(np.append(weights, 0.0)[self.design.index] * self.design.scale)

    def collect(self, matrix: Array, n_weights: int) -> Array:
        """Add up the entries of a matrix that belong to each weight."""
        values = (matrix * self.design.scale).ravel()
        return np.bincount((self.design.index + 1).ravel(), weights=values, minlength=n_weights + 1)[1:]

    def find_chances(self, logits: Array) -> tuple[Array, Array]:
        """The probability of each active state, and for each attribute the logarithm of its sum of exponentials."""
        if self.is_binary:
            small = np.exp(-np.abs(logits))
            chances = np.where(logits >= 0, 1, small) / (1 + small)
            return chances, np.maximum(logits, 0) + np.log1p(small)
        top = np.maximum(np.maximum.reduceat(logits, self.starts, axis=1), 0)
        parts = np.exp(logits - top[:, self.of])
        total = np.exp(-top) + np.add.reduceat(parts, self.starts, axis=1)
        return parts / total[:, self.of], top + np.log(total)

    def evaluate(self, matrix: Array, start: int, precision: type, curvature: bool) -> Sums:
        """The sums of the entities from ``start`` on, as many as one core works on at a time."""
        rows = slice(start, start + ROWS)
        design: Array = self.matrix[rows].astype(precision, copy=False)
        target: Array = self.target[rows].astype(precision, copy=False)
        free = self.free[rows]
        logits = design @ matrix.astype(precision, copy=False)
        chances, log_sums = self.find_chances(logits)
        loss = float((log_sums * self.known[rows]).sum(dtype=float) - (logits * target * free).sum(dtype=float))
        slope = design.T @ ((chances - target) * free)
        if not curvature:
            return Sums(loss, slope, 0.0, [])
        square = np.square(design).T @ (chances * (1 - chances) * free)
        return Sums(loss, slope, square, [self._cross(cross, design, chances, free) for cross in self.crosses])

    def _cross(self, cross: Cross, design: Array, chances: Array, free: Array) -> Array:
        """Twice the product of the two logits' slopes by a weight, times their part of the Hessian of the softmax."""
        out = np.empty(len(cross.a))
        for k, (a, b, there, back) in enumerate(zip(cross.a, cross.b, cross.there, cross.back, strict=True)):
            spread = chances[:, a] * ((a == b) - chances[:, b]) * free[:, a]
            out[k] = 2 * float((spread * design[:, there]) @ design[:, back])
        return out


def build_design(templates: Templates, wiring: Wiring, beliefs: Beliefs, number: int) -> Array:
    """The design of a type: a one, and the sums along each path of its blocks."""
    design = templates.designs[number]
    matrix = np.empty((len(beliefs.values[number]), design.width), dtype=np.float32)
    matrix[:, 0] = 1
    for block in design.blocks:
        sums = wiring.add_up(beliefs.values, block.path, block.first, block.last)
        matrix[:, block.at : block.at + block.last - block.first] = sums
    return matrix
