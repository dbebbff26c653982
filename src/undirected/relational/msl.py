"""MSL: Markov logic networks whose clauses are found by beam search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from undirected.errors import ParameterError, check_number
from undirected.kernels.types import Array
from undirected.relational.clause_search import ClauseSearch, Limits
from undirected.relational.clause_weights import WeightedPseudoLikelihood
from undirected.relational.clauses import GroundAtoms, Vocabulary
from undirected.relational.data import RelationalData
from undirected.relational.learner import RelationalLearner
from undirected.weights.fit import use_one_blas_thread
from undirected.work import MEMORY, Counted, StoppedBy, Work

SPREADS = (0.1, 0.2, 0.5, 1.0, 2.0)  # of the weights' prior, tried with sd="auto"
SEARCH_SD = 0.5  # while searching with sd="auto"
SEARCH_SHARE, CHOICE_SHARE = 0.65, 0.35  # of the time for the search, and of what is left for each choice after it
MOST_STEPS, LAST_STEPS = 40, 200  # of L-BFGS, in a round of the search and for the final weights
PATIENCE, LEAST_RISE = 4, 1e-5  # rounds without so much better a prediction of validation cells after which the search ends
MOST_SWEEPS, DAMPING, TOLERANCE = 10, 0.5, 1e-3  # of mean field
MOST_LITERALS, MOST_VARIABLES = 6, 5
INFERENCE = ("auto", "marginals", "mean field")
WEIGHTING = ("atom", "predicate")


class MSL(RelationalLearner):
    """Find first-order clauses by beam search, and weights for them: a Markov logic network.

    Each attribute of two states is a predicate (of an entity, or of the entities that a link joins); of an attribute with more states
    each state is one. The model begins with a unit clause for each predicate. A round of the search extends unit clauses, and then the
    best clauses found, by one literal after another, flips signs and removes literals; a clause is worth what a Newton step of its weight
    gains in pseudo-log-likelihood, less a penalty for its length. The best are added and all weights are learned again by L-BFGS.

    Groundings are counted by products of dense tensors: a clause over three variables of n entities costs n^3 multiplications as a
    product of matrices, and extensions of a clause by all predicates of a type are estimated together. A round takes about a second on
    14 nations with 167 predicates, and five on 135 concepts with 46 relations.

    Parameters
    ----------
    max_literals, max_variables : int
        Of a clause.
    max_clauses : int
        Found by the search, beside unit clauses.
    beam : int
        How many clauses of each length are extended.
    n_scored : int
        How many of the extensions of each length are scored exactly, of all that are estimated.
    length_penalty : float
        What each literal of a clause must gain, in units of log-likelihood.
    sd : float or "auto"
        Standard deviation of the weights' Gaussian prior; ``auto`` chooses among five by validation.
    weighting : {"atom", "predicate"}
        Whether each known attribute of an entity counts the same, or each predicate (as in the paper).
    inference : {"auto", "marginals", "mean field"}
        How unknown attributes are predicted: with the others at their marginals, or all together by mean field; ``auto`` chooses by
        validation.
    validation : float
        The share of known attributes, drawn at random, that are hidden while searching, to choose when to stop, ``sd`` and ``inference``;
        final weights are learned from all. 0 for none: then the search goes on until nothing gains.
    threads, memory, time_budget, random_state, progress
        As of all learners. One thread is used; a type whose tuples with all predicates do not fit into ``memory`` is an error.

    Attributes
    ----------
    clauses_ : list of Clause
        Unit clauses first, then as they were found.
    weights_ : ndarray
    vocabulary_ : Vocabulary
        The predicates; `write` prints clauses with it.
    sd_, inference_ : float, str
        What was chosen.
    trace_ : list of (int, float)
        The number of clauses found, and the mean log-probability of validation cells, after each round.

    Notes
    -----
    Kok and Domingos, "Learning the structure of Markov logic networks", ICML 2005; of its two searches, the
    beam search.

    Deviations: (1) Candidates are estimated with all other weights fixed, to second order, rather than by learning all weights for each;
    all weights are learned after each round. There is no switch: published runs took up to a day. (2) A round adds up to ten clauses,
    each rated after those before it, not one. (3) Each known attribute counts the same, as predicates of few entities otherwise fit
    chance; ``weighting="predicate"`` restores the paper's weights, times a constant, so that penalties are in units of log-likelihood.
    (4) Of an attribute of more than two states exactly one atom is true, as Alchemy's ``!`` declares it, in pseudo-likelihood and
    prediction. (5) The search stops by validation; with ``validation=0`` it stops where nothing gains. (6) Unit clauses have a prior of
    their own, at least 3 wide. (7) Links that the data does not have are no atoms, and groundings with them do not count; Alchemy would
    take them as false. (8) Two literals of one clause never name the same cell in all groundings, as ``P(x) v !P(x)`` would. (9) The
    paper's data is complete; here unknown attributes stand at their marginals inside clauses.

    Examples
    --------
    >>> import pandas as pd
    >>> from undirected.relational.data import RelationalData
    >>> from undirected.relational.msl import MSL
    >>> people = pd.DataFrame({"name": list("abcdefgh")})
    >>> friends = pd.DataFrame({"one": list("abcdefgahc"), "other": list("badcfehgag")})
    >>> links = {"friends": (friends, {"one": "person", "other": "person"})}
    >>> data = RelationalData.from_frames({"person": (people, "name")}, links, cross_product=True)
    >>> model = MSL(max_literals=2, max_clauses=1, validation=0).fit(data)
    >>> model.vocabulary_.write(model.clauses_[-1])
    '!friends(x,y) v !friends(y,x)'
    >>> bool(model.weights_[-1] < 0)  # that not both hold is unlikely: friends are friends of each other
    True
    """

    def __init__(
        self,
        max_literals: int = 4,
        max_variables: int = 3,
        max_clauses: int = 300,
        beam: int = 20,
        n_scored: int = 200,
        length_penalty: float = 1.0,
        sd: float | str = "auto",
        weighting: str = "atom",
        inference: str = "auto",
        validation: float = 0.1,
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        random_state: int = 0,
        progress: Any = None,
    ) -> None:
        super().__init__(threads, memory, time_budget, random_state, progress)
        self.max_literals = max_literals
        self.max_variables = max_variables
        self.max_clauses = max_clauses
        self.beam = beam
        self.n_scored = n_scored
        self.length_penalty = length_penalty
        self.sd = sd
        self.weighting = weighting
        self.inference = inference
        self.validation = validation

    def write(self) -> str:
        """All clauses with their weights, a line for each, as Alchemy reads them."""
        pairs = zip(self.clauses_, self.weights_.tolist(), strict=True)
        return "".join(f"{self.vocabulary_.write(clause, weight)}\n" for clause, weight in pairs)

    def _learn(self, data: RelationalData, work: Work) -> StoppedBy:
        self.check_settings()
        self.vocabulary_ = Vocabulary(data.schema)
        known = [table.cells.codes >= 0 for table in data.tables]
        held = [np.zeros_like(marks) for marks in known]
        if self.validation:
            held = data.cut_observed(round(1 / self.validation), work.seed)[0]
        with use_one_blas_thread():
            atoms = GroundAtoms(self.vocabulary_, data.hide(held), work.memory)
            model = WeightedPseudoLikelihood(atoms, data, [k & ~h for k, h in zip(known, held, strict=True)], self.weighting)
            limits = Limits(self.max_literals, self.max_variables, self.beam, self.n_scored, self.length_penalty)
            self.sd_ = SEARCH_SD if self.sd == "auto" else float(self.sd)
            self.inference_ = "marginals" if self.inference == "auto" else self.inference
            self._validates = bool(self.validation and len(model.list_scores(model.find_chances(np.zeros(0)), held)))
            stopped_by = self._search(ClauseSearch(model, limits, self.sd_), held, work)
            try:
                if self._validates and stopped_by is not StoppedBy.INTERRUPT:
                    self._choose(model, held, work)
                self._finish(data, known, work)
            except KeyboardInterrupt:
                stopped_by = StoppedBy.INTERRUPT
        return StoppedBy.TIME if work.is_over and stopped_by is not StoppedBy.INTERRUPT else stopped_by

    def _search(self, search: ClauseSearch, held: list[Array], work: Work) -> StoppedBy:
        """Add clauses while that helps, and keep those that predicted best."""
        model, part = search.model, work.share(SEARCH_SHARE)
        first = len(model.clauses)
        self.trace_: list[tuple[int, float]] = []
        self.weights_, kept, best, waited = search.weights, first, -math.inf, 0
        try:
            while True:
                search.weights = model.fit(search.weights, self.sd_, MOST_STEPS if self.trace_ else LAST_STEPS, part)
                found = len(model.clauses) - first
                score = float(model.list_scores(model.find_chances(search.weights), held).mean()) if self._validates else float(found)
                self.trace_.append((found, score))
                waited = 0 if score > best + LEAST_RISE else waited + 1
                if not waited:
                    self.weights_, kept, best = search.weights, len(model.clauses), score
                work.emit(Counted("clauses", found, self.max_clauses))
                if part.is_over or found >= self.max_clauses or waited >= PATIENCE or not search.run_round(part, self.max_clauses - found):
                    break
            stopped_by = StoppedBy.TIME if part.is_over else StoppedBy.ITERATIONS if found >= self.max_clauses else StoppedBy.CONVERGED
        except KeyboardInterrupt:
            stopped_by = StoppedBy.INTERRUPT
        model.cut(kept)
        self.clauses_ = list(model.clauses)
        return stopped_by

    def _choose(self, model: WeightedPseudoLikelihood, held: list[Array], work: Work) -> None:
        """Choose the prior and how to predict by validation: what is simpler, unless the other is better by more than a standard error."""
        part = work.share(CHOICE_SHARE)
        tried = []
        for sd in SPREADS if self.sd == "auto" else ():
            if part.is_over:
                break
            weights = model.fit(self.weights_, sd, LAST_STEPS, part)
            tried.append((model.list_scores(model.find_chances(weights), held), sd, weights))
        if tried:
            best = max((scores for scores, *_ in tried), key=np.mean)
            self.sd_, self.weights_ = next((sd, weights) for scores, sd, weights in tried if not exceeds(best, scores))
        if self.inference == "auto" and not work.is_over:
            part = work.share(CHOICE_SHARE)
            apart = model.list_scores(model.find_chances(self.weights_), held)
            together = model.list_scores(run_mean_field(model, self.weights_, part), held)
            if not part.is_over and exceeds(together, apart):
                self.inference_ = "mean field"

    def _finish(self, data: RelationalData, known: list[Array], work: Work) -> None:
        """Learn the weights of the clauses from all known attributes."""
        atoms = GroundAtoms(self.vocabulary_, data, work.memory)
        model = WeightedPseudoLikelihood(atoms, data, known, self.weighting)
        for clause in self.clauses_:
            model.add(clause, atoms.count_differences(clause))
        self.weights_ = model.fit(self.weights_, self.sd_, LAST_STEPS, work)

    def _predict(self, data: RelationalData, work: Work) -> Sequence[Array]:
        with use_one_blas_thread():
            atoms = GroundAtoms(self.vocabulary_, data, work.memory)
            model = WeightedPseudoLikelihood(atoms, data, [table.cells.codes >= 0 for table in data.tables])
            for clause in self.clauses_:
                model.add(clause, atoms.count_differences(clause))
            mean_field = self.inference_ == "mean field"
            chances = run_mean_field(model, self.weights_, work) if mean_field else model.find_chances(self.weights_)
        active = []
        for number, own in enumerate(chances):
            places = [place for place, (_, predicate) in enumerate(atoms.list_predicates(number)) if predicate.state > 0]
            active.append(np.ascontiguousarray(own[places].T))
        return active

    def check_settings(self) -> None:
        """Raise unless the parameters make sense."""
        check_number("max_literals", self.max_literals, 1, MOST_LITERALS, whole=True)
        check_number("max_variables", self.max_variables, 1, MOST_VARIABLES, whole=True)
        check_number("max_clauses", self.max_clauses, 0, whole=True)
        check_number("beam", self.beam, 1, whole=True)
        check_number("n_scored", self.n_scored, 1, whole=True)
        check_number("length_penalty", self.length_penalty, 0)
        check_number("validation", self.validation, 0, 0.5)
        if self.sd != "auto":
            check_number("sd", self.sd, 0, above=True)
        for name, known in (("inference", INFERENCE), ("weighting", WEIGHTING)):
            if getattr(self, name) not in known:
                raise ParameterError(f"{name}={getattr(self, name)!r} is not known; choose one of {', '.join(known)}")


def exceeds(scores: Array, others: Array) -> bool:
    """Whether scores of the same cells are better by more than one standard error of their difference."""
    gain = scores - others
    return bool(gain.mean() > gain.std() / math.sqrt(len(gain)))


def run_mean_field(model: WeightedPseudoLikelihood, weights: Array, work: Work) -> list[Array]:
    """How probable each atom is if the beliefs about unknown ones agree: sweeps over attributes, one after another.

    The unknown atoms of one attribute move together, half of the way. The model's atoms are left with their new beliefs.
    """
    atoms, chances = model.atoms, model.find_chances(weights)
    spans: dict[tuple[int, int], list[int]] = {}
    for k, predicate in enumerate(atoms.vocabulary.predicates):
        if not atoms.known[predicate.table][:, predicate.attribute].all():
            spans.setdefault((predicate.table, predicate.attribute), []).append(k)
    pairs = list(zip(model.clauses, weights.tolist(), strict=True))
    named = {span: [(c, w) for c, w in pairs if any(one.predicate in members for one in c.literals)] for span, members in spans.items()}
    for (table, attribute), members in spans.items():
        for k in members:
            atoms.believe(k, chances[table][k - atoms.vocabulary.slices[table].start], ~atoms.known[table][:, attribute])
    for sweep in range(MOST_SWEEPS):
        change = 0.0
        for (table, attribute), members in spans.items():
            if work.is_over:
                return chances
            logits = np.zeros((len(members), chances[table].shape[1]))
            for clause, weight in named[table, attribute]:
                for k, column in atoms.count_differences(clause, only=(table, attribute)).items():
                    logits[k - members[0]] += weight * column
            fresh = softmax(logits, axis=0) if len(members) > 1 else expit(logits)
            first = members[0] - atoms.vocabulary.slices[table].start
            own, unknown = chances[table][first : first + len(members)], ~atoms.known[table][:, attribute]
            change = max(change, float(np.abs(fresh - own)[:, unknown].max()))
            own[:, unknown] += DAMPING * (fresh - own)[:, unknown]
            for k, new in zip(members, own, strict=True):
                atoms.believe(k, new, unknown)
        work.emit(Counted("sweeps over unknown attributes", sweep + 1, MOST_SWEEPS))
        if change < TOLERANCE:
            break
    return chances
