"""Which split of the variables did the papers use for CMLL? Networks of a comparison, scored under three kinds of splits.

    undirected compare --learners l1,dtsl --datasets all --paper-grids -o results/
    UNDIRECTED_DATA=folder python benchmarks/splits.py results/

For every learner and data set with a published NCMLL: ours under random splits (mean and spread over five seeds), under runs of
neighbours, and with every fourth variable hidden. The last lines tell how far each kind is from the published values. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import undirected
from undirected.evaluation.published import published

SEEDS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--learners", default="l1,dtsl")
    parser.add_argument("--datasets", help="with commas between them (default: all in the folder)")
    args = parser.parse_args()
    cells = sorted((args.folder / "cells").glob("*.json"))
    rows = [json.loads(path.read_text("utf8"))["row"] | {"file": path.name} for path in cells]
    wanted = args.datasets.split(",") if args.datasets else list(dict.fromkeys(row["dataset"] for row in rows if "error" not in row))
    print("| data set | learner | published | random, five seeds | contiguous | every fourth |")
    print("|---|---|---|---|---|---|", flush=True)
    gaps: dict[str, list[float]] = {"random": [], "contiguous": [], "every": []}
    for dataset in wanted:
        for row in rows:
            printed = published("ncmll", row["learner"], dataset)
            if row["dataset"] != dataset or row["learner"] not in args.learners.split(",") or "error" in row or not printed:
                continue
            network = undirected.load(str(args.folder / "networks" / row["file"]))
            scores = {kind: score(network, dataset, kind) for kind in gaps}
            for kind, values in scores.items():
                gaps[kind].append(float(np.mean(values)) - printed[0].value)
            random = f"{np.mean(scores['random']):.4f} ± {np.std(scores['random'], ddof=1):.4f}"
            others = " | ".join(f"{scores[kind][0]:.4f}" for kind in ("contiguous", "every"))
            print(f"| {dataset} | {row['learner']} | {printed[0].value:.3f} | {random} | {others} |", flush=True)
    for name, measure in (("mean difference", np.mean), ("mean absolute difference", lambda x: np.mean(np.abs(x)))):
        print(f"| {name} | | | " + " | ".join(f"{measure(gaps[kind]):+.4f}" for kind in gaps) + " |")


def score(network, dataset, kind):
    seeds = range(SEEDS) if kind == "random" else range(1)
    return [undirected.cmll(network, f"{dataset}:test", seed=seed, split=kind, burn_in=50, sweeps=200).per_variable for seed in seeds]


if __name__ == "__main__":
    main()
