"""Data sets by name: a local folder first, then a cache, then, for the 20 benchmark sets, a download that is checked.

The folder named by ``UNDIRECTED_DATA`` holds ``<group>/<name>.npz`` (packed splits) and ``<group>/<name>.tsv.gz`` (tables).
Downloads come from the public repository of the benchmark sets and land in the folder named by ``UNDIRECTED_CACHE``, by
default the user's cache folder.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from undirected.data.arrays import take_bits
from undirected.data.dataset import Dataset
from undirected.data.delimited import parse_digits
from undirected.data.npz import SPLITS, NpzReader, npz_splits
from undirected.data.raw import RawTable
from undirected.data.readers import Reading, read_data, read_raw
from undirected.data.variables import Variable
from undirected.errors import DataError, DownloadError, TableWarning, did_you_mean
from undirected.kernels.types import Array

REPOSITORY = "https://raw.githubusercontent.com/arranger1044/DEBD/master/datasets"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Entry:
    """One of the 20 benchmark sets: sizes and the sha256 of each split's text file."""

    name: str
    title: str
    rows: dict[str, int]
    variables: int
    density: float
    sha256: dict[str, str]

    def most_bytes(self, split: str) -> int:
        """Say how large the text of a split can be: a digit and a mark a cell, perhaps two marks at the end of a line."""
        return self.rows[split] * (2 * self.variables + 1)


@functools.cache
def benchmarks() -> dict[str, Entry]:
    """List the 20 benchmark sets of the GSSL and DTSL papers, by name."""
    text = resources.files("undirected.data").joinpath("benchmarks.tsv").read_text("utf8")
    entries = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        entries[row["name"]] = Entry(
            row["name"],
            row["title"],
            {s: int(row[s]) for s in SPLITS},
            int(row["variables"]),
            float(row["density"]),
            {s: row[f"sha256_{s}"] for s in SPLITS},
        )
    return entries


def local_folder() -> Path | None:
    """Find the folder of local data sets, if one is named."""
    named = os.environ.get("UNDIRECTED_DATA")
    return Path(named) if named else None


def cache_folder() -> Path:
    """Find the folder that downloads go to."""
    named = os.environ.get("UNDIRECTED_CACHE")
    if named:
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "undirected"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "undirected"


def local_files() -> dict[str, Path]:
    """List what the local folder holds, by name; packed splits before tables."""
    folder = local_folder()
    if folder is None or not folder.is_dir():
        return {}
    found: dict[str, Path] = {}
    for pattern, suffix in (("*/*.npz", ".npz"), ("*/*.tsv.gz", ".tsv.gz")):
        for path in sorted(folder.glob(pattern)):
            found.setdefault(path.name.removesuffix(suffix), path)
    return found


def names() -> list[str]:
    """List every data set that can be asked for by name."""
    return sorted({*BUILT_IN, *benchmarks(), *local_files()})


def where(name: str) -> str:
    """Say where a data set comes from: 'built in', 'local', 'cached' or 'download'."""
    if name in BUILT_IN:
        return "built in"
    if name in local_files():
        return "local"
    return "cached" if name in benchmarks() and all(_find_cached(name, s).exists() for s in SPLITS) else "download"


def has_splits(name: str) -> bool:
    """Whether a name, or an ``.npz`` file, holds training, validation and test rows; a single table does not."""
    path = local_files().get(name) or Path(name)
    if path.suffix.lower() == ".npz" and path.exists():
        return npz_splits(path) >= set(SPLITS)
    return name in BUILT_IN or (name not in local_files() and name in benchmarks())


def read_named(name: str, split: str = "train") -> RawTable:
    """Read a data set as it was found, for `read_data`."""
    if split not in SPLITS:
        raise DataError(f"there is no split {split!r}; choose one of {', '.join(SPLITS)}")
    if name in BUILT_IN:
        return BUILT_IN[name](split)
    local = local_files().get(name)
    if local is not None:
        if local.suffix == ".npz":
            table = NpzReader(local, split).read()
        elif split == "train":
            table = read_raw(local, Reading(header=True))
        else:
            raise DataError(f"{name} is one table without a {split} split; use {name!r} alone")
        table.source = f"{name}:{split}"
        return _fix_binary_states(table) if local.suffix == ".npz" else table
    if name not in benchmarks():
        raise DataError(f"there is no data set or file {name!r}.{did_you_mean(name, names())} See: undirected data list")
    path = _find_cached(name, split)
    if path.exists() and hashlib.sha256(content := path.read_bytes()).hexdigest() != benchmarks()[name].sha256[split]:
        warnings.warn(f"{path} is not the file that was downloaded; it is fetched again", TableWarning, stacklevel=2)
        path.unlink()
    if not path.exists():
        fetch(name, splits=(split,))
        content = path.read_bytes()
    parsed = parse_digits(content, f"{name}:{split}")
    if parsed is None:
        raise DataError(f"{path} does not hold rows of zeros and ones; delete it and try again")
    return _fix_binary_states(parsed)


