"""L1: one sparse regression per variable, joined into a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import ParameterError
from undirected.features.feature_set import FeatureSet, Indicators
from undirected.kernels.types import Array
from undirected.structure.learner import STRUCTURE_SHARE, Grid, Learner
from undirected.structure.proposal import Proposal, Structure
from undirected.structure.trials import Tuner
from undirected.weights.fit import use_one_blas_thread
from undirected.weights.nodewise import solve_nodewise
from undirected.weights.outcome import Outcome
from undirected.weights.pseudo_likelihood import PseudoLikelihood
from undirected.work import MEMORY, Counted, StoppedBy, Work

CONSISTENCY = ("and", "or")
CS = [0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0]
EBIC_STEPS, EBIC_RATIO = 100, 1e-3  # penalties on the path, and the last of them as a share of the first
EBIC_PATIENCE = 10  # steps without any improvement after which the path ends


class L1(Learner):
    """Regress each variable on all others with an L1 penalty; pairs with a non-zero coefficient become features.

    All regressions are solved together, as one pseudo-likelihood whose weights are not tied, along a warm-started path.

    Parameters
    ----------
    C : float or "ebic"
        One over the penalty, the loss summed over rows, the intercept free. ``ebic`` chooses a penalty for each variable by the
        extended Bayesian information criterion along a path of 100, predictors scaled to unit variance, as the R package
        IsingFit does.
    consistency : {"and", "or"}
        A pair needs a non-zero coefficient in both regressions, or in one.
    gamma : float
        How much ``ebic`` penalises the number of possible predictors.
    l1, sd : float
        Penalties of the final weights; see `undirected.fit_weights`.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`; the regressions use ``tol``, ``threads`` and ``memory`` too.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        The variables and states to code tables with, so that rows with states that the training rows lack can be scored.

    Attributes
    ----------
    network_ : MarkovNetwork
    fit_ : WeightFit
    path_ : NodewisePath
        Coefficients of the regressions.
    picked_ : ndarray
        ``picked_[i, j]``: the regression of variable i has a non-zero coefficient of j.

    Notes
    -----
    Ravikumar, Wainwright and Lafferty, "High-dimensional Ising model selection using L1-regularized logistic regression",
    Annals of Statistics 38, 2010, as used in Lowd and Davis, JMLR 15, 2014, Section 6; van Borkulo et al., "A new method for
    constructing networks from binary data", Scientific Reports 4, 2014, for ``ebic``.

    Deviations: (1) variables with more than two states get a multinomial regression, and an edge means any non-zero coefficient
    of the pair. (2) Weights are learned to the optimum, not to Libra's early stop; ``time_budget`` stops early.

    Examples
    --------
    >>> from undirected import L1, datasets
    >>> truth = datasets.grid_ising(3, 3, seed=1)
    >>> learner = L1().fit(datasets.exact_sample(truth, 20_000, seed=2))
    >>> set(truth.graph().edges) <= set(learner.network_.graph().edges)
    True
    """

    paper_grid: ClassVar[Grid] = {"C": CS, "consistency": ["and", "or"], "sd": [0.1, 1.0, 10.0, 100.0]}
    quick_grid: ClassVar[Grid] = {"C": [0.05, 0.5], "consistency": ["or"], "sd": [0.1, 0.5]}

    def __init__(
        self,
        C: float | str = "ebic",
        consistency: str = "and",
        gamma: float = 0.25,
        l1: float = 0.0,
        sd: float = 1.0,
        tol: float = 1e-5,
        prune: bool = False,
        bins: int = 4,
        missing: str = "learn",
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        progress: Any = None,
        domain: Any = None,
    ) -> None:
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)
        self.C = C
        self.consistency = consistency
        self.gamma = gamma

    def propose(self, data: Dataset, work: Work) -> Structure:
        self._check([self.C], [self.consistency])
        work = work.share(STRUCTURE_SHARE)
        regressions = Nodewise(data, work)
        learned: dict[str, Any] = {}
        if self.C == "ebic":
            picked, finished = regressions.pick_by_ebic(self.gamma, self.tol, work)
        else:
            learned["path_"] = path = regressions.solve_path([1 / float(self.C)], self.tol, work)
            picked, finished = regressions.find_picked(path.weights[0]), path.finished
        features = list_edge_features(data.domain, join_picks(picked, self.consistency))
        return Structure(features, {**learned, "picked_": picked}, None if finished else StoppedBy.TIME)

    def proposals(self, data: Dataset, valid: Dataset, grid: Grid, work: Work, tuner: Tuner) -> Iterator[Proposal]:
        """One path serves every ``C`` and both ways of joining."""
        cs, ways = grid.get("C", [self.C]), grid.get("consistency", [self.consistency])
        self._check(cs, ways)
        work = work.share(STRUCTURE_SHARE)
        regressions = Nodewise(data, work)
        path = regressions.solve_path([1 / float(c) for c in cs if c != "ebic"], self.tol, work)
        by_ebic = regressions.pick_by_ebic(self.gamma, self.tol, work) if "ebic" in cs else None
        for c in cs:
            learned: dict[str, Any] = {}
            if c == "ebic" and by_ebic is not None:
                picked, finished = by_ebic
            elif 1 / float(c) in path.penalties:
                learned["path_"] = only = path.pick(1 / float(c))
                picked, finished = regressions.find_picked(only.weights[0]), path.finished
            else:
                continue  # there was no time for it
            for way in ways:
                structure = Structure(list_edge_features(data.domain, join_picks(picked, way)), {**learned, "picked_": picked})
                yield Proposal({"C": c, "consistency": way}, structure, complete=finished)

    def _check(self, cs: Sequence[Any], ways: Sequence[Any]) -> None:
        for c in cs:
            if c != "ebic" and (isinstance(c, str) or not (np.isfinite(c) and c > 0)):
                raise ParameterError(f"C={c!r}: a number above zero, or 'ebic'")
        for way in ways:
            if way not in CONSISTENCY:
                raise ParameterError(f"consistency={way!r} is not known; choose one of {', '.join(CONSISTENCY)}")
        if not self.gamma >= 0:
            raise ParameterError(f"gamma={self.gamma}: it cannot be negative")


@dataclass
class NodewisePath:
    """Coefficients of all regressions for several penalties: ``weights[k]`` belongs to ``penalties[k]``. If they are not
    ``finished``, time was up: penalties are missing, or the last one was not solved to the end."""

    features: FeatureSet
    targets: Array
    penalties: list[float]
    weights: list[Array]
    violations: list[float]
    finished: bool = True

    def pick(self, penalty: float) -> NodewisePath:
        """One penalty alone."""
        k = self.penalties.index(penalty)
        return replace(self, penalties=[penalty], weights=[self.weights[k]], violations=[self.violations[k]])


class Nodewise:
    """The regressions of all variables on all others, as one untied pseudo-likelihood."""

    def __init__(self, data: Dataset, work: Work) -> None:
        self.indicators = Indicators(data.domain)
        self.features, self.targets, self.other = list_one_sided_pairs(self.indicators)
        self.objective = PseudoLikelihood(self.features, data, work.threads, work.memory, self.targets)
        self.penalised = (self.other >= 0).astype(float)

    def solve_path(self, penalties: Sequence[float], tol: float, work: Work) -> NodewisePath:
        """Solutions for each penalty, from the largest on, each from the last; as many as there is time for, but one at least."""
        finished = True
        weights: dict[int, Array] = {}
        violations: dict[int, float] = {}
        with use_one_blas_thread():
            w = self.objective.independent_start
            for k in sorted(range(len(penalties)), key=lambda k: -penalties[k]):
                out = self._solve(penalties[k] * self.penalised, w, tol, work)
                finished = out.stopped_by is not StoppedBy.TIME
                if finished or not weights:
                    weights[k], violations[k] = out.weights, out.violation
                if not finished:
                    break
                w = out.weights
                work.emit(Counted("regressions", len(weights), len(penalties)))
        order = sorted(weights)
        lists = [penalties[k] for k in order], [weights[k] for k in order], [violations[k] for k in order]
        return NodewisePath(self.features, self.targets, *lists, finished)

    def _solve(self, l1: Array, start: Array, tol: float, work: Work) -> Outcome:
        return solve_nodewise(self.objective, l1, start, tol, work, self.features.domain.n_literals)

    def find_picked(self, weights: Array) -> Array:
        """Which variables each variable's regression picks."""
        domain, used = self.features.domain, (weights != 0) & (self.penalised > 0)
        out = np.zeros((len(domain), len(domain)), dtype=bool)
        out[self.targets[used], self.indicators.variable[self.other[used]]] = True
        return out

    def pick_by_ebic(self, gamma: float, tol: float, work: Work) -> tuple[Array, bool]:
        """What each regression picks at the penalty with its smallest extended Bayesian information criterion, and whether there was
        time to go down the whole path.

        The path goes from the penalty at which nothing is picked down to a thousandth of it, and ends early once no variable
        has improved for ten steps.
        """
        table, domain = self.objective.table, self.features.domain
        share = np.concatenate([[0.0], np.minimum(self.indicators.add_up(table.literal_counts()) / table.total_weight, 1)])
        deviation = np.sqrt(share * (1 - share))[self.other + 1]
        with use_one_blas_thread():
            w = self.objective.independent_start
            _, gradient, _ = self.objective.evaluate(w)
            usable = (self.penalised > 0) & (deviation > 0)
            factors = np.where(usable, deviation, self.penalised)
            largest = float(np.max(np.abs(gradient[usable]) / deviation[usable], initial=0.0))
            picked = np.zeros((len(domain), len(domain)), dtype=bool)
            if largest == 0:
                return picked, True
            best, since = np.full(len(domain), np.inf), np.zeros(len(domain), dtype=int)
            n, candidates = table.total_weight, max(1, len(domain) - 1)
            for step, penalty in enumerate(largest * np.logspace(0, np.log10(EBIC_RATIO), EBIC_STEPS)):
                out = self._solve(penalty * factors, w, tol, work)
                if out.stopped_by is StoppedBy.TIME:
                    return picked, False
                w = out.weights
                work.emit(Counted("regressions", step + 1, EBIC_STEPS))
                used = (w != 0) & (self.penalised > 0)
                size = np.bincount(self.targets[used], minlength=len(domain))
                likelihood = self.objective.score_terms(w)[1]
                value = -2 * likelihood + size * np.log(n) + 2 * gamma * size * np.log(candidates)
                better = value < best - 1e-9 * np.abs(value)
                best = np.where(better, value, best)
                picked[better] = self.find_picked(w)[better]
                since = np.where(better, 0, since + 1)
                if since.min() >= EBIC_PATIENCE:
                    break
        return picked, True


def list_one_sided_pairs(indicators: Indicators) -> tuple[FeatureSet, Array, Array]:
    """Intercepts and ordered pairs of indicators of two variables, with the variable each is a coefficient for and the indicator of the
    other variable, -1 for intercepts."""
    atoms = FeatureSet.atomic(indicators.domain)
    n = np.arange(len(indicators))
    target, other = (x.ravel() for x in np.meshgrid(n, n, indexing="ij"))
    apart = indicators.variable[target] != indicators.variable[other]
    target, other = target[apart], other[apart]
    pairs = indicators.join(np.minimum(target, other), np.maximum(target, other))
    variables = np.concatenate([indicators.variable, indicators.variable[target]]).astype(np.int32)
    return atoms.concatenate(pairs), variables, np.concatenate([np.full(len(atoms), -1), other])


def join_picks(picked: Array, consistency: str) -> Array:
    """Edges between variables, as a symmetric matrix of truth values."""
    return np.asarray(picked & picked.T if consistency == "and" else picked | picked.T)


def list_edge_features(domain: Domain, edges: Array) -> FeatureSet:
    """One feature per edge and pair of indicators."""
    indicators = Indicators(domain)
    pairs, a, b = indicators.join_all()
    return pairs.subset(edges[indicators.variable[a], indicators.variable[b]])
