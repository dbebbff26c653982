"""Pictures: written, repeatable, and refused by wrong suffixes."""

from __future__ import annotations

import pytest

from undirected import FormatError, datasets
from undirected.plots import save_figure
from undirected.plots.graph import APART, TOGETHER, draw_graph
from undirected.plots.pixels import draw_pixels


def test_graph_draws_the_strongest_edges_with_their_signs(tmp_path):
    truth = datasets.grid_ising(3, 3, seed=1)
    figure = draw_graph(truth, top=8)
    lines = figure.axes[0].get_lines()
    assert len(lines) == 8
    expected = sum(d["signed"] >= 0 for _, _, d in truth.graph().edges(data=True))
    colours = [line.get_color() for line in draw_graph(truth).axes[0].get_lines()]
    assert colours.count(TOGETHER) == expected
    assert colours.count(APART) == 12 - expected
    for name in ("a.svg", "b.svg"):
        save_figure(draw_graph(truth), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_pixels_show_images_above_probabilities(tmp_path):
    truth = datasets.grid_ising(4, 4, seed=1)
    figure = draw_pixels(truth, datasets.exact_sample(truth, 3), (4, 4))
    assert len(figure.axes) == 1 + 3 * 3
    save_figure(figure, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_unknown_suffix(tmp_path):
    with pytest.raises(FormatError, match="'.xyz' is not one of .svg, .png, .pdf"):
        save_figure(draw_graph(datasets.grid_ising(2, 2)), tmp_path / "a.xyz")
