"""Pictures: written, repeatable, and refused by wrong suffixes."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import Domain, FeatureSet, FormatError, MarkovNetwork, Variable, datasets
from undirected.plots import save_figure
from undirected.plots.graph import APART, TOGETHER, UNDIRECTED, draw_graph
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


def names_inside(figure):
    """The names drawn, all of which must be inside the axes."""
    axes = figure.axes[0]
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    for text in axes.texts:
        assert left < text.xy[0] < right
        assert low < text.xy[1] < high
    return {text.get_text() for text in axes.texts}


def chain(n, n_edges):
    """A chain over the first of ``n`` binary variables; the others have no edges."""
    domain = Domain.from_sizes([2] * n)
    features = FeatureSet.from_lists([(2 * v + 1, 2 * v + 3) for v in range(n_edges)], domain)
    return MarkovNetwork(features, np.linspace(1, 2, n_edges))


def test_variables_without_edges_are_in_the_picture():
    assert names_inside(draw_graph(chain(40, 3))) == {f"v{i}" for i in range(40)}
    assert names_inside(draw_graph(chain(5, 0))) == {f"v{i}" for i in range(5)}
    figure = draw_graph(chain(100, 3))
    assert names_inside(figure) == {f"v{i}" for i in range(4)}
    assert "left out: 96 variables without edges" in figure.axes[0].get_title()
    figure = draw_graph(chain(20, 10), top=4)
    assert names_inside(figure) == {f"v{i}" for i in range(6, 11)}
    assert "the 4 strongest of 10 edges" in figure.axes[0].get_title()
    assert "left out: 6 weaker edges and 15 variables" in figure.axes[0].get_title()


def test_edges_without_a_sign_are_grey():
    colour, size, age = (Variable("colour", ("blue", "green", "red")), Variable("size", ("1", "2", "10")), Variable("age", ("new", "old")))
    domain = Domain([colour, size, age])
    features = FeatureSet.from_texts(["colour=red & size=10", "size=10 & age=old", "colour=red & age=old"], domain)
    figure = draw_graph(MarkovNetwork(features, [3.0, -2.0, 1.0]))
    assert [line.get_color() for line in figure.axes[0].get_lines()] == [UNDIRECTED, APART, UNDIRECTED]
    keys = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [key for key in keys if key.startswith("joined")] == ["joined (states without order, or no direction)"]
    signed = draw_graph(datasets.grid_ising(3, 3, seed=1))
    assert not [text for text in signed.legends[0].get_texts() if text.get_text().startswith("joined")]


def test_pixels_show_images_above_probabilities(tmp_path):
    truth = datasets.grid_ising(4, 4, seed=1)
    figure = draw_pixels(truth, datasets.exact_sample(truth, 3), (4, 4))
    assert len(figure.axes) == 1 + 3 * 3
    save_figure(figure, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_unknown_suffix(tmp_path):
    with pytest.raises(FormatError, match="'.xyz' is not one of .svg, .png, .pdf"):
        save_figure(draw_graph(datasets.grid_ising(2, 2)), tmp_path / "a.xyz")
