"""A file of finished settings, so that an interrupted search goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset
from undirected.errors import FormatError

Rows = list[dict[str, Any]]


class Ledger:
    """One JSON line per finished structural setting: whose it is, the setting, and its rows.

    ``owner`` says what was searched: learner, parameters, grid, tables. Several searches may share a file, one after the other;
    each sees only its own lines.
    """

    def __init__(self, path: Path, owner: dict[str, Any]) -> None:
        self.path = path
        self.owner = hashlib.sha256(json.dumps(owner, sort_keys=True).encode()).hexdigest()[:32]
        self.done: dict[str, Rows] = {}
        try:
            if path.exists():
                self._read()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{path} cannot serve as a ledger: {error}") from None

    def _read(self) -> None:
        whole, _, cut = self.path.read_text(encoding="utf-8").rpartition("\n")
        try:
            entries = [json.loads(line) for line in whole.split("\n") if line]
            self.done = {entry["key"]: entry["rows"] for entry in entries if entry["owner"] == self.owner}
            if not entries and cut and not cut.startswith('{"owner"'[: len(cut)]):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise FormatError(f"{self.path} is not a ledger of tune; name another file or delete it") from None
        if cut:  # a line that a kill cut short counts for nothing
            with self.path.open("r+", encoding="utf-8") as file:
                file.truncate(len((whole + "\n").encode() if whole else b""))

    def find(self, settings: dict[str, Any]) -> Rows | None:
        return self.done.get(_key(settings))

    def add(self, settings: dict[str, Any], rows: Rows) -> None:
        self.done[_key(settings)] = rows
        entry = {"owner": self.owner, "key": _key(settings), "rows": rows}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FormatError(f"{self.path}: the ledger cannot be written: {error}") from None


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def digest(data: Dataset) -> str:
    """A fingerprint of a table's contents."""
    out = hashlib.sha256(repr([(v.name, v.states) for v in data.domain.variables]).encode())
    out.update(np.ascontiguousarray(data.codes, dtype=np.int16).tobytes())
    out.update(np.ascontiguousarray(data.weights).tobytes())
    return out.hexdigest()[:32]
