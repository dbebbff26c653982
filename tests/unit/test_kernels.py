"""The native kernels at their door: instruction sets, what they refuse, their type stub."""

from __future__ import annotations

import ast
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from instructions import INSTRUCTION_SETS, using
from kernel_objects import model_of, needs_native, sampler_of, search_of, small, tables_of
from strategies import all_rows
from undirected import Dataset, Domain, kernels
from undirected.errors import ParameterError
from undirected.kernels import SlowKernels, backend, reference
from undirected.network.synthetic import random_conjunctions
from undirected.work import Stopped, StoppedBy


def test_every_machine_has_the_baseline():
    if backend().name == "native":
        assert INSTRUCTION_SETS[0] == "baseline"
        assert backend().module.instruction_set() in INSTRUCTION_SETS


@needs_native
def test_the_environment_chooses_the_instruction_set(monkeypatch):
    with using(backend().module.instruction_set()):
        for name in INSTRUCTION_SETS:
            monkeypatch.setenv("UNDIRECTED_ISA", name)
            assert backend.__wrapped__().reason == f"compiled, instruction set {name}"
            assert backend().module.instruction_set() == name
        monkeypatch.setenv("UNDIRECTED_ISA", "sse9")
        with pytest.raises(ParameterError, match=r"UNDIRECTED_ISA: no instruction set 'sse9'.*baseline"):
            backend.__wrapped__()


def test_the_environment_chooses_the_kernels(monkeypatch):
    monkeypatch.setenv("UNDIRECTED_KERNELS", "reference")
    assert backend.__wrapped__().module is reference
    monkeypatch.setenv("UNDIRECTED_KERNELS", "fast")
    with pytest.raises(ParameterError, match="'fast'; it may be 'native' or 'reference'"):
        backend.__wrapped__()


def test_missing_native_kernels_are_told(monkeypatch):
    monkeypatch.delattr(kernels, "_native", raising=False)
    monkeypatch.setitem(sys.modules, "undirected.kernels._native", None)
    with pytest.warns(SlowKernels, match="many times slower"):
        found = backend.__wrapped__()
    assert found.module is reference
    assert "C++20 compiler" in found.reason


def replaced(array, at, value):
    out = array.copy()
    out[at] = value
    return out


SQUARE = np.zeros((3, 3), np.float32)
FALLING = np.array([0, 5, 3, 14])
BAD_TABLES = {
    "no row": (lambda s: {"row_weight": np.zeros(0), "columns": np.zeros((8, 0), np.uint64)}, "at least one row"),
    "no state": (lambda s: {"n_states": replaced(s.n_states, 0, 0)}, "variable 0 has 0 states"),
    "states below zero": (lambda s: {"n_states": np.array([2, 3, -1, 4])}, "variable 2 has -1 states"),
    "too many states": (lambda s: {"n_states": replaced(s.n_states, 1, 40000)}, "at most 32,767"),
    "a column missing": (lambda s: {"columns": s.columns[:7]}, "one bit column per literal"),
    "a word too many": (lambda s: {"columns": np.zeros((8, 3), np.uint64)}, "one bit per row"),
    "bits past the end": (lambda s: {"columns": replaced(s.columns, (3, 1), np.uint64(1) << np.uint64(63))}, "literal 3 has bits beyond"),
    "a weight below zero": (lambda s: {"row_weight": replaced(s.row_weight, 7, -1)}, "row 7 has weight -1"),
    "an infinite weight": (lambda s: {"row_weight": replaced(s.row_weight, 7, np.inf)}, "row 7 has weight inf"),
}
BAD_FEATURES = {
    "no offset": (lambda s: {"start": np.zeros(0, np.int64)}, "no offset at all"),
    "a first offset": (lambda s: {"start": replaced(s.start, 0, 1)}, "first offset is 1"),
    "an offset below zero": (lambda s: {"start": replaced(s.start, 0, -5)}, "first offset is -5"),
    "falling offsets": (lambda s: {"start": replaced(s.start, 3, 99)}, "offsets fall from 99 to 5 at position 4"),
    "offsets past the end": (lambda s: {"start": replaced(s.start, -1, 99)}, "last offset is 99, but there are 14"),
    "a literal too large": (lambda s: {"literals": replaced(s.literals, 0, 16)}, "no such literal: 16 at position 0, expected 0 to 15"),
    "a literal below zero": (lambda s: {"literals": replaced(s.literals, 2, -1)}, "no such literal: -1 at position 2"),
    "unsorted literals": (lambda s: {"literals": replaced(s.literals, 7, 7)}, "feature 5 are not sorted by variable"),
}


