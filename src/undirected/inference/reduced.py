"""The network that evidence leaves, ready for the engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undirected.data.literals import get_slice, holds_in, make_literal
from undirected.errors import ImpossibleEvidence, NothingFound, ParameterError
from undirected.inference.evidence import Given
from undirected.inference.feasible import IMPOSSIBLE, RuleBook, Rules
from undirected.inference.junction_tree import CELL_BYTES, FEW_TRIES, TRIES, Plan, Planner, count_cells
from undirected.inference.protocols import Model
from undirected.kernels import backend
from undirected.kernels.types import Array
from undirected.work import Work

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

FEASIBLE_CELLS = 1 << 20  # table cells that telling whether anything is possible may take
SEARCH_SECONDS = 10.0  # for an assignment that keeps all infinite weights


class PreparedNetwork:
    """What engines need of a network whatever the evidence: its rules, the kernels' model, a planner. Made once for many questions."""

    def __init__(self, network: MarkovNetwork) -> None:
        self.network = network
        self.planner = Planner()
        self.rules = RuleBook(network) if np.isinf(network.weights).any() else None
        self._model: tuple[Model, float] | None = None

    def build_model(self, likelihood: dict[int, float]) -> tuple[Model, float]:
        """The kernels' model with likelihoods as further features, and the weight that stands for infinity in it."""
        if self._model is not None and not likelihood:
            return self._model
        features = self.network.features
        start, literals = features.start, features.literals
        weights, hard = self.network.stand_in_weights(float(np.abs(list(likelihood.values())).sum()) if likelihood else 0.0)
        if likelihood:
            extra = np.array(list(likelihood), dtype=np.int32)
            start = np.concatenate([start, start[-1] + np.arange(1, len(extra) + 1)])
            literals = np.concatenate([literals, extra])
            weights = np.concatenate([weights, list(likelihood.values())])
        model: Model = backend().module.Model(
            self.network.domain.n_states,
            np.ascontiguousarray(start),
            np.ascontiguousarray(literals),
            np.ascontiguousarray(weights, dtype=float),
        )
        if not likelihood:
            self._model = model, hard
        return model, hard


