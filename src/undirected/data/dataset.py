"""A coded table: rows of states with weights."""

from __future__ import annotations

import csv
import functools
import hashlib
import html
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from undirected.data import packed
from undirected.data.merging import merge_domains
from undirected.data.variables import MISSING_STATE, Domain, Variable
from undirected.errors import DataError, ParameterError
from undirected.kernels.types import Array

SHOWN_ROWS, SHOWN_COLUMNS = 10, 20  # in a notebook
MISSING_POLICIES = ("error", "drop", "mode", "state")
LEARN = "learn"  # in place of one of them: missing cells stay, and learners draw completions of them


class Dataset:
    """Rows of states over a domain.

    ``codes[r, v]`` is the state of variable ``v`` in row ``r``, or -1 where it is unknown; ``weights[r]`` is how much
    the row counts. ``lines`` and ``source`` remember where rows came from, for messages.
    """

    def __init__(
        self,
        domain: Domain,
        codes: Array,
        weights: Array | None = None,
        source: str = "the table",
        lines: Sequence[int] | Array | None = None,
    ) -> None:
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.shape[1] != len(domain):
            raise DataError(f"{source}: codes of shape {codes.shape} do not fit {len(domain)} variables")
        if codes.dtype.kind not in "iu":
            raise DataError(f"{source}: codes are whole numbers, not {codes.dtype}; read_data codes other tables")
        if codes.size:
            beyond = (codes.max(axis=0) >= domain.n_states) | (codes.min(axis=0) < -1)
            if beyond.any():
                v = int(np.argmax(beyond))
                raise DataError(f"{source}: variable {domain[v].name!r} has a code beyond its {domain.n_states[v]} states")
        self.domain = domain
        self.codes = codes.astype(code_type(domain), copy=False)
        self.weights = np.ones(len(codes)) if weights is None else check_weights(weights, len(codes), source)
        self.source = source
        self.lines = lines

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"<Dataset of {len(self):,} rows, {len(self.domain)} variables, from {self.source}>"

    def _repr_html_(self) -> str:
        """The first rows and columns, as a notebook shows them."""
        shown = self.domain.variables[:SHOWN_COLUMNS]
        more = "<th>...</th>" if len(self.domain) > len(shown) else ""
        head = "".join(f"<th>{html.escape(v.name)}</th>" for v in shown) + more
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape((*v.states, '')[code])}</td>" for v, code in zip(shown, row, strict=False)) + "</tr>"
            for row in self.codes[:SHOWN_ROWS].tolist()
        )
        note = f"{len(self):,} rows ({self.total_weight:g} by weight), {len(self.domain)} variables, from {self.source}"
        return f"<div><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><small>{html.escape(note)}</small></div>"

    @classmethod
    def merge(cls, datasets: Iterable[Dataset]) -> Dataset:
        """Join tables over the same variables, row after row; weights and line numbers are kept.

        Variables are matched by name and stand in the order of the first table (by position where there are no names). States that only
        some of the tables have are added as `merge_domains` tells; bins must be the same in all.
        """
        tables = list(datasets)
        if not tables:
            raise DataError("there are no tables to merge")
        domain = merge_domains([table.domain for table in tables], [table.source for table in tables])
        codes = [_recode(table, domain) for table in tables]
        kept = all(table.lines is not None and table.source == tables[0].source for table in tables)
        sources = list(dict.fromkeys(table.source for table in tables))
        return cls(
            domain,
            np.concatenate(codes),
            np.concatenate([table.weights for table in tables]),
            ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else ""),
            np.concatenate([np.asarray(table.lines) for table in tables]) if kept else None,
        )

    @property
    def n_rows(self) -> int:
        return len(self.codes)

    @property
    def total_weight(self) -> float:
        return float(self.weights.sum())

    @functools.cached_property
    def has_missing(self) -> bool:
        return bool((self.codes < 0).any())

    @functools.cached_property
    def columns(self) -> Array:
        """Bit columns of all literals."""
        return packed.pack(self.codes, self.domain.n_states)

    @functools.cached_property
    def _groups(self) -> tuple[Array, Array]:
        """First row and number of each distinct row, in an order that depends on the rows' contents alone."""
        rng = np.random.default_rng(20_100_412)
        keys = rng.integers(1 << 63, size=(2, len(self.domain)), dtype=np.uint64) | np.uint64(1)
        hashes = np.zeros((2, len(self)), dtype=np.uint64)
        for v in range(len(self.domain)):
            cell = self.codes[:, v].astype(np.uint64) + np.uint64(1)
            hashes += keys[:, v : v + 1] * (cell * cell * np.uint64(0x9E3779B97F4A7C15) + cell)
        order = np.lexsort(hashes)
        new = np.ones(len(self), dtype=bool)
        new[1:] = (hashes[:, order[1:]] != hashes[:, order[:-1]]).any(axis=0)
        group = np.empty(len(self), dtype=np.int64)
        group[order] = np.cumsum(new) - 1
        return order[new], group

    @property
    def n_distinct(self) -> int:
        return len(self._groups[0])

    @property
    def group(self) -> Array:
        """For each row, its place among the rows of `distinct`."""
        return np.argsort(self._distinct_order)[self._groups[1]]

    @functools.cached_property
    def _distinct_order(self) -> Array:
        first = self.codes[self._groups[0]]
        # Rows as strings of bytes, largest digit first, sort like rows of codes, and much faster.
        shifted = np.ascontiguousarray((first + 1).astype(">u2" if first.dtype.itemsize > 1 else np.uint8))
        if not shifted.size:
            return np.arange(len(first))
        return np.argsort(shifted.view(np.dtype((np.void, shifted.itemsize * shifted.shape[1]))).ravel(), kind="stable")

    @functools.cached_property
    def distinct(self) -> Dataset:
        """Every distinct row once, sorted, with the weights of its copies added up; rows of weight zero are gone."""
        first, group = self._groups
        order = self._distinct_order
        weights = np.bincount(group, weights=self.weights, minlength=len(first))[order]
        keep = weights > 0
        table = Dataset(self.domain, self.codes[first[order][keep]], weights[keep], self.source)
        table.__dict__["distinct"] = table  # it is distinct already
        return table

    def literal_counts(self) -> Array:
        """Add up the weights of the rows in which each literal is true."""
        table = self.distinct
        states = enumerate(self.domain.n_states.tolist())
        counts = [np.bincount(table.codes[:, v], weights=table.weights, minlength=n) for v, n in states]
        return np.concatenate([np.zeros(0), *counts])

    def pair_counts(self) -> Array:
        """Add up the weights of the rows in which two literals are both true, for all pairs: ``[n_literals][n_literals]``."""
        table, base = self.distinct, self.domain.base[:-1]
        states = np.setdiff1d(np.arange(self.domain.n_literals), base)  # first states follow from the others and the total
        variable = self.domain.literal_variable[states]
        counts = np.zeros((len(states) + 1, len(states) + 1))
        for rows in np.array_split(np.arange(len(table)), len(table) // 8192 + 1):
            held = np.ones((len(rows), len(states) + 1))
            held[:, :-1] = table.codes[rows][:, variable] == (states - base[variable])
            counts += held.T @ (held * table.weights[rows, None])
        # Every literal as a sum of those states and the constant.
        out = np.zeros((self.domain.n_literals, len(states) + 1))
        out[states, np.arange(len(states))] = 1
        out[base[variable], np.arange(len(states))] = -1
        out[base, -1] = 1
        return np.asarray(np.maximum(out @ counts @ out.T, 0.0))

    def to_csv(self, codes: bool = False) -> str:
        """Write the rows as text: names and states with commas between them, or ``codes`` alone as in Libra's ``.data`` files.

        Missing cells are empty (``*`` among codes); row weights are left out.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        if not codes:
            writer.writerow(self.domain.names)
        texts = [[*(map(str, range(len(v.states))) if codes else v.states), "*" if codes else ""] for v in self.domain.variables]
        for row in self.codes.tolist():
            writer.writerow([text[code] for text, code in zip(texts, row, strict=True)])  # -1 is the last text
        return out.getvalue()

    def to_frame(self) -> Any:
        """Write the rows as a pandas frame of states, None where a cell is missing (needs pandas)."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        columns = {v.name: [(*v.states, None)[code] for code in self.codes[:, k].tolist()] for k, v in enumerate(self.domain.variables)}
        return pd.DataFrame(columns)

    def subset(self, rows: Array) -> Dataset:
        """Take some of the rows, by number."""
        lines = None if self.lines is None else np.asarray(self.lines)[rows]
        return Dataset(self.domain, self.codes[rows], self.weights[rows], self.source, lines)

    def shards(self, n: int) -> Iterator[Dataset]:
        """Cut the rows into ``n`` consecutive pieces of about equal size; sums over pieces are sums over rows."""
        for rows in np.array_split(np.arange(len(self)), n):
            yield self.subset(rows)

    def digest(self) -> str:
        """A fingerprint of the domain, the codes and the weights; equal tables have equal ones."""
        out = hashlib.sha256(repr([(v.name, v.states) for v in self.domain.variables]).encode())
        out.update(np.ascontiguousarray(self.codes, dtype=np.int16).tobytes())
        out.update(np.ascontiguousarray(self.weights).tobytes())
        return out.hexdigest()[:32]

    def where(self, row: int) -> str:
        """Name the place of a row: 'file, line 12' or 'the table, row 3' (counted from 1)."""
        if self.lines is not None:
            return f"{self.source}, line {int(self.lines[row])}"
        return f"{self.source}, row {row + 1}"

    def require_complete(self, what: str) -> None:
        """Raise where cells are missing, naming the first ones and the ways out."""
        if not self.has_missing:
            return
        bad = np.argwhere(self.codes[: self._first_missing_rows()] < 0)[:3]
        cells = "; ".join(f"{self.where(int(r))}, column {self.domain[int(v)].name!r}" for r, v in bad)
        total = int((self.codes < 0).sum())
        raise DataError(
            f"{what} needs complete rows, but {total:,} cells are missing, the first in {cells}. "
            "Choose --missing drop (leave out such rows), mode (fill in the most frequent state) or state (a state of its own)."
        )

    def _first_missing_rows(self) -> int:
        rows = np.flatnonzero((self.codes < 0).any(axis=1))[:3]
        return int(rows[-1]) + 1

    def resolve_missing(self, policy: str, domain_given: bool = False) -> Dataset:
        """Do away with missing cells by one of `MISSING_POLICIES`; ``error`` and ``learn`` leave the table as it is. No state is added to a
        domain that was given."""
        if policy not in (LEARN, *MISSING_POLICIES):
            raise ParameterError(f"missing={policy!r} is not known; choose one of {', '.join((LEARN, *MISSING_POLICIES))}")
        if policy in ("error", LEARN) or not self.has_missing:
            return self
        missing = self.codes < 0
        if policy == "drop":
            complete = np.flatnonzero(~missing.any(axis=1))
            if not len(complete):
                raise DataError(f"{self.source}: every row has a missing cell, so dropping them leaves none; try mode or state")
            return self.subset(complete)
        variables = list(self.domain.variables)
        codes = self.codes.astype(np.int32)
        for v in np.flatnonzero(missing.any(axis=0)):
            gaps = missing[:, v]
            if policy == "state" and domain_given:
                raise tell_missing_is_no_state(self.where(int(np.argmax(gaps))), variables[v].name)
            if policy == "state" and MISSING_STATE in variables[v].states:
                codes[gaps, v] = variables[v].index(MISSING_STATE)
            elif policy == "state":
                variables[v] = Variable(variables[v].name, (*variables[v].states, MISSING_STATE), variables[v].edges)  # no order any more
                codes[gaps, v] = len(variables[v].states) - 1
            else:
                known = np.bincount(codes[~gaps, v], weights=self.weights[~gaps], minlength=len(variables[v].states))
                codes[gaps, v] = int(np.argmax(known))
        return Dataset(Domain(variables, self.domain.named), codes, self.weights, self.source, self.lines)


def _recode(data: Dataset, domain: Domain) -> Array:
    """Translate the codes of a table into those of a domain that has all its variables and states."""
    if data.domain == domain:
        return data.codes
    codes = np.empty(data.codes.shape, dtype=code_type(domain), order="F")
    for v, variable in enumerate(domain.variables):
        k = data.domain.index(variable.name) if domain.named else v
        place = [variable.index(state) for state in data.domain[k].states]
        codes[:, v] = np.array([*place, -1], dtype=codes.dtype)[data.codes[:, k]]  # -1 is the last
    return codes


def code_type(domain: Domain) -> type[np.signedinteger]:
    """Choose the smallest integers that hold every code and -1."""
    most = int(domain.n_states.max()) if len(domain) else 1
    return np.int8 if most <= 127 else np.int16


def tell_missing_is_no_state(where: str, variable: str) -> DataError:
    """Make the error for a missing cell that was to be a state of a domain that has no such state."""
    return DataError(
        f"{where}, column {variable!r}: a missing cell where the training data had none, "
        "so that missing is no state there; choose --missing drop or mode, or learn with a domain that has it"
    )


def check_weights(weights: Array, n: int, source: str) -> Array:
    """Return row weights as numbers; raise unless there is one a row, finite and not negative."""
    weights = np.asarray(weights, dtype=float)
    if weights.shape != (n,):
        raise DataError(f"{source}: {weights.size} row weights for {n} rows; give one weight a row")
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{source}: the weight of row {row + 1} is {weights[row]}; weights must be finite and not negative")
    return weights
