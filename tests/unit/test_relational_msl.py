"""Markov logic: clauses and their counts against lists of all groundings, weights against differences, rules that are known to hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from undirected import DataError, FormatError, ParameterError
from undirected.data.dataset import Dataset
from undirected.data.variables import Domain, Variable
from undirected.relational.clause_search import ClauseSearch, Limits
from undirected.relational.clause_weights import WeightedPseudoLikelihood
from undirected.relational.clauses import Clause, GroundAtoms, Literal, Vocabulary
from undirected.relational.data import Entities, RelationalData
from undirected.relational.msl import MSL, run_mean_field
from undirected.relational.schema import Argument, EntityType
from undirected.work import StoppedBy, Work

YES = ("no", "yes")
SMALL = {"max_literals": 3, "beam": 4, "n_scored": 20}


def make_data(
    people, pairs, arguments, sizes=(("Old", YES), ("Tall", YES)), relations=(("Likes", YES), ("Knows", YES), ("Kin", ("a", "b", "c")))
):
    """People and pairs of people, from codes."""
    person = EntityType("person", Domain([Variable(name, states) for name, states in sizes]))
    twins = (Argument("first", "person"), Argument("second", "person"))
    pair = EntityType("pair", Domain([Variable(name, states) for name, states in relations]), twins)
    keys = tuple(f"p{k}" for k in range(len(people)))
    none = np.zeros((len(people), 0), np.int32)
    return RelationalData(
        [
            Entities(person, Dataset(person.attributes, np.asarray(people, np.int8)), none, keys),
            Entities(pair, Dataset(pair.attributes, np.asarray(pairs, np.int8)), np.asarray(arguments, np.int32)),
        ]
    )


def draw_data(seed, n=4, missing=0.0, left_out=0.0):
    rng = np.random.default_rng(seed)
    arguments = np.array(list(itertools.product(range(n), repeat=2)))
    arguments = arguments[rng.random(len(arguments)) >= left_out]
    people = rng.integers(0, 2, (n, 2))
    pairs = np.stack([rng.integers(0, k, len(arguments)) for k in (2, 2, 3)], axis=1)
    people[rng.random(people.shape) < missing] = -1
    pairs[rng.random(pairs.shape) < missing] = -1
    return make_data(people, pairs, arguments)


def draw_clause(vocabulary, seed, n_variables=3):
    rng = np.random.default_rng(seed)
    literals = []
    for _ in range(rng.integers(1, 5)):
        number = int(rng.integers(len(vocabulary)))
        arguments = rng.integers(0, n_variables, len(vocabulary.predicates[number].kinds))
        literals.append(Literal(number, tuple(arguments.tolist()), bool(rng.integers(2))))
    return Clause.of(literals)


def list_true(vocabulary, data, clause):
    """How many groundings are true and how many there are, one after another."""
    places = {(t, *row): e for t, table in enumerate(data.tables) for e, row in enumerate(table.arguments.tolist())}
    n_true = n = 0
    for entities in itertools.product(range(len(data["person"])), repeat=clause.n_variables):
        truths = []
        for literal in clause.literals:
            predicate = vocabulary.predicates[literal.predicate]
            named = [entities[a] for a in literal.arguments]
            row = named[0] if len(named) == 1 else places.get((predicate.table, *named))
            holds = None if row is None else data.tables[predicate.table].cells.codes[row, predicate.attribute] == predicate.state
            truths.append(None if holds is None else holds == literal.positive)
        if None not in truths:
            n, n_true = n + 1, n_true + any(truths)
    return n_true, n


def change_cell(data, table, row, attribute, code):
    tables = list(data.tables)
    codes = tables[table].cells.codes.copy()
    codes[row, attribute] = code
    old = tables[table]
    tables[table] = Entities(old.type, Dataset(old.cells.domain, codes), old.arguments, old.keys)
    return RelationalData(tables)


@pytest.mark.parametrize("seed", range(25))
def test_counts_equal_a_list_of_all_groundings(seed):
    data = draw_data(seed, left_out=0.3 * (seed % 2))
    vocabulary = Vocabulary(data.schema)
    clause = draw_clause(vocabulary, seed)
    assert GroundAtoms(vocabulary, data).count_groundings(clause) == list_true(vocabulary, data, clause)


@pytest.mark.parametrize("seed", range(25))
def test_differences_equal_a_change_of_a_cell_and_a_new_list(seed):
    """Also where several literals name one cell, with states of one attribute among them."""
    data = draw_data(seed, n=3, left_out=0.3 * (seed % 2))
    vocabulary = Vocabulary(data.schema)
    clause = draw_clause(vocabulary, seed, n_variables=2 + seed % 2)
    found = GroundAtoms(vocabulary, data).count_differences(clause)
    for (table, attribute), members in itertools.groupby(range(len(vocabulary)), lambda k: spell(vocabulary, k)):
        members = list(members)
        n = len(data.tables[table].cells.codes)
        rises = np.stack([found.get(k, np.zeros(n)) for k in members])
        if len(members) == 1:
            rises = np.concatenate([np.zeros((1, n)), rises])
        for row in range(n):
            counts = [list_true(vocabulary, change_cell(data, table, row, attribute, code), clause)[0] for code in range(len(rises))]
            np.testing.assert_allclose(rises[:, row] - rises[0, row], np.array(counts) - counts[0])


def spell(vocabulary, number):
    return vocabulary.predicates[number].table, vocabulary.predicates[number].attribute


def test_unknown_atoms_stand_at_their_mean():
    """The falsehood of a clause is then a product of means: here 1 - p for every other person."""
    data = make_data([[1, 0], [-1, 0], [0, 1]], np.zeros((9, 3)), list(itertools.product(range(3), repeat=2)))
    vocabulary = Vocabulary(data.schema)
    clause, _ = vocabulary.read("Old(x) v Tall(x)")
    mean = (1 + 0.5) / (2 + 1)
    found = GroundAtoms(vocabulary, data).count_differences(clause)
    np.testing.assert_allclose(found[1], [0, 1 - mean, 1], rtol=1e-6)
    np.testing.assert_allclose(found[0], [1, 1, 0], rtol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_a_clause_survives_printing_and_reading(seed):
    vocabulary = Vocabulary(draw_data(0).schema)
    clause, weight = draw_clause(vocabulary, seed), float(np.random.default_rng(seed).normal())
    assert vocabulary.read(vocabulary.write(clause, weight)) == (clause, weight)
    assert vocabulary.read(vocabulary.write(clause)) == (clause, None)


def test_a_clause_is_written_as_alchemy_writes_it():
    vocabulary = Vocabulary(draw_data(0).schema)
    clause, weight = vocabulary.read('1.5  !Old(a) v Likes(b,a) v Old(b) v !Kin(a, b, "c")')
    assert weight == 1.5
    assert vocabulary.write(clause, 1.5) == '1.5  !Old(x) v Old(y) v Likes(y,x) v !Kin(x,y,"c")'
    assert clause == vocabulary.read('Old(q) v !Kin(p,q,"c") v Likes(q,p) v !Old(p)')[0]


def test_names_that_alchemy_cannot_read_are_changed_and_still_read():
    domain = [("popn/land", YES), ("popn land", YES), ("3rd", YES), ("state", ('a "b", c) v d', "x", "y"))]
    data = make_data([[0, 0, 0, 0]], [[0]], [[0, 0]], domain, (("state", YES),))
    vocabulary = Vocabulary(data.schema)
    assert len({(p.name, p.constant) for p in vocabulary.predicates}) == len(vocabulary) == 7
    for number, predicate in enumerate(vocabulary.predicates):
        clause = Clause.of([Literal(number, tuple(range(len(predicate.kinds))), False)])
        assert vocabulary.read(vocabulary.write(clause)) == (clause, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Odl(x)", "no predicate 'Odl'. Did you mean 'Old'"),
        ("Old(x) Tall(x)", "column 7"),
        ("Old(x) v ", "column"),
        ("Old(x,y)", "needs 1 variables"),
        ("Old(Anna)", "in small letters"),
        ('Kin(x,y,"z")', "no predicate 'Kin' with the state 'z'"),
        ("Kin(x,y)", "no predicate 'Kin' with the state None"),
    ],
)
def test_a_wrong_clause_is_an_error_that_says_where(text, message):
    with pytest.raises(FormatError, match=message.replace("(", r"\(")):
        Vocabulary(draw_data(0).schema).read(text)


def test_links_that_cannot_be_tensors_are_errors():
    data = make_data([[0, 0]] * 2, [[0, 0, 0]] * 2, [[0, 1], [0, 1]])
    with pytest.raises(DataError, match="two links join the same"):
        MSL().fit(data)
    with pytest.raises(DataError, match="an argument names no entity"):
        MSL().fit(make_data([[0, 0]] * 2, [[0, 0, 0]] * 2, [[0, 1], [1, -1]]))
    with pytest.raises(DataError, match="2 x 2 tuples with 5 predicates take 192 bytes, more than the 100"):
        MSL(memory=100).fit(make_data([[0, 0]] * 2, [[0, 0, 0]], [[0, 1]]))


@pytest.mark.parametrize("weighting", ["atom", "predicate"])
def test_the_slope_equals_finite_differences(weighting):
    data = draw_data(3, n=5, missing=0.2)
    vocabulary = Vocabulary(data.schema)
    atoms = GroundAtoms(vocabulary, data)
    model = WeightedPseudoLikelihood(atoms, data, [t.cells.codes >= 0 for t in data.tables], weighting)
    for seed in range(12):
        clause = draw_clause(vocabulary, seed)
        model.add(clause, atoms.count_differences(clause))
    weights, spread = np.random.default_rng(0).normal(0, 0.3, 12), model.find_prior(0.7)
    _, slope = model.evaluate(weights, spread)
    steps = 1e-5 * np.eye(12)
    numbers = [(model.evaluate(weights + s, spread)[0] - model.evaluate(weights - s, spread)[0]) / 2e-5 for s in steps]
    np.testing.assert_allclose(slope, numbers, rtol=1e-6, atol=1e-6)
    fitted = model.fit(weights, 0.7, 200, Work.start())
    assert np.abs(model.evaluate(fitted, spread)[1]).max() < 1e-2


def test_the_objective_equals_the_conditionals_of_the_enumerated_model():
    """log P(cell | rest) by counting the true groundings of all clauses for each state of the cell."""
    data = draw_data(5, n=3)
    vocabulary = Vocabulary(data.schema)
    atoms = GroundAtoms(vocabulary, data)
    model = WeightedPseudoLikelihood(atoms, data, [t.cells.codes >= 0 for t in data.tables])
    clauses = [draw_clause(vocabulary, seed) for seed in range(5)]
    weights = np.array([0.3, -0.5, 0.2, 0.7, -0.4])
    for clause in clauses:
        model.add(clause, atoms.count_differences(clause))
    total = 0.0
    for table, part in enumerate(data.tables):
        for row, attribute in np.ndindex(*part.cells.codes.shape):
            n = int(part.type.attributes.n_states[attribute])
            worlds = [change_cell(data, table, row, attribute, code) for code in range(n)]
            energies = np.array(
                [sum(w * list_true(vocabulary, world, c)[0] for w, c in zip(weights, clauses, strict=True)) for world in worlds]
            )
            total += energies[part.cells.codes[row, attribute]] - np.logaddexp.reduce(energies)
    value, _ = model.evaluate(weights, np.full(5, np.inf))
    assert -value == pytest.approx(total, rel=1e-6)


def draw_rule(kind, seed=0, n=16):
    """Likes is symmetric, or Knows follows a chain of two Likes, or old people like each other; all but that is chance."""
    rng = np.random.default_rng(seed)
    arguments = np.array(list(itertools.product(range(n), repeat=2)))
    likes, knows = rng.random((n, n)) < 0.12, rng.random((n, n)) < 0.2
    old = rng.random(n) < 0.5
    if kind == "symmetric":
        likes = np.triu(likes) | np.triu(likes).T
    elif kind == "chain":
        knows = (likes.astype(int) @ likes.astype(int) > 0) ^ (rng.random((n, n)) < 0.03)
    else:
        likes = (old[:, None] & old[None, :]) ^ (rng.random((n, n)) < 0.03)
    people = np.stack([old, rng.random(n) < 0.5], axis=1)
    relations = (("Likes", YES), ("Knows", YES))
    return make_data(people, np.stack([likes.ravel(), knows.ravel()], axis=1), arguments, relations=relations)


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("symmetric", {("Likes", (0, 1)), ("Likes", (1, 0))}),
        ("chain", {("Likes", (0, 1)), ("Likes", (1, 2)), ("Knows", (0, 2))}),
        ("old", None),
    ],
)
def test_a_planted_rule_is_found_and_predicts(kind, about):
    """What old people do can be said in several ways, so that there it is asked for predictions only."""
    data = draw_rule(kind, seed=1)
    fold = data.cut_observed(10, seed=1)[0]
    learner = MSL(max_clauses=10, max_literals=3, beam=10, n_scored=60, length_penalty=3.0).fit(data.hide(fold))
    if about is not None:
        index = {p.name: k for k, p in enumerate(learner.vocabulary_.predicates)}
        planted = Clause.of([Literal(index[name], arguments) for name, arguments in about])
        assert planted.literals in {abs_literals(clause) for clause in learner.clauses_}, learner.write()
    none = MSL(max_clauses=0).fit(data.hide(fold))
    assert learner.score(data).cll > none.score(data).cll + 0.1
    assert learner.score(data).auc > none.score(data).auc + 0.2


def abs_literals(clause):
    """The literals without signs, variables named anew."""
    return Clause.of(Literal(one.predicate, one.arguments) for one in clause.literals).literals


def test_hidden_cells_never_influence_and_runs_repeat_to_the_bit():
    data = draw_rule("symmetric", seed=2, n=9)
    fold = data.cut_observed(4, seed=0)[1]
    tables = []
    for table, marks in zip(data.tables, fold, strict=True):
        codes = np.where(marks, 1 - table.cells.codes, table.cells.codes)
        tables.append(Entities(table.type, Dataset(table.cells.domain, codes), table.arguments, table.keys))
    runs = [MSL(max_clauses=10, **SMALL).fit(d.hide(fold)) for d in (data, RelationalData(tables), data)]
    lines = [runs[0].vocabulary_.read(line) for line in runs[0].write().splitlines()]
    assert lines == list(zip(runs[0].clauses_, runs[0].weights_, strict=True))
    for run in runs[1:]:
        assert run.write() == runs[0].write()
        for one, two in zip(run.predict_proba(), runs[0].predict_proba(), strict=True):
            for here, there in zip(one, two, strict=True):
                assert (here == there).all()


def test_held_cells_never_influence_the_search():
    """What the model is told of cells that it is not learned from changes neither the slopes nor the clauses."""
    data = draw_rule("old", seed=3, n=9)
    held = data.cut_observed(4, seed=0)[0]
    learned = [~marks for marks in held]
    found = []
    for flipped in (False, True):
        told = data
        if flipped:
            tables = [
                Entities(t.type, Dataset(t.cells.domain, np.where(m, 1 - t.cells.codes, t.cells.codes)), t.arguments, t.keys)
                for t, m in zip(data.tables, held, strict=True)
            ]
            told = RelationalData(tables)
        atoms = GroundAtoms(Vocabulary(data.schema), data.hide(held))
        model = WeightedPseudoLikelihood(atoms, told, learned)
        search = ClauseSearch(model, Limits(max_literals=3, beam=5, n_scored=30), 0.5)
        search.weights = model.fit(search.weights, 0.5, 20, Work.start())
        search.run_round(Work.start(), 10)
        found.append((model.clauses, search.weights.tolist()))
    assert found[0] == found[1]
    assert len(found[0][0]) > 4


def test_predictions_are_distributions_and_mean_field_equals_one_unknown_cell_exactly():
    data = draw_data(7, n=5)
    fold = data.cut_observed(10, seed=0)[0]
    for inference in ("marginals", "mean field"):
        learner = MSL(max_clauses=5, inference=inference, **SMALL).fit(data.hide(fold))
        for part in itertools.chain.from_iterable(learner.predict_proba()):
            np.testing.assert_allclose(part.sum(axis=1), 1, atol=1e-9)
            assert (part >= 0).all()
    one = [np.zeros_like(marks) for marks in fold]
    one[1][3, 2] = True
    alone = data.hide(one)
    vocabulary = Vocabulary(data.schema)
    atoms = GroundAtoms(vocabulary, alone)
    model = WeightedPseudoLikelihood(atoms, alone, [t.cells.codes >= 0 for t in alone.tables])
    clauses, weights = [draw_clause(vocabulary, seed) for seed in range(8)], np.linspace(-1, 1, 8)
    for clause in clauses:
        model.add(clause, atoms.count_differences(clause))
    worlds = [change_cell(data, 1, 3, 2, code) for code in range(3)]
    energies = np.array([sum(w * list_true(vocabulary, world, c)[0] for w, c in zip(weights, clauses, strict=True)) for world in worlds])
    exact = np.exp(energies - np.logaddexp.reduce(energies))
    np.testing.assert_allclose(model.find_chances(weights)[1][2:, 3], exact, rtol=1e-5)
    np.testing.assert_allclose(run_mean_field(model, weights, Work.start())[1][2:, 3], exact, rtol=1e-5)


def test_wrong_parameters_are_named():
    data = draw_data(0)
    wrong = {
        "max_literals": 0, "max_variables": 2.5, "max_clauses": -1, "beam": 0, "n_scored": 0, "length_penalty": -1, "sd": 0,
        "weighting": "atoms", "inference": "gibbs", "validation": 0.7,
    }  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(ParameterError, match=f"{name}="):
            MSL(**{name: value}).fit(data)


def test_time_and_interrupt_end_with_the_best_so_far():
    data = draw_rule("old", n=8)
    hurried = MSL(time_budget=0).fit(data)
    assert hurried.stopped_by_ == StoppedBy.TIME
    assert len(hurried.clauses_) >= 4
    assert len(hurried.weights_) == len(hurried.clauses_)
    seen = []

    def interrupt(event):
        seen.append(str(event))
        if len(seen) == 2:
            raise KeyboardInterrupt

    stopped = MSL(progress=interrupt, **SMALL).fit(data)
    assert stopped.stopped_by_ == StoppedBy.INTERRUPT
    assert seen[0] == "clauses: 0 of 300"
    assert len(stopped.weights_) == len(stopped.clauses_) >= 4
    assert np.isfinite(stopped.score(data, [np.ones_like(t.cells.codes, bool) for t in data.tables]).cll)


def test_attributes_of_one_state_have_no_predicates():
    only = (("Old", ("yes",)),)
    data = make_data([[0], [0], [-1]], [[0], [0]], [[0, 1], [1, 2]], only, (("Likes", ("yes",)),))
    learner = MSL().fit(data)
    assert learner.clauses_ == []
    assert [part.tolist() for part in learner.predict_proba()[0]] == [[[1.0], [1.0], [1.0]]]
    mixed = make_data([[0]] * 3, [[0], [1], [-1]], [[0, 1], [1, 2], [2, 0]], only, (("Likes", YES),))
    assert MSL(**SMALL).fit(mixed).predict_proba()[1][0][2, 1] == pytest.approx(0.5, abs=0.2)
