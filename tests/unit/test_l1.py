"""The node-wise regressions, against scikit-learn and known structures."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from undirected import L1, Dataset, Domain, ParameterError, Variable, datasets, read_data
from undirected.structure.l1 import Nodewise, join_picks
from undirected.work import Work

WORK = Work.start()


@pytest.fixture(scope="module")
def ising():
    truth = datasets.grid_ising(3, 3, seed=1)
    return truth, datasets.exact_sample(truth, 3000, seed=2)


@pytest.mark.parametrize("C", [0.01, 0.1, 1.0])
def test_coefficients_equal_those_of_saga(ising, C):
    _, data = ising
    regressions = Nodewise(data, WORK)
    weights = regressions.solve_path([1 / C], 1e-8, WORK).weights[0]
    other = regressions.other
    for v in range(len(data.domain)):
        columns = np.delete(np.arange(len(data.domain)), v)
        theirs = LogisticRegression(solver="saga", l1_ratio=1, C=C, tol=1e-7, max_iter=5000)
        theirs.fit(data.codes[:, columns], data.codes[:, v])
        mine = regressions.targets == v
        coefficients = weights[mine & (other >= 0)][np.argsort(other[mine & (other >= 0)])]
        np.testing.assert_allclose(coefficients, theirs.coef_[0], atol=2e-3)
        assert weights[mine & (other < 0)][0] == pytest.approx(theirs.intercept_[0], abs=2e-3)
        clear = np.abs(theirs.coef_[0]) > 5e-3
        assert ((coefficients != 0) >= clear).all()


def test_multinomial_regression_equals_scikit_learn_up_to_the_reference():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2, size=2000)
    y = np.where(rng.random(2000) < 0.7, 2 * x, rng.integers(0, 3, size=2000))
    domain = Domain([Variable("x", ("0", "1")), Variable("y", ("a", "b", "c"))])
    regressions = Nodewise(Dataset(domain, np.stack([x, y], axis=1)), WORK)
    out = regressions.solve_path([1e-6], 1e-9, WORK).weights[0]  # no penalty to speak of: the shares themselves
    shares = np.stack([np.bincount(y[x == k], minlength=3) / (x == k).sum() for k in (0, 1)])
    mine = regressions.targets == 1
    intercepts, slopes = out[mine][:2], out[mine][2:]
    np.testing.assert_allclose(intercepts, np.log(shares[0, 1:] / shares[0, 0]), atol=1e-3)
    np.testing.assert_allclose(slopes, np.log(shares[1, 1:] / shares[1, 0]) - intercepts, atol=1e-3)


def test_a_grid_is_recovered(ising):
    """Theory: with a penalty of the order of sqrt(N log V) and enough rows (here 20,000 for a 3 x 3 grid) the edges are exact."""
    truth, _ = ising
    data = datasets.exact_sample(truth, 20_000, seed=4)
    edges = {tuple(sorted(e)) for e in truth.graph().edges}
    learner = L1(C=1 / (2 * np.sqrt(20_000 * np.log(9)))).fit(data)
    assert {tuple(sorted(e)) for e in learner.network_.graph().edges} == edges
    # EBIC, from penalised fits, errs on the side of too many.
    found = {tuple(sorted(e)) for e in L1().fit(data).network_.graph().edges}
    assert found >= edges
    assert len(found - edges) <= 6  # of 24 pairs that are not edges


def test_ebic_keeps_the_edges_of_isingfit(data_folder):
    """The R package keeps 91 edges on this table with the AND rule."""
    picked, finished = Nodewise(read_data("nltcs"), WORK).pick_by_ebic(0.25, 1e-5, WORK)
    assert finished
    assert int(join_picks(picked, "and").sum()) // 2 == 91


def test_or_holds_and(ising):
    _, data = ising
    picked = Nodewise(data, WORK).find_picked(Nodewise(data, WORK).solve_path([20.0], 1e-5, WORK).weights[0])
    assert (join_picks(picked, "and") <= join_picks(picked, "or")).all()
    np.testing.assert_array_equal(join_picks(picked, "or"), join_picks(picked, "or").T)


def test_row_weights_equal_repeated_rows(ising):
    _, data = ising
    weights = np.random.default_rng(0).integers(1, 4, size=len(data)).astype(float)
    a = Nodewise(Dataset(data.domain, data.codes, weights), WORK).solve_path([5.0], 1e-6, WORK).weights[0]
    b = Nodewise(Dataset(data.domain, np.repeat(data.codes, weights.astype(int), axis=0)), WORK).solve_path([5.0], 1e-6, WORK).weights[0]
    np.testing.assert_array_equal(a, b)


def test_bad_parameters(ising):
    for wrong in ({"C": 0}, {"C": "bic"}, {"C": np.inf}, {"consistency": "xor"}, {"gamma": -1}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            L1(**wrong).fit(ising[1])
