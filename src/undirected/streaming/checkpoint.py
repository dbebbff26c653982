"""The checkpoint of a stream: one file with the state of the learner and the position in the source together."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from undirected.errors import DataError, FormatError
from undirected.store import Lock, check_writable, list_versions, write_whole
from undirected.streaming.packing import Arrays, Tree, pack, unpack
from undirected.streaming.sources import Tell


class Found(NamedTuple):
    """What a checkpoint holds, and which of its versions it is."""

    tree: Tree
    arrays: Arrays
    path: Path


class CheckpointFile:
    """A checkpoint, of which the last ``keep`` versions stay. Only one process at a time may write it."""

    def __init__(self, path: Path, keep: int, tell: Tell) -> None:
        check_writable(path)
        self.path, self.keep, self.tell = path, keep, tell
        self._lock = Lock(path)
        self._failed = False

    def save(self, tree: Tree, arrays: Arrays) -> bool:
        """Write the state in place of the last one, or say that it could not be written; learning goes on, and the next one is tried."""
        try:
            write_whole(self.path, pack(tree, arrays), self.keep)
        except DataError as error:
            if not self._failed:
                self.tell(f"no checkpoint: {error}. Learning goes on, and the next chunk tries again")
            self._failed = True
            return False
        if self._failed:
            self.tell(f"{self.path} can be written again")
        self._failed = False
        return True

    def load(self) -> Found | None:
        """The newest state that is whole; None where there is none at all. A damaged one is put aside, so that it takes no sound one's
        place."""
        found = load_checkpoint(self.path, self.keep, self.tell)
        if found is not None and found.path != self.path and self.path.exists():
            self.path.replace(self.path.with_name(self.path.name + ".damaged"))
        return found

    def close(self) -> None:
        """Let other processes write it."""
        self._lock.release()


def load_checkpoint(path: Path, keep: int, tell: Tell) -> Found | None:
    """Read the newest version of a checkpoint that is whole; damaged ones are told. None where there is no version at all."""
    fault: FormatError | None = None
    for version in list_versions(path, keep):
        try:
            content = version.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(f"{version} cannot be read ({error.strerror or error})") from None
        try:
            found = unpack(content, str(version))
        except FormatError as error:
            fault = fault or error
            continue
        if fault is not None:
            tell(f"{fault}; going on from the checkpoint before it, {version}")
        elif version != path:
            tell(f"{path} is missing; going on from the checkpoint before it, {version}")
        return Found(*found, version)
    if fault is not None:
        raise FormatError(f"{fault}, and there is no sound one before it; name another file or delete it")
    return None
