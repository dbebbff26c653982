"""A stream learner as a classifier of river, so that its tools for evaluation take it."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from undirected.data.cells import write_value
from undirected.errors import MissingExtra
from undirected.streaming.learner import StreamLearner

try:
    from river.base import Classifier
except ImportError:
    raise MissingExtra("a classifier of river needs river: pip install 'undirected[stream]'") from None


class StreamClassifier(Classifier):
    """Predicts one variable from the others by the network of a stream learner, which learns them all.

    Parameters
    ----------
    learner : StreamLearner
        Learns rows with the target among their cells; every ``chunk_rows`` rows its network is new.
    target : str
        The name that the target has in those rows.

    Examples
    --------
    >>> from river import evaluate, metrics
    >>> from undirected import StreamClassifier, StreamedDTSL, datasets
    >>> rows = [{f"c{v}": x for v, x in enumerate(row)} for row in datasets.load("digits").codes[:600].tolist()]
    >>> stream = [({k: x for k, x in row.items() if k != "c28"}, row["c28"]) for row in rows]
    >>> model = StreamClassifier(StreamedDTSL(chunk_rows=200, watch="none"), "c28")
    >>> evaluate.progressive_val_score(stream, model, metrics.Accuracy()).get() > 0.4
    True
    """

    def __init__(self, learner: StreamLearner, target: str = "target") -> None:
        self.learner = learner
        self.target = target
        self._values: dict[str, Any] = {}  # of the target, by the texts of its states

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> StreamClassifier:
        """A classifier with the same settings that has learned nothing."""
        settings = {"learner": self.learner, "target": self.target, **(new_params or {})}
        return StreamClassifier(clone(settings["learner"]), settings["target"])

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Give the learner a row."""
        if not hasattr(self.learner, "n_chunks_"):  # classes are states, though they may be numbers
            reading = dict(self.learner.reading or {})
            self.learner.set_params(reading={**reading, "categorical": [*reading.get("categorical", ()), self.target]})
        self._values.setdefault(write_value(y), y)
        self.learner.learn_one({**x, self.target: y})

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """The probabilities of the target's values given the other cells; nothing before the first chunk."""
        found = self.learner.predict_proba_one(x, self.target)
        return {self._values.get(state, state): p for state, p in found.items()}
