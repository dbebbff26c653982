"""Inputs made to harm the readers: small files that ask for much work or memory, files that are none, names that break what comes after."""

from __future__ import annotations

import functools
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz_inputs import BIG, READERS, Input, write_array, write_header, write_npz


def _table(content: bytes | str, **options: Any) -> Input:
    return Input("", content.encode("utf8", "surrogatepass") if isinstance(content, str) else content, options)


def _json_network(names: list[str], states: list[str], features: list[list[Any]]) -> Input:
    variables = [{"name": n, "states": states} for n in names]
    return _table(json.dumps({"format": "undirected-network", "version": 1, "variables": variables, "features": features}))


def _names_twice(separator: str) -> Input:
    """40,000 names, of which only the last two are equal, and a row."""
    names = [*(f"n{i}" for i in range(39_998)), "last", "last"]
    return _table(separator.join(names) + "\n" + separator.join(["1"] * len(names)) + "\n")


def _deep_tree(distinct: bool) -> Input:
    """A tree of 3,000 levels; with equal tests nearly all leaves contradict themselves."""
    n = 3000
    tree = "".join(f"(v{i if distinct else 0}_1 0.5 " for i in range(n)) + "1.0" + ")" * n
    return _table(",".join(["2"] * n) + "\nMN {\ntree {\n" + tree + "\n}\n}\n")


