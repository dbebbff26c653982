"""Where the gain of AllPairs comes from: fitting all pairs jointly, or the L1 penalty on the weights.

    UNDIRECTED_DATA=folder python benchmarks/ablation.py --datasets dna,bbc,cwebkb -o folder

Three learners, settings chosen on validation data, test rows read once:
- `all-pairs`: every pair, one joint fit, over a grid of (l1, sd);
- `selected, l1`: pairs picked by node-wise regressions (C and both ways of joining in the grid), then the same grid of (l1, sd);
- `selected, l2`: the same pairs with l1 = 0, over the grid's sd: the `l1` learner of the papers.
Prints Markdown; resumable with the same folder.
"""

from __future__ import annotations

import argparse
import sys

import undirected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default="nltcs,dna,bbc")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    weights = undirected.AllPairs.paper_grid
    picking = {name: values for name, values in undirected.L1.paper_grid.items() if name != "sd"}
    results = undirected.compare(
        {"selected, l2": undirected.L1(), "selected, l1": undirected.L1(), "all-pairs": undirected.AllPairs()},
        args.datasets.split(","),
        grid={"selected, l2": {**picking, "sd": weights["sd"]}, "selected, l1": {**picking, **weights}, "all-pairs": weights},
        folder=args.output,
        jobs=args.jobs,
        progress=lambda event: print(event, file=sys.stderr, flush=True),
    )
    print(results.to_markdown())
    print("| data set | learner | features not zero | seconds | settings |\n|---|---|---|---|---|")
    for row in results.rows:
        settings = ", ".join(f"{name} {value}" for name, value in row["settings"].items())
        print(f"| {row['dataset']} | {row['learner']} | {row['n_nonzero']:,} | {row['seconds']:.0f} | {settings} |")


if __name__ == "__main__":
    main()
