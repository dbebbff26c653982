"""``query``, ``map``, ``sample``, ``impute`` and ``explain``: questions to a saved network."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork

evidence_options = common.options(
    click.option("-e", "--evidence", multiple=True, metavar="LITERAL", help="What is known: -e smoker=yes -e 'age!=old'; may be repeated."),
    click.option("--soft", multiple=True, metavar="VAR=P,P", help="Likelihoods in the order of the states: --soft test=0.2,0.9"),
)
work_options = common.options(
    click.option("--seed", type=common.seed_type, default=0, show_default=True, help="For everything that is drawn."),
    click.option("--threads", type=click.IntRange(1, 4096), help="Cores to use (default: all); the result is the same for any number."),
    click.option("--memory", type=common.Bytes(), default="2GiB", show_default=True, help="Memory that exact tables may take."),
)
EXAMPLES = """\b
Examples:
  undirected query net.json -e smoker=yes -e age=old
  undirected query net.json -e 'age!=old' --variables lung,heart --method gibbs --precision 0.001
  undirected query net.json --soft test=0.2,0.9 --json
"""


def read_given(network: MarkovNetwork, evidence: tuple[str, ...], soft: tuple[str, ...]) -> Any:
    """The two kinds of evidence together."""
    import numpy as np

    from undirected.inference.evidence import check_left, read_evidence, take

    given = read_evidence(network.domain, list(evidence))
    for text in soft:
        name, _, numbers = text.rpartition("=")
        try:
            values = np.array([float(x) for x in numbers.split(",")])
        except ValueError:
            raise click.UsageError(f"--soft {text!r}: write it like test=0.2,0.9, one number a state") from None
        take(network.domain, given, network.domain.index(name.strip()), values)
    check_left(network.domain, given)
    return given


@click.command(epilog=EXAMPLES)
@click.argument("network")
@evidence_options
@click.option("--variables", help="Only these, with commas between them (default: all that are not known).")
@click.option("--method", default="auto", show_default=True, help="auto, junction-tree, gibbs, mcsat, bp, trw, mean-field, enumeration.")
@click.option("--precision", type=click.FloatRange(0, min_open=True), default=0.005, show_default=True, help="Standard error to sample to.")
@click.option("--time-budget", type=common.Seconds(), default="10s", show_default=True, help="For sampling.")
@click.option("--start", metavar="DATA", help="A table at whose rows half of the chains start.")
@work_options
@common.output_options
def query(
    network: str,
    evidence: tuple[str, ...],
    soft: tuple[str, ...],
    variables: str | None,
    method: str,
    precision: float,
    time_budget: float,
    start: str | None,
    seed: int,
    threads: int | None,
    memory: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """How likely is what in NETWORK, given evidence?"""
    from undirected import formats

    model = formats.load(network)
    wanted = None if variables is None else [name.strip() for name in variables.split(",") if name.strip()]
    answer = model.query(
        read_given(model, evidence, soft), wanted, method, precision=precision, time_budget=time_budget, data=start, seed=seed,
        threads=threads, memory=memory,
    )  # fmt: skip
    limit = 40 if wanted is None and sys.stdout.isatty() else None
    common.emit(answer.to_dict(), as_json, answer.to_text(limit=limit))
    if answer.stopped_by == "interrupt":
        return common.EXIT_INTERRUPTED
    return 0 if answer.stopped_by is None and answer.mixed is not False and answer.converged else common.EXIT_EARLY


@click.command("map", epilog="\b\nExample:\n  undirected map net.json -e smoker=yes --best 3")
@click.argument("network")
@evidence_options
@click.option("--best", type=click.IntRange(1), default=1, show_default=True, help="How many of the most probable states.")
@click.option("--method", default="auto", show_default=True, help="auto, exact, annealing, icm.")
@work_options
@common.output_options
def map_(
    network: str,
    evidence: tuple[str, ...],
    soft: tuple[str, ...],
    best: int,
    method: str,
    seed: int,
    threads: int | None,
    memory: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """The most probable state of all variables of NETWORK, given evidence."""
    from undirected import formats

    model = formats.load(network)
    found = model.map_state(read_given(model, evidence, soft), best, method, seed=seed, threads=threads, memory=memory)
    common.emit(found.to_dict(), as_json, str(found))


@click.command(epilog="\b\nExample:\n  undirected sample net.json -n 1000 -e smoker=yes -o rows.csv")
@click.argument("network")
@click.option("-n", "n", type=click.IntRange(1), default=10, show_default=True, help="How many rows.")
@evidence_options
@click.option(
    "--sweeps", type=click.IntRange(1), default=500, show_default=True, help="Of Gibbs sampling, where exact samples are too dear."
)
@click.option("--start", metavar="DATA", help="A table at whose rows half of the Gibbs chains start.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A .csv or .data file (default: CSV on standard output).")
@work_options
@common.output_options
def sample(
    network: str,
    n: int,
    evidence: tuple[str, ...],
    soft: tuple[str, ...],
    sweeps: int,
    start: str | None,
    output: str | None,
    seed: int,
    threads: int | None,
    memory: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Draw rows from NETWORK, given evidence."""
    from undirected import formats

    _check_output(output)
    model = formats.load(network)
    table = model.sample(n, read_given(model, evidence, soft), sweeps=sweeps, data=start, seed=seed, threads=threads, memory=memory)
    common.remark(table.source, quiet)
    _write(table.to_csv(codes=bool(output) and str(output).endswith(".data")), output, {"rows": len(table), "how": table.source}, as_json)


