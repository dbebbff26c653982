"""Inputs for the fuzzing of the readers: valid files, and mutations of them. The same seed makes the same inputs."""

from __future__ import annotations

import copy
import functools
import gzip
import io
import json
import random
import re
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from undirected import Domain, FeatureSet, MarkovNetwork, Variable, datasets
from undirected.formats import libra, native, uai

MAX_BYTES = 20_000  # of a mutated input; only those made to harm are larger
BIG = 30_000  # as many states as a variable may have


@dataclass
class Input:
    """What a reader is given: the content of a file (or what stands in its place), and options."""

    reader: str
    content: bytes
    options: dict[str, Any] = field(default_factory=dict)
    place: str = "file"  # or "fifo", "zeros" (endless), "folder"
    label: str = "mutated"


# reader: (suffix, share of the inputs)
READERS = {
    "csv": (".csv", 16), "tsv": (".tsv", 8), "txt": (".txt", 8), "gz": (".csv.gz", 6), "basket": (".basket", 8), "data": (".data", 10),
    "parquet": (".parquet", 1), "npz": (".npz", 4), "sparse": (".npz", 4), "json": (".json", 9), "mn": (".mn", 10), "uai": (".uai", 10),
    "features": (".features", 8), "evidence": (".evidence", 8),
}  # fmt: skip
TABLES = ("csv", "tsv", "txt", "gz", "basket", "data", "parquet", "npz", "sparse")
NETWORKS = ("json", "mn", "uai")

SURVEY = Domain(
    [
        Variable("smoker", ("no", "yes")),
        Variable("age", ("young", "middle", "old")),
        Variable("weight", ("low", "middle", "high"), (60.0, 80.0)),
        Variable('a "b" & c', ("=", "!=", "x")),
    ]
)


@functools.cache
def find_domain(name: str) -> Domain:
    """The domains that options name: a small one, one of a variable with very many states, one of very many variables."""
    if name == "survey":
        return SURVEY
    if name == "many states":
        return Domain([Variable("big", tuple(f"s{i}" for i in range(BIG))), Variable("small", ("no", "yes"))])
    return Domain(Variable(f"variable{i}", ("no", "yes")) for i in range(40_000))


# --- valid files ------------------------------------------------------------------------------------------------------------------


@functools.cache
def seeds(reader: str) -> list[bytes]:
    """A few valid files for a reader."""
    if reader in ("csv", "txt"):
        return [
            b"smoker,age,weight\nyes,old,61.5\nno,young,80\nyes,middle,?\nno,old,72.25\n",
            b"0,1,0\n1,1,0\n0,0,1\n1,0,1\n",
            b'\xef\xbb\xbf"a ""b""","c,d";e\r\n"1",2;3\r\n"x\ny",NA;5\r\n',
            b"a;b;c\n1;2;3\n4;5;6\n7;8;9\n10;11;12\n13;14;15\n16;17;18\n19;20;21\n22;23;24\n25;26;27\n28;29;30\n31;32;33\n",
            b"0 1 1\n1 0 1\n",
            "größe|名|name\n1|é|x\n2|ß|y\n".encode(),
        ]
    if reader == "tsv":
        return [b"a\tb\tc\n1\tx\t0.5\n2\ty\t1.5\n3\t\t2.5\n", b"0\t1\n1\t0\n1\t1\n"]
    if reader == "gz":
        return [gzip.compress(content, 1, mtime=0) for content in seeds("csv")]
    if reader == "basket":
        return [b"bread milk\nbeer\n\nbread beer eggs\n", b"sour cream, milk\nbread\nmilk, bread, beer\n", b"1 2 3\n2 4\n1\n"]
    if reader == "data":
        return [b"0,1,2\n1,0,*\n1,1,0\n", b"2.5|0,1\n1|1,1\n0|*,0\n", b"0,1,0,1\n1,1,0,0\n", b"0,12\n3,7\n"]
    if reader == "parquet":
        return parquet_seeds()
    if reader in ("npz", "sparse"):
        return [write_npz({name: write_array(a) for name, a in arrays.items()}) for arrays in array_seeds(reader)]
    if reader == "json":
        return [native.dumps(network).encode() for network in network_seeds()]
    if reader == "mn":
        tree = b"2,2,3\nMN {\ntree {\n(v0_1 (v2_0 1.5 -2.0) (v1_0 0.25 1e-3))\n}\n"
        tree += b"table {\n0.5 +v0_1 +v1_0\n}\nfeatures {\n3 -1.0 +v0_0\n}\n}\n"
        return [libra.dumps(network).encode() for network in network_seeds()] + [tree]
    if reader == "uai":
        bayes = b"BAYES\n2\n2 3\n2\n1 0\n2 0 1\n\n2\n 0.4 0.6\n\n6\n 0.2 0.3 0.5 0.0 0.5 0.5\n"
        return [uai.dumps(network).encode() for network in network_seeds()] + [bayes]
    if reader == "features":
        return [
            b'# features\nsmoker=yes & age=old\nage!=young\ntrue\n\n"a \\"b\\" & c"="!=" & weight=low\n',
            b"smoker=no\nage!=old & age!=middle\nweight=high & smoker=yes & age=young\n",
        ]
    return [b"smoker=yes\nage!=old\n", b"weight=73.5\nage=old & smoker=no\n", b'"a \\"b\\" & c"!="="\n']


