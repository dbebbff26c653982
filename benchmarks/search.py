"""The structure searches: candidates scored a second, and seconds to convergence.

    UNDIRECTED_DATA=folder python benchmarks/search.py [--only gains,joins,searches] [--datasets nltcs,plants]

*gains*: candidates of BLM's first sweep (rows of the table and their generalisations) on the network of a finished search, one
thread. The rival learns the same single weight over the same rows with NumPy and `scipy.optimize.minimize_scalar`; gains must agree.
*joins*: all joins of the features of Della Pietra's search with each other, one thread. The rival scores each on its own, giving up
as early, which is done for a sample; the gains of those that gain must agree.
*searches*: BLM, DT-BLM and Della Pietra's search with one setting each, to convergence, beside the seconds that the papers print
for their whole grids (Lowd and Davis 2014, Table 4). Prints Markdown.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.optimize import minimize_scalar

import undirected
from undirected import BLM, DTBLM, DellaPietra, FeatureSet, datasets, kernels
from undirected.evaluation.published import published
from undirected.structure.blm import NEAREST, Generaliser
from undirected.structure.row_conjunctions import list_row_conjunctions
from undirected.structure.search_state import SearchState
from undirected.work import Work

SETTINGS = {
    "blm": lambda: BLM(alpha=1, sd=1),
    "dp": lambda: DellaPietra(alpha=5, sd=1),
    "dt-blm": lambda: DTBLM(alpha=0.5, search_sd=0.1, kappa=0.01),
}


def gains(names, seconds=5.0):
    print("| data set | distinct rows | network | candidates | ours, a second and core | rival, a second | ratio | largest difference |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        data = datasets.load(name)
        search = SearchState(data, alpha=0.0, sd=1.0, work=Work.start(threads=1))
        search.begin(f for f in DellaPietra(alpha=20, max_length=3).fit(data).network_.features if len(f) > 1)
        candidates = _candidates(search, data)
        flat = FeatureSet.from_normalised(candidates, data.domain)
        none = (np.full(len(candidates), -1, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))
        took = []
        while sum(took) < seconds:
            began = time.perf_counter()
            ours = search.kernel.gains(flat.start, flat.literals, *none, 0.0, 0.0, search.ridge, search.price, True, 1)[1]
            took.append(time.perf_counter() - began)
        rival = Rival(search)
        theirs, began = [], time.perf_counter()
        while time.perf_counter() - began < seconds and len(theirs) < len(candidates):
            theirs.append(rival.gain(candidates[len(theirs)]))
        slow = len(theirs) / (time.perf_counter() - began)
        fast = len(candidates) / min(took)
        worst = float(np.abs(ours[: len(theirs)] - theirs).max())
        sizes = f"{data.n_distinct:,} | {len(search.weights):,} features | {len(candidates):,}"
        print(f"| {name} | {sizes} | {fast:,.0f} | {slow:,.0f} | {fast / slow:.0f} | {worst:.1e} |", flush=True)


def _candidates(search, data):
    """Rows of two literals or more with their generalisations, from all over the table."""
    rows = FeatureSet(data.domain, *list_row_conjunctions(data, "positive"))
    rows = [f for f in rows if len(f) > 1][:: max(1, len(rows) // 2000)]
    generaliser = Generaliser(search, NEAREST, "gvdm", 1)
    generaliser.learn(rows, ())
    found = [c for f in rows for c in (f, *generaliser.known[f])]
    return [c for c in dict.fromkeys(found) if c not in search.weights]


class Rival:
    """The obvious program: boolean columns, cached logits, Brent's method on the one weight."""

    def __init__(self, search):
        table = search.data.distinct
        self.codes, self.weights, self.ridge = table.codes == 1, table.weights, search.ridge
        self.logits = search.kernel.logits()

    def gain(self, feature):
        variables = [literal // 2 for literal in feature]  # positive literals of binary variables
        failed = ~self.codes[:, variables]
        failures = failed.sum(axis=1)
        margin, sign, counts = [], [], []
        for k, v in enumerate(variables):
            for s, rows in ((1, failures == 0), (-1, (failures == 1) & failed[:, k])):
                margin.append(s * self.logits[rows, v])
                sign.append(np.full(int(rows.sum()), s))
                counts.append(self.weights[rows])
        margin, sign, counts = map(np.concatenate, (margin, sign, counts))

        def loss(w):
            return counts @ np.logaddexp(0, -(margin + sign * w)) + 0.5 * self.ridge * w * w

        return loss(0.0) - minimize_scalar(loss, options={"xtol": 1e-6}).fun


def joins(names, n_sampled=20_000):
    print("| data set | distinct rows | features | joins | ours, a second and core | one by one | ratio | largest difference |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rng = np.random.default_rng(0)
    for name in names:
        data = datasets.load(name)
        search = SearchState(data, alpha=5.0, sd=1.0, work=Work.start(threads=1))
        search.begin(f for f in DellaPietra(alpha=5, sd=1, time_budget=60).fit(data).network_.features if len(f) > 1)
        features = [f for f in search.weights if len(f) > 1]
        flat = FeatureSet.from_normalised(features, data.domain)
        began = time.perf_counter()
        rules = (len(data.domain), 0.0, 0.0, search.ridge, search.price, 1)
        start, literals, _, gained, n = search.kernel.join(flat.start, flat.literals, 0, len(features), *rules)
        fast = n / (time.perf_counter() - began)
        found = {tuple(literals[a:b].tolist()): gain for a, b, gain in zip(start[:-1], start[1:], gained, strict=True)}
        some = set()
        for _ in range(n_sampled):
            a, b = (set(features[k]) for k in rng.choice(len(features), 2, replace=False))
            if min(len(a - b), len(b - a)) > 1:
                some.add(tuple(sorted(a | b)))
        some = list(some)
        began = time.perf_counter()
        alone = search.find_gains(some)[1]
        slow = len(some) / (time.perf_counter() - began)
        worst = max(abs(found.get(join, 0.0) - max(gain, 0.0)) for join, gain in zip(some, alone, strict=True))
        sizes = f"{data.n_distinct:,} | {len(features):,} | {n:,}"
        print(f"| {name} | {sizes} | {fast:,.0f} | {slow:,.0f} | {fast / slow:.0f} | {worst:.1e} |", flush=True)


def searches(names):
    print("| data set | learner | seconds | moves | candidates | features | test NPLL | published NPLL | published seconds, all settings |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        train, test = datasets.load(name), datasets.load(name, "test")
        for label, make in SETTINGS.items():
            began = time.perf_counter()
            learner = make().fit(train)
            took = time.perf_counter() - began
            trace, n = learner.trace_, len(train.domain)
            printed = [(found[0].value if found else None) for found in (published(m, label, name) for m in ("npll", "seconds"))]
            score, seconds = ("-" if v is None else f"{v:{f}}" for v, f in zip(printed, (".3f", ",.0f"), strict=True))
            figures = f"{took:.1f} | {trace.points[-1].n_moves:,} | {trace.n_scored:,} | {len(learner.network_.features):,}"
            print(f"| {name} | {label} | {figures} | {learner.score(test) / n:.4f} | {score} | {seconds} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="gains,joins,searches")
    parser.add_argument("--datasets", default="nltcs,plants,baudio,dna")
    args = parser.parse_args()
    names = args.datasets.split(",")
    print(f"undirected {undirected.__version__}, kernels: {kernels.backend().name}, threads: {kernels.count_cores()}\n")
    if "gains" in args.only:
        gains(names)
        print()
    if "joins" in args.only:
        joins(names)
        print()
    if "searches" in args.only:
        searches(names)


if __name__ == "__main__":
    main()
