"""``undirected``: the group of commands, and how errors end."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Any

import click

from undirected import __version__
from undirected.cli import ask, bootstrap, compare, data, demo, doctor, groups, learn, relate, show, stream
from undirected.cli.common import EXIT_INTERRUPTED
from undirected.errors import UndirectedError

EPILOG = """\b
DATA is a file (.csv .tsv .data .basket .parquet .npz, most also .gz) or the name
of a data set, with an optional split: nltcs, nltcs:test, digits:valid.
\b
Exit codes: 0 done; 1 a fault in the program; 2 wrong usage; 3 bad data or file; 4 impossible evidence;
5 stopped before the tolerance (the result is still written); 6 nothing was found
within the limits, which proves nothing; 130 interrupted (the result so far is written).
\b
Try: undirected demo
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="undirected")
def cli() -> None:
    """Learn Markov networks (undirected graphical models) from discrete data, and ask them questions."""


COMMANDS = (
    learn.learn, learn.weights, ask.query, ask.map_, ask.sample, ask.impute, ask.explain,
    stream.stream, relate.relate, compare.compare,
    bootstrap.bootstrap, groups.groups, show.score, show.show, show.plot, show.convert, data.data, demo.demo,
    doctor.doctor,
)  # fmt: skip
for command in COMMANDS:
    cli.add_command(command)


def run() -> None:
    """One line and a hint where something is wrong, a traceback only with --debug."""
    debug = "--debug" in sys.argv
    if not debug:
        warnings.showwarning = lambda message, *_, **__: click.echo(f"undirected: note: {message}", err=True)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _end("interrupted", EXIT_INTERRUPTED)
    except click.ClickException as error:
        hint = " (see --help)" if isinstance(error, click.UsageError) else ""
        _end(error.format_message() + hint, error.exit_code)
    except UndirectedError as error:
        if debug:
            raise
        _end(str(error), error.exit_code)
    except MemoryError:
        if debug:
            raise
        _end("out of memory; use a smaller --memory, fewer features or fewer rows", 3)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        _end(f"an unexpected {type(error).__name__}: {error}. This is a fault in the program; --debug shows where", 1)


def _terminate(number: int, frame: Any) -> None:
    """SIGTERM ends work as Ctrl-C does: with the best result so far."""
    raise KeyboardInterrupt


def _end(message: str, code: int) -> None:
    click.echo(f"undirected: {' '.join(message.split())}", err=True)
    sys.exit(code)