@functools.cache
def valid_inputs(readers: tuple[str, ...]) -> list[Input]:
    return [Input(reader, content, label="valid") for reader in readers for content in seeds(reader)]


@functools.cache
def network_seeds() -> list[MarkovNetwork]:
    features = FeatureSet.from_texts(["smoker=yes & age=old", "age!=young", "weight=low", "true", '"a \\"b\\" & c"=x'], SURVEY)
    return [
        MarkovNetwork(features, [0.5, -1.25, np.inf, 0.1, -np.inf]),
        datasets.grid_ising(2, 2, seed=1),
        datasets.random_conjunctions(4, 6, n_states=3, seed=1),
    ]


@functools.cache
def array_seeds(reader: str) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 2, (6, 10))
    if reader == "npz":
        packed = {split: np.packbits(table, axis=1) for split in ("train", "valid", "test")}
        return [
            {"X": rng.integers(0, 3, (5, 3)), "names": np.array(["a", "b", "c"]), "weights": np.array([1, 2, 0.5, 1, 1])},
            {"arr_0": rng.normal(size=(6, 2))},
            {"X": np.array([["x", "y"], ["", "y"], ["z", "w"]])},
            {"n_vars": np.array(10), **packed},
            {"n_vars": np.array(10), **packed, "names": np.array([f"item {i}" for i in range(10)])},
        ]
    found = []
    for kind in ("csr", "csc", "coo", "bsr", "dia"):
        out = io.BytesIO()
        sp.save_npz(out, sp.coo_array(table).asformat(kind), compressed=False)
        out.seek(0)
        with np.load(out) as z:
            found.append({name: z[name] for name in z.files})
    return found


def parquet_seeds() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [
        pa.table({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0.5, 1.5, None]}),
        pa.table({"flag": [True, False, None], "kind": pa.array(["u", "v", "u"]).dictionary_encode()}),
        pa.table({"list": [[1], [2, 3], []], "when": pa.array([1, 2, 3], pa.timestamp("ns")), "bytes": [b"\xff", b"a", b""]}),
        pa.table({"struct": [{"x": 1}, {"x": 2}], "nothing": pa.nulls(2), "span": pa.array([1, 2], pa.duration("s"))}),
        pa.table([pa.array([1, 2]), pa.array([3, 4])], names=["twice", "twice"]),
        pa.table({"a": pa.array([], pa.int64())}),
        pa.table({}),
        pa.table({"when": pa.array([253402300800, -(10**12)], pa.timestamp("s"))}),
        pa.table({"map": pa.array([[("a", 1)], []], pa.map_("string", "int8"))}),
    ]
    found = []
    for table in tables:
        out = io.BytesIO()
        pq.write_table(table, out, compression="none")
        found.append(out.getvalue())
    return found


