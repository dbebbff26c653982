"""A network prepared once for many questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.raw import RawTable
from undirected.data.readers import read_data
from undirected.errors import DataError, ParameterError, check_number
from undirected.inference import completion, engine, map_state, partition
from undirected.inference.answer import Answer
from undirected.inference.evidence import Evidence, Given, read_evidence
from undirected.inference.gibbs import Sampling
from undirected.inference.map_state import BestStates
from undirected.inference.partition import LogPartition
from undirected.inference.reduced import PreparedNetwork, ReducedNetwork
from undirected.kernels.types import Array
from undirected.work import MEMORY, Clock, Event, Work

if TYPE_CHECKING:
    from undirected.network.network import MarkovNetwork


@dataclass
class LogLikelihood:
    """The mean log-likelihood of rows, with the error that log Z brings in."""

    value: float
    standard_error: float
    partition: LogPartition


class Session:
    """A network prepared once for many questions.

    Every question gives the same answer as the method of the same name of `MarkovNetwork`, but what does not depend on the question is
    made once, and eliminations that were planned for the last evidence are planned no more. A session answers one question at a time.

    Parameters
    ----------
    network
        Is not changed, and must not be.
    threads, memory, seed
        Cores (None for all), bytes for tables, and a seed for everything that is drawn.
    progress
        Is called with an event now and then where many rows are answered.
    clock
        Seconds, for time budgets.

    Examples
    --------
    >>> from undirected import Domain, FeatureSet, MarkovNetwork, Variable
    >>> from undirected.inference import Session
    >>> domain = Domain([Variable("rain", ("no", "yes")), Variable("wet", ("no", "yes"))])
    >>> network = MarkovNetwork(FeatureSet.from_texts(["rain=yes", "rain=yes & wet=yes"], domain), [-1.0, 2.0])
    >>> session = Session(network)
    >>> round(session.query({"wet": "yes"})["rain"]["yes"], 3), session.map_state({"wet": "yes"})[0]["rain"]
    (0.731, 'yes')
    """

    def __init__(
        self,
        network: MarkovNetwork,
        *,
        threads: int | None = None,
        memory: int = MEMORY,
        seed: int = 0,
        progress: Callable[[Event], None] | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.network = network
        self._limits = Work.start(threads, memory, None, seed, progress, clock)
        self._progress = progress
        self._prepared = PreparedNetwork(network)

    @property
    def plans_made(self) -> int:
        """How many eliminations have been planned so far."""
        return self._prepared.planner.made

    def start(self, time_budget: float | None = None) -> Work:
        """Begin to work on a question now, under the session's limits."""
        limits = self._limits
        return Work.start(limits.threads, limits.memory, time_budget, limits.seed, self._progress, limits.clock)

    def reduce(self, evidence: Evidence | Given = None) -> ReducedNetwork:
        """The network that evidence leaves."""
        return ReducedNetwork(self._prepared, read_evidence(self.network.domain, evidence))

    def query(
        self,
        evidence: Evidence | Given = None,
        variables: Sequence[str] | None = None,
        method: str = "auto",
        *,
        precision: float = 0.005,
        time_budget: float | None = 10.0,
        chains: int | None = None,
        scan: str = "systematic",
        data: Any = None,
    ) -> Answer:
        """How likely is what, given what is known? See `MarkovNetwork.query`."""
        engine.check_method(method, engine.METHODS)
        Sampling(precision, chains, scan).check()
        work = self.start(time_budget)
        began = work.now()
        reduced = self.reduce(evidence)
        engine.check_feasible(reduced, method, work)
        wanted = engine.find_wanted(reduced, variables)
        answer = engine.answer_query(reduced, wanted, method, work, Sampling(precision, chains, scan, self._read_codes(data)))
        answer.seconds = work.now() - began
        return answer

    def map_state(
        self,
        evidence: Evidence | Given = None,
        k: int = 1,
        method: str = "auto",
        *,
        sweeps: int = 300,
        time_budget: float | None = 10.0,
    ) -> BestStates:
        """The ``k`` most probable assignments, given evidence. See `MarkovNetwork.map_state`."""
        engine.check_method(method, map_state.METHODS)
        check_number("k", k, 1, whole=True)
        work = self.start(time_budget)
        began = work.now()
        found = map_state.find_best(self.reduce(evidence), k, method, sweeps, work)
        found.seconds = work.now() - began
        return found

    def log_partition(
        self,
        evidence: Evidence | Given = None,
        method: str = "auto",
        *,
        chains: int = 256,
        steps: int = 2000,
        data: Any = None,
        time_budget: float | None = 10.0,
    ) -> LogPartition:
        """The logarithm of the sum of ``exp(score)`` over all assignments that evidence leaves. See `MarkovNetwork.log_partition`."""
        engine.check_method(method, partition.METHODS)
        work = self.start(time_budget)
        began = work.now()
        if chains < 2 or steps < 1:
            raise ParameterError(f"chains={chains}, steps={steps}: at least 2 and 1")
        reduced = self.reduce(evidence)
        engine.check_feasible(reduced, method, work)
        codes = self._read_codes(data) if method in ("auto", "ais") else None
        found = partition.find_log_partition(reduced, method, work, chains=chains, steps=steps, data=codes)
        found.seconds = work.now() - began
        return found

    def log_likelihood(self, data: Any, **options: Any) -> LogLikelihood:
        """The mean over rows of log P(row), by `log_partition` with the same options."""
        table = read_data(data, domain=self.network.domain)
        table.require_complete("scoring")
        found = self.log_partition(**{"data": table, **options})
        distinct = table.distinct
        scores = self.network.log_score(distinct)
        return LogLikelihood(float(np.average(scores, weights=distinct.weights)) - found.value, found.standard_error, found)

    def sample(self, n: int, evidence: Evidence | Given = None, *, sweeps: int = 500, data: Any = None) -> Dataset:
        """A table of ``n`` rows drawn from the network, given evidence. See `MarkovNetwork.sample`."""
        if n < 1:
            raise DataError(f"n={n}: at least one sample")
        return completion.draw_rows(self.reduce(evidence), n, self.start(), sweeps, self._read_codes(data))

    def sample_exactly(self, n: int) -> Dataset:
        """Independent rows from the network's exact distribution; an error where its tables do not fit into memory."""
        work = self.start()
        plan = self.reduce().plan_exact("an exact sample", work)
        return Dataset(self.network.domain, plan.draw(n, work), source="an exact sample")

    def expectations(self, evidence: Evidence | Given = None) -> Array:
        """The probability of each feature: exact, or an error that tells what exact tables would take."""
        reduced = self.reduce(evidence)
        return reduced.find_expectations(reduced.plan_exact("exact inference", self.start()))

    def impute(self, data: Any, method: str = "map") -> Dataset:
        """A table with its missing cells filled in. See `MarkovNetwork.impute`."""
        engine.check_method(method, completion.METHODS)
        return completion.complete(self.reduce(), completion.read_partial(self.network, data), method, self.start())

    def impute_text(self, raw: RawTable, method: str = "map", unknown: str = "error") -> tuple[str, int]:
        """A raw table as CSV text with its missing cells filled in and all others as they were; how many were filled."""
        table = completion.read_partial(self.network, raw, unknown=unknown)
        return completion.write_filled(raw, self.network, table, self.impute(table, method))

    def predict_proba(self, data: Any, target: str) -> Array:
        """P(target = state | the other cells of the row) by row and state. See `MarkovNetwork.predict_proba`."""
        v = self.network.domain.index(target)
        codes = completion.read_partial(self.network, data, target).codes
        return completion.predict(self.reduce(), codes, v, self.start())

    def _read_codes(self, data: Any) -> Array | None:
        """The rows of a table at which chains may start."""
        return None if data is None else read_data(data, domain=self.network.domain).codes


def exact_sample(network: MarkovNetwork, n: int, seed: int = 0) -> Dataset:
    """Independent rows from the network's exact distribution; an error where its tables do not fit into memory."""
    return Session(network, seed=seed).sample_exactly(n)


def open_session(network: MarkovNetwork, options: dict[str, Any]) -> Session:
    """A session for one question; takes its limits out of the question's options."""
    return Session(network, **{name: options.pop(name) for name in ("threads", "memory", "seed", "clock") if name in options})
