"""Streams: rows a second beside river, weights that remember, growth, updates, checkpoints.

    UNDIRECTED_DATA=folder python benchmarks/streams.py [--only rivals,remember,update,checkpoint,growth] [--rows 20000] [--variables 30]

*rivals*: ClusterNet, streamed GSSL and DTSL (by chunks of 2,000 and by Hoeffding trees) against river's `HoeffdingTreeClassifier`, one per
variable, on the same rows: rows a second, and the mean loss of a variable in rows after the first chunk, each before it was learned.
River's probabilities are held away from zero by 1e-6, or by 1e-2, whichever its loss likes better.
*remember*: the features of a batch learner, weights learned chunk by chunk with ``remember`` curvature and none, against the fit to all
rows with the same penalties: test NPLL. *update*: 50,000 features and a chunk of 2,000 rows: from nothing with all of them, against the
update of a network that was learned from the chunks before; screened, as by default, and with all of them in the network.
*checkpoint*: writing and taking up a state of 50,000 features. *growth*: rows drawn from a synthetic network of hidden groups: the
memory of the process, and the median time of the last twenty chunks. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import undirected
from undirected import DTSL, Dataset, FeatureSet, StreamedClusterNet, StreamedDTSL, StreamedGSSL, datasets, fit_weights
from undirected.streaming.checkpoint import CheckpointFile
from undirected.streaming.fitting import Fitting, Limits
from undirected.streaming.memory import Memory
from undirected.work import Work

CHUNK = 2000
LEARNERS = {
    "clusternet": lambda: StreamedClusterNet(watch="none"),
    "gssl": lambda: StreamedGSSL(watch="none"),
    "dtsl": lambda: StreamedDTSL(watch="none"),
    "dtsl --hoeffding": lambda: StreamedDTSL(hoeffding=True, watch="none"),
}


def cut(data, size):
    return [Dataset(data.domain, data.codes[at : at + size], data.weights[at : at + size]) for at in range(0, len(data), size)]


def rivals(names, n_rows):
    print("| data set | rows | learner | rows a second | ratio | loss a variable |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in names:
        data = datasets.load(name)
        data = Dataset(data.domain, data.codes[:n_rows], data.weights[:n_rows])
        speed, loss = run_river(data)
        print(f"| {name} | {len(data):,} | river's HoeffdingTreeClassifier | {speed:,.0f} | 1 | {loss:.4f} |", flush=True)
        for label, make in LEARNERS.items():
            learner, began = make(), time.perf_counter()
            for chunk in cut(data, CHUNK):
                learner.learn_many(chunk)
            ours = len(data) / (time.perf_counter() - began)
            print(f"| {name} | {len(data):,} | {label} | {ours:,.0f} | {ours / speed:.0f} | {-learner._scores.mean:.4f} |", flush=True)


def run_river(data):
    """Rows a second, and the mean loss of a variable in rows behind the first chunk."""
    from river.tree import HoeffdingTreeClassifier

    names = data.domain.names
    models = [HoeffdingTreeClassifier(nominal_attributes=[other for other in names if other != name]) for name in names]
    losses, began = {1e-6: [], 1e-2: []}, time.perf_counter()
    for r, row in enumerate(data.codes.tolist()):
        x, sums = dict(zip(names, row, strict=True)), dict.fromkeys(losses, 0.0)
        for name, model in zip(names, models, strict=True):
            y = x.pop(name)
            p = model.predict_proba_one(x).get(y, 0.0)
            model.learn_one(x, y)
            x[name] = y
            for least in sums:
                sums[least] -= math.log(min(max(p, least), 1 - least))
        if r >= CHUNK:
            for least, total in sums.items():
                losses[least].append(total / len(names))
    return len(data) / (time.perf_counter() - began), min(float(np.mean(values)) for values in losses.values())


def remember(names):
    print("| data set | features | l1, sd | batch | curvature | difference | none | window of 3 |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        train, test = datasets.load(name), datasets.load(name, "test")
        work = Work.start()
        for label, features in (("pairs", FeatureSet.all_pairs(train.domain)), ("trees", DTSL(tol=1.0).fit(train).fit_.features)):
            for l1, sd in ((1.0, 1.0), (5.0, 0.5)):
                batch = fit_weights(features, train, l1, sd, tol=1e-5)
                scores = [batch.network().pll(test) / len(train.domain)]
                for how in ("curvature", "none", "window"):
                    fitting = Fitting.start(train.domain, Memory(how, window=3))
                    limits = Limits(l1, sd, 1e-4, False, 2, 1 << 40)
                    for chunk in cut(train, -(-len(train) // 10)):
                        fitting.learn(chunk, features.subset(features.lengths > 1), limits, work)
                    scores.append(undirected.MarkovNetwork(fitting.features, fitting.weights).pll(test) / len(train.domain))
                batch_score, curvature, none, window = scores
                print(
                    f"| {name} | {label}, {len(features):,} | {l1:g}, {sd:g} | {batch_score:.4f} | {curvature:.4f} | "
                    f"{100 * (curvature / batch_score - 1):+.2f} % | {none:.4f} | {window:.4f} |", flush=True,
                )  # fmt: skip


def update(names, n_features=50_000):
    print("| data set | features | update | from nothing, s | update, s | ratio | features of the network |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        data = datasets.load(name)
        chunks = cut(data, CHUNK)[:6]
        learner = undirected.GSSL(n_generated=2_000_000, threshold=1, tol=1.0, l1=5, sd=0.5)
        features = learner.propose(data, Work.start()).features
        features = features.subset(np.sort(np.random.default_rng(0).permutation(len(features))[:n_features]))
        longer = features.subset(features.lengths > 1)
        for screened in (True, False):
            work, limits = Work.start(), Limits(5.0, 0.5, 1e-4, screened, 2, 1 << 40)
            fitting, seconds = Fitting.start(data.domain, Memory()), []
            for chunk in chunks:
                began = time.perf_counter()
                fit_weights(longer.union(FeatureSet.atomic(data.domain)), chunk, 5.0, 0.5, tol=1e-4)
                cold = time.perf_counter() - began
                began = time.perf_counter()
                fitting.learn(chunk, longer, limits, work)
                seconds.append((cold, time.perf_counter() - began))
            cold, warm = np.median(seconds[2:], axis=0)
            how = "screened, as by default" if screened else "all in the network"
            print(
                f"| {name} | {len(longer):,} | {how} | {cold:.3f} | {warm:.3f} | {warm / cold:.2f} | {len(fitting.features):,} |",
                flush=True,
            )


def checkpoint(name="plants", n_features=50_000):
    data = datasets.load(name)
    learner = StreamedGSSL(
        screen=False, n_generated=2_000_000, max_features=n_features, max_counted=200_000, threshold=0, tol=1.0, watch="rows"
    )
    learner.learn_many(Dataset(data.domain, data.codes[:CHUNK]))
    with tempfile.TemporaryDirectory() as folder:
        keeper = CheckpointFile(Path(folder) / "a.state", 2, print)
        began = time.perf_counter()
        tree, arrays = learner.pack()
        keeper.save({"state": tree}, arrays)
        wrote = time.perf_counter() - began
        size = (Path(folder) / "a.state").stat().st_size
        began = time.perf_counter()
        tree, arrays, _ = keeper.load()
        StreamedGSSL(**tree["state"]["params"]).take_up(tree["state"], arrays)
        read = time.perf_counter() - began
        print(f"{len(learner.network_.features):,} features, {size / 1e6:.0f} MB: written in {wrote:.2f} s, taken up in {read:.2f} s")


def growth(label, sizes=(100_000, 1_000_000, 10_000_000), n_variables=30):
    """In a process of its own, which tells its memory at each size."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import streams; streams.grow({label!r}, {sizes!r}, {n_variables})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def draw_rows(n_variables, seed):
    """A chunk of a network of hidden groups: five variables each follow a coin of their own, with noise."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(rng.integers(0, 2, (CHUNK, n_variables // 5)), 5, axis=1)
    noise = rng.integers(0, 2, groups.shape)
    return np.where(rng.random(groups.shape) < 0.8, groups, noise)


def grow(label, sizes, n_variables):
    domain = undirected.Domain.from_sizes([2] * (n_variables // 5 * 5))
    learner, done, began = LEARNERS[label](), 0, time.perf_counter()
    learner.set_params(watch="rows")
    for size in sizes:
        first, last = [], []
        while done < size:
            chunk = Dataset(domain, draw_rows(n_variables, done))
            now = time.perf_counter()
            learner.learn_many(chunk)
            done += CHUNK
            (first if len(first) < 20 else last).append(time.perf_counter() - now)
            last = last[-20:]
        page = resource.getpagesize()
        held = int(Path("/proc/self/statm").read_text().split()[1]) * page / 1e6
        print(
            f"| {label} | {done:,} | {held:.0f} | {1000 * np.median(last or first):.1f} | {done / (time.perf_counter() - began):,.0f} | "
            f"{len(learner.network_.features):,} |", flush=True,
        )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="rivals,remember,update,checkpoint,growth")
    parser.add_argument("--datasets")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--variables", type=int, default=30, help="of the synthetic network whose rows grow")
    parser.add_argument("--learners", default=",".join(LEARNERS))
    args = parser.parse_args()
    parts = args.only.split(",")
    named = args.datasets.split(",") if args.datasets else None
    for label in [one for one in LEARNERS if one not in args.learners.split(",")]:
        del LEARNERS[label]
    if "rivals" in parts:
        rivals(named or ["plants", "kdd"], args.rows)
    if "remember" in parts:
        remember(named or ["nltcs", "plants", "baudio", "msweb"])
    if "update" in parts:
        update(named or ["plants", "kdd"])
    if "checkpoint" in parts:
        checkpoint()
    if "growth" in parts:
        print("| learner | rows | memory, MB | ms a chunk | rows a second | features |\n|---|---|---|---|---|---|", flush=True)
        for label in LEARNERS:
            growth(label, n_variables=args.variables)


if __name__ == "__main__":
    main()
