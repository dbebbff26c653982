"""Files, frames and arrays into tables."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undirected.data.dataset import Dataset, check_weights
from undirected.data.raw import MISSING_TEXTS, ColumnRules, RawColumn, RawTable, encode, learn_domain
from undirected.data.variables import MAX_STATES, Domain, Variable, as_number, sort_states
from undirected.errors import DataError, FormatError, MissingExtra, ParameterError, did_you_mean
from undirected.kernels.types import Array

FORMATS = ("csv", "tsv", "basket", "libra", "parquet", "npz")
SPLITS = ("train", "valid", "test")
_SUFFIXES = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".basket": "basket", ".data": "libra", ".ev": "libra",
    ".parquet": "parquet", ".pq": "parquet", ".npz": "npz",
}  # fmt: skip


def read_data(
    source: Any,
    *,
    domain: Domain | None = None,
    format: str | None = None,
    header: bool | None = None,
    bins: int = 4,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    domain_from: Any = None,
    missing: str = "error",
    weights: Array | None = None,
) -> Dataset:
    """Read a table from a file or take one from memory.

    Parameters
    ----------
    source
        A path (``.csv``, ``.tsv``, ``.txt``, ``.data``, ``.basket``, ``.parquet``, ``.npz``, each but the last two also with
        ``.gz``), the name of a data set (``nltcs``, ``nltcs:test``), a NumPy array, a SciPy sparse matrix, a pandas or
        polars frame, or a `Dataset`.
    domain
        Code the table with these variables and states, as test data must be. By default they are learned from the table.
    format, header
        Override what the suffix and the first lines say.
    bins, categorical, numeric
        Numbers are cut into ``bins`` bins of equal frequency, except integers with at most ten values; the two lists name
        columns to be taken as states or as numbers instead.
    domain_from
        Another table whose states are added to the domain.
    missing
        What to do with missing cells: ``error`` keeps them in the table (learning from it is then an error), ``drop``
        leaves out their rows, ``mode`` fills in the most frequent state, ``state`` makes missing a state of its own.
    weights
        One weight a row.

    Examples
    --------
    >>> import numpy as np, undirected
    >>> data = undirected.read_data(np.array([[0, 1], [1, 1], [0, 1]]))
    >>> len(data), data.n_distinct, data.domain.names
    (3, 2, ['v0', 'v1'])
    """
    rules = ColumnRules(bins, tuple(categorical), tuple(numeric))
    if isinstance(source, Dataset):
        if domain_from is not None or categorical or numeric:
            raise ParameterError("the columns of a Dataset are coded already; give these options when it is read")
        data = source if domain is None else _recode(source, domain)
        if weights is not None:
            data = Dataset(data.domain, data.codes, weights, data.source, data.lines)
    else:
        table = read_raw(source, format, header)
        if weights is not None:
            table.weights = check_weights(weights, table.n_rows, table.source)
        _check_shape(table)
        if domain is None:
            wider = None if domain_from is None else read_raw(domain_from, format, header)
            domain = learn_domain(table, rules, wider)
        data = encode(table, domain)
    return data.resolve_missing(missing)


def _recode(data: Dataset, domain: Domain) -> Dataset:
    if data.domain == domain:
        return data
    columns = []
    for v, variable in enumerate(data.domain.variables):
        columns.append(RawColumn([*variable.states, ""], np.where(data.codes[:, v] < 0, len(variable.states), data.codes[:, v])))
    names = data.domain.names if data.domain.named else None
    lines = None if data.lines is None else np.asarray(data.lines)
    return encode(RawTable(columns, names, data.source, data.weights, lines), domain)


def _check_shape(table: RawTable) -> None:
    if not table.columns:
        raise DataError(f"{table.source} has no columns")
    if table.n_rows == 0:
        raise DataError(f"{table.source} has no rows")
    if table.names is not None and len(set(table.names)) != len(table.names):
        twice = next(n for n in table.names if table.names.count(n) > 1)
        raise DataError(f"{table.source}: two columns are called {twice!r}; rename one of them")


def read_raw(source: Any, format: str | None = None, header: bool | None = None) -> RawTable:
    """A table as it was found, from anything `read_data` takes but a `Dataset`."""
    if isinstance(source, RawTable):
        return source
    if isinstance(source, str | os.PathLike):
        return _read_path(os.fspath(source), format, header)
    module = type(source).__module__.split(".")[0]
    if module == "pandas" or module == "polars":
        names = [str(c) for c in source.columns]
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise DataError(f"the {module} frame has two columns called {twice!r}; rename one of them")
        return RawTable([RawColumn.from_array(np.asarray(source[c])) for c in source.columns], names, f"the {module} frame")
    if hasattr(source, "tocsc") and hasattr(source, "nnz"):
        return _from_sparse(source, "the sparse matrix")
    try:
        array = np.asarray(source)
    except ValueError as error:
        raise DataError(f"the rows do not make a table: {error}") from None
    return _from_array(array, "the array", None)


def _from_array(array: Array, source: str, names: list[str] | None) -> RawTable:
    if array.ndim != 2:
        raise DataError(f"{source} has {array.ndim} dimensions; a table needs two (rows, variables)")
    if array.dtype.kind == "c":
        raise DataError(f"{source} holds complex numbers. Complex data not supported.")
    if names is not None and len(names) != array.shape[1]:
        raise DataError(f"{source}: {len(names)} names for {array.shape[1]} columns")
    return RawTable([RawColumn.from_array(array[:, k]) for k in range(array.shape[1])], names, source)


def _from_sparse(matrix: Any, source: str) -> RawTable:
    csc = matrix.tocsc(copy=True)
    csc.sum_duplicates()
    columns = []
    for k in range(csc.shape[1]):
        column = np.zeros(csc.shape[0], dtype=csc.dtype)
        column[csc.indices[csc.indptr[k] : csc.indptr[k + 1]]] = csc.data[csc.indptr[k] : csc.indptr[k + 1]]
        columns.append(RawColumn.from_array(column))
    return RawTable(columns, None, source)


def _read_path(text: str, format: str | None, header: bool | None) -> RawTable:
    name, split = text, None
    try:
        found = Path(text).exists()
    except (OSError, ValueError) as error:
        raise DataError(f"{text[:60]!r}... cannot be a file: {error}") from None
    if not found and ":" in Path(text).name[1:]:
        name, _, split = text.rpartition(":")
    path = Path(name)
    if not path.exists():
        from undirected.data import catalog

        if "/" not in name and "\\" not in name and not Path(name).suffix:
            return catalog.raw(name, split or "train")
        close = did_you_mean(path.name, [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else [])
        raise DataError(f"there is no file {name!r}.{close}")
    if path.is_dir():
        raise DataError(f"{name!r} is a folder; name a file")
    suffixes = [s.lower() for s in path.suffixes]
    suffix = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else suffixes[-1] if suffixes else ""
    kind = format or _SUFFIXES.get(suffix)
    if kind is None:
        known = ", ".join(sorted(_SUFFIXES))
        raise FormatError(f"{name}: the suffix {suffix!r} is not known ({known}); give the format with --format {'|'.join(FORMATS)}")
    if kind not in FORMATS:
        raise ParameterError(f"format {kind!r} is not known; choose one of {', '.join(FORMATS)}")
    if split is not None and kind != "npz":
        raise DataError(f"{text!r}: only .npz files have splits")
    if kind == "npz":
        return read_npz(path, split)
    if kind == "parquet":
        return _read_parquet(path)
    content = _read_bytes(path)
    if kind == "basket":
        return _parse_basket(_decode(content, name), name)
    if kind == "libra":
        quick = parse_digits(content, name, b",")
        return _numbered(quick) if quick is not None else _parse_libra(_decode(content, name), name)
    return _parse_delimited(content, name, "\t" if kind == "tsv" else None, header)


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path}: cannot be read ({error})") from None
    if not content.strip():
        raise DataError(f"{path} is empty")
    return content


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{name}, line {line}: not UTF-8 text (byte {error.start}); convert the file to UTF-8") from None


def parse_digits(content: bytes, name: str, separators: bytes = b",\t; ") -> RawTable | None:
    """Rows of single digits at fixed places, the commonest big file, without a Python object a cell; else None."""
    end = content.find(b"\n")
    end = len(content) if end < 0 else end
    crlf = end > 0 and content[end - 1 : end] == b"\r"
    width = end + 1
    body = content if content.endswith(b"\n") else content + (b"\r\n" if crlf else b"\n")
    if len(body) % width or (width - crlf) % 2:
        return None
    grid = np.frombuffer(body, dtype=np.uint8).reshape(-1, width)
    cells, marks = grid[:, 0 : width - 1 - crlf : 2], grid[:, 1 : width - 1 - crlf : 2]
    if not ((cells >= 48) & (cells <= 57)).all() or not (grid[:, -1] == 10).all():
        return None
    if marks.size and not ((marks == marks[0, 0]).all() and marks[0, 0] in separators):
        return None
    if crlf and not (grid[:, -2] == 13).all():
        return None
    columns = [_digit_column(np.ascontiguousarray(cells[:, k])) for k in range(cells.shape[1])]
    return RawTable(columns, None, name, lines=np.arange(1, len(grid) + 1))


def _digit_column(digits: Array) -> RawColumn:
    present = np.flatnonzero(np.bincount(digits - 48, minlength=10))
    mapping = np.zeros(10, dtype=np.int8)
    mapping[present] = np.arange(len(present))
    return RawColumn([str(d) for d in present], mapping[digits - 48])


def _parse_delimited(content: bytes, name: str, delimiter: str | None, header: bool | None) -> RawTable:
    if not header:
        quick = parse_digits(content, name)
        if quick is not None:
            return quick
    text = _decode(content, name)
    delimiter = delimiter or _sniff(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    cells: list[dict[str, int]] = []
    codes: list[list[int]] = []
    names: list[str] | None = None
    first: list[str] | None = None
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip() and len(cells) > 1):
                continue
            if first is None:
                first = row
                first_line = reader.line_num
                cells, codes = [{} for _ in row], [[] for _ in row]
                continue
            if len(row) != len(first):
                raise FormatError(
                    f"{name}, line {reader.line_num}: {len(row)} cells where line {first_line} has {len(first)}; "
                    f"the cells are separated by {delimiter!r}"
                )
            lines.append(reader.line_num)
            for seen, out, cell in zip(cells, codes, row, strict=True):
                out.append(seen.setdefault(cell, len(seen)))
            if len(rows) < 200:
                rows.append(row)
    except csv.Error as error:
        raise FormatError(f"{name}, line {reader.line_num}: {error}") from None
    if first is None:
        raise DataError(f"{name} is empty")
    if header if header is not None else _is_header(first, rows):
        names = [cell.strip() for cell in first]
        if "" in names:
            raise DataError(f"{name}, line {first_line}: column {names.index('') + 1} of the header has no name")
    else:
        lines.insert(0, first_line)
        for seen, out, cell in zip(cells, codes, first, strict=True):
            out.insert(0, seen.setdefault(cell, len(seen)))
    columns = [RawColumn(list(seen), np.array(out, dtype=np.int32)).stripped() for seen, out in zip(cells, codes, strict=True)]
    return RawTable(columns, names, name, lines=np.array(lines))


def _sniff(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    counts = {d: line.count(d) for d in (",", "\t", ";", "|")}
    best = max(counts, key=lambda d: counts[d])
    return best if counts[best] else " " if " " in line.strip() else ","


def _is_header(first: list[str], rows: list[list[str]]) -> bool:
    """A first row that cannot be data: text over numbers, or distinct words none of which comes again in its column."""
    cells = [c.strip() for c in first]
    if any(as_number(c) is not None or c in MISSING_TEXTS for c in cells):
        return False
    if not rows:
        return True
    columns = list(zip(*rows, strict=True))
    if any(all(as_number(c) is not None for c in col if c.strip() not in MISSING_TEXTS) for col in columns):
        return True
    return len(set(cells)) == len(cells) and not any(
        cell in {c.strip() for c in column} for cell, column in zip(cells, columns, strict=True)
    )


def _parse_libra(text: str, name: str) -> RawTable:
    rows: list[list[str]] = []
    weights: list[float] = []
    lines: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        prefix, bar, rest = line.partition("|")
        weight = as_number(prefix) if bar else 1.0
        if weight is None or weight < 0:
            raise FormatError(f"{name}, line {number}: {prefix.strip()!r} is not a row weight")
        cells = [c.strip() for c in (rest if bar else line).split(",")]
        if rows and len(cells) != len(rows[0]):
            raise FormatError(f"{name}, line {number}: {len(cells)} states where line {lines[0]} has {len(rows[0])}")
        for k, cell in enumerate(cells):
            if cell != "*" and not (cell.isascii() and cell.isdigit()):
                raise FormatError(f"{name}, line {number}, column {k + 1}: {cell!r} is neither a state number nor *")
            if cell != "*" and (len(cell) > 9 or int(cell) >= MAX_STATES):
                raise FormatError(f"{name}, line {number}, column {k + 1}: state {cell} is too large to be one")
        rows.append([c if c == "*" else str(int(c)) for c in cells])
        weights.append(weight)
        lines.append(number)
    if not rows:
        raise DataError(f"{name} is empty")
    columns = [RawColumn.from_cells(column) for column in zip(*rows, strict=True)]
    return _numbered(RawTable(columns, None, name, np.array(weights), np.array(lines)))


def _numbered(table: RawTable) -> RawTable:
    """States are numbers from 0 to the largest seen, at least two of them."""
    for k, column in enumerate(table.columns):
        states = max([1, *(int(t) for t in column.known)]) + 1
        table.fixed[k] = Variable(f"v{k}", tuple(map(str, range(states))))
    return table


def _parse_basket(text: str, name: str) -> RawTable:
    rows: list[set[str]] = []
    lines: list[int] = []
    comma = "," in text
    for number, line in enumerate(text.splitlines(), 1):
        items = {item.strip() for item in line.split("," if comma else None)} - {""}
        rows.append(items)
        lines.append(number)
    while rows and not rows[-1]:
        rows.pop()
        lines.pop()
    names = sort_states(set().union(*rows))
    position = {item: k for k, item in enumerate(names)}
    codes = np.zeros((len(rows), len(names)), dtype=np.int8)
    for r, row in enumerate(rows):
        codes[r, [position[item] for item in row]] = 1
    columns = [RawColumn(["no", "yes"], codes[:, k]) for k in range(len(names))]
    fixed = {k: Variable(item, ("no", "yes")) for k, item in enumerate(names)}
    return RawTable(columns, names, name, lines=np.array(lines), fixed=fixed, absent="no")


def _read_parquet(path: Path) -> RawTable:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra('reading Parquet needs pyarrow: pip install "undirected[parquet]"') from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise FormatError(f"{path}: not a Parquet file ({error})") from None
    columns = [RawColumn.from_array(column.to_numpy(zero_copy_only=False)) for column in table.columns]
    return RawTable(columns, list(table.column_names), str(path))


def read_npz(path: Path, split: str | None) -> RawTable:
    """An ``.npz``: packed benchmark splits, a SciPy sparse matrix, or plain arrays (``X``, ``names``, ``weights``)."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as z:
            arrays = {key: z[key] for key in z.files}
    except (OSError, ValueError, EOFError, TypeError, KeyError, AttributeError, zlib.error, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: not an .npz file ({error})") from None
    try:
        return _from_arrays(path, arrays, split)
    except (DataError, ParameterError):
        raise
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FormatError(f"{path}: its arrays do not make a table ({error})") from None


def npz_splits(path: Path) -> set[str]:
    """Which splits an ``.npz`` of packed benchmark splits holds; none if it is something else."""
    try:
        with np.load(path, allow_pickle=False) as z:
            return set(SPLITS) & set(z.files) if "n_vars" in z.files else set()
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return set()  # reading it will tell


def _from_arrays(path: Path, arrays: dict[str, Array], split: str | None) -> RawTable:
    source = str(path)
    if {"n_vars", "train"} <= arrays.keys():
        split = split or "train"
        if split not in arrays:
            raise DataError(f"{path} has no split {split!r}; it has {', '.join(s for s in SPLITS if s in arrays)}")
        bits = np.unpackbits(arrays[split], axis=1, count=int(arrays["n_vars"]))
        names = [str(n) for n in arrays.get("names", np.array([]))] or None
        if names is not None and len(names) != bits.shape[1]:
            raise FormatError(f"{path}: {len(names)} names for {bits.shape[1]} variables")
        return binary_table(bits, names, f"{path}:{split}")
    if split is not None:
        raise DataError(f"{path} has no splits")
    if {"format", "shape"} <= arrays.keys():
        import scipy.sparse as sp

        return _from_sparse(sp.load_npz(path), source)
    names = [str(n) for n in arrays.pop("names", np.array([]))] or None
    weights = arrays.pop("weights", None)
    if "X" not in arrays and len(arrays) != 1:
        raise DataError(f"{path} holds {', '.join(sorted(arrays)) or 'no arrays'}; a table is expected under the name X")
    table = _from_array(arrays.get("X", next(iter(arrays.values()))), source, names)
    table.weights = None if weights is None else check_weights(weights, table.n_rows, source)
    return table


def binary_table(bits: Array, names: list[str] | None, source: str) -> RawTable:
    """A table of zeros and ones."""
    return RawTable([RawColumn(["0", "1"], bits[:, k]) for k in range(bits.shape[1])], names, source)
