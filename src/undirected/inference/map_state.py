"""The most probable assignments: exactly by elimination, else by simulated annealing or by climbing from many starts."""

from __future__ import annotations

import heapq
import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undirected.data.literals import get_slice
from undirected.data.variables import Domain
from undirected.errors import ImpossibleEvidence
from undirected.inference.junction_tree import FEW_TRIES, TRIES, Plan, count_cells, count_cheap_cells
from undirected.inference.reduced import SEARCH_SECONDS, ReducedNetwork
from undirected.inference.starts import climb, make_plain_assignments, make_sampler, run_schedule
from undirected.kernels.types import Array
from undirected.work import Work

METHODS = ("auto", "exact", "annealing", "icm")
CHAINS = 256
BRIEF_FROM = 20  # variables; with more, only those out of their first state are shown
COLDEST = 8.0  # inverse temperature at the end of annealing
ROW_SECONDS = 0.1  # that the best completion of a row may take, before annealing is preferred


@dataclass
class BestStates:
    """The most probable assignments, best first.

    ``states`` are the assignments, each a dict of states by variable; ``log_scores`` are their log-probabilities up to the partition
    function; ``exact`` tells whether no better one can exist.
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
        """The fields under the names of the command line's ``--json``."""
        return {name: value for name, value in self.__dict__.items() if name != "references"}

    def __str__(self) -> str:
        scored = enumerate(zip(self._describe(), self.log_scores, strict=True))
        lines = [f"{k + 1}. log score {score:.4f}: {shown}" for k, (shown, score) in scored]
        if len(self.states) > 1:
            lines.append("(from the second on: what differs from the first)")
        lines.append(
            f"{self.method}: {'exact' if self.exact else 'the best found, perhaps not the best there is'}; {self.seconds:.2g} s. {self.why}"
        )
        return "\n".join(lines)

    def _describe(self) -> list[str]:
        """The assignments in words: of a first one with many variables in their first state only what differs from that."""
        first = self.states[0]
        usual = [name for name in first if first[name] == self.references.get(name)]
        brief = len(first) > BRIEF_FROM and 2 * len(usual) > len(first)
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
            for shown, score in zip(self._describe(), self.log_scores, strict=True)
        )
        head = "<thead><tr><th>log score</th><th>most probable assignments (from the second on: what differs)</th></tr></thead>"
        return f"<div><table>{head}<tbody>{rows}</tbody></table><small>{html.escape(str(self).splitlines()[-1])}</small></div>"


def find_best(reduced: ReducedNetwork, k: int, method: str, sweeps: int, work: Work) -> BestStates:
    """The ``k`` most probable assignments by one of the methods."""
    if method in ("annealing", "icm"):
        reduced.check_feasible_alone(work)
        exact, why = False, "Asked for."
    else:
        limit = count_cheap_cells(work, work.budget / k)
        plan = reduced.plan_exact("an exact maximum", work) if method == "exact" else reduced.plan(limit, work)
        exact = bool(plan.solvable.all())
        if exact:
            method, why = "exact", plan.describe().capitalize() + "."
        else:
            method, why = "annealing", f"Too dense to be maximised exactly: {plan.describe()}."
            reduced.check_feasible(plan)
    if exact:
        codes, scores = find_k_best(reduced, k, plan, work)
        reduced.check_possible(float(scores[0]) + reduced.constant)
    else:
        codes, scores = climb_often(reduced, k, method, sweeps, work.extend(work.budget))
    scores = scores + reduced.constant
    possible = scores > -reduced.hard / 2  # of the k best, assignments that break a rule are none
    codes, scores = codes[possible], scores[possible]
    domain = reduced.domain
    states = [dict(zip(domain.names, _name_states(domain, one), strict=True)) for one in codes]
    references = {variable.name: variable.states[0] for variable in domain.variables}
    return BestStates(states, scores.tolist(), method, exact, 0.0, why, references)


def _name_states(domain: Domain, assignment: Array) -> list[str]:
    return [variable.states[int(code)] for variable, code in zip(domain.variables, assignment, strict=True)]


