"""A file of finished settings, so that an interrupted search goes on where it stopped."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain
from undirected.errors import FormatError
from undirected.features.feature_set import FeatureSet
from undirected.kernels.types import Array

Rows = list[dict[str, Any]]


class Ledger:
    """One JSON line per finished structural setting: whose it is, the setting, and its rows. A last line, once all settings are
    done, holds all rows and the features of the best, so that nothing is computed again.

    ``owner`` says what was searched: learner, parameters, grid, tables. Several searches may share a file, one after the other;
    each sees only its own lines.
    """

    def __init__(self, path: Path, owner: dict[str, Any]) -> None:
        self.path = path
        self.owner = hashlib.sha256(json.dumps(owner, sort_keys=True).encode()).hexdigest()[:32]
        self.done: dict[str, Rows] = {}
        self._end: dict[str, Any] | None = None
        try:
            if path.exists():
                self._read()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{path} cannot serve as a ledger: {error}") from None

    def _read(self) -> None:
        whole, _, cut = self.path.read_bytes().decode("utf-8").rpartition("\n")
        try:
            entries = [json.loads(line) for line in whole.split("\n") if line]
            own = [entry for entry in entries if entry["owner"] == self.owner]
            self.done = {entry["key"]: entry["rows"] for entry in own}
            self._end = next((entry for entry in own if "features" in entry), None)
            if not entries and cut and not cut.startswith('{"owner"'[: len(cut)]):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise FormatError(f"{self.path} is not a ledger of tune; name another file or delete it") from None
        if cut:  # a line that a kill cut short counts for nothing
            with self.path.open("r+b") as file:
                file.truncate(len((whole + "\n").encode() if whole else b""))

    def find(self, settings: dict[str, Any]) -> Rows | None:
        return self.done.get(_key(settings))

    def add(self, settings: dict[str, Any], rows: Rows) -> None:
        self.done[_key(settings)] = rows
        self._append({"owner": self.owner, "key": _key(settings), "rows": rows})

    def finish(self, rows: Rows, features: FeatureSet) -> None:
        """The search is complete."""
        arrays = {"lengths": _text(features.lengths), "literals": _text(features.literals)}
        self._append({"owner": self.owner, "key": "", "rows": rows, "features": arrays})

    def finished(self, domain: Domain) -> tuple[Rows, FeatureSet] | None:
        """What `finish` was told."""
        if self._end is None:
            return None
        try:
            lengths, literals = (_numbers(self._end["features"][name]) for name in ("lengths", "literals"))
        except (ValueError, KeyError, TypeError, zlib.error):
            raise FormatError(f"{self.path}: the features of a finished search cannot be read; delete the file") from None
        return self._end["rows"], FeatureSet(domain, np.concatenate([[0], np.cumsum(lengths)]), literals)

    def _append(self, entry: dict[str, Any]) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(entry).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FormatError(f"{self.path}: the ledger cannot be written: {error}") from None


def _text(numbers: Array) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(numbers, dtype="<i4").tobytes())).decode()


def _numbers(text: str) -> Array:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i4").astype(np.int64)


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def digest(data: Dataset) -> str:
    """A fingerprint of a table's contents."""
    out = hashlib.sha256(repr([(v.name, v.states) for v in data.domain.variables]).encode())
    out.update(np.ascontiguousarray(data.codes, dtype=np.int16).tobytes())
    out.update(np.ascontiguousarray(data.weights).tobytes())
    return out.hexdigest()[:32]