@needs_native
@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_refused(case):
    s = small()
    change, message = BAD_TABLES[case]
    for build in (tables_of, search_of):
        with pytest.raises(ValueError, match=message):
            build(s, **change(s))


@needs_native
@pytest.mark.parametrize("case", BAD_FEATURES)
def test_bad_features_are_refused(case):
    s = small()
    change, message = BAD_FEATURES[case]
    with pytest.raises(ValueError, match=message):
        tables_of(s, **change(s))
    given = SimpleNamespace(**{**vars(s), **change(s)})
    search, model_weights = search_of(s), np.zeros(len(given.start) - 1 if len(given.start) else 0)
    features = (given.start, given.literals)
    nobody = (np.zeros(1, np.int64), np.zeros(0, np.int32))
    owner = np.full(len(model_weights), -1, np.int32)
    for call in (
        lambda: search.load(*features, model_weights, 1),
        lambda: search.gains(*features, owner, *nobody, np.zeros(0), 0.0, 0.0, 1.0, s.price, True, 1),
        lambda: search.generalise(*features, None, 1, np.ones(1), 1),
        lambda: search.screen(*features, np.zeros(1, np.int32), 1),
        lambda: search.join(*features, 0, 1, 5, 0.0, 0.0, 1.0, s.price, 1),
        lambda: backend().module.Model(s.n_states, *features, model_weights),
    ):
        with pytest.raises(ValueError, match=message):
            call()


