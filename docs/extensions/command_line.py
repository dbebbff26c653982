"""Write the reference of the command line from the commands themselves, so that it cannot be out of date.

In the page ``reference/command-line.md`` the line ``<!-- commands -->`` is replaced, while the site is built, by a section for each
command: its usage, what it does, its arguments and options with their defaults, and its examples.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import click

PAGE = "reference/command-line"
PLACE = "<!-- commands -->"
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][A-Za-z0-9-]*)")  # in a sentence: --domain-from, -a
WIDTH = 110  # characters of a line of usage


def setup(app: Any) -> dict[str, Any]:
    """Let Sphinx call `fill_in` for every page it reads."""
    app.connect("source-read", fill_in)
    return {"parallel_read_safe": True}


def fill_in(app: Any, page: str, source: list[str]) -> None:
    """Put the commands into their page."""
    if page != PAGE:
        return
    from undirected.cli.main import cli

    if PLACE not in source[0]:
        raise ValueError(f"{page}: the line {PLACE} is missing")
    source[0] = source[0].replace(PLACE, "\n".join(describe_group(cli, "undirected")))


def describe_group(group: click.Group, path: str) -> Iterator[str]:
    """Sections of all commands of a group, and of the groups in it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from describe_group(command, f"{path} {name}")
        else:
            yield from describe_command(command, f"{path} {name}")


def describe_command(command: click.Command, path: str) -> Iterator[str]:
    """The section of one command, in Markdown."""
    context = click.Context(command, info_name=path, max_content_width=WIDTH, terminal_width=WIDTH)
    yield f"\n## `{path}`\n"
    yield reflow(command.help or "")
    yield f"\n```text\n{context.get_usage()}\n```\n"
    records = [option.get_help_record(context) for option in command.get_params(context) if isinstance(option, click.Option)]
    yield "| option | meaning |"
    yield "|---|---|"
    for record in records:
        if record is not None:
            yield f"| {as_code(record[0])} | {escape(record[1])} |"
    if command.epilog:
        yield f"\n```text\n{textwrap.dedent(command.epilog).replace(chr(8), '').strip()}\n```\n"


def reflow(text: str) -> str:
    """Paragraphs without the line breaks and indents they have in the code."""
    return "\n\n".join(" ".join(escape(part).split()) for part in textwrap.dedent(text).replace("\b", "").split("\n\n"))


def as_code(text: str) -> str:
    """Text to be shown letter by letter in a cell of a table; ``--C`` and ``-o, --output`` must not be hyphenated or joined."""
    return "`" + text.replace("|", "\\|") + "`"


def escape(text: str) -> str:
    """Text without the characters that mean something in Markdown; options in it are set as code."""
    plain = "".join(f"\\{letter}" if letter in "\\`*_[]<>|" else letter for letter in text)
    return OPTION.sub(r"`\1`", plain)
