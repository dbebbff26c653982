"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from undirected.errors import DataError


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write beside the target and rename, so that a crash or a full disk leaves the old file, or none, but never half."""
    target = Path(path)
    try:
        raw = content.encode("utf8") if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise DataError(f"{target} cannot be written: {error}; rename the variable or state") from None
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as out:
            temporary = out.name
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode)
        else:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        _discard(temporary)
        raise DataError(f"{target} cannot be written: {error.strerror or error}; nothing was changed") from None
    except BaseException:
        _discard(temporary)
        raise


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