BAD_CALLS = {
    "tables: targets": (lambda s: tables_of(s, targets=np.full(8, 4, np.int32)), "no such target: 4"),
    "tables: a target too few": (lambda s: tables_of(s, targets=np.full(7, 0, np.int32)), "one target per feature"),
    "tables: marks": (lambda s: tables_of(s).set_active(np.ones(3, np.uint8)), "one mark per feature"),
    "tables: weights": (lambda s: tables_of(s).evaluate(np.zeros(3), True, True, False, 1), "one value per feature"),
    "tables: literals": (lambda s: tables_of(s).probabilities(s.weights, 9, 1), "n_literals"),
    "tables: stride": (lambda s: tables_of(s).sample(s.weights, 0, 1), "stride"),
    "gram: no sample": (lambda s: tables_of(s).gram(0, np.zeros(1, np.int32)), "call `sample` first"),
    "gram: one state": (lambda s: sampled(s).gram(2, np.zeros(1, np.int32)), "one state has no term"),
    "gram: variable": (lambda s: sampled(s).gram(4, np.zeros(1, np.int32)), "no such variable"),
    "gram: feature": (lambda s: sampled(s).gram(0, np.array([8], np.int32)), "no such feature: 8"),
    "descent: weights": (lambda s: descent_of(s).set_weights(np.zeros(3), 1), "one value per feature"),
    "descent: feature": (lambda s: descent_of(s).spread_out(np.array([8], np.int32)), "no such feature: 8"),
    "descent: twice": (lambda s: sweep_of(s, order=[1, 1]), "visited twice"),
    "descent: penalty": (lambda s: sweep_of(s, ridge=np.zeros(3)), "one value per feature"),
    "descent: direction": (lambda s: descent_of(s).keep_image(4, 1), "no such direction"),
    "descent: no image": (lambda s: descent_of(s).set_image(0, s.weights, 1), "no image"),
    "descent: amounts": (lambda s: descent_of(s).measure(np.zeros(1), 1), "more amounts than directions"),
    "descent: move": (lambda s: descent_of(s).move(np.zeros(0), 0, s.weights, 1), "no image"),
    "factors: one state": (lambda s: block_of(s, variable=2), "one state has no term"),
    "factors: falling offsets": (lambda s: block_of(s, start=[0, 3, 2]), "offsets fall"),
    "factors: member": (lambda s: block_of(s, members=[0, -1]), "no such feature: -1"),
    "times_blocks: no offset": (lambda s: times([], [], 0), "no offset"),
    "times_blocks: falling offsets": (lambda s: times([0, 3, 2], [0, 1], 40), "offsets fall"),
    "times_blocks: member": (lambda s: times([0, 2], [0, 9], 16), "no such place"),
    "times_blocks: factors": (lambda s: times([0, 2], [0, 1], 5), "factors do not fit"),
    "add_block: place": (lambda s: backend().module.add_block(SQUARE, np.array([3]), SQUARE[:1, :1].copy()), "outside the matrix"),
    "fit_diagonal: shape": (lambda s: backend().module.fit_diagonal(SQUARE, np.zeros(2), 0.0), "one diagonal entry per row"),
    "gssl: falling offsets": (lambda s: backend().module.gssl_generate(FALLING, s.literals[:14], 50, 0, 1, 1), "offsets fall"),
    "gssl: too many": (lambda s: backend().module.gssl_generate(s.start, s.literals, 1 << 31, 0, 1, 1), "2\\^31"),
    "trees: code": (lambda s: grow(s, codes=replaced(s.codes, (1, 5), 3)), "code 3 of variable 1 in row 5 is none of its 3 states"),
    "trees: missing cell": (lambda s: grow(s, codes=replaced(s.codes, (1, 5), -1)), "code -1"),
    "trees: target": (lambda s: grow(s, targets=np.array([4], np.int32)), "no such target: 4"),
    "trees: no end": (lambda s: grow(s, min_rows=0.0, min_gain=-1.0), "never end"),
    "trees: weights": (lambda s: grow(s, row_weight=-s.row_weight), "not below zero"),
    "walk: root": (lambda s: walk(s, start=[1, 2]), "first offset"),
    "walk: test": (lambda s: walk(s, test=[8, -1, -1]), "literal that does not exist"),
    "walk: children": (lambda s: walk(s, yes=[0, -1, -1]), "children come after"),
    "walk: counts": (lambda s: walk(s, count_start=[0, 2, 5, 6]), "one count per state"),
    "walk: falling counts": (lambda s: walk(s, count_start=[0, 9, 4, 6]), "offsets fall"),
    "combine: stratum": (lambda s: backend().module.combine(np.array([2]), 2, np.array([0]), 1), "no such stratum: 2"),
    "strata: stratum": (lambda s: strata_of(s).test(np.ones(100, np.int32), 1, 0, np.zeros(0, np.int32), 1.0, 5.0), "no such stratum: 1"),
    "strata: other": (lambda s: strata_of(s).test(np.zeros(100, np.int32), 1, 0, np.array([4], np.int32), 1.0, 5.0), "no such variable: 4"),
    "search: change": (lambda s: search_of(s).change(np.array([3, 1], np.int32), 0.1), "sorted by variable"),
    "search: price": (lambda s: search_of(s).join(s.start[:1], s.literals[:0], 0, 0, 5, 0.0, 0.0, 1.0, np.zeros(3), 1), "one price"),
    "search: two literals of a variable": (
        lambda s: search_of(s).join(np.array([0, 2]), np.array([2, 3], np.int32), 0, 1, 5, 0.0, 0.0, 1.0, s.price, 1),
        "one literal per variable",
    ),
    "search: extra": (lambda s: search_of(s).screen(s.start, s.literals, np.array([8], np.int32), 1), "no such positive literal: 8"),
    "search: sizes": (lambda s: search_of(s).generalise(s.start, s.literals, None, 1, np.array([2.0, 1.0]), 1), "sizes must rise"),
    "search: counts": (lambda s: search_of(s).generalise(s.start, s.literals, np.zeros((2, 2)), 1, np.ones(1), 1), "pair of literals"),
    "model: weight": (lambda s: model_of(s, weights=replaced(s.weights, 0, np.nan)), "must be finite"),
    "model: evidence": (lambda s: model_of(s).solve(np.zeros((1, 8), np.uint8), 1e3, 1, 0, 1), "without a state"),
    "model: marks": (lambda s: model_of(s).solve(np.ones((1, 7), np.uint8), 1e3, 1, 0, 1), "one mark per literal"),
    "model: first": (
        lambda s: model_of(s).mcsat(np.ones((1, 8), np.uint8), 2, 1, 1, 1e4, 0, 1, np.zeros((1, 4), np.int16)), "first state of every"
    ),
    "sampler: states": (lambda s: sampler_of(s, model_of(s), states=np.full((200, 4), 2, np.int16)), "against its evidence"),
    "sampler: row": (lambda s: sampler_of(s, model_of(s), row_of=np.full(200, 1, np.int32)), "no such row of evidence: 1"),
    "sampler: order": (lambda s: sampler_of(s, model_of(s), order=np.array([0, 1, 1, 3], np.int32)), "every variable once"),
    "sampler: sweeps": (lambda s: sampler_of(s, model_of(s)).run(-1, None, None, False, False, False, 1), "fewer than no sweeps"),
    "sampler: betas": (lambda s: sampler_of(s, model_of(s)).run(2, np.ones(3, np.float32), None, False, False, False, 1), "one beta"),
    "sampler: annealing": (lambda s: sampler_of(s, model_of(s)).run(2, None, None, False, True, False, 1), "annealing needs"),
}  # fmt: skip


