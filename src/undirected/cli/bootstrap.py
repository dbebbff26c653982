"""``bootstrap``: how much of a learned network to believe."""

from __future__ import annotations

from typing import Any

import click

from undirected.cli import common, learners
from undirected.structure.names import LEARNERS
from undirected.work import StoppedBy

EDGE_COLUMNS = ["a", "b", "value", "frequency", "mean", "low", "high"]
EXAMPLES = """\b
Examples:
  undirected bootstrap symptoms.csv -n 200 --plot edges.svg -o edges.csv
  undirected bootstrap nltcs -a l1 -n 1000 --plot-dropping dropping.svg
  undirected bootstrap survey.csv -a all-pairs --l1 5 --sd 0.5 --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("data")
@click.option("-a", "--algorithm", type=click.Choice(list(LEARNERS)), default="l1", show_default=True, help="The structure learner.")
@click.option("-n", "n", type=click.IntRange(1), default=100, show_default=True, help="Resamples.")
@click.option("--n-dropping", type=click.IntRange(0), help="Samples with rows left out (default: as many; 0 for none).")
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True, help="Of the intervals."
)
@learners.learner_options
@common.weight_options
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="The same seed, the same resamples.")
@common.read_options
@common.domain_options
@common.compute_options
@click.option(
    "--plot", type=click.Path(dir_okay=False), help="Where to draw the most frequent edges, sorted by strength (.svg, .png, .pdf)."
)
@click.option("--plot-dropping", type=click.Path(dir_okay=False), help="Where to draw how node strengths hold as rows are dropped.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to save the table of edges (.csv).")
@common.output_options
@click.pass_context
def bootstrap(
    ctx: click.Context,
    /,
    data: str,
    algorithm: str,
    n: int,
    n_dropping: int | None,
    level: float,
    seed: int,
    plot: str | None,
    plot_dropping: str | None,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **options: Any,
) -> int:
    """Learn again from resamples of DATA: which edges come back, and how far their strengths move."""
    from undirected.evaluation.stability import bootstrap as resample
    from undirected.plots import check_picture, save_figure
    from undirected.store import check_writable, write_whole

    if plot_dropping is not None and n_dropping == 0:
        raise click.UsageError("--plot-dropping needs samples with rows left out; leave out --n-dropping 0")
    for path in (plot, plot_dropping):
        if path is not None:
            check_picture(path)
    for path in (plot, plot_dropping, output):
        if path is not None:
            check_writable(path)
    threads, budget = options["threads"], options.pop("time_budget")
    given = learners.build(ctx, algorithm, {**options, "time_budget": None}, False, seed)
    learner, table = given.make(), common.read_table(data, quiet, **given.reading)
    common.remark(f"{table.source}: {len(table):,} rows ({table.n_distinct:,} distinct), {len(table.domain)} variables", quiet)
    with common.follow_work(quiet, "learning from all rows ...") as screen:
        found = resample(
            learner, table, n, n_dropping=n_dropping, level=level, seed=seed, threads=threads, time_budget=budget, progress=screen,
        )  # fmt: skip
    edges = found.rows()
    if output is not None:
        write_whole(output, common.format_csv(EDGE_COLUMNS, [[edge[name] for name in EDGE_COLUMNS] for edge in edges]))
    if plot is not None:
        save_figure(found.plot("edges"), plot)
    if not found.correlations:
        plot_dropping = None
    elif plot_dropping is not None:
        save_figure(found.plot("dropping"), plot_dropping)
    for path in (output, plot, plot_dropping):
        if path is not None:
            common.remark(f"wrote {path}", quiet)
    if found.stopped_by:
        common.remark(f"ended early by {found.stopped_by}, after {found.n} of {n} resamples", quiet)
    report = {
        "n": found.n, "stopped_by": found.stopped_by, "level": level, "coefficient": found.coefficient if found.correlations else None,
        "edges": edges, "features": found.rows("features"), "strength": found.rows("strength"),
        "centrality": found.rows("centrality"), "note": found.note,
    }  # fmt: skip
    common.emit(report, as_json, str(found))
    return {None: 0, StoppedBy.INTERRUPT: common.EXIT_INTERRUPTED}.get(found.stopped_by, common.EXIT_EARLY)
