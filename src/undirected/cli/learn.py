"""``learn`` and ``weights``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common

if TYPE_CHECKING:
    from undirected.data.dataset import Dataset
    from undirected.features.feature_set import FeatureSet

LEARN_EXAMPLES = """\b
Examples:
  undirected learn survey.csv -a gssl --l1 5 -o net.json
  undirected learn nltcs -a gssl --l1 1 --sd 0.5 --valid nltcs:valid -o net.json
  undirected learn baskets.txt --format basket --time-budget 60s -o net.json
"""
WEIGHTS_EXAMPLES = """\b
Examples:
  undirected weights features.mn nltcs --l1 1 --sd 0.5 -o net.mn
  undirected weights pairs.txt survey.csv -o net.json     (one feature a line: smoker=yes & age=old)
  undirected weights net.json new.csv --warm-start -o net2.json
"""


@click.command(epilog=LEARN_EXAMPLES)
@click.argument("data")
@click.option("-a", "--algorithm", type=click.Choice(["gssl"]), default="gssl", show_default=True, help="The structure learner.")
@click.option("--n-generated", type=click.IntRange(1), default=1_000_000, show_default=True, help="gssl: length of the list of candidates.")
@click.option(
    "--threshold",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="gssl: keep candidates generated more often than this.",
)
@click.option(
    "--initial",
    type=click.Choice(["auto", "all", "positive"]),
    default="auto",
    show_default=True,
    help="gssl: rows as all literals, or only true ones.",
)
@common.weight_options
@click.option("--valid", metavar="DATA|FRACTION", help="Validation data, or a fraction of the rows to set aside, to score afterwards.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed, the same network.")
@common.read_options
@common.domain_options
@common.compute_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to save the network (.json, .mn, .uai, .graphml).")
@common.output_options
def learn(
    data: str,
    algorithm: str,
    n_generated: int,
    threshold: int,
    initial: str,
    l1: float,
    sd: float,
    tol: float,
    prune: bool,
    valid: str | None,
    seed: int,
    threads: int | None,
    time_budget: float | None,
    memory: int,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **reading: Any,
) -> int:
    """Learn a network, structure and weights, from DATA."""
    from undirected.structure.gssl import GSSL

    _check_output(output)
    table = common.read_table(data, quiet, **reading)
    table, held_out = _split(table, valid, seed, quiet, **common.known_domain_options(reading))
    common.remark(f"{table.source}: {len(table):,} rows ({table.n_distinct:,} distinct), {len(table.domain)} variables", quiet)
    with common.solver_progress(quiet) as progress, common.without_early_warnings():
        learner = GSSL(
            n_generated,
            threshold,
            initial,
            l1,
            sd,
            tol,
            prune,
            threads=threads,
            memory=memory,
            time_budget=time_budget,
            progress=progress,
            random_state=seed,
        ).fit(table)
    network, fit = learner.network_, learner.fit_
    report: dict[str, Any] = {
        **fit.report(),
        "n_generated": learner.n_listed_,
        "n_unique": learner.n_unique_,
        "generation_seconds": learner.generation_seconds_,
    }
    lines = [
        f"generated {learner.n_listed_:,}, {learner.n_unique_:,} distinct, in {learner.generation_seconds_:.2f} s",
        common.describe_fit(fit),
    ]
    if held_out is not None:
        report["valid_pll"] = network.pll(held_out, threads)
        report["valid_npll"] = report["valid_pll"] / len(network.domain)
        lines.append(f"validation PLL {report['valid_pll']:.6f}, per variable {report['valid_npll']:.6f}")
    _save(network, output, report, lines)
    if output is None:
        lines.append(network.summary())
        common.remark("the network was not saved; add -o net.json to keep it", quiet)
    common.emit(report, as_json, "\n".join(lines))
    return common.exit_code(fit)


@click.command(epilog=WEIGHTS_EXAMPLES)
@click.argument("features")
@click.argument("data")
@common.weight_options
@click.option("--warm-start", is_flag=True, help="Start from the weights in FEATURES.")
@click.option(
    "--solver",
    type=click.Choice(["auto", "plain"]),
    default="auto",
    show_default=True,
    help="plain: L-BFGS or OWL-QN as in the papers.",
)
@common.read_options
@common.domain_options
@common.compute_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to save the network (.json, .mn, .uai, .graphml).")
@common.output_options
def weights(
    features: str,
    data: str,
    l1: float,
    sd: float,
    tol: float,
    prune: bool,
    warm_start: bool,
    solver: str,
    threads: int | None,
    time_budget: float | None,
    memory: int,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **reading: Any,
) -> int:
    """Learn the weights of exactly the features in FEATURES (a network file, or a .txt with one feature a line) on DATA."""
    from undirected.weights.fit import fit_weights

    _check_output(output)
    start = None
    if features.lower().endswith(".txt"):
        table = common.read_table(data, quiet, **reading)
        chosen = _features_from_text(features, table)
    else:
        from undirected import formats

        network = formats.load(features)
        chosen = network.features
        start = network.weights if warm_start else None
        table = common.read_table(data, quiet, domain=network.domain, **common.known_domain_options(reading))
    with common.solver_progress(quiet) as progress, common.without_early_warnings():
        fit = fit_weights(
            chosen,
            table,
            l1,
            sd,
            tol=tol,
            start=start,
            threads=threads,
            memory=memory,
            time_budget=time_budget,
            progress=progress,
            solver=solver,
        )
    report = fit.report()
    lines = [common.describe_fit(fit)]
    _save(fit.network(prune), output, report, lines)
    common.emit(report, as_json, "\n".join(lines))
    return common.exit_code(fit)


def _features_from_text(path: str, table: Dataset) -> FeatureSet:
    from undirected import formats
    from undirected.features.feature_set import FeatureSet

    return FeatureSet.from_texts(formats.read_features(path), table.domain)


def _check_output(output: str | None) -> None:
    """Refuse before the work what could not be written after it."""
    if output is not None:
        from undirected import formats
        from undirected.data.files import check_writable

        formats.suffix_of(output, formats.WRITABLE)
        check_writable(output)


def _save(network: Any, output: str | None, report: dict[str, Any], lines: list[str]) -> None:
    if output is not None:
        network.save(output)
        report["output"] = output
        lines.append(f"wrote {output}")


def _split(table: Dataset, valid: str | None, seed: int, quiet: bool, **how: Any) -> tuple[Dataset, Dataset | None]:
    if valid is None:
        return table, None
    try:
        fraction = float(valid)
    except ValueError:
        return table, common.read_table(valid, quiet, domain=table.domain, **how)
    from undirected.data.splits import holdout

    return holdout(table, fraction, seed)
