"""What every format of networks must do. A format joins by its suffix in `undirected.formats`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from undirected import DataError, Dataset, Domain, FeatureSet, MarkovNetwork, Variable, datasets, formats, load, read_data

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ODD = Domain([Variable("a b", ("x=1", "y&z")), Variable('"quoted"', ("", "ß", "c,d")), Variable("0", ("0", "1"))])


@pytest.fixture(params=formats.READABLE)
def suffix(request):
    return request.param


def all_assignments(domain):
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in domain.n_states), indexing="ij"), axis=-1)
    return Dataset(domain, grid.reshape(-1, len(domain)))


def probabilities(network):
    scores = network.log_score(Dataset(network.domain, all_assignments(network.domain).codes))
    return np.exp(scores - np.logaddexp.reduce(scores))


@pytest.mark.parametrize("seed", range(3))
def test_the_distribution_survives(suffix, seed, tmp_path):
    network = datasets.random_conjunctions(5, 12, n_states=3, seed=seed)
    path = tmp_path / f"net{suffix}"
    network.save(path)
    again = load(path)
    np.testing.assert_allclose(probabilities(again), probabilities(network), rtol=1e-9)
    again.save(path)
    np.testing.assert_allclose(probabilities(load(path)), probabilities(network), rtol=1e-9)


def test_names_survive_or_can_be_given(suffix, tmp_path):
    network = MarkovNetwork(FeatureSet.from_lists([[1, 3], [4], [6, 0]], ODD), [1.5, -0.25, 2.0])
    path = tmp_path / f"net{suffix}"
    network.save(path)
    again = load(path, ODD)
    assert again.domain == ODD
    np.testing.assert_allclose(probabilities(again), probabilities(network), rtol=1e-9)


@pytest.mark.parametrize("suffix", formats.WRITABLE)
def test_a_network_without_features_can_be_written(suffix, tmp_path):
    network = MarkovNetwork(FeatureSet.from_lists([], Domain.from_sizes([2, 3])), [])
    path = tmp_path / f"net{suffix}"
    network.save(path)
    assert path.stat().st_size > 0
    if suffix in formats.READABLE:
        np.testing.assert_allclose(probabilities(load(path)), 1 / 6)


@pytest.mark.parametrize("suffix", formats.WRITABLE)
def test_writing_twice_gives_the_same_bytes(suffix, tmp_path):
    network = datasets.random_conjunctions(6, 20, seed=2)
    for name in ("one", "two"):
        network.save(tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"hello", b"{}", b"\xff\xfe\xfa", b"2,2\n", b"MARKOV\n2"])
def test_other_files_are_refused_with_their_name(suffix, content, tmp_path):
    path = tmp_path / f"net{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match="net"):
        load(path)


class TestFormatOne:
    """Files written by the first version of the network format: they must be read for good, and written the same."""

    @pytest.mark.parametrize("name", ["plain", "names", "bins"])
    def test_it_is_written_to_the_byte(self, name, tmp_path):
        network = load(GOLDEN / f"{name}.json")
        network.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_bytes() == (GOLDEN / f"{name}.json").read_bytes()

    def test_plain(self):
        network = load(GOLDEN / "plain.json")
        assert network.domain == Domain.from_sizes([2, 3, 2])
        assert network.features.texts() == ["v0=1", "v1=1 & v2=0", "v0=1 & v1!=0"]
        np.testing.assert_array_equal(network.weights, [0.5, -1.25, 2.0])

    def test_names_rules_and_constants(self):
        network = load(GOLDEN / "names.json")
        assert network.domain.names[1:] == ['age "in" years', "größe & mehr"]
        assert network.domain[1].ordered
        assert list(network.features) == [(1, 4), (0,), (9,), ()]
        np.testing.assert_array_equal(network.weights, [1 / 3, -np.inf, 1e-300, 0.25])

    def test_bins(self):
        """Numbers of another table are coded by the cuts in the file."""
        network = load(GOLDEN / "bins.json")
        table = read_data(pd.DataFrame({"x": [-5.0, 2.2, 2.3, 6.8, 100.0], "b": list("abbaa")}), domain=network.domain)
        assert table.codes.tolist() == [[0, 0], [0, 1], [1, 1], [2, 0], [3, 0]]