def descent_of(s):
    return backend().module.Descent(tables_of(s), 1)


def sweep_of(s, order=(0, 1), ridge=None):
    one, written = np.ones(8), [np.zeros(8) for _ in range(4)]
    return descent_of(s).sweep(np.array(order, np.int32), one, one if ridge is None else ridge, one, *written, True, 0.0, 0.0, 1)


def sampled(s):
    tables = tables_of(s)
    tables.sample(s.weights, 1, 1)
    return tables


def block_of(s, variable=0, start=(0, 2), members=(0, 3)):
    args = (np.full(len(start) - 1, variable, np.int32), np.array(start), np.array(members, np.int32))
    return sampled(s).factors(*args, np.ones(8), 0.5, 1)


def times(start, members, n_factors):
    vectors = np.ones((2, 4), np.float32)
    start, members = np.array(start, np.int64), np.array(members, np.int32)
    return backend().module.times_blocks(start, members, np.ones(n_factors, np.float32), *vectors, 1)


def grow(s, min_rows=1.0, min_gain=0.0, targets=(0,), **other):
    given = {**vars(s), **other}
    args = (given["codes"], given["n_states"], given["row_weight"], np.array(targets, np.int32), min_rows, min_gain, 1)
    return backend().module.grow_trees(*args, lambda done: True)


def walk(s, start=(0, 3), test=(2, -1, -1), yes=(1, -1, -1), no=(2, -1, -1), count_start=(0, 2, 4, 6)):
    nodes = (np.array(x, np.int32) for x in (test, yes, no))
    args = (s.codes, s.n_states, s.row_weight, np.zeros(1, np.int32), np.array(start), *nodes, np.array(count_start))
    return backend().module.walk_trees(*args, np.zeros(6), 1)


def strata_of(s):
    return backend().module.Strata(s.codes, s.n_states, s.row_weight)


@needs_native
@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_are_refused(case):
    call, message = BAD_CALLS[case]
    with pytest.raises(ValueError, match=message):
        call(small())


@needs_native
def test_good_calls_of_the_same_shape_are_not():
    s = small()
    assert block_of(s).size == 16
    assert walk(s)[1].shape == (100,)
    assert len(times([0, 2], [0, 1], 16)[0]) == 4
    assert len(grow(s)[0]) == 2


@needs_native
def test_what_is_not_an_array_is_a_type_error():
    s = small()
    for call in (
        lambda: tables_of(s, targets="no"),
        lambda: sampler_of(s, "no model"),
        lambda: sampler_of(s, model_of(s)).run(2, "no", None, False, False, False, 1),
    ):
        with pytest.raises(TypeError):
            call()


