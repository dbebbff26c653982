"""``query``, ``map``, ``sample``, ``impute`` and ``explain``: questions to a saved network."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common

if TYPE_CHECKING:
    from undirected.inference import LogPartition
    from undirected.network.network import MarkovNetwork

literal_options = common.combine_options(
    click.option("-e", "literals", multiple=True, metavar="LITERAL", help="What is known: -e smoker=yes -e 'age!=old'; may be repeated."),
    click.option("--evidence", "files", multiple=True, metavar="FILE", help="The same from a file: .evid, or one literal a line."),
)
evidence_options = common.combine_options(
    literal_options,
    click.option("--soft", multiple=True, metavar="VAR=P,P", help="Likelihoods in the order of the states: --soft test=0.2,0.9"),
)
work_options = common.combine_options(
    click.option("--seed", type=common.seed_type, default=0, show_default=True, help="For everything that is drawn."),
    click.option("--threads", type=click.IntRange(1, 4096), help="Cores to use (default: all); the result is the same for any number."),
    click.option("--memory", type=common.Bytes(), default="2GiB", show_default=True, help="Memory that exact tables may take."),
)
time_option = click.option(
    "--time-budget", type=common.Seconds(), default="10s", show_default=True, help="Exact work that takes longer gives way to sampling."
)
EXAMPLES = """\b
Examples:
  undirected query net.json -e smoker=yes -e age=old
  undirected query net.json -e 'age!=old' --variables lung,heart --method gibbs --precision 0.001
  undirected query net.json --soft test=0.2,0.9 --json
  undirected query net.uai --evidence net.uai.evid -o net.uai.MAR
"""
MAP_EXAMPLES = """\b
Examples:
  undirected map net.json -e smoker=yes --best 3
  undirected map net.uai --evidence net.uai.evid -o net.uai.MAP
