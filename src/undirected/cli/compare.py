"""``compare``: learners against learners, with the papers' values beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common
from undirected.structure.names import LEARNERS

if TYPE_CHECKING:
    from undirected.evaluation.comparison import Comparison

EXAMPLES = """\b
Examples:
  undirected compare --datasets digits                           (built in, half a minute)
  undirected compare --learners l1,dtsl,dt+l1 --datasets nltcs,plants -o results/
  undirected compare --datasets all --paper-grids --jobs 2 --plot -o results/
  undirected compare --datasets survey.csv --learners dtsl,all-pairs --sizes 0.1,0.3,1 --plot -o results/
  undirected compare --plot -o results/          (figures of what is in the folder)
"""


@click.command(epilog=EXAMPLES)
@click.option("--learners", default="gssl,l1,dtsl,dt+l1,atomic", show_default=True, help=f"Of {', '.join(LEARNERS)}.")
@click.option("--datasets", help="Names or files, or 'all' for every benchmark set that is here; one without splits is divided at random.")
@click.option("--paper-grids", is_flag=True, help="Try all settings the papers tried.")
@click.option("--quick", is_flag=True, help="Try a few settings (the default).")
@click.option("--sizes", default="1", show_default=True, help="Shares of the training rows, for learning curves: 0.1,0.3,1.")
@click.option("--jobs", type=click.IntRange(1, 4096), default=1, show_default=True, help="Data sets worked on at a time.")
@click.option("--threads", type=click.IntRange(1, 4096), help="Cores for each of them (default: all, divided by --jobs).")
@click.option("--time-budget", type=common.Seconds(), help="After this long a cell's search tries no further structure.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="For dividing tables and drawing rows.")
@click.option("--plot", is_flag=True, help="Draw relative.svg, runtime.svg and, with several --sizes, curves.svg.")
@click.option("-o", "--output", type=click.Path(file_okay=False), help="Folder for the results; started again, the work goes on there.")
@common.output_options
def compare(
    learners: str,
    datasets: str | None,
    paper_grids: bool,
    quick: bool,
    sizes: str,
    jobs: int,
    threads: int | None,
    time_budget: float | None,
    seed: int,
    plot: bool,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Tune learners on data sets, score the test rows, and set the published values beside them."""
    from undirected.evaluation import comparison

    if paper_grids and quick:
        raise click.UsageError("--paper-grids and --quick exclude each other")
    if plot and output is None:
        raise click.UsageError("--plot needs a folder for the figures; add -o results/")
    if datasets is None:
        if not (plot and output):
            raise click.UsageError("name data sets, for instance --datasets digits, or nltcs,plants, or all")
        results = comparison.load_comparison(output)
    else:
        results = comparison.compare(
            [name.strip() for name in learners.split(",") if name.strip()],
            _named(datasets),
            grid="paper" if paper_grids else "quick",
            sizes=_shares(sizes),
            folder=output,
            jobs=jobs,
            threads=threads,
            time_budget=time_budget,
            seed=seed,
            progress=lambda done, total, row: common.remark(f"{done}/{total}  {_told(row)}", quiet),
        )
    wrote = _draw(results, Path(output)) if plot and output else []
    if as_json:
        common.emit(results.to_dict(), True, "")
    else:
        _print(results)
    if output:
        names = ("results.json", "results.csv", "results.md", *wrote)
        common.remark(f"wrote {', '.join(str(Path(output) / name) for name in names)}", quiet)
    for row in results.errors:
        click.echo(f"undirected: {row['learner']} on {row['dataset']} failed: {row['error']}", err=True)
    return 3 if results.errors else 0


def _named(datasets: str) -> list[str]:
    from undirected.data import catalog

    if datasets.strip() == "all":
        here = [name for name in catalog.benchmarks() if catalog.where(name) != "download"]
        if not here:
            raise click.UsageError("no benchmark set is here; fetch some (undirected data fetch nltcs) or name them")
        return here
    return [name.strip() for name in datasets.split(",") if name.strip()]


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--sizes {text!r}: numbers between 0 and 1 with commas between them, such as 0.1,0.3,1") from None


def _told(row: dict[str, Any]) -> str:
    name = f"{row['dataset']} {row['learner']}" + (f" on {row['fraction']:g} of the rows" if row["fraction"] != 1 else "")
    if "error" in row:
        return f"{name}: failed: {row['error']}"
    return f"{name}: test NPLL {row['npll']:.4f}, {row['structure_seconds'] + row['weights_seconds']:.1f} s, {row['n_settings']} settings"


def _draw(results: Comparison, folder: Path) -> list[str]:
    from undirected.plots import save_figure

    kinds = []
    if len(results.learners) > 1:
        kinds += ["relative", "runtime"]
    if len({row["fraction"] for row in results.rows}) > 1:
        kinds.append("curves")
    for kind in kinds:
        save_figure(results.plot(kind), folder / f"{kind}.svg")
    return [f"{kind}.svg" for kind in kinds]


def _print(results: Comparison) -> None:
    """The table, the best in bold on a terminal and with a star anywhere."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def started(head: list[str]) -> Table:
        out = Table(box=None, pad_edge=False)
        for k, name in enumerate(head):
            out.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
        return out

    head, lines = results.table()
    table = started(head)
    for line in lines:
        table.add_row(*(Text(text + " *" if best else text, style="bold" if best else "") for text, best in line))
    table.add_section()
    for cells in results.summary():
        table.add_row(*cells)
    console = Console(width=None if sys.stdout.isatty() else 10_000)
    console.print(table)
    if results.p_table():
        others = started(results.p_table()[0])
        for cells in results.p_table()[1:]:
            others.add_row(*cells)
        console.print()
        console.print(others)
    console.print()
    console.print(*results.notes(), sep="\n", highlight=False)
