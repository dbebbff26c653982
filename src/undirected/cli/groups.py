"""``groups``: whether networks of groups of rows differ."""

from __future__ import annotations

from typing import Any

import click

from undirected.cli import common, learners
from undirected.structure.names import LEARNERS
from undirected.work import StoppedBy

EXAMPLES = """\b
Examples:
  undirected groups survey.csv --by sex --plot sex.svg
  undirected groups symptoms.csv --by country -a l1 --permutations 200 --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("data")
@click.option("--by", required=True, help="The column that tells the groups.")
@click.option("--permutations", type=click.IntRange(1), default=1000, show_default=True, help="Shufflings of the group labels.")
@click.option(
    "-a", "--algorithm", type=click.Choice(list(LEARNERS)),
    help="The structure learner, with its settings (default: all pairs, with a penalty chosen on all rows).",
)  # fmt: skip
@learners.learner_options
@common.weight_options
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="The same seed, the same permutations.")
@common.read_options
@common.domain_options
@common.compute_options
@click.option("--plot", type=click.Path(dir_okay=False), help="Where to draw the networks side by side (.svg, .png, .pdf).")
@common.output_options
@click.pass_context
def groups(
    ctx: click.Context,
    /,
    data: str,
    by: str,
    permutations: int,
    algorithm: str | None,
    seed: int,
    plot: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **options: Any,
) -> int:
    """Learn a network for each group of the rows of DATA, and test by permutation whether they differ."""
    from undirected.evaluation.groups import compare_groups
    from undirected.plots import check_picture, save_figure
    from undirected.store import check_writable

    if plot is not None:
        check_picture(plot)
        check_writable(plot)
    threads, budget = options["threads"], options.pop("time_budget")
    given = learners.build(ctx, algorithm or "all-pairs", {**options, "time_budget": None}, False, seed)
    table = common.read_table(data, quiet, **given.reading)
    with common.follow_work(quiet, "learning ...") as screen:
        found = compare_groups(
            table, by, learner=None if algorithm is None else given.make(), permutations=permutations, seed=seed, threads=threads,
            time_budget=budget, progress=screen,
        )  # fmt: skip
    if found.stopped_by:
        common.remark(f"ended early by {found.stopped_by}, after {found.permutations} of {permutations} permutations", quiet)
    common.emit(found.to_dict(), as_json, str(found))
    if plot is not None:
        save_figure(found.plot(), plot)
        common.remark(f"wrote {plot}", quiet)
    return {None: 0, StoppedBy.INTERRUPT: common.EXIT_INTERRUPTED}.get(found.stopped_by, common.EXIT_EARLY)