@needs_native
def test_a_table_that_changes_later_does_no_harm():
    s = small()
    codes, rows, others = s.codes.copy(), np.zeros(100, np.int32), np.array([1, 3], np.int32)
    strata = backend().module.Strata(codes, s.n_states, s.row_weight)
    expected = strata.test(rows, 1, 0, others, 1.0, 5.0)
    codes[:] = 30000
    for a, b in zip(strata.test(rows, 1, 0, others, 1.0, 5.0), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_native
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_samplers_of_every_instruction_set_agree_with_enumeration(instruction_set):
    """Variables of two states, of more, and groups that shun each other; marginals by sweeps and log Z by annealing."""
    network = random_conjunctions(6, 14, n_states=3, seed=3)
    domain, f = network.domain, network.features
    rows = all_rows(domain)
    held = np.zeros((len(rows), domain.n_literals))
    np.put_along_axis(held, rows + domain.base[:-1], 1.0, axis=1)
    both = np.concatenate([held, 1 - held], axis=1)
    scores = sum(w * both[:, f.literals[a:b]].prod(axis=1) for w, a, b in zip(network.weights, f.start[:-1], f.start[1:], strict=True))
    log_z = np.logaddexp.reduce(scores)
    marginals = np.exp(scores - log_z) @ held
    n_chains, n_sweeps = 640, 300
    with using(instruction_set):
        model = backend().module.Model(domain.n_states, f.start, f.literals, network.weights)
        starts = np.random.default_rng(0).integers(0, domain.n_states, size=(n_chains, len(domain))).astype(np.int16)
        args = (np.ones((1, domain.n_literals), np.uint8), np.zeros(n_chains, np.int32), starts, np.arange(len(domain), dtype=np.int32))
        sampler = backend().module.Sampler(model, *args, 5)
        beta = np.linspace(0, 1, 100, dtype=np.float32)
        sampler.run(100, beta, np.zeros(domain.n_literals, np.float32), False, True, False, 2)
        found = np.logaddexp.reduce(sampler.log_weights()) - np.log(n_chains) + np.log(domain.n_states).sum()
        sampler.run(n_sweeps, None, None, True, False, False, 2)
        shares = sampler.sums() / n_sweeps
        chosen = (sampler.states() + domain.base[:-1])[:, :, None] == np.arange(domain.n_literals)
        at = np.concatenate([chosen.any(axis=1), ~chosen.any(axis=1)], axis=1)
        expected = sum(w * at[:, f.literals[a:b]].all(axis=1) for w, a, b in zip(network.weights, f.start[:-1], f.start[1:], strict=True))
        np.testing.assert_allclose(sampler.scores(1), expected, atol=1e-4)
    error = shares.std(axis=0, ddof=1) / np.sqrt(n_chains)
    assert (np.abs(shares.mean(axis=0) - marginals) < 5 * error + 1e-4).all()
    assert found == pytest.approx(log_z, abs=0.1)


def stub_signatures():
    """Names of the stub's functions, and of its classes' methods, with those of their parameters."""
    tree = ast.parse((Path(kernels.__file__).parent / "_native.pyi").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(part, ast.FunctionDef):
                name = f"{node.name}.{part.name}" if isinstance(node, ast.ClassDef) else part.name
                found[name] = [a.arg for a in part.args.args]
    return found


def module_signatures():
    found = {}
    for name, value in vars(backend().module).items():
        if name.startswith("__"):
            continue
        parts = (
            {f"{name}.{k}": v for k, v in vars(value).items() if not k.startswith("__") or k == "__init__"}
            if isinstance(value, type)
            else {name: value}
        )
        for key, function in parts.items():
            (signature,) = (s[0] for s in function.__nb_signature__)
            found[key] = re.findall(r"(?:^def \w+\(|, )(\w+)(?=[:,)])", re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", signature)))
    return found


@needs_native
def test_the_stub_is_that_of_the_module():
    assert stub_signatures() == module_signatures()


@pytest.fixture(scope="module")
def very_many():
    """Arguments of kernels that take long to prepare: distinct rows, and features of five literals."""
    rng = np.random.default_rng(0)
    data = Dataset(Domain.from_sizes([2] * 40), rng.integers(0, 2, (200_000, 40), dtype=np.int8)).distinct
    chosen = np.sort(rng.permuted(np.tile(np.arange(40, dtype=np.int32), (40_000, 1)), axis=1)[:, :5], axis=1)
    start, literals = np.arange(0, 5 * len(chosen) + 1, 5), 2 * chosen.ravel() + 1
    return data.columns, data.domain.n_states, data.weights, start, literals, 1 << 20, 1


@needs_native
def test_preparing_ends_where_the_watch_raises(very_many):
    asked = []

    def watch():
        asked.append(0)
        if len(asked) == 2:
            raise Stopped(StoppedBy.TIME)

    with pytest.raises(Stopped):
        backend().module.PseudoLikelihoodTables(*very_many, None, watch)
    assert len(asked) == 2


@needs_native
def test_a_watch_may_use_the_kernels_itself(very_many):
    *table, _ = very_many
    found = []

    s = small(n_rows=50_000)

    def watch():
        tables = backend().module.PseudoLikelihoodTables(s.columns, s.n_states, s.row_weight, s.start, s.literals, 1 << 20, 2)
        found.append(tables.evaluate(s.weights, True, False, False, 2)[0])

    backend().module.PseudoLikelihoodTables(*table, 2, None, watch)
    assert len(found) > 1
    assert len(set(found)) == 1


@needs_native
def test_signals_are_heeded_while_very_many_features_are_prepared(very_many):
    """A Python handler runs only when the kernels ask for it, or once after they have returned."""
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(0))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        backend().module.PseudoLikelihoodTables(*very_many)
        n = len(seen)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert n > 2
