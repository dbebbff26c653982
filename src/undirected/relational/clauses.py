"""First-order clauses: how they are written and read, and how many of their groundings are true.

A clause such as ``!Smokes(x) v Friends(y,x) v Smokes(y)`` is a disjunction of literals; entities in the place of its variables make a
*grounding*. Groundings are counted as contractions of dense tensors and never listed: a grounding is false where all of its literals are.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from undirected.errors import DataError, FormatError, did_you_mean
from undirected.kernels.types import Array
from undirected.relational.beliefs import Beliefs, spread_states
from undirected.relational.data import RelationalData
from undirected.relational.schema import Schema
from undirected.work import MEMORY

LETTERS = "xyzuwabcdefghijklmnopqrst"  # names of variables; `v` means "or"
_WEIGHT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s+(?=\S)")
_LITERAL = re.compile(r'\s*(!?)\s*([A-Za-z_]\w*)\s*\(((?:[^()"]|"(?:[^"\\]|\\.)*")*)\)')
_STATE = re.compile(r'(.*?)(?:,\s*)?("(?:[^"\\]|\\.)*")?\s*', re.DOTALL)
_OR = re.compile(r"\s+v\s+")


@dataclass(frozen=True)
class Predicate:
    """That an attribute has a certain state: true or false of an entity, or of the entities that a link joins.

    ``kinds`` are the types of its arguments. ``constant`` is the state, written as a last argument, where the attribute has more than two.
    """

    name: str
    kinds: tuple[str, ...]
    table: int  # the number of the type with the attribute
    attribute: int
    state: int
    constant: str | None = None


@dataclass(frozen=True, order=True)
class Literal:
    """A predicate, by number, of some variables, or its negation."""

    predicate: int
    arguments: tuple[int, ...]
    positive: bool = True

    def rename(self, names: Sequence[int]) -> Literal:
        """The same literal with other variables."""
        return Literal(self.predicate, tuple(names[a] for a in self.arguments), self.positive)

    def flip(self) -> Literal:
        return Literal(self.predicate, self.arguments, not self.positive)


@dataclass(frozen=True)
class Clause:
    """A disjunction of literals over variables 0, 1, ...; make one with `Clause.of`, so that equal clauses compare as equal."""

    literals: tuple[Literal, ...]

    @classmethod
    def of(cls, literals: Iterable[Literal]) -> Clause:
        """The clause of these literals, whose variables may have any numbers: names and order do not matter."""
        distinct = sorted(set(literals))
        variables = sorted({a for literal in distinct for a in literal.arguments})
        best: tuple[Literal, ...] | None = None
        for names in itertools.permutations(range(len(variables))):
            chosen = dict(zip(variables, names, strict=True))
            renamed = tuple(sorted(Literal(one.predicate, tuple(chosen[a] for a in one.arguments), one.positive) for one in distinct))
            best = renamed if best is None or renamed < best else best
        return cls(best or ())

    def __len__(self) -> int:
        return len(self.literals)

    @property
    def n_variables(self) -> int:
        return len({a for literal in self.literals for a in literal.arguments})

    @property
    def is_connected(self) -> bool:
        """Whether all literals hang together by shared variables."""
        reached: set[int] = set(self.literals[0].arguments) if self.literals else set()
        for _ in self.literals:
            for literal in self.literals:
                if reached & set(literal.arguments):
                    reached |= set(literal.arguments)
        return all(reached >= set(literal.arguments) for literal in self.literals)


class Vocabulary:
    """The predicates of a schema: one for each attribute of two states, true in the second, and one for each state of other attributes.

    Names are those of the attributes, with ``_`` for what Alchemy does not allow, and with the type in front where two would be alike.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        names = [_clean(v.name) for kind in schema.types for v in kind.attributes.variables]
        taken: set[str] = set()
        predicates: list[Predicate] = []
        self.slices: list[slice] = []  # the predicates of each type
        for number, kind in enumerate(schema.types):
            kinds = tuple(a.target for a in kind.arguments) if kind.is_link else (kind.name,)
            first = len(predicates)
            for v, variable in enumerate(kind.attributes.variables):
                name = _clean(variable.name)
                name = _clean(f"{kind.name}_{name}") if names.count(name) > 1 else name
                while name in taken:
                    name += "_"
                taken.add(name)
                if len(variable.states) == 2:
                    predicates.append(Predicate(name, kinds, number, v, 1))
                elif len(variable.states) > 2:
                    predicates += [Predicate(name, kinds, number, v, k, state) for k, state in enumerate(variable.states)]
            self.slices.append(slice(first, len(predicates)))
        self.predicates = tuple(predicates)
        self._find = {(p.name, p.constant): k for k, p in enumerate(predicates)}

    def __len__(self) -> int:
        return len(self.predicates)

    def find_kinds(self, clause: Clause) -> dict[int, str]:
        """The type of each variable; one that stands for two types is an error."""
        kinds: dict[int, str] = {}
        for literal in clause.literals:
            for variable, kind in zip(literal.arguments, self.predicates[literal.predicate].kinds, strict=True):
                if kinds.setdefault(variable, kind) != kind:
                    raise DataError(f"variable {LETTERS[variable]!r} stands for a {kinds[variable]!r} and for a {kind!r} in one clause")
        return kinds

    def write(self, clause: Clause, weight: float | None = None) -> str:
        """The clause as Alchemy writes it, after its weight if there is one."""
        parts = []
        for literal in clause.literals:
            predicate = self.predicates[literal.predicate]
            arguments = [LETTERS[a] for a in literal.arguments]
            if predicate.constant is not None:
                arguments.append(json.dumps(predicate.constant, ensure_ascii=False))
            parts.append(f"{'' if literal.positive else '!'}{predicate.name}({','.join(arguments)})")
        return ("" if weight is None else f"{float(weight)!r}  ") + " v ".join(parts)

    def read(self, text: str) -> tuple[Clause, float | None]:
        """A clause and its weight, None where none is written."""
        found = _WEIGHT.match(text)
        weight, place = (float(found[1]), found.end()) if found else (None, 0)
        literals: list[Literal] = []
        variables: dict[str, int] = {}
        while True:
            part = _LITERAL.match(text, place)
            if part is None:
                raise FormatError(f"{text!r}, column {place + 1}: a literal such as !Smokes(x) is needed")
            literals.append(self._read_literal(part, variables, text))
            place = part.end()
            joint = _OR.match(text, place)
            if joint is None:
                break
            place = joint.end()
        if text[place:].strip():
            raise FormatError(f"{text!r}, column {place + 1}: ' v ' and another literal, or the end, is needed")
        clause = Clause.of(literals)
        self.find_kinds(clause)
        return clause, weight

    def _read_literal(self, part: re.Match[str], variables: dict[str, int], text: str) -> Literal:
        inside = _STATE.fullmatch(part[3])
        constant = json.loads(inside[2]) if inside and inside[2] else None
        names = [name.strip() for name in (inside[1] if inside else part[3]).split(",")]
        number = self._find.get((part[2], constant))
        if number is None:
            known = {p.name for p in self.predicates}
            what = f"predicate {part[2]!r}" + (f" with the state {constant!r}" if part[2] in known else "")
            raise FormatError(f"{text!r}: there is no {what}.{did_you_mean(part[2], known)}")
        if len(names) != len(self.predicates[number].kinds) or not all(re.fullmatch("[a-z]\\w*", name) for name in names):
            raise FormatError(f"{text!r}: {part[2]} needs {len(self.predicates[number].kinds)} variables, in small letters")
        return Literal(number, tuple(variables.setdefault(name, len(variables)) for name in names), not part[1])


