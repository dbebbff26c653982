"""``score``, ``show``, ``plot`` and ``convert``: what one does with a saved network."""

from __future__ import annotations

import math
from typing import Any

import click

from undirected.cli import common

SCORE_EXAMPLES = """\b
Examples:
  undirected score net.json nltcs:test
  undirected score net.json nltcs:test --metric cmll,pll,ll --seed 1
"""


class Metrics(click.ParamType):  # type: ignore[type-arg]
    """Some of pll, cmll, ll, with commas between them."""

    name = "metrics"
    known = ("pll", "cmll", "ll")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        unknown = [name for name in names if name not in self.known]
        if unknown or not names:
            self.fail(f"{value!r} is not made of {', '.join(self.known)}", param, ctx)
        return names


@click.command(epilog=SCORE_EXAMPLES)
@click.argument("network")
@click.argument("data")
@common.names_option
@click.option(
    "--metric", type=Metrics(), default="pll", show_default=True,
    help="pll: pseudo-log-likelihood; cmll: conditional marginals, four groups of variables; ll: log-likelihood. With commas for several.",
)  # fmt: skip
@click.option("--by-variable", is_flag=True, help="Also the mean PLL of each variable.")
@click.option("--split", type=click.Choice(["random", "contiguous", "every"]), default="random", show_default=True, help="Groups for cmll.")
@click.option("--sweeps", type=click.IntRange(2), default=1000, show_default=True, help="Of Gibbs sampling, where cmll is not exact.")
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="For the groups of cmll, and for sampling.")
@common.read_options
@click.option("--time-budget", type=common.Seconds(), default="10s", show_default=True, help="For the partition function of ll.")
@click.option("--threads", type=click.IntRange(1, 4096), help="Cores to use (default: all).")
@common.output_options
def score(
    network: str,
    data: str,
    domain_from: str | None,
    metric: tuple[str, ...],
    by_variable: bool,
    split: str,
    sweeps: int,
    seed: int,
    time_budget: float,
    threads: int | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **reading: Any,
) -> None:
    """Score NETWORK on DATA: means over rows, higher is better; npll and ncmll are per variable."""
    model = common.load_network(network, domain_from)
    table = common.read_table(data, quiet, domain=model.domain, **reading)
    if "ll" in metric or reading["missing"] != "learn":
        table.require_complete("scoring")
    values: dict[str, Any] = {}
    lines: list[str] = []
    if "pll" in metric or by_variable:
        _, variables = model.pll_terms(table, threads)
        total = float(variables.sum())
        values |= {"pll": total, "npll": total / len(model.domain)}
        lines += [f"pll    {total:.6f}", f"npll   {values['npll']:.6f}"]
    if "cmll" in metric:
        from undirected.evaluation.cmll import cmll
        from undirected.work import Event

        with common.show_status(quiet, "cmll ...") as show:

            def report(event: Event) -> None:
                if show is not None:
                    show(f"{event} rows")

            found = cmll(model, table, seed=seed, split=split, sweeps=sweeps, threads=threads, progress=report)
        errors = {"cmll_se": found.standard_error, "ncmll_se": found.standard_error / len(model.domain)}
        values |= {"cmll": found.value, "ncmll": found.per_variable, **errors, "cmll_method": found.method}
        lines += [f"cmll   {found.value:.6f} ± {found.standard_error:.2g} ({found.method})", f"ncmll  {found.per_variable:.6f}"]
    if "ll" in metric:
        from undirected.inference import Session

        likelihood = Session(model, seed=seed, threads=threads).log_likelihood(table, time_budget=time_budget)
        known = math.isfinite(likelihood.standard_error)
        error = likelihood.standard_error if known else None
        values |= {"ll": likelihood.value, "ll_se": error, "log_partition": likelihood.partition.to_dict()}
        lines += [f"ll     {likelihood.value:.6f} ± {f'{error:.2g}' if known else 'not known'}", f"log Z  {likelihood.partition}"]
    values["rows"] = len(table)
    lines.append(f"rows   {len(table)}")
    if by_variable:
        values["by_variable"] = dict(zip(model.domain.names, variables.tolist(), strict=True))
        lines += [f"  {value:10.6f}  {name}" for name, value in values["by_variable"].items()]
    common.emit(values, as_json, "\n".join(lines))


