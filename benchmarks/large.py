"""Learners on a table of the size that users have: 300,000 rows of 1,500 variables, in 30 planted topics of 50 variables each.

python benchmarks/large.py "DTSL(time_budget=400, threads=1)" "BLM(alpha=20, time_budget=240)"
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import numpy as np

import undirected
from undirected.work import Counted

TOPIC = 50  # variables that belong together


def planted(n_rows, n_variables, seed=0):
    rng = np.random.default_rng(seed)
    n_topics = n_variables // TOPIC
    shares = np.where(np.arange(n_variables) // TOPIC == np.arange(n_topics)[:, None], 0.2, 0.01)
    topic = rng.integers(0, n_topics, n_rows)
    codes = np.empty((n_rows, n_variables), dtype=np.int8)
    for rows in np.array_split(np.arange(n_rows), n_rows // 10_000 + 1):
        codes[rows] = rng.random((len(rows), n_variables)) < shares[topic[rows]]
    return undirected.Dataset(undirected.Domain.from_sizes([2] * n_variables), codes)


class Printer:
    """Prints how far the work is, now and then."""

    def __init__(self):
        self.began = self.last = time.perf_counter()

    def __deepcopy__(self, memo):
        return self

    def __call__(self, event):
        now = time.perf_counter()
        if now - self.last > 10 or (isinstance(event, Counted) and event.done == event.total):
            print(f"  {event} after {now - self.began:.0f} s, {memory():.1f} GB", flush=True)
            self.last = now


def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learners", nargs="+", help="as in Python, without the name of the package")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--variables", type=int, default=1500)
    args = parser.parse_args()
    warnings.simplefilter("ignore", undirected.Unconverged)
    data = planted(args.rows, args.variables)
    for text in args.learners:
        printer = Printer()
        learner = eval(text, {name: getattr(undirected, name) for name in undirected.__all__})
        learner.set_params(progress=printer).fit(data)
        took = time.perf_counter() - printer.began
        print(f"{text}: {took:.0f} s, {learner.fit_.stopped_by}, {len(learner.network_.features):,} features, {memory():.1f} GB")
        began = time.perf_counter()
        score = learner.network_.pll(data)
        print(f"  PLL of all rows {score:.3f}, {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
