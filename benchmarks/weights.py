"""Weight learning against the obvious programs, as ratios measured in one run.

    UNDIRECTED_DATA=folder python benchmarks/weights.py --features folder        # everything, about an hour
    UNDIRECTED_DATA=folder python benchmarks/weights.py --features folder --only nltcs,dna

`--features` names the folder with `fixtures/` and `features/` (.mn files). Prints Markdown; benchmarks/README.md keeps a copy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import undirected
from rivals import loop_over_variables, pairwise_pll, regress_at_once, rival_seconds
from undirected import FeatureSet, MarkovNetwork, PseudoLikelihood, datasets, fit_path, fit_weights
from undirected.weights.outcome import SolverStep
from undirected.work import Work

GAP = 1e-6
SETS = [
    ("nltcs", "fixtures/nltcs.nonzero.mn"),
    ("nltcs", "fixtures/nltcs.default.mn"),
    ("dna", "fixtures/dna.nonzero.mn"),
    ("dna", "features/dna.default.mn"),
    ("plants", "features/plants.nonzero.mn"),
    ("accidents", "features/accidents.nonzero.mn"),
    ("bnetflix", "features/bnetflix.nonzero.mn"),
]
UNITS_LIMIT = 1500  # units after which a solver is given up
NINE = [(l1, sd) for l1 in (1, 5, 10) for sd in (0.1, 0.5, 1)]


class Enough(Exception):
    pass


def our_seconds(features, table, l1, sd, target, threads):
    """Seconds from nothing (distinct rows apart, as for the rival) to an objective of at most `target`."""
    began = time.perf_counter()

    def progress(step):
        if isinstance(step, SolverStep) and step.objective <= target:
            raise Enough

    try:
        fit_weights(features, table, l1, sd, tol=1e-9, threads=threads, progress=progress)
    except Enough:
        return (time.perf_counter() - began,)
    return (float("inf"),)


def best_of(run, *args):
    """The fastest of several runs, as many as fit into a few seconds: the machines are noisy."""
    results = [run(*args)]
    while len(results) < 5 and sum(seconds for seconds, *_ in results) < 3:
        results.append(run(*args))
    return min(results)


def feature_sets(folder, only, limit):
    print(f"\n### Time to a relative gap of {GAP:g}, seconds, construction included\n")
    print("| data, features | F | l1, sd | rival (evaluations) | ours, 1 thread | ours, 2 threads | ratio, 1 | ratio, 2 |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, file in SETS:
        if name not in only:
            continue
        network = MarkovNetwork.load(folder / file)
        table = undirected.read_data(name, domain=network.domain).distinct
        assert table.columns is not None  # both sides start from distinct rows
        for l1, sd in ((0, 1.0), (1, 0.5)):
            best = fit_weights(network.features, table, l1, sd, tol=1e-6).objective
            target = best * (1 + GAP)
            ours = [best_of(our_seconds, network.features, table, l1, sd, target, t)[0] for t in (1, 2)]
            start = PseudoLikelihood(network.features, table).independent_start
            rival, evaluations, _ = best_of(rival_seconds, network.features, table, l1, sd, target, start, limit)
            who = "L-BFGS-B" if l1 == 0 else "OWL-QN"
            label = f"{name}, {Path(file).stem.split('.')[1]} | {len(network.features):,} | {l1}, {sd:g}"
            ratios = " | ".join(ratio(rival, limit, seconds) for seconds in ours)
            print(
                f"| {label} | {who} {shown(rival, limit)} ({evaluations}) | {ours[0]:.3f} | {ours[1]:.3f} | {ratios} |",
                flush=True,
            )


def trees(limit):
    """Tree features, as DTSL makes them, against the L-BFGS-B program."""
    print(f"\n### Tree features (`DTSL(conversion='default')`, sd 1): seconds to a relative gap of {GAP:g}, construction included\n")
    print("| data | F | L-BFGS-B (evaluations) | ours, 1 thread | ratio |")
    print("|---|---|---|---|---|", flush=True)
    for name in ("plants", "accidents"):
        train = datasets.load(name)
        structure = undirected.DTSL(conversion="default").propose(train, Work.start())
        features, table = structure.features.union(FeatureSet.atomic(train.domain)), train.distinct
        assert table.columns is not None
        target = fit_weights(features, table, 0, 1.0, tol=1e-7).objective * (1 + GAP)
        ours = best_of(our_seconds, features, table, 0, 1.0, target, 1)[0]
        start = PseudoLikelihood(features, table).independent_start
        rival, evaluations, _ = rival_seconds(features, table, 0, 1.0, target, start, limit)
        print(
            f"| {name} | {len(features):,} | {shown(rival, limit)} ({evaluations}) | {ours:.2f} | {ratio(rival, limit, ours)} |", flush=True
        )


def regression(folder):
    """The same problem as one logistic regression: where the rival ends, and how long each takes to be there."""
    print("\n### One logistic regression over (variable, row) examples, by liblinear: seconds, one thread\n")
    print("| data, features | F | l1, sd | liblinear's tol | liblinear | its relative gap | ours, to that gap | ratio |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, file in SETS[:5]:
        network = MarkovNetwork.load(folder / file)
        table = undirected.read_data(name, domain=network.domain).distinct
        assert table.columns is not None
        for l1, sd in ((0, 1.0), (1, float("inf"))):
            best = fit_weights(network.features, table, l1, sd, tol=1e-8).objective
            for tol in (1e-2, 1e-4):
                theirs, value = regress_at_once(network.features, table, l1, sd, tol)
                ours = best_of(our_seconds, network.features, table, l1, sd, max(value, best * (1 + 1e-9)), 1)[0]
                label = f"{name}, {Path(file).stem.split('.')[1]} | {len(network.features):,} | {l1}, {sd:g} | {tol:g}"
                print(f"| {label} | {theirs:.2f} | {value / best - 1:.0e} | {ours:.3f} | {theirs / ours:.1f} |", flush=True)


def compare_solvers(limit=25):
    """Seconds of the two solvers to the default tolerance, and of the automatic choice between them."""
    print("\n### Which solver: seconds to a certified violation of 1e-5 on one thread (steps or sweeps)\n")
    print("| data, features | F | l1, sd | quasi-Newton | descent | auto |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in ("nltcs", "kdd", "dna", "plants", "accidents", "msweb"):
        train = datasets.load(name)
        trees = undirected.DTSL(conversion="default").propose(train, Work.start()).features.union(FeatureSet.atomic(train.domain))
        for kind, features in (("pairs", FeatureSet.all_pairs(train.domain)), ("trees", trees)):
            for l1, sd in ((0, 1.0), (1, 0.5), (1, 10.0), (10, float("inf"))):
                found = []
                for solver in ("quasi-newton", "descent", "auto"):
                    began = time.perf_counter()
                    fit = fit_weights(features, train.distinct, l1, sd, threads=1, solver=solver, time_budget=limit)
                    seconds = time.perf_counter() - began
                    found.append(f"{seconds:.2f} ({fit.iterations:,})" if fit.converged else f"> {seconds:.0f} ({fit.iterations:,})")
                print(f"| {name}, {kind} | {len(features):,} | {l1}, {sd:g} | {' | '.join(found)} |", flush=True)


def count_equal(folder):
    """How many features could be merged, because they touch the same variables in the same rows with the same sign."""
    print("\n### Features that are equal on the table to an earlier one\n")
    print("| features | F | equal |")
    print("|---|---|---|", flush=True)
    for label, features, data in many_features(folder):
        columns, seen = data.distinct.columns, set()
        for literals in features:
            contexts = []
            for k, literal in enumerate(literals):
                others = columns[[*literals[:k], *literals[k + 1 :]]]
                rows = np.bitwise_and.reduce(others, axis=0) if len(others) else ~np.zeros(1, np.uint64)
                if rows.any():
                    contexts.append((literal, rows.tobytes()))
            seen.add(hash(tuple(contexts)))
        print(f"| {label} | {len(features):,} | {len(features) - len(seen):,} |", flush=True)


def many_features(folder):
    """Feature sets of the kinds that have very many: GSSL's, and those of trees."""
    network = MarkovNetwork.load(folder / "features/bnetflix.nonzero.mn")
    yield "bnetflix, nonzero", network.features, undirected.read_data("bnetflix", domain=network.domain)
    yield "plants, GSSL 1 M", *generate("plants", 1_000_000, 1)[:2]
    yield "c20ng, GSSL 5 M", *generate("c20ng", 5_000_000, 2)[:2]
    for name in ("plants", "accidents", "msweb"):
        train = datasets.load(name)
        yield f"{name}, trees", undirected.DTSL().propose(train, Work.start()).features, train