"""


def read_literals(network: MarkovNetwork, literals: tuple[str, ...], files: tuple[str, ...]) -> list[str]:
    """What ``-e`` and ``--evidence`` say; the latter also takes a literal, as it did before it took files."""
    from undirected import formats

    found = list(literals)
    for value in files:
        found += [value] if "=" in value and not os.path.exists(value) else formats.read_evidence(value, network.domain)
    return found


def read_given(network: MarkovNetwork, literals: tuple[str, ...], files: tuple[str, ...], soft: tuple[str, ...]) -> Any:
    """All kinds of evidence together."""
    import numpy as np

    from undirected.inference.evidence import check_left, read_evidence, take

    given = read_evidence(network.domain, read_literals(network, literals, files))
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
@common.names_option
@evidence_options
@click.option("--variables", help="Only these, with commas between them (default: all that are not known).")
@click.option("--method", default="auto", show_default=True, help="auto, junction-tree, gibbs, mcsat, bp, trw, mean-field, enumeration.")
@click.option("--precision", type=click.FloatRange(0, min_open=True), default=0.005, show_default=True, help="Standard error to sample to.")
@time_option
@click.option("--require-mixed", is_flag=True, help="End with exit code 6 where chains have not mixed.")
@click.option("--start", metavar="DATA", help="A table at whose rows half of the chains start.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False),
    help="A UAI result file: .MAR (the marginals of all variables) or .PR (the logarithm to base 10 of the partition function).",
)  # fmt: skip
@work_options
@common.output_options
def query(
    network: str,
    domain_from: str | None,
    literals: tuple[str, ...],
    files: tuple[str, ...],
    soft: tuple[str, ...],
    variables: str | None,
    method: str,
    precision: float,
    time_budget: float,
    require_mixed: bool,
    start: str | None,
    output: str | None,
    seed: int,
    threads: int | None,
    memory: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """How likely is what in NETWORK, given evidence?"""
    suffix = _check_result(output, (".mar", ".pr"))
    if output is not None and variables is not None:
        raise click.UsageError(f"-o {output}: the file is about all variables; leave out --variables")
    model = common.load_network(network, domain_from)
    given = read_given(model, literals, files, soft)
    if suffix == ".pr":
        how = {"junction-tree": "exact"}.get(method, method)
        found = model.log_partition(given, how, time_budget=time_budget, seed=seed, threads=threads, memory=memory)
        _write_partition(found, str(output), as_json)
        return 0
    wanted = None if variables is None else [name.strip() for name in variables.split(",") if name.strip()]
    answer = model.query(
        given, wanted if output is None else model.domain.names, method, precision=precision, time_budget=time_budget, data=start,
        seed=seed, threads=threads, memory=memory,
    )  # fmt: skip
    if output is None:
        limit = 40 if wanted is None and sys.stdout.isatty() else None
        common.emit(answer.to_dict(), as_json, answer.to_text(limit=limit))
    else:
        from undirected.formats.uai import dumps_marginals

        text = dumps_marginals(model.domain, answer.marginals)
        _write_result(text, output, answer.to_dict(), as_json, answer.summary())
    if answer.stopped_by == "interrupt":
        return common.EXIT_INTERRUPTED
    if require_mixed and answer.mixed is False:
        return common.EXIT_NOTHING
    return 0 if answer.stopped_by is None and answer.mixed is not False and answer.converged else common.EXIT_EARLY


def _write_partition(found: LogPartition, output: str, as_json: bool) -> None:
    from undirected.formats.uai import dumps_partition

    _write_result(dumps_partition(found.value), output, {"log_partition": found.to_dict()}, as_json, f"log Z {found}")


@click.command("map", epilog=MAP_EXAMPLES)
@click.argument("network")
@common.names_option
@evidence_options
@click.option("--best", type=click.IntRange(1), default=1, show_default=True, help="How many of the most probable states.")
@click.option("--method", default="auto", show_default=True, help="auto, exact, annealing, icm.")
@time_option
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A UAI result file: .MAP (the numbers of the best one's states).")
@work_options
@common.output_options
def map_(
    network: str,
    domain_from: str | None,
    literals: tuple[str, ...],
    files: tuple[str, ...],
    soft: tuple[str, ...],
    best: int,
    method: str,
    time_budget: float,
    output: str | None,
    seed: int,
    threads: int | None,
    memory: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """The most probable state of all variables of NETWORK, given evidence."""
    _check_result(output, (".map",))
    model = common.load_network(network, domain_from)
    given = read_given(model, literals, files, soft)
    found = model.map_state(given, best, method, time_budget=time_budget, seed=seed, threads=threads, memory=memory)
    if output is None:
        common.emit(found.to_dict(), as_json, str(found))
        return
    from undirected.formats.uai import dumps_assignment

    _write_result(dumps_assignment(model.domain, found[0]), output, found.to_dict(), as_json, str(found))


@click.command(epilog="\b\nExample:\n  undirected sample net.json -n 1000 -e smoker=yes -o rows.csv")
@click.argument("network")
@common.names_option
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
    domain_from: str | None,
    n: int,
    literals: tuple[str, ...],
    files: tuple[str, ...],
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
    _check_output(output)
    model = common.load_network(network, domain_from)
    table = model.sample(n, read_given(model, literals, files, soft), sweeps=sweeps, data=start, seed=seed, threads=threads, memory=memory)
    common.remark(table.source, quiet)
    _write(table.to_csv(codes=bool(output) and str(output).endswith(".data")), output, {"rows": len(table), "how": table.source}, as_json)


@click.command(epilog="\b\nExample:\n  undirected impute net.json gaps.csv -o full.csv")
@click.argument("network")
@click.argument("data")
@common.names_option
@click.option(
    "--method",
    default="map",
    show_default=True,
    help="map (most probable completion of a row), sample, or marginal (cell by cell).",
)
@common.table_options
@common.unknown_option
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A .csv file (default: standard output).")
@work_options
@common.output_options
def impute(
    network: str,
    domain_from: str | None,
    data: str,
    method: str,
    output: str | None,
    seed: int,
    threads: int | None,
    memory: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
    unknown: str,
    **reading: Any,
) -> None:
    """Fill in the missing cells of DATA by NETWORK; known cells stay as they were written."""
    from undirected.data.readers import read_raw
    from undirected.inference import Session

    _check_output(output, (".csv",))
    model = common.load_network(network, domain_from)
    session = Session(model, seed=seed, threads=threads, memory=memory)
    text, cells = session.impute_text(read_raw(data, common.make_reading(reading)), method, unknown)
    common.remark(f"filled {cells:,} missing cells", quiet)
    _write(text, output, {"filled": cells}, as_json)


@click.command(
    epilog="\b\nExample:\n  undirected explain net.json lung --row 3 --data survey.csv\n  undirected explain net.json lung -e smoker=yes"
)
@click.argument("network")
@click.argument("variable")
@common.names_option
@literal_options
@click.option("--data", metavar="DATA", help="A table to take the row from.")
@click.option("--row", type=click.IntRange(1), default=1, show_default=True, help="Which row of --data.")
@common.table_options
@common.unknown_option
@click.option("--state", help="Explain this state (default: the row's own, or the most probable).")
@click.option("--against", help="Against this one (default: the likeliest other).")
@click.option("--top", type=click.IntRange(0), default=20, show_default=True, help="How many features to show.")
@common.output_options
def explain(
    network: str,
    domain_from: str | None,
    variable: str,
    literals: tuple[str, ...],
    files: tuple[str, ...],
    data: str | None,
    row: int,
    state: str | None,
    against: str | None,
    top: int,
    as_json: bool,
    quiet: bool,
    debug: bool,
    unknown: str,
    **reading: Any,
) -> None:
    """Which features push VARIABLE towards a state, given the rest of a row, and by how much; the parts add up exactly."""
    import numpy as np

    from undirected.data.readers import read_raw
    from undirected.errors import DataError
    from undirected.inference import read_partial
    from undirected.inference.evidence import read_evidence

    model = common.load_network(network, domain_from)
    codes = np.full(len(model.domain), -1)
    if data is not None:
        table = read_partial(model, read_raw(data, common.make_reading(reading)), variable, unknown)
        if row > len(table):
            raise DataError(f"{table.source} has {len(table):,} rows, so there is no row {row}")
        codes = table.codes[row - 1].astype(int)
    allowed = read_evidence(model.domain, read_literals(model, literals, files)).allowed
    for v in range(len(model.domain)):
        left = np.flatnonzero(allowed[model.domain.base[v] : model.domain.base[v + 1]])
        if len(left) == 1:
            codes[v] = left[0]
    found = model.explain(variable, codes, state, against)
    common.emit(found.to_dict(), as_json, found.to_text(top))


def _check_output(output: str | None, suffixes: tuple[str, ...] = (".csv", ".data")) -> None:
    from undirected.store import check_writable

    if output is not None:
        if not output.endswith(suffixes):
            raise click.UsageError(f"-o {output}: rows are written as {' or '.join(suffixes)}")
        check_writable(output)


def _check_result(output: str | None, known: tuple[str, ...]) -> str:
    """The suffix of a UAI result file, in small letters; an error before any work where it cannot be written."""
    from undirected import formats
    from undirected.store import check_writable

    if output is None:
        return ""
    suffix = formats.check_suffix(output, known)
    check_writable(output)
    return suffix


def _write_result(content: str, output: str, values: dict[str, Any], as_json: bool, told: str) -> None:
    from undirected.store import write_whole

    write_whole(output, content)
    common.emit({**values, "output": output}, as_json, f"{told}\nwrote {output}")


def _write(text: str, output: str | None, values: dict[str, Any], as_json: bool) -> None:
    from undirected.store import write_whole

    if output is None and not as_json:
        click.echo(text, nl=False)
        return
    if output is not None:
        write_whole(output, text)
    common.emit({**values, "output": output, **({} if output else {"csv": text})}, as_json, f"wrote {output}")
