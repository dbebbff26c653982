"""What a solver may ask of an objective: the protocols, and the check that an objective has what a solver needs.

An objective is a smooth convex function of the weights of features: minus a pseudo-log-likelihood on a table, on shards of a table, or
anything else that has these methods. Penalties are not part of it (see `undirected.weights.penalty`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol

from undirected.errors import ParameterError
from undirected.kernels.types import Array


class Objective(Protocol):
    """A smooth convex function of the weights, which are as many as its length."""

    threads: int
    total_weight: float  # of the rows: violations of optimality are divided by it

    def __len__(self) -> int: ...

    def evaluate(self, weights: Array, single: bool = False, curvature: bool = False) -> tuple[float, Array, Array | None]:
        """Value, gradient and, if asked for, the diagonal of the Hessian; in ``single`` precision if that is enough."""

    def restrict(self, active: Array | None) -> None:
        """From now on compute the gradient of these features only (zero for the others); None lifts this."""

    @property
    def evaluation_cost(self) -> float:
        """Rough seconds of one evaluation on one core, from sizes alone, so that decisions do not depend on the clock."""


class Block(NamedTuple):
    """Some of the features that one term of an objective depends on."""

    term: int
    members: Array


class BlockInverse(Protocol):
    """Approximate inverses of blocks of a Hessian."""

    def multiply_both(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The sum of the blocks' inverses, each acting on its own features, times two vectors."""


class CurvedObjective(Objective, Protocol):
    """An objective that is a sum of terms, each of which depends on few features and can tell its curvature on a sample of rows."""

    @property
    def n_rows(self) -> int:
        """Rows that an evaluation goes through."""

    @property
    def term_sizes(self) -> Array:
        """How many features each term depends on."""

    @property
    def density(self) -> float:
        """The share of (feature of a term, row) pairs in which the weight of the feature matters."""

    @property
    def widest_design(self) -> int:
        """Numbers that one feature and one row take where a block's curvature is computed."""

    def sample_curvature(self, weights: Array, n_rows: int) -> None:
        """Remember the curvature at these weights on about so many rows, for the methods below."""

    def list_blocks(self, free: Array, most: int) -> list[Block]:
        """Each term with the free features it depends on, at most so many at a time."""

    def block_curvature(self, block: Block) -> Array:
        """The block's part of the Hessian, as far as it comes from the block's own term, on the rows sampled."""

    def invert_blocks(self, blocks: list[Block], diagonal: Array, ridge: float) -> BlockInverse:
        """The inverses of the blocks, scaled to the diagonal of the Hessian, which includes the ridge."""


class CoordinateState(Protocol):
    """What the weights make of every row, kept up to date while single weights move (`undirected.kernels.reference_descent.Descent`
    explains its methods)."""

    def costs(self) -> Array: ...
    def set_weights(self, weights: Array, threads: int) -> None: ...
    def spread_out(self, order: Array) -> Array: ...
    def sweep(
        self, order: Array, l1: Array, ridge: Array, centre: Array, weights: Array, curvature: Array, slope: Array, gain: Array,
        refresh: bool, least_gain: float, least_slope: float, threads: int,
    ) -> None: ...  # fmt: skip
    def keep_image(self, direction: int, threads: int) -> None: ...
    def set_image(self, direction: int, steps: Array, threads: int) -> None: ...
    def correct_image(self, direction: int, steps: Array, threads: int) -> None: ...
    def measure(self, amounts: Array, threads: int) -> tuple[float, Array, Array]: ...
    def move(self, amounts: Array, direction: int, steps: Array, threads: int) -> None: ...


class CoordinateObjective(CurvedObjective, Protocol):
    """An objective whose weights can be moved one by one; the end is left to the quasi-Newton solver, so that it is a curved one, too."""

    memory: int  # bytes that may be taken

    @property
    def feature_terms(self) -> tuple[Array, Array]:
        """The terms of all features one after another, and where those of each feature begin."""

    @property
    def state_bytes(self) -> int:
        """How many bytes the state takes, at most."""

    def start_descent(self, watch: Callable[[], None] | None = None) -> CoordinateState:
        """Build the state; ``watch`` is called now and then meanwhile, and may end it by raising."""


class SeparableObjective(Objective, Protocol):
    """An objective whose terms share no feature: ``targets`` gives the term of each feature."""

    @property
    def n_rows(self) -> int:
        """Rows that an evaluation goes through."""

    @property
    def n_terms(self) -> int: ...

    @property
    def targets(self) -> Array | None: ...

    def term_losses(self, weights: Array) -> Array:
        """The value of each term."""

    def sample_curvature(self, weights: Array, n_rows: int) -> None:
        """Remember the curvature at these weights on about so many rows, for `newton_steps`."""

    def newton_steps(self, members: Array, gradient: Array, weights: Array, l1: Array) -> Array:
        """For the features given, sorted by term, the steps that minimise each term's quadratic model with its L1 penalty."""


def check_needs(objective: Any, needs: type, solver: str) -> None:
    """Raise where an objective lacks what a solver needs, before any work; ``needs`` is one of the protocols above."""
    protocols = [kind for kind in needs.__mro__ if kind not in (object, Protocol, Generic)]
    names = {name for kind in protocols for name in (*vars(kind), *kind.__annotations__) if name == "__len__" or name[0] != "_"}
    missing = sorted(name for name in names if not hasattr(objective, name))
    if missing:
        raise ParameterError(f"{type(objective).__name__} cannot be minimised by {solver}: it has no {', '.join(missing)}")
