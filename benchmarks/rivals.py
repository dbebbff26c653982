"""The programs that `undirected` is measured against, written the obvious way."""

from __future__ import annotations

import time
import warnings

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from undirected.weights.penalty import Penalty
from undirected.weights.plain import solve_plain
from undirected.work import Work


class Reached(Exception):
    """The wanted gap, or the time limit."""


class SparsePseudoLikelihood:
    """Near-match matrices in CSR over the distinct rows of a binary table: one sparse row per (variable, table row)."""

    def __init__(self, features, table):
        truth = table.codes.astype(bool)
        n_rows, n_variables = truth.shape
        holds = {}
        for v in range(n_variables):
            holds[2 * v + 1] = truth[:, v]
            holds[2 * v] = ~truth[:, v]
        rows, values, size = [], [], [0]
        for literals in features:
            for literal in literals:
                context = np.ones(n_rows, bool)
                for other in literals:
                    if other != literal:
                        context &= holds[other]
                where = np.flatnonzero(context)
                rows.append((where + (literal // 2) * n_rows).astype(np.int32))
                values.append(np.full(len(where), 1.0 if literal % 2 else -1.0))
            size.append(size[-1] + sum(len(r) for r in rows[len(rows) - len(literals) :]))
        shape = (n_rows * n_variables, len(features))
        by_column = sp.csc_matrix((np.concatenate(values), np.concatenate(rows), np.array(size)), shape=shape)
        self.matrix = by_column.tocsr()
        self.transposed = by_column.T  # CSR, without a copy
        self.truth = truth.T.ravel().astype(float)
        self.weight = np.tile(table.weights, n_variables)
        self.threads, self.total_weight, self.evaluations = 1, float(table.weights.sum()), 0

    def __len__(self):
        return self.matrix.shape[1]

    def evaluate(self, w, single=False, curvature=False):
        """As the project's own solvers ask for it: value and gradient, no curvature."""
        self.evaluations += 1
        return *self.smooth(w, np.inf), None

    def restrict(self, active):
        """Nothing is left out."""

    @property
    def evaluation_cost(self):
        return self.matrix.nnz * 4e-9

    def smooth(self, w, sd):
        logits = self.matrix @ w
        value = self.weight @ (np.logaddexp(0, logits) - self.truth * logits) + 0.5 * (w @ w) / sd**2
        gradient = self.transposed @ (self.weight * (expit(logits) - self.truth)) + w / sd**2
        return value, gradient


def rival_seconds(features, table, l1, sd, target, start, limit=1200.0):
    """Seconds from nothing to an objective of at most `target`, and the number of evaluations; inf where the limit came first.

    Without l1: scipy's L-BFGS-B, memory 6. With l1: the project's plain OWL-QN on the same matrices. `start` is where ours starts, too.
    """
    began = time.perf_counter()
    problem = SparsePseudoLikelihood(features, table)

    def smooth(w):
        problem.evaluations += 1
        if time.perf_counter() - began > limit:
            raise Reached(float("inf"))
        return problem.smooth(w, sd)

    def check(value):
        if value <= target:
            raise Reached(time.perf_counter() - began)

    try:
        if l1 == 0:

            def callback(intermediate_result):
                check(intermediate_result.fun)

            options = {"maxcor": 6, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0, "gtol": 0}
            scipy.optimize.minimize(smooth, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
        else:
            work = Work.start(time_budget=limit, progress=lambda step: check(step.objective))
            solve_plain(problem, Penalty.from_prior(l1, sd), start, 0.0, work, 10**6)
    except Reached as reached:
        return reached.args[0], problem.evaluations, problem.matrix.nnz
    return float("inf"), problem.evaluations, problem.matrix.nnz


def regress_at_once(features, table, l1, sd, tol):
    """The same problem as one logistic regression by liblinear: an example per (variable, row), a column per feature.

    Seconds from nothing, and the objective where it ended. It takes one penalty: `l1`, or else the Gaussian prior.
    """
    began = time.perf_counter()
    problem = SparsePseudoLikelihood(features, table)
    ratio, strength = (1.0, 1 / l1) if l1 else (0.0, sd**2)
    model = LogisticRegression(
        l1_ratio=ratio, C=strength, solver="liblinear", fit_intercept=False, tol=tol, max_iter=10_000, random_state=0
    )
    weights = model.fit(problem.matrix, problem.truth, problem.weight).coef_[0]
    seconds = time.perf_counter() - began
    return seconds, problem.smooth(weights, sd)[0] + l1 * np.abs(weights).sum()


def loop_over_variables(train, C=0.1):
    """The script a user would otherwise write: an L1 logistic regression per variable, edges by AND, weights averaged."""
    n = train.shape[1]
    coefficients, intercepts = np.zeros((n, n)), np.zeros(n)
    for v in range(n):
        others = np.delete(np.arange(n), v)
        if train[:, v].min() == train[:, v].max():
            intercepts[v] = -8.0 if train[0, v] == 0 else 8.0
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(penalty="l1", C=C, solver="liblinear").fit(train[:, others], train[:, v])
        coefficients[v, others], intercepts[v] = model.coef_[0], model.intercept_[0]
    both = (coefficients != 0) & (coefficients.T != 0)
    return np.where(both, (coefficients + coefficients.T) / 2, 0), intercepts


def pairwise_pll(weights, intercepts, test):
    logits = test @ weights + intercepts
    return float((test * logits - np.logaddexp(0, logits)).sum(axis=1).mean())
