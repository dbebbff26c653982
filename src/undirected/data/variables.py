"""Variables with named states, and the domain they make together."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from undirected.errors import DataError, did_you_mean
from undirected.kernels.types import Array

MAX_STATES = 30_000
MAX_LITERALS = 1 << 22  # of a domain: more declared states than this are refused before anything is built
MISSING_STATE = "?"
TRUTH = ("False", "True")  # the states of a column of truth values, however they were written
_TRUTH_CODES = {"0": 0, "1": 1, **{form(word): code for code, word in enumerate(TRUTH) for form in (str, str.lower, str.upper)}}
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Variable:
    """A column: its name and its states, the first of which is the reference.

    A numeric column also has ``edges``, the cuts between its bins, learned on training data; state ``i`` then holds the
    values above ``edges[i - 1]`` and up to ``edges[i]``. ``ordered`` tells that the table declared its states as ordered.
    """

    name: str
    states: tuple[str, ...]
    edges: tuple[float, ...] | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        if not self.states:
            raise DataError(f"variable {self.name!r} has no states; a variable needs at least one")
        if len(self.states) > MAX_STATES:
            raise DataError(
                f"variable {self.name!r} has {len(self.states):,} states, more than {MAX_STATES:,}; "
                "drop it (an identifier?) or read it as a number"
            )
        if len(set(self.states)) != len(self.states):
            raise DataError(f"variable {self.name!r} has the state {first_repeated(self.states)!r} twice; state names must differ")
        check_showable(self.name, "a variable's name")
        check_showable("\n".join(self.states), f"a state of variable {self.name!r}")

    @functools.cached_property
    def has_order(self) -> bool:
        """Whether the order of the states means something: declared, bins, or numbers."""
        bins = self.edges is not None and len(self.states) == len(self.edges) + 1
        return self.ordered or bins or all(as_number(state) is not None for state in self.states)

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        codes = _TRUTH_CODES if self.states in (TRUTH, ("0", "1")) else {}
        return codes | {state: i for i, state in enumerate(self.states)}

    def find(self, state: str) -> int | None:
        """The code of a state, or None."""
        return self._index.get(state)

    def index(self, state: str) -> int:
        """The code of a state; an unknown one is an error that names close ones."""
        code = self.find(state)
        if code is None:
            shown = ", ".join(self.states[:8]) + (", ..." if len(self.states) > 8 else "")
            raise DataError(f"variable {self.name!r} has no state {state!r}.{did_you_mean(state, self.states)} Its states are {shown}.")
        return code


class Domain:
    """The variables of a table, in order.

    ``named`` tells whether the names came with the data; without names variables are called ``v0``, ``v1``, ... and
    tables are matched by position.
    """

    def __init__(self, variables: Iterable[Variable], named: bool = True) -> None:
        self.variables = tuple(variables)
        self.named = named
        self._position = {v.name: i for i, v in enumerate(self.variables)}
        if len(self._position) != len(self.variables):
            raise DataError(f"two columns are called {first_repeated(self.names)!r}; rename one of them")
        check_n_literals(sum(len(v.states) for v in self.variables))
        self.n_states = np.array([len(v.states) for v in self.variables], dtype=np.int32)
        self.base = np.concatenate([[0], np.cumsum(self.n_states)]).astype(np.int32)

    @classmethod
    def from_sizes(cls, sizes: Iterable[int]) -> Domain:
        """Variables without names whose states are 0, 1, ..."""
        sizes = list(sizes)
        check_n_literals(sum(sizes))
        return cls((Variable(f"v{i}", numbered_states(k)) for i, k in enumerate(sizes)), named=False)

    def __len__(self) -> int:
        return len(self.variables)

    def __getitem__(self, i: int) -> Variable:
        return self.variables[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.variables == other.variables

    def __hash__(self) -> int:
        return hash(self.variables)

    def __repr__(self) -> str:
        return f"<Domain of {len(self)} variables, {self.n_literals} literals>"

    @property
    def names(self) -> list[str]:
        return [v.name for v in self.variables]

    @property
    def n_literals(self) -> int:
        """How many ``variable=state`` there are."""
        return int(self.base[-1])

    @property
    def is_binary(self) -> bool:
        return bool((self.n_states == 2).all())

    @functools.cached_property
    def literal_variable(self) -> Array:
        return np.repeat(np.arange(len(self), dtype=np.int32), self.n_states)

    def find(self, name: str) -> int | None:
        """The position of a variable, or None."""
        return self._position.get(name)

    def index(self, name: str) -> int:
        """The position of a variable; an unknown name is an error that names close ones."""
        position = self.find(name)
        if position is None:
            raise DataError(f"there is no variable {name!r}.{did_you_mean(name, self._position)}")
        return position


@functools.lru_cache(maxsize=64)
def numbered_states(n: int) -> tuple[str, ...]:
    """The states 0, 1, ... as texts; variables of the same size share them."""
    return tuple(map(str, range(n)))


def check_n_literals(n: int) -> None:
    """Raises where variables have more states in all than a domain may have."""
    if n > MAX_LITERALS:
        raise DataError(f"the variables have {n:,} states in all, more than {MAX_LITERALS:,}; leave out columns of many states")


def check_showable(text: str, what: str) -> None:
    """Raises for characters that break terminals and files: control characters and halves of surrogate pairs."""
    found = _UNSHOWABLE.search(text)
    if found is not None:
        raise DataError(f"{what} holds the character U+{ord(found[0]):04X}, which cannot be shown or saved; rename it")


def first_repeated(names: Iterable[str]) -> str:
    """The first name that occurs more than once; there must be one."""
    return next(name for name, n in Counter(names).items() if n > 1)


def sort_states(states: Iterable[str]) -> list[str]:
    """Numerically if all are numbers, else alphabetically."""
    found = list(states)
    numbers = [as_number(s) for s in found]
    if all(n is not None for n in numbers):
        return [s for _, s in sorted(zip(numbers, found, strict=True))]
    return sorted(found)


def as_number(text: str) -> float | None:
    """The finite number a cell holds, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) and "_" not in text else None


def default_names(n: int) -> list[str]:
    return [f"v{i}" for i in range(n)]


def check_same_variables(domain: Domain, names: Sequence[str] | None, n: int, where: str) -> list[int]:
    """For each variable of a domain, its column in a table: by name when both have names, by position otherwise."""
    if names is not None and domain.named:
        position = {name: i for i, name in enumerate(names)}
        for v in domain.variables:
            if v.name not in position:
                hint = did_you_mean(v.name, names)
                raise DataError(f"{where} has no column {v.name!r}, which the network needs.{hint}")
        return [position[v.name] for v in domain.variables]
    if n != len(domain):
        raise DataError(f"{where} has {n} columns where {len(domain)} are needed")
    return list(range(n))
