"""Relational learning at the size of a large database: seconds and memory against the number of links.

    python benchmarks/relations.py                     10,000 to 1,000,000 links, a tenth as many entities
    python benchmarks/relations.py --links 1000000 --order 2

A made-up database: people with ten attributes, links between two of them with ten attributes that depend on those of both ends. The unit of
the ratio is one product of the design with the matrix of weights by NumPy alone.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from undirected.data.dataset import Dataset
from undirected.data.variables import Domain, Variable
from undirected.relational.beliefs import Beliefs
from undirected.relational.data import Entities, RelationalData
from undirected.relational.objective import RelationalPseudoLikelihood
from undirected.relational.schema import Argument, EntityType
from undirected.relational.templates import Templates
from undirected.relational.treermn import TreeRMN
from undirected.relational.wiring import Wiring

N_ATTRIBUTES = 10
LINKS_OF_ONE = 10  # links for each entity
SIZES = (10_000, 100_000, 1_000_000)


def make_database(n_links: int, n_entities: int, seed: int = 0) -> RelationalData:
    """People and links whose attributes depend on each other and on those of the people they join; a hundredth is unknown."""
    rng = np.random.default_rng(seed)
    domain = Domain([Variable(f"a{v}", ("no", "yes")) for v in range(N_ATTRIBUTES)])
    people = (rng.random((n_entities, N_ATTRIBUTES)) < 0.3).astype(np.int8)
    named = rng.integers(0, n_entities, (n_links, 2)).astype(np.int32)
    drive = rng.normal(size=(2, N_ATTRIBUTES, N_ATTRIBUTES))
    logits = people[named[:, 0]] @ drive[0] + people[named[:, 1]] @ drive[1] - 1
    links = (rng.random((n_links, N_ATTRIBUTES)) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    links[rng.random(links.shape) < 0.01] = -1
    person = EntityType("person", domain)
    kind = EntityType("link", domain, (Argument("one", "person"), Argument("other", "person")))
    none = np.zeros((n_entities, 0), np.int32)
    return RelationalData([Entities(person, Dataset(domain, people), none), Entities(kind, Dataset(domain, links), named)])


def measure(n_links: int, order: int, threads: int) -> str:
    """A line of the table: an evaluation, a fit, a prediction, and the memory of the process."""
    data = make_database(n_links, n_links // LINKS_OF_ONE)
    templates = Templates(data.schema, order)
    objective = RelationalPseudoLikelihood(templates, Wiring(data, templates.paths), Beliefs.of(data), threads)
    weights = np.zeros(len(objective))
    objective.evaluate(weights)
    began = time.perf_counter()
    objective.evaluate(weights)
    evaluation = time.perf_counter() - began
    product = 0.0
    for kind in objective.types:
        matrix = kind.place(weights).astype(np.float32)
        began = time.perf_counter()
        kind.matrix @ matrix
        product += time.perf_counter() - began
    del objective
    began = time.perf_counter()
    model = TreeRMN(order=order, hidden=0, beta=1, threads=threads).fit(data)
    fitted = time.perf_counter() - began
    began = time.perf_counter()
    model.predict_proba()
    predicted = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = f"{fitted:.1f} ({model.outcome_.iterations} steps, {model.stopped_by_})"
    return f"| {n_links:,} | {evaluation:.3f} | {evaluation / product:.1f} | {told} | {predicted:.1f} | {memory:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, help="One size only.")
    parser.add_argument("--order", type=int, default=1, help="Longest path.")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.links:
        print(measure(arguments.links, arguments.order, arguments.threads), flush=True)
        return
    print("| links | s an evaluation | ratio to a product | s a fit | s a prediction | memory, MB |")
    print("|---|---|---|---|---|---|", flush=True)
    for n in SIZES:  # each in a process of its own, for its memory
        command = [sys.executable, __file__, "--links", str(n), "--order", str(arguments.order), "--threads", str(arguments.threads)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
