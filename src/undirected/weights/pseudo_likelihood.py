"""The objective: minus the pseudo-log-likelihood of a feature set on a table, as a function of the weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import is_negated
from undirected.data.variables import Domain
from undirected.errors import DataError, FeatureError
from undirected.features.feature_set import FeatureSet
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.weights.objective import Block, CoordinateState
from undirected.weights.preconditioner import MAX_DESIGN, STRIP
from undirected.work import MEMORY, Work, count_cores

ALWAYS_PREPARED = 5000  # features that are prepared whatever the time budget
TIMED_FEATURES = 1000  # features whose preparing is timed
STATE_BYTES = 24  # for each logit and row: odds, the logit and four images of directions
PIECE_BYTES = 48  # for each literal of a feature and strip of rows, and for each context, whose list may have to be filled up there
PREPARING_SHARE = 0.4  # of the time that is left may go into preparing features


def choose_affordable(features: FeatureSet, data: Dataset, work: Work) -> Array | None:
    """Where preparing all features would take too much of the time that is left, the positions of the shortest of them; else None.

    Preparing is one long call; how long is told by timing a sample. Features share contexts, so that all together take less than the
    sample says: half of that is reckoned with.
    """
    if not work.limited or len(features) <= ALWAYS_PREPARED:
        return None
    table = data.distinct
    some = features.subset(np.linspace(0, len(features) - 1, TIMED_FEATURES).astype(np.int64))
    seconds = work.left()
    began = work.now()
    _prepare(some, table, work.memory, work.threads)
    each = (work.now() - began) / TIMED_FEATURES / 2
    n = max(ALWAYS_PREPARED, int(PREPARING_SHARE * seconds / max(each, 1e-9)))
    return None if n >= len(features) else np.sort(np.argsort(features.lengths, kind="stable")[:n])


def _prepare(
    features: FeatureSet, table: Dataset, memory: int, threads: int, targets: Array | None = None, watch: Callable[[], None] | None = None
) -> Any:
    """The kernel's tables for these features on these distinct rows."""
    args = (table.columns, features.domain.n_states, table.weights, features.start, features.literals)
    return backend().module.PseudoLikelihoodTables(*args, memory, threads, targets, watch)


