"""Paths from one type to another along arguments: how entities reach each other."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from undirected.errors import DataError
from undirected.relational.schema import Schema

OUT, IN, TWIN = "out", "in", "twin"
MOST_PATHS = 2000  # from one type


class Step(NamedTuple):
    """One relation of a path: ``out`` from an entity to its argument, ``in`` from an argument to the entities that name it, or ``twin``
    from (a, b) to (b, a). ``type`` is the type that has the argument."""

    way: str
    type: str
    argument: int = 0

    def invert(self) -> Step:
        """The same relation, the other way round."""
        return self if self.way == TWIN else Step(IN if self.way == OUT else OUT, self.type, self.argument)


@dataclass(frozen=True)
class Path:
    """A sequence of steps from type ``start`` to type ``end``; without any, an entity stays where it is."""

    start: str
    steps: tuple[Step, ...]
    end: str

    def __len__(self) -> int:
        return len(self.steps)

    def invert(self) -> Path:
        """The path that leads back."""
        return Path(self.end, tuple(step.invert() for step in reversed(self.steps)), self.start)

    @property
    def is_own_inverse(self) -> bool:
        return self.invert() == self

    def write(self, schema: Schema) -> str:
        """The path as text, for instance ``pair -first-> nation <-second- pair``."""
        text = self.start
        for step in self.steps:
            if step.way == TWIN:
                text += f" ~ {step.type}"
                continue
            argument = schema[step.type].arguments[step.argument]
            text += f" -{argument.name}-> {argument.target}" if step.way == OUT else f" <-{argument.name}- {step.type}"
        return text


def list_paths(schema: Schema, start: str, order: int) -> list[Path]:
    """All paths from a type with at most ``order`` steps, the shortest first: the relation tree of the type.

    A step out never follows its own inverse directly, for it would lead back. A twin stands alone.
    """
    found = [Path(start, (), start)]
    newest = found
    for _ in range(order):
        newest = list(itertools.islice((longer for path in newest for longer in _lengthen(schema, path)), MOST_PATHS + 1))
        found = found + newest
        if len(found) > MOST_PATHS:
            raise DataError(
                f"there are more than {MOST_PATHS:,} paths of at most {order} steps from type {start!r}; choose a smaller order"
            )
    if order > 0 and schema[start].has_twins:
        found.insert(1, Path(start, (Step(TWIN, start),), start))
    return found


def _lengthen(schema: Schema, path: Path) -> list[Path]:
    """The path with each relation that may come next."""
    outward = [(Step(OUT, path.end, k), a.target) for k, a in enumerate(schema[path.end].arguments)]
    last = path.steps[-1] if path.steps else None
    following = [(step, end) for step, end in outward if last is None or step != last.invert()]
    return [Path(path.start, (*path.steps, step), end) for step, end in following + _list_inward(schema)[path.end]]


@functools.lru_cache(maxsize=64)
def _list_inward(schema: Schema) -> dict[str, list[tuple[Step, str]]]:
    """For each type the steps in from entities that name its entities."""
    inward: dict[str, list[tuple[Step, str]]] = {name: [] for name in schema.names}
    for kind in schema.types:
        for k, argument in enumerate(kind.arguments):
            inward[argument.target].append((Step(IN, kind.name, k), kind.name))
    return inward
