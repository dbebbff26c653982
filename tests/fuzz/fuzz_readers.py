"""Fuzz every reader: whatever a file holds, it is read or refused with an error of this package, soon and in little memory.

    python tests/fuzz/fuzz_readers.py --inputs 1000000 --seed 1
    python tests/fuzz/fuzz_readers.py --seconds 60 --reader csv --reader npz --save found/
    python tests/fuzz/fuzz_readers.py --seed 1 --only 4711 --save found/        # one input again

Inputs are numbered; seed and number make an input, so that each can be made again. Children read them, so that a crash is seen: the
parent then goes on after the input at fault. What has been read is also described, or written and read again, and small
tables must be the same by chunks. A failure is an
exception of another kind, a crash, more than 2 seconds of work, a wait of more than 6, or more than 4 GiB of address space.
Prints a report in JSON; the exit code is 1 if there were failures.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fuzz_hostile import hostile_of, make_hostile
from fuzz_inputs import EVIDENCE_VALUES, NETWORKS, READERS, TABLES, Input, find_domain, make_mutation, valid_inputs

SECONDS = 2.0  # of work, a read with what follows it
WAIT = 6.0  # seconds after which a child interrupts itself
DEAD = 15.0  # seconds after which the parent ends a child
PATIENCE = 60.0  # seconds that a child may take to start, or to make an input
ADDRESS_SPACE = 4 << 30
COMMAND_EVERY = 100  # one in so many inputs that can be read also goes through the command line and is drawn
CHUNKED_BYTES = 20_000  # inputs of at most so many are also read by chunks
BINARY_TABLES = ("parquet", "npz", "sparse")
WHOLE_ONLY = ("column by column", "sparse matrix, which is read whole")  # why an archive cannot be read by chunks
CELL_BUDGET = " cells; leave out rare columns"  # why a table cannot be written out as a whole
STATUS = struct.Struct(f"<qd{2 * len(READERS)}q")  # number, when it began, inputs and successes by reader


class Hang(BaseException):
    """An input that kept its reader waiting; no `except Exception` may swallow it."""


def make_input(seed: int, number: int, readers: list[str]) -> Input:
    """The input of a number: those made to harm come first, whatever the seed, then the valid ones, then mutations."""
    n_hostile, valid = len(hostile_of(tuple(readers))), valid_inputs(tuple(readers))
    if number < n_hostile:
        return make_hostile(number, readers)
    if number < n_hostile + len(valid):
        return valid[number - n_hostile]
    return make_mutation(seed, number, readers)


def place_input(made: Input, folder: str) -> str:
    """Put an input where a reader finds it: one path a kind of place, which is used again and again."""
    path = f"{folder}/{made.place}{READERS[made.reader][0]}"
    if made.place == "file":
        with open(path, "wb", buffering=0) as file:
            file.write(made.content)
    elif not os.path.lexists(path):
        {"fifo": os.mkfifo, "folder": os.mkdir, "zeros": lambda p: os.symlink("/dev/zero", p)}[made.place](path)
    return path


def read_input(made: Input, path: str, thorough: bool) -> None:
    """Read an input and do what a user would do next."""
    from undirected import FeatureSet, UndirectedError, formats, read_data
    from undirected.inference.evidence import read_evidence

    options = dict(made.options)
    if made.reader in TABLES:
        if "domain" in options:
            options["domain"] = find_domain(options["domain"])
        if "domain_from" in options:
            options["domain_from"] = path
        split = options.pop("split", None)
        table = f"{path}:{split}" if split else path
        try:
            data = read_data(table, **options)
        except UndirectedError as error:
            compare_chunks(made, table, options, error)
            raise
        compare_chunks(made, table, options, data)
        describe_table(data)
        if thorough and is_small(data):
            run_command(["data", "describe", path])
    elif made.reader in NETWORKS:
        network = formats.load(path)
        describe_network(network, thorough or made.reader == "json")
        if thorough and is_light(network):
            run_command(["show", path])
    elif made.reader == "features":
        texts = formats.read_features(path)
        features = FeatureSet.from_texts(texts, find_domain(options.get("domain", "survey")))
        features.texts()
    elif "value" in options:
        read_evidence(find_domain("survey"), {options["variable"]: EVIDENCE_VALUES[options["value"]]})
    else:
        texts = made.content.decode("utf8", "surrogateescape").split("\n")
        read_evidence(find_domain(options.get("domain", "survey")), [text for text in texts if text])


def compare_chunks(made: Input, table: str, options: dict[str, Any], whole: Any) -> None:
    """Read a small table by chunks, too: the rows, or the words with which it is refused, must be the same."""
    import numpy as np

    from undirected import Dataset, UndirectedError, open_source

    if made.place != "file" or len(made.content) > CHUNKED_BYTES:
        return
    refused = isinstance(whole, UndirectedError)
    same_words = made.reader not in BINARY_TABLES  # in a broken archive, another part is looked at first
    try:
        found = Dataset.merge(open_source(table, 1 + len(made.content) % 7, **options))
    except UndirectedError as error:
        if str(error) != str(whole) and (same_words or not refused) and not any(reason in str(error) for reason in WHOLE_ONLY):
            raise AssertionError(f"by chunks: {error}; whole: {whole}") from None
        return
    if refused and (not same_words or CELL_BUDGET in str(whole)):
        return  # what is broken or too large need not be in a chunk
    if refused or found.domain != whole.domain or not np.array_equal(found.codes, whole.codes):
        raise AssertionError(f"by chunks {found}, but whole {whole}")


def is_small(data: Any) -> bool:
    return bool(data.codes.size <= 4000 and data.domain.n_literals <= 4000)


def is_light(network: Any) -> bool:
    """Whether a network is cheap to describe: the work grows with the number of pairs within features."""
    lengths = network.features.lengths.astype(float)
    return bool(len(lengths) <= 200 and (lengths**2).sum() <= 20_000 and network.domain.n_literals <= 4000)


def describe_table(data: Any) -> None:
    """What `data describe` and `to_csv` do, for small tables."""
    import numpy as np

    if not is_small(data):
        return
    lines = [f"{data.source}: {len(data)} rows, {data.n_distinct} distinct"]
    for v, variable in enumerate(data.domain.variables):
        codes = data.codes[:, v]
        counts = np.bincount(codes[codes >= 0], weights=data.weights[codes >= 0], minlength=len(variable.states))
        lines.append(f"{variable.name}: {dict(zip(variable.states, counts.tolist(), strict=True))}")
    "\n".join(lines).encode("utf8")
    data.to_csv().encode("utf8")
    data.distinct.to_csv(codes=True)


def describe_network(network: Any, draw: bool) -> None:
    """Summary, round trip and (slower) a graph, for small networks."""
    import numpy as np

    from undirected.formats import graphml, native

    if not is_light(network):
        return
    network.summary().encode("utf8")
    if draw:
        ElementTree.fromstring(graphml.dumps(network))  # other programs must be able to read it
    again = native.loads(native.dumps(network).encode("utf8").decode("utf8"), "the copy")
    assert again.domain == network.domain, "another domain after a round trip"
    assert again.features == network.features, "other features after a round trip"
    assert np.array_equal(again.weights, network.weights), "other weights after a round trip"


def run_command(arguments: list[str]) -> None:
    from click.testing import CliRunner

    from undirected.cli.main import cli

    found = CliRunner().invoke(cli, arguments)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception


# --- the child --------------------------------------------------------------------------------------------------------------------


def work(args: argparse.Namespace) -> None:
    """Read inputs one after another; failures go to standard output, one a line."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, interrupt)
    folder = args.work
    position = {reader: k for k, reader in enumerate(READERS)}
    counts, read = [0] * len(READERS), [0] * len(READERS)
    n_listed = len(hostile_of(tuple(args.reader))) + len(valid_inputs(tuple(args.reader)))
    warm_up(folder)
    with open(f"{folder}/status", "r+b") as file, mmap.mmap(file.fileno(), STATUS.size) as status:
        for number in range(args.first, args.inputs, args.step):
            status[:] = STATUS.pack(number, time.monotonic() + PATIENCE, *counts, *read)
            made = make_input(args.seed, number, args.reader)
            path = place_input(made, folder)
            k = position[made.reader]
            counts[k] += 1
            began = time.monotonic()
            status[:] = STATUS.pack(number, began, *counts, *read)
            thorough = number < n_listed or read[k] % COMMAND_EVERY == COMMAND_EVERY - 1
            problem = try_input(made, path, thorough)
            seconds = time.monotonic() - began
            if problem == {}:
                read[k] += 1
            if not problem and seconds > SECONDS:  # other processes may have been in the way: measure its own work
                status[:] = STATUS.pack(number, time.monotonic(), *counts, *read)
                began = time.process_time()
                try_input(made, path, thorough)
                seconds = time.process_time() - began
                problem = {"what": f"{seconds:.1f} s of work", "kind": "slow", "where": ""} if seconds > SECONDS else None
            if problem:
                report_failure(made, number, seconds, problem)
        status[:] = STATUS.pack(-1, time.monotonic(), *counts, *read)


