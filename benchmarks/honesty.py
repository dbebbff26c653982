"""The honesty of sampled answers: how often an answer that claims to be right is wrong, over networks whose truth is known.

    python benchmarks/honesty.py                                   # 30 networks a family, 2 seconds a question
    python benchmarks/honesty.py --quick
    python benchmarks/honesty.py --families clusters,pedigree --methods mcsat --networks 100 --json out.json

An answer claims to be right if it says that its chains have mixed or that it is exact; a literal is claimed if its standard error is
given. A claimed literal misses if it is off by more than four standard errors and 1e-4, an answer misses grossly if one of its claimed
literals is also off by more than 0.05. Bounds of log Z claim to hold it between them, give or take four of the standard errors
given and 1e-4; bounds that are absent or not finite claim nothing. All networks are possible, so an error that says otherwise is wrong.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from undirected import datasets
from undirected.errors import ImpossibleEvidence, UndirectedError

ERRORS, ROUNDING, GROSS = 4.0, 1e-4, 0.05
NO_TABLE = 64  # bytes of memory in which no exact table fits
METHODS = {
    "gibbs": {"method": "gibbs"},
    "mcsat": {"method": "mcsat"},
    "auto": {"method": "auto"},
    "auto, no tables": {"method": "auto", "memory": NO_TABLE},
}
AIS = "ais"


def make_single_conjunction(seed):
    """8 to 60 literals; the weight is around that at which the feature holds in half of all cases."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 61))
    return datasets.single_conjunction(n, float(n * math.log(2) * rng.uniform(0.5, 2)), n + int(rng.integers(0, 4)))


FAMILIES = {
    "grid, weak": lambda s: datasets.grid_ising(4 + s % 4, 5, coupling=0.3, field=0.5, seed=s),
    "grid, strong": lambda s: datasets.grid_ising(4 + s % 4, 5, coupling=1.0 + 0.25 * (s % 5), field=0.3, seed=s),
    "conjunctions, small": lambda s: datasets.random_conjunctions(14, 40, 4, scale=0.7, seed=s),
    "conjunctions, large": lambda s: datasets.random_conjunctions(14, 40, 5, scale=3.0 + s % 4, seed=s),
    "single conjunction": make_single_conjunction,
    "clusters": lambda s: datasets.clusters(
        1 + s % 3, 4 + s % 3, coupling=1.0 + 0.5 * (s % 6), tilt=1.5, link=0.3, n_states=2 + s % 2, seed=s
    ),
    "hard clauses": lambda s: datasets.hard_clauses(18, 40 + 6 * (s % 7), soft=1.0, seed=s),
    "hard clauses, long": lambda s: datasets.hard_clauses(40 + 20 * (s % 5), (40 + 20 * (s % 5)) * (8 + s % 5) // 3, window=7, seed=s),
    "noisy-or": lambda s: datasets.noisy_or(10, 12, prior=0.1, n_observed=s % 9, seed=s),
    "dynamic chain": lambda s: datasets.dynamic_chain(
        (5, 8, 15, 30)[s % 4], 3, n_states=2 + s % 2, noise=(0.2, 0.05, 0.01)[s % 3], n_observed=s % 4, seed=s
    ),
    "pedigree": lambda s: datasets.pedigree((6, 8, 10, 14)[s % 4], n_loci=1 + s % 2, n_alleles=2 + s % 2, n_typed=s % 5, seed=s),
}


def find_truth(family, network):
    """Marginals by name, and log Z: by formula or exactly; small networks are also enumerated, and must agree."""
    if family == "single conjunction":
        return conjunction_truth(network)
    answer = network.query(method="junction-tree")
    log_z = float(network.log_partition(method="exact"))
    if np.log2(network.domain.n_states).sum() <= 14:
        again = network.query(method="enumeration")
        far = max(abs(p - again[v][s]) for v, states in answer.marginals.items() for s, p in states.items())
        if far > 1e-6:
            raise AssertionError(f"{family}: elimination and enumeration differ by {far:.2g}")
    return answer.marginals, log_z


def conjunction_truth(network):
    """With n literals of weight w, Z is 2^n - 1 + e^w, in logarithms so that no n is too large."""
    n, weight = int(network.features.lengths[0]), float(network.weights[0])
    others = n * math.log(2) + math.log1p(-(2.0**-n))
    log_z = float(np.logaddexp(others, weight))
    # A literal of the feature is false in half of the 2^n assignments of its variables.
    p = 1 - math.exp((n - 1) * math.log(2) - log_z)
    inside = set(network.features.variables.tolist())
    marginals = {v.name: {"0": 1 - p, "1": p} if k in inside else {"0": 0.5, "1": 0.5} for k, v in enumerate(network.domain.variables)}
    return marginals, log_z + (len(network.domain) - n) * math.log(2)


@dataclass
class Tally:
    """What became of the questions to one family by one method."""

    networks: int = 0
    exact: int = 0
    claims: int = 0
    literals: int = 0  # claimed, in answers that claim
    missed: int = 0
    answers_missed: int = 0
    gross: int = 0
    declined: int = 0
    loose: int = 0  # literals with an error in answers that decline
    loose_missed: int = 0
    impossible: int = 0
    errors: Counter = field(default_factory=Counter)
    seconds: list = field(default_factory=list)
    worst: float = 0.0

    def add_answer(self, answer, truth):
        misses = []
        claims = bool(answer.exact) or answer.mixed is True
        for v, states in answer.marginals.items():
            for s, p in states.items():
                error = answer.standard_errors[v][s]
                if not is_number(error):
                    continue
                off = abs(p - truth[v][s])
                misses.append((off > ERRORS * error + ROUNDING, off))
        wrong = [off for missed, off in misses if missed]
        self.exact += bool(answer.exact)
        if not claims:
            self.declined += 1
            self.loose += len(misses)
            self.loose_missed += len(wrong)
            return
        self.claims += 1
        self.literals += len(misses)
        self.missed += len(wrong)
        self.answers_missed += bool(wrong)
        self.gross += any(off > GROSS for off in wrong)
        self.worst = max([self.worst, *wrong])

    def add_bounds(self, found, truth):
        if bool(found.exact):
            self.exact += 1
        if not (is_number(found.lower) and is_number(found.upper)):
            self.declined += 1
            return
        slack = ROUNDING + (ERRORS * found.standard_error if is_number(found.standard_error) else 0.0)
        off = max(found.lower - truth, truth - found.upper)
        self.claims += 1
        self.literals += 1
        self.missed += off > slack
        self.answers_missed += off > slack
        self.gross += off > slack + GROSS
        self.worst = max(self.worst, off if off > slack else 0.0)

    def to_dict(self):
        return {**self.__dict__, "errors": dict(self.errors), "seconds": median(self.seconds), "longest": max(self.seconds)}


def is_number(value):
    return value is not None and math.isfinite(value)


def ask(tally, network, method, truth, seed, args):
    """One question, counted; only the package's own errors are expected."""
    marginals, log_z = truth
    tally.networks += 1
    began = time.perf_counter()
    try:
        if method == AIS:
            tally.add_bounds(
                network.log_partition(method="ais", time_budget=args.time_budget, memory=args.memory, threads=args.threads, seed=seed),
                log_z,
            )
        else:
            options = METHODS[method]
            tally.add_answer(network.query(**options, time_budget=args.time_budget, threads=args.threads, seed=seed), marginals)
    except ImpossibleEvidence:
        tally.impossible += 1
    except UndirectedError as error:
        tally.errors[type(error).__name__] += 1
    tally.seconds.append(time.perf_counter() - began)


def share(part, whole):
    return f"{100 * part / whole:.1f}%" if whole else "-"


def print_head():
    print("\n| family | method | networks | exact | claims | claimed literals that miss | claims with a miss | claims with a gross miss "
          "| worst miss | declined | their literals that miss | says impossible | errors | seconds | longest |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)


def print_row(family, method, t):
    errors = ", ".join(f"{n} {name}" for name, n in sorted(t.errors.items())) or "-"
    print(
        f"| {family} | {method} | {t.networks} | {t.exact} | {t.claims} | {share(t.missed, t.literals)} of {t.literals:,} "
        f"| {share(t.answers_missed, t.claims)} | {share(t.gross, t.claims)} | {t.worst:.3g} | {t.declined} "
        f"| {share(t.loose_missed, t.loose)} of {t.loose:,} | {t.impossible} | {errors} | {median(t.seconds):.2f} | {max(t.seconds):.1f} |",
        flush=True,
    )


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=30, help="networks a family")
    parser.add_argument("--time-budget", type=float, default=2.0, help="seconds a question")
    parser.add_argument(
        "--families", help="some of: " + "; ".join(FAMILIES) + " (separated by semicolons, or by commas where parts of names do)"
    )
    parser.add_argument("--methods", help="some of: " + "; ".join([*METHODS, AIS]))
    parser.add_argument(
        "--memory", type=int, default=NO_TABLE, help="bytes of tables for ais, which draws its starts exactly where they fit"
    )
    parser.add_argument("--seed", type=int, default=0, help="added to the number of each network")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="6 networks a family, half a second a question")
    parser.add_argument("--json", help="a file for the figures")
    args = parser.parse_args()
    if args.quick:
        args.networks, args.time_budget = min(args.networks, 6), min(args.time_budget, 0.5)
    args.families = choose(parser, args.families, FAMILIES)
    args.methods = choose(parser, args.methods, [*METHODS, AIS])
    return args


