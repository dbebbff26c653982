"""From rows as a source hands them over to codes: the first chunk settles the domain, later rows are held against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undirected.data.arrays import is_frame
from undirected.data.cells import clean_text, use_decimal_points, write_value
from undirected.data.coding import ColumnRules, encode, find_code, learn_domain
from undirected.data.columns import warn_of_columns
from undirected.data.dataset import MISSING_POLICIES, Dataset, code_type
from undirected.data.raw import RawColumn, RawTable
from undirected.data.readers import Reading, list_wanted, tidy
from undirected.data.variables import MAX_LITERALS, MISSING_STATE, Domain, Variable, as_number, default_names, sort_states
from undirected.errors import DataError, ParameterError, did_you_mean
from undirected.streaming.widening import widen_domain

UNKNOWN = ("error", "skip", "extend")
MAX_STATES = 1000  # of a variable that new states may make
MAX_MEMO, MAX_MEMO_LENGTH = 50_000, 100  # texts of a column whose codes are kept at hand, and letters of each
_MISSING, _UNKNOWN = -1, -2

Row = Mapping[str, Any] | AbstractSet[str] | Sequence[Any]


@dataclass(frozen=True)
class Unreadable:
    """What came where a row was expected, and why it is none."""

    text: str
    reason: str


@dataclass
class Rejected:
    """A row that was not learned: its place among those given, and why."""

    row: int
    reason: str


@dataclass
class Coded:
    """Rows as codes, and those that could not be coded."""

    data: Dataset
    rejected: list[Rejected] = field(default_factory=list)
    unknown_items: int = 0  # in baskets, passed over


@dataclass
class RowCoder:
    """How rows become codes. A row is a mapping from names to cells, a sequence of cells, or a set: a basket of items.

    The columns that count, their states and bins are those of the first rows, unless a domain is given. Later cells may be missing
    or unknown there; ``missing`` and ``unknown`` say what happens then.
    """

    domain: Domain | None = None
    bins: int = 4
    missing: str = "drop"
    unknown: str = "skip"
    reading: Reading = field(default_factory=Reading)
    categorical: Sequence[str] = ()
    numeric: Sequence[str] = ()
    source: str = "the stream"
    baskets: bool = False
    places: list[int] | None = None  # of each variable in rows that are sequences
    names: list[str] | None = None  # of the cells of rows that are sequences
    modes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.missing not in MISSING_POLICIES:
            raise ParameterError(f"missing={self.missing!r} is not known; choose one of {', '.join(MISSING_POLICIES)}")
        if self.unknown not in UNKNOWN:
            raise ParameterError(f"unknown={self.unknown!r} is not known; choose one of {', '.join(UNKNOWN)}")
        self._memo: list[dict[Any, int]] = []
        if self.domain is not None:
            self._settle(self.domain)

    # -- the first rows
    def learn(self, rows: Sequence[Row]) -> None:
        """Settle variables and states by the first rows."""
        usable = self._take_alike([row for row in rows if describe_fault(row) is None])
        if not usable:
            raise DataError(f"{self.source}: none of the first {len(rows):,} rows can be read; {self._first_fault(rows)}")
        table = self._make_table(usable)
        rules = ColumnRules(self.bins, tuple(self.categorical), tuple(self.numeric))
        table = tidy(table, self.reading, list_wanted(rules, None))
        domain = learn_domain(table, rules)
        warn_of_columns(table, domain, rules.categorical)
        data = encode(table, domain)
        if data.has_missing and self.missing == "error":
            data.require_complete("learning from a stream")
        if self.missing == "drop" and data.has_missing and (data.codes < 0).any(axis=1).all():
            raise DataError(
                f"{self.source}: every one of the first {len(data):,} rows has a missing cell; "
                "--missing state (missing='state') makes missing a state, mode fills in the most frequent one"
            )
        if self.missing == "state":
            domain = data.resolve_missing("state").domain
        known = [np.bincount(data.codes[:, v][data.codes[:, v] >= 0], minlength=1) for v in range(len(domain))]
        self.modes = [int(np.argmax(counts)) for counts in known]
        if table.names is not None and not self.baskets and not isinstance(usable[0], Mapping):
            given = self.names if self.names is not None else default_names(len(table.columns))
            self.places = [given.index(name) for name in domain.names]
        self._settle(domain)

    @staticmethod
    def _take_alike(rows: list[Row]) -> list[Row]:
        """The rows of the kind of which there are most: cells by name, in order, or items."""
        kinds = (Mapping, AbstractSet, Sequence)
        return max(([row for row in rows if isinstance(row, kind)] for kind in kinds), key=len)

    def _first_fault(self, rows: Sequence[Row]) -> str:
        return next((fault for fault in map(describe_fault, rows) if fault), "there are no rows")

    def _make_table(self, rows: Sequence[Row]) -> RawTable:
        first = rows[0]
        self.baskets = isinstance(first, AbstractSet)
        if self.baskets:
            items = sort_states({item for row in rows if isinstance(row, AbstractSet) for item in row})
            if not items:
                raise DataError(f"{self.source}: the first {len(rows):,} baskets are empty")
            held = [[item in row for row in rows] for item in items]
            columns = [RawColumn(["no", "yes"], np.array(column, dtype=np.int8)) for column in held]
            return RawTable(columns, items, self.source, fixed={k: Variable(x, ("no", "yes")) for k, x in enumerate(items)}, absent="no")
        if isinstance(first, Mapping):
            names = list(dict.fromkeys(str(name) for row in rows if isinstance(row, Mapping) for name in row))
            if not names:
                raise DataError(f"{self.source}: the first {len(rows):,} rows have no cells")
            cells = [[write_value(row.get(name)) for row in rows if isinstance(row, Mapping)] for name in names]
            return RawTable([RawColumn.from_cells(column) for column in cells], names, self.source)
        usual = Counter(len(row) for row in rows if isinstance(row, Sequence)).most_common(1)[0][0]
        width = usual if self.names is None else len(self.names)
        full = [row for row in rows if isinstance(row, Sequence) and len(row) == width]
        if not full or not width:
            raise DataError(f"{self.source}: none of the first {len(rows):,} rows has {width} cells, as many as there are names")
        columns = [RawColumn.from_cells([write_value(x) for x in column]) for column in zip(*full, strict=True)]
        return RawTable(columns, self.names, self.source)

    def _settle(self, domain: Domain) -> None:
        self.domain = domain
        self._memo = [{} for _ in domain.variables]
        if self.places is None and self.names is not None:
            for variable in domain.variables:
                if variable.name not in self.names:
                    raise DataError(f"{self.source} has no column {variable.name!r}.{did_you_mean(variable.name, self.names)}")
            self.places = [self.names.index(name) for name in domain.names]

    # -- every row
    def encode(self, rows: Sequence[Row]) -> Coded:
        """Code rows; those that cannot be coded are told with the reason."""
        rows = [tidy_row(row) for row in rows]
        if self.domain is None:
            self.learn(rows)
        assert self.domain is not None
        kept, cells, rejected = [], [], []
        for r, row in enumerate(rows):
            found = self._list_cells(row)
            if isinstance(found, str):
                rejected.append(Rejected(r, found))
            else:
                kept.append(r)
                cells.append(found)
        columns = list(zip(*cells, strict=True)) if cells else [()] * len(self.domain)
        codes = np.array([self._find_codes(v, column) for v, column in enumerate(columns)], dtype=np.int32).reshape(len(columns), len(kept))
        if self.missing == "mode" and not self.modes:  # the domain was given: these are the first rows
            self.modes = [int(np.argmax(np.bincount(c[c >= 0], minlength=1))) for c in codes]
        bad = (codes < 0).any(axis=0)
        if bad.any():
            codes = self._resolve(codes, columns, kept, rejected)
            bad = (codes < 0).any(axis=0)
        rejected.sort(key=lambda one: one.row)
        data = Dataset(self.domain, codes.T[~bad].astype(code_type(self.domain)), None, self.source)
        known = set(self.domain.names)
        return Coded(data, rejected, sum(len(row - known) for row in rows if isinstance(row, AbstractSet)))

    def encode_table(self, X: Any) -> Coded:
        """Code a table in memory: a `Dataset`, a frame, an array, a sparse matrix, or rows."""
        if isinstance(X, Dataset):
            if self.domain is None:
                self._settle(X.domain)
            if X.domain == self.domain and not X.has_missing:
                return Coded(X)
            states = [(*v.states, "") for v in X.domain.variables]
            rows = [[states[v][code] for v, code in enumerate(row)] for row in X.codes.tolist()]
            coded = self._encode_named(rows, X.domain.names if X.domain.named else None)
            kept = np.setdiff1d(np.arange(len(X)), [one.row for one in coded.rejected])
            coded.data = Dataset(coded.data.domain, coded.data.codes, X.weights[kept], X.source)
            return coded
        if is_frame(X):
            if len({*X.columns}) < len(X.columns):
                raise DataError(f"{self.source}: two columns of the frame are called alike; rename one of them")
            columns = [X[name].to_list() for name in X.columns]
            return self._encode_named(list(zip(*columns, strict=True)), [str(name) for name in X.columns])
        if hasattr(X, "toarray"):
            X = X.toarray()
        if not isinstance(X, Iterable) or isinstance(X, str | bytes | Mapping):
            raise DataError(f"{self.source}: a chunk is a table or a list of rows, not {type(X).__name__}")
        return self.encode(X.tolist() if isinstance(X, np.ndarray) else list(X))

    def _encode_named(self, rows: Sequence[Row], names: list[str] | None) -> Coded:
        self.take_names(names)
        return self.encode(rows)

    def _list_cells(self, row: Row) -> list[Any] | str:
        """The cells of a row in the order of the variables, or what is wrong with it."""
        domain = self.domain
        assert domain is not None
        fault = describe_fault(row)
        if fault is not None:
            return fault
        if isinstance(row, AbstractSet):
            return ["yes" if name in row else "no" for name in domain.names]
        if isinstance(row, Mapping):
            return [row.get(name) for name in domain.names]
        if self.places is not None:
            if self.names is not None and len(row) != len(self.names):
                return f"{len(row)} cells where {len(self.names)} are needed"
            return [row[k] for k in self.places]
        return list(row) if len(row) == len(domain) else f"{len(row)} cells where {len(domain)} are needed"

    def _find_codes(self, v: int, cells: Sequence[Any]) -> list[int]:
        memo = self._memo[v]
        if len(memo) > MAX_MEMO:
            memo.clear()
        out = []
        for cell in cells:
            key = cell if type(cell) is str else (type(cell), cell)
            try:
                code = memo.get(key)
            except TypeError:
                code = _UNKNOWN
            if code is None:
                code = self._find_code(v, cell)
                if code != _UNKNOWN and (type(cell) is not str or len(cell) <= MAX_MEMO_LENGTH):
                    memo[key] = code
            out.append(code)
        return out

    def _find_code(self, v: int, cell: Any) -> int:
        assert self.domain is not None
        variable, text = self.domain[v], self._clean(cell, self.domain[v])
        code = find_code(variable, text)
        if code is None and (number := as_number(text)) is not None:
            code = variable.find(write_value(number))
        return _UNKNOWN if code is None else code

    def _clean(self, cell: Any, variable: Variable) -> str:
        text = clean_text(write_value(cell))
        if self.reading.na and text in self.reading.na:
            return ""
        if self.reading.decimal == "," and variable.edges is not None:
            return (use_decimal_points([text]) or [text])[0]
        return text

    def _resolve(self, codes: Any, columns: list[Any], kept: list[int], rejected: list[Rejected]) -> Any:
        """Deal with missing cells and unknown states: rows that are left out have a negative code, and are told."""
        assert self.domain is not None
        gone: set[int] = set()
        if self.missing == "mode" and self.modes:
            for v, mode in enumerate(self.modes):
                codes[v][codes[v] == _MISSING] = mode
        new: dict[int, dict[str, int]] = {}
        for v, r in zip(*np.nonzero(codes < 0), strict=True):
            variable, missing = self.domain[v], codes[v, r] == _MISSING
            text = MISSING_STATE if missing else self._clean(columns[v][r], variable)
            reason = self._refuse(variable, text, missing, new.get(int(v), {}))
            if reason is None:
                states = new.setdefault(int(v), {})
                codes[v, r] = states.setdefault(text, len(variable.states) + len(states))
            elif (self.unknown if not missing or self.missing == "state" else self.missing) == "error":
                raise DataError(
                    f"{self.source}, row {kept[r] + 1} of the chunk: {reason}. "
                    "--unknown extend makes it a state, skip leaves such rows out; --missing drop leaves out rows with gaps"
                )
            elif kept[r] not in gone:
                gone.add(kept[r])
                rejected.append(Rejected(kept[r], reason))
        used = {v: states for v, states in new.items() if states}
        if used:
            self._settle_wider(widen_domain(self.domain, {v: list(states) for v, states in used.items()}))
        return codes

    def _refuse(self, variable: Variable, text: str, missing: bool, new: Mapping[str, int]) -> str | None:
        """Why a cell cannot be coded; None if it can become a new state."""
        if missing and self.missing != "state":
            return f"column {variable.name!r} has a missing cell"
        what = f"column {variable.name!r} has the unknown state {text[:80]!r}"
        if self.unknown != "extend" and not missing:
            return what
        if variable.edges is not None and not missing:
            return f"column {variable.name!r} holds numbers, and {text[:80]!r} is none"
        if text not in new and len(variable.states) + len(new) >= MAX_STATES:
            return f"{what}, and {MAX_STATES:,} states are the most that a variable may come to"
        assert self.domain is not None
        return None if self.domain.n_literals + len(new) < MAX_LITERALS else f"{what}, and there are too many states in all"

    def take_names(self, names: list[str] | None) -> None:
        """Say what the cells of rows that are sequences are called."""
        if names is None or names == self.names:
            return
        self.names, self.places = names, None
        if self.domain is not None:
            self._settle(self.domain)

    def find_code(self, v: int, cell: Any) -> int:
        """The code of a variable's cell; -1 where it is missing or unknown."""
        return max(-1, self._find_code(v, cell))

    def take_domain(self, domain: Domain) -> None:
        """Go on with a domain that was settled before."""
        self._settle_wider(domain)

    def _settle_wider(self, domain: Domain) -> None:
        self.domain = domain
        self._memo = [{} for _ in domain.variables]

    def pack(self) -> dict[str, Any]:
        """What was settled by the first rows beside the domain, for a checkpoint."""
        return {"baskets": self.baskets, "places": self.places, "names": self.names, "modes": self.modes}

    def unpack(self, tree: dict[str, Any]) -> None:
        """Take up what `pack` gave."""
        self.baskets, self.places, self.names, self.modes = tree["baskets"], tree["places"], tree["names"], tree["modes"]


