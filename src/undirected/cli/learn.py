"""``learn`` and ``weights``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from undirected.cli import common, learners
from undirected.structure.names import LEARNERS
from undirected.work import StoppedBy

if TYPE_CHECKING:
    from undirected.data.dataset import Dataset
    from undirected.features.feature_set import FeatureSet

FEW_ROWS = 20  # of a table from which none are set aside
LEARN_EXAMPLES = """\b
Examples:
  undirected learn survey.csv -o net.json                 (chooses everything by itself)
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
@click.option(
    "-a", "--algorithm", type=click.Choice(list(LEARNERS)), default="auto", show_default=True,
    help="The structure learner. auto: pairs and longer features in one fit, with penalties chosen on held-out rows, within a minute "
    "(gssl if a setting of it is named, or with --tune).",
)  # fmt: skip
@learners.learner_options
@common.weight_options
@click.option("--tune", "tuning", is_flag=True, help="Choose the settings on validation data (--valid; a tenth of the rows without).")
@click.option("--grid", type=click.Choice(["quick", "paper"]), default="quick", show_default=True, help="What --tune tries.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Where --tune keeps finished settings, to go on after an interruption.")
@click.option(
    "--valid", metavar="DATA|FRACTION|none",
    help="Rows to hold out: a table, or a fraction that is set aside and not learned from. By default a tenth, from which the network is "
    "learned too once the score is known; none leaves that out.",
)  # fmt: skip
@click.option(
    "--seed",
    type=common.seed_type,
    default=0,
    show_default=True,
    help="The same seed, the same network, unless time or Ctrl-C cuts the work.",
)
@click.option("--methods", is_flag=True, help="A sentence for the methods section of a paper.")
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
    methods: bool,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **options: Any,
) -> int:
    """Learn a network, structure and weights, from DATA."""
    _check_output(output)
    from undirected.evaluation.methods import describe_methods

    algorithm = learners.resolve(ctx, algorithm, tuning)
    given = learners.build(ctx, algorithm, options, tuning, seed)
    reading = given.reading
    table = common.read_table(data, quiet, **reading)
    if reading["missing"] != "learn":
        table.require_complete("learning")
    how = common.choose_known_domain_options(reading)
    table, held_out = _split(table, valid, seed, quiet, **how) if valid not in (None, "none") else (table, None)
    if valid is None and held_out is None:
        held_out = _read_own_split(data, table, quiet, how)
    common.remark(f"{table.source}: {len(table):,} rows ({table.n_distinct:,} distinct), {len(table.domain)} variables", quiet)
    report: dict[str, Any] = {"algorithm": algorithm}
    lines: list[str] = []
    with common.follow_work(quiet) as screen, common.silence_early_warnings():
        task = Task(given, table, held_out, seed, quiet, report, lines, check=valid != "none", screen=screen)
        if algorithm == "auto":
            learner = task.choose()
        elif tuning:
            learner = task.tune(grid, ledger)
        else:
            learner = task.learn()
        network, fit = learner.network_, learner.fit_
        report |= {**fit.report(), **_describe_learned(learner, lines)}
        lines.append(common.describe_fit(fit))
        if hasattr(learner, "gaps_"):
            lines.append(str(learner.gaps_))
            report["gaps"] = vars(learner.gaps_)
        _save(network, output, report, lines)
        task.judge(learner)
        task.tell_findings(network)
        report["methods"] = describe_methods(learner, table)
        if methods:
            lines.append(f"methods: {report['methods']}")
    if task.held_out is not None:
        report["valid_pll"] = network.pll(task.held_out, learner.threads)
        report["valid_npll"] = report["valid_pll"] / len(network.domain)
        lines.append(f"validation PLL {report['valid_pll']:.6f}, per variable {report['valid_npll']:.6f}")
    if output is None:
        lines.append(network.summary())
        common.remark("the network was not saved; add -o net.json to keep it", quiet)
    common.emit(report, as_json, "\n".join(lines))
    return common.choose_exit_code(fit)