def find_k_best(reduced: ReducedNetwork, k: int, plan: Plan, work: Work) -> tuple[Array, Array]:
    """The ``k`` best assignments by splitting the rest of the space after each one found (Lawler 1972).

    Those that first differ from it in one variable make a part of their own, whose best is found again by elimination.
    """
    best, score = plan.maximise()
    heap = [(-score, 0, best, reduced.given.allowed)]
    made = 1
    out: list[Array] = []
    values: list[float] = []
    while heap and len(out) < k:
        value, _, best, marks = heapq.heappop(heap)
        out.append(best)
        values.append(-value)
        parts = _split_rest(reduced.domain, best, marks) if len(out) < k else []
        if parts:
            rows = np.ascontiguousarray(np.stack(parts), dtype=np.uint8)
            others, scores = reduced.model.maximise(rows, count_cells(work), TRIES, work.seed, work.threads)
            for found, score, part in zip(np.asarray(others), np.asarray(scores), parts, strict=True):
                heapq.heappush(heap, (-float(score), made, found, part))
                made += 1
    return np.array(out), np.array(values)


def _split_rest(domain: Domain, best: Array, marks: Array) -> list[Array]:
    """What is left of the marked assignments without the best one, cut by the first variable in which they differ from it."""
    parts = []
    kept = marks.copy()
    for v in np.flatnonzero(np.add.reduceat(marks.astype(np.int64), domain.base[:-1]) > 1):
        mine = get_slice(domain, int(v))
        other = kept.copy()
        other[mine.start + int(best[v])] = 0
        if other[mine].any():
            parts.append(other)
        kept[mine] = 0
        kept[mine.start + int(best[v])] = 1
    return parts


def climb_often(reduced: ReducedNetwork, k: int, method: str, sweeps: int, work: Work) -> tuple[Array, Array]:
    """The best assignments that many chains end in: after cooling down, or by climbing alone (ICM). Where a first try is not confirmed by
    a second of twice the length, and there is time, longer ones follow. All keep the rules."""
    half = work.share(0.5)
    found, scores = _climb_once(reduced, k, method, sweeps, work.seed, half)
    while work.limited and not half.is_over:
        began, sweeps = work.now(), 2 * sweeps
        more, more_scores = _climb_once(reduced, k, method, sweeps, work.seed + sweeps, work)
        confirmed = bool(len(scores)) and abs(more_scores[0] - scores[0]) <= 1e-9 * max(1.0, abs(float(scores[0])))
        found, first = np.unique(np.concatenate([found, more]), axis=0, return_index=True)
        scores = np.concatenate([scores, more_scores])[first]
        order = np.argsort(-scores, kind="stable")[:k]
        found, scores = found[order], scores[order]
        if confirmed or 2 * (work.now() - began) > work.left():
            break
    return found, scores


def _climb_once(reduced: ReducedNetwork, k: int, method: str, sweeps: int, seed: int, work: Work) -> tuple[Array, Array]:
    """The ``k`` best of one try."""
    rng = np.random.default_rng(seed)
    sampler = make_sampler(reduced, reduced.draw_assignments(max(CHAINS, k), rng), work)
    if method == "annealing":
        run_schedule(sampler, np.geomspace(0.1, COLDEST, sweeps).astype(np.float32), work)
    found, scores = climb(reduced, np.concatenate([sampler.states(), make_plain_assignments(reduced)]), work)
    if reduced.rules is not None:
        kept = scores + reduced.constant > -reduced.hard / 2
        if kept.any():
            found, scores = found[kept], scores[kept]
        else:
            one = reduced.find_assignment(work.extend(SEARCH_SECONDS), found[int(np.argmax(scores))])
            found, scores = climb(reduced, one[None], work.extend())
    found, first = np.unique(found, axis=0, return_index=True)
    order = np.argsort(-scores[first], kind="stable")[:k]
    return found[order], scores[first][order]


def complete_rows(reduced: ReducedNetwork, marks: Array, work: Work, sweeps: int = 200) -> Array:
    """The best assignment for each row of evidence; exact where that is cheap, annealed where not."""
    found, _ = reduced.model.maximise(marks, count_cheap_cells(work, ROW_SECONDS), FEW_TRIES, work.seed, work.threads)
    found = np.array(found)
    for r in np.flatnonzero((found < 0).any(axis=1)):
        found[r] = climb_often(reduced.under(marks[r]), 1, "annealing", sweeps, work)[0][0]
    if reduced.rules is not None and not reduced.keeps_rules(found).all():
        raise ImpossibleEvidence("a row of the table breaks a feature of infinite weight, so that nothing completes it; leave it out")
    return found
