"""What the documentation shows works: every page is read from top to bottom, its code run and its outputs compared."""

from __future__ import annotations

import importlib.util
import inspect
import re

import click
import pytest

import undirected
from documentation import PAGES, ROOT, Reader, check_command
from undirected import errors
from undirected.cli import common
from undirected.cli.main import cli

IDS = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_of_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Reader(page).read()


def test_the_reader_notices_what_is_wrong(tmp_path, monkeypatch):
    """The tests above could not fail otherwise."""
    monkeypatch.chdir(tmp_path)

    def read(text):
        page = tmp_path / "page.md"
        page.write_text(text)
        Reader(page).read()

    read("```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n")
    for wrong in (
        "```python\nprint(2)\n```\n\n```text\n3\n```\n",
        "```python\n>>> 1 + 1\n3\n```\n",
        "```sh\nundirected data list # exit code 2\n```\n",
        "<!-- not run: why -->\n```sh\nundirected lern x.csv\n```\n",
    ):
        with pytest.raises(AssertionError):
            read(wrong)
    with pytest.raises(Exception, match="No such option"):
        check_command(["learn", "survey.csv", "--not-an-option"])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=[*IDS, "CONTRIBUTING.md"])
def test_links_of_page(page):
    """Files and headings that a page points to are there."""
    text = page.read_text(encoding="utf-8")
    for target, heading in LINK.findall(text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} points to {target}"
        if heading and file.suffix == ".md" and file.name not in ("command-line.md", "speed.md"):  # those are filled in when built
            assert heading[1:] in find_anchors(file.read_text(encoding="utf-8")), f"{page.name} points to {target}{heading}"


def find_anchors(text):
    """The names by which headings are linked to."""
    titles = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_public_name_has_a_place_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference" / "api").glob("*.md"))
    named = set(re.findall(r"^(?:\.\. )?auto\w+:: undirected\.(\w+)", pages, re.MULTILINE))
    assert set(undirected.__all__) - {"__version__"} <= named


def test_exit_codes_are_those_of_the_program():
    text = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    shown = {int(code): cells for code, cells in re.findall(r"^\| (\d+) \|(.*)\|$", text, re.MULTILINE)}
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.UndirectedError)]
    for kind in kinds:
        assert f"`{kind.__name__}`" in shown[kind.exit_code]
    assert set(shown) == {kind.exit_code for kind in kinds} | {0, 1, common.EXIT_EARLY, common.EXIT_NOTHING, common.EXIT_INTERRUPTED}


def test_the_reference_of_the_command_line_tells_every_option():
    """The page itself is made when the site is built, by the same function."""
    place = ROOT / "docs" / "extensions" / "command_line.py"
    spec = importlib.util.spec_from_file_location("command_line", place)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = "\n".join(made.describe_group(cli, "undirected"))
    commands = {name: command for name, command in cli.commands.items() if not isinstance(command, click.Group)}
    for name, group in cli.commands.items():
        if isinstance(group, click.Group):
            commands |= {f"{name} {inner}": command for inner, command in group.commands.items()}
    for name, command in commands.items():
        section = text.partition(f"## `undirected {name}`\n")[2].partition("\n## ")[0]
        assert section
        for option in command.params:
            assert option.param_type_name == "argument" or option.opts[-1] in section


def test_the_test_command_is_the_one_that_is_promised():
    command = 'python -m pip install ".[test]" && python -m pytest\n'
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
