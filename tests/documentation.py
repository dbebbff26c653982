"""The pages of the documentation as blocks of code that can be run, one after another, as a reader would.

A page's blocks share one folder, and its Python blocks one namespace. What runs:

- ```` ```python ````: the code; if it has prompts (``>>>``), as a doctest.
- ```` ```sh ````: every line that calls ``undirected``, in this process.
- ```` ```text ```` right after one of these: what it must have printed, ``...`` standing for anything.

Comments say what else there is to know:

- ``<!-- files: survey.csv net.json -->`` names example files that a page speaks of without making them; see `write_example`.
- ``<!-- not run: needs the benchmark data -->`` before a block leaves it out and says why. Its commands must still be commands: their
  names and options are checked.
- ``<!-- not checked: ... -->`` before a text says why it can differ.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import random
import re
import shlex
import signal
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMENT = re.compile(r"<!-- *(.*?) *-->")
FILES = re.compile(r"^<!-- files: (.*?) -->$", re.MULTILINE)
REASONS = ("not run: ", "not checked: ")
EXIT_CODE = re.compile(r"# exit code (\d+)")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A block of code on a page: its language, its text, the line it starts in, and why it is left out, if it is."""

    language: str
    text: str
    line: int
    reason: str
    follows: bool  # nothing but blanks between it and the block before


def read_blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    blocks: list[Block] = []
    language, text, start, remark, follows = "", "", 0, "", False
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if inside and line == "```":
            reason = next((remark.removeprefix(word) for word in REASONS if remark.startswith(word)), "")
            blocks.append(Block(language, text, start, reason, follows))
            inside, remark, follows = False, "", True
        elif inside:
            text += line + "\n"
        elif line.startswith("```"):
            language, text, start, inside = line.removeprefix("```"), "", number, True
        elif comment := COMMENT.fullmatch(line):
            remark = comment[1]
        elif line.strip():
            remark, follows = "", False
    assert not inside, f"{page}, line {start}: the block has no end"
    return blocks


def find_files(page: Path) -> list[str]:
    """The example files that a page asks for."""
    return [name for names in FILES.findall(page.read_text(encoding="utf-8")) for name in names.split()]


def write_example(name: str) -> None:
    """Write one of the files that pages take as given, small and always the same, into the current folder."""
    from undirected import L1, AllPairs, read_data

    if name == "survey.csv":
        Path(name).write_text("\n".join(["id,smoker,age,asthma,cough,test", *survey_rows(400, seed=1)]) + "\n")
    elif name == "new-survey.csv":
        Path(name).write_text("\n".join(["id,smoker,age,asthma,cough,test", *survey_rows(100, seed=2)]) + "\n")
    elif name == "gaps.csv":
        rows = [row.replace("yes", "", 1) if k % 3 else row for k, row in enumerate(survey_rows(20, seed=3))]
        Path(name).write_text("\n".join(["id,smoker,age,asthma,cough,test", *rows]) + "\n")
    elif name == "symptoms.csv":
        rows = [row.split(",") for row in survey_rows(300, seed=4)]
        cells = [",".join(str(int(cell in ("yes", "positive"))) for cell in (row[1], *row[3:])) for row in rows]
        Path(name).write_text("\n".join(["fatigue,worry,insomnia,sadness", *cells]) + "\n")
    elif name == "train.data":
        Path(name).write_text(read_data("survey.csv", drop=["id", "age", "test"]).to_csv(codes=True))
    elif name in ("net.json", "net.uai", "net.mn"):
        L1().fit(read_data("survey.csv", drop=["id"])).network_.save(name)
    elif name == "features.mn":
        table = read_data("train.data")
        AllPairs().fit(table).network_.save(name)
    else:
        Path(name).write_text({"known.txt": "# what is known\nsmoker=yes\nage!=old\n", "net.uai.evid": "2 0 1 3 0\n"}[name])


