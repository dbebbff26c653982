"""What the checkpoint of a stream holds, in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undirected.cli import common
from undirected.errors import DataError, FormatError

PLACES = ("file", "offset", "rows", "last", "offsets")  # of a position, that a person can make something of


def read_state(checkpoint: str, tell: Callable[[str], None] = lambda text: None) -> tuple[dict[str, Any], Path] | None:
    """What the newest sound version of a checkpoint holds, and which it is; None where there is none."""
    from undirected.streaming.checkpoint import load_checkpoint
    from undirected.streaming.run import KEEP

    found = load_checkpoint(Path(checkpoint), KEEP, tell)
    if found is None:
        return None
    if not isinstance(found.tree.get("state"), dict) or "params" not in found.tree["state"]:
        raise FormatError(f"{checkpoint} is not a stream's checkpoint")
    return found.tree, found.path


def tell_status(path: str, as_json: bool) -> int:
    """What a checkpoint holds."""
    found = read_state(path, lambda text: common.remark(text, False))
    if found is None:
        raise DataError(f"there is no checkpoint {path!r}")
    tree, version = found
    state, last = tree["state"], tree["state"]["last"]
    saved = version.stat().st_mtime
    values = {
        "learner": state["learner"], "chunks": state["chunks"], "rows": state["rows"], "waiting": len(state["waiting"]),
        "dead": tree["dead"], "source": tree["source"]["name"], "position": tree["source"]["position"], "last": last,
        "drifts": tree["drifts"], "saved": saved,
    }  # fmt: skip
    position = {name: value for name, value in tree["source"]["position"].items() if name in PLACES and value is not None}
    place = ", ".join(f"{name} {value}" for name, value in position.items()) or "its beginning"
    counts = (
        f"{state['chunks']:,} chunks, {state['rows']:,} rows; {len(state['waiting']):,} wait for their chunk, {tree['dead']:,} left out"
    )
    lines = [f"learner   {state['learner']}", f"source    {tree['source']['name']}, at {place}", f"learned   {counts}"]
    lines.append(f"saved     {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(saved))}")
    if last is not None:
        lines.append(f"features  {last['n_features']:,}, {last['n_nonzero']:,} not zero")
        if last["npll"] is not None:
            scores = f"{last['npll']:.4f} in the last chunk, {last['mean_npll']:.4f} over all, {last['fading_npll']:.4f} fading"
            lines.append(f"score     NPLL {scores}")
    drift = tree["drifts"][-1] if tree["drifts"] else None
    lines.append("drift     " + (f"chunk {drift['chunk']}: {drift['text']}" if drift else "none was found"))
    common.emit(values, as_json, "\n".join(lines))
    return 0