def try_input(made: Input, path: str, thorough: bool) -> dict[str, str] | None:
    """What went wrong; nothing (an empty dict) if the input was read, None if it was refused as it should be."""
    from undirected.errors import UndirectedError

    signal.setitimer(signal.ITIMER_REAL, WAIT)
    try:
        read_input(made, path, thorough)
        return {}
    except UndirectedError:
        return None
    except Hang as error:
        return describe_failure(f"no end after {WAIT:g} s", error)
    except Exception as error:
        return describe_failure(f"{type(error).__name__}: {str(error)[:200]}", error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def interrupt(*_: object) -> None:
    raise Hang


def warm_up(folder: str) -> None:
    """Import everything that readers import when they are first used, so that no input pays for it."""
    import click.testing  # noqa: F401
    import networkx  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import undirected.cli.main  # noqa: F401

    for name in ("survey", "many states", "many variables"):
        find_domain(name)
    for reader in READERS:
        made = make_input(0, 10**12, [reader])
        try:
            read_input(made, place_input(made, folder), True)
        except Exception:
            continue
    gc.collect()
    gc.freeze()  # what is there now need not be looked at again


def describe_failure(what: str, error: BaseException) -> dict[str, str]:
    """What happened and the innermost line of the package that it happened in."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "undirected" in Path(f.filename).parts] or frames
    where = f"{Path(inside[-1].filename).name}:{inside[-1].lineno} in {inside[-1].name}" if inside else ""
    return {"what": what, "kind": "hang" if isinstance(error, Hang) else type(error).__name__, "where": where}


def report_failure(made: Input, number: int, seconds: float, problem: dict[str, str]) -> None:
    entry = {"reader": made.reader, "label": made.label, "number": number, "seconds": round(seconds, 2), "bytes": len(made.content)}
    print(json.dumps(entry | {"options": made.options} | problem), flush=True)


# --- the parent -------------------------------------------------------------------------------------------------------------------


class Child:
    """A process that reads every n-th input, started again after the input it died of."""

    def __init__(self, args: argparse.Namespace, first: int, step: int, folder: Path) -> None:
        self.args, self.step, self.folder, self.number = args, step, folder, first
        self.failures: list[dict[str, Any]] = []
        self.done = False
        self.inputs, self.read = [0] * len(READERS), [0] * len(READERS)
        folder.mkdir()
        self.start(first)

    def start(self, first: int) -> None:
        (self.folder / "status").write_bytes(STATUS.pack(first, time.monotonic() + PATIENCE, *[0] * 2 * len(READERS)))
        self.error = (self.folder / "stderr").open("wb")
        self.process = subprocess.Popen(self.command(first, self.args.inputs), stdout=subprocess.PIPE, stderr=self.error)
        self.listener = threading.Thread(target=self.listen, args=(self.process,))
        self.listener.start()

    def command(self, first: int, end: int) -> list[str]:
        command = [sys.executable, __file__, "--child", "--work", str(self.folder), "--seed", str(self.args.seed)]
        command += ["--first", str(first), "--inputs", str(end), "--step", str(self.step)]
        return command + [text for reader in self.args.reader for text in ("--reader", reader)]

    def listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(b"\n"):  # a child that dies may leave half a line
                self.failures.append(json.loads(line))

    def status(self) -> tuple[int, float, list[int], list[int]]:
        number, began, *counts = STATUS.unpack((self.folder / "status").read_bytes())
        return number, began, counts[: len(READERS)], counts[len(READERS) :]

    def totals(self) -> tuple[list[int], list[int]]:
        """Inputs and successes so far, by reader, those of processes that died included."""
        if self.done:
            return self.inputs, self.read
        _, _, inputs, read = self.status()
        return [a + b for a, b in zip(self.inputs, inputs, strict=True)], [a + b for a, b in zip(self.read, read, strict=True)]

    def look(self) -> None:
        """See whether the child is well; note what it died of, and go on behind that."""
        if self.done:
            return
        number, began, _, _ = self.status()
        stuck = time.monotonic() - began > DEAD
        if stuck:
            self.process.kill()
        elif self.process.poll() is None:
            return
        self.close()
        if self.process.returncode == 0 and not stuck:
            self.finish()
            return
        self.inputs, self.read = self.totals()
        self.note_death(number, stuck)
        if number + self.step < self.args.inputs:
            self.start(number + self.step)
        else:
            self.done = True

    def note_death(self, number: int, stuck: bool) -> None:
        made = make_input(self.args.seed, number, self.args.reader)
        last = (self.folder / "stderr").read_bytes()[-300:].decode("utf8", "replace")
        what = f"no end after {DEAD:g} s, not to be interrupted" if stuck else f"the process died with {self.process.returncode}: {last}"
        if not stuck and not self.dies_alone(number):
            what += " (but not of this input alone: one before it may have spoilt its memory)"
        entry = {"reader": made.reader, "label": made.label, "number": number, "seconds": None, "bytes": len(made.content)}
        self.failures.append(entry | {"options": made.options, "what": what, "kind": "hang" if stuck else "crash", "where": ""})

    def dies_alone(self, number: int) -> bool:
        """Whether a fresh process dies of an input, too."""
        (self.folder / "status").write_bytes(bytes(STATUS.size))
        try:
            done = subprocess.run(self.command(number, number + 1), capture_output=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0

    def finish(self) -> None:
        self.inputs, self.read = self.totals()
        self.done = True

    def close(self) -> None:
        self.process.wait()
        self.listener.join()
        self.error.close()

    def stop(self) -> None:
        """End the child where it is."""
        if not self.done:
            self.process.kill()
            self.close()
            self.finish()


def fuzz(args: argparse.Namespace) -> dict[str, Any]:
    """Run children until all inputs are read or time is up; the report."""
    memory = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
    began, shown = time.monotonic(), 0.0
    first = args.first
    children: list[Child] = []
    try:
        children += [Child(args, first + k, args.workers, scratch / str(k)) for k in range(args.workers)]
        while not all(child.done for child in children):
            time.sleep(0.05)
            for child in children:
                child.look()
            seconds = time.monotonic() - began
            if seconds > shown + 2:
                shown = seconds
                show_progress(children, seconds)
            if args.seconds is not None and seconds > args.seconds:
                break
    except KeyboardInterrupt:
        print("\ninterrupted; what was found so far:", file=sys.stderr)
    finally:
        for child in children:
            child.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    print(file=sys.stderr)
    return make_report(args, children, time.monotonic() - began)


def show_progress(children: list[Child], seconds: float) -> None:
    n = sum(sum(child.totals()[0]) for child in children)
    failures = sum(len(child.failures) for child in children)
    print(f"\r{n:,} inputs, {n / seconds:,.0f} a second, {failures:,} failures", end="", file=sys.stderr, flush=True)


def make_report(args: argparse.Namespace, children: list[Child], seconds: float) -> dict[str, Any]:
    inputs = dict.fromkeys(READERS, 0)
    read = dict.fromkeys(READERS, 0)
    for child in children:
        for reader, n, successes in zip(READERS, *child.totals(), strict=True):
            inputs[reader] += n
            read[reader] += successes
    failures = [failure for child in children for failure in child.failures]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for failure in sorted(failures, key=lambda f: (f["bytes"], f["number"])):
        hostile = failure["label"] if failure["kind"] in ("slow", "hang", "crash") else ""
        groups.setdefault((failure["reader"], failure["kind"], failure["where"] or hostile), []).append(failure)
    distinct = [group[0] | {"times": len(group)} for _, group in sorted(groups.items())]
    if args.save and distinct:
        save_inputs(args, distinct)
    total = sum(inputs.values())
    return {
        "seed": args.seed, "seconds": round(seconds, 1), "inputs": total, "per_second": round(total / max(seconds, 1e-9)),
        "inputs_by_reader": inputs, "read_by_reader": read, "failures": len(failures), "distinct_failures": distinct,
    }  # fmt: skip


def save_inputs(args: argparse.Namespace, failures: list[dict[str, Any]]) -> None:
    """The smallest input of each kind of failure, as a file."""
    folder = Path(args.save)
    folder.mkdir(parents=True, exist_ok=True)
    for failure in failures:
        made = make_input(args.seed, failure["number"], args.reader)
        path = folder / f"{args.seed}-{failure['number']}{READERS[made.reader][0]}"
        path.write_bytes(made.content)
        failure["saved"] = str(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, help="how many; without it or --seconds 20,000")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reader", action="append", choices=list(READERS), help="only this one; can be given several times")
    parser.add_argument("--save", help="a folder for the inputs that failed")
    parser.add_argument("--only", type=int, help="the input of one number")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--first", type=int, default=0, help="the number to start with")
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.reader = args.reader or list(READERS)
    if args.only is not None:
        args.first, args.inputs, args.workers = args.only, args.only + 1, 1
    if args.inputs is None:
        args.inputs = 20_000 if args.seconds is None else 1 << 62
    if args.child:
        work(args)
        return 0
    report = fuzz(args)
    print(json.dumps(report, indent=1))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
