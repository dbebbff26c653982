"""Files read within a budget."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from undirected.errors import DataError, FormatError, ParameterError, did_you_mean

MAX_BYTES = 2 << 30  # of a file that is read whole, or of what it unpacks to
NO_LIMIT = 1 << 62  # of a file that is read by chunks
MAX_RATIO, ALWAYS_UNPACKED = 120, 64 << 20  # beyond so many bytes, a file that unpacks to more than so many times its size is refused
UNPACKED_BLOCK = 16 << 20  # bytes unpacked at a time
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
    """Read what a file holds, unpacked if it is a ``.gz``; one that would fill memory is refused."""
    try:
        size = path.stat().st_size
        check_size(path, size)
        with path.open("rb") as file:
            content = b"".join(unpack_blocks(path, file, size, MAX_BYTES)) if is_packed(file) else file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path}: cannot be read ({error})") from None
    if not content.strip():
        raise DataError(f"{path} is empty")
    return content


def is_packed(file: BinaryIO) -> bool:
    """Whether a file that has just been opened is a ``.gz``, whatever its suffix says."""
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return packed


def unpack_blocks(path: Path, file: BinaryIO, size: int, most: int, block_bytes: int = UNPACKED_BLOCK) -> Iterator[bytes]:
    """Unpack a ``.gz`` block by block, so that one made to fill memory or to last for ever is refused early."""
    most, unpacked_bytes = min(most, unpacked_budget(size)), 0
    with gzip.GzipFile(fileobj=file) as unpacked:
        while block := unpacked.read(block_bytes):
            unpacked_bytes += len(block)
            if unpacked_bytes > most or (unpacked_bytes > ALWAYS_UNPACKED and unpacked_bytes > 2 * MAX_RATIO * file.tell()):
                raise FormatError(
                    f"{path}: its {size:,} bytes unpack to more than {min(most, unpacked_bytes):,}, which is refused; "
                    "unpack it yourself if it is sound"
                )
            yield block


def unpacked_budget(size: int) -> int:
    """Say how many bytes a packed file of this size may unpack to, however it is read."""
    return ALWAYS_UNPACKED + MAX_RATIO * size


def check_size(path: Path, size: int) -> None:
    """Raise for a file that is too large to be read whole."""
    if size > MAX_BYTES:
        raise FormatError(f"{path}: {size:,} bytes are more than can be read at once ({MAX_BYTES:,}); cut the file into parts")


def decode(content: bytes, name: str, encoding: str | None = None) -> str:
    """Take bytes as text: UTF-8, or what a byte order mark or the caller says."""
    chosen = choose_encoding(content, encoding)
    try:
        return content.decode(chosen)
    except UnicodeDecodeError as error:
        at = len(content) - len(error.object) + error.start  # a byte order mark may have been left out
        raise tell_undecodable(name, chosen, encoding, content.count(b"\n", 0, at) + 1, at) from None
    except LookupError:
        raise tell_unknown_encoding(encoding) from None
    except ValueError as error:
        raise FormatError(f"{name}: not {chosen.upper()} text ({error})") from None


def choose_encoding(start: bytes, encoding: str | None) -> str:
    """Choose how bytes become text: as the caller says, else by the byte order mark they start with, else as UTF-8."""
    return encoding or next((e for mark, e in BYTE_ORDER_MARKS.items() if start.startswith(mark)), "utf-8")


def tell_undecodable(name: str, chosen: str, encoding: str | None, line: int, byte: int) -> FormatError:
    """Make the error for bytes that are no text in the encoding that was ``chosen``."""
    hint = "" if encoding else "; name its encoding, for instance --encoding latin-1, or convert the file to UTF-8"
    return FormatError(f"{name}, line {line}: not {chosen.upper()} text (byte {byte}){hint}")


def tell_unknown_encoding(encoding: str | None) -> ParameterError:
    """Make the error for an encoding that Python does not know."""
    return ParameterError(f"the encoding {encoding!r} is not known; try utf-8, latin-1, cp1252 or utf-16")
