"""What all learners of relational data share: fit, predict the unknown attributes, score hidden ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from undirected.errors import DataError
from undirected.kernels.types import Array
from undirected.relational.beliefs import mark_states, spread_states
from undirected.relational.data import RelationalData
from undirected.relational.measures import Scores, score_cells
from undirected.relational.schema import Schema, describe_difference
from undirected.work import MEMORY, StoppedBy, Work

Distributions = list[list[Array]]  # of each attribute of each type: entities by states


class RelationalLearner(BaseEstimator):  # type: ignore[misc]
    """Base of the learners of relational data: a subclass has `_learn` and `_predict`, and its own parameters beside those kept here."""

    def __init__(
        self,
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        random_state: int = 0,
        progress: Any = None,
    ) -> None:
        self.threads = threads
        self.memory = memory
        self.time_budget = time_budget
        self.random_state = random_state
        self.progress = progress

    schema_: Schema
    data_: RelationalData  # learned from; a model from a file has none
    stopped_by_: StoppedBy
    seconds_: float

    @abstractmethod
    def _learn(self, data: RelationalData, work: Work) -> StoppedBy:
        """Learn from the known attributes, and say why the work ended: at the deadline and on Ctrl-C with the best there is."""

    @abstractmethod
    def _predict(self, data: RelationalData, work: Work) -> Sequence[Array]:
        """The probability of each active state of the attributes of each type: entities by active states."""

    def start_work(self) -> Work:
        """The limits of this learner's own parameters, from now on."""
        return Work.start(self.threads, self.memory, self.time_budget, self.random_state, self.progress)

    def fit(self, data: RelationalData, y: Any = None, *, work: Work | None = None) -> Self:
        """Learn from the known attributes of the data; the unknown ones are hidden variables."""
        if not isinstance(data, RelationalData):
            raise DataError(f"relational data is needed, not {type(data).__name__}; make it with RelationalData.from_frames or from_folder")
        if data.n_observed == 0:
            raise DataError(f"{data.source}: every attribute is unknown, so that there is nothing to learn from")
        work = self.start_work() if work is None else work
        began = work.now()
        self.data_, self.schema_ = data, data.schema
        self.stopped_by_ = self._learn(data, work)
        self.seconds_ = work.now() - began
        return self

    def predict_proba(self, data: RelationalData | None = None, *, work: Work | None = None) -> Distributions:
        """The distribution of each attribute of each entity given the known ones: ``[type][attribute]``, entities by states. A known
        attribute has its value for certain. ``data`` must have the types learned from; by default it is the data learned from."""
        check_is_fitted(self, "schema_")
        data = self.take_data(data)
        active = self._predict(data, self.start_work() if work is None else work)
        out = []
        for table, chances in zip(data.tables, active, strict=True):
            known = np.repeat(table.cells.codes >= 0, table.type.attributes.n_states - 1, axis=1)
            out.append(spread_states(table, np.where(known, mark_states(table), chances[:, : table.type.n_active])))
        return out

    def take_data(self, data: RelationalData | None) -> RelationalData:
        """The data given, which must have the types learned from, or else the data learned from."""
        if data is None:
            if not hasattr(self, "data_"):
                raise DataError("this model was read from a file, which holds no data; name the data to predict")
            return self.data_
        if data.schema != self.schema_:
            raise DataError(f"{data.source}: {describe_difference(self.schema_, data.schema)}")
        return data

    def score(self, truth: RelationalData, marks: Sequence[Array] | None = None) -> Scores:
        """How well attributes that were unknown are predicted, judged by a ``truth`` that knows them: all of them, or those marked."""
        predicted = self.predict_proba()
        if marks is None:
            marks = [table.cells.codes < 0 for table in self.data_.tables]
        return score_cells(truth, marks, predicted)