def shown(seconds, limit):
    return f"> {limit:.0f}" if np.isinf(seconds) else f"{seconds:.2f}"


def ratio(rival, limit, ours):
    return f"> {limit / ours:.1f}" if np.isinf(rival) else f"{rival / ours:.1f}"


def script(only):
    print("\n### All pairs with L1 against a loop of scikit-learn regressions (AND, averaged)\n")
    print("| data | script s | script test PLL | ours s | ours test PLL |")
    print("|---|---|---|---|---|", flush=True)
    for name in ("nltcs", "plants"):
        if name not in only:
            continue
        train, test = datasets.load(name), datasets.load(name, "test")
        began = time.perf_counter()
        weights, intercepts = loop_over_variables(train.codes.astype(float))
        theirs = time.perf_counter() - began
        fresh = undirected.Dataset(train.domain, train.codes)
        began = time.perf_counter()
        fit = fit_weights(FeatureSet.all_pairs(fresh.domain), fresh, l1=1, sd=10)
        ours = time.perf_counter() - began
        their_pll, our_pll = pairwise_pll(weights, intercepts, test.codes.astype(float)), fit.network().pll(test)
        print(f"| {name} | {theirs:.2f} | {their_pll:.4f} | {ours:.2f} | {our_pll:.4f} |", flush=True)


