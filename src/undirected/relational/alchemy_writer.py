"""Relational data written as Alchemy has it: predicates to a ``.mln`` file and ground atoms to a ``.db`` file."""

from __future__ import annotations

import os
import re
import warnings

import numpy as np

from undirected.errors import DataError, FormatWarning
from undirected.kernels.types import Array
from undirected.relational.data import Entities, RelationalData
from undirected.relational.frames import YES_NO
from undirected.relational.tables import SHOWN
from undirected.store import write_whole

PLAIN_CONSTANT = re.compile(r"[A-Z0-9][A-Za-z0-9_]*")


def write_alchemy(data: RelationalData, mln_path: str | os.PathLike[str], db_path: str | os.PathLike[str]) -> None:
    """Write types, constants and predicates to a ``.mln`` file, and ground atoms to a ``.db`` file, as `read_alchemy` reads them.

    A yes/no attribute is a predicate about an entity or about the arguments of a link, and any other has its states for values of a
    functional argument. The argument of an entity, as of an employee to a department, is a functional predicate. Links without
    attributes are one that is true. Unknown yes/no atoms are written with ``?``. Tuples that are not stored are read as false.
    """
    namer, declared, atoms = _Namer(), [], []
    targets = {argument.target for kind in data.schema.types for argument in kind.arguments}
    types = {}
    for table in data.tables:
        if table.type.is_link and table.type.name in targets:
            raise DataError(f"{data.source}: {table.type.name!r} are links that others name, for which Alchemy has no form; leave them out")
        if not table.type.is_link:
            types[table.type.name] = namer.name_type(table.type.name)
    lines = [f"{types[t.type.name]} = {{{', '.join(_list_constants(data, t))}}}" for t in data.tables if not t.type.is_link]
    for table in data.tables:
        kind, own = table.type, _list_tuples(data, table)
        about = [types[argument.target] for argument in kind.arguments] if kind.is_link else [types[kind.name]]
        for v, variable in enumerate(kind.attributes.variables):
            name, codes = namer.name_predicate(variable.name, kind.name), table.cells.codes[:, v]
            if variable.states in YES_NO:
                declared.append(f"{name}({', '.join(about)})")
                atoms += [f"{'?' * (code < 0)}{name}({own[row]})" for row, code in _list_told(codes, 0)]
            else:
                values = namer.name_values(name)
                states = [_quote(state) for state in variable.states]
                lines.append(f"{values} = {{{', '.join(states)}}}")
                declared.append(f"{name}({', '.join(about)}, {values}!)")
                atoms += [f"{name}({own[row]}, {states[code]})" for row, code in _list_told(codes, -1)]
        if kind.is_link and not len(kind.attributes):
            name = namer.name_predicate(kind.name, kind.name)
            declared.append(f"{name}({', '.join(about)})")
            atoms += [f"{name}({text})" for text in own]
        elif len(kind.arguments) == 1:
            name, target = namer.name_predicate(kind.arguments[0].name, kind.name), kind.arguments[0].target
            constants = _list_constants(data, data[target])
            declared.append(f"{name}({about[0]}, {types[target]}!)")
            atoms += [f"{name}({own[row]}, {constants[there]})" for row, there in _list_told(table.arguments[:, 0], -1)]
    namer.tell(os.fspath(mln_path))
    write_whole(mln_path, "\n".join(["// Types", *lines, "", "// Predicates", *declared, ""]))
    write_whole(db_path, "\n".join([*atoms, ""]))


def _list_told(codes: Array, untold: int) -> list[tuple[int, int]]:
    """The rows of which something is written, with their codes."""
    rows = np.flatnonzero(codes != untold)
    return list(zip(rows.tolist(), codes[rows].tolist(), strict=True))


def _list_constants(data: RelationalData, table: Entities) -> list[str]:
    return [_quote(data.name(table.type.name, row)) for row in range(len(table))]


def _list_tuples(data: RelationalData, table: Entities) -> list[str]:
    """What the atoms about each entity name: itself, or the arguments of a link."""
    if not table.type.is_link:
        return _list_constants(data, table)
    lacking = (table.arguments < 0).any(axis=1)
    _, first, place = np.unique(table.arguments, axis=0, return_index=True, return_inverse=True)
    again = first[place.ravel()] != np.arange(len(table))
    for bad, what in ((lacking, "an argument is unknown"), (again, "the same entities are named by an earlier row, too")):
        if bad.any():
            where = table.cells.where(int(np.argmax(bad)))
            raise DataError(f"{where}: {what}, for which Alchemy has no form; leave {table.type.name!r} out")
    parts = [_list_constants(data, data[argument.target]) for argument in table.type.arguments]
    return [", ".join(names[e] for names, e in zip(parts, row, strict=True)) for row in table.arguments.tolist()]


def _quote(text: str) -> str:
    """A constant as Alchemy writes it: odd ones in quotes."""
    if PLAIN_CONSTANT.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


class _Namer:
    """Gives types and predicates names that Alchemy can read, each another one, and remembers which it changed."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._changed: list[tuple[str, str]] = []

    def name_type(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain[:1].lower() + plain[1:] if plain[:1].isalpha() else f"t{plain}"
        return self._take(name, plain, plain)

    def name_values(self, predicate: str) -> str:
        """A type for the states of an attribute; it has no name of its own that could change."""
        changed = len(self._changed)
        name = self.name_type(f"{predicate}_value")
        del self._changed[changed:]
        return name

    def name_predicate(self, name: str, kind: str) -> str:
        plain, about = (re.sub(r"[^A-Za-z0-9_]", "_", text) for text in (name, kind))
        plain = plain if plain[:1].isalpha() or plain[:1] == "_" else f"P{plain}"
        return self._take(name, plain, f"{plain}_{about}")

    def _take(self, name: str, plain: str, longer: str) -> str:
        names = [plain, longer]
        while names[-1] in self._used:
            names.append(f"{longer}_{len(names)}")
        chosen = next(text for text in names if text not in self._used)
        self._used.add(chosen)
        if chosen != name:
            self._changed.append((name, chosen))
        return chosen

    def tell(self, path: str) -> None:
        """Warn of names that are written in another way."""
        if self._changed:
            shown = ", ".join(f"{old!r} as {new}" for old, new in self._changed[:SHOWN])
            more = f" and {len(self._changed) - SHOWN} more" if len(self._changed) > SHOWN else ""
            warnings.warn(f"{path}: names that Alchemy cannot read are written in another way: {shown}{more}", FormatWarning, stacklevel=3)
