"""The most probable states: exactly by elimination, else by simulated annealing or by climbing from many starts."""

from __future__ import annotations

import heapq
import html
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.errors import ImpossibleEvidence, check_number, check_work
from undirected.inference.engine import check_method
from undirected.inference.evidence import Evidence
from undirected.inference.problem import TRIES, Problem
from undirected.inference.starts import climb, make_sampler, plain_states, run_schedule
from undirected.kernels.types import Array
from undirected.work import MEMORY

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

METHODS = ("auto", "exact", "annealing", "icm")
CHAINS = 256
MANY = 20  # variables from which only those out of their first state are shown
COLDEST = 8.0  # inverse temperature at the end of annealing


@dataclass
class BestStates:
    """The most probable states, best first.

    ``states`` are rows by name, ``log_scores`` their log-probabilities up to the partition function; ``exact`` tells whether no
    better one can exist.
    """

    states: list[dict[str, str]]
    log_scores: list[float]
    method: str
    exact: bool
    seconds: float
    why: str
    references: dict[str, str] = field(default_factory=dict, repr=False)  # each variable's first state

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, k: int) -> dict[str, str]:
        return self.states[k]

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "references"}

    def __str__(self) -> str:
        lines = [
            f"{k + 1}. log score {score:.4f}: {shown}" for k, (shown, score) in enumerate(zip(self._shown(), self.log_scores, strict=True))
        ]
        if len(self.states) > 1:
            lines.append("(from the second on: what differs from the first)")
        lines.append(
            f"{self.method}: {'exact' if self.exact else 'the best found, perhaps not the best there is'}; {self.seconds:.2g} s. {self.why}"
        )
        return "\n".join(lines)

    def _shown(self) -> list[str]:
        """The assignments in words: of a first one with many variables in their first state only what differs from that."""
        first = self.states[0]
        usual = [name for name in first if first[name] == self.references.get(name)]
        brief = len(first) > MANY and 2 * len(usual) > len(first)
        left_out = f" (and {len(usual):,} variables in their first state)" if brief else ""
        out = []
        for k, state in enumerate(self.states):
            names = [n for n in state if state[n] != first[n]] if k else [n for n in state if not (brief and n in set(usual))]
            told = ", ".join(f"{n}={state[n]}" for n in names)
            out.append(told + left_out if k == 0 and told else told or "all in their first state")
        return out

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:right'>{score:.4f}</td><td style='text-align:left'>{html.escape(shown)}</td></tr>"
            for shown, score in zip(self._shown(), self.log_scores, strict=True)
        )
        head = "<thead><tr><th>log score</th><th>most probable assignments (from the second on: what differs)</th></tr></thead>"
        return f"<div><table>{head}<tbody>{rows}</tbody></table><small>{html.escape(str(self).splitlines()[-1])}</small></div>"


def map_state(
    network: MarkovNetwork,
    evidence: Evidence = None,
    k: int = 1,
    method: str = "auto",
    *,
    sweeps: int = 300,
    time_budget: float | None = 10.0,
    memory: int = MEMORY,
    threads: int | None = None,
    seed: int = 0,
) -> BestStates:
    """See `MarkovNetwork.map_state`."""
    began = time.monotonic()
    check_method(method, METHODS)
    check_number("k", k, 1, whole=True)
    check_work(threads, memory, time_budget, seed)
    problem = Problem(network, evidence, memory, threads, seed)
    cheap = problem.cheap_cells() if time_budget is None else problem.cheap_cells(time_budget / k)
    parts = problem.require_exact("an exact maximum") if method == "exact" else problem.parts(cheap)
    exact = method == "exact" or (method == "auto" and bool(parts.solvable.all()))
    if exact:
        codes, scores = k_best(problem, k)
        why = parts.told().capitalize() + "."
        method = "exact"
    else:
        why = "Asked for." if method != "auto" else f"Too dense to be maximised exactly: {parts.told()}."
        method = "annealing" if method == "auto" else method
        problem.check_feasible()
        codes, scores = climbed(problem, k, method, sweeps, time_budget)
    scores = scores + problem.constant
    if exact:
        problem.check_possible(float(scores[0]))
    possible = scores > -problem.hard / 2  # of the k best, states that break a rule are none
    codes, scores = codes[possible], scores[possible]
    states = [dict(zip(network.domain.names, named(problem, row), strict=True)) for row in codes]
    references = {variable.name: variable.states[0] for variable in network.domain.variables}
    return BestStates(states, scores.tolist(), method, exact, time.monotonic() - began, why, references)