class PseudoLikelihood:
    """``-sum_r c_r * sum_i log P(x_ri | rest of row r)``, with derivatives; the penalties belong to the solver.

    Everything that does not depend on the weights is prepared once: distinct rows, shared contexts, row lists. ``memory``
    bounds the row lists in bytes; contexts that do not fit are found anew in each evaluation. With ``targets``, one variable
    per feature, a feature enters that variable's conditional alone: a set of separate regressions, evaluated together. ``watch``
    is called now and then while it is prepared, and may end that by raising (`Work.watch` does).
    """

    def __init__(
        self,
        features: FeatureSet,
        data: Dataset,
        threads: int | None = None,
        memory: int = MEMORY,
        targets: Array | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        if features.domain != data.domain:
            raise FeatureError("the features and the table have different domains; read the table with domain=features.domain")
        data.require_complete("fitting weights")
        self.features = features
        self.table = data.distinct
        if not len(self.table):
            raise DataError(f"{data.source}: no row has a weight above zero")
        self.threads = threads or count_cores()
        self.memory = memory
        self.total_weight = self.table.total_weight
        self.targets = None if targets is None else np.ascontiguousarray(targets, dtype=np.int32)
        self._tables: Any = _prepare(features, self.table, memory, self.threads, self.targets, watch)
        self.evaluations = 0

    def __len__(self) -> int:
        return len(self.features)

    def serves(self, features: FeatureSet, data: Dataset) -> bool:
        """Whether this is the objective of these features on this table."""
        return self.table is data.distinct and self.targets is None and self.features == features

    def evaluate(self, weights: Array, single: bool = False, curvature: bool = False) -> tuple[float, Array, Array | None]:
        """Value, gradient and, if asked for, the diagonal of the Hessian; ``single`` precision is about twice as fast."""
        self.evaluations += 1
        loss, gradient, diagonal = self._tables.evaluate(np.ascontiguousarray(weights), True, curvature, single, self.threads)
        return loss, gradient, diagonal

    def restrict(self, active: Array | None) -> None:
        """From now on compute the gradient of these features only (zero for the others); None lifts this."""
        self._tables.set_active(None if active is None else np.ascontiguousarray(active, dtype=np.uint8))

    def score_terms(self, weights: Array) -> tuple[Array, Array]:
        """The pseudo-log-likelihood by distinct row, and by variable summed over the rows."""
        rows, variables = self._tables.terms(np.ascontiguousarray(weights), self.threads)
        return np.asarray(rows), np.asarray(variables)

    def probabilities(self, weights: Array) -> Array:
        """P(variable = state | the rest of the row) for every distinct row and literal: ``[rows][literals]``."""
        n_literals = self.features.domain.n_literals
        return np.asarray(self._tables.probabilities(np.ascontiguousarray(weights), n_literals, self.threads))

    def pll(self, weights: Array) -> float:
        """The mean over rows of the pseudo-log-likelihood, as `MarkovNetwork.pll` gives it."""
        return float((self.score_terms(weights)[1] / self.total_weight).sum())

    @functools.cached_property
    def independent_start(self) -> Array:
        """Weights of the model of independent variables: log-odds on the features with one literal, zero on the others."""
        return find_independent_start(self.features, self.literal_counts)

    @functools.cached_property
    def literal_counts(self) -> Array:
        """The weight of the rows in which each literal holds."""
        return self.table.literal_counts()

    # -- cost
    @functools.cached_property
    def _sizes(self) -> dict[str, int]:
        return dict(self._tables.sizes())

    @property
    def evaluation_cost(self) -> float:
        return float(self._sizes["work"] * 1.45e-9 + self.table.codes.size * 1e-9) + 1e-5

    @property
    def n_rows(self) -> int:
        return len(self.table)

    @functools.cached_property
    def term_sizes(self) -> Array:
        return np.bincount(self.features.variables, minlength=1)

    @property
    def density(self) -> float:
        return float(self._sizes["held"] / max(1.0, float(self.term_sizes.sum()) * self.n_rows))

    @property
    def widest_design(self) -> int:
        return int(self.features.domain.n_states.max(initial=1))

    # -- curvature: the terms are the variables' conditionals
    def sample_curvature(self, weights: Array, n_rows: int) -> None:
        self._tables.sample(weights, max(1, len(self.table) // n_rows), self.threads)

    def list_blocks(self, free: Array, most: int) -> list[Block]:
        return list_variable_blocks(self.features, free, most)

    def block_curvature(self, block: Block) -> Array:
        return np.asarray(self._tables.gram(block.term, block.members))

    def invert_blocks(self, blocks: list[Block], diagonal: Array, ridge: float) -> KernelInverse:
        variables = np.array([block.term for block in blocks], dtype=np.int32)
        start = np.concatenate([[0], np.cumsum([len(block.members) for block in blocks])]).astype(np.int64)
        members = np.concatenate([np.zeros(0, np.int32), *(block.members for block in blocks)]).astype(np.int32)
        return KernelInverse(start, members, self._tables.factors(variables, start, members, diagonal, ridge, self.threads), self.threads)

    # -- single weights
    @functools.cached_property
    def feature_terms(self) -> tuple[Array, Array]:
        return self.features.variables, self.features.start

    @property
    def state_bytes(self) -> int:
        columns = int(np.where(self.features.domain.n_states == 2, 1, self.features.domain.n_states).sum())
        strips = min(16, 1 + self.n_rows // 4096)  # of rows
        pieces = PIECE_BYTES * strips * (len(self.features.literals) + self._sizes["contexts"])
        return int(4 * self._sizes["groups"] + STATE_BYTES * columns * (self.n_rows + 128) + pieces)

    def start_descent(self, watch: Callable[[], None] | None = None) -> CoordinateState:
        descent: CoordinateState = backend().module.Descent(self._tables, self.threads, watch)
        return descent

    # -- separate regressions, with ``targets``
    @property
    def n_terms(self) -> int:
        return len(self.features.domain)

    def term_losses(self, weights: Array) -> Array:
        return -self.score_terms(weights)[1]

    def newton_steps(self, members: Array, gradient: Array, weights: Array, l1: Array) -> Array:
        assert self.targets is not None
        variables, sizes = np.unique(self.targets[members], return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return np.asarray(self._tables.steps(variables.astype(np.int32), offsets, members, gradient, weights, l1, self.threads))


class KernelInverse:
    """Inverses of blocks in the layout of the kernels."""

    def __init__(self, start: Array, members: Array, factors: Array, threads: int) -> None:
        self._args = (start, members, factors)
        self._threads = threads

    def multiply_both(self, x: Array, y: Array) -> tuple[Array, Array]:
        out = backend().module.times_blocks(*self._args, x, y, self._threads)
        return out[0], out[1]


def list_variable_blocks(features: FeatureSet, free: Array, most: int) -> list[Block]:
    """Each variable with the free features that mention it, at most so many at a time, and fewer if it has many states."""
    keep = free[features.owner]
    pairs = np.unique(features.variables[keep].astype(np.int64) * len(features) + features.owner[keep])
    variable, owner = np.divmod(pairs, max(1, len(features)))
    n_states = features.domain.n_states
    bounds = np.searchsorted(variable, np.arange(len(n_states) + 1))
    out = []
    for v in np.flatnonzero((np.diff(bounds) > 0) & (n_states > 1)):
        members = owner[bounds[v] : bounds[v + 1]].astype(np.int32)
        room = MAX_DESIGN // (STRIP * (1 if n_states[v] == 2 else int(n_states[v])))
        if room < 2:
            continue
        for part in np.array_split(members, -(-len(members) // min(most, room))):
            out.append(Block(int(v), np.ascontiguousarray(part)))
    return out


def find_independent_start(features: FeatureSet, literal_counts: Array) -> Array:
    """Weights of the model of independent variables, from the weight of the rows in which each literal holds."""
    domain: Domain = features.domain
    weights = np.zeros(len(features))
    counts = literal_counts + 0.5
    single = np.flatnonzero(features.lengths == 1)
    literals = features.literals[features.start[single]]
    plain = ~is_negated(domain, literals)
    single, literals = single[plain], literals[plain]
    literals, first = np.unique(literals, return_index=True)  # of equal features the first
    absent = np.ones(domain.n_literals, dtype=bool)
    absent[literals] = False
    # A reference state without a feature of its own, the first of each variable: the others are measured against it.
    free = np.flatnonzero(absent)
    owners, at = np.unique(domain.literal_variable[free], return_index=True)
    reference = np.full(len(domain), -1)
    reference[owners] = free[at]
    mine = reference[domain.literal_variable[literals]]
    known = mine >= 0
    weights[single[first[known]]] = np.log(counts[literals[known]] / counts[mine[known]])
    return weights