class GroundAtoms:
    """How true each ground atom is, in dense tensors with an axis for each argument.

    Unknown attributes stand at their marginals until `believe` says otherwise. Tuples that are no link have no atoms, and groundings that
    name them do not count.
    """

    def __init__(self, vocabulary: Vocabulary, data: RelationalData, memory: int = MEMORY) -> None:
        self.vocabulary = vocabulary
        self.sizes = {table.type.name: len(table) for table in data.tables}
        self.rows: list[Array] = []  # where in the flat tensor the entities of each type stand
        self.exists: list[Array] = []
        self.true: list[Array] = []  # predicates of the type by arguments
        self.false: list[Array] = []
        for number, table in enumerate(data.tables):
            kind, n = table.type, len(vocabulary.predicates[vocabulary.slices[number]])
            shape = tuple(self.sizes[a.target] for a in kind.arguments) if kind.is_link else (len(table),)
            needed = 8 * (n + 1) * int(np.prod([float(s) for s in shape])) if n else 0
            if needed > memory:
                raise DataError(
                    f"type {kind.name!r}: all {' x '.join(map(str, shape))} tuples with {n} predicates take {needed:,} bytes, more than the"
                    f" {memory:,} of `memory`; clauses are counted in full tables, so take fewer entities or another learner"
                )
            where = table.arguments if kind.is_link else np.arange(len(table))[:, None]
            if n and (where < 0).any():
                row = int(np.argmax((where < 0).any(axis=1)))
                raise DataError(f"type {kind.name!r}, row {row + 1}: an argument names no entity, so that its attributes are no atoms")
            flat = np.ravel_multi_index(tuple(where.T), shape) if n else np.zeros(0, np.int64)
            if len(np.unique(flat)) < len(flat):
                raise DataError(f"type {kind.name!r}: two links join the same entities; clauses tell them apart by their arguments only")
            exists = np.zeros(int(np.prod(shape)) if n else 0, np.float32)
            exists[flat] = 1
            shape = shape if n else (0,) * len(shape)
            self.rows.append(flat)
            self.exists.append(exists.reshape(shape))
            self.true.append(np.zeros((n, *shape), np.float32))
            self.false.append(np.repeat(self.exists[-1][None], n, axis=0))
        beliefs = Beliefs.of(data)
        self.known = beliefs.known  # entities by attributes
        for number, table in enumerate(data.tables):
            chances = spread_states(table, beliefs.values[number])
            for k, predicate in self.list_predicates(number):
                self.believe(k, chances[predicate.attribute][:, predicate.state])

    def list_predicates(self, number: int) -> Iterator[tuple[int, Predicate]]:
        """The predicates of a type, with their numbers."""
        span = self.vocabulary.slices[number]
        return zip(range(span.start, span.stop), self.vocabulary.predicates[span], strict=True)

    def believe(self, predicate: int, chances: Array, marks: Array | None = None) -> None:
        """Set how probable a predicate is of each entity of its type, or of those marked."""
        table = self.vocabulary.predicates[predicate].table
        place = predicate - self.vocabulary.slices[table].start
        marked = slice(None) if marks is None else marks
        self.true[table][place].reshape(-1)[self.rows[table][marked]] = chances[marked]
        self.false[table][place] = self.exists[table] - self.true[table][place]

    def find_falsehood(self, literal: Literal) -> Array:
        """How probable it is, for each tuple of arguments, that the literal is false."""
        table = self.vocabulary.predicates[literal.predicate].table
        place = literal.predicate - self.vocabulary.slices[table].start
        return np.asarray((self.false if literal.positive else self.true)[table][place])

    def contract(self, factors: Sequence[tuple[Array, Sequence[int]]], out: Sequence[int], kinds: dict[int, str]) -> Array:
        """The sum of products of tensors over all values of all variables but those of ``out``, each of which is an axis of the result."""
        reached = {a for _, arguments in factors for a in arguments}
        ones = [(np.ones(self.sizes[kinds[a]], np.float32), (a,)) for a in out if a not in reached]
        parts = [*factors, *ones]
        text = ",".join("".join(map(_letter, arguments)) for _, arguments in parts) + "->" + "".join(map(_letter, out))
        tensors = [tensor for tensor, _ in parts]
        return np.asarray(np.einsum(text, *tensors, optimize=_plan(text, tuple(tensor.shape for tensor in tensors))))

    def count_groundings(self, clause: Clause) -> tuple[float, float]:
        """How many groundings are true, and how many there are."""
        kinds = self.vocabulary.find_kinds(clause)
        tables = [self.vocabulary.predicates[one.predicate].table for one in clause.literals]
        exists = [(self.exists[t].astype(float), one.arguments) for t, one in zip(tables, clause.literals, strict=True)]
        false = [(self.find_falsehood(one).astype(float), one.arguments) for one in clause.literals]
        total = float(self.contract(exists, (), kinds))
        return total - float(self.contract(false, (), kinds)), total

    def count_differences(self, clause: Clause, only: tuple[int, int] | None = None) -> dict[int, Array]:
        """By predicate, for each entity of its type: by how much the number of true groundings rises if the atom becomes true.

        ``only`` is a type and an attribute, by number, whose predicates alone are looked at.
        Of an attribute with more than two states exactly one atom is true: the differences between its predicates tell by how much one
        state is ahead of another. A grounding in which several literals name one cell counts once: sums over such groundings are sums of
        the clause with the variables made equal, and are taken out of the sums of fewer of its literals.
        """
        groups: dict[tuple[int, int], list[int]] = {}
        for k, literal in enumerate(clause.literals):
            predicate = self.vocabulary.predicates[literal.predicate]
            if only in (None, (predicate.table, predicate.attribute)):
                groups.setdefault((predicate.table, predicate.attribute), []).append(k)
        found: dict[int, Array] = {}
        for places in groups.values():
            exact: dict[tuple[int, ...], Array] = {}
            for hits in (h for size in range(len(places), 0, -1) for h in itertools.combinations(places, size)):
                sums = self._sum_others(clause, hits)
                for larger, part in exact.items():
                    if set(hits) < set(larger):
                        rest = [self.find_falsehood(clause.literals[k]) for k in larger if k not in hits]
                        sums = sums - part * functools.reduce(np.multiply, rest)
                exact[hits] = sums
                for k, sign in _tell_effects([clause.literals[h] for h in hits]).items():
                    found[k] = found[k] + sign * sums if k in found else sign * sums
        return {k: v.reshape(-1)[self.rows[self.vocabulary.predicates[k].table]] for k, v in found.items()}

    def _sum_others(self, clause: Clause, hits: Sequence[int]) -> Array:
        """For each tuple of arguments, the number of groundings in which the literals ``hits`` name it and all others are false."""
        names = list(range(max(a for one in clause.literals for a in one.arguments) + 1))
        first = clause.literals[hits[0]].arguments
        for k in hits[1:]:
            for here, there in zip(first, clause.literals[k].arguments, strict=True):
                keep, drop = names[here], names[there]
                names = [keep if name == drop else name for name in names]
        kinds = {names[a]: kind for a, kind in self.vocabulary.find_kinds(clause).items()}
        out = tuple(names[a] for a in first)
        rest = [one.rename(names) for k, one in enumerate(clause.literals) if k not in hits]
        axes = tuple(dict.fromkeys(out))
        sums = self.contract([(self.find_falsehood(one), one.arguments) for one in rest], axes, kinds)
        return sums if axes == out else spread_diagonal(sums, out, axes)