class ReducedNetwork:
    """The network that evidence leaves: the kernels' model, and the states that evidence and rules leave to each variable.

    Infinite weights (rules) become weights larger than all others together, ``hard``, so that an assignment which breaks one is told
    apart from every assignment that breaks none; ``constant`` takes out what they add to log-probabilities.
    """

    def __init__(self, prepared: PreparedNetwork, given: Given) -> None:
        self.network, self.domain = prepared.network, prepared.network.domain
        self.given = given
        self.asked = given.allowed  # before the rules have narrowed it
        self.model, self.hard = prepared.build_model(given.likelihood)
        self.rules = prepared.rules
        self.constant = 0.0 if self.rules is None else -self.hard * int((self.network.weights == np.inf).sum())
        self._planner = prepared.planner
        self._assignment: Array | None = None
        if self.rules is not None:
            forced = Rules(self.rules, given.allowed)
            if not forced.possible:
                raise ImpossibleEvidence(IMPOSSIBLE)
            self.given = Given(forced.mark_left(), given.likelihood)

    @property
    def evidence(self) -> Array:
        """Marks of the allowed states, as one row."""
        return np.ascontiguousarray(self.given.allowed[None, :], dtype=np.uint8)

    def plan(self, limit: float, work: Work, tries: int = TRIES) -> Plan:
        """How to sum out the open variables in parts of up to ``limit`` table cells; made once."""
        return self._planner.plan(self.model, self.evidence, limit, tries, work.seed)

    def plan_exact(self, what: str, work: Work) -> Plan:
        """A plan by which everything is summed out, or an error that tells how much memory that would take."""
        plan = self.plan(count_cells(work), work)
        if not plan.solvable.all():
            worst = float(plan.cells[~plan.solvable].max()) * CELL_BYTES
            raise ParameterError(
                f"{what} would need more than {worst / 2**30:,.1f} GiB for its tables (memory is {work.memory / 2**30:.3g} GiB); "
                "give more evidence, more memory, or choose a sampling method such as gibbs"
            )
        return plan

    def solve(self, plan: Plan) -> tuple[Array, float]:
        """Marginals by literal and the log partition function by a plan; NaN for parts that it does not solve."""
        marginals, log_z = plan.solve()
        total = log_z + self.constant
        if np.isfinite(total):
            self.check_possible(total)
        return marginals, total

    def find_expectations(self, plan: Plan) -> Array:
        """The probability of each feature of the network."""
        self.check_feasible(plan, plan.limit)
        return plan.find_expectations()[: len(self.network.features)]

    def check_feasible(self, plan: Plan, max_cells: float = FEASIBLE_CELLS) -> None:
        """Raise if no assignment meets the evidence and all rules, as far as that can be told cheaply."""
        if self.rules is not None and self._breaks(plan.maximise(min(max_cells, plan.limit))[0]):
            raise ImpossibleEvidence(IMPOSSIBLE)

    def check_feasible_alone(self, work: Work) -> None:
        """The same where no plan is needed for anything else."""
        if self.rules is not None:
            self.check_feasible(self.plan(min(FEASIBLE_CELLS, count_cells(work)), work, FEW_TRIES))

    def check_possible(self, log_z: float) -> None:
        """Raise if a log partition function tells that no assignment meets the evidence and all rules."""
        if self.rules is not None and log_z < -self.hard / 2:
            raise ImpossibleEvidence(IMPOSSIBLE)

    def find_assignment(self, work: Work, hint: Array | None = None) -> Array:
        """Some assignment that meets the evidence and all rules, remembered.

        Raises `NothingFound` where none was found in time, and `ImpossibleEvidence` where there is none.
        """
        if self._assignment is None:
            rng = np.random.default_rng(work.seed)
            if self.rules is None:
                self._assignment = self.draw_assignments(1, rng)[0]
            else:
                self._assignment = Rules(self.rules, self.given.allowed).search(work, rng, hint)
        if self._assignment is None:
            raise NothingFound(
                f"no assignment that meets the evidence and all features of infinite weight was found in {work.budget:g} s, which does "
                "not prove that there is none; allow more memory for exact work, or give more evidence"
            )
        return self._assignment

    def find_assignments(self, n: int, rng: np.random.Generator, work: Work) -> Array:
        """Up to so many assignments that keep all rules, found from random choices; those that a time limit allows."""
        found = [self.find_assignment(work.extend(SEARCH_SECONDS))]
        rules = None if self.rules is None else Rules(self.rules, self.given.allowed)
        work = work.extend(work.budget)
        while rules is not None and len(found) < n and not work.is_over:
            one = rules.search(work.extend(work.budget), rng, self.draw_assignments(1, rng)[0])
            if one is None:
                break
            found.append(one)
        return np.stack(found)

    def keeps_rules(self, assignments: Array) -> Array:
        """For each assignment, whether it breaks no feature of infinite weight."""
        return np.array([not self._breaks(one) for one in assignments], dtype=bool)

    def _breaks(self, assignment: Array) -> bool:
        """Whether a rule is broken, whatever the variables that are not known (-1) may be. Best assignments break one only if they have
        to."""
        if self.rules is None or not len(self.rules.features):
            return False
        features = self.rules.features
        states = assignment[features.variables]
        known = states >= 0
        holds = holds_in(self.domain, features.literals, states)
        false = np.logical_or.reduceat(known & ~holds, features.start[:-1])
        true = np.logical_and.reduceat(known & holds, features.start[:-1])
        return bool(np.where(self.rules.wanted, false, true).any())

    def under(self, allowed: Array) -> ReducedNetwork:
        """The same network under other evidence; likelihoods stay."""
        other = object.__new__(ReducedNetwork)
        other.__dict__.update(self.__dict__)
        other.given = Given(allowed, self.given.likelihood)
        other._assignment = None
        return other

    def freeze(self, variables: Array, work: Work) -> ReducedNetwork:
        """The same with some variables (of parts that need no sampling) fixed: at a best state where there are rules to keep, at their
        first allowed one otherwise."""
        allowed = self.given.allowed.copy()
        best = np.full(len(self.domain), -1)
        if self.rules is not None and len(variables):
            best = self.plan(count_cells(work), work, FEW_TRIES).maximise()[0]
        for v in variables:
            mine = get_slice(self.domain, v)
            first = int(best[v]) if best[v] >= 0 else int(np.argmax(allowed[mine]))
            allowed[mine] = 0
            allowed[mine.start + first] = 1
        return self.under(allowed)

    def open_variables(self) -> Array:
        """Variables with more than one state left."""
        return self._find_open(self.given.allowed)

    def asked_variables(self) -> Array:
        """Variables that the evidence leaves open, even where the rules then decide them."""
        return self._find_open(self.asked)

    def _find_open(self, allowed: Array) -> Array:
        left = np.add.reduceat(allowed.astype(np.int64), self.domain.base[:-1]) if len(self.domain) else np.zeros(0)
        return np.flatnonzero(left > 1)

    def draw_assignments(self, n: int, rng: np.random.Generator) -> Array:
        """Assignments drawn evenly among the allowed states: ``[n][variables]``."""
        out = np.empty((n, len(self.domain)), dtype=np.int16)
        for v in range(len(self.domain)):
            states = np.flatnonzero(self.given.allowed[get_slice(self.domain, v)])
            out[:, v] = states[0] if len(states) == 1 else rng.choice(states, n)
        return out

    def adapt_rows(self, codes: Array, rng: np.random.Generator) -> Array:
        """Rows of a table as assignments: every cell that contradicts the evidence, or is missing, is drawn anew."""
        out = codes.astype(np.int16)
        fresh = self.draw_assignments(len(out), rng)
        rows = np.arange(len(out))
        for v in range(len(self.domain)):
            column = out[:, v]
            bad = (column < 0) | (self.given.allowed[make_literal(self.domain, v, np.maximum(column, 0))] == 0)
            out[rows[bad], v] = fresh[bad, v]
        return out
