"""``data``: which data sets there are, what is in them, and how to get them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from undirected.cli import common


@click.group()
def data() -> None:
    """Data sets by name: list, describe, fetch."""


@data.command("list")
@common.output_options
def list_(as_json: bool, quiet: bool, debug: bool) -> None:
    """All data sets that can be used by name, and where each comes from."""
    from undirected.data import catalog

    known = catalog.benchmarks()
    rows: list[dict[str, Any]] = []
    for name in catalog.names():
        entry = known.get(name)
        row: dict[str, Any] = {"name": name, "where": catalog.where(name)}
        if entry is not None:
            row |= {"title": entry.title, "variables": entry.variables, "density": entry.density, **entry.rows}
        rows.append(row)
    lines = [f"{'name':14} {'where':9} {'variables':>9} {'train':>8} {'valid':>7} {'test':>7}  title"]
    for row in rows:
        sizes = " ".join(f"{row.get(k, ''):>{w}}" for k, w in (("variables", 9), ("train", 8), ("valid", 7), ("test", 7)))
        lines.append(f"{row['name']:14} {row['where']:9} {sizes}  {row.get('title', '')}".rstrip())
    common.emit({"rows": rows}, as_json, "\n".join(lines))


@data.command(epilog="\b\nExamples:\n  undirected data describe nltcs\n  undirected data describe survey.csv")
@click.argument("source", metavar="DATA")
@common.read_options
@common.domain_options
@common.output_options
def describe(source: str, as_json: bool, quiet: bool, debug: bool, **reading: Any) -> None:
    """Rows, variables and states of DATA, as they will be used."""
    import numpy as np

    table = common.read_table(source, quiet, **reading)
    variables: list[dict[str, Any]] = []
    for v, variable in enumerate(table.domain.variables):
        codes = table.codes[:, v]
        share = np.bincount(codes[codes >= 0], weights=table.weights[codes >= 0], minlength=len(variable.states)) / table.total_weight
        variables.append(
            {
                "name": variable.name,
                "states": dict(zip(variable.states, share.tolist(), strict=True)),
                "missing": int((codes < 0).sum()),
            }
        )
    constant = [v["name"] for v in variables if max(v["states"].values()) == 1]
    values = {
        "rows": len(table),
        "distinct": table.n_distinct,
        "weight": table.total_weight,
        "constant": constant,
        "variables": variables,
    }
    lines = [f"{table.source}: {len(table):,} rows, {table.n_distinct:,} distinct, {len(variables)} variables"]
    if constant:
        lines.append(f"constant: {', '.join(map(str, constant[:10]))}{', ...' if len(constant) > 10 else ''}")
    for entry in variables:
        shares = ", ".join(f"{s} {p:.1%}" for s, p in list(entry["states"].items())[:6])
        more = ", ..." if len(entry["states"]) > 6 else ""
        gaps = f"  ({entry['missing']:,} missing)" if entry["missing"] else ""
        lines.append(f"  {entry['name']}: {shares}{more}{gaps}")
    common.emit(values, as_json, "\n".join(lines))


@data.command(epilog="\b\nExample:\n  undirected data fetch nltcs plants")
@click.argument("names", nargs=-1, required=True)
@common.output_options
def fetch(names: tuple[str, ...], as_json: bool, quiet: bool, debug: bool) -> None:
    """Download benchmark data sets into the cache, checked against their published sha256."""
    from undirected.data import catalog

    files: list[str] = []
    with _download_progress(quiet) as progress:
        for name in names:
            files += [str(path) for path in catalog.fetch(name, progress=progress)]
    common.emit({"files": files}, as_json, "\n".join(files))


@contextmanager
def _download_progress(quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    tasks: dict[str, TaskID] = {}
    with Progress(console=Console(stderr=True)) as bar:

        def show(name: str, have: int, expected: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=expected or None)
            bar.update(tasks[name], completed=have)

        yield show
