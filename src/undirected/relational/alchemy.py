"""Relational data read as Alchemy has it: predicates from a ``.mln`` file and ground atoms from a ``.db`` file."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain, Variable
from undirected.errors import DataError, FormatError, FormatWarning, did_you_mean
from undirected.kernels.types import Array
from undirected.relational.data import Entities, RelationalData
from undirected.relational.frames import MOST_CELLS, TRUTH
from undirected.relational.schema import Argument, EntityType, Schema

_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"({_QUOTED})|//[^\n]*|/\*.*?\*/", re.S)
_DECLARED = re.compile(r"([A-Za-z_]\w*)\s*\(\s*([a-z]\w*\s*!?(?:\s*,\s*[a-z]\w*\s*!?)*)\s*\)")
_TYPE = re.compile(r"([a-z]\w*)\s*=\s*\{(.*)\}", re.S)
_FUNCTION = re.compile(r"[a-z]\w*\s+[A-Za-z_]\w*\s*\(\s*[a-z]\w*(\s*,\s*[a-z]\w*)*\s*\)")
_ATOM = re.compile(r"([!?]?)\s*([A-Za-z_]\w*)\s*\((.*)\)")
_CONSTANT = re.compile(rf"\s*({_QUOTED}|[^\s,\"(){{}}]+)\s*(,|$)")
_OPEN_END = re.compile(r"(=>|[\^,(]|\bv)\s*$")
TRUE, FALSE, UNKNOWN = 1, 0, -1


@dataclass(frozen=True)
class Predicate:
    """A declared predicate: its name, the types of its arguments, and which of them are functional (marked with ``!``)."""

    name: str
    types: tuple[str, ...]
    functional: tuple[bool, ...]


@dataclass
class Program:
    """What a ``.mln`` file declares: predicates, and the constants of each type in order."""

    predicates: dict[str, Predicate] = field(default_factory=dict)
    constants: dict[str, dict[str, int]] = field(default_factory=dict)

    def place(self, kind: str, constant: str) -> int:
        """The place of a constant among those of its type; a new one is added."""
        known = self.constants[kind]
        return known.setdefault(constant, len(known))

    def find_value_types(self) -> set[str]:
        """The types that occur in functional places only: their constants are values, not entities."""
        places = [place for p in self.predicates.values() for place in zip(p.types, p.functional, strict=True)]
        return {kind for kind, functional in places if functional} - {kind for kind, functional in places if not functional}


@dataclass
class Atoms:
    """The ground atoms of a predicate: the places of the constants of each, whether it is true, false or unknown, and its line."""

    places: list[tuple[int, ...]] = field(default_factory=list)
    truths: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def read_alchemy(
    mln_path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    closed_world: bool = True,
    cross_product: bool | None = None,
    self_pairs: bool | None = None,
    like: Schema | None = None,
) -> RelationalData:
    """Read predicate declarations and types from a ``.mln`` file and ground atoms from a ``.db`` file; formulas are passed over.

    ``Smokes(person)`` becomes a yes/no attribute of the type ``person``, and ``Friends(person, person)`` one of the type of links
    ``person_person``. ``Age(person, age!)``, where ``age`` stands in such places only, becomes an attribute whose states are the ages.
    ``Advisor(person, professor!)``, where professors stand in other places, too, stays a yes/no attribute of pairs, of which one is true
    for each person: where one is told, the others are false, and where none is, all are unknown. Atoms are true, false after ``!``, and
    unknown after ``?``.

    Parameters
    ----------
    closed_world
        Whether what is not listed is false; otherwise it is unknown. An attribute of more than two states that is not listed is unknown.
    cross_product
        Store all tuples of entities, or only those of which something is told; by default all, unless the world is open or they have more
        than 200 million cells.
    self_pairs
        Whether an entity makes a pair with itself; by default, if an atom tells of such a pair.
    like
        The schema of other data or of a model, whose values are taken for attributes of more than two states.
    """
    program = _read_program(Path(mln_path))
    known = {} if like is None else _take_values(program, like)
    atoms = _read_atoms(Path(db_path), program)
    for kind, names in known.items():
        new = [constant for constant in program.constants[kind] if constant not in names]
        if new:
            raise DataError(f"{os.fspath(db_path)}: the value {new[0]!r} of {kind} is not known to the model.{did_you_mean(new[0], names)}")
    values = program.find_value_types()
    of_tuples: dict[tuple[str, ...], list[Predicate]] = {}
    for predicate in program.predicates.values():
        kinds = tuple(kind for kind in predicate.types if kind not in values)
        n_values = len(predicate.types) - len(kinds)
        if not kinds or n_values > 1:
            what = "entities" if not kinds else "one functional value at most"
            raise DataError(f"{os.fspath(mln_path)}: the predicate {predicate.name!r} needs {what} among its arguments")
        of_tuples.setdefault(kinds, []).append(predicate)
    source = Path(db_path).name
    entity_types = [kind for kind in program.constants if kind not in values and any(kind in kinds for kinds in of_tuples)]
    tables = []
    for kinds in [*((kind,) for kind in entity_types), *(kinds for kinds in of_tuples if len(kinds) > 1)]:
        maker = _Maker(program, values, kinds, of_tuples.get(kinds, []), atoms, os.fspath(db_path))
        tables.append(maker.make(closed_world, cross_product, self_pairs, entity_types))
    return RelationalData(tables, source)


def _take_values(program: Program, like: Schema) -> dict[str, tuple[str, ...]]:
    """Let the constants of types of values be the states that a schema has for their attributes, in its order."""
    states = {variable.name: variable.states for kind in like.types for variable in kind.attributes.variables}
    known: dict[str, tuple[str, ...]] = {}
    for predicate in program.predicates.values():
        for kind in set(predicate.types) & program.find_value_types():
            if predicate.name in states:
                known[kind] = states[predicate.name]
                listed = program.constants[kind]
                program.constants[kind] = {constant: k for k, constant in enumerate(dict.fromkeys([*known[kind], *listed]))}
    return known


def _strip_comments(text: str) -> str:
    """Take comments out, but for their line breaks, and leave quoted texts alone."""
    return _COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text)


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"there is no file {os.fspath(path)!r}")
    return _strip_comments(path.read_text("utf-8-sig", errors="replace"))


def _read_program(path: Path) -> Program:
    """Read the declarations of a ``.mln`` file."""
    program = Program()
    text = _read_text(path)
    goes_on = False
    joined = re.sub(r"\{[^{}]*\}", lambda found: found[0].replace("\n", " \v"), text)  # constants may stand on several lines
    number = 1
    for raw in joined.split("\n"):
        line, here = raw.replace("\v", "").strip(), number
        number += 1 + raw.count("\v")
        where = f"{os.fspath(path)}, line {here}"
        was_open, goes_on = goes_on, bool(_OPEN_END.search(line)) or (goes_on and not line)
        if not line or was_open:
            continue
        if line.startswith("#include"):
            raise FormatError(f"{where}: #include is not followed; put the lines of that file here")
        if found := _TYPE.fullmatch(line):
            known = program.constants.setdefault(found[1], {})
            for constant in _expand(_split_constants(found[2], where)):
                known.setdefault(constant, len(known))
        elif found := _DECLARED.fullmatch(line):
            _declare(program, found[1], found[2], where)
        elif _FUNCTION.fullmatch(line):
            raise FormatError(f"{where}: functions are not read; declare a predicate with a functional argument, as Mother(child, person!)")
        elif "(" not in line:
            raise FormatError(f"{where}: {line[:60]!r} is no predicate, type or formula")
    if not program.predicates:
        raise FormatError(f"{os.fspath(path)} declares no predicates; one looks like Friends(person, person)")
    return program


def _declare(program: Program, name: str, arguments: str, where: str) -> None:
    """Take a declaration; one that has the form of an earlier predicate is a formula about it and is passed over."""
    parts = [part.strip() for part in arguments.split(",")]
    types = tuple(part.rstrip("!").strip() for part in parts)
    predicate = Predicate(name, types, tuple(part.endswith("!") for part in parts))
    before = program.predicates.get(name)
    if before is not None:
        if len(before.types) != len(types) or (any(predicate.functional) and predicate != before):
            raise FormatError(f"{where}: the predicate {name!r} is declared twice, with other arguments")
        return
    program.predicates[name] = predicate
    for kind in types:
        program.constants.setdefault(kind, {})


def _split_constants(text: str, where: str) -> list[str]:
    """The constants of a list with commas; quotes around them are taken off."""
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _CONSTANT.match(text, at)
        if match is None or (match[2] == "," and not text[match.end() :].strip()):
            raise FormatError(f"{where}: {text[at : at + 60].strip()!r} is no list of constants; put odd ones in double quotes")
        found.append(re.sub(r"\\(.)", r"\1", match[1][1:-1]) if match[1].startswith('"') else match[1])
        at = match.end()
    return found


def _expand(constants: Sequence[str]) -> Iterator[str]:
    """Write ``1, ..., 10`` out."""
    for k, constant in enumerate(constants):
        inside = 0 < k < len(constants) - 1
        if constant == "..." and inside and constants[k - 1].isdecimal() and constants[k + 1].isdecimal():
            yield from map(str, range(int(constants[k - 1]) + 1, int(constants[k + 1])))
        else:
            yield constant


def _read_atoms(path: Path, program: Program) -> dict[str, Atoms]:
    """Read the ground atoms of a ``.db`` file; their constants are added to those of their types."""
    atoms = {name: Atoms() for name in program.predicates}
    for number, raw in enumerate(_read_text(path).split("\n"), 1):
        line = raw.strip()
        if not line:
            continue
        where = f"{os.fspath(path)}, line {number}"
        found = _ATOM.fullmatch(line)
        if found is None:
            raise FormatError(f"{where}: {line[:60]!r} is no ground atom; one looks like Friends(Anna, Bob) or !Smokes(Bob)")
        sign, name, text = found.groups()
        if name not in program.predicates:
            raise DataError(f"{where}: the predicate {name!r} is not declared.{did_you_mean(name, program.predicates)}")
        types, constants = program.predicates[name].types, _split_constants(text, where)
        if len(constants) != len(types):
            raise DataError(f"{where}: {name} has {len(constants)} arguments here and {len(types)} in its declaration")
        told = atoms[name]
        told.places.append(tuple(program.place(kind, constant) for kind, constant in zip(types, constants, strict=True)))
        told.truths.append({"": TRUE, "!": FALSE, "?": UNKNOWN}[sign])
        told.lines.append(number)
    return atoms


class _Maker:
    """Makes the entities of a type, or the tuples of several, from the atoms of the predicates about them."""

    def __init__(
        self,
        program: Program,
        values: set[str],
        kinds: tuple[str, ...],
        predicates: Sequence[Predicate],
        atoms: dict[str, Atoms],
        path: str,
    ) -> None:
        self.program, self.values, self.kinds, self.predicates, self.atoms, self.path = program, values, kinds, predicates, atoms, path
        self.sizes = tuple(len(program.constants[kind]) for kind in kinds)
        if math.prod(self.sizes) >= 1 << 62:
            raise DataError(f"{path}: the predicates of {', '.join(kinds)} have more than 2^62 atoms; leave some of them out")

    def make(self, closed: bool, cross_product: bool | None, self_pairs: bool | None, taken: Sequence[str]) -> Entities:
        tuples = {predicate.name: self._number(predicate) for predicate in self.predicates}
        numbers = self._list_tuples(list(tuples.values()), closed, cross_product, self_pairs)
        coded = [self._code(predicate, tuples[predicate.name], numbers, closed) for predicate in self.predicates]
        domain = Domain([variable for variable, _ in coded])
        codes = np.stack([own for _, own in coded], axis=1) if coded else np.zeros((len(numbers), 0), np.int8)
        cells = Dataset(domain, codes, source=self.path)
        if len(self.kinds) == 1:
            keys = tuple(self.program.constants[self.kinds[0]])
            return Entities(EntityType(self.kinds[0], domain), cells, np.zeros((len(keys), 0), np.int32), keys)
        name = "_".join(self.kinds)
        while name in taken:
            name += "_link"
        arguments = tuple(Argument(f"{kind}{k}", kind) for k, kind in enumerate(self.kinds, 1))
        return Entities(EntityType(name, domain, arguments), cells, self._split(numbers))

    def _number(self, predicate: Predicate) -> Array:
        """The number of the tuple that each atom is about."""
        inside = [k for k, kind in enumerate(predicate.types) if kind not in self.values]
        places = np.array(self.atoms[predicate.name].places, dtype=np.int64).reshape(-1, len(predicate.types))[:, inside]
        return np.ravel_multi_index(tuple(places.T), self.sizes) if len(places) else np.zeros(0, np.int64)

    def _split(self, numbers: Array) -> Array:
        """The entities of tuples."""
        if not len(numbers):
            return np.zeros((0, len(self.sizes)), np.int32)
        return np.stack(np.unravel_index(numbers, self.sizes), axis=1).astype(np.int32)

    def _list_tuples(self, told: Sequence[Array], closed: bool, cross_product: bool | None, self_pairs: bool | None) -> Array:
        """The numbers of the tuples that are stored, in order: all of them, or those of which something is told."""
        n_tuples = math.prod(self.sizes)
        if len(self.kinds) == 1:
            return np.arange(n_tuples)
        listed = np.unique(np.concatenate([*told, np.zeros(0, np.int64)]))
        everything = cross_product if cross_product is not None else closed and n_tuples * len(self.predicates) <= MOST_CELLS
        if everything and n_tuples * len(self.predicates) > MOST_CELLS:
            raise DataError(
                f"{self.path}: all {n_tuples:,} tuples of {', '.join(self.kinds)} are too many to store; leave out cross_product"
            )
        on_itself = self_pairs if self_pairs is not None else bool(self._name_twice(listed).any())
        numbers = np.arange(n_tuples) if everything else listed
        return numbers if on_itself else numbers[~self._name_twice(numbers)]

    def _name_twice(self, numbers: Array) -> Array:
        """Which tuples name one entity twice."""
        split, twice = self._split(numbers), np.zeros(len(numbers), dtype=bool)
        for k, kind in enumerate(self.kinds):
            for earlier in range(k):
                if self.kinds[earlier] == kind:
                    twice |= split[:, k] == split[:, earlier]
        return twice

    def _code(self, predicate: Predicate, tuples: Array, numbers: Array, closed: bool) -> tuple[Variable, Array]:
        """The attribute that a predicate is, and its codes."""
        atoms = self.atoms[predicate.name]
        at = np.searchsorted(numbers, tuples)
        stored = np.isin(tuples, numbers)
        rows, truths = at[stored], np.array(atoms.truths, dtype=np.int64)[stored]
        lines = np.array(atoms.lines, dtype=np.int64)[stored]
        value_place = [k for k, kind in enumerate(predicate.types) if kind in self.values]
        if value_place:
            states = tuple(self.program.constants[predicate.types[value_place[0]]])
            if not states:
                raise DataError(f"{self.path}: nothing tells which values the predicate {predicate.name!r} may have")
            which = np.array([place[value_place[0]] for place in atoms.places], dtype=np.int64)[stored]
            return Variable(predicate.name, states), self._code_values(predicate, rows, which, truths, lines, len(numbers))
        codes = np.full(len(numbers), 0 if closed else -1, np.int8)
        self._check_agreement(predicate, rows, truths, lines)
        if any(predicate.functional):
            self._settle_functional(predicate, numbers, codes, rows[truths == TRUE], lines[truths == TRUE])
        codes[rows] = truths
        return Variable(predicate.name, TRUTH), codes

    def _code_values(self, predicate: Predicate, rows: Array, which: Array, truths: Array, lines: Array, n: int) -> Array:
        """The codes of an attribute of several states: the one that is true; without one, unknown."""
        codes = np.full(n, -1, np.int16)
        is_true = truths == TRUE
        codes[rows[is_true]] = which[is_true]
        again = is_true & (codes[rows] != which)
        against = (truths != TRUE) & (codes[rows] == which)
        self._refuse(predicate, again | against, lines, "has another value, too" if again.any() else "is told to be true, too")
        if ((truths == FALSE) & (codes[rows] < 0)).any():
            warnings.warn(
                f"{self.path}: false atoms of {predicate.name}, whose true value is not told, are left out", FormatWarning, stacklevel=2
            )
        return codes

    def _settle_functional(self, predicate: Predicate, numbers: Array, codes: Array, rows: Array, lines: Array) -> None:
        """One value is true for each of the other arguments: where one is told the others are false, and where none is, unknown."""
        others = [k for k, functional in enumerate(predicate.functional) if not functional]
        split = self._split(numbers)[:, others]
        group = np.unique(split, axis=0, return_inverse=True)[1].ravel() if others else np.zeros(len(numbers), np.int64)
        chosen = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
        chosen[group[rows]] = rows
        self._refuse(predicate, chosen[group[rows]] != rows, lines, "has another value, too")
        codes[:] = np.where(chosen[group] < 0, -1, 0)

    def _check_agreement(self, predicate: Predicate, rows: Array, truths: Array, lines: Array) -> None:
        """Raise where an atom is told twice and differently."""
        last = dict(zip(rows.tolist(), truths.tolist(), strict=True))
        self._refuse(predicate, np.array([last[r] for r in rows.tolist()], dtype=np.int64) != truths, lines, "is told otherwise further on")

    def _refuse(self, predicate: Predicate, bad: Array, lines: Array, what: str) -> None:
        if bad.any():
            raise DataError(
                f"{self.path}, line {int(lines[int(np.argmax(bad))])}: this atom of {predicate.name} {what}; leave one of them out"
            )
