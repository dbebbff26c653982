"""Filling in what is missing, and predicting one variable from the others."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.literals import get_slice
from undirected.data.raw import RawColumn, RawTable
from undirected.data.readers import read_data, read_raw
from undirected.inference import gibbs
from undirected.inference.evidence import mark_rows
from undirected.inference.junction_tree import count_cells
from undirected.inference.map_state import complete_rows
from undirected.inference.reduced import ReducedNetwork
from undirected.inference.rows import cut_rows, find_distinct, find_row_marginals
from undirected.kernels.types import Array
from undirected.work import Work

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

METHODS = ("map", "sample", "marginal")


def draw_rows(reduced: ReducedNetwork, n: int, work: Work, sweeps: int, data: Array | None = None) -> Dataset:
    """A table drawn from a network: exactly where memory allows, else one row from each of ``n`` Gibbs chains."""
    plan = reduced.plan(count_cells(work), work)
    reduced.check_feasible(plan)
    codes = plan.draw(n, work).copy()
    open_ones = (codes < 0).any(axis=0)
    how = "exact samples"
    if open_ones.any():
        rest = reduced.freeze(np.setdiff1d(reduced.open_variables(), np.flatnonzero(open_ones)), work)
        codes[:, open_ones] = gibbs.draw(rest, n, work, sweeps=sweeps, data=data)[:, open_ones]
        how = f"samples by Gibbs sampling, {sweeps} sweeps each"
    return Dataset(reduced.domain, codes, source=how)


def read_partial(network: MarkovNetwork, data: Any, absent: str | None = None, unknown: str = "error") -> Dataset:
    """Read a table over the network's variables in which cells may be missing, and the column of one variable absent."""
    if isinstance(data, Dataset):
        return read_data(data, domain=network.domain, unknown=unknown)
    raw = read_raw(data)
    empty = RawColumn([""], np.zeros(raw.n_rows, dtype=np.int64))
    if absent is not None and raw.names is not None and network.domain.named and absent not in raw.names:
        raw = RawTable([*raw.columns, empty], [*raw.names, absent], raw.source, raw.weights, raw.lines)
    elif absent is not None and raw.names is None and len(raw.columns) == len(network.domain) - 1:
        columns = list(raw.columns)
        columns.insert(network.domain.index(absent), empty)
        raw = RawTable(columns, None, raw.source, raw.weights, raw.lines)
    return read_data(raw, domain=network.domain, unknown=unknown)


def complete(reduced: ReducedNetwork, table: Dataset, method: str, work: Work) -> Dataset:
    """A table with its missing cells filled in."""
    domain = reduced.domain
    codes = table.codes.astype(np.int16)
    rows = np.flatnonzero((codes < 0).any(axis=1))
    for piece in cut_rows(len(rows), domain.n_literals) if len(rows) else []:
        marks = mark_rows(domain, codes[rows[piece]])
        if method == "sample":
            codes[rows[piece]] = _draw_completions(reduced, marks, piece, work)
            continue
        distinct, place = find_distinct(marks)
        filled = complete_rows(reduced, distinct, work) if method == "map" else _take_likeliest(reduced, distinct, work)
        codes[rows[piece]] = filled[place]
    return Dataset(domain, codes, table.weights, f"{table.source}, completed", table.lines)


def _take_likeliest(reduced: ReducedNetwork, marks: Array, work: Work) -> Array:
    """Each variable's most probable state, on its own."""
    found = find_row_marginals(reduced, marks, work)
    states = [np.argmax(found.marginals[:, get_slice(reduced.domain, v)], axis=1) for v in range(len(reduced.domain))]
    return np.stack(states, axis=1)[found.place]


def _draw_completions(reduced: ReducedNetwork, marks: Array, numbers: Array, work: Work) -> Array:
    """An assignment drawn for each row, whose number makes its seed."""
    out = np.empty((len(marks), len(reduced.domain)), dtype=np.int16)
    for r, (row, number) in enumerate(zip(marks, numbers.tolist(), strict=True)):
        mine = replace(work, seed=int(np.random.SeedSequence((work.seed, number)).generate_state(1)[0]))
        single = reduced.under(row)
        plan = single.plan(count_cells(mine), mine)
        single.check_feasible(plan)
        codes = plan.draw(1, mine)[0].copy()
        if (codes < 0).any():
            codes[codes < 0] = gibbs.draw(single, 4, mine)[0][codes < 0]
        out[r] = codes
    return out


def predict(reduced: ReducedNetwork, codes: Array, v: int, work: Work) -> Array:
    """P(variable = state | the other cells of the row) by row and state."""
    codes = codes.astype(np.int16)
    codes[:, v] = -1
    mine = get_slice(reduced.domain, v)
    out = np.empty((len(codes), mine.stop - mine.start))
    for piece in cut_rows(len(codes), reduced.domain.n_literals):
        found = find_row_marginals(reduced, mark_rows(reduced.domain, codes[piece]), work)
        out[piece] = found.marginals[:, mine][found.place]
    return out


def write_filled(raw: RawTable, network: MarkovNetwork, table: Dataset, full: Dataset) -> tuple[str, int]:
    """A raw table as CSV text with its missing cells filled in and all others as they were; how many were filled."""
    names = raw.names or network.domain.names
    place = {name: v for v, name in enumerate(network.domain.names)} if network.domain.named and raw.names else None
    columns, cells = [], 0
    for k, column in enumerate(raw.columns):
        texts = [column.texts[code] for code in column.codes.tolist()]
        v = k if place is None else place.get(names[k])
        if v is not None:
            states = network.domain[v].states
            for r in np.flatnonzero(table.codes[:, v] < 0):
                texts[r] = states[int(full.codes[r, v])]
                cells += 1
        columns.append(texts)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if raw.names is not None:
        writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    return out.getvalue(), cells