def _read_own_split(data: str, table: Dataset, quiet: bool, how: dict[str, Any]) -> Dataset | None:
    """The validation rows that a data set brings along, if it does."""
    from undirected.data.catalog import has_splits

    name, _, split = data.partition(":")
    if split not in ("", "train") or not has_splits(name):
        return None
    return common.read_table(f"{name}:valid", quiet, domain=table.domain, **how)


@dataclass
class Task:
    """What ``learn`` was asked to do: the learner, the rows to learn from, those held out, and what there is to tell."""

    given: learners.Built
    table: Dataset
    held_out: Dataset | None
    seed: int
    quiet: bool
    report: dict[str, Any]
    lines: list[str]
    check: bool
    screen: common.Screen
    judged: list[tuple[Any, Dataset, Dataset]] | None = None  # networks, the rows each was learned from, and those it is judged on

    def learn(self) -> Any:
        """The learner with its settings, on all rows."""
        learner = self.given.make(self.screen, 0.6 if self.check and self.held_out is None else 1.0)
        learner.fit(self.table)
        return learner

    def tune(self, grid: str, ledger: str | None) -> Any:
        """The learner with the settings that do best on the rows held out."""
        from undirected.tuning.tune import tune

        train, valid = self._set_apart()
        tuned = tune(self.given.make(self.screen), grid, train, valid, ledger=ledger)
        self.report |= {"settings": tuned.settings, "tried": tuned.rows, "complete": tuned.complete}
        if not tuned.complete:
            self.lines.append("the search ended before all settings were tried")
        self.lines += [str(tuned), "best: " + ", ".join(f"{name} {value}" for name, value in tuned.settings.items())]
        self.judged, self.held_out = [(tuned.learner.network_, train, valid)], valid
        return tuned.learner

    def choose(self) -> Any:
        """The default learner, which holds out rows by itself."""
        from undirected.structure.auto import DEFAULT_SECONDS

        checks = self.table.has_missing and self.check and self.held_out is None  # then it is learned a second time
        if checks and self.given.params["time_budget"] is None:
            self.given.params["time_budget"] = DEFAULT_SECONDS
        learner = self.given.make(self.screen, 0.6 if checks else 1.0)
        learner.fit(self.table, valid=self.held_out)
        choice = learner.choice_
        if choice is None:
            self.check = False
            interrupted = learner.fit_.stopped_by is StoppedBy.INTERRUPT
            if "auto" in (learner.l1, learner.sd, learner.ratio) and not interrupted:
                self.lines.append(f"{len(self.table)} rows are too few to hold some out: pairs with a strong penalty, unchecked")
            return learner
        penalties = choice.penalties
        scores = {name: choice.find_best(longer) for name, longer in (("pairs", False), ("longer", True))}
        chosen = {"features": penalties.features, "l1": penalties.l1, "ratio": penalties.ratio, "sd": penalties.sd}
        self.report |= {"chosen": chosen, "scores": scores, "candidates": choice.candidates, "complete": choice.complete}
        told = ", ".join(
            f"with{'out' * (name == 'pairs')} longer features {score:.4f}" for name, score in scores.items() if score is not None
        )
        self.lines.append(f"chosen: {penalties}; best held-out PLL {told}")
        if not choice.complete and not choice.interrupted:
            self.lines.append("the time was over before all penalties were tried; --time-budget allows more")
        if not self.table.has_missing:  # completed rows know of each other
            self.judged = [(fold.network, fold.train, fold.held_out) for fold in choice.folds]
        return learner

    def _set_apart(self) -> tuple[Dataset, Dataset]:
        """The rows to learn from while settings are compared, and those to compare them on."""
        from undirected.data.splits import holdout

        return (self.table, self.held_out) if self.held_out is not None else holdout(self.table, 0.1, self.seed)

    def judge(self, learner: Any) -> None:
        """Score held-out rows beside independent variables, and say plainly if the network is not better."""
        from undirected.evaluation.held_out import judge_folds

        self.report |= {"held_out_pll": None, "independent_pll": None}
        if not self.check or len(self.table) < FEW_ROWS or learner.fit_.stopped_by is StoppedBy.INTERRUPT:
            return
        chosen_here = self.judged is not None
        if self.judged is None:
            train, valid = self._set_apart()
            network = learner.network_
            if train is not self.table:
                common.remark("checking: learning once more without a tenth of the rows (--valid none leaves this out)", self.quiet)
                again = self.given.make(self.screen, 0.4).set_params(**self.given.without_files)
                again.fit(train)
                if again.fit_.stopped_by is StoppedBy.INTERRUPT:
                    self.lines.append("interrupted: the network was not checked on held-out rows")
                    return
                network = again.network_
            self.judged = [(network, train, valid)]
        found = judge_folds(self.judged, learner.threads)
        self.report |= {"held_out_pll": found.network, "independent_pll": found.independent}
        self.lines.append(found.describe(chosen_here))

    def tell_findings(self, network: Any) -> None:
        """The strongest edges in words."""
        from undirected.evaluation.findings import list_findings

        findings = list_findings(network, self.table)
        self.report["findings"] = [vars(finding) for finding in findings]
        if findings:
            self.lines += ["strongest edges:", *(f"  {finding}" for finding in findings)]


