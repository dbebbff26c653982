"""``compare``: learners against learners, with the papers' values beside them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common
from undirected.errors import ParameterError
from undirected.structure.names import DEFAULT_LEARNERS, LEARNERS, find_learner_class

if TYPE_CHECKING:
    from undirected.evaluation.results import Comparison

EXAMPLES = """\b
Examples:
  undirected compare --datasets digits                           (built in, half a minute)
  undirected compare --learners l1,dtsl,dt+l1 --datasets nltcs,plants -o results/
  undirected compare --datasets all --paper-grids --jobs 2 --plot -o results/
  undirected compare --datasets survey.csv --learners dtsl,all-pairs --sizes 0.1,0.3,1 --plot -o results/
  undirected compare --stream 10 --datasets nltcs,plants --learners clusternet,gssl,dtsl -o results/
  undirected compare --plot -o results/          (figures of what is in the folder)
"""


@click.command(epilog=EXAMPLES)
@click.option("--learners", default=",".join(DEFAULT_LEARNERS), show_default=True, help=f"Of {', '.join(LEARNERS)}.")
@click.option("--datasets", help="Names or files, or 'all' for every benchmark set that is here; one without splits is divided at random.")
@click.option("--paper-grids", is_flag=True, help="Try all settings the papers tried.")
@click.option("--quick", is_flag=True, help="Try a few settings (the default).")
@click.option("--stream", "chunks", type=click.IntRange(2), metavar="N", help="Each learner in batch, and on the same rows in N chunks.")
@click.option("--sizes", default="1", show_default=True, help="Shares of the training rows, for learning curves: 0.1,0.3,1.")
@click.option("--jobs", type=click.IntRange(1, 4096), default=1, show_default=True, help="Data sets worked on at a time.")
@click.option("--threads", type=click.IntRange(1, 4096), help="Cores for each of them (default: all, divided by --jobs).")
@click.option("--time-budget", type=common.Seconds(), help="After this long a cell's search tries no further structure.")
@click.option("--cmll-splits", type=click.IntRange(0), default=1, show_default=True, help="Random splits for CMLL; 0 leaves it out.")
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="For dividing tables and drawing rows.")
@click.option("--bins", type=click.IntRange(2), default=4, show_default=True, help="Bins for numeric columns.")
@common.table_options
@common.missing_option
@common.memory_option
@click.option("--plot", is_flag=True, help="Draw relative.svg (-ncmll.svg), runtime.svg and, with several --sizes, curves.svg.")
@click.option("-o", "--output", type=click.Path(file_okay=False), help="Folder for the results; started again, the work goes on there.")
@common.output_options
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    learners: str,
    datasets: str | None,
    paper_grids: bool,
    quick: bool,
    chunks: int | None,
    sizes: str,
    jobs: int,
    threads: int | None,
    time_budget: float | None,
    cmll_splits: int,
    seed: int,
    bins: int,
    missing: str,
    memory: int,
    plot: bool,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **reading: Any,
) -> int:
    """Tune learners on data sets, score the test rows, and set the published values beside them."""
    from undirected.evaluation import comparison, results

    if chunks is not None:
        _refuse_with_stream(ctx)
        given = learners if ctx.get_parameter_source("learners") == click.core.ParameterSource.COMMANDLINE else None
        tables = _read_tables(_list_datasets(datasets or "digits"), {**reading, "missing": missing, "bins": bins}, quiet)
        how = {"folder": output, "threads": threads, "time_budget": time_budget, "cmll_splits": cmll_splits, "seed": seed}
        return _compare_streams(given, tables, chunks, how, as_json, quiet)
    if paper_grids and quick:
        raise click.UsageError("--paper-grids and --quick exclude each other")
    if plot and output is None:
        raise click.UsageError("--plot needs a folder for the figures; add -o results/")
    if datasets is None:
        if not (plot and output):
            raise click.UsageError("name data sets, for instance --datasets digits, or nltcs,plants, or all")
        found = results.load_comparison(output)
    else:
        names = [name.strip() for name in learners.split(",") if name.strip()]
        found = comparison.compare(
            _build_learners(names, bins=bins, missing=missing, memory=memory),
            _read_tables(_list_datasets(datasets), {**reading, "missing": missing, "bins": bins}, quiet),
            grid="paper" if paper_grids else "quick", sizes=_read_shares(sizes), folder=output, jobs=jobs, threads=threads,
            time_budget=time_budget, cmll_splits=cmll_splits, seed=seed, progress=common.Screen(quiet, None),
        )  # fmt: skip
        if output:
            wrote = ", ".join(str(Path(output) / name) for name in ("results.json", "results.csv", "results.md"))
            common.remark(f"wrote {wrote}", quiet)
    bold = (lambda text: click.style(text, bold=True)) if sys.stdout.isatty() else str
    common.emit(found.to_dict(), as_json, found.to_text(bold))
    for row in found.errors:
        click.echo(f"undirected: {row['learner']} on {row['dataset']} failed: {row['error']}", err=True)
    if plot and output:
        _draw(found, Path(output), quiet)
    if not found.complete:
        return common.EXIT_INTERRUPTED
    if found.errors:
        return 3
    return 0 if all(row["complete"] for row in found.rows) else common.EXIT_EARLY


def _refuse_with_stream(ctx: click.Context) -> None:
    for name in ("paper_grids", "quick", "sizes", "jobs", "plot"):
        if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--stream does not go with --{name.replace('_', '-')}")


def _compare_streams(learners: str | None, tables: dict[str, Any], chunks: int, how: dict[str, Any], as_json: bool, quiet: bool) -> int:
    from undirected.evaluation.streams import DEFAULT, compare_streams

    names = DEFAULT if learners is None else tuple(name.strip() for name in learners.split(",") if name.strip())
    with common.silence_early_warnings():
        found = compare_streams(names, tables, chunks, progress=common.Screen(quiet, None), **how)
    common.emit(found.to_dict(), as_json, found.to_text())
    return 0 if found.complete else common.EXIT_INTERRUPTED


def _build_learners(names: list[str], **params: Any) -> dict[str, Any]:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise click.UsageError(f"--learners names {twice[0]} twice")
    return {name: find_learner_class(name)(**params) for name in names}


def _list_datasets(datasets: str) -> list[str]:
    from undirected.data import catalog

    if datasets.strip() == "all":
        here = [name for name in catalog.benchmarks() if catalog.where(name) != "download"]
        if not here:
            raise click.UsageError("no benchmark set is here; fetch some (undirected data fetch nltcs) or name them")
        return here
    return [name.strip() for name in datasets.split(",") if name.strip()]


def _read_tables(names: list[str], reading: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """The data sets by name: those that bring their splits as they are, other tables read with the options given."""
    from undirected.data.catalog import has_splits

    return {name: name if has_splits(name) else common.read_table(name, quiet, unknown="error", **reading) for name in names}


def _read_shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--sizes {text!r}: numbers between 0 and 1 with commas between them, such as 0.1,0.3,1") from None


def _draw(results: Comparison, folder: Path, quiet: bool) -> None:
    from undirected.plots import save_figure
    from undirected.plots.comparison import find_left_out

    files = {}
    for metric in results.metrics:
        end = "" if metric == "npll" else f"-{metric}"
        with contextlib.suppress(ParameterError):  # where no two learners have scores on the same data set
            files[f"relative{end}"] = results.plot("relative", metric=metric)
        if len({row["fraction"] for row in results.rows}) > 1:
            files[f"curves{end}"] = results.plot("curves", metric=metric)
    if "relative" in files:
        files["runtime"] = results.plot("runtime")
    for name, figure in files.items():
        save_figure(figure, folder / f"{name}.svg")
    drawn = ", ".join(str(folder / f"{name}.svg") for name in files)
    common.remark(f"wrote {drawn}" if drawn else "nothing to draw: no data set has a score for two learners", quiet)
    missing = find_left_out(results) if drawn else []
    if missing:
        common.remark(f"not in the figures: {'; '.join(missing)}", quiet)