@click.command(epilog="\b\nExample:\n  undirected impute net.json gaps.csv -o full.csv")
@click.argument("network")
@click.argument("data")
@click.option(
    "--method",
    default="map",
    show_default=True,
    help="map (most probable completion of a row), sample, or marginal (cell by cell).",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A .csv file (default: standard output).")
@work_options
@common.output_options
def impute(
    network: str,
    data: str,
    method: str,
    output: str | None,
    seed: int,
    threads: int | None,
    memory: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Fill in the missing cells of DATA by NETWORK; known cells stay as they were written."""
    from undirected import formats
    from undirected.data.readers import read_raw
    from undirected.inference.completion import fill_raw

    _check_output(output, (".csv",))
    model = formats.load(network)
    text, cells = fill_raw(model, read_raw(data), method, seed=seed, threads=threads, memory=memory)
    common.remark(f"filled {cells:,} missing cells", quiet)
    _write(text, output, {"filled": cells}, as_json)


@click.command(
    epilog="\b\nExample:\n  undirected explain net.json lung --row 3 --data survey.csv\n  undirected explain net.json lung -e smoker=yes"
)
@click.argument("network")
@click.argument("variable")
@click.option("-e", "--evidence", multiple=True, metavar="LITERAL", help="The row, literal by literal: -e smoker=yes -e age=old")
@click.option("--data", metavar="DATA", help="A table to take the row from.")
@click.option("--row", type=click.IntRange(1), default=1, show_default=True, help="Which row of --data.")
@click.option("--state", help="Explain this state (default: the row's own, or the most probable).")
@click.option("--against", help="Against this one (default: the likeliest other).")
@click.option("--top", type=click.IntRange(0), default=20, show_default=True, help="How many features to show.")
@common.output_options
def explain(
    network: str,
    variable: str,
    evidence: tuple[str, ...],
    data: str | None,
    row: int,
    state: str | None,
    against: str | None,
    top: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Which features push VARIABLE towards a state, given the rest of a row, and by how much; the parts add up exactly."""
    import numpy as np

    from undirected import formats
    from undirected.errors import DataError
    from undirected.inference.completion import partial_table
    from undirected.inference.evidence import read_evidence

    model = formats.load(network)
    codes = np.full(len(model.domain), -1)
    if data is not None:
        table = partial_table(model, data, variable)
        if row > len(table):
            raise DataError(f"{table.source} has {len(table):,} rows, so there is no row {row}")
        codes = table.codes[row - 1].astype(int)
    allowed = read_evidence(model.domain, list(evidence)).allowed
    for v in range(len(model.domain)):
        left = np.flatnonzero(allowed[model.domain.base[v] : model.domain.base[v + 1]])
        if len(left) == 1:
            codes[v] = left[0]
    found = model.explain(variable, codes, state, against)
    common.emit(found.to_dict(), as_json, found.to_text(top))


def _check_output(output: str | None, suffixes: tuple[str, ...] = (".csv", ".data")) -> None:
    from undirected.data.files import check_writable

    if output is not None:
        if not output.endswith(suffixes):
            raise click.UsageError(f"-o {output}: rows are written as {' or '.join(suffixes)}")
        check_writable(output)


def _write(text: str, output: str | None, values: dict[str, Any], as_json: bool) -> None:
    from undirected.data.files import write_whole

    if output is None and not as_json:
        click.echo(text, nl=False)
        return
    if output is not None:
        write_whole(output, text)
    common.emit({**values, "output": output, **({} if output else {"csv": text})}, as_json, f"wrote {output}")