def _describe_learned(learner: Any, lines: list[str]) -> dict[str, Any]:
    """What a learner has to tell beside its weights."""
    if hasattr(learner, "clusters_"):
        found, seconds = learner.clusters_, learner.generation_seconds_
        n, k = len(found.made), len(found.centroids)
        lines.append(f"{n:,} conjunctions generated in {k} clusters, in {seconds:.2f} s")
        return {"n_generated": n, "n_clusters": k, "generation_seconds": seconds}
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
    type=click.Choice(["auto", "descent", "quasi-newton", "plain"]),
    default="auto",
    show_default=True,
    help="descent: coordinate descent, for very many features, or L1 with a wide prior. quasi-newton: for others. "
    "plain: L-BFGS or OWL-QN as in the papers.",
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
        chosen = _read_features(features, table)
    else:
        from undirected import formats

        network = formats.load(features)
        chosen = network.features
        start = network.weights if warm_start else None
        table = common.read_table(data, quiet, domain=network.domain, **common.choose_known_domain_options(reading))
    with common.follow_work(quiet) as screen, common.silence_early_warnings():
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
            progress=screen,
            solver=solver,
        )
    report = fit.report()
    lines = [common.describe_fit(fit)]
    _save(fit.network(prune), output, report, lines)
    common.emit(report, as_json, "\n".join(lines))
    return common.choose_exit_code(fit)


def _read_features(path: str, table: Dataset) -> FeatureSet:
    from undirected import formats
    from undirected.features.feature_set import FeatureSet

    return FeatureSet.from_texts(formats.read_features(path), table.domain)


def _check_output(output: str | None) -> None:
    """Refuse before the work what could not be written after it."""
    if output is not None:
        from undirected import formats
        from undirected.store import check_writable

        formats.check_suffix(output, formats.WRITABLE)
        check_writable(output)


def _save(network: Any, output: str | None, report: dict[str, Any], lines: list[str]) -> None:
    if output is not None:
        network.save(output)
        report["output"] = output
        lines.append(f"wrote {output}")


def _split(table: Dataset, valid: str, seed: int, quiet: bool, **how: Any) -> tuple[Dataset, Dataset]:
    try:
        fraction = float(valid)
    except ValueError:
        return table, common.read_table(valid, quiet, domain=table.domain, **how)
    from undirected.data.splits import holdout

    return holdout(table, fraction, seed)