def named(problem: Problem, row: Array) -> list[str]:
    return [variable.states[int(code)] for variable, code in zip(problem.domain.variables, row, strict=True)]


def k_best(problem: Problem, k: int) -> tuple[Array, Array]:
    """The ``k`` best states by splitting the rest of the space after each one found (Lawler 1972): the states that first differ
    from it in one variable make a part of their own, whose best is found again by elimination."""
    base = problem.domain.base

    def best(marks: list[Array]) -> tuple[Array, Array]:
        rows = np.ascontiguousarray(np.stack(marks), dtype=np.uint8)
        states, scores = problem.model.maximise(rows, problem.max_cells, TRIES, problem.seed, problem.threads)
        return np.asarray(states), np.asarray(scores)

    states, scores = best([problem.given.allowed])
    heap = [(-float(scores[0]), 0, states[0], problem.given.allowed)]
    made = 1
    out: list[Array] = []
    values: list[float] = []
    while heap and len(out) < k:
        value, _, state, marks = heapq.heappop(heap)
        out.append(state)
        values.append(-value)
        if len(out) == k:
            break
        parts = []
        kept = marks.copy()
        for v in np.flatnonzero(np.add.reduceat(marks.astype(np.int64), base[:-1]) > 1):
            mine = slice(int(base[v]), int(base[v + 1]))
            other = kept.copy()
            other[mine.start + int(state[v])] = 0
            if other[mine].any():
                parts.append(other)
            kept[mine] = 0
            kept[mine.start + int(state[v])] = 1
        if parts:
            states, scores = best(parts)
            for found, score, part in zip(states, scores, parts, strict=True):
                heapq.heappush(heap, (-float(score), made, found, part))
                made += 1
    return np.array(out), np.array(values)


def climbed(problem: Problem, k: int, method: str, sweeps: int, time_budget: float | None = None) -> tuple[Array, Array]:
    """The best assignments that many chains end in: after cooling down, or by climbing alone (ICM). Where a first try is not confirmed by
    a second of twice the length, and there is time, longer ones follow. All keep the rules."""
    deadline = None if time_budget is None else time.monotonic() + time_budget
    half = np.inf if time_budget is None else time.monotonic() + time_budget / 2
    states, scores = _climb_once(problem, k, method, sweeps, problem.seed, half)
    while deadline is not None and time.monotonic() < half:
        began, sweeps = time.monotonic(), 2 * sweeps
        more, more_scores = _climb_once(problem, k, method, sweeps, problem.seed + sweeps, deadline)
        confirmed = bool(len(scores)) and abs(more_scores[0] - scores[0]) <= 1e-9 * max(1.0, abs(float(scores[0])))
        states, first = np.unique(np.concatenate([states, more]), axis=0, return_index=True)
        scores = np.concatenate([scores, more_scores])[first]
        order = np.argsort(-scores, kind="stable")[:k]
        states, scores = states[order], scores[order]
        if confirmed or time.monotonic() + 2 * (time.monotonic() - began) > deadline:
            break
    return states, scores


def _climb_once(problem: Problem, k: int, method: str, sweeps: int, seed: int, deadline: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    sampler = make_sampler(problem, problem.random_states(max(CHAINS, k), rng))
    if method == "annealing":
        run_schedule(sampler, np.geomspace(0.1, COLDEST, sweeps).astype(np.float32), problem.threads, deadline)
    states, scores = climb(problem, np.concatenate([sampler.states(), plain_states(problem)]), deadline)
    if problem.rules is not None:
        kept = scores + problem.constant > -problem.hard / 2
        if kept.any():
            states, scores = states[kept], scores[kept]
        else:
            states, scores = climb(problem, problem.assignment(states[int(np.argmax(scores))])[None])
    states, first = np.unique(states, axis=0, return_index=True)
    order = np.argsort(-scores[first], kind="stable")[:k]
    return states[order], scores[first][order]


def best_rows(problem: Problem, marks: Array, sweeps: int = 200) -> Array:
    """The best state for each row of evidence; exact where that is cheap, annealed where not."""
    states, _ = problem.model.maximise(marks, problem.cheap_cells(0.1), 2, problem.seed, problem.threads)
    states = np.array(states)
    for r in np.flatnonzero((states < 0).any(axis=1)):
        states[r] = climbed(problem.under(marks[r]), 1, "annealing", sweeps)[0][0]
    if problem.rules is not None and not problem.keeps_rules(states).all():
        raise ImpossibleEvidence("a row of the table breaks a feature of infinite weight, so that nothing completes it; leave it out")
    return states