def _fix_binary_states(table: RawTable) -> RawTable:
    """Give every column the states 0 and 1, whichever of them it holds."""
    table.fixed = {k: Variable(n, ("0", "1")) for k, n in enumerate(table.known_names)}
    return table


def _read_digits(split: str) -> RawTable:
    """Take scikit-learn's handwritten digits as 64 black-and-white pixels: 1,197 training, 200 validation, 400 test rows."""
    from sklearn.datasets import load_digits

    pixels = (load_digits().data >= 8).astype(np.uint8)
    pixel_names = [f"r{r}c{c}" for r in range(8) for c in range(8)]
    return _fix_binary_states(take_bits(pixels[_choose_digits(len(pixels), split)], pixel_names, f"digits:{split}"))


def read_digit_labels(split: str) -> Array:
    """Which digit each row of the handwritten digits shows."""
    from sklearn.datasets import load_digits

    labels = load_digits().target
    return np.asarray(labels[_choose_digits(len(labels), split)])


def _choose_digits(n: int, split: str) -> Array:
    order = np.random.default_rng(0).permutation(n)
    return np.sort({"train": order[:1197], "valid": order[1197:1397], "test": order[1397:]}[split])


BUILT_IN: dict[str, Callable[[str], RawTable]] = {"digits": _read_digits}


def _find_cached(name: str, split: str) -> Path:
    return cache_folder() / name / f"{name}.{split}.data"


def fetch(name: str, splits: tuple[str, ...] = SPLITS, progress: Progress | None = None) -> list[Path]:
    """Download a benchmark set into the cache: resumed where an earlier try stopped, checked, and moved into place whole."""
    if name not in benchmarks():
        if name in BUILT_IN or name in local_files():
            raise DataError(f"{name} is here already; nothing to fetch")
        raise DataError(f"{name!r} cannot be downloaded.{did_you_mean(name, benchmarks())} See: undirected data list")
    base = os.environ.get("UNDIRECTED_MIRROR", REPOSITORY).rstrip("/")
    done = []
    for split in splits:
        target = _find_cached(name, split)
        if not target.exists():
            url = f"{base}/{name}/{target.name}"
            entry = benchmarks()[name]
            _download(url, target, entry.sha256[split], entry.most_bytes(split), progress)
        done.append(target)
    return done


def _download(url: str, target: Path, sha256: str, most: int, progress: Progress | None) -> None:
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _receive(url, part, most, progress)
        found = hashlib.sha256(part.read_bytes()).hexdigest()
        if found != sha256:
            part.unlink()
            raise DownloadError(
                f"{url}: the file is not the published one (sha256 {found[:12]}..., expected {sha256[:12]}...); it was thrown "
                "away. Try again; if it happens again, the source has changed or something on the way alters files."
            )
        os.replace(part, target)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, DownloadError):
            raise
        raise DownloadError(f"{url}: {error}. What has arrived is kept; the next try goes on from there.") from None


def _receive(url: str, part: Path, most: int, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send: the part is whole, or not of this file
            return
        raise
    with response:
        if response.status != 206:
            have = 0
        expected = have + int(response.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as out:
            while block := response.read(1 << 16):
                have += len(block)
                if have > most:
                    break
                out.write(block)
                if progress is not None:
                    progress(part.name.removesuffix(".part"), have, expected)
    if have > most:
        part.unlink()
        raise DownloadError(f"{url}: more than the {most:,} bytes that this file can have; what had arrived was thrown away")
    if expected and have < expected:
        raise DownloadError(f"{url}: the connection ended after {have:,} of {expected:,} bytes; the next try goes on from there")


def load(name: str, split: str = "train") -> Dataset:
    """Load a data set by name, as a `Dataset`.

    >>> from undirected import datasets
    >>> datasets.load("digits", "test")
    <Dataset of 400 rows, 64 variables, from digits:test>
    """
    return read_data(f"{name}:{split}")


def find_relational(name: str) -> Path:
    """The folder of a benchmark set of entities and links."""
    folder = local_folder()
    known = sorted(p.name for p in (folder / "relational").glob("*") if p.is_dir()) if folder is not None else []
    if folder is None or name not in known:
        there = f"here are {', '.join(known)}" if known else "none is here: set UNDIRECTED_DATA to the folder that holds relational/"
        raise DataError(f"there is no relational data set {name!r}; {there}.{did_you_mean(name, known)}")
    return folder / "relational" / name
