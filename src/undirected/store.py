"""What survives a kill: files that are written whole, and files of records that only grow.

Both kinds know their owner: a digest of all that a result depends on. A file of another owner is refused or passed over, never mixed
up. A record that a kill cut short counts for nothing and is removed when the file is opened again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from undirected.errors import DataError, FormatError

Record = dict[str, Any]
MOST_UNWRITTEN = 10_000  # lines that wait for a disk with room


def digest(value: Any) -> str:
    """A short fingerprint of a value that JSON can write; equal values have equal fingerprints."""
    return digest_text(json.dumps(value, sort_keys=True))


def digest_text(text: str) -> str:
    """A short fingerprint of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write_whole(path: str | os.PathLike[str], content: bytes | str | Iterable[str], keep: int = 1) -> None:
    """Write beside the target and rename, so that a crash or a full disk leaves the old file, or none, but never half.

    A long text may come piece by piece. With ``keep`` above 1 the versions before it stay, as ``path.1``, ``path.2`` and so on; a crash
    in between leaves the newest of them as ``path.1``.
    """
    target = Path(path)
    pieces = [content] if isinstance(content, (bytes, str)) else content
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as out:
            temporary = out.name
            for piece in pieces:
                out.write(piece.encode("utf8") if isinstance(piece, str) else piece)
            out.flush()
            os.fsync(out.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode)
        else:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
        versions = list_versions(target, keep)
        for older, newer in zip(versions[:0:-1], versions[-2::-1], strict=True):
            if newer.exists():
                os.replace(newer, older)
        os.replace(temporary, target)
    except UnicodeEncodeError as error:
        _discard(temporary)
        raise DataError(f"{target} cannot be written: {error}; rename the variable or state") from None
    except OSError as error:
        _discard(temporary)
        raise DataError(f"{target} cannot be written: {error.strerror or error}; nothing was changed") from None
    except BaseException:
        _discard(temporary)
        raise


def list_versions(path: Path, keep: int) -> list[Path]:
    """The file that `write_whole` writes, and those before it that it keeps, the newest first."""
    return [path, *(path.with_name(f"{path.name}.{k}") for k in range(1, keep))]


def _discard(temporary: str | None) -> None:
    if temporary is not None:
        Path(temporary).unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise before long work where the folder of a target is missing or closed."""
    target = Path(path)
    if target.is_dir():
        raise DataError(f"{target} is a folder; name a file")
    if not target.parent.is_dir():
        raise DataError(f"the folder {target.parent} does not exist; make it first")
    if not os.access(target.parent, os.W_OK):
        raise DataError(f"the folder {target.parent} cannot be written to")


class OwnedFile:
    """One JSON document, written whole, that says whose it is.

    ``owner`` is any JSON value and is kept under ``key``; ``kind`` names the file in messages, ``remedy`` says what to do with another.
    """

    def __init__(self, path: Path, owner: Any, kind: str, key: str = "owner", remedy: str = "name another file or delete it") -> None:
        self.path, self.owner, self.kind, self.key, self.remedy = path, owner, kind, key, remedy

    def save(self, content: Record) -> None:
        """Write the content, and with it the owner, in place of what the file held."""
        write_whole(self.path, json.dumps({self.key: self.owner, **content}) + "\n")

    def load(self) -> Record | None:
        """The content, or None where there is no file; a damaged file, or another owner's, is an error."""
        content = self._read()
        if content is not None and content[self.key] != self.owner:
            raise FormatError(f"{self.path} belongs to work on other data or with other settings; {self.remedy}")
        return content

    def load_own(self) -> Record | None:
        """The content, or None where there is no file or it is another owner's; a damaged file is an error."""
        content = self._read()
        return content if content is not None and content[self.key] == self.owner else None

    def _read(self) -> Record | None:
        try:
            content = json.loads(self.path.read_text("utf8"))
            if not isinstance(content, dict) or not isinstance(content[self.key], type(self.owner)):
                raise TypeError(f"no {self.key}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{self.path} is not {self.kind} ({error}); {self.remedy}") from None
        return content


class Appended:
    """A file of JSON lines that grows beside a checkpoint, which keeps its length: after a restart, what was added later is cut off.

    A file that no checkpoint knows of must be new or empty, or something else than a file, such as a terminal. What cannot be written is
    told, and tried again with the next lines.
    """

    def __init__(self, path: Path, length: int | None, tell: Callable[[str], None]) -> None:
        self.path, self.tell = path, tell
        self._unwritten: list[bytes] = []
        self._failed = False
        check_writable(path)
        self._regular = path.is_file() or not path.exists()
        size = path.stat().st_size if self._regular and path.exists() else 0
        if length is None and size:
            raise DataError(f"{path} exists already, and is not known to hold the lines of this work; delete it, or name another file")
        self.length = min(length or 0, size)
        try:
            self._file: Any = path.open(("r+b" if path.exists() else "x+b") if self._regular else "ab", buffering=0)
            if self._regular:
                self._file.truncate(self.length)
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror or error}") from None

    def append(self, records: Iterable[Record]) -> None:
        """Add records; a full disk is no reason to end the work."""
        self._unwritten += [json.dumps(record).encode() + b"\n" for record in records]
        raw = memoryview(b"".join(self._unwritten))
        try:
            if self._regular:
                self._file.seek(self.length)
            done = 0
            while done < len(raw):
                done += self._file.write(raw[done:]) or 0
        except OSError as error:
            if not self._failed:
                self.tell(f"{self.path} cannot be written ({error.strerror or error}); its lines wait for the next try")
            self._failed = True
            with contextlib.suppress(OSError):
                if self._regular:
                    self._file.truncate(self.length)
            del self._unwritten[: -MOST_UNWRITTEN or None]
            return
        self.length += len(raw)
        self._unwritten, self._failed = [], False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Lock:
    """A file that says that this process writes what stands beside it; it falls with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._file = path.with_name(f".{path.name}.lock").open("w")
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not on this platform
            return
        except OSError:
            self._file.close()
            raise DataError(f"another process is writing {path}; end it first, or name another file") from None

    def release(self) -> None:
        """Let others write."""
        self._file.close()


class Records:
    """A file of JSON lines that only grows; each line is a record and says whose it is.

    Several owners may share a file, one after the other; each sees only its own records. ``kind`` names the file in messages.
    """

    def __init__(self, path: Path, owner: str, kind: str) -> None:
        self.path, self.owner, self.kind = path, owner, kind
        self.own: list[Record] = []
        try:
            if path.exists():
                self._read()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{path} cannot serve as {kind}: {error}") from None

    def _read(self) -> None:
        whole, _, cut = self.path.read_bytes().decode("utf-8").rpartition("\n")
        try:
            records = [json.loads(line) for line in whole.split("\n") if line]
            self.own = [record for record in records if record["owner"] == self.owner]
            if not records and cut and not cut.startswith('{"owner"'[: len(cut)]):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise self.refuse() from None
        if cut:
            with self.path.open("r+b") as file:
                file.truncate(len((whole + "\n").encode() if whole else b""))

    def refuse(self) -> FormatError:
        """The error that says that the file is not of this kind."""
        return FormatError(f"{self.path} is not {self.kind}; name another file or delete it")

    def append(self, record: Record) -> None:
        """Add a record; it is on the disk when this returns."""
        record = {"owner": self.owner, **record}
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(record).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FormatError(f"{self.path}: {self.kind} cannot be written: {error}") from None
        self.own.append(record)