def tidy_row(row: Any) -> Any:
    """A row of its own, with names that are texts, and lists for arrays; what is none stays as it is."""
    if isinstance(row, np.ndarray):
        return row.tolist()
    if isinstance(row, Mapping):
        return {name if type(name) is str else str(name): cell for name, cell in row.items()}
    return row


def write_row(row: Any) -> Any:
    """A row as JSON has it."""
    if not isinstance(row, Mapping | AbstractSet | Sequence) or isinstance(row, str | bytes):
        return {"no row": repr(row)}
    if isinstance(row, Mapping):
        return {"by name": {str(name): _write_cell(cell) for name, cell in row.items()}}
    return {"items": sorted(row)} if isinstance(row, AbstractSet) else [_write_cell(cell) for cell in row]


def _write_cell(cell: Any) -> Any:
    value = cell.item() if isinstance(cell, np.generic) else cell
    if isinstance(value, list | tuple | set | dict):
        return [repr(value)]  # still no cell
    return value if value is None or isinstance(value, str | int | float | bool) else write_value(value)


def read_row(row: Any) -> Row:
    """Take up what `write_row` gave."""
    if isinstance(row, dict):
        return frozenset(row["items"]) if "items" in row else dict(row["by name"])
    return list(row)


def describe_fault(row: Any) -> str | None:
    """What is wrong with a row whatever the columns are."""
    if isinstance(row, Unreadable):
        return row.reason
    if isinstance(row, str | bytes) or not isinstance(row, Mapping | AbstractSet | Sequence):
        return f"a row must be cells by name, in order, or a set of items, not {type(row).__name__}"
    cells = row.values() if isinstance(row, Mapping) else row
    odd = next((cell for cell in cells if isinstance(cell, list | dict | tuple | set)), None)
    return None if odd is None else f"a cell holds a {type(odd).__name__}"
