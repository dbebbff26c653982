"""Filling in what is missing, and predicting one variable from the others."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.raw import RawColumn, RawTable
from undirected.data.readers import read_data, read_raw
from undirected.errors import DataError
from undirected.inference import gibbs, junction_tree
from undirected.inference.engine import check_method
from undirected.inference.evidence import Evidence, of_codes
from undirected.inference.map_state import best_rows
from undirected.inference.problem import Problem
from undirected.inference.rows import batches, distinct_rows, row_marginals
from undirected.kernels.types import Array
from undirected.work import MEMORY

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

IMPUTE_METHODS = ("map", "sample", "marginal")


def sample(
    network: MarkovNetwork, n: int, evidence: Evidence = None, *, sweeps: int = 500, data: Any = None, memory: int = MEMORY,
    threads: int | None = None, seed: int = 0,
) -> Dataset:  # fmt: skip
    """See `MarkovNetwork.sample`."""
    if n < 1:
        raise DataError(f"n={n}: at least one sample")
    problem = Problem(network, evidence, memory, threads, seed)
    problem.check_feasible()
    states = junction_tree.draw(problem, n).copy()
    open_ones = (states < 0).any(axis=0)
    how = "exact samples"
    if open_ones.any():
        rows = None if data is None else read_data(data, domain=network.domain).codes
        rest = problem.frozen(np.setdiff1d(problem.open_variables(), np.flatnonzero(open_ones)))
        states[:, open_ones] = gibbs.samples(rest, n, sweeps=sweeps, data=rows)[:, open_ones]
        how = f"samples by Gibbs sampling, {sweeps} sweeps each"
    return Dataset(network.domain, states, source=how)


def exact_sample(network: MarkovNetwork, n: int, seed: int = 0) -> Dataset:
    """Independent rows from the network's exact distribution; an error where its tables do not fit into memory."""
    problem = Problem(network, seed=seed)
    problem.require_exact("an exact sample")
    return Dataset(network.domain, junction_tree.draw(problem, n), source="an exact sample")


def partial_table(network: MarkovNetwork, data: Any, absent: str | None = None, unknown: str = "error") -> Dataset:
    """A table over the network's variables in which cells may be missing, and the column of one variable absent."""
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


def impute(
    network: MarkovNetwork, data: Any, method: str = "map", *, memory: int = MEMORY, threads: int | None = None, seed: int = 0
) -> Dataset:
    """See `MarkovNetwork.impute`."""
    check_method(method, IMPUTE_METHODS)
    table = partial_table(network, data)
    codes = table.codes.astype(np.int16)
    rows = np.flatnonzero((codes < 0).any(axis=1))
    problem = Problem(network, None, memory, threads, seed)
    for piece in batches(len(rows), network.domain.n_literals) if len(rows) else []:
        marks = of_codes(network.domain, codes[rows[piece]])
        if method == "sample":
            codes[rows[piece]] = _drawn(problem, marks, piece)
            continue
        distinct, place = distinct_rows(marks)
        codes[rows[piece]] = (best_rows(problem, distinct) if method == "map" else _likeliest(problem, distinct))[place]
    return Dataset(network.domain, codes, table.weights, f"{table.source}, completed", table.lines)


def _likeliest(problem: Problem, marks: Array) -> Array:
    """Each variable's most probable state, on its own."""
    found, base = row_marginals(problem, marks), problem.domain.base
    states = [np.argmax(found.marginals[:, base[v] : base[v + 1]], axis=1) for v in range(len(problem.domain))]
    return np.stack(states, axis=1)[found.place]


def fill_raw(network: MarkovNetwork, raw: RawTable, method: str = "map", unknown: str = "error", **options: Any) -> tuple[str, int]:
    """A table as CSV text with its missing cells filled in and all others as they were; how many were filled."""
    table = partial_table(network, raw, unknown=unknown)
    full = impute(network, table, method, **options)
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


def _drawn(problem: Problem, marks: Array, numbers: Array) -> Array:
    """A sample for each row, whose number makes its seed."""
    out = np.empty((len(marks), len(problem.domain)), dtype=np.int16)
    for r, (row, number) in enumerate(zip(marks, numbers.tolist(), strict=True)):
        single = problem.under(row, int(np.random.SeedSequence((problem.seed, number)).generate_state(1)[0]))
        single.check_feasible()
        states = junction_tree.draw(single, 1)[0].copy()
        if (states < 0).any():
            states[states < 0] = gibbs.samples(single, 4)[0][states < 0]
        out[r] = states
    return out


def predict_proba(
    network: MarkovNetwork, data: Any, target: str, *, memory: int = MEMORY, threads: int | None = None, seed: int = 0
) -> Array:
    """See `MarkovNetwork.predict_proba`."""
    v = network.domain.index(target)
    codes = partial_table(network, data, target).codes.astype(np.int16)
    codes[:, v] = -1
    problem = Problem(network, None, memory, threads, seed)
    mine = slice(int(network.domain.base[v]), int(network.domain.base[v + 1]))
    out = np.empty((len(codes), mine.stop - mine.start))
    for piece in batches(len(codes), network.domain.n_literals):
        found = row_marginals(problem, of_codes(network.domain, codes[piece]))
        out[piece] = found.marginals[:, mine][found.place]
    return out
