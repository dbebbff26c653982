"""Options of the learners, shared by the commands that learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from undirected.cli import common
from undirected.structure.names import find_learner_class

# Options that belong to some learners only; without one the learner's own default counts.
OWN = (
    "n_generated", "threshold", "n_clusters", "support", "with_initial", "initial", "conversion", "kappa", "min_rows", "max_features", "C",
    "consistency", "gamma", "alpha",
    "surcharge", "search_sd", "distance", "start", "max_length", "test_level", "relearn_every", "checkpoint",
)  # fmt: skip


class NumberOr(click.ParamType):  # type: ignore[type-arg]
    """A number above zero, or one word."""

    def __init__(self, word: str, whole: bool = False) -> None:
        self.word, self.whole = word, whole
        self.name = f"number|{word}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value == self.word:
            return self.word
        try:
            number = int(value) if self.whole else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a {'whole ' * self.whole}number nor {self.word}", param, ctx)
        if not 0 < number < float("inf"):
            self.fail(f"{value}: it must be above zero", param, ctx)
        return number


learner_options = common.combine_options(
    click.option("--n-generated", type=click.IntRange(1), help="gssl: length of the list of candidates (1000000)."),
    click.option("--threshold", type=click.IntRange(0), help="gssl: keep candidates generated more often than this (1)."),
    click.option(
        "--initial", type=click.Choice(["auto", "all", "positive"]), help="gssl, blm: rows as all literals, or only true ones (auto)."
    ),
    click.option("--n-clusters", type=click.IntRange(1), help="clusternet: clusters of rows (100)."),
    click.option("--support", type=click.Choice(["union", "init", "feature"]), help="clusternet: where literals are counted (union)."),
    click.option("--with-initial", is_flag=True, default=None, help="clusternet: make features of the rows themselves, too."),
    click.option(
        "--conversion",
        type=click.Choice(["default", "prune", "prune-10", "prune-5", "nonzero"]),
        help="dtsl, dt+l1, dt-blm: how trees become features (prune).",
    ),
    click.option(
        "--kappa", type=NumberOr("auto"), help="dtsl, dt+l1, dt-blm: the smaller, the smaller the trees (0.01); auto: by held-out rows."
    ),
    click.option(
        "--min-rows",
        type=click.FloatRange(0),
        help="auto, dtsl, dt+l1, dt-blm: rows that each side of a split needs (10). blm, dp: rows that a feature matches (0).",
    ),
    click.option(
        "--max-features",
        type=NumberOr("auto", whole=True),
        help="dtsl, dt+l1, dt-blm: most features that trees may give; auto: as many as can be weighed in about half an hour (auto).",
    ),
    click.option("--C", "C", type=NumberOr("ebic"), help="l1, dt+l1: one over the penalty of the regressions (ebic)."),
    click.option("--consistency", type=click.Choice(["and", "or"]), help="l1, dt+l1: pairs picked by both regressions, or by one (and)."),
    click.option("--gamma", type=click.FloatRange(0), help="l1, dt+l1: strictness of ebic (0.25)."),
    click.option(
        "--alpha",
        type=click.FloatRange(0),
        help="blm, dt-blm, dp, busl: price of a literal in the search's score (5; dt-blm: 0.5). clusternet: draws a round (1000).",
    ),
    click.option("--surcharge", type=click.FloatRange(0), help="dp: added to the price of each literal beyond a feature's second (0)."),
    click.option(
        "--search-sd",
        type=common.Deviation(),
        help="blm, dt-blm, dp, busl: prior during the search (--l1 and --sd; dt-blm: 0.1).",
    ),
    click.option("--distance", type=click.Choice(["gvdm", "hamming"]), help="blm, dt-blm: which rows are near a feature (gvdm)."),
    click.option(
        "--start",
        type=click.Choice(["waiting", "learned"]),
        help="blm, dt-blm: first features wait outside the network, or are in it (waiting; dt-blm: learned).",
    ),
    click.option("--max-length", type=click.IntRange(2), help="dp, busl: literals a feature may have (dp: any number, busl: 4)."),
    click.option("--test-level", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="busl: level of the tests (0.01)."),
    click.option(
        "--relearn-every", type=NumberOr("auto", whole=True), help="blm, dt-blm, dp, busl: moves until all weights are relearned (auto)."
    ),
    click.option("--checkpoint", type=click.Path(dir_okay=False), help="blm, dt-blm, dp, busl: a file from which a killed search goes on."),
)


@dataclass
class Built:
    """A learner by name with its parameters, and what is left of the options: those for reading."""

    name: str
    params: dict[str, Any]
    reading: dict[str, Any]

    def make(self, progress: Any = None, share: float = 1.0) -> Any:
        """The learner, with a share of the time budget."""
        budget = self.params["time_budget"]
        return find_learner_class(self.name)(**self.params | {"time_budget": budget and share * budget, "progress": progress})

    @property
    def without_files(self) -> dict[str, Any]:
        """Parameters with which another run does not touch the files of the first."""
        return {"checkpoint": None} if "checkpoint" in self.params else {}


def resolve(ctx: click.Context, algorithm: str, tuning: bool) -> str:
    """The learner that is meant where none is named: gssl, if settings of its own are or it is to be tuned."""
    if algorithm != "auto":
        return algorithm
    auto, gssl = (find_learner_class(name)().get_params() for name in ("auto", "gssl"))
    named = [name for name in OWN if _given(ctx, name) and name not in auto]
    strange = [name for name in named if name not in gssl]
    if strange:
        raise click.UsageError(f"--{strange[0].replace('_', '-')} belongs to some learners only; name one with -a (see --help)")
    return "gssl" if tuning or named else "auto"


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def build(ctx: click.Context, algorithm: str, options: dict[str, Any], tuning: bool, seed: int) -> Built:
    """The learner's parameters out of the options of a command."""
    known = find_learner_class(algorithm)().get_params()
    params = {name: options.pop(name) for name in ("tol", "threads", "memory", "time_budget")}
    if options.pop("prune"):
        params["prune"] = True
    for name in (*OWN, "l1", "sd"):
        value = options.pop(name)
        if _given(ctx, name) and name not in known:
            raise click.UsageError(f"--{name.replace('_', '-')} does not belong to {algorithm}")
        if _given(ctx, name) and tuning:
            raise click.UsageError(f"--{name.replace('_', '-')} is what --tune chooses; leave out one of the two")
        if _given(ctx, name):
            params[name] = value
    if "random_state" in known:
        params["random_state"] = seed
    return Built(algorithm, params, options)
