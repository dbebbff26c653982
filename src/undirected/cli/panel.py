"""What a terminal shows of a running stream."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from undirected.cli import common
from undirected.work import Event, Milestone

if TYPE_CHECKING:
    from undirected.streaming.measures import ChunkLearned


class Panel:
    """What a terminal shows of a running stream."""

    def __init__(self, source: str) -> None:
        self.source, self.began = source, time.monotonic()
        self.last: ChunkLearned | None = None
        self.before = float("nan")
        self.rows, self.at = 0, self.began
        self.drift = "none so far"
        self.rate = 0.0
        self.saved: float | None = None

    def take(self, event: ChunkLearned) -> None:
        """Take up what is known of one more chunk."""
        now = time.monotonic()
        self.before = self.last.mean_npll if self.last else float("nan")
        self.rate = event.rows / max(now - self.at, 1e-9)
        self.rows, self.at, self.last = self.rows + event.rows, now, event
        if event.drift:
            self.drift = f"chunk {event.chunk}: {event.drift}"

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_row("source", self.source)
        if self.last is None:
            table.add_row("", f"waiting for the first chunk, {time.monotonic() - self.began:.0f} s")
            return table
        event = self.last
        table.add_row("chunk", f"{event.chunk:,}, {event.total_rows:,} rows, {event.dead:,} left out")
        table.add_row("score", "first chunk" if event.npll != event.npll else f"NPLL {event.npll:.4f} now, {event.mean_npll:.4f} so far")
        table.add_row("features", f"{event.n_features:,} (+{event.added:,} -{event.removed:,}), {event.n_nonzero:,} not zero")
        lag = "" if event.lag is None else f", about {event.lag:,.0f} rows behind"
        table.add_row("speed", f"{self.rate:,.0f} rows/s{lag}; last chunk {time.monotonic() - self.at:.0f} s ago")
        table.add_row("saved", "no checkpoint (--checkpoint FILE)" if self.saved is None else f"{time.monotonic() - self.saved:.0f} s ago")
        table.add_row("drift", self.drift)
        return table


@contextmanager
def show_panel(quiet: bool, source: str) -> Iterator[Any]:
    """A listener that draws a panel on a terminal; elsewhere, a line for each chunk."""
    from undirected.streaming.measures import ChunkLearned
    from undirected.streaming.sources import CheckpointWritten, hide_password

    if quiet or not sys.stderr.isatty():
        yield lambda event: common.remark(str(event), quiet) if isinstance(event, Milestone) else None
        return
    from rich.console import Console
    from rich.live import Live

    panel, console = Panel(hide_password(source)), Console(stderr=True)
    with Live(panel, console=console, refresh_per_second=4) as live:

        def listen(event: Event) -> None:
            if isinstance(event, ChunkLearned):
                panel.take(event)
                if event.drift:
                    console.print(f"drift at chunk {event.chunk}: {event.drift}")
            elif isinstance(event, CheckpointWritten):
                panel.saved = time.monotonic()
            elif isinstance(event, Milestone):
                console.print(str(event))
            live.update(panel)

        yield listen