def _zeros_npz(megabytes: int) -> Input:
    """A table of zeros, a thousand times smaller as a file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z, z.open("X.npy", "w", force_zip64=True) as member:
        member.write(write_header(f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({megabytes * 1000}, 1000), }}"))
        for _ in range(megabytes):
            member.write(bytes(1_000_000))
    return _table(out.getvalue())


def _sparse(kind: str, **arrays: Any) -> Input:
    """A sparse matrix of one value with some arrays in place of its own."""
    seed = {
        "coo": {"row": np.array([0]), "col": np.array([0])},
        "csr": {"indices": np.array([0]), "indptr": np.array([0, 1])},
        "csc": {"indices": np.array([0]), "indptr": np.array([0, 1])},
        "bsr": {"indices": np.array([0]), "indptr": np.array([0, 1])},
        "dia": {"offsets": np.array([0])},
    }[kind]
    data = {"bsr": np.ones((1, 1, 1)), "dia": np.ones((1, 1))}.get(kind, np.ones(1))
    members = {"format": np.array(kind.encode()), "shape": np.array([1, 1]), "data": data, **seed, **arrays}
    return _table(write_npz({name: write_array(np.asarray(a)) for name, a in members.items()}))


def _plain(**arrays: Any) -> Input:
    return _table(write_npz({name: write_array(np.asarray(a)) for name, a in arrays.items()}))


def _wide_parquet() -> Input:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table([pa.array([1])] * 3001, names=[*(f"n{i}" for i in range(3000)), "n2999"]), out, compression="none")
    return _table(out.getvalue())


def _many(sizes: int, states: int, head: str, tail: str, separator: str) -> Input:
    return _table(head + separator.join([str(states)] * sizes) + tail)


ODD = ["\0", "\x1b[31mred", "\ud800", "\udfff", "a\nb", "\u202e", "\ufffe", "a,b", "<&>", "", " x ", "\u2028", "\x85", "=", "#"]
BINARY = ["0", "1"]
HOSTILE: list[tuple[str, str, Callable[[], Input]]] = [
    ("csv", "a name twice among 40,000", lambda: _names_twice(",")),
    ("tsv", "a name twice among 40,000", lambda: _names_twice("\t")),
    ("json", "a name twice among 40,000", lambda: _json_network([*(f"n{i}" for i in range(39_998)), "last", "last"], BINARY, [])),
    (
        "npz",
        "a name twice among 40,000",
        lambda: _plain(X=np.zeros((1, 40_000), dtype=np.int8), names=[*(f"n{i}" for i in range(39_999)), "n39998"]),
    ),
    ("parquet", "a name twice among 3,000", _wide_parquet),
    ("mn", "20,000 variables of 30,000 states", lambda: _many(20_000, BIG, "", "\nMN {\n}\n", ",")),
    ("uai", "20,000 variables of 30,000 states", lambda: _many(20_000, BIG, "MARKOV\n20000\n", "\n0\n", " ")),
    ("data", "20,000 variables of 30,000 states", lambda: _many(20_000, BIG - 1, "", "\n", ",")),
    ("json", "20 variables of 30,000 states", lambda: _json_network([f"n{i}" for i in range(20)], [str(i) for i in range(BIG)], [])),
    ("mn", "a tree of 3,000 levels", lambda: _deep_tree(True)),
    ("mn", "a tree of 3,000 levels with one test", lambda: _deep_tree(False)),
    ("mn", "a bracket 100,000 times", lambda: _table("2\nMN {\ntree {\n" + "(" * 100_000 + "\n}\n}\n")),
    ("json", "brackets 100,000 deep", lambda: _table("[" * 100_000)),
    (
        "mn",
        "20,000 negations on 30,000 states",
        lambda: _table(f"{BIG}\nMN {{\n1.0 " + " ".join(f"-v0_{i}" for i in range(20_000)) + "\n}\n"),
    ),
    ("mn", "3,000 features of two negations on 30,000 states", lambda: _table(f"{BIG}\nMN {{\n" + "1.0 -v0_1 -v0_2\n" * 3000 + "}\n")),
    (
        "json",
        "20,000 negations on 30,000 states",
        lambda: _json_network(["a"], [str(i) for i in range(BIG)], [[1.0, *range(BIG, BIG + 20_000)]]),
    ),
    (
        "features",
        "20,000 negations on 30,000 states",
        lambda: _table(" & ".join(f"big!=s{i}" for i in range(20_000)), domain="many states"),
    ),
    ("features", "3,000 features of a negation on 30,000 states", lambda: _table("big!=s0 & big!=s1\n" * 3000, domain="many states")),
    (
        "evidence",
        "20,000 negations on 30,000 states",
        lambda: _table(" & ".join(f"big!=s{i}" for i in range(20_000)), domain="many states"),
    ),
    (
        "evidence",
        "3,000 texts of a negation on 30,000 states",
        lambda: _table("".join(f"big!=s{i}\n" for i in range(3000)), domain="many states"),
    ),
    ("features", "an unknown state among 30,000", lambda: _table("big=s3000x", domain="many states")),
    ("evidence", "an unknown state among 30,000", lambda: _table("big=s3000x", domain="many states")),
    ("features", "an unknown name among 40,000", lambda: _table("variable3000x=no", domain="many variables")),
    ("evidence", "an unknown name among 40,000", lambda: _table("variable3000x=no", domain="many variables")),
    ("csv", "an unknown state among 30,000", lambda: _table("big,small\ns3000x,no\n", domain="many states")),
    ("features", "a long text of quotes", lambda: _table('"' * 100_001)),
    ("features", "a long text of backslashes", lambda: _table('"' + "\\" * 100_001)),
    ("features", "100,000 literals", lambda: _table(" & ".join(["smoker=yes"] * 100_000))),
    ("evidence", "a long text of blanks", lambda: _table("smoker" + " " * 200_000 + "yes")),
    ("gz", "2.5 GB of text in 2.5 MB", lambda: _table(gzip.compress(b"0,1,0,1\n" * 8_000_000, 6, mtime=0) * 40)),
    ("gz", "2.5 GB of zeros in 2.5 MB", lambda: _table(gzip.compress(bytes(64_000_000), 6, mtime=0) * 40)),
    ("npz", "1.2 GB of zeros in 5 MB", lambda: _zeros_npz(1200)),
    ("npz", "a packed row of 4,000,000,000 variables", lambda: _plain(n_vars=4_000_000_000, train=np.zeros((1, 1), dtype=np.uint8))),
    ("npz", "a packed row of 300,000,000 variables", lambda: _plain(n_vars=300_000_000, train=np.zeros((1, 1), dtype=np.uint8))),
    ("npz", "no packed variables", lambda: _plain(n_vars=0, train=np.zeros((1, 1), dtype=np.uint8))),
    ("npz", "a negative number of packed variables", lambda: _plain(n_vars=-7, train=np.zeros((1, 1), dtype=np.uint8))),
    ("npz", "odd names", lambda: _plain(X=np.zeros((2, len(ODD)), dtype=int), names=ODD)),
    ("npz", "odd states", lambda: _plain(X=np.array([[x] for x in ODD]))),
    ("npz", "10,000,000 columns and no rows", lambda: _plain(X=np.zeros((0, 10_000_000), dtype=np.int8))),
    *(
        ("sparse", f"{kind}: {rows} by {columns}", functools.partial(_sparse, kind, shape=[rows, columns]))
        for kind in ("coo", "csr", "csc", "bsr", "dia")
        for rows, columns in ((1, 10**9), (10**9, 1), (2**62, 2**62), (10**5, 10**5), (-1, 5), (0, 0))
    ),
    *(
        ("sparse", f"{kind}: an index of {index}", functools.partial(_sparse, kind, indices=np.array([index])))
        for kind in ("csr", "csc", "bsr")
        for index in (-1, 5, 2**31 - 1, -(2**31), 2**62)
    ),
    *(
        ("sparse", f"{kind}: offsets {indptr}", functools.partial(_sparse, kind, indptr=np.array(indptr)))
        for kind in ("csr", "csc", "bsr")
        for indptr in ([0, 10**6], [0, -1], [5, 1], [10**9, 1], [-(10**9), 1], [1, 0], [0], [0, 1, 1])
    ),
    *(
        ("sparse", f"coo: {what} {index}", functools.partial(_sparse, "coo", **{what: np.array([index])}))
        for what in ("row", "col")
        for index in (-1, 10**9, -(10**9))
    ),
    *(
        ("sparse", f"dia: an offset of {offset}", functools.partial(_sparse, "dia", offsets=np.array([offset])))
        for offset in (-(2**31), 2**31 - 1, 2**62)
    ),
    ("sparse", "bsr: a block of nothing", lambda: _sparse("bsr", data=np.ones((1, 0, 0)))),
    ("sparse", "bsr: blocks of 2 by 2 in 1 by 1", lambda: _sparse("bsr", data=np.ones((1, 2, 2)))),
    ("sparse", "values as objects", lambda: _sparse("csr", data=np.array([{}], dtype=object))),
    ("basket", "15,000 baskets of one item", lambda: _table("".join(f"i{i}\n" for i in range(15_000)))),
    ("basket", "a basket of 40,000 items", lambda: _table(" ".join(f"i{i}" for i in range(40_000)))),
    ("basket", "100,000 empty baskets", lambda: _table("a\n" + "\n" * 100_000 + "a\n")),
    ("csv", "a million empty lines", lambda: _table("a,b\n" + "\n" * 1_000_000 + "1,2\n")),
    ("csv", "a cell of a million letters", lambda: _table("a,b\n" + "x" * 1_000_000 + ",1\n")),
    ("csv", "60,000 states", lambda: _table("name\n" + "".join(f"s{i}\n" for i in range(60_000)))),
    ("csv", "a row of 20,000 cells", lambda: _table(",".join(["0"] * 20_000) + "\n")),
    ("csv", "odd names", lambda: _table('a,"b\0c","\x1b[31mred","d\ne"," f "\n1,2,3,4,5\n', header=True)),
    ("csv", "surrogates", lambda: _table("a,\ud800\n1,2\n")),
    ("uai", "a factor of 30,000 ones", lambda: _table("MARKOV\n1\n30000\n1\n1 0\n30000\n" + "1 " * 30_000)),
    (
        "uai",
        "3,000 of 30,000 factors of 40 variables",
        lambda: _table("MARKOV\n40\n" + "2 " * 40 + "\n30000\n" + ("40 " + " ".join(map(str, range(40))) + "\n") * 3000),
    ),
    ("json", "odd names", lambda: _json_network(ODD, BINARY, [[1.0, 1, 3, 5], [0.5, 0, 2]])),
    *(("json", f"the name {odd!r}", functools.partial(_json_network, [odd, "b"], BINARY, [[1.0, 1, 3]])) for odd in ODD),
    *(("json", f"the state {odd!r}", functools.partial(_json_network, ["a", "b"], [odd, "z"], [[1.0, 1, 3]])) for odd in ODD),
    *(
        (reader, f"a {place}", functools.partial(Input, "", b"", {}, place))
        for reader in READERS
        if reader != "evidence"
        for place in ("fifo", "folder")
    ),
    *(
        (reader, "a device without end", functools.partial(Input, "", b"", {}, "zeros"))
        for reader in ("csv", "data", "npz", "parquet", "json", "features")
    ),
]


@functools.cache
def hostile_of(readers: tuple[str, ...]) -> list[tuple[str, str, Callable[[], Input]]]:
    """Those for some readers: each with its reader, a label and what makes it."""
    return [entry for entry in HOSTILE if entry[0] in readers]


def make_hostile(number: int, readers: list[str]) -> Input:
    reader, label, make = hostile_of(tuple(readers))[number]
    made = make()
    made.reader, made.label = reader, label
    return made