def generate(name, n_generated, threshold):
    """The features of GSSL with the atomic ones, the training rows, and what was learned on the way."""
    train = datasets.load(name)
    structure = undirected.GSSL(n_generated=n_generated, threshold=threshold).propose(train, Work.start())
    return structure.features.union(FeatureSet.atomic(train.domain)), train, structure.learned


def units(folder, solvers):
    """Seconds to a certified violation of 1e-5 from nothing, as multiples of one evaluation in double precision on the same core."""
    print("\n### Very many features: units to a certified violation of 1e-5, construction included\n")
    print("A unit is one `PseudoLikelihood.evaluate` (value and gradient, double precision, one thread, at the start).\n")
    print("| features | F | l1, sd | unit, s | quasi-Newton, units | descent, units | sweeps | descent, 2 threads: times faster |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    network = MarkovNetwork.load(folder / "features/bnetflix.nonzero.mn")
    bnetflix = network.features, undirected.read_data("bnetflix", domain=network.domain)
    plants, c20ng = generate("plants", 1_000_000, 1)[:2], generate("c20ng", 5_000_000, 2)[:2]
    cases = [
        ("plants, GSSL 1 M", plants, 5, 0.5),
        ("plants, GSSL 1 M", plants, 0, 0.5),
        ("bnetflix, nonzero", bnetflix, 1, 0.5),
        ("bnetflix, nonzero", bnetflix, 0, 1.0),
        ("c20ng, GSSL 5 M", c20ng, 5, 0.5),
    ]
    for label, (features, data), l1, sd in cases:
        table = data.distinct
        assert table.columns is not None
        objective = PseudoLikelihood(features, table, threads=1)

        def time_unit(objective=objective):
            began = time.perf_counter()
            objective.evaluate(objective.independent_start)
            return time.perf_counter() - began

        unit, found, sweeps = [time_unit() for _ in range(5)], {}, 0
        for solver, threads in (("quasi-newton", 1), ("descent", 1), ("descent", 2)):
            if solver != "descent" and solver not in solvers:
                continue
            began = time.perf_counter()
            fit = fit_weights(features, table, l1, sd, threads=threads, solver=solver, time_budget=UNITS_LIMIT * min(unit))
            found[solver, threads] = time.perf_counter() - began if fit.converged else float("inf")
            sweeps = fit.iterations
            unit.append(time_unit())
        one = float(np.median(unit))
        shown_units = []
        for solver in ("quasi-newton", "descent"):
            seconds = found.get((solver, 1))
            shown_units.append("-" if seconds is None else f"> {UNITS_LIMIT}" if np.isinf(seconds) else f"{seconds / one:.0f}")
        ratio = found["descent", 1] / found["descent", 2]
        print(
            f"| {label} | {len(features):,} | {l1}, {sd:g} | {one:.3f} | {' | '.join(shown_units)} | {sweeps} | {ratio:.2f} |", flush=True
        )
    print("\n### Nine settings of the paper on plants, GSSL 1 M, one thread\n")
    seconds = []
    for settings in ([(5, 0.5)], NINE):
        began = time.perf_counter()
        fit_path(plants[0], plants[1].distinct, settings, threads=1)
        seconds.append(time.perf_counter() - began)
    print(f"- one setting {seconds[0]:.1f} s, nine {seconds[1]:.1f} s: {seconds[1] / seconds[0]:.1f} times", flush=True)


def gssl():
    print("\n### GSSL on plants: 1,000,000 generated, threshold 1\n")
    features, train, learned = generate("plants", 1_000_000, 1)
    seconds, n_unique = learned["generation_seconds_"], learned["n_unique_"]
    print(f"- generation: {seconds:.2f} s, {n_unique:,} distinct, {len(features):,} features", flush=True)
    began = time.perf_counter()
    fits = fit_path(features, train.distinct, NINE)
    nine = time.perf_counter() - began
    print(f"- all nine (l1, sd) settings to the default tolerance: {nine:.1f} s", flush=True)
    best = next(f for f in fits if (f.l1, f.sd) == (1, 0.5)).objective
    start = PseudoLikelihood(features, train.distinct).independent_start
    rival, evaluations, nnz = rival_seconds(features, train.distinct, 1, 0.5, best * (1 + GAP), start, nine)
    print(
        f"- the rival, one setting (l1 1, sd 0.5; {nnz:,} matrix entries): "
        + (f"not there when stopped after {nine:.0f} s" if np.isinf(rival) else f"{rival:.1f} s")
        + f" ({evaluations} evaluations)",
        flush=True,
    )


MEMORY_PROGRAM = """
import json, resource, undirected
from undirected import FeatureSet, datasets
from undirected.weights.outcome import SolverStep
from undirected.work import Work
train = datasets.load("c20ng")
learner = undirected.GSSL(n_generated=5_000_000, threshold=2)
features = learner.propose(train, Work.start()).features.union(FeatureSet.atomic(train.domain))
fit = undirected.fit_weights(features, train, l1=5, sd=0.5, time_budget=120)
print(json.dumps({"n": len(features), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, **fit.report()}))
"""


def memory():
    print("\n### Peak memory on c20ng, GSSL with 5,000,000 generated, threshold 2\n")
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True).stdout
    result = json.loads(out)
    print(
        f"- {result['n']:,} features: {result['peak']:.2f} GiB at the peak, generation included; weights {result['seconds']:.0f} s, "
        f"violation {result['violation']:.1e} ({result['stopped_by']})",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True, help="folder with fixtures/ and features/")
    parser.add_argument("--only", default="nltcs,dna,plants,accidents,bnetflix,trees,regression,solvers,equal,units,gssl,memory")
    parser.add_argument("--limit", type=float, default=1200, help="seconds after which a rival is given up")
    parser.add_argument("--solvers", default="quasi-newton,descent", help="of the part `units`; descent is always measured")
    args = parser.parse_args()
    only = set(args.only.split(","))
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", undirected.Unconverged)
        script(only)
        feature_sets(args.features, only, args.limit)
        if "trees" in only:
            trees(args.limit)
        if "regression" in only:
            regression(args.features)
        if "solvers" in only:
            compare_solvers()
        if "equal" in only:
            count_equal(args.features)
        if "units" in only:
            units(args.features, args.solvers)
        if "gssl" in only:
            gssl()
        if "memory" in only:
            memory()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\nPeak memory of this program, rivals included: {peak:.1f} GiB")


if __name__ == "__main__":
    main()
