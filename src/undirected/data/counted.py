"""What a table holds, learned chunk by chunk: the distinct texts of each column with counts, but not the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from undirected.data.raw import Column, RawColumn, RawTable, merge_declared
from undirected.data.variables import as_number
from undirected.errors import DataError
from undirected.kernels.types import Array

MAX_KEPT_TEXTS = 1 << 20  # distinct texts of all columns together that a pass over chunks keeps


@dataclass
class CountedColumn(Column):
    """A column without its rows: how many hold each text, how much they weigh, and which is the first.

    ``found`` are the cells as they stood in the table; ``place`` tells for each of them which of the texts it has become.
    """

    position: int  # of the column in the chunks of the table
    texts: list[str]
    found: list[str]
    place: Array
    counts: Array
    weights: Array
    first: list[int]
    rows: int
    declared: tuple[str, ...] | None = None
    ordered: bool = False

    @property
    def n_rows(self) -> int:
        return self.rows

    def count_texts(self) -> Array:
        return np.bincount(self.place, weights=self.counts, minlength=len(self.texts)).astype(np.int64)

    def weigh_texts(self, weights: Array | None) -> Array:
        return np.bincount(self.place, weights=self.counts if weights is None else self.weights, minlength=len(self.texts))

    def find_row(self, text: int) -> int:
        return min(self.first[i] for i in np.flatnonzero(self.place == text).tolist())

    def read_numbers(self) -> Array | None:
        if len(self.texts) != self.rows:
            return None
        numbers = [as_number(t) for t in self.texts]  # every row brought a new text, so they stand in the order of the rows
        return None if any(number is None for number in numbers) else np.array(numbers)

    def map_texts(self, texts: list[str], place: Array) -> CountedColumn:
        return replace(self, texts=texts, place=place[self.place] if len(self.place) else self.place)


@dataclass
class _Counting:
    """The counts of one column while chunks come in."""

    seen: dict[str, int] = field(default_factory=dict)
    counts: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    weights: Array = field(default_factory=lambda: np.zeros(0))
    first: list[int] = field(default_factory=list)
    declared: tuple[str, ...] | None = None
    ordered: bool = False

    def add(self, column: RawColumn, weights: Array | None, row: int) -> None:
        """Count the rows of a chunk, the first of which is row number ``row`` of the table."""
        counts, seen, before = column.count_texts(), self.seen, len(self.seen)
        used = np.flatnonzero(counts) if column.declared is None else np.arange(len(counts))  # texts of other chunks may stand here, too
        place = np.zeros(len(counts), dtype=np.int64)
        place[used] = [seen.setdefault(column.texts[i], len(seen)) for i in used.tolist()]
        new = len(seen) - before
        if new:
            self.counts = np.concatenate([self.counts, np.zeros(new, dtype=np.int64)])
            self.weights = np.concatenate([self.weights, np.zeros(new)])
            first = np.full(len(counts), -row)  # a state that is declared, but in no row, counts as one of the first
            first[column.codes[::-1]] = np.arange(len(column.codes))[::-1]  # the last to be written is the first row
            fresh = used[place[used] >= before]
            found = np.empty(new, dtype=np.int64)
            found[place[fresh] - before] = first[fresh] + row
            self.first += found.tolist()
        self.counts[place[used]] += counts[used]
        if weights is not None:
            np.add.at(self.weights, place[column.codes], weights)  # row by row, as the whole table is added up
        self.declared = merge_declared([self.declared, column.declared])
        self.ordered = column.ordered

    def finish(self, position: int, rows: int) -> CountedColumn:
        found = list(self.seen)
        place = np.arange(len(found), dtype=np.int32)
        return CountedColumn(
            position, list(found), found, place, self.counts, self.weights, self.first, rows, self.declared, self.ordered
        )  # fmt: skip


def count_table(chunks: Iterable[RawTable], is_needed: Callable[[int, str | None], bool]) -> RawTable | None:
    """Go through the chunks of a table and keep what its columns hold; None where there is no chunk.

    A column that is not needed, by position and name, is only there in name.
    """
    columns: list[_Counting] = []
    first: RawTable | None = None
    n_rows = 0
    lines: dict[int, int] = {}  # of the rows in which a text came first
    for chunk in chunks:
        if first is None:
            first, columns = chunk, [_Counting() for _ in chunk.columns]
            needed = [is_needed(k, None if chunk.names is None else chunk.names[k]) for k in range(len(chunk.columns))]
        for k, (counting, column) in enumerate(zip(columns, chunk.columns, strict=True)):
            if needed[k]:
                known = len(counting.first)
                counting.add(column, chunk.weights, n_rows)
                if chunk.lines is not None:
                    lines.update((row, int(chunk.lines[row - n_rows])) for row in counting.first[known:] if row >= n_rows)
        n_rows += chunk.n_rows
        _check_kept(columns, chunk)
    if first is None:
        return None
    return replace(
        first,
        columns=[counting.finish(k, n_rows) for k, counting in enumerate(columns)],
        weights=None if first.weights is None else np.zeros(0),  # those of the rows are added up in the columns
        lines=None if first.lines is None else lines,
    )


def _check_kept(columns: list[_Counting], table: RawTable) -> None:
    """Raise before the distinct texts of a table fill the memory that chunks are to save."""
    if sum(len(counting.seen) for counting in columns) <= MAX_KEPT_TEXTS:
        return
    k = int(np.argmax([len(counting.seen) for counting in columns]))
    name = table.known_names[k] or f"v{k}"
    raise DataError(
        f"{table.source}: the columns hold more than {MAX_KEPT_TEXTS:,} different cells, most of them ({len(columns[k].seen):,}) "
        f"column {name!r}; neither states nor cuts between bins can be found exactly by chunks. Leave such columns out (drop), round "
        "their numbers, or read the table whole"
    )