def spread_diagonal(sums: Array, out: Sequence[int], axes: Sequence[int]) -> Array:
    """A tensor with an axis for each of ``out``, where equal variables have equal values, and zeros elsewhere."""
    sizes = dict(zip(axes, sums.shape, strict=True))
    whole = np.zeros([sizes[a] for a in out], sums.dtype)
    grid = dict(zip(axes, np.indices(sums.shape), strict=True))
    whole[tuple(grid[a] for a in out)] = sums
    return whole


def _tell_effects(literals: Sequence[Literal]) -> dict[int, int]:
    """Where all of these literals name one cell: the predicates whose truth there makes the grounding true (1) or false (-1)."""
    wanted = {one.predicate for one in literals if one.positive}
    unwanted = {one.predicate for one in literals if not one.positive}
    if not unwanted:
        return dict.fromkeys(sorted(wanted), 1)
    return {} if len(unwanted) > 1 or unwanted & wanted else dict.fromkeys(unwanted, -1)


@functools.lru_cache(maxsize=10_000)
def _plan(text: str, shapes: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """The order of products that costs least."""
    stand_ins = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    return list(np.einsum_path(text, *stand_ins, optimize="optimal")[0])


def _letter(variable: int) -> str:
    return chr(ord("a") + variable)


def _clean(name: str) -> str:
    """A name that Alchemy can read."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    return name if re.match("[A-Za-z]", name) else f"p{name}"
