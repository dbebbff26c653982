"""``relate``: learn from databases, knowledge graphs and links."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common
from undirected.work import StoppedBy

if TYPE_CHECKING:
    from undirected.relational.data import RelationalData
    from undirected.relational.explain import Explained
    from undirected.relational.field import Inferred
    from undirected.relational.hidden import Category
    from undirected.relational.learner import RelationalLearner
    from undirected.relational.schema import Schema
    from undirected.relational.treermn import TreeRMN

ATOM = re.compile(r"\s*([^()]+?)\s*\((.*)\)\s*\.\s*(.+?)\s*", re.DOTALL)  # a type, the key of an entity, an attribute
PIECE = 1 << 16  # letters of a table that are written at a time
DATA_HELP = """\b
DATA is a folder with entities.tsv (attributes.tsv, relations.tsv, unknown.tsv), a database (shop.db,
shop.duckdb, sqlite:///shop.db, postgresql://...), lines of head, relation and tail (graph.tsv), or the
two files of Alchemy: x.mln x.db.
"""
EXAMPLES = f"""{DATA_HELP}
\b
Examples:
  undirected relate demo                                            a database to try: club.db
  undirected relate learn shop.db -o shop.json                      every setting is chosen by itself
  undirected relate learn shop.db --order 2 --hidden 3 -o shop.json
  undirected relate learn shop.db --model mrc -o shop.json          clusters of entities; irm too; msl: clauses
  undirected relate predict shop.json shop.db -o filled.csv         every missing cell with its distribution
  undirected relate show shop.json                                  strongest templates, hidden categories
  undirected relate explain shop.json shop.db 'person(Ann).smokes'
  undirected relate plot shop.json shop.db -o shop.svg
  undirected relate compare nations/ --learners rmn1,treermn,irm -o results/
"""


@click.group(epilog=EXAMPLES)
def relate() -> None:
    """Learn from entities and their links: predict missing cells, find groups, tell why."""


def read_options(function: Any) -> Any:
    """How data is read."""
    return common.combine_options(
        click.option("--open-world", is_flag=True, help="Triples: what is not listed is unknown, not false."),
        click.option("--self-pairs/--no-self-pairs", default=None, help="Pairs of an entity with itself (default: if a fact has one)."),
        click.option("--tables", type=common.Names(), help="Databases: these tables only."),
    )(function)


def _read(
    sources: tuple[str, ...], open_world: bool, self_pairs: bool | None, tables: tuple[str, ...] | None, like: Schema | None = None
) -> RelationalData:
    from undirected.relational.sources import open_relational

    return open_relational(sources, open_world=open_world, self_pairs=self_pairs, tables=tables, like=like)


@relate.command(epilog=EXAMPLES)
@click.option("-o", "--output", default="club.db", show_default=True, type=click.Path(dir_okay=False), help="The new file.")
@common.output_options
def demo(output: str, as_json: bool, quiet: bool, debug: bool) -> int:
    """Write a small database to try things on: the members, films, ratings and friendships of a film club."""
    from undirected.relational.film_club import make_film_club

    make_film_club(output)
    common.emit({"output": output}, as_json, f"wrote {output}; try: undirected relate learn {output} -o club.json")
    return 0


TREERMN_OPTIONS = (
    click.option("--order", type=click.IntRange(0, 6), default=1, show_default=True, help="Longest path between attributes, in steps."),
    click.option(
        "--hidden", default="auto", show_default=True, metavar="N|auto|none", help="Most hidden variables; auto: while they help."
    ),
    click.option(
        "--templates",
        type=click.Choice(["full", "unary"]),
        default="full",
        show_default=True,
        help="unary: linked by hidden ones only.",
    ),
    click.option(
        "--objective", type=click.Choice(["pl", "cd1"]), default="pl", show_default=True, help="cd1: the paper's contrastive divergence."
    ),
    click.option("--l1", default="auto", show_default=True, metavar="NUMBER|auto", help="L1 penalty; auto: what predicts best of a few."),
    click.option(
        "--beta", default="auto", show_default=True, metavar="NUMBER|auto", help="Ridge penalty; auto: what predicts best of a few."
    ),
    click.option("--beta-cluster", type=click.FloatRange(0), help="Ridge penalty where categories are judged; small: many of them."),
    click.option("--move/--no-move", "move_entities", default=False, help="After merging, move single entities between categories."),
    click.option("--free-hidden", is_flag=True, help="Let entities change their categories after each fit."),
    click.option("--hidden-types", type=common.Names(), help="Types that may have hidden variables (default: those that are no links)."),
)


@relate.command(epilog=EXAMPLES)
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--model", "learner", type=click.Choice(["treermn", "irm", "mrc", "msl"]), default="treermn", show_default=True,
    help="treermn: weights along paths, and hidden variables. irm: one partition of the entities. mrc: clusters inside clusters. msl: "
    "clauses. Options from --order to --hidden-types are treermn's.",
)  # fmt: skip
@common.combine_options(*TREERMN_OPTIONS)
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="For all that is drawn at random.")
@read_options
@common.compute_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File for the model (.json).")
@common.output_options
@click.pass_context
def learn(
    ctx: click.Context,
    /,
    data: tuple[str, ...],
    learner: str,
    seed: int,
    open_world: bool,
    self_pairs: bool | None,
    tables: tuple[str, ...] | None,
    threads: int | None,
    time_budget: float | None,
    memory: int,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **settings: Any,
) -> int:
    """Learn a model from entities and links."""
    from undirected.relational.model_file import save_model
    from undirected.relational.names import make_relational_learner
    from undirected.relational.treermn import TreeRMN
    from undirected.store import check_writable

    if output is not None:
        check_writable(output)
    settings |= {
        "hidden": 0 if settings["hidden"] == "none" else _read_number(settings["hidden"], "--hidden", int),
        "l1": _read_number(settings["l1"], "--l1", float),
        "beta": _read_number(settings["beta"], "--beta", float),
    }
    if learner != "treermn":
        named = [name for name in settings if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT]
        if named:
            option = next(p.opts[0] for p in ctx.command.params if p.name == named[0])
            raise click.UsageError(f"{option} is an option of treermn; {learner} does not have it")
        settings = {}
    given = _read(data, open_world, self_pairs, tables)
    common.remark(f"read {repr(given)[1:-1]}", quiet)
    with common.follow_work(quiet) as screen, common.silence_early_warnings():
        limits = {"threads": threads, "memory": memory, "time_budget": time_budget, "random_state": seed, "progress": screen}
        model = make_relational_learner(learner, "", **settings, **limits).fit(given)
    if output is not None:
        save_model(model, output)
        common.remark(f"wrote {output}", quiet)
    report, text = _describe_treermn(model) if isinstance(model, TreeRMN) else _describe_clusters(model)
    report |= {
        "learner": learner, "stopped_by": str(model.stopped_by_), "n_unknown": given.n_cells - given.n_observed, "seconds": model.seconds_
    }  # fmt: skip
    common.emit(report, as_json, f"{text}, {model.seconds_:.1f} s")
    complete = {StoppedBy.TOLERANCE: 0, StoppedBy.CONVERGED: 0, StoppedBy.INTERRUPT: common.EXIT_INTERRUPTED}
    if learner == "msl":
        complete[StoppedBy.ITERATIONS] = 0  # as many clauses as were asked for
    return complete.get(model.stopped_by_, common.EXIT_EARLY)


def _describe_treermn(model: TreeRMN) -> tuple[dict[str, Any], str]:
    """What was learned, for a program and for a reader."""
    n_nonzero = int((model.weights_ != 0).sum())
    report = {
        "dim_theta": model.dim_theta_, "n_nonzero": n_nonzero, "hidden": [h.n_categories for h in model.hidden_],
        "l1": model.l1_, "beta": model.beta_, "objective": model.outcome_.objective,
        "violation": model.outcome_.violation if model.objective == "pl" else None,
    }  # fmt: skip
    text = (
        f"{model.dim_theta_:,} weights, {n_nonzero:,} not zero, l1 {model.l1_:g}, beta {model.beta_:g}; hidden variables: "
        f"{', '.join(f'{h.name} of {h.n_categories} categories' for h in model.hidden_) or 'none'}; objective "
        f"{model.outcome_.objective:,.2f}, {_tell_end(model)}"
    )
    return report, text


def _describe_clusters(model: RelationalLearner) -> tuple[dict[str, Any], str]:
    """What IRM, MRC and MSL found, in numbers."""
    from undirected.relational.explain import list_clusters
    from undirected.relational.msl import MSL

    if isinstance(model, MSL):
        report: dict[str, Any] = {"clauses": len(model.clauses_), "sd": model.sd_, "inference": model.inference_}
        text = f"{len(model.clauses_):,} clauses, prior {model.sd_:g} wide, prediction by {model.inference_}"
    else:
        report = {"clusters": {kind: len(clusters) for kind, clusters in list_clusters(model).items()}}
        text = "clusters: " + (", ".join(f"{n} of {kind}" for kind, n in report["clusters"].items()) or "none")
    return report, f"{text}; stopped by {model.stopped_by_}"


def _tell_end(model: TreeRMN) -> str:
    """How the last fit ended; slopes of contrastive divergence certify nothing."""
    if model.objective == "cd1":
        return f"stopped by {model.stopped_by_}"
    return f"violation {model.outcome_.violation:.1e}, stopped by {model.stopped_by_}"


def _require_treermn(learned: RelationalLearner, path: str, task: str) -> TreeRMN:
    """A model for a task that needs weights along paths."""
    from undirected.errors import DataError
    from undirected.relational.treermn import TreeRMN

    if not isinstance(learned, TreeRMN):
        raise DataError(f"{path}: a model of {type(learned).__name__}, which has no weights along paths to {task}; try: relate show {path}")
    return learned


def _read_number(text: str, option: str, kind: type) -> Any:
    if text == "auto":
        return "auto"
    try:
        return kind(text)
    except ValueError:
        raise click.UsageError(f"{option} {text!r}: a number or auto is needed") from None


@relate.command(epilog=EXAMPLES)
@click.argument("model")
@click.argument("data", nargs=-1, required=True)
@click.option("--inference", type=click.Choice(["gibbs", "mean-field"]), help="How (gibbs, unless learned otherwise).")
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="For Gibbs sampling.")
@read_options
@common.compute_options
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File for the table (.csv); default: standard output.")
@common.output_options
def predict(
    model: str,
    data: tuple[str, ...],
    inference: str | None,
    seed: int,
    open_world: bool,
    self_pairs: bool | None,
    tables: tuple[str, ...] | None,
    threads: int | None,
    time_budget: float | None,
    memory: int,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Tell the distribution of every missing cell."""
    from undirected.relational.model_file import load_model
    from undirected.store import check_writable, write_whole

    if output is not None:
        check_writable(output)
    learned = load_model(model)
    learned.set_params(threads=threads, memory=memory, time_budget=time_budget, random_state=seed)
    if inference is not None:
        _require_treermn(learned, model, "infer by")
        learned.set_params(inference=inference)
    given = _read(data, open_world, self_pairs, tables, learned.schema_)
    n_gaps = given.n_cells - given.n_observed
    with common.follow_work(quiet) as screen:
        learned.set_params(progress=screen)
        predicted = learned.predict_proba(given)
    inferred = getattr(learned, "inferred_", None)
    if as_json:
        report: dict[str, Any] = {"predictions": list(_list_predictions(given, predicted))}
        if inferred is not None:
            report |= {"sweeps": inferred.sweeps, "stopped_by": str(inferred.stopped_by)}
        common.emit(report, True, "")
    if output is not None:
        write_whole(output, _write_predictions(given, predicted))
        common.remark(f"wrote {n_gaps:,} predictions to {output}", quiet)
    elif not as_json:
        for line in _write_predictions(given, predicted):
            click.echo(line, nl=False)
    if not n_gaps:
        common.remark("no cell is missing, so that there is nothing to predict", quiet)
    return 0 if inferred is None else _tell_inference(inferred, bool(n_gaps) and learned.get_params()["inference"] == "gibbs", quiet)


def _tell_inference(inferred: Inferred, sampled: bool, quiet: bool) -> int:
    """Say how sure the predictions are, and choose the exit code."""
    if sampled:
        told = f"largest standard error {inferred.residual:.2g}, if the chain has come to all that is likely"
        common.remark(f"sampled in {inferred.sweeps} sweeps: {told}", quiet)
    if inferred.stopped_by is StoppedBy.CONVERGED:
        return 0
    far = f"after {inferred.sweeps} sweeps, largest change or error {inferred.residual:.2g}"
    common.remark(f"inference stopped by {inferred.stopped_by} {far}", quiet)
    return common.EXIT_INTERRUPTED if inferred.stopped_by is StoppedBy.INTERRUPT else common.EXIT_EARLY


def _write_predictions(data: RelationalData, predicted: list[list[Any]]) -> Iterator[str]:
    """A table with a line for each missing cell, piece by piece."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["type", "entity", "attribute", "state", "probability", "distribution"])
    for row in _list_predictions(data, predicted):
        chances = row["distribution"]
        best = max(chances, key=chances.__getitem__)
        told = json.dumps({state: round(p, 6) for state, p in chances.items()}, ensure_ascii=False)
        writer.writerow([row["type"], row["entity"], row["attribute"], best, f"{chances[best]:.4f}", told])
        if out.tell() > PIECE:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _list_predictions(data: RelationalData, predicted: list[list[Any]]) -> Iterator[dict[str, Any]]:
    """A row for each missing cell."""
    for table, chances in zip(data.tables, predicted, strict=True):
        entities, attributes = (table.cells.codes < 0).nonzero()
        names = data.list_names(table.type.name) if len(entities) else ()
        for e, v in zip(entities, attributes, strict=True):
            variable = table.type.attributes[int(v)]
            distribution = dict(zip(variable.states, chances[v][e].tolist(), strict=True))
            yield {"type": table.type.name, "entity": names[e], "attribute": variable.name, "distribution": distribution}


@relate.command(epilog=EXAMPLES)
@click.argument("model")
@click.option("-n", "n_shown", type=click.IntRange(1), default=10, show_default=True, help="Templates, and features of a category.")
@common.output_options
def show(model: str, n_shown: int, as_json: bool, quiet: bool, debug: bool) -> int:
    """Tell what a model has learned: strongest templates, paths, hidden categories."""
    from undirected.relational.explain import list_strongest, measure_paths
    from undirected.relational.model_file import load_model
    from undirected.relational.treermn import TreeRMN

    learned = load_model(model)
    if not isinstance(learned, TreeRMN):
        report, lines = _show_clusters(learned, n_shown)
        common.emit(report, as_json, "\n".join(lines))
        return 0
    strongest, paths = list_strongest(learned, n_shown), measure_paths(learned)
    categories = learned.describe_categories(n_shown)
    head = f"{learned.dim_theta_:,} weights on {len(learned.schema_)} types, order {learned.order}"
    lines = [f"{head}; {len(learned.hidden_)} hidden variables"]
    if strongest:
        lines += ["", "Strongest templates:", *(f"  {strong.weight:+.2f}  {strong}" for strong in strongest)]
    if paths:
        lines += ["", "Paths by the size of their weights:", *(f"  {size:8.2f}  {text}" for _, text, size, _ in paths[:n_shown])]
    for category in categories:
        lines += ["", *_write_category(category)]
    report = {
        "dim_theta": learned.dim_theta_,
        "strongest": [{"here": s.here, "there": s.there, "weight": s.weight} for s in strongest],
        "paths": [{"path": text, "size": size, "n_nonzero": n} for _, text, size, n in paths],
        "categories": [
            {"variable": c.variable, "category": c.number, "entities": c.entities, "positive": c.positive, "negative": c.negative}
            for c in categories
        ],
    }
    common.emit(report, as_json, "\n".join(lines))
    return 0


def _show_clusters(learned: RelationalLearner, n_shown: int) -> tuple[dict[str, Any], list[str]]:
    """The clusters of IRM and MRC, or the strongest clauses of MSL."""
    from undirected.relational.explain import list_clusters
    from undirected.relational.msl import MSL

    if isinstance(learned, MSL):
        pairs = zip(learned.weights_.tolist(), map(learned.vocabulary_.write, learned.clauses_), strict=True)
        clauses = sorted(pairs, key=lambda pair: -abs(pair[0]))
        head = f"{len(clauses)} clauses, the strongest first (a clause is true unless all of its literals are false):"
        lines = [head, *(f"  {weight:+.2f}  {text}" for weight, text in clauses[:n_shown])]
        return {"clauses": [{"weight": weight, "clause": text} for weight, text in clauses]}, lines
    clusters = list_clusters(learned)
    lines = []
    for kind, groups in clusters.items():
        lines += [f"{len(groups)} clusters of {kind}", *(f"  C{k}: {', '.join(group)}" for k, group in enumerate(groups)), ""]
    return {"clusters": clusters}, lines[:-1] or ["no clusters"]


def _write_category(category: Category) -> list[str]:
    lines = [f"{category.variable} = C{category.number}: {', '.join(category.entities)}"]
    for sign, features in (("for", category.positive), ("against", category.negative)):
        if features:
            lines.append(f"  {sign:8}" + "; ".join(f"{text} ({weight:+.2f})" for text, weight in features))
    return lines


@relate.command(epilog=EXAMPLES)
@click.argument("model")
@click.argument("data", nargs=-1, required=True)
@click.argument("atom")
@click.option("-n", "n_shown", type=click.IntRange(1), default=10, show_default=True, help="Reasons for each state.")
@read_options
@common.output_options
def explain(
    model: str,
    data: tuple[str, ...],
    atom: str,
    n_shown: int,
    open_world: bool,
    self_pairs: bool | None,
    tables: tuple[str, ...] | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Tell why an attribute of an entity is expected to have its value.

    ATOM names them: 'person(Ann).smokes', or 'friends(Ann, Bob).close' for an attribute of a link.
    """
    from undirected.relational.explain import explain_attribute
    from undirected.relational.model_file import load_model

    learned = _require_treermn(load_model(model), model, "explain by")
    parts = ATOM.fullmatch(atom)
    if parts is None:
        raise click.UsageError(f"{atom!r} is no atom; one looks like 'person(Ann).smokes'")
    given = learned.take_data(_read(data, open_world, self_pairs, tables, learned.schema_))
    kind, entity, attribute = parts.groups()
    if learned.schema_[kind].is_link and given[kind].keys is None:
        entity = f"({entity})"
    found = explain_attribute(learned, given, kind, entity, attribute, n_shown)
    report = {
        "distribution": found.distribution,
        "reasons": {
            state: [{"feature": r.feature, "count": r.count, "weight": r.weight, "contribution": r.contribution} for r in reasons]
            for state, reasons in found.reasons.items()
        },
    }
    common.emit(report, as_json, "\n".join(_write_explained(found, f"{kind} {entity}: {attribute}")))
    return 0


def _write_explained(found: Explained, title: str) -> list[str]:
    lines = [title, "  " + ", ".join(f"{state} {p:.3f}" for state, p in found.distribution.items())]
    for state, reasons in found.reasons.items():
        lines += ["", f"log-odds of {state} against {found.reference}: what adds most", f"  {found.constants[state]:+7.2f}  alone"]
        lines += [f"  {r.contribution:+7.2f}  {r.feature} ({r.count:.3g} times {r.weight:+.2f})" for r in reasons]
    return lines


@relate.command(epilog=EXAMPLES)
@click.argument("model")
@click.argument("data", nargs=-1, required=True)
@click.option("--relations", type=common.Names(), help="Attributes of links to draw, as NAME or TYPE.NAME (default: the most even ones).")
@read_options
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="Figure (.svg, .png, .pdf).")
@common.output_options
def plot(
    model: str,
    data: tuple[str, ...],
    relations: tuple[str, ...] | None,
    open_world: bool,
    self_pairs: bool | None,
    tables: tuple[str, ...] | None,
    output: str,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Draw the types with the weights of paths, and links sorted by hidden category."""
    from undirected import plots
    from undirected.relational.model_file import load_model
    from undirected.store import check_writable

    plots.check_picture(output)
    check_writable(output)
    learned = _require_treermn(load_model(model), model, "draw")
    given = learned.take_data(_read(data, open_world, self_pairs, tables, learned.schema_))
    plots.save_figure(plots.draw_relations(learned, given, relations), output)
    common.emit({"output": output}, as_json, f"wrote {output}")
    return 0


@relate.command(epilog=EXAMPLES)
@click.argument("data", nargs=-1)
@click.option("--datasets", help="Names of benchmark sets that are here: animals,nations,umls,kinship.")
@click.option("--learners", default="rmn0,rmn1,cvi,treermn", show_default=True, help="Of rmn0, rmn1, rmn2, cvi, treermn, irm, mrc, msl.")
@click.option("--folds", type=click.IntRange(1, 10), help="How many of the ten folds (default: all).")
@click.option("--seed", type=common.seed_type, default=0, show_default=True, help="For cutting into folds.")
@read_options
@common.compute_options
@click.option("-o", "--output", type=click.Path(file_okay=False), help="Folder for the results; started again, the work goes on there.")
@common.output_options
def compare(
    data: tuple[str, ...],
    datasets: str | None,
    learners: str,
    folds: int | None,
    seed: int,
    open_world: bool,
    self_pairs: bool | None,
    tables: tuple[str, ...] | None,
    threads: int | None,
    time_budget: float | None,
    memory: int,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> int:
    """Hide each tenth of the cells in turn, learn from the rest, predict it, and set the published values beside."""
    from undirected.data.catalog import find_relational
    from undirected.evaluation.relations import compare_relations
    from undirected.relational.data import RelationalData

    if bool(data) == bool(datasets):
        raise click.UsageError("name data, or benchmark sets with --datasets animals,nations,umls,kinship")
    if datasets:
        names = [name.strip() for name in datasets.split(",") if name.strip()]
        pairs = {name: RelationalData.from_folder(find_relational(name)) for name in names}
    else:
        given = _read(data, open_world, self_pairs, tables)
        pairs = {" ".join(data): given}
    chosen = [name.strip() for name in learners.split(",") if name.strip()]
    with common.silence_early_warnings():
        found = compare_relations(
            chosen, pairs, folds=folds, folder=output, threads=threads, time_budget=time_budget, memory=memory, seed=seed,
            progress=common.Screen(quiet, None),
        )  # fmt: skip
    common.emit(found.to_dict(), as_json, found.to_text())
    sys.stdout.flush()
    return 0 if found.complete else common.EXIT_INTERRUPTED
