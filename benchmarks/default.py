"""The default learner against the others, on tables that come in many shapes; and gaps, against complete data.

python benchmarks/default.py --only tables    held-out scores on real tables: the default against each learner's quick grid
python benchmarks/default.py --only gaps      cells deleted from complete tables: test scores of learn, drop, mode and complete data

Tables come from the folder named by UNDIRECTED_DATA, and three from scikit-learn. A quarter of the rows of each is for testing and is
read once, by every learner; the default does not see which learner wins.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from undirected import DTL1, DTSL, GSSL, L1, AllPairs, Auto, ChowLiu, Dataset, UndirectedError, holdout, read_data, tune
from undirected.structure.learner import Learner

NAMED = ("votes84", "mushroom", "adult", "abalone", "wine", "sachs", "senate109", "groceries", "newsgroups100")
RIVALS: tuple[type[Learner], ...] = (AllPairs, L1, DTSL, DTL1, GSSL, ChowLiu)
MOST_ROWS = 20_000


def list_tables() -> Iterator[tuple[str, Dataset]]:
    """Real tables, coded as the command line would."""
    for name in NAMED:
        yield name, read_data(name, missing="state")
    from sklearn import datasets

    for name, load in (
        ("iris", datasets.load_iris),
        ("breast cancer", datasets.load_breast_cancer),
        ("wine chemistry", datasets.load_wine),
    ):
        given = load(as_frame=True)
        yield name, read_data(given.frame.astype({"target": str}))


def compare_on_tables() -> None:
    print("| table | rows | variables | auto | best other | which | auto, s | complete |")
    print("|---|---|---|---|---|---|---|---|")
    for name, table in list_tables():
        table = table.subset(np.random.default_rng(0).permutation(len(table))[:MOST_ROWS])
        train, test = holdout(table, 0.25, 1)
        began = time.perf_counter()
        auto = Auto().fit(train)
        seconds = time.perf_counter() - began
        scores = {}
        for rival in RIVALS:
            try:
                scores[rival.__name__] = tune(rival(time_budget=60), "quick", train).learner.score(test)
            except UndirectedError:
                continue
        best = max(scores, key=scores.__getitem__)
        complete = auto.choice_ is not None and auto.choice_.complete
        size = f"{len(train):,} | {len(train.domain)}"
        print(f"| {name} | {size} | {auto.score(test):.4f} | {scores[best]:.4f} | {best} | {seconds:.1f} | {complete} |", flush=True)


def dig(data: Dataset, share: float, at_random: bool) -> Dataset:
    """The table without a share of its cells: completely at random, or four times as often where the first variable is not in its first
    state, which is always known."""
    rng = np.random.default_rng(5)
    chance = share if at_random else np.where(data.codes[:, :1] > 0, 1.6 * share, 0.4 * share)
    gone = rng.random(data.codes.shape) < chance
    if not at_random:
        gone[:, 0] = False
    return Dataset(data.domain, np.where(gone, -1, data.codes))


def compare_gaps() -> None:
    makers: tuple[Callable[[], Any], ...] = (lambda: AllPairs(l1=5), Auto)
    print("| table | missing | learner | complete | learn | drop | mode | rounds | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in ("nltcs", "mushroom", "adult"):
        table = read_data(name, missing="state")
        table = table.subset(np.random.default_rng(0).permutation(len(table))[:8000])
        train, test = holdout(table, 0.3, 1)
        for share in (0.1, 0.3):
            for at_random in (True, False):
                holes = dig(train, share, at_random)
                for make in makers:
                    line = [f"{make().fit(train).score(test):.4f}"]
                    for policy in ("learn", "drop", "mode"):
                        began = time.perf_counter()
                        try:
                            learner = make().set_params(missing=policy).fit(holes)
                            line.append(f"{learner.score(test):.4f}")
                        except UndirectedError:
                            line.append("no row left")
                        if policy == "learn":
                            rounds, seconds = learner.gaps_.rounds, time.perf_counter() - began
                    what = f"{share:.0%}" + ("" if at_random else ", given the first variable")
                    print(f"| {name} | {what} | {type(make()).__name__} | {' | '.join(line)} | {rounds} | {seconds:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="tables,gaps")
    chosen = parser.parse_args().only.split(",")
    warnings.simplefilter("ignore")
    if "tables" in chosen:
        compare_on_tables()
    if "gaps" in chosen:
        compare_gaps()


if __name__ == "__main__":
    main()
