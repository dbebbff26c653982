"""Structure learning against scikit-learn, as ratios measured in one run.

    UNDIRECTED_DATA=folder python benchmarks/structure.py                      # everything
    UNDIRECTED_DATA=folder python benchmarks/structure.py --only trees --datasets nltcs,plants

Where scikit-learn would take hours, it gets every n-th variable only (the column `targets`), and so do we.
Prints Markdown; benchmarks/README.md keeps a copy.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

import undirected
from undirected.kernels import backend
from undirected.structure.l1 import CS, Nodewise

TREES = {"nltcs": 1, "plants": 1, "bnetflix": 4, "kdd": 4, "c20ng": 91}
REGRESSIONS = {"plants": 1, "bnetflix": 10, "cwebkb": 84}


def trees(names):
    print("\n### Trees of all variables, kappa 1, at least 10 rows a leaf: seconds\n")
    print("| data | rows | variables | targets | scikit-learn (leaves) | ours, 1 thread (leaves) | ours, 2 threads | ratio, 1 | ratio, 2 |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, step in TREES.items():
        if name not in names:
            continue
        train = undirected.read_data(name)
        targets = np.arange(0, len(train.domain), step, dtype=np.int32)
        x = np.ascontiguousarray(train.codes, dtype=np.float32)
        began = time.perf_counter()
        theirs = 0
        for v in targets:
            model = DecisionTreeClassifier(criterion="log_loss", min_samples_leaf=10)
            theirs += model.fit(np.delete(x, v, axis=1), train.codes[:, v]).get_n_leaves()
        rival = time.perf_counter() - began
        ours, leaves = [], 0
        for threads in (1, 2):
            fresh = undirected.Dataset(train.domain, train.codes)
            began = time.perf_counter()
            table = fresh.distinct
            codes = np.ascontiguousarray(table.codes.T, dtype=np.int16)
            args = (codes, table.domain.n_states.astype(np.int32), table.weights, targets, 10.0, 0.0, threads)
            leaves = int((backend().module.grow_trees(*args)[1] < 0).sum())
            ours.append(time.perf_counter() - began)
        print(
            f"| {name} | {len(train):,} | {len(train.domain)} | {len(targets)} | {rival:.2f} ({theirs:,}) | {ours[0]:.3f} ({leaves:,}) "
            f"| {ours[1]:.3f} | {rival / ours[0]:.0f} | {rival / ours[1]:.0f} |",
            flush=True,
        )


def regressions(names):
    print("\n### L1 regressions of all variables for seven C: seconds\n")
    print("| data | rows | variables | liblinear's targets | liblinear, scaled to all | ours, 2 threads | ratio | largest violation |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name, step in REGRESSIONS.items():
        if name not in names:
            continue
        train = undirected.read_data(name)
        x = train.codes.astype(float)
        targets = range(0, x.shape[1], step)
        began = time.perf_counter()
        for v in targets:
            if x[:, v].min() == x[:, v].max():
                continue
            others = np.delete(x, v, axis=1)
            for c in CS:
                LogisticRegression(penalty="l1", solver="liblinear", C=c, intercept_scaling=100, tol=1e-6).fit(others, x[:, v])
        rival = (time.perf_counter() - began) * x.shape[1] / len(targets)
        fresh = undirected.Dataset(train.domain, train.codes)
        began = time.perf_counter()
        path = Nodewise(fresh, 2).path([1 / c for c in CS], 1e-5)
        ours = time.perf_counter() - began
        print(
            f"| {name} | {len(train):,} | {x.shape[1]} | {len(targets)} | {rival:.1f} | {ours:.2f} | {rival / ours:.1f} "
            f"| {max(path.violations):.0e} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="trees,regressions")
    parser.add_argument("--datasets", default=",".join({**TREES, **REGRESSIONS}))
    args = parser.parse_args()
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    names = args.datasets.split(",")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "trees" in args.only.split(","):
            trees(names)
        if "regressions" in args.only.split(","):
            regressions(names)


if __name__ == "__main__":
    main()
