"""Networks in files; the suffix decides the format."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from undirected.data.files import write_whole
from undirected.errors import DataError, FormatError, did_you_mean
from undirected.network.network import MarkovNetwork

READABLE = (".json", ".mn", ".uai")
WRITABLE = (*READABLE, ".graphml")
MAX_BYTES = 2 << 30


def suffix_of(path: str | os.PathLike[str], known: tuple[str, ...]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in known:
        raise FormatError(f"{os.fspath(path)}: the suffix {suffix!r} is not one of {', '.join(known)}.{did_you_mean(suffix, known)}")
    return suffix


def save(network: MarkovNetwork, path: str | os.PathLike[str]) -> None:
    """Write a network: ``.json`` (everything), ``.mn`` (Libra), ``.uai``, ``.graphml`` (its graph)."""
    from undirected.formats import graphml, libra, native, uai

    writers: dict[str, Callable[[MarkovNetwork], str | bytes]] = {
        ".json": native.dumps,
        ".mn": libra.dumps,
        ".uai": uai.dumps,
        ".graphml": graphml.dumps,
    }
    write_whole(path, writers[suffix_of(path, WRITABLE)](network))


def load(path: str | os.PathLike[str]) -> MarkovNetwork:
    """Read a network from ``.json``, ``.mn`` or ``.uai``."""
    from undirected.formats import libra, native, uai

    readers = {".json": native.loads, ".mn": libra.loads, ".uai": uai.loads}
    return readers[suffix_of(path, READABLE)](read_text(path), os.fspath(path))


def read_features(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a text file with one feature a line; empty lines and those that start with # are left out."""
    lines = [line.strip() for line in read_text(path).splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def read_text(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    target = Path(path)
    if not target.is_file():
        close = did_you_mean(target.name, [p.name for p in target.parent.glob("*")] if target.parent.is_dir() else [])
        raise DataError(f"there is no file {name!r}.{close}")
    if target.stat().st_size > MAX_BYTES:
        raise FormatError(f"{name}: {target.stat().st_size:,} bytes are more than a network file may have ({MAX_BYTES:,})")
    try:
        text = target.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from None
    if not text.strip():
        raise FormatError(f"{name} is empty")
    return text


__all__ = ["READABLE", "WRITABLE", "load", "read_features", "read_text", "save", "suffix_of"]
