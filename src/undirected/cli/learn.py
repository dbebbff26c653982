"""``learn`` and ``weights``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common, learners
from undirected.structure.names import LEARNERS

if TYPE_CHECKING:
    from undirected.data.dataset import Dataset
    from undirected.features.feature_set import FeatureSet

LEARN_EXAMPLES = """\b
Examples:
  undirected learn survey.csv -a gssl --l1 5 -o net.json
  undirected learn nltcs -a gssl --l1 1 --sd 0.5 --valid nltcs:valid -o net.json
  undirected learn survey.csv -a dtsl --conversion prune-5 --sd 0.5 -o net.json
  undirected learn symptoms.csv -a l1 -o net.json         (a graph chosen by EBIC)
  undirected learn nltcs -a blm --alpha 1 --checkpoint nltcs.search -o net.json
  undirected learn nltcs -a dtsl --tune --valid nltcs:valid --ledger nltcs.jsonl -o net.json
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
@click.option("-a", "--algorithm", type=click.Choice(list(LEARNERS)), default="gssl", show_default=True, help="The structure learner.")
@learners.learner_options
@common.weight_options
@click.option("--tune", "tuning", is_flag=True, help="Choose the settings on validation data (--valid; a tenth of the rows without).")
@click.option("--grid", type=click.Choice(["quick", "paper"]), default="quick", show_default=True, help="What --tune tries.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Where --tune keeps finished settings, to go on after an interruption.")
@click.option("--valid", metavar="DATA|FRACTION", help="Validation data, or a fraction of the rows to set aside, to score afterwards.")
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="The same seed, the same network.")
@common.read_options
@common.domain_options
@common.compute_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to save the network (.json, .mn, .uai, .graphml).")
@common.output_options
@click.pass_context
def learn(
    ctx: click.Context,
    /,
    data: str,
    algorithm: str,
    tuning: bool,
    grid: str,
    ledger: str | None,
    valid: str | None,
    seed: int,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **options: Any,
) -> int:
    """Learn a network, structure and weights, from DATA."""
    _check_output(output)
    learner, reading = learners.build(ctx, algorithm, options, tuning, seed)
    table = common.read_table(data, quiet, **reading)
    table, held_out = _split(table, valid or ("0.1" if tuning else None), seed, quiet, **common.known_domain_options(reading))
    common.remark(f"{table.source}: {len(table):,} rows ({table.n_distinct:,} distinct), {len(table.domain)} variables", quiet)
    report: dict[str, Any] = {"algorithm": algorithm}
    lines: list[str] = []
    with common.solver_progress(quiet) as progress, common.without_early_warnings():
        learner.set_params(progress=progress)
        if tuning:
            learner = _tuned(learner, grid, table, held_out, ledger, quiet, report, lines)
        else:
            learner.fit(table)
    network, fit = learner.network_, learner.fit_
    report |= {**fit.report(), **_details(learner, lines)}
    lines.append(common.describe_fit(fit))
    if held_out is not None:
        report["valid_pll"] = network.pll(held_out, learner.threads)
        report["valid_npll"] = report["valid_pll"] / len(network.domain)
        lines.append(f"validation PLL {report['valid_pll']:.6f}, per variable {report['valid_npll']:.6f}")
    _save(network, output, report, lines)
    if output is None:
        lines.append(network.summary())
        common.remark("the network was not saved; add -o net.json to keep it", quiet)
    common.emit(report, as_json, "\n".join(lines))
    return common.exit_code(fit)


def _tuned(
    learner: Any,
    grid: str,
    table: Dataset,
    valid: Dataset | None,
    ledger: str | None,
    quiet: bool,
    report: dict[str, Any],
    lines: list[str],
) -> Any:
    from undirected.weights.tuning import tune

    def told(done: int, tried: int, best: dict[str, Any]) -> None:
        common.remark(f"{done} structures, {tried} settings: best validation PLL {best['valid_pll']:.6f}", quiet)

    tuned = tune(learner, grid, table, valid, ledger=ledger, progress=told)
    report |= {"settings": tuned.settings, "tried": tuned.rows, "complete": tuned.complete}
    if not tuned.complete:
        lines.append("the time budget ended the search before all settings were tried")
    lines += [str(tuned), "best: " + ", ".join(f"{name} {value}" for name, value in tuned.settings.items())]
    return tuned.learner


def _details(learner: Any, lines: list[str]) -> dict[str, Any]:
    """What a learner has to tell beside its weights."""
    if hasattr(learner, "generation_seconds_"):
        made = (learner.n_listed_, learner.n_unique_, learner.generation_seconds_)
        lines.append("generated {:,}, {:,} distinct, in {:.2f} s".format(*made))
        return dict(zip(("n_generated", "n_unique", "generation_seconds"), made, strict=True))
    if hasattr(learner, "trees_"):
        lines.append(f"trees with {learner.trees_.n_leaves:,} leaves, kappa {learner.kappa_:g}")
        return {"n_leaves": learner.trees_.n_leaves, "kappa": learner.kappa_}
    if hasattr(learner, "trace_"):
        trace = learner.trace_
        lines.append(f"search: {trace}")
        return {"search": trace.points[-1]._asdict() | {"n_scored": trace.n_scored, "stopped_by": trace.stopped_by}}
    if hasattr(learner, "picked_"):
        lines.append(
            f"the regressions picked {int(learner.picked_.sum()):,} of {learner.picked_.size - len(learner.picked_):,} coefficients"
        )
        return {"n_picked": int(learner.picked_.sum())}
    return {}


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
