"""Structure learning against scikit-learn, as ratios measured in one run.

    UNDIRECTED_DATA=folder python benchmarks/structure.py                      # everything
    UNDIRECTED_DATA=folder python benchmarks/structure.py --only trees --datasets nltcs,plants

Where a rival would take hours, it gets every n-th variable only (the column `targets`); in the first table so do we. Trees of both start
from the distinct rows with their weights. The regressions need skglm beside scikit-learn (python -m pip install skglm).
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
from undirected.work import Work

TREES = {"nltcs": 1, "plants": 1, "bnetflix": 4, "kdd": 4, "c20ng": 91}
SUPPORTS, SUPPORT_CS = ("nltcs", "plants", "dna"), (0.05, 0.1, 0.5)
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
        rows = train.distinct
        x, least = np.ascontiguousarray(rows.codes, dtype=np.float32), 10 / rows.total_weight
        began = time.perf_counter()
        theirs = 0
        for v in targets:
            model = DecisionTreeClassifier(criterion="log_loss", min_weight_fraction_leaf=least)
            theirs += model.fit(np.delete(x, v, axis=1), rows.codes[:, v], sample_weight=rows.weights).get_n_leaves()
        rival = time.perf_counter() - began
        ours, leaves = [], 0
        for threads in (1, 2):
            began = time.perf_counter()
            table = rows
            codes = np.ascontiguousarray(table.codes.T, dtype=np.int16)
            args = (codes, table.domain.n_states.astype(np.int32), table.weights, targets, 10.0, 0.0, threads, lambda done: True)
            leaves = int((backend().module.grow_trees(*args)[1] < 0).sum())
            ours.append(time.perf_counter() - began)
        print(
            f"| {name} | {len(train):,} | {len(train.domain)} | {len(targets)} | {rival:.2f} ({theirs:,}) | {ours[0]:.3f} ({leaves:,}) "
            f"| {ours[1]:.3f} | {rival / ours[0]:.0f} | {rival / ours[1]:.0f} |",
            flush=True,
        )


def regressions(names):
    print("\n### L1 regressions of all variables for seven C: seconds\n")
    print("| data | rows | variables | rivals' targets | liblinear | skglm, a path | ours, 1 thread | ratio | ratio | largest violation |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, step in REGRESSIONS.items():
        if name not in names:
            continue
        train = undirected.read_data(name)
        x = train.codes.astype(float)
        targets = range(0, x.shape[1], step)
        varied = [v for v in targets if x[:, v].min() < x[:, v].max()]
        rivals = []
        for regress in (by_liblinear, by_skglm):
            regress(x[:50, :3], (np.arange(50) % 2).astype(float))  # what is compiled or loaded at first use is not counted
            began = time.perf_counter()
            for v in varied:
                regress(np.delete(x, v, axis=1), x[:, v])
            rivals.append((time.perf_counter() - began) * x.shape[1] / len(targets))
        fresh, work = undirected.Dataset(train.domain, train.codes), Work.start(threads=1)
        began = time.perf_counter()
        path = Nodewise(fresh, work).solve_path([1 / c for c in CS], 1e-5, work)
        ours = time.perf_counter() - began
        print(
            f"| {name} | {len(train):,} | {x.shape[1]} | {len(targets)} | {rivals[0]:.1f} | {rivals[1]:.1f} | {ours:.2f} "
            f"| {rivals[0] / ours:.1f} | {rivals[1] / ours:.1f} | {max(path.violations):.0e} |",
            flush=True,
        )


def by_liblinear(x, y):
    """A regression for each penalty, from nothing: liblinear has no warm start."""
    for c in CS:
        LogisticRegression(penalty="l1", solver="liblinear", C=c, intercept_scaling=100, tol=1e-6).fit(x, y)


def by_skglm(x, y):
    """The same penalties from the strongest on, each from the last, to the tolerance that ours is solved to."""
    from skglm import SparseLogisticRegression

    model = SparseLogisticRegression(alpha=1.0, tol=1e-5, warm_start=True)
    for c in sorted(CS):
        model.set_params(alpha=1 / (c * len(y)))
        model.fit(np.asfortranarray(x), np.where(y > 0, 1, -1))


def supports(names):
    print("\n### Supports of the regressions against saga (tol 1e-7), 2,000 rows, every tenth variable, three C\n")
    print("| data | coefficients | not zero, ours | not zero, saga | differ | of these within 1e-4 of the boundary | largest difference |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in SUPPORTS:
        if name not in names:
            continue
        train = undirected.read_data(name)
        train = undirected.Dataset(train.domain, train.codes[:2000])
        targets = [v for v in range(0, len(train.domain), 10) if np.ptp(train.codes[:, v])]
        count = np.zeros(5, dtype=int)
        worst = 0.0
        for c in SUPPORT_CS:
            work = Work.start(threads=2)
            regressions = Nodewise(train, work)
            ours = coefficient_matrix(regressions, regressions.solve_path([1 / c], 1e-7, work).weights[0])
            for v in targets:
                x = np.delete(train.codes.astype(float), v, axis=1)
                model = LogisticRegression(solver="saga", l1_ratio=1, C=c, tol=1e-7, max_iter=20_000).fit(x, train.codes[:, v])
                mine, theirs = np.delete(ours[v], v), model.coef_[0]
                gradient = x.T @ (train.codes[:, v] - 1 / (1 + np.exp(-(x @ mine + ours[v, v]))))
                differ = (mine != 0) != (theirs != 0)
                close = np.abs(np.abs(gradient) * c - 1) <= 1e-4
                count += [len(mine), (mine != 0).sum(), (theirs != 0).sum(), differ.sum(), (differ & close).sum()]
                worst = max(worst, np.abs(mine - theirs).max())
        print(f"| {name} | {count[0]:,} | {count[1]:,} | {count[2]:,} | {count[3]:,} | {count[4]:,} | {worst:.1e} |", flush=True)


def coefficient_matrix(regressions, weights):
    """Row by target, intercepts on the diagonal (binary tables)."""
    domain = regressions.features.domain
    out = np.zeros((len(domain), len(domain)))
    for j, target in enumerate(regressions.targets):
        variables = regressions.features.variables[regressions.features.start[j] : regressions.features.start[j + 1]]
        other = [v for v in variables if v != target]
        out[target, other[0] if other else target] = weights[j]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="trees,regressions,supports")
    parser.add_argument("--datasets", default=",".join(dict.fromkeys([*TREES, *REGRESSIONS, *SUPPORTS])))
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
        if "supports" in args.only.split(","):
            supports(names)


if __name__ == "__main__":
    main()
