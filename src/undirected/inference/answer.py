"""The answer to a query."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.data.literals import get_slice
from undirected.data.variables import Domain
from undirected.kernels.types import Array
from undirected.work import StoppedBy

BAR_WIDTH = 24  # characters of a bar for probability one
ENDS = {StoppedBy.TIME: "time budget", StoppedBy.SWEEPS: "largest number of sweeps"}


@dataclass
class Answer:
    """Marginals with how they were found.

    Attributes
    ----------
    marginals : dict
        ``{variable: {state: probability}}``.
    standard_errors : dict
        Alike; zero where exact, NaN where the error is not known (approximations, or chains that have not mixed).
    method : str
    exact : bool
    mixed : bool or None
        Whether the chains agree; None where nothing was sampled.
    converged : bool
        Whether an iterative approximation came to rest.
    stopped_by : StoppedBy or None
        A text, ``time``, ``sweeps`` or ``interrupt``, if sampling ended before the precision was reached.
    seconds : float
    why : str
        Why this method, in a sentence.
    diagnostics : dict
        What the method tells beside: R-hat, effective samples, chains, sweeps.
    """

    marginals: dict[str, dict[str, float]]
    standard_errors: dict[str, dict[str, float]]
    method: str
    exact: bool
    mixed: bool | None
    seconds: float
    why: str
    diagnostics: dict[str, Any]
    converged: bool = True
    stopped_by: StoppedBy | None = None

    def __getitem__(self, variable: str) -> dict[str, float]:
        return self.marginals[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self.marginals)

    def __len__(self) -> int:
        return len(self.marginals)

    @property
    def largest_error(self) -> float:
        """The largest standard error; NaN if one is not known."""
        return max((e for states in self.standard_errors.values() for e in states.values()), key=_rank_error, default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The fields under the names of the command line's ``--json``."""
        errors = {v: {s: None if np.isnan(e) else e for s, e in states.items()} for v, states in self.standard_errors.items()}
        plain = {
            name: getattr(self, name) for name in ("method", "exact", "mixed", "converged", "stopped_by", "seconds", "why", "diagnostics")
        }
        return {"marginals": self.marginals, "standard_errors": errors, **plain}

    def to_frame(self) -> Any:
        """A pandas frame with a row per state (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        rows = [
            {"variable": v, "state": s, "probability": p, "standard_error": self.standard_errors[v][s]}
            for v, states in self.marginals.items()
            for s, p in states.items()
        ]
        return pd.DataFrame(rows, columns=["variable", "state", "probability", "standard_error"])

    def summary(self) -> str:
        """One line: method, error, time."""
        if self.exact:
            trust = "exact"
        elif self.mixed is False:
            trust = "NOT MIXED: chains from different starts disagree, so no error can be given"
        elif not self.converged:
            trust = "NOT CONVERGED: an approximation that did not come to rest"
        elif np.isnan(self.largest_error):
            trust = "an approximation of unknown error"
        else:
            trust = f"standard errors up to {self.largest_error:.2g}"
        if self.stopped_by is not None:
            end = "interrupted" if self.stopped_by == StoppedBy.INTERRUPT else f"the {ENDS[self.stopped_by]} ended before the precision"
            trust += f" ({end})"
        return f"{self.method}: {trust}; {self.seconds:.2g} s. {self.why}"

    def to_text(self, limit: int | None = None) -> str:
        """A table with a bar for each probability."""
        names = list(self.marginals)[:limit]
        left = max((len(v) for v in names), default=0)
        middle = max((len(s) for v in names for s in self.marginals[v]), default=0)
        lines = []
        for v in names:
            for k, (state, p) in enumerate(self.marginals[v].items()):
                error = self.standard_errors[v][state]
                shown = "" if self.exact else "  ±    ?" if np.isnan(error) else f"  ±{error:.4f}"
                bar = "█" * round(p * BAR_WIDTH)
                lines.append(f"{v if k == 0 else '':<{left}}  {state:<{middle}}  {p:.4f}{shown}  {bar}".rstrip())
        if limit is not None and len(self.marginals) > limit:
            lines.append(f"... and {len(self.marginals) - limit} more variables")
        return "\n".join([*lines, self.summary()])

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<Answer on {len(self)} variables, {self.summary()}>"

    def _repr_html_(self) -> str:
        cells = []
        for v, states in self.marginals.items():
            for k, (state, p) in enumerate(states.items()):
                bar = f"<div style='background:#4c78a8;height:0.8em;width:{100 * p:.1f}%'></div>"
                cells.append(
                    f"<tr><td>{html.escape(v) if k == 0 else ''}</td><td>{html.escape(state)}</td><td>{p:.4f}</td>"
                    f"<td style='width:12em'>{bar}</td></tr>"
                )
        return f"<div><table>{''.join(cells)}</table><small>{html.escape(self.summary())}</small></div>"


def name_values(domain: Domain, values: Array, variables: list[int]) -> dict[str, dict[str, float]]:
    """Values by literal as dicts by name of the variable and of the state."""
    out = {}
    for v in variables:
        mine = values[get_slice(domain, v)]
        out[domain[v].name] = dict(zip(domain[v].states, (float(x) for x in mine), strict=True))
    return out


def _rank_error(value: float) -> float:
    """Errors by size; one that is not known counts as the largest."""
    return float("inf") if np.isnan(value) else value
