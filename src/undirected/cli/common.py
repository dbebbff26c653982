"""Options and habits that the commands share. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from undirected.errors import Unconverged
from undirected.work import Event, Milestone, StoppedBy

if TYPE_CHECKING:
    from undirected.data.dataset import Dataset
    from undirected.network.network import MarkovNetwork
    from undirected.weights.fit import WeightFit

F = TypeVar("F", bound=Callable[..., Any])

EXIT_EARLY = 5
EXIT_NOTHING = 6
EXIT_INTERRUPTED = 130


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """90, 90s, 5m or 1.5h."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", str(value).strip())
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a time such as 60s, 5m or 1h", param, ctx)
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600, None: 1}[match[2]]


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """500MB, 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])?(i?)B?", str(value).strip(), re.IGNORECASE)
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a size such as 500MB or 2GiB", param, ctx)
        power = " KMGT".index(match[2].upper()) if match[2] else 0
        return min(int(float(match[1]) * (1024 if match[3] else 1000) ** power), 1 << 60)


class Deviation(click.ParamType):  # type: ignore[type-arg]
    """A number above zero, or inf."""

    name = "number|inf"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not number > 0:
            self.fail(f"{value}: the standard deviation must be above zero (inf for no Gaussian prior)", param, ctx)
        return number


def combine_options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


missing_option = click.option(
    "--missing",
    type=click.Choice(["learn", "error", "drop", "mode", "state"]),
    default="learn",
    show_default=True,
    help="Missing cells. learn: learners draw what they may have been, scores are of the known cells, other work ends with an error. Or: "
    "error, drop the rows, fill in the most frequent state, make them a state.",
)
memory_option = click.option("--memory", type=Bytes(), default="2GiB", show_default=True, help="Memory that row lists may take.")

output_options = combine_options(
    click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output."),
    click.option("-q", "--quiet", is_flag=True, help="No progress, no remarks."),
    click.option("--debug", is_flag=True, help="A traceback where something goes wrong."),
)


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names with commas between them; one that holds a comma stands in double quotes."""

    name = "A,B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        import csv

        names = tuple(name.strip() for name in next(csv.reader([str(value)], skipinitialspace=True), []) if name.strip())
        if not names:
            self.fail(f"{value!r} names nothing; write names with commas between them", param, ctx)
        return names


unknown_option = click.option(
    "--unknown",
    type=click.Choice(["error", "missing"]),
    default="error",
    show_default=True,
    help="States that the network does not know: an error, or missing cells.",
)

table_options = combine_options(
    click.option(
        "--format", "format_", type=click.Choice(["csv", "tsv", "basket", "libra", "parquet", "npz"]), help="Override the suffix."
    ),
    click.option("--header/--no-header", default=None, help="Whether the first line holds names (default: found out)."),
    click.option("--encoding", metavar="NAME", help="How bytes are text, for instance latin-1 (default: UTF-8)."),
    click.option("--decimal", type=click.Choice([",", "."]), help="The mark in decimal numbers (default: found out)."),
    click.option("--na", multiple=True, metavar="TEXT", help="One more text that means a missing cell: --na 99 --na ."),
    click.option("--drop", multiple=True, metavar="COL", help="Leave out a column; may be repeated."),
    click.option("--columns", type=Names(), help="Take only these columns."),
)
read_options = combine_options(table_options, missing_option, unknown_option)

domain_options = combine_options(
    click.option("--bins", type=click.IntRange(2), default=4, show_default=True, help="Bins for numeric columns."),
    click.option("--categorical", multiple=True, metavar="COL", help="Take a column as states, even if it holds numbers."),
    click.option("--numeric", multiple=True, metavar="COL", help="Take a column as numbers, even if it has few values."),
    click.option("--domain-from", metavar="DATA", help="Add the states of another table to the domain."),
)

seed_type = click.IntRange(0, 2**63 - 1)

names_option = click.option(
    "--domain-from", metavar="FILE", help="A network (.json) or table that gives names and states to a .mn or .uai network, by position."
)

compute_options = combine_options(
    click.option("--threads", type=click.IntRange(1, 4096), help="Cores to use (default: all); the result is the same for any number."),
    click.option("--time-budget", type=Seconds(), help="Stop after this long (60s, 5m) with the best weights so far."),
    memory_option,
)

