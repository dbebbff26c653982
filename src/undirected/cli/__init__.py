"""The command line. `main` is small, so that Ctrl-C is heard even while everything else is being imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``undirected``."""
    try:
        from undirected.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("undirected: interrupted\n")
        sys.exit(130)