def survey_rows(n: int, seed: int) -> list[str]:
    """Lines of a survey in which smoking and asthma make people cough."""
    rng = random.Random(seed)

    def toss(p: float) -> str:
        return "yes" if rng.random() < p else "no"

    lines = []
    for k in range(n):
        smoker, age, asthma = toss(0.3), rng.choice(["young", "middle", "old"]), toss(0.2)
        cough = toss(0.1 + 0.4 * (smoker == "yes") + 0.4 * (asthma == "yes"))
        test = "positive" if rng.random() < (0.8 if cough == "yes" else 0.2) else "negative"
        lines.append(f"{k + 1},{smoker},{age},{asthma},{cough},{test}")
    return lines


def split_commands(text: str) -> list[tuple[list[str], int]]:
    """The calls of ``undirected`` in a block of shell: the words after the name, and the exit code the line promises."""
    lines = text.replace("\\\n", " ").splitlines()
    calls = [line for line in lines if shlex.split(line, comments=True)[:1] == ["undirected"]]
    promised = [EXIT_CODE.search(line) for line in calls]
    return [(shlex.split(line, comments=True)[1:], int(code[1]) if code else 0) for line, code in zip(calls, promised, strict=True)]


def check_command(arguments: list[str]) -> None:
    """Raise if a command or one of its options does not exist, without running it."""
    from undirected.cli.main import cli

    command: Any = cli
    while hasattr(command, "commands") and not arguments[0].startswith("-"):
        name, *arguments = arguments
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    if not any(word in ("--help", "--version") for word in arguments):
        command.make_context(command.name, list(arguments)).close()


def call(arguments: list[str]) -> tuple[int, str, str]:
    """Call ``undirected`` in this process as its entry point does: exit code, standard output, standard error."""
    from undirected.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    argv, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("default")  # a note to the user, not an error
            sys.argv = ["undirected", *arguments]
            run()
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, handler)
    raise AssertionError("the entry point returned without an exit code")


@dataclass
class Reader:
    """Somebody who tries a page from top to bottom, in the current folder."""

    page: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str | None = None  # by the last block, if it ran

    def read(self) -> None:
        """Run the whole page."""
        for name in find_files(self.page):
            write_example(name)
        for block in read_blocks(self.page):
            if block.language == "text":
                if block.follows and not block.reason and self.printed is not None:
                    self.compare(block)
            elif block.language == "python":
                self.printed = None if block.reason else self.run_python(block)
            elif block.language == "sh":
                self.printed = self.run_shell(block)
            else:
                self.printed = None

    def where(self, block: Block) -> str:
        return f"{self.page}, line {block.line}"

    def run_python(self, block: Block) -> str:
        """Run a block and return what it prints."""
        out = io.StringIO()
        if block.text.startswith(">>> "):
            test = doctest.DocTestParser().get_doctest(block.text, self.names, self.where(block), str(self.page), block.line)
            test.globs = self.names  # what a block makes, the next one has
            runner = doctest.DocTestRunner(optionflags=OPTIONS)
            failed = runner.run(test, out=out.write, clear_globs=False).failed
            assert not failed, f"{self.where(block)}:\n{out.getvalue()}"
            return ""
        code = compile("\n" * block.line + block.text, str(self.page), "exec")
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return out.getvalue()

    def run_shell(self, block: Block) -> str | None:
        """Run the commands of a block and return what they print; of one that is left out, see that its commands exist."""
        calls = split_commands(block.text)
        if block.reason or not calls:
            for arguments, _ in calls:
                check_command(arguments)
            return None
        printed = ""
        for arguments, promised in calls:
            code, out, err = call(arguments)
            line = f"{self.where(block)}: undirected {shlex.join(arguments)}"
            assert code == promised, f"{line} ended with exit code {code}\n{out}{err}"
            printed += out
        return printed

    def compare(self, block: Block) -> None:
        """Hold what was printed against what the page shows."""
        expected, found = (re.sub(r" +$", "", text.strip() + "\n", flags=re.MULTILINE) for text in (block.text, self.printed or ""))
        same = doctest.OutputChecker().check_output(expected, found, OPTIONS)
        assert same, f"{self.where(block)}: the page shows\n{expected}\nand this was printed\n{found}"
