"""Inference against other programs, as ratios measured in one run.

    UNDIRECTED_DATA=folder python benchmarks/inference.py --features folder-with-fixtures     # everything
    UNDIRECTED_DATA=folder python benchmarks/inference.py --only gibbs,exact,query

Rivals: a Gibbs sampler in NumPy, vectorised over rows (below); pyAgrum's Shafer-Shenoy, pgmpy's variable elimination and
dwave-samplers' tree decomposition, where they are installed. Prints Markdown; benchmarks/README.md keeps a copy.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
import warnings
from pathlib import Path

import numpy as np

import undirected
from undirected.evaluation.cmll import cmll, make_groups
from undirected.inference import Session
from undirected.inference.evidence import mark_rows
from undirected.kernels import backend

LIBRA = {
    ("nltcs", "tree"): (21.4, None),
    ("nltcs", "nonzero"): (72.1, None),
    ("plants", "tree"): (155.0, None),
    ("plants", "nonzero"): (33.2, 200),
}
BURN_IN, SWEEPS = 100, 1000


class NumpyGibbs:
    """All rows at once, one variable after the other: contexts as index lists into the literals' truth, then one product."""

    def __init__(self, network, hidden):
        n = network.domain.n_literals
        self.n, self.hidden = n, hidden
        self.plans = []
        for v in hidden:
            lits, weights = [], []
            for j in np.unique(network.features.owner[network.features.variables == v]):
                literals = network.features[int(j)]
                own = next(x for x in literals if network.domain.literal_variable[x % n] == v)
                lits.append([x for x in literals if network.domain.literal_variable[x % n] != v])
                weights.append(network.weights[j] * (1 if (own % n - network.domain.base[v] == 1) == (own < n) else -1))
            width = max(map(len, lits), default=0)
            self.plans.append((np.array([x + [2 * n] * (width - len(x)) for x in lits], dtype=int), np.array(weights, dtype=np.float32)))

    def sweeps(self, states, n_sweeps, rng):
        """Sums of the hidden variables' probabilities, by row."""
        rows, variables = states.shape
        truth = np.ones((2 * self.n + 1, rows), dtype=bool)
        for v in range(variables):
            truth[2 * v + 1], truth[2 * v] = states[:, v] == 1, states[:, v] == 0
        truth[self.n : 2 * self.n] = ~truth[: self.n]
        sums = np.zeros((len(self.hidden), rows))
        for _ in range(n_sweeps):
            for k, v in enumerate(self.hidden):
                lits, weights = self.plans[k]
                p = 1 / (1 + np.exp(-(weights @ truth[lits].all(axis=1))))
                one = rng.random(rows) < p
                truth[2 * v + 1], truth[2 * v], truth[self.n + 2 * v + 1], truth[self.n + 2 * v] = one, ~one, ~one, one
                sums[k] += p
        return sums


