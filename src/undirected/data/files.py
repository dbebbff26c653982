"""Files read within a budget."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import BinaryIO

from undirected.errors import DataError, FormatError, ParameterError, did_you_mean

MAX_BYTES = 2 << 30  # of a file, or of what it unpacks to
MAX_RATIO, SMALL = 120, 64 << 20  # beyond the second, a file that unpacks to more than so many times its size is refused
BLOCK = 16 << 20  # bytes unpacked at a time
BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


def check_regular(path: Path) -> None:
    """Raise where a path is no file that can be read as a whole: missing, a folder, a pipe or a device."""
    if not path.exists():
        close = did_you_mean(path.name, (p.name for p in path.parent.glob("*")) if path.parent.is_dir() else ())
        raise DataError(f"there is no file {os.fspath(path)!r}.{close}")
    if path.is_dir():
        raise DataError(f"{os.fspath(path)!r} is a folder; name a file")
    if not path.is_file():
        raise DataError(f"{os.fspath(path)!r} is a pipe or a device, not a regular file; save its content to a file first")


def read_bytes(path: Path) -> bytes:
    """What a file holds, unpacked if it is a ``.gz``; one that would fill memory is refused."""
    try:
        size = path.stat().st_size
        check_size(path, size)
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = _unpack(path, file, size) if packed else file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path}: cannot be read ({error})") from None
    if not content.strip():
        raise DataError(f"{path} is empty")
    return content


def _unpack(path: Path, file: BinaryIO, size: int) -> bytes:
    """What a ``.gz`` holds, block by block, so that one made to fill memory is refused early."""
    most, content = unpacked_budget(size), bytearray()
    with gzip.GzipFile(fileobj=file) as unpacked:
        while block := unpacked.read(BLOCK):
            content += block
            if len(content) > most or (len(content) > SMALL and len(content) > 2 * MAX_RATIO * file.tell()):
                raise FormatError(
                    f"{path}: its {size:,} bytes unpack to more than {min(most, len(content)):,}, which is refused; "
                    "unpack it yourself if it is sound"
                )
    return bytes(content)


def unpacked_budget(size: int) -> int:
    """How many bytes a packed file of this size may unpack to."""
    return min(MAX_BYTES, SMALL + MAX_RATIO * size)


def check_size(path: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise FormatError(f"{path}: {size:,} bytes are more than can be read at once ({MAX_BYTES:,}); cut the file into parts")


def decode(content: bytes, name: str, encoding: str | None = None) -> str:
    """Bytes as text: UTF-8, or what a byte order mark or the caller says."""
    chosen = encoding or next((e for mark, e in BYTE_ORDER_MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        return content.decode(chosen)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        hint = "" if encoding else "; name its encoding, for instance --encoding latin-1, or convert the file to UTF-8"
        raise FormatError(f"{name}, line {line}: not {chosen.upper()} text (byte {error.start}){hint}") from None
    except LookupError:
        raise ParameterError(f"the encoding {encoding!r} is not known; try utf-8, latin-1, cp1252 or utf-16") from None
    except ValueError as error:
        raise FormatError(f"{name}: not {chosen.upper()} text ({error})") from None
