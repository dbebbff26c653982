"""``stream``: learn from rows that go on coming."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common, panel
from undirected.cli.status import read_state, tell_status
from undirected.streaming.names import LEARNERS, find_stream_learner

if TYPE_CHECKING:
    from undirected.streaming.learner import StreamLearner
    from undirected.streaming.run import StreamRun

EXAMPLES = """\b
Examples:
  undirected stream clicks.csv --checkpoint clicks.state -o net.json --metrics clicks.jsonl
  undirected stream - -a gssl --format jsonl < rows.jsonl
  undirected stream log/ --follow --every 60s --checkpoint log.state -o net.json
  undirected stream 'redis://127.0.0.1:6379/0?stream=votes' -a dtsl --hoeffding --follow --checkpoint votes.state
  undirected stream kafka://127.0.0.1:9092/baskets --format basket --follow --checkpoint baskets.state
  undirected stream --status clicks.state             (what is known, how far, how good)
  undirected stream --plot clicks.jsonl -o stream.svg (the score over time, features, drift)
"""
# Options that belong to some learners only, and what the learners call them.
OWN = (
    "n_clusters", "alpha", "support", "n_generated", "threshold", "hoeffding", "conversion", "kappa", "min_rows", "max_leaves",
    "search_seconds",
)  # fmt: skip
SHARED = (
    "l1", "sd", "tol", "remember", "decay", "window", "max_features", "screen", "patience", "watch", "delta", "drift", "missing", "unknown",
    "bins",
)  # fmt: skip
READING = ("na", "decimal", "drop", "columns", "categorical", "numeric")
MACHINE = ("threads", "memory")

learner_options = common.combine_options(
    click.option("--n-clusters", type=click.IntRange(1), help="clusternet: clusters of rows (100)."),
    click.option("--alpha", type=click.FloatRange(0), help="clusternet: draws a round (1000). blm, dp: price of a literal (5)."),
    click.option("--support", type=click.Choice(["union", "init", "feature"]), help="clusternet: where literals are counted (union)."),
    click.option("--n-generated", type=click.IntRange(1), help="gssl: conjunctions listed for a chunk (100000)."),
    click.option("--threshold", type=click.FloatRange(0), help="gssl: candidates were generated more often than this (1)."),
    click.option("--hoeffding", is_flag=True, default=None, help="dtsl: trees that grow over the whole stream."),
    click.option(
        "--conversion", type=click.Choice(["default", "prune", "prune-10", "prune-5", "nonzero"]), help="dtsl: trees as features (prune)."
    ),
    click.option("--kappa", type=click.FloatRange(0, 1, min_open=True), help="dtsl: the smaller, the smaller the trees (0.01)."),
    click.option("--min-rows", type=click.FloatRange(0, min_open=True), help="dtsl: rows that each side of a split needs (10)."),
    click.option("--max-leaves", type=click.IntRange(1), help="dtsl --hoeffding: leaves of a tree (100)."),
    click.option("--search-seconds", type=common.Seconds(), help="blm, dp: how long a chunk's search may take (10s)."),
)  # fmt: skip
weight_options = common.combine_options(
    click.option("--l1", type=click.FloatRange(0), help="L1 penalty (clusternet, gssl: 5; others: 1)."),
    click.option("--sd", type=common.Deviation(), help="Deviation of the Gaussian prior (clusternet, gssl: 0.5; others: 1)."),
    click.option("--tol", type=click.FloatRange(0, min_open=True), help="Largest violation of optimality (1e-4)."),
    click.option("--remember", type=click.Choice(["curvature", "window", "none"]), help="What weights know of earlier chunks (curvature)."),
    click.option("--decay", type=click.FloatRange(0, 1), help="What a chunk weighs when the next comes (1); 0.9: about ten count."),
    click.option("--window", type=click.IntRange(1), help="Chunks that --remember window keeps (10)."),
    click.option("--max-features", type=click.IntRange(1), help="Most features of the network (50000)."),
    click.option("--screen/--no-screen", default=None, help="Only candidates that would get a weight enter (they do)."),
    click.option("--patience", type=click.IntRange(1), help="Chunks for which a feature may have a weight of zero (2)."),
)  # fmt: skip
drift_options = common.combine_options(
    click.option("--drift", type=click.Choice(["none", "forget", "rebuild"]), help="What a drift does, beside being told (none)."),
    click.option("--watch", type=click.Choice(["auto", "rows", "variables", "none"]), help="Where drift is looked for (auto: rows)."),
    click.option(
        "--delta", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="The detector's bound on false alarms (0.002)."
    ),
)
table_options = common.combine_options(
    click.option("--format", "format_", type=click.Choice(["csv", "tsv", "jsonl", "basket"]), help="Format of the rows."),
    click.option("--header/--no-header", default=None, help="Whether the first line holds names (default: found out)."),
    click.option("--encoding", metavar="NAME", help="How bytes are text, for instance latin-1 (default: UTF-8)."),
    click.option("--decimal", type=click.Choice([",", "."]), help="The mark in decimal numbers (default: found out)."),
    click.option("--na", multiple=True, metavar="TEXT", help="One more text that means a missing cell: --na 99 --na ."),
    click.option("--drop", multiple=True, metavar="COL", help="Leave out a column; may be repeated."),
    click.option("--columns", type=common.Names(), help="Take only these columns."),
    click.option(
        "--missing",
        type=click.Choice(["drop", "mode", "state", "error"]),
        help="Missing cells: the row is left out, or the most frequent state is taken, or a state of its own, or an error (drop).",
    ),
    click.option(
        "--unknown",
        type=click.Choice(["skip", "extend", "error"]),
        help="States that the first chunk did not have: the row is left out, or the state is added, or an error (skip).",
    ),
    click.option("--bins", type=click.IntRange(2), help="Bins for numeric columns (4)."),
    click.option("--categorical", multiple=True, metavar="COL", help="Take a column as states, even if it holds numbers."),
    click.option("--numeric", multiple=True, metavar="COL", help="Take a column as numbers, even if it has few values."),
    click.option("--domain-from", metavar="FILE", help="A network or table whose variables and states the rows have."),
)  # fmt: skip


@click.command(epilog=EXAMPLES)
@click.argument("source", required=False)
@click.option("-a", "--algorithm", type=click.Choice([*LEARNERS]), default="dtsl", show_default=True, help="The structure learner.")
@click.option("--chunk", type=click.IntRange(1), default=2000, show_default=True, help="Rows that are learned together.")
@click.option("--every", type=common.Seconds(), help="Learn after this long, though the chunk is not full (60s).")
@click.option("--follow", is_flag=True, help="Wait for more at the end of the source, until told to stop.")
@click.option("--checkpoint", type=click.Path(dir_okay=False), help="Where the state is kept; started again with it, the work goes on.")
@click.option("--checkpoint-every", type=click.IntRange(1), default=1, show_default=True, help="Chunks between two checkpoints.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The newest network (.json), replaced after each chunk; or the picture of --plot.",
)
@click.option("--metrics", type=click.Path(dir_okay=False), help="The measures of each chunk, as JSON lines.")
@click.option("--dead-letter", type=click.Path(dir_okay=False), help="Rows that could not be learned, with the reason, as JSON lines.")
@click.option("--cmll-every", type=click.IntRange(1), help="Measure CMLL, too, on every so many-th chunk before it is learned.")
@learner_options
@weight_options
@drift_options
@table_options
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="The same seed and rows, the same network.")
@click.option("--threads", type=click.IntRange(1, 4096), help="Cores to use (default: all); the result is the same for any number.")
@click.option("--time-budget", type=common.Seconds(), help="Stop after this long, as Ctrl-C would.")
@common.memory_option
@click.option("--status", type=click.Path(dir_okay=False), metavar="CHECKPOINT", help="Say what a checkpoint holds, and end.")
@click.option(
    "--plot", "metrics_to_draw", type=click.Path(dir_okay=False), metavar="METRICS", help="Draw the measures of a stream into -o, and end."
)
@common.output_options
@click.pass_context
def stream(
    ctx: click.Context,
    /,
    source: str | None,
    status: str | None,
    metrics_to_draw: str | None,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **options: Any,
) -> int:
    """Learn from the rows of SOURCE chunk by chunk, with a network that is always there.

    SOURCE is a file or a folder of files (CSV, TSV, JSON lines, baskets), - for standard input, or a broker's address. Each chunk is scored
    with the network so far before it is learned. With --checkpoint a run that was stopped, or killed, goes on where it was.
    """  # fmt: skip
    if status is not None:
        return tell_status(status, as_json)
    if metrics_to_draw is not None:
        return _draw(metrics_to_draw, output, as_json)
    if source is None:
        raise click.UsageError("name a source: a file, a folder, - or an address; or give --status or --plot")
    learner = build_learner(ctx, options)
    began, ending = time.monotonic(), Ending()
    budget = options["time_budget"]
    cmll_every = options["cmll_every"]

    def stop() -> bool:
        return ending.signal is not None or (budget is not None and time.monotonic() - began >= budget)

    with ending.listen(), panel.show_panel(quiet, source) as listener:
        from undirected.streaming.run import learn_stream

        result = learn_stream(
            learner, source, every=options["every"], follow=options["follow"], format=options["format_"], header=options["header"],
            encoding=options["encoding"], checkpoint=options["checkpoint"], checkpoint_every=options["checkpoint_every"], network=output,
            metrics=options["metrics"], dead_letter=options["dead_letter"], cmll=_measure_cmll if cmll_every else None,
            cmll_every=cmll_every or 1, stop=stop, listener=listener,
        )  # fmt: skip
    common.emit(_report(result, output), as_json, _describe(result, output, options["checkpoint"], ending))
    return common.EXIT_INTERRUPTED if ending.signal == signal.SIGINT else 0


def build_learner(ctx: click.Context, options: dict[str, Any]) -> StreamLearner:
    """The learner of the options that were given; what was not said is that of the checkpoint, if there is one."""
    kept = _read_kept(options["checkpoint"])
    named = {name for name in options if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE}
    kind = options["algorithm"]
    if kept is not None and kept["learner"] != kind:
        if "algorithm" in named:
            raise click.UsageError(
                f"{options['checkpoint']} is the state of -a {kept['learner']}; leave out -a, or name another checkpoint"
            )
        kind = kept["learner"]
    make, fixed = find_stream_learner(kind)
    known = make(**fixed).get_params()
    params: dict[str, Any] = {} if kept is None else {name: value for name, value in kept["params"].items() if name in known}
    for name in (*OWN, *SHARED):
        if name in named and options[name] is not None:
            own = "time_budget" if name == "search_seconds" else name
            if own not in known:
                raise click.UsageError(f"--{name.replace('_', '-')} does not belong to {kind}")
            params[own] = int(options[name]) if name == "alpha" and kind == "clusternet" else options[name]
    if kept is None or "chunk" in named:
        params["chunk_rows"] = options["chunk"]
    if kept is None or "seed" in named:
        params["random_state"] = options["seed"]
    reading = {name: list(options[name]) if isinstance(options[name], tuple) else options[name] for name in READING if options[name]}
    if reading:
        params["reading"] = {**(params.get("reading") or {}), **reading}
    return make(**{**params, **fixed, **{name: options[name] for name in MACHINE}, "domain": _read_domain(options["domain_from"])})


def _read_domain(path: str | None) -> Any:
    if path is None:
        return None
    from undirected import formats, read_data

    return formats.load(path).domain if path.lower().endswith(formats.READABLE) else read_data(path).domain


def _read_kept(checkpoint: str | None) -> dict[str, Any] | None:
    """The state of the learner in a checkpoint, if there is one."""
    found = None if checkpoint is None else read_state(checkpoint)
    return None if found is None else found[0]["state"]


def _measure_cmll(network: Any, data: Any) -> float:
    from undirected.evaluation.cmll import cmll

    return cmll(network, data).value


class Ending:
    """SIGTERM and Ctrl-C ask the loop to finish its step; the second of them ends it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Hear the two signals."""
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: Any) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


def _report(result: StreamRun, output: str | None) -> dict[str, Any]:
    last = result.learner.last_
    return {
        "chunks": result.chunks, "rows": result.rows, "resumed": result.resumed, "ended": result.ended, "seconds": result.seconds,
        "last": None if last is None else last.to_dict(), "drifts": result.drifts, "output": output,
    }  # fmt: skip


def _describe(result: StreamRun, output: str | None, checkpoint: str | None, ending: Ending) -> str:
    last = result.learner.last_
    why = "the source has ended" if result.ended else "stopped by Ctrl-C" if ending.signal == signal.SIGINT else "stopped"
    lines = [f"{why}: {result.chunks:,} chunks, {result.rows:,} rows in {result.seconds:.1f} s"]
    if last is not None:
        lines.append(
            f"in all {last.chunk:,} chunks, {last.total_rows:,} rows learned, {result.dead:,} left out; {last.n_features:,} features, "
            f"{last.n_nonzero:,} not zero" + ("" if last.mean_npll != last.mean_npll else f"; NPLL so far {last.mean_npll:.4f}")
        )
    waiting = len(result.learner.waiting_)
    if waiting:
        lines.append(
            f"{waiting:,} rows wait for their chunk" + (", in the checkpoint" if checkpoint else "; they are lost without --checkpoint")
        )
    if last is not None and output is None and checkpoint is None:
        lines.append("nothing was kept: add -o net.json for the network, --checkpoint FILE to go on later")
    return "\n".join(lines)


def _draw(metrics: str, output: str | None, as_json: bool) -> int:
    from undirected.plots import check_picture, save_figure
    from undirected.plots.stream import draw_stream, read_metrics
    from undirected.store import check_writable

    if output is None:
        raise click.UsageError("--plot needs a picture to draw into; add -o stream.svg")
    check_picture(output)
    check_writable(output)
    records = read_metrics(metrics)
    save_figure(draw_stream(records), output)
    common.emit({"output": output, "chunks": len(records)}, as_json, f"wrote {output}")
    return 0
