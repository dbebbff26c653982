"""A file of finished settings, so that an interrupted tuning goes on where it stopped."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.variables import Domain
from undirected.errors import FormatError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array
from undirected.store import Records, digest
from undirected.structure.trials import Trial, Trials


class Ledger:
    """One record per finished structural setting: the setting, and its trials. A last record, once all settings are done, holds all
    trials and the features of the best, so that nothing is computed again.

    ``owner`` says what is tuned: learner, parameters, grid, tables. Several tunings may share a file, one after the other; each sees
    only its own records.
    """

    def __init__(self, path: Path, owner: dict[str, Any]) -> None:
        self._records = Records(path, digest(owner), "a ledger of tune")
        try:
            self._done = {record["key"]: _read_trials(record) for record in self._records.own}
        except (KeyError, TypeError):
            raise self._records.refuse() from None
        self._end = next((record for record in self._records.own if "features" in record), None)

    def find(self, settings: dict[str, Any]) -> list[Trial] | None:
        """The trials of a structural setting, if it is finished."""
        return self._done.get(_key(settings))

    def add(self, settings: dict[str, Any], trials: list[Trial]) -> None:
        """Keep the trials of a structural setting."""
        self._done[_key(settings)] = trials
        self._records.append({"key": _key(settings), "rows": [trial.to_row() for trial in trials]})

    def finish(self, trials: list[Trial], features: FeatureSet) -> None:
        """Keep the result: the tuning is complete."""
        arrays = {"lengths": _pack(features.lengths), "literals": _pack(features.literals)}
        self._records.append({"key": "", "rows": [trial.to_row() for trial in trials], "features": arrays})

    def find_result(self, domain: Domain) -> Trials | None:
        """What `finish` was told, if it was."""
        if self._end is None:
            return None
        try:
            lengths, literals = (_unpack(self._end["features"][name]) for name in ("lengths", "literals"))
        except (ValueError, KeyError, TypeError, zlib.error):
            raise FormatError(f"{self._records.path}: the features of a finished search cannot be read; delete the file") from None
        return Trials(_read_trials(self._end), FeatureSet(domain, np.concatenate([[0], np.cumsum(lengths)]), literals))


def _read_trials(record: dict[str, Any]) -> list[Trial]:
    return [Trial.from_row(row) for row in record["rows"]]


def _pack(numbers: Array) -> str:
    """An array as a short text."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(numbers, dtype="<i4").tobytes())).decode()


def _unpack(text: str) -> Array:
    """The array that `_pack` made a text of."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i4").astype(np.int64)


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)