SHOW_EXAMPLES = """\b
Examples:
  undirected show net.json --top 20
  undirected show net.json --centrality --predictability survey.csv
  undirected show net.json --edges edges.csv
"""
PLOT_EXAMPLES = """\b
Examples:
  undirected plot net.json -o graph.svg --top 80
  undirected plot net.json -o graph.pdf --groups topics.csv --rings survey.csv --size 7,6
  undirected plot women.json -o women.svg --layout all.json --maximum 2    (the places of another network, and its scale)
"""


@click.command(epilog=SHOW_EXAMPLES)
@click.argument("network")
@common.names_option
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="How many of the strongest features.")
@click.option("--centrality", is_flag=True, help="Strength, expected influence, closeness and betweenness of each variable.")
@click.option("--predictability", metavar="DATA", help="The share of each variable's uncertainty that the others explain, on these rows.")
@click.option("--edges", type=click.Path(dir_okay=False), help="Where to save all edges: a, b, strength, signed (.csv).")
@common.output_options
def show(
    network: str,
    domain_from: str | None,
    top: int,
    centrality: bool,
    predictability: str | None,
    edges: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Sizes, degrees and the strongest features of NETWORK."""
    import numpy as np

    from undirected.network.edges import find_joined_pairs
    from undirected.store import check_writable, write_whole

    if edges is not None:
        check_writable(edges)
    model = common.load_network(network, domain_from)
    pairs = find_joined_pairs(model.features, model.weights)
    degrees = dict(zip(model.domain.names, np.bincount(pairs.ravel(), minlength=len(model.domain)).tolist(), strict=True))
    values: dict[str, Any] = {
        "n_variables": len(model.domain),
        "n_features": len(model.features),
        "n_nonzero": int((model.weights != 0).sum()),
        "n_edges": len(pairs),
        "mean_length": float(model.features.lengths.mean()) if len(model.features) else 0.0,
        "degree": degrees,
        "strongest": [{"feature": text, "weight": weight} for text, weight in model.strongest(top)],
    }
    hubs = sorted(degrees.items(), key=lambda item: (-item[1], item[0]))[:5]
    text = model.summary(top)
    if len(pairs):
        text += "\n  most neighbours  " + ", ".join(f"{name} ({degree})" for name, degree in hubs)
    table: dict[str, dict[str, float]] = {}
    if centrality:
        values["centrality"] = model.centrality()
        table |= values["centrality"]
    if predictability is not None:
        from undirected.data.readers import read_data
        from undirected.evaluation.predictability import measure_predictability

        values["predictability"] = measure_predictability(model, read_data(predictability, domain=model.domain))
        table["predictability"] = values["predictability"]
    if table:
        text += "\n\n" + _format_table(table)
    if edges is not None:
        ranked = sorted(model.graph().edges(data=True), key=lambda edge: (-edge[2]["strength"], edge[0], edge[1]))
        write_whole(edges, common.format_csv(["a", "b", "strength", "signed"], [[a, b, e["strength"], e["signed"]] for a, b, e in ranked]))
        common.remark(f"wrote {edges}", quiet)
    common.emit(values, as_json, text)


def _format_table(table: dict[str, dict[str, float]]) -> str:
    """A line for each variable, those with the largest first measure first."""
    from undirected.tuning.tune import align_columns

    measures = list(table)
    first = table[measures[0]]
    names = sorted(first, key=lambda name: (-first[name], name))
    lines = [["variable", *(measure.replace("_", " ") for measure in measures)]]
    lines += [[name, *(f"{table[measure][name]:.3f}" for measure in measures)] for name in names]
    return "\n".join(align_columns(lines))


@click.command(epilog=PLOT_EXAMPLES)
@click.argument("network")
@common.names_option
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The picture (.svg, .png, .pdf).")
@click.option("--top", type=click.IntRange(1), default=60, show_default=True, help="How many of the strongest edges.")
@click.option("--layout", metavar="NETWORK", help="Put variables where they are in the picture of this network.")
@click.option("--groups", metavar="FILE", help="A table with the columns variable and group: nodes of one group have one colour.")
@click.option(
    "--rings", metavar="DATA", help="A ring around each node: the share of its uncertainty that the others explain, on these rows."
)
@click.option(
    "--maximum", type=click.FloatRange(0, min_open=True), help="The strength of the widest line (default: of the strongest edge)."
)
@click.option("--edge-labels", is_flag=True, help="Write the strength on each edge.")
@click.option("--black", is_flag=True, help="Without colours.")
@click.option("--size", metavar="W,H", help="In inches.")
@common.output_options
def plot(
    network: str,
    domain_from: str | None,
    output: str,
    top: int,
    layout: str | None,
    groups: str | None,
    rings: str | None,
    maximum: float | None,
    edge_labels: bool,
    black: bool,
    size: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Draw the graph of NETWORK.

    An edge is as wide as it is strong (the root mean square of the log odds ratios of its two variables, whatever the others are). It
    is blue where higher or later states of the two go together, orange and dashed where they shun each other, and grey where a variable
    has three or more states without an order. Variables without edges stand below.
    """
    from undirected.data.readers import read_data
    from undirected.evaluation.predictability import measure_predictability
    from undirected.network.edges import find_joined_pairs
    from undirected.plots import check_picture, draw_graph, find_layout, save_figure
    from undirected.store import check_writable

    check_picture(output)
    check_writable(output)
    model = common.load_network(network, domain_from)
    places = None
    if layout is not None:
        found = find_layout(common.load_network(layout, domain_from), top)
        places = {name: place for name, place in found.items() if model.domain.find(name) is not None}
    figure = draw_graph(
        model, top, layout=places, groups=None if groups is None else _read_groups(groups), maximum=maximum, edge_labels=edge_labels,
        rings=None if rings is None else measure_predictability(model, read_data(rings, domain=model.domain)), black=black,
        size=None if size is None else _read_size(size),
    )  # fmt: skip
    save_figure(figure, output)
    edges = len(find_joined_pairs(model.features, model.weights))
    common.emit({"output": output, "edges": edges, "shown": min(edges, top)}, as_json, f"wrote {output}")


def _read_groups(path: str) -> dict[str, str]:
    """The group of each variable, from a table with the columns variable and group."""
    import csv

    from undirected.errors import DataError

    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            head, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    names = [name.strip().lower() for name in head]
    if sorted(names) != ["group", "variable"]:
        raise DataError(f"{path}: its first line must name the columns variable and group, with a comma between them")
    bad = next((k for k, row in enumerate(rows, 2) if len(row) != 2), None)
    if bad is not None:
        raise DataError(f"{path}, line {bad}: two cells are needed, a variable and its group")
    at = names.index("variable")
    return {row[at].strip(): row[1 - at].strip() for row in rows}


def _read_size(text: str) -> tuple[float, float]:
    try:
        width, height = (float(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(f"--size {text!r}: width and height in inches are needed, such as 7,6") from None
    if not (0.5 <= width <= 100 and 0.5 <= height <= 100):
        raise click.UsageError(f"--size {text!r}: from half an inch to a hundred")
    return width, height


@click.command(epilog="\b\nExamples:\n  undirected convert net.json net.uai\n  undirected convert net.mn net.json --domain-from survey.csv")
@click.argument("source")
@click.argument("target")
@common.names_option
@common.output_options
def convert(source: str, target: str, domain_from: str | None, as_json: bool, quiet: bool, debug: bool) -> None:
    """Rewrite a network in another format; the suffixes decide (.json, .mn, .uai; .graphml to write only)."""
    from undirected import formats

    formats.check_suffix(target, formats.WRITABLE)
    model = common.load_network(source, domain_from)
    model.save(target)
    if model.domain.named and target.lower().endswith((".mn", ".uai")):
        known = "--domain-from with a network or table that has them gives them back when the file is read"
        common.remark(f"names of variables and states are not part of this format and were left out; {known}", quiet)
    values = {"output": target, "n_variables": len(model.domain), "n_features": len(model.features)}
    common.emit(values, as_json, f"wrote {target}")
