"""``demo``: the main job, end to end, on built-in data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from undirected.cli import common

if TYPE_CHECKING:
    from undirected.kernels.types import Array


@click.command()
@click.option("-o", "--output", type=click.Path(file_okay=False), default=".", show_default=True, help="Folder for the files it writes.")
@click.option("--threads", type=click.IntRange(1, 4096), help="Cores to use (default: all).")
@common.output_options
def demo(output: str, threads: int | None, as_json: bool, quiet: bool, debug: bool) -> None:
    """Learn a network of handwritten digits (64 black-and-white pixels), score it, draw it, and
    complete digits whose lower half is hidden."""
    from undirected import datasets
    from undirected.features.conjunction import quote
    from undirected.features.feature_set import FeatureSet
    from undirected.plots import save_figure
    from undirected.plots.pixels import draw_pixels
    from undirected.store import check_writable
    from undirected.structure.auto import Auto
    from undirected.weights.fit import fit_weights

    folder = Path(output)
    picture, network_file = folder / "undirected-demo.png", folder / "undirected-demo.json"
    check_writable(picture)
    train, test = datasets.load("digits"), datasets.load("digits", "test")
    common.remark(f"learning from {len(train):,} handwritten digits, {len(train.domain)} pixels each ...", quiet)
    with common.follow_work(quiet) as progress:
        learner = Auto(threads=threads, progress=progress).fit(train)
    network = learner.network_
    floor = fit_weights(FeatureSet.atomic(train.domain), train, threads=threads).network()
    ours, theirs = network.pll(test, threads), floor.pll(test, threads)
    network.save(network_file)
    save_figure(draw_pixels(network, test.subset(_pick_digits()), (8, 8)), picture)
    values = {
        **learner.fit_.report(),
        "pll": ours,
        "npll": ours / len(network.domain),
        "independent_pll": theirs,
        "picture": str(picture),
        "network": str(network_file),
    }
    pixel = quote(network.domain.names[len(network.domain) // 2])
    lines = [
        network.summary(8),
        "",
        f"test PLL (higher is better)   network {ours:.3f}   independent pixels {theirs:.3f}",
        f"wrote {picture} (look at it) and {network_file}",
        "",
        "Next:",
        f"  undirected query {network_file} -e {pixel}=1",
        f"  undirected show {network_file} --top 30",
        f"  undirected plot {network_file} -o graph.svg",
        "  undirected learn your-table.csv -o net.json",
    ]
    common.emit(values, as_json, "\n".join(lines))


def _pick_digits() -> Array:
    """The first test row of each of the ten digits."""
    import numpy as np

    from undirected.data.catalog import read_digit_labels

    labels = read_digit_labels("test")
    return np.array([int(np.argmax(labels == digit)) for digit in range(10)])