weight_options = combine_options(
    click.option("--l1", type=click.FloatRange(0), default=0.0, show_default=True, help="L1 penalty (learn -a all-pairs: 1, gssl: 5)."),
    click.option(
        "--sd", type=Deviation(), default="1", show_default=True, help="Deviation of the Gaussian prior; inf for none (learn -a gssl: 0.5)."
    ),
    click.option(
        "--tol", type=click.FloatRange(0, min_open=True), default=1e-5, show_default=True, help="Largest violation of optimality."
    ),
    click.option("--prune", is_flag=True, help="Leave features of weight zero out of the result."),
)


def remark(text: str, quiet: bool) -> None:
    if not quiet:
        click.echo(text, err=True)


def emit(values: dict[str, Any], as_json: bool, text: str) -> None:
    """The result: JSON or text, on standard output."""
    click.echo(json.dumps(_plain(values), allow_nan=False) if as_json else text)


def format_csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def _plain(value: Any) -> Any:
    """JSON has no infinity: it becomes a text, as in network files."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def load_network(path: str, domain_from: str | None) -> MarkovNetwork:
    """Read a NETWORK argument, with the names of another file where one is given."""
    from undirected import formats
    from undirected.data.readers import read_data

    if domain_from is None:
        return formats.load(path)
    named = formats.load(domain_from) if domain_from.lower().endswith(formats.READABLE) else read_data(domain_from)
    return formats.load(path, named)


TABLE = ("format_", "header", "encoding", "decimal", "na", "drop", "columns")  # what `table_options` gives


def read_table(
    data: str, quiet: bool, *, domain: Any = None, format_: str | None, missing: str, columns: tuple[str, ...] | None, **how: Any
) -> Dataset:
    """Read a DATA argument and tell what was done to missing cells."""
    from undirected.data.readers import read_data

    raw = read_data(data, domain=domain, format=format_, columns=columns, **how)
    table = raw.resolve_missing(missing, domain is not None)
    if raw.has_missing and missing != "error":
        cells = int((raw.codes < 0).sum())
        what = {
            "learn": f"{cells:,} cells are missing, in {int((raw.codes < 0).any(axis=1).sum()):,} of {len(raw):,} rows",
            "drop": f"dropped {len(raw) - len(table):,} of {len(raw):,} rows with missing cells",
            "mode": f"filled {cells:,} missing cells with the most frequent states",
            "state": f"made {cells:,} missing cells a state of their own",
        }[missing]
        remark(f"{raw.source}: {what}", quiet)
    return table


def choose_known_domain_options(reading: dict[str, Any]) -> dict[str, Any]:
    """Of the options for reading a table, those that matter when its domain is given."""
    return {name: reading[name] for name in (*TABLE, "missing", "unknown")}


def make_reading(options: dict[str, Any]) -> Any:
    """The options for reading a table as `undirected.data.readers.read_raw` takes them."""
    from undirected.data.readers import Reading

    return Reading(*(options[name] for name in TABLE))


@contextmanager
def show_status(quiet: bool, first: str) -> Iterator[Callable[[str], None] | None]:
    """A line on the terminal that can be changed; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(first) as status:
        yield status.update


class Screen:
    """The listener of the command line: milestones become lines, other events follow each other in one line of a terminal."""

    def __init__(self, quiet: bool, show: Callable[[str], None] | None) -> None:
        self.quiet, self.show = quiet, show

    def __deepcopy__(self, memo: dict[int, Any]) -> Screen:
        return self  # learners are cloned; the screen is one

    def __call__(self, event: Event) -> None:
        if isinstance(event, Milestone):
            remark(str(event), self.quiet)
        elif self.show is not None:
            self.show(str(event))


@contextmanager
def follow_work(quiet: bool, first: str = "preparing ...") -> Iterator[Screen]:
    """A listener that draws the events of long work on standard error."""
    with show_status(quiet, first) as show:
        yield Screen(quiet, show)


@contextmanager
def silence_early_warnings() -> Iterator[None]:
    """An early stop is told by the exit code and the report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)
        yield


def choose_exit_code(fit: WeightFit) -> int:
    return {StoppedBy.TOLERANCE: 0, StoppedBy.INTERRUPT: EXIT_INTERRUPTED}.get(fit.stopped_by, EXIT_EARLY)


def describe_fit(fit: WeightFit) -> str:
    state = "converged" if fit.converged else f"stopped by {fit.stopped_by}"
    return (
        f"{len(fit.features):,} features, {fit.n_nonzero:,} not zero; objective {fit.objective:,.4f}, violation {fit.violation:.1e}, "
        f"{state} after {fit.iterations} steps, {fit.seconds:.2f} s on {fit.threads} threads"
    )
