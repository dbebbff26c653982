"""Networks in files; the suffix decides the format."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from undirected.data.dataset import Dataset
from undirected.data.variables import MAX_LITERALS, Domain
from undirected.errors import DataError, FormatError, did_you_mean
from undirected.features.feature_set import FeatureSet
from undirected.network.network import MarkovNetwork
from undirected.store import write_whole

READABLE = (".json", ".mn", ".uai")
WRITABLE = (*READABLE, ".graphml")
MAX_BYTES = 2 << 30


def check_suffix(path: str | os.PathLike[str], known: tuple[str, ...]) -> str:
    """The suffix of a path in small letters, if it is one of those known."""
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
    write_whole(path, writers[check_suffix(path, WRITABLE)](network))


def load(path: str | os.PathLike[str], domain: Domain | Dataset | MarkovNetwork | None = None) -> MarkovNetwork:
    """Read a network from ``.json``, ``.mn`` or ``.uai``; ``domain`` gives names and states to a network without names."""
    from undirected.formats import libra, native, uai

    readers = {".json": native.loads, ".mn": libra.loads, ".uai": uai.loads}
    network = readers[check_suffix(path, READABLE)](read_text(path), os.fspath(path))
    if domain is None:
        return network
    return _give_names(network, domain if isinstance(domain, Domain) else domain.domain, os.fspath(path))


def _give_names(network: MarkovNetwork, domain: Domain, name: str) -> MarkovNetwork:
    """Give names to the variables and states of a network without any."""
    own = network.domain
    if own == domain:
        return network
    if own.named:
        raise DataError(f"{name} has names of its own, which differ from those of the domain given; leave the domain out")
    if len(own) != len(domain):
        raise DataError(f"{name} has {len(own)} variables, but the domain given has {len(domain)}")
    for v, variable in enumerate(domain.variables):
        if own.n_states[v] != len(variable.states):
            raise DataError(
                f"variable {v} of {name} has {own.n_states[v]} states, but {variable.name!r} of the domain given has "
                f"{len(variable.states)} ({', '.join(variable.states[:8])})"
            )
    return MarkovNetwork(FeatureSet(domain, network.features.start, network.features.literals), network.weights)


def build_domain(sizes: Sequence[int], where: str) -> Domain:
    """Build a domain without names from declared numbers of states, which are checked before anything of their size is built."""
    if sum(sizes) > MAX_LITERALS:
        raise FormatError(f"{where}: the variables have {sum(sizes):,} states together; up to {MAX_LITERALS:,} are possible")
    try:
        return Domain.from_sizes(sizes)
    except FormatError:
        raise
    except DataError as error:
        raise FormatError(f"{where}: {error}") from None


def read_evidence(path: str | os.PathLike[str], domain: Domain) -> list[str]:
    """Read evidence for `MarkovNetwork.query` from a ``.evid`` file, or from any text file with one literal a line."""
    from undirected.formats import uai

    if Path(path).suffix.lower() == ".evid":
        return uai.loads_evidence(read_text(path), os.fspath(path), domain)
    return read_features(path)


def read_features(path: str | os.PathLike[str]) -> list[str]:
    """Read the lines of a text file with one feature a line; empty lines and those that start with # are left out."""
    lines = [line.strip() for line in read_text(path).splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file that is there, is not too large and not empty."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise DataError(_explain_missing(name))
    try:
        size = os.path.getsize(name)
        if size > MAX_BYTES:
            raise FormatError(f"{name}: {size:,} bytes are more than a network file may have ({MAX_BYTES:,})")
        text = Path(name).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from None
    if not text.strip():
        raise FormatError(f"{name} is empty")
    return text


def _explain_missing(name: str) -> str:
    """Why there is no regular file of this name, in a sentence."""
    if os.path.isdir(name):
        return f"{name!r} is a folder; name a file"
    if os.path.exists(name):
        return f"{name!r} is not a regular file (a pipe or a device?); networks and evidence are read from regular files only"
    try:
        beside = os.listdir(os.path.dirname(name) or ".")
    except (OSError, ValueError):
        beside = []
    return f"there is no file {name[:200]!r}.{did_you_mean(os.path.basename(name)[:200], beside)}"


__all__ = ["READABLE", "WRITABLE", "build_domain", "check_suffix", "load", "read_evidence", "read_features", "read_text", "save"]