# --- mutations --------------------------------------------------------------------------------------------------------------------

NUMBERS = [
    *b"""
    -1 0 1 2 7 127 128 255 29999 30000 30001 65536 2147483647 2147483648 9223372036854775808 99999999999999999999 -99999999999
    1e308 -1e308 1e309 1e-320 1e999999999 nan -nan inf -inf Infinity NaN 0x10 1_000 +1 -0 -0.0 1. .5 00 007 1e --1 1,5 True null 1j
    """.split(),
    b"9" * 400,
    b"9" * 5000,
    *(digit.encode() for digit in ("\u00b2", "\u0663", "\u2167", "\uff11\uff12")),  # digits to isdigit(), but not all to int()
]
TOKENS = [
    *b', ; | : & = != ! # * ? % < \' " "" \\ \\" \\u0000 \\ud800 { } ( ) [ ] NA true MN tree table features'.split(),
    *b'+v0_1 -v0_1 +v9_9 v1_0 (v0_1 MARKOV BAYES smoker yes age=old "format" "states" "edges"'.split(),
    *(b"MN {", b"tree {", b"table {", b"features {", b" ", b"\t", b"\n", b"\r", b"\r\n", b"\n\n", b"a" * 300, b"\x1f\x8b\x08"),
    *(b"\0", b"\x1b[31m", b"\x07", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xa0", b"\xff\xfe", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"),
    *(c.encode() for c in ("\ufeff", "\u2028", "\u202e", "\u00a0", "\U0001d538", "\u00e9", "\u0301")),
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def mutate(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """One random change."""
    way = rng.randrange(10)
    at = rng.randrange(len(content) + 1)
    if way == 0 and content:  # flip a bit
        at = rng.randrange(len(content))
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    if way <= 2:
        return content[:at] + rng.choice(TOKENS) + content[at:]
    if way <= 5:  # another number in place of one
        found = list(_NUMBER.finditer(content))
        if found:
            match = rng.choice(found)
            return content[: match.start()] + rng.choice(NUMBERS) + content[match.end() :]
        return content[:at] + rng.choice(NUMBERS) + content[at:]
    end = min(len(content), at + 1 + int(rng.expovariate(0.1)))
    if way == 6:
        return content[:at] + content[end:]
    if way == 7:
        return content[:at] + content[at:end] * rng.choice([2, 3, 10, 50]) + content[end:]
    if way == 8:
        return content[:at] if rng.random() < 0.5 else content[at:]
    return content[:at] + other[rng.randrange(len(other) + 1) :]


def mutate_often(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """No change, one, or several."""
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        content = mutate(rng, content, other)[:MAX_BYTES]
    return content


NODES: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, 1e-320, "inf", "-inf", "nan"),
    *("", "no", "yes", "age", "\0", "\x1b[31m", "\ud800", "\udfff\ud800", "\u2028", "\ufffe", "\u00e9", "x" * 500),
    *([], {}, [[]], [1], ["a"], {"name": "a", "states": ["0", "1"]}, [0.5, 0, 2], [0.5, 0, 0, 9, 9]),
]


def mutate_tree(rng: random.Random, content: bytes) -> bytes:
    """JSON with random nodes replaced, removed or doubled, written as JSON again."""
    tree = json.loads(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        inner: Any = [tree]
        while True:  # walk down to a random place
            key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
            child = inner[key]
            if not (isinstance(child, dict | list) and child) or rng.random() < 0.15:
                break
            inner = child
        way = rng.random()
        if way < 0.6 or inner is tree or not isinstance(inner, list):
            inner[key] = copy.deepcopy(rng.choice(NODES))  # a shared one would be changed by the next mutation
        elif way < 0.8:
            del inner[key]
        else:
            inner.append(copy.deepcopy(child))
    return json.dumps(tree, ensure_ascii=rng.random() < 0.7).encode("utf8", "surrogatepass")


def write_array(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


def write_npz(members: dict[str, bytes], deflate: bool = False) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as z:
        for name, content in members.items():
            z.writestr(zipfile.ZipInfo(f"{name}.npy"), content)
    return out.getvalue()


SHAPES = [
    *("()", "(0,)", "(3,)", "(2, 3)", "(0, 3)", "(3, 0)", "(1, 1, 1)", "(-1,)", "(2, -3)", "(1000000000000,)", "(100000, 100000)"),
    *("(2, 9223372036854775807)", "(4294967296, 4294967296)", "(2.5,)", "None", "(True, 2)", "('a',)", "[2, 3]", "(1,) * 40"),
]
TYPES = [
    *("'<i8'", "'<i4'", "'|i1'", "'<u8'", "'|b1'", "'<f8'", "'<f2'", "'<f16'", "'<c16'", "'<U3'", "'<U0'", "'<U1000000000'", "'|S3'"),
    *("'|V3'", "'|V0'", "'|O'", "'<M8[ns]'", "'<m8[s]'", "'>i8'", "'x'", "[('a', '<i4'), ('b', '<f8')]", "[]", "5", "None"),
    "('<i4', (2, 2))",
]
HOSTILE_ARRAYS = [
    *map(np.array, (5, -1, 2**31, 2**62, np.nan, "csr", b"csr", b"lil", "x")),
    *map(np.zeros, (0, (0, 3), (3, 0), (2, 2, 2))),
    *map(
        np.array, ([0, 1, 2, 3, 4], [0, -1, -2], [3, 1, 0, 7, 2**40], [10, 10], [2, 10**9], [10**6, 10**6], [-1, 10], [[10, 10]], [5.5, 2])
    ),
    *map(np.array, ([np.nan, np.inf, -np.inf], [[np.nan, np.inf], [1, -np.inf]], [[1j, 2], [3, 4]], [[1e308, -1e308], [5e-324, 0]])),
    *map(np.array, ([["\ud800", "\0"], ["\x1b[31m", ""]], ["a", "a"], [[b"\xff", b"a"]], [[True, False], [True, True]])),
    np.array([{"a": 1}, None], dtype=object),
    np.array([["2020-01-01", "NaT"]], dtype="M8[D]"),
    np.array([[1, 2]], dtype="m8[s]"),
    np.zeros(3, dtype=[("a", int), ("b", float)]),
    np.array([[2**63, 1]], dtype=np.uint64),
    np.zeros((2, 2), dtype="V3"),
    np.eye(3, dtype=np.float16),
    np.ones((2, 300), dtype=np.uint8),
]
MEMBERS = ("X", "names", "weights", "n_vars", "train", "format", "shape", "indices", "data", "offsets", "\x1b[31m")


def mutate_members(rng: random.Random, reader: str) -> bytes:
    """An .npz whose arrays are wrong, in an archive that is right, so that the mutation reaches the parser of arrays."""
    arrays = rng.choice(array_seeds(reader))
    members = {name: write_array(a) for name, a in arrays.items()}
    for _ in range(rng.choice([1, 1, 2, 3])):
        if not members:
            break
        name = rng.choice(list(members))
        way = rng.randrange(8)
        if way == 0:  # any header before the data
            order = rng.choice(["True", "False", "2"])
            header = f"{{'descr': {rng.choice(TYPES)}, 'fortran_order': {order}, 'shape': {rng.choice(SHAPES)}, }}"
            members[name] = write_header(header) + rng.choice(list(members.values()))[rng.choice([64, 128]) :]
        elif way <= 2:
            members[name] = write_array(rng.choice(HOSTILE_ARRAYS))
        elif way == 3:  # other bytes in the data, such as indices out of range
            at = rng.randrange(len(members[name]) + 1)
            patch = rng.choice([b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0" * 8, b"\x05", b"\0\0\0\0\0\0\xf8\x7f", b"\0\xd8\0\0"])
            members[name] = members[name][:at] + patch + members[name][at + len(patch) :]
        elif way == 4:
            members[name] = members[name][: rng.randrange(len(members[name]) + 1)]
        elif way == 5:
            del members[name]
        elif way == 6:
            members[rng.choice(MEMBERS)] = members[name]
        else:
            members[name] = mutate(rng, members[name], rng.choice(list(members.values())))[:MAX_BYTES]
    content = write_npz(members, deflate=rng.random() < 0.2)
    return mutate(rng, content, b"") if rng.random() < 0.1 else content


def write_header(text: str) -> bytes:
    body = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def make_mutation(seed: int, number: int, readers: list[str]) -> Input:
    """The mutation of a number."""
    rng = random.Random(f"{seed}/{number}")
    reader = rng.choices(readers, [READERS[r][1] for r in readers])[0]
    content = _mutated(rng, reader)
    return Input(reader, content, _options(rng, reader))


def _mutated(rng: random.Random, reader: str) -> bytes:
    if reader == "gz" and rng.random() < 0.7:
        plain = seeds("csv")
        return gzip.compress(mutate_often(rng, rng.choice(plain), rng.choice(plain)), 1, mtime=0)
    if reader in ("npz", "sparse") and rng.random() < 0.85:
        return mutate_members(rng, reader)
    content = rng.choice(seeds(reader))
    if reader == "json" and rng.random() < 0.6:
        return mutate_tree(rng, content)
    from_where = rng.choice(["csv", "tsv", "basket", "data", "json", "mn", "uai"]) if rng.random() < 0.1 else reader
    other = rng.choice(seeds(from_where))
    return mutate_often(rng, content, other)


def _options(rng: random.Random, reader: str) -> dict[str, Any]:
    if reader in TABLES and rng.random() < 0.25:
        choices: list[dict[str, Any]] = [
            *(
                {"missing": "state"},
                {"missing": "drop"},
                {"missing": "mode"},
                {"header": True},
                {"header": False},
                {"bins": 2},
                {"bins": 50},
            ),
            *({"domain": "survey"}, {"domain_from": "itself"}, {"split": "train"}, {"split": "test"}),
            *({"format": "csv"}, {"format": "basket"}, {"format": "libra"}, {"format": "npz"}),
        ]
        return rng.choice(choices)
    if reader == "evidence" and rng.random() < 0.4:
        return {"value": rng.randrange(len(EVIDENCE_VALUES)), "variable": rng.choice([v.name for v in SURVEY.variables])}
    return {}


EVIDENCE_VALUES: list[Any] = [
    *(float("nan"), float("inf"), -1, 0, 1, True, 1.0, 1.5, 1e308, 10**400, 10**5000, 1j, None, object, np.float32(2.5), np.bool_(True)),
    *("", "yes", "1e400", "\u00b2", "\ud800", b"yes", "yes & no", [], {}, set(), (), [None], ["no", "yes"], [[1]], [{"yes": 1}], range(2)),
    *({"yes": float("nan")}, {"yes": 10**400}, {"yes": -1}, {"no": "x"}, {"no": None}, {"nowhere": 1}, {None: 1}, {"no": [1]}),
    {"no": 1e-320, "yes": 1e308},
    *map(np.array, ([1, 2], ["a", "b"], [1.0, np.nan, 0.5], [0.0, 0.0, 0.0], 1, [[1, 2, 3]], [1j, 2, 3])),
    np.array([None, 1], dtype=object),
]
