"""TreeRMN: Markov networks of relational data with templates along paths, and hidden variables found by CVI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from undirected.errors import ParameterError, check_number
from undirected.kernels.types import Array
from undirected.network.network import MarkovNetwork
from undirected.relational.beliefs import Beliefs, count_marginals, spread_states
from undirected.relational.contrastive import ContrastiveDivergence
from undirected.relational.data import RelationalData
from undirected.relational.field import Inferred, RelationalField
from undirected.relational.ground import ground_model, list_evidence
from undirected.relational.hidden import (
    SHOWN,
    Category,
    HiddenVariable,
    choose_categories,
    count_categories,
    describe_categories,
    mark_categories,
    place_hidden,
    propose_hidden,
)
from undirected.relational.learner import RelationalLearner
from undirected.relational.measures import score_cells
from undirected.relational.objective import RelationalPseudoLikelihood
from undirected.relational.schema import Schema
from undirected.relational.tables import as_names
from undirected.relational.templates import MAX_ORDER, TEMPLATES, Templates
from undirected.relational.wiring import Wiring
from undirected.weights.fit import MAX_ITERATIONS, minimise
from undirected.weights.outcome import Outcome
from undirected.weights.penalty import Penalty
from undirected.work import MEMORY, Milestone, Stopped, StoppedBy, Work

OBJECTIVES = ("pl", "cd1")
INFERENCES = ("gibbs", "mean-field")
VALIDATION_FOLDS = 20  # one part in so many of the known attributes is hidden while the number of hidden variables is chosen
MOST_HIDDEN = 20  # hidden variables that are tried by default
FEW_HIDDEN = 2  # hidden variables after which penalties are compared
PATIENCE = 2  # steps of hidden variables that may not help before the search ends
PENALTIES = ((0.01, 3.0), (1.0, 1.0), (0.01, 10.0), (0.01, 1.0), (3.0, 0.3))  # l1 and beta that are tried by default
BETA_CLUSTER = 10.0  # where beta is chosen
LARGEST_PENALTY, HELD = 1e9, 1e12  # penalties of weights that are free, and of those of which nothing is known
ROUGH = 10.0  # times the tolerance, to which weights are fitted between one hidden variable and the next
MOST_REASSIGNMENTS = 5  # of entities to categories after a fit
MOST_INEXACT_STEPS = 200  # along slopes that are not exact, which need not lead to any end


@dataclass(frozen=True)
class HiddenStep(Milestone):
    """Weights were fitted with so many hidden variables."""

    l1: float
    beta: float
    n_hidden: int
    n_weights: int
    objective: float
    cll: float | None

    def __str__(self) -> str:
        told = "" if self.cll is None else f", validation CLL {self.cll:.4f}"
        setting = f"l1 {self.l1:g}, beta {self.beta:g}, {self.n_hidden} hidden variables"
        return f"{setting}, {self.n_weights:,} weights: objective {self.objective:,.1f}{told}"


@dataclass
class _Model:
    """What prediction needs: what is hidden, the templates, the weights."""

    hidden: list[HiddenVariable]
    templates: Templates
    weights: Array


@dataclass
class _State(_Model):
    """A model on the way, with how its fit ended and the objective that it was fitted to."""

    outcome: Outcome
    objective: Any

    def as_start(self) -> tuple[Templates, Array, Array]:
        """Templates and weights to start another fit from, without estimates of new ones."""
        return self.templates, self.weights, np.zeros(len(self.weights))


@dataclass
class _Trial:
    """Data, and what of it is hidden while settings are chosen."""

    data: RelationalData
    training: RelationalData
    marks: list[Array]
    wiring: Wiring
    work: Work


@dataclass
class _Search:
    """Hidden variables that are added one after another under some penalties: where that is, its best state so far, and the score of each
    number of them."""

    penalties: tuple[float, float]
    state: _State | None = None
    best: _State | None = None
    scores: list[tuple[float, int]] = field(default_factory=list)

    @property
    def goes_on(self) -> bool:
        """Whether one of the last steps has helped."""
        return len(self.scores) - self.scores.index(max(self.scores)) <= PATIENCE


class TreeRMN(RelationalLearner):
    """Learn a Markov network with a weight for each pair of attributes along each path, shared by all entities of a type.

    Weights are learned by regularised pseudo-likelihood to a certificate; unknown attributes stand at their marginals meanwhile. An
    evaluation costs entities times the width of their type's design (attributes times paths) times attributes. Hidden variables cost
    n^2 features for n entities of a type, and a new fit each.

    Parameters
    ----------
    order : int
        Longest path, in steps between an entity and a link. Long paths need much data: on little, 0 or 1 predicts better.
    hidden : int or "auto"
        The most hidden variables to look for. ``auto`` adds one at a time while that helps to predict one part in twenty of the known
        attributes, which is hidden meanwhile; at most twenty.
    templates : {"full", "unary"}
        Whether attributes are linked to each other, or only to hidden variables.
    objective : {"pl", "cd1"}
        Pseudo-likelihood, or the paper's contrastive divergence with one step of mean field.
    l1, beta : float or "auto"
        Penalties ``l1 |w|`` and ``beta w^2 / 2`` on every weight. ``auto`` takes those of five pairs, from l1 0.01 and beta 10 to l1 3 and
        beta 0.3, that predict best what is hidden for the purpose. The paper has l1 0.01 and beta 1 or 10.
    beta_cluster : float, optional
        In place of ``beta`` where candidate categories are judged (10 where ``beta`` is chosen); a small one makes many categories.
    move_entities : bool
        After merging, move single entities to other categories while that helps.
    free_hidden : bool
        After each fit, give every entity its most probable category under the weights, and fit again, a few times.
    hidden_types : list of str, optional
        Types that may have hidden variables; by default those that are no links.
    rounds : int
        Fits of the weights, between which unknown attributes are inferred anew. More than one has rarely helped.
    inference : {"gibbs", "mean-field"}
        How unknown attributes are predicted: by sampling, or by mean field, which is faster and surer of itself than it should be where
        unknown attributes depend much on each other. While settings are chosen it is mean field.
    tol : float
        Largest violation of optimality, divided by the number of entities of the largest type.
    threads, memory, time_budget, random_state, progress
        As elsewhere; results are the same to the bit for any number of threads.

    References
    ----------
    Lao, Zhu, Liu, Liu and Cohen: Efficient relational learning with hidden variable detection, NIPS 2010.

    Notes
    -----
    Deviations:

    1. Pseudo-likelihood in place of contrastive divergence: convex, with a certificate, as fast and slightly better. ``objective="cd1"``.
    2. The paper says of when to stop only that no hidden variable is found, which never happens; so validation decides. ``hidden=5``
       looks for five.
    3. Prediction samples. ``inference="mean-field"``.
    4. Entities of all types that are no links are clustered at once; each makes a hidden variable of its own.

    Examples
    --------
    >>> import pandas as pd
    >>> from undirected.relational import RelationalData, TreeRMN
    >>> people = pd.DataFrame({"name": list("abcdef"), "smokes": [1, 1, 1, 0, 0, None]})
    >>> friends = pd.DataFrame({"one": list("abdee"), "other": list("bcefd")})
    >>> data = RelationalData.from_frames({"person": (people, "name")}, {"friends": (friends, {"one": "person", "other": "person"})})
    >>> model = TreeRMN(order=2, hidden=0, l1=0.01, beta=1).fit(data)
    >>> bool(model.predict_proba()[0][0][5, 1] < 0.5)  # f's only friend does not smoke
    True
    """

    def __init__(
        self,
        order: int = 1,
        hidden: Any = "auto",
        templates: str = "full",
        objective: str = "pl",
        l1: Any = "auto",
        beta: Any = "auto",
        beta_cluster: float | None = None,
        move_entities: bool = False,
        free_hidden: bool = False,
        hidden_types: Sequence[str] | None = None,
        rounds: int = 1,
        inference: str = "gibbs",
        tol: float = 1e-4,
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        random_state: int = 0,
        progress: Any = None,
    ) -> None:
        super().__init__(threads, memory, time_budget, random_state, progress)
        self.order = order
        self.hidden = hidden
        self.templates = templates
        self.objective = objective
        self.l1 = l1
        self.beta = beta
        self.beta_cluster = beta_cluster
        self.move_entities = move_entities
        self.free_hidden = free_hidden
        self.hidden_types = hidden_types
        self.rounds = rounds
        self.inference = inference
        self.tol = tol

    templates_: Templates
    weights_: Array
    hidden_: list[HiddenVariable]
    marginals_: list[Array]
    outcome_: Outcome
    l1_: float
    beta_: float

    @property
    def dim_theta_(self) -> int:
        """How many weights there are."""
        return self.templates_.n_weights

    def check_settings(self, schema: Schema) -> None:
        """Raise unless the parameters make sense for these types."""
        check_number("order", self.order, 0, MAX_ORDER, whole=True)
        if self.hidden != "auto":
            check_number("hidden", self.hidden, 0, whole=True)
        for name, value, known in (
            ("templates", self.templates, TEMPLATES),
            ("objective", self.objective, OBJECTIVES),
            ("inference", self.inference, INFERENCES),
        ):
            if value not in known:
                raise ParameterError(f"{name}={value!r} is not known; choose one of {', '.join(known)}")
        for name, number in (("l1", self.l1), ("beta", self.beta)):
            if number != "auto":
                check_number(name, number, 0, LARGEST_PENALTY)
        if self.beta_cluster is not None:
            check_number("beta_cluster", self.beta_cluster, 0, LARGEST_PENALTY)
        check_number("rounds", self.rounds, 1, whole=True)
        check_number("tol", self.tol, 0, 1, above=True)
        for name in as_names(self.hidden_types or ()):
            schema.index(name)

    # -- learning
    def _learn(self, data: RelationalData, work: Work) -> StoppedBy:
        self.check_settings(data.schema)
        self.l1_, self.beta_ = self._list_penalties()[0]
        most = MOST_HIDDEN if self.hidden == "auto" else int(self.hidden)
        state: _State | None = None
        if "auto" in (self.l1, self.beta, self.hidden) and data.n_observed >= VALIDATION_FOLDS:
            most, state = self._choose_settings(data, work.share(0.6), most)
        elif self.hidden == "auto":
            most = 0  # too little is known to judge by
        if state is None:
            state = self._grow(data, most, work)
        self.templates_, self.weights_, self.hidden_ = state.templates, state.weights, state.hidden
        self.marginals_ = [count_marginals(table) for table in data.tables]
        self.outcome_ = state.outcome
        return state.outcome.stopped_by

    def _choose_settings(self, data: RelationalData, work: Work, most: int) -> tuple[int, _State | None]:
        """Set the penalties that predict best what is hidden on purpose, and say with how many hidden variables they do.

        Penalties are compared after a few hidden variables; then the search goes on with the best ones until two steps have not helped.
        After Ctrl-C there is a model, too, which has not seen what was hidden.
        """
        marks = data.draw_fold(VALIDATION_FOLDS, 0, self.random_state)
        trial = _Trial(data, data.hide(marks), marks, self._wire(data, work), work)
        pairs = self._list_penalties()
        few = most if len(pairs) == 1 else min(FEW_HIDDEN, most)
        searches: list[_Search] = []
        for penalties in pairs:
            searches.append(_Search(penalties))
            if self._search(trial, searches[-1], few) is StoppedBy.INTERRUPT:
                return most, searches[-1].state
            if work.is_over:
                break
        rated = [(self._rate(trial, search), search) for search in searches if search.best is not None]
        if not rated:
            return 0 if self.hidden == "auto" else most, None
        chosen = max(rated, key=lambda pair: pair[0])[1]
        goes_on = self.hidden == "auto" and few < most and not work.is_over and chosen.goes_on
        if goes_on and self._search(trial, chosen, most) is StoppedBy.INTERRUPT:
            return most, chosen.state
        self.l1_, self.beta_ = chosen.penalties
        return max(chosen.scores)[1] if self.hidden == "auto" else most, None

    def _search(self, trial: _Trial, search: _Search, most: int) -> StoppedBy:
        """Add hidden variables, as long as that helps if their number is free, up to so many."""
        self.l1_, self.beta_ = search.penalties

        def judge(state: _State) -> bool:
            if search.scores and search.scores[-1][1] == len(state.hidden):
                return search.goes_on  # where an earlier search ended
            cll = self._score(trial, state, "mean-field")
            if not search.scores or cll > max(search.scores)[0]:
                search.best = state
            search.scores.append((cll, len(state.hidden)))
            step = HiddenStep(self.l1_, self.beta_, len(state.hidden), state.templates.n_weights, state.outcome.objective, cll)
            trial.work.emit(step)
            return self.hidden != "auto" or search.goes_on

        search.state = self._grow(trial.training, most, trial.work, trial.wiring, judge, search.state)
        return search.state.outcome.stopped_by

    def _score(self, trial: _Trial, state: _State, inference: str) -> float:
        """How well a model predicts what is hidden on purpose."""
        inferred = self._infer(inference, trial.training, trial.wiring, state, trial.work)
        if inferred.stopped_by is StoppedBy.INTERRUPT:
            raise KeyboardInterrupt
        values = zip(trial.training.tables, inferred.beliefs.values, strict=True)
        return score_cells(trial.data, trial.marks, [spread_states(table, beliefs) for table, beliefs in values]).cll

    def _rate(self, trial: _Trial, search: _Search) -> float:
        """The score by which penalties are compared: that of the inference that predictions will be made with."""
        if self.inference == "mean-field" or search.best is None or trial.work.is_over:
            return max(search.scores)[0]
        return self._score(trial, search.best, self.inference)

    def _list_penalties(self) -> list[tuple[float, float]]:
        """The pairs of ``l1`` and ``beta`` that are tried."""
        pairs = [(l1 if self.l1 == "auto" else self.l1, beta if self.beta == "auto" else self.beta) for l1, beta in PENALTIES]
        return [(float(l1), float(beta)) for l1, beta in dict.fromkeys(pairs)]

    def _grow(
        self, data: RelationalData, most: int, work: Work, wiring: Wiring | None = None, judge: Any = None, state: _State | None = None
    ) -> _State:
        """Fit weights, or go on from a state, then add hidden variables one at a time, and fit weights again; ``judge`` says whether to go
        on."""
        wiring = self._wire(data, work) if wiring is None else wiring
        rough = self.tol if most == 0 else min(1.0, ROUGH * self.tol)
        state = self._fit_weights(data, wiring, [], None, work, rough) if state is None else state
        try:
            while state.outcome.stopped_by not in (StoppedBy.TIME, StoppedBy.INTERRUPT):
                if judge is None:
                    work.emit(HiddenStep(self.l1_, self.beta_, len(state.hidden), state.templates.n_weights, state.outcome.objective, None))
                elif not judge(state):
                    break
                grown = self._add_hidden(data, wiring, state, most, work, rough) if len(state.hidden) < most else None
                if grown is None:
                    break
                state = grown
            if judge is None and rough > self.tol and not work.is_over:
                state = self._fit_weights(data, wiring, state.hidden, state.as_start(), work, self.tol)
        except KeyboardInterrupt:
            state.outcome.stopped_by = StoppedBy.INTERRUPT
        except Stopped as stop:
            state.outcome.stopped_by = stop.why
        return state

    def _wire(self, data: RelationalData, work: Work) -> Wiring:
        return Wiring(data, Templates(data.schema, self.order, self.templates).paths, work.memory)

    def _fit_weights(
        self,
        data: RelationalData,
        wiring: Wiring,
        hidden: list[HiddenVariable],
        start: tuple[Templates, Array, Array] | None,
        work: Work,
        tol: float,
    ) -> _State:
        """Weights for some hidden variables, from those of fewer: their templates and weights, and the estimated ones of what is new."""
        templates = Templates(data.schema, self.order, self.templates, count_categories(data.schema, hidden))
        categories = mark_categories(data, hidden)
        beliefs = Beliefs.of(data, categories)
        never = [np.repeat((t.cells.codes < 0).all(axis=0), t.type.attributes.n_states - 1) for t in data.tables]
        never_known = any(states.any() for states in never)
        weights: Array | None = None
        if start is not None:
            weights = templates.carry(start[0], start[1])
            weights = np.where(start[2] != 0, start[2], weights)
        for turn in range(self.rounds):
            if turn:
                assert weights is not None
                beliefs = RelationalField(templates, wiring, Beliefs.of(data, categories), weights).run_mean_field(work).beliefs
            objective = self._make_objective(templates, wiring, beliefs, work)
            if weights is None:
                plain = RelationalPseudoLikelihood(templates, wiring, beliefs, work.threads) if self.objective == "cd1" else objective
                weights = plain.start_unary([count_marginals(table) for table in data.tables])
            exact = self.objective == "pl"
            solver, most = ("auto", MAX_ITERATIONS) if exact else ("plain", MOST_INEXACT_STEPS)
            penalty = Penalty(self.l1_, np.where(templates.mark_weights(never), HELD, self.beta_) if never_known else self.beta_)
            outcome = minimise(objective, penalty, weights, tol=tol, work=work, solver=solver, max_iterations=most)
            if never_known:
                outcome.weights[templates.mark_weights(never)] = 0
            if not exact and outcome.stopped_by is StoppedBy.ITERATIONS:
                outcome.stopped_by = StoppedBy.CONVERGED  # as far as such slopes lead
            weights = outcome.weights
        assert weights is not None
        return _State(hidden, templates, weights, outcome, objective)

    def _make_objective(self, templates: Templates, wiring: Wiring, beliefs: Beliefs, work: Work) -> Any:
        kind = RelationalPseudoLikelihood if self.objective == "pl" else ContrastiveDivergence
        return kind(templates, wiring, beliefs, work.threads)

    def _add_hidden(self, data: RelationalData, wiring: Wiring, state: _State, most: int, work: Work, tol: float) -> _State | None:
        """The model with one more hidden variable for each type where errors suggest one; None where they do for none."""
        types = as_names(self.hidden_types or ()) or [kind.name for kind in data.schema.types if not kind.is_link]
        fallback = BETA_CLUSTER if self.beta == "auto" else self.beta_
        beta = fallback if self.beta_cluster is None else self.beta_cluster
        errors = state.objective.measure_errors(state.weights)
        found = propose_hidden(state.templates, wiring, errors, types, self.l1_, beta, self.move_entities, work.check)
        found = found[: most - len(state.hidden)]
        if not found:
            return None
        hidden = list(state.hidden)
        for name, clustering in found:
            number = sum(h.type == name for h in hidden)
            hidden.append(HiddenVariable(f"{name}.H{number}", name, clustering.of, len(clustering.gains), data.list_names(name)))
        templates = Templates(data.schema, self.order, self.templates, count_categories(data.schema, hidden))
        estimated = np.zeros(templates.n_weights)
        for name, clustering in found:
            last = count_categories(data.schema, hidden)[data.schema.index(name)]
            estimated[templates.hidden_numbers(name, last - len(clustering.gains), last)] = clustering.weights
        grown = self._fit_weights(data, wiring, hidden, (state.templates, state.weights, estimated), work, tol)
        for _ in range(MOST_REASSIGNMENTS if self.free_hidden else 0):
            values = Beliefs.of(data).values
            chosen = choose_categories(grown.templates, wiring, values, grown.weights, grown.hidden)
            if all((of == h.of).all() for of, h in zip(chosen, grown.hidden, strict=True)):
                break
            hidden = [replace(h, of=of) for of, h in zip(chosen, grown.hidden, strict=True)]
            grown = self._fit_weights(data, wiring, hidden, grown.as_start(), work, tol)
        return grown

    # -- prediction
    def _infer(self, inference: str, data: RelationalData, wiring: Wiring, state: _Model, work: Work, marginals: Any = None) -> Inferred:
        beliefs = Beliefs.of(data, mark_categories(data, state.hidden), marginals)
        field = RelationalField(state.templates, wiring, beliefs, state.weights)
        return field.run_mean_field(work) if inference == "mean-field" else field.run_gibbs(work)

    def place_hidden(self, data: RelationalData, wiring: Wiring) -> list[HiddenVariable]:
        """The hidden variables for the entities of some data."""
        return place_hidden(data, self.templates_, wiring, self.weights_, self.hidden_, self.marginals_)

    def _predict(self, data: RelationalData, work: Work) -> Sequence[Array]:
        wiring = self._wire(data, work)
        model = _Model(self.place_hidden(data, wiring), self.templates_, self.weights_)
        self.inferred_ = self._infer(self.inference, data, wiring, model, work, self.marginals_)
        return self.inferred_.beliefs.values

    # -- the model as a network
    def ground(self, data: RelationalData | None = None) -> MarkovNetwork:
        """The model written out over the entities of small data (by default those learned from): a variable for each attribute of each
        entity. `ground_evidence` gives what is known of them."""
        check_is_fitted(self, "weights_")
        data = self.take_data(data)
        wiring = self._wire(data, self.start_work())
        return ground_model(data, self.templates_, wiring, self.weights_, self.place_hidden(data, wiring))

    def ground_evidence(self, data: RelationalData | None = None) -> dict[str, str]:
        """The known attributes, as evidence for the network of `ground`."""
        return list_evidence(self.take_data(data))

    def describe_categories(self, n_shown: int = SHOWN) -> list[Category]:
        """The categories of the hidden variables: their entities and strongest features, as in the paper's Tables 2 and 3."""
        check_is_fitted(self, "weights_")
        return describe_categories(self.templates_, self.weights_, self.hidden_, n_shown)