def gibbs(folder):
    print("\n### CMLL by Gibbs sampling, 100 + 1,000 sweeps, every fourth variable hidden in turn: seconds\n")
    print("Every row has a chain of its own here; what exact parts and shared evidence save is in the last columns.\n")
    print("| data, features | F | rows | Libra (its figure) | NumPy, scaled up | ours, 1 thread | ours, 2 threads | Libra / ours, 2 "
          "| NumPy / ours, 1 | M updates/s, 1 | CMLL | `cmll`: seconds | exact | distinct |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for (name, kind), (theirs, first) in LIBRA.items():
        network, train = learned(name, kind, folder)
        test = undirected.read_data(f"{name}:test", domain=train.domain)
        codes = np.array(sorted(map(tuple, test.codes[:first].tolist())), dtype=np.int16)
        numpy_seconds = numpy_time(network, codes)
        times, value = {}, 0.0
        for threads in (1, 2):
            times[threads], value = our_time(network, codes, threads)
        rows, variables = codes.shape
        rate = rows * variables * (BURN_IN + SWEEPS) / times[1] / 1e6
        began = time.perf_counter()
        found = cmll(network, test.subset(np.arange(first or len(test))), split="every", threads=2)
        seconds = time.perf_counter() - began
        print(
            f"| {name}, {kind} | {len(network.features):,} | {rows:,} | {theirs} | {numpy_seconds:.1f} | {times[1]:.2f} | {times[2]:.2f} "
            f"| {theirs / times[2]:.0f} | {numpy_seconds / times[1]:.0f} | {rate:.0f} | {value:.3f} | {seconds:.2f} ({found.value:.3f}) "
            f"| {found.exact_share:.0%} | {found.distinct_share:.0%} |",
            flush=True,
        )


def learned(name, kind, folder):
    """Libra's setting: trees with kappa 0.01 as default features with sd 1, or the fixture's nonzero features with l1 1, sd 0.5."""
    train = undirected.read_data(name)
    if kind == "tree":
        return undirected.DTSL(kappa=0.01, conversion="default", sd=1.0, tol=1e-4).fit(train).network_, train
    path = folder / ("fixtures" if name == "nltcs" else "features") / f"{name}.nonzero.mn"
    features = undirected.load(str(path)).features
    features = undirected.FeatureSet(train.domain, features.start, features.literals)
    return undirected.fit_weights(features, train, 1.0, 0.5, tol=1e-4).network(), train


def numpy_time(network, codes, sweeps=8):
    """Seconds for all four groups, scaled up from a few sweeps of every group."""
    rng = np.random.default_rng(0)
    total = 0.0
    for hidden in make_groups(codes.shape[1], split="every"):
        sampler = NumpyGibbs(network, hidden)
        states = codes.copy()
        states[:, hidden] = rng.integers(0, 2, (len(codes), len(hidden)))
        began = time.perf_counter()
        sampler.sweeps(states, sweeps, rng)
        total += (time.perf_counter() - began) * (BURN_IN + SWEEPS) / sweeps
    return total


def our_time(network, codes, threads):
    reduced = Session(network, threads=threads).reduce()
    domain, rng = network.domain, np.random.default_rng(0)
    seconds, value = 0.0, 0.0
    for hidden in make_groups(codes.shape[1], split="every"):
        states, known = codes.copy(), codes.copy()
        states[:, hidden] = rng.integers(0, 2, (len(codes), len(hidden)))
        known[:, hidden] = -1
        began = time.perf_counter()
        rows = np.arange(len(codes), dtype=np.int32)
        order = np.arange(len(domain), dtype=np.int32)
        sampler = backend().module.Sampler(reduced.model, mark_rows(domain, known), rows, states, order, 1)
        sampler.run(BURN_IN, None, None, False, False, False, threads)
        sampler.run(SWEEPS, None, None, True, False, False, threads)
        p = np.asarray(sampler.sums()) / SWEEPS
        seconds += time.perf_counter() - began
        value += float(np.log(np.take_along_axis(p, (domain.base[hidden] + codes[:, hidden]).astype(np.int64), axis=1)).sum(axis=1).mean())
    return seconds, value


def solve(network, n_samples=0):
    """Plan and sum out everything with one thread, and draw samples by the same plan."""
    session = Session(network, threads=1)
    reduced, work = session.reduce(), session.start()
    plan = reduced.plan_exact("a benchmark", work)
    if n_samples:
        plan.draw(n_samples, work)
    return reduced.solve(plan)


def exact():
    print("\n### All marginals and log Z, exactly: milliseconds (best of several runs)\n")
    print("| network | variables | features | pyAgrum | pgmpy (three marginals) | dwave (log Z, pairs, 1,000 samples) | ours, 1 thread "
          "| ours with 1,000 samples | pyAgrum / ours | largest difference |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, network in tractable():
        ours, (marginals, _) = best_of(lambda network=network: solve(network))
        sampled, _ = best_of(lambda network=network: solve(network, 1000))
        times, difference = [], 0.0
        for rival in (pyagrum, pgmpy, dwave):
            try:
                seconds, values = rival(network)
            except ImportError:
                times.append("not installed")
                continue
            except Exception as error:
                times.append(str(error))
                continue
            times.append(seconds)
            for v, p in values.items():
                difference = max(difference, abs(p - marginals[network.domain.base[v] + 1]))
        shown = [f"{1000 * t:.1f}" if isinstance(t, float) else t for t in times]
        ratio = f"{times[0] / ours:.1f}" if isinstance(times[0], float) else "-"
        print(
            f"| {name} | {len(network.domain)} | {len(network.features):,} | {shown[0]} | {shown[1]} | {shown[2]} | {1000 * ours:.2f} "
            f"| {1000 * sampled:.2f} | {ratio} | {difference:.1e} |",
            flush=True,
        )


def tractable():
    """Networks that all can do, and two beyond pgmpy's reach."""
    yield "grid 8 x 8", undirected.datasets.grid_ising(8, 8, seed=1)
    yield "grid 14 x 14", undirected.datasets.grid_ising(14, 14, seed=1)
    yield "tree of 1,000", random_tree(1000)
    yield "nltcs, pairs (L1)", undirected.L1().fit(undirected.read_data("nltcs")).network_
    yield "nltcs, trees (DTSL)", undirected.DTSL(kappa=0.01, conversion="default", tol=1e-4).fit(undirected.read_data("nltcs")).network_
    yield "tree of 100 and two conjunctions of 30", with_conjunctions(random_tree(100), 2, 30)


def with_conjunctions(network, k, length):
    """A few long features more, which no table could hold."""
    rng = np.random.default_rng(1)
    rows = [list(row) for row in network.features]
    for _ in range(k):
        members = np.sort(rng.choice(len(network.domain), length, replace=False))
        rows.append((2 * members + rng.integers(0, 2, length)).tolist())
    return undirected.MarkovNetwork(undirected.FeatureSet.from_lists(rows, network.domain), [*network.weights, *rng.normal(0, 10, k)])


def random_tree(n):
    rng = np.random.default_rng(0)
    domain = undirected.Domain.from_sizes([2] * n)
    rows = [[2 * v + 1] for v in range(n)] + [[2 * int(rng.integers(v)) + 1, 2 * v + 1] for v in range(1, n)]
    return undirected.MarkovNetwork(undirected.FeatureSet.from_lists(rows, domain), rng.normal(size=len(rows)))


def best_of(work, seconds=1.0):
    times, out = [], None
    while sum(times) < seconds and len(times) < 50:
        began = time.perf_counter()
        out = work()
        times.append(time.perf_counter() - began)
    return min(times), out


def factors_of(network):
    """Features of the same variables as one table of weights, for programs that want tables."""
    n = network.domain.n_literals
    tables = {}
    cells = float((2.0**network.features.lengths).sum())
    if cells > 1 << 24:
        raise MemoryError(f"tables of {cells:.1e} cells")
    for row, weight in zip(network.features, network.weights, strict=True):
        scope = tuple(sorted({int(network.domain.literal_variable[x % n]) for x in row}))
        table = tables.setdefault(scope, np.zeros([2] * len(scope)))
        index = tuple(next((x % n) % 2 for x in row if (x % n) // 2 == v) for v in scope)
        table[index] += weight
    return tables


def pyagrum(network):
    import pyagrum as gum

    mrf = gum.MarkovRandomField()
    for v in range(len(network.domain)):
        mrf.add(gum.RangeVariable(f"v{v}", "", 0, 1))
    for scope, table in factors_of(network).items():
        names = [f"v{v}" for v in scope]
        factor = mrf.addFactor(names)
        order = [factor.names.index(name) for name in names]
        filled = np.exp(np.transpose(table, np.argsort(order))) if len(names) > 1 else np.exp(table)
        factor[:] = np.ascontiguousarray(np.transpose(filled))
    engine = gum.ShaferShenoyMRFInference

    def work():
        inference = engine(mrf)
        inference.makeInference()
        return {v: inference.posterior(f"v{v}").tolist()[1] for v in range(len(network.domain))}

    return best_of(work)


def pgmpy(network):
    """Three marginals only: it starts anew for each."""
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteMarkovNetwork

    tables = factors_of(network)
    model = DiscreteMarkovNetwork()
    model.add_nodes_from([f"v{v}" for v in range(len(network.domain))])
    model.add_edges_from([(f"v{a}", f"v{b}") for scope in tables for k, a in enumerate(scope) for b in scope[k + 1 :]])
    for scope, table in tables.items():
        model.add_factors(DiscreteFactor([f"v{v}" for v in scope], [2] * len(scope), np.exp(table).ravel()))
    wanted = [0, len(network.domain) // 2, len(network.domain) - 1]

    def work():
        inference = VariableElimination(model)
        found = {v: inference.query([f"v{v}"], show_progress=False).values for v in wanted}
        return {v: float(values[1] / values.sum()) for v, values in found.items()}

    return best_of(work)


def dwave(network):
    """Spin-glass form: pairwise networks only."""
    import dimod
    from dwave.samplers import TreeDecompositionSampler

    if network.features.lengths.max() > 2:
        raise ValueError("pairs only")
    model = dimod.BinaryQuadraticModel("BINARY")
    for v in range(len(network.domain)):
        model.add_variable(v, 0.0)
    for row, weight in zip(network.features, network.weights, strict=True):
        if len(row) == 1:
            model.add_linear(row[0] // 2, -float(weight))
        else:
            model.add_quadratic(row[0] // 2, row[1] // 2, -float(weight))
    sampler = TreeDecompositionSampler()

    def work():
        found = sampler.sample(model, num_reads=1000, beta=1.0, marginals=True, seed=1)
        return {v: float(p) for v, p in found.info["variable_marginals"].items()}

    return best_of(work)


def interactive():
    print("\n### A query with 5 pieces of evidence, standard error below 0.005 for every marginal: seconds, two threads\n")
    print("| network | variables | features | method | seconds | largest error | R-hat | mixed |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, network, train in learned_100():
        evidence = {network.domain.names[v]: int(train.codes[7, v]) for v in range(0, 50, 10)}
        answer = network.query(evidence, time_budget=2.0, threads=2, data=train)
        error = answer.largest_error
        print(
            f"| {name} | {len(network.domain)} | {len(network.features):,} | {answer.method} | {answer.seconds:.2f} "
            f"| {'-' if math.isnan(error) else f'{error:.4f}'} | {answer.diagnostics.get('r_hat', 1):.3f} | {answer.mixed} |",
            flush=True,
        )


def learned_100():
    """Learned networks of 100 variables, the 10,000 strongest features of each (or all, if there are fewer)."""
    for name in ("baudio", "bnetflix"):
        train = undirected.read_data(name)
        makers = {
            "GSSL": undirected.GSSL(n_generated=500_000, threshold=2, l1=1, sd=0.5, tol=1e-3),
            "DTSL": undirected.DTSL(kappa=1e-3, conversion="nonzero", sd=1.0, tol=1e-3),
            "all pairs": undirected.AllPairs(l1=2, sd=10, tol=1e-3),
        }
        for label, learner in makers.items():
            network = learner.fit(train).network_
            if len(network.features) > 10_000:
                network = undirected.MarkovNetwork(*strongest(network, 10_000))
            yield f"{name}, {label}", network, train


def strongest(network, k):
    order = np.argsort(-np.abs(network.weights) * np.where(network.features.lengths == 1, 1e9, 1), kind="stable")[:k]
    return network.features.subset(np.sort(order)), network.weights[np.sort(order)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="gibbs,exact,query")
    parser.add_argument("--features", default="shared/spec", help="folder with fixtures/ and features/")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"
    )
    parts = args.only.split(",")
    if "gibbs" in parts:
        gibbs(Path(args.features))
    if "exact" in parts:
        exact()
    if "query" in parts:
        interactive()


if __name__ == "__main__":
    main()
