"""What relational data is made of: types of entities, with attributes, and arguments that lead to other types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from undirected.data.variables import Domain
from undirected.errors import DataError, did_you_mean


@dataclass(frozen=True)
class Argument:
    """A column of a type that names an entity of a ``target`` type: a foreign key."""

    name: str
    target: str


@dataclass(frozen=True)
class EntityType:
    """A kind of entity. One with two arguments or more is a *link*: its entities stand for pairs or tuples of others."""

    name: str
    attributes: Domain
    arguments: tuple[Argument, ...] = ()

    @property
    def is_link(self) -> bool:
        return len(self.arguments) > 1

    @property
    def has_twins(self) -> bool:
        """Whether entities are pairs of one type, so that (a, b) may have (b, a) for a twin."""
        return len(self.arguments) == 2 and self.arguments[0].target == self.arguments[1].target

    @property
    def n_active(self) -> int:
        """How many states of attributes have a weight of their own: all but the first of each."""
        return self.attributes.n_literals - len(self.attributes)


class Schema:
    """The types, by name, in a fixed order."""

    def __init__(self, types: Iterable[EntityType]) -> None:
        self.types = tuple(types)
        self._place = {kind.name: k for k, kind in enumerate(self.types)}
        if len(self._place) != len(self.types):
            raise DataError("two types have one name; rename one of them")
        for kind in self.types:
            for argument in kind.arguments:
                if argument.target not in self._place:
                    raise DataError(
                        f"argument {argument.name!r} of type {kind.name!r} leads to {argument.target!r}, which is no type."
                        f"{did_you_mean(argument.target, self._place)}"
                    )
        self._check_cycles()

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, name: str) -> EntityType:
        return self.types[self.index(name)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.types == other.types

    def __hash__(self) -> int:
        return hash(self.types)

    @property
    def names(self) -> list[str]:
        return [kind.name for kind in self.types]

    def index(self, name: str) -> int:
        """The place of a type; an unknown name is an error that names close ones."""
        if name not in self._place:
            raise DataError(f"there is no type {name!r}.{did_you_mean(name, self._place)} The types are {', '.join(self._place)}.")
        return self._place[name]

    def _check_cycles(self) -> None:
        """Raise where types lead to each other in a circle; one that leads to itself, as an employee to a manager, may."""
        leads = {kind.name: {a.target for a in kind.arguments} - {kind.name} for kind in self.types}
        while free := [name for name, targets in leads.items() if not targets & leads.keys()]:
            for name in free:
                del leads[name]
        if not leads:
            return
        trail = [next(iter(leads))]
        while (following := next(a.target for a in self[trail[-1]].arguments if a.target in leads and a.target != trail[-1])) not in trail:
            trail.append(following)
        circle = " -> ".join([*trail[trail.index(following) :], following])
        raise DataError(f"types refer to each other in a circle ({circle}); leave one of these columns out")


def describe_difference(learned: Schema, other: Schema) -> str:
    """Where data differs from the types that a model was learned from."""
    for kind in learned.types:
        if kind.name not in other.names:
            return f"there is no type {kind.name!r}, which the model was learned from.{did_you_mean(kind.name, other.names)}"
        own = other[kind.name]
        if own.arguments != kind.arguments:
            return f"the arguments of type {kind.name!r} are {_list(own)}, but the model was learned from {_list(kind)}"
        for variable in kind.attributes.variables:
            place = own.attributes.find(variable.name)
            if place is None:
                return f"type {kind.name!r} has no attribute {variable.name!r}.{did_you_mean(variable.name, own.attributes.names)}"
            if own.attributes[place] != variable:
                now, then = (", ".join(v.states[:8]) for v in (own.attributes[place], variable))
                return f"attribute {variable.name!r} of type {kind.name!r} has the states {now}, but the model was learned from {then}"
    return "there are types or attributes, or an order of them, that the model was not learned from"


def _list(kind: EntityType) -> str:
    return ", ".join(f"{argument.name} ({argument.target})" for argument in kind.arguments) or "none"