def choose(parser, text, known):
    """The names of a list that contain one of the texts asked for."""
    if not text:
        return list(known)
    wanted = [part.strip() for part in (text.split(";") if ";" in text else text.split(","))]
    for part in wanted:
        if not any(part in name for name in known):
            parser.error(f"{part!r} is none of {'; '.join(known)}")
    return [name for name in known if any(part == name for part in wanted) or any(part in name and part not in known for part in wanted)]


def main():
    args = read_arguments()
    warnings.simplefilter("ignore")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, threads {args.threads}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}; {args.networks} networks a family, {args.time_budget:g} s a question, seed {args.seed}"
    )
    print_head()
    out = []
    totals = {method: Tally() for method in args.methods}
    for family in args.families:
        problems = []
        for k in range(args.networks):
            network = FAMILIES[family](args.seed + k)
            problems.append((args.seed + k, network, find_truth(family, network)))
        for method in args.methods:
            tally = Tally()
            for seed, network, truth in problems:
                ask(tally, network, method, truth, seed, args)
            print_row(family, method, tally)
            out.append({"family": family, "method": method, **tally.to_dict()})
            join(totals[method], tally)
    for method, tally in totals.items():
        print_row("all", method, tally)
        out.append({"family": "all", "method": method, **tally.to_dict()})
    if args.json:
        Path(args.json).write_text(json.dumps(out, indent=1) + "\n", "utf8")


def join(total, part):
    for name, value in part.__dict__.items():
        mine = getattr(total, name)
        setattr(total, name, max(mine, value) if name == "worst" else mine + value)


if __name__ == "__main__":
    main()
