"""Networks whose variables are the pixels of a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undirected.data.dataset import Dataset
from undirected.inference import Session
from undirected.inference.evidence import mark_rows
from undirected.inference.rows import find_row_marginals
from undirected.kernels.types import Array
from undirected.network.edges import measure_edges
from undirected.network.network import MarkovNetwork
from undirected.plots.graph import APART, choose_color

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_pixels(network: MarkovNetwork, images: Dataset, shape: tuple[int, int], top: int = 60) -> Figure:
    """Draw a network over pixels, and what it makes of images.

    Left, the strongest interactions on the grid of pixels; right, images, below them the probability of each pixel given the
    others, and the images completed from their upper halves: the probability of each lower pixel given all upper ones.
    """
    from matplotlib.figure import Figure

    rows, columns = shape
    n = len(images)
    figure = Figure(figsize=(5.2 + (1.5 if n <= 6 else 1.15) * n, 5.4), layout="constrained")
    grid = figure.add_gridspec(3, n + 3)
    axes = figure.add_subplot(grid[:, :3])
    pairs = sorted(measure_edges(network.features, network.weights).items(), key=lambda item: -item[1].strength)[:top]
    strongest = (pairs[0][1].strength if pairs else 0.0) or 1.0
    for (a, b), edge in reversed(pairs):
        share = edge.strength / strongest
        axes.plot(
            [a % columns, b % columns], [a // columns, b // columns], color=choose_color(edge.signed),
            linewidth=0.5 + 4 * share, alpha=0.3 + 0.6 * share, zorder=1,
        )  # fmt: skip
    place = np.arange(rows * columns)
    axes.scatter(place % columns, place // columns, s=18, color="black", zorder=2)
    axes.set(xlim=(-0.6, columns - 0.4), ylim=(rows - 0.4, -0.6), aspect="equal")
    axes.set_axis_off()
    axes.set_title(f"the {len(pairs)} strongest interactions\nblue: go together, orange: shun each other", fontsize=9)
    probability = network.conditionals(images)[:, 1::2].reshape(n, rows, columns)
    completed = complete_lower(network, images, shape)
    titles = ("test digit", "P(black | others)", "lower half from upper")
    for k in range(n):
        for line, picture in enumerate((images.codes[k].reshape(shape), probability[k], completed[k])):
            panel = figure.add_subplot(grid[line, 3 + k])
            panel.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
            if line == 2:
                panel.axhline(rows // 2 - 0.5, color=APART, linewidth=1)
            if k == 0:
                panel.set_ylabel(titles[line], fontsize=8)
    return figure


def complete_lower(network: MarkovNetwork, images: Dataset, shape: tuple[int, int]) -> Array:
    """Images with their lower half replaced by the probability of black, given the upper half."""
    rows, columns = shape
    upper = rows // 2 * columns
    codes = images.codes.astype(np.int16)
    codes[:, upper:] = -1
    session = Session(network)
    found = find_row_marginals(session.reduce(), mark_rows(network.domain, codes), session.start())
    return np.asarray(found.marginals[found.place][:, 1::2].reshape(len(images), rows, columns))
