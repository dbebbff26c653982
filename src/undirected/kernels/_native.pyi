"""What the compiled kernels offer. `reference` says what each does; wrong arrays raise ``ValueError``, wrong types ``TypeError``.

Several Python threads may use one object at a time: each object has a lock of its own, and the interpreter's is not held while it
works.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Marks = NDArray[np.uint8]
Codes = NDArray[np.int16]
Numbers = NDArray[np.int32]
Offsets = NDArray[np.int64]
Words = NDArray[np.uint64]
Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]

class PseudoLikelihoodTables:
    def __init__(
        self,
        columns: Words,
        n_states: Numbers,
        row_weight: Doubles,
        start: Offsets,
        literals: Numbers,
        memory: int,
        threads: int,
        targets: Numbers | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None: ...
    def set_active(self, marks: Marks | None) -> None: ...
    def evaluate(
        self, weights: Doubles, gradient: bool, curvature: bool, single: bool, threads: int
    ) -> tuple[float, Doubles | None, Doubles | None]: ...
    def terms(self, weights: Doubles, threads: int) -> tuple[Doubles, Doubles]: ...
    def probabilities(self, weights: Doubles, n_literals: int, threads: int) -> Doubles: ...
    def sample(self, weights: Doubles, stride: int, threads: int) -> int: ...
    def gram(self, variable: int, features: Numbers) -> Singles: ...
    def factors(self, variables: Numbers, start: Offsets, members: Numbers, diagonal: Doubles, ridge: float, threads: int) -> Singles: ...
    def steps(
        self, variables: Numbers, start: Offsets, members: Numbers, gradient: Doubles, weights: Doubles, penalty: Doubles, threads: int
    ) -> Doubles: ...
    def sizes(self) -> dict[str, int]: ...

class Descent:
    def __init__(self, tables: PseudoLikelihoodTables, threads: int, watch: Callable[[], None] | None = None) -> None: ...
    def costs(self) -> Offsets: ...
    def set_weights(self, weights: Doubles, threads: int) -> None: ...
    def spread_out(self, order: Numbers) -> Numbers: ...
    def sweep(
        self,
        order: Numbers,
        l1: Doubles,
        ridge: Doubles,
        centre: Doubles,
        weights: Doubles,
        curvature: Doubles,
        slope: Doubles,
        gain: Doubles,
        refresh: bool,
        least_gain: float,
        least_slope: float,
        threads: int,
    ) -> None: ...
    def keep_image(self, direction: int, threads: int) -> None: ...
    def set_image(self, direction: int, steps: Doubles, threads: int) -> None: ...
    def correct_image(self, direction: int, steps: Doubles, threads: int) -> None: ...
    def measure(self, amounts: Doubles, threads: int) -> tuple[float, Doubles, Doubles]: ...
    def move(self, amounts: Doubles, direction: int, steps: Doubles, threads: int) -> None: ...

def add_block(total: Singles, places: Offsets, block: Singles) -> None: ...
def fit_diagonal(matrix: Singles, diagonal: Doubles, ridge: float) -> None: ...
def times_blocks(start: Offsets, members: Numbers, factors: Singles, x: Singles, y: Singles, threads: int) -> tuple[Singles, Singles]: ...
def gssl_generate(
    start: Offsets, literals: Numbers, n_generated: int, threshold: int, seed: int, threads: int
) -> tuple[Offsets, Numbers, Offsets, int, int]: ...
def clusternet_generate(
    n_clusters: int,
    n_literals: int,
    row_cluster: Numbers,
    row_start: Offsets,
    row_literals: Numbers,
    cluster: Numbers,
    start: Offsets,
    literals: Numbers,
    rounds: int,
    alpha: int,
    support: int,
    seed: int,
) -> tuple[Numbers, Offsets, Numbers]: ...
def find_slopes(
    columns: Words,
    n_states: Numbers,
    row_weight: Doubles,
    start: Offsets,
    literals: Numbers,
    residual: Doubles,
    threads: int,
) -> tuple[Doubles, Doubles]: ...
def find_support(
    columns: Words,
    n_states: Numbers,
    row_weight: Doubles,
    start: Offsets,
    literals: Numbers,
    threads: int,
) -> Doubles: ...
def count_at_leaves(
    codes: Codes,
    n_states: Numbers,
    row_weight: Doubles,
    common: Numbers,
    targets: Numbers,
    start: Offsets,
    test: Numbers,
    yes: Numbers,
    no: Numbers,
    count_start: Offsets,
    block: Offsets,
    count: Doubles,
    seen: Doubles,
    threads: int,
) -> None: ...
def grow_trees(
    codes: Codes,
    n_states: Numbers,
    row_weight: Doubles,
    targets: Numbers,
    min_rows: float,
    min_gain: float,
    threads: int,
    go_on: Callable[[int], bool],
) -> tuple[Offsets, Numbers, Numbers, Numbers, Doubles, Offsets, Doubles]: ...
def walk_trees(
    codes: Codes,
    n_states: Numbers,
    row_weight: Doubles,
    targets: Numbers,
    start: Offsets,
    test: Numbers,
    yes: Numbers,
    no: Numbers,
    count_start: Offsets,
    value: Doubles,
    threads: int,
) -> tuple[Doubles, Doubles]: ...
def combine(a: Numbers, n_a: int, b: Numbers, n_b: int) -> tuple[Numbers, int]: ...

class Strata:
    def __init__(self, codes: Codes, n_states: Numbers, row_weight: Doubles) -> None: ...
    def test(
        self, stratum: Numbers, n_strata: int, target: int, others: Numbers, least_expected: float, enough_seen: float
    ) -> tuple[Doubles, Offsets]: ...

class Search:
    def __init__(self, columns: Words, n_states: Numbers, row_weight: Doubles) -> None: ...
    def load(self, start: Offsets, literals: Numbers, weights: Doubles, threads: int) -> None: ...
    def change(self, literals: Numbers, by: float) -> None: ...
    def logits(self) -> Doubles: ...
    def loss(self, threads: int) -> float: ...
    def gains(
        self,
        start: Offsets,
        literals: Numbers,
        owner: Numbers,
        owner_start: Offsets,
        owner_literals: Numbers,
        owner_weight: Doubles,
        min_rows: float,
        l1: float,
        ridge: float,
        price: Doubles,
        all: bool,
        threads: int,
    ) -> tuple[Doubles, Doubles, Doubles]: ...
    def generalise(
        self, start: Offsets, literals: Numbers, together: Doubles | None, power: int, sizes: Doubles, threads: int
    ) -> tuple[Offsets, Numbers, Numbers]: ...
    def join(
        self,
        start: Offsets,
        literals: Numbers,
        first: int,
        last: int,
        most: int,
        min_rows: float,
        l1: float,
        ridge: float,
        price: Doubles,
        threads: int,
    ) -> tuple[Offsets, Numbers, Doubles, Doubles, int]: ...
    def screen(self, start: Offsets, literals: Numbers, extra: Numbers, threads: int) -> tuple[Doubles, Doubles, Doubles]: ...

class Model:
    def __init__(self, n_states: Numbers, start: Offsets, literals: Numbers, weights: Doubles) -> None: ...
    def solve(self, evidence: Marks, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Doubles, Doubles]: ...
    def propagate(
        self, evidence: Marks, maximum: bool, reweighted: bool, damping: float, tol: float, max_rounds: int, seed: int
    ) -> tuple[Doubles, float, float, int, bool]: ...
    def mean_field(
        self, evidence: Marks, tol: float, max_rounds: int, tries: int, seed: int
    ) -> tuple[Doubles, float, float, int, bool]: ...
    def mcsat(
        self,
        evidence: Marks,
        chains: int,
        burn_in: int,
        samples: int,
        hard: float,
        seed: int,
        threads: int,
        first: Codes | None = None,
    ) -> tuple[Doubles, Codes, Offsets, Marks]: ...
    def maximise(self, evidence: Marks, max_cells: float, tries: int, seed: int, threads: int) -> tuple[Codes, Doubles]: ...

class Elimination:
    def __init__(self, model: Model, evidence: Marks, max_cells: float, tries: int, seed: int) -> None: ...
    def parts(self) -> tuple[Numbers, Doubles, Doubles, Numbers, Marks]: ...
    def solve(self, max_cells: float) -> tuple[Doubles, float]: ...
    def maximise(self, max_cells: float) -> tuple[Codes, float]: ...
    def draw(self, n: int, max_cells: float, seed: int, threads: int) -> Codes: ...
    def expectations(self, max_cells: float) -> Doubles: ...

class Sampler:
    def __init__(self, model: Model, evidence: Marks, row_of: Numbers, states: Codes, order: Numbers, seed: int) -> None: ...
    def run(
        self,
        n_sweeps: int,
        beta: Singles | None,
        reference: Singles | None,
        collect: bool,
        anneal: bool,
        greedy: bool,
        threads: int,
    ) -> None: ...
    def scores(self, threads: int) -> Doubles: ...
    def states(self) -> Codes: ...
    def sums(self) -> Singles: ...
    def squares(self) -> Singles: ...
    def log_weights(self) -> Doubles: ...
    def reset(self) -> None: ...

class RelationField:
    def __init__(self) -> None: ...
    def add_type(self, values: Doubles, starts: Numbers, weights: Doubles) -> int: ...
    def add_reach(self, source: int, sums: Doubles, start: Offsets, rows: Numbers) -> int: ...
    def add_block(
        self, type: int, at: int, first: int, last: int, end: int, reach: int, rows: Numbers | None, own: Marks | None
    ) -> None: ...
    def set_weights(self, type: int, weights: Doubles) -> None: ...
    def values(self, type: int) -> Doubles: ...
    def sweep(self, cells: Numbers) -> tuple[float, float]: ...
    def draw(self, cells: Numbers, uniform: Doubles) -> Doubles: ...

def instruction_set() -> str:
    """Name the instruction set in use."""

def instruction_sets() -> list[str]:
    """Name the instruction sets that this machine can run, the plainest first."""

def set_instruction_set(name: str) -> None:
    """Use another instruction set from now on; results may differ in their last digits."""
