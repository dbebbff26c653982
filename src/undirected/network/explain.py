"""Which features move a conditional probability, and by how much."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.literals import get_variable, holds_in
from undirected.errors import DataError
from undirected.features.conjunction import format_feature
from undirected.kernels.types import Array

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork


@dataclass
class Explanation:
    """The log-odds of a variable's state against another, given the rest of a row, as a sum over features.

    ``contributions`` lists features with what they add, largest first; they add up to ``log_odds`` exactly (infinite ones for and
    against cancel each other).
    """

    variable: str
    state: str
    against: str
    log_odds: float
    probability: float
    contributions: list[tuple[str, float]]

    def to_dict(self) -> dict[str, Any]:
        """The fields under the names of the command line's ``--json``."""
        rows = [{"feature": text, "log_odds": value} for text, value in self.contributions]
        return {**self.__dict__, "contributions": rows}

    def to_text(self, limit: int | None = 20) -> str:
        """A line for the sum, and one for each of the largest parts."""
        shown = self.contributions if limit is None else self.contributions[:limit]
        head = f"log odds of {self.variable}={self.state} against {self.against}: {self.log_odds:+.4f} (probability {self.probability:.4f})"
        lines = [head, *(f"  {value:+9.4f}  {text}" for text, value in shown)]
        rest = self.contributions[len(shown) :]
        if rest:
            lines.append(f"  {sum(value for _, value in rest):+9.4f}  {len(rest)} more features")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:right'>{value:+.4f}</td><td style='text-align:left'>{html.escape(text)}</td></tr>"
            for text, value in self.contributions[:20]
        )
        return f"<div>{html.escape(self.to_text(0).splitlines()[0])}<table>{rows}</table></div>"


def explain(
    network: MarkovNetwork,
    variable: str,
    row: Mapping[str, str] | Sequence[int] | Array,
    state: str | None = None,
    against: str | None = None,
) -> Explanation:
    """See `MarkovNetwork.explain`."""
    domain = network.domain
    v = domain.index(variable)
    states = domain[v].states
    if len(states) < 2:
        raise DataError(f"variable {variable!r} has one state only, so there is nothing to explain")
    p = network.conditional(variable, row)
    known = {int(u): 0 for u in np.flatnonzero(domain.n_states == 1)} | network.known_states(row)
    chosen = state if state is not None else states[known[v]] if v in known else max(p, key=lambda s: p[s])
    a = domain[v].index(chosen)
    others = [s for s in states if s != chosen]
    rival = against if against is not None else max(others, key=lambda s: p[s])
    b = domain[v].index(rival)
    if a == b:
        raise DataError(f"{chosen!r} against itself: name two different states of {variable!r}")
    features, weights = network.features, network.weights
    found: list[tuple[str, float]] = []
    for j in np.unique(features.owner[features.variables == v]):
        literals = features[int(j)]
        owners = [int(get_variable(domain, x)) for x in literals]
        holds = all(holds_in(domain, x, known[u]) for x, u in zip(literals, owners, strict=True) if u != v)
        gains = [all(holds_in(domain, x, s) for x, u in zip(literals, owners, strict=True) if u == v) for s in (a, b)]
        if holds and gains[0] != gains[1] and weights[j]:
            found.append((format_feature(literals, domain), float(weights[j]) * (gains[0] - gains[1])))
    found.sort(key=lambda pair: (-abs(pair[1]), pair[0]))
    return Explanation(variable, chosen, rival, _add_up([value for _, value in found]), p[chosen], found)


def _add_up(values: list[float]) -> float:
    """Sum numbers, in which an infinite part for and one against cancel each other."""
    endless = sum(value == np.inf for value in values) - sum(value == -np.inf for value in values)
    return float(np.sum([value for value in values if np.isfinite(value)])) if endless == 0 else np.inf * endless
