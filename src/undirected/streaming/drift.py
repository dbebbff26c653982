"""Whether the world has changed: river's ADWIN on the scores of rows, and which variables' conditionals changed most."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.errors import MissingExtra, ParameterError
from undirected.kernels.types import Array
from undirected.streaming.packing import Arrays, check_array

WATCHES = ("auto", "rows", "variables", "none")
REACTIONS = ("none", "forget", "rebuild")
NAMED = 3  # variables in an event
FADING = 0.7  # of the mean losses that a chunk is compared with


@dataclass(frozen=True)
class Drift:
    """A rise of the loss that chance hardly explains. ``variables`` are those whose mean loss rose most, with by how much."""

    before: float
    after: float
    variables: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        most = ", ".join(f"{name} {rise:+.3f}" for name, rise in self.variables)
        return f"the loss a variable rose from {self.before:.4f} to {self.after:.4f}; most: {most}"


def find_adwin() -> Any:
    """River's detector; a missing library is an error that says how to get it."""
    try:
        from river.drift import ADWIN
    except ImportError:
        raise MissingExtra("drift is found by river's detectors: pip install 'undirected[stream]', or watch='none'") from None
    return ADWIN


@functools.cache
def _is_here() -> bool:
    try:
        find_adwin()
    except MissingExtra:
        return False
    return True


class Watch:
    """Detectors on the loss of every row (mean over its variables) or, ``variables``, on that of each variable in every row, too.

    Only a rise counts: while a network learns its loss falls, and that is no drift. ``delta`` is ADWIN's bound on false alarms of one
    detector.
    """

    def __init__(self, watch: str = "auto", delta: float = 0.002, n_variables: int = 0) -> None:
        if watch not in WATCHES:
            raise ParameterError(f"watch={watch!r} is not known; choose one of {', '.join(WATCHES)}")
        self.watch = ("rows" if _is_here() else "none") if watch == "auto" else watch
        self.delta = delta
        n = {"none": 0, "rows": 1, "variables": 1 + n_variables}[self.watch]
        self.detectors = [find_adwin()(delta=delta) for _ in range(n)]
        self.usual: Array | None = None  # each variable's mean loss, fading

    def update(self, losses: Array, names: list[str]) -> Drift | None:
        """Look at the losses of a chunk's rows, ``[rows][variables]``, in their order."""
        found: tuple[float, float] | None = None
        series = [losses.mean(axis=1)] if self.detectors else []
        series += [losses[:, v] for v in range(len(self.detectors) - 1)]
        for detector, values in zip(self.detectors, series, strict=True):
            for value in values.tolist():
                before = detector.estimation
                detector.update(value)
                if detector.drift_detected and detector.estimation > before:
                    found = found or (before, detector.estimation)
        means = losses.mean(axis=0)
        usual = means if self.usual is None else self.usual
        rise = means - usual
        self.usual = FADING * usual + (1 - FADING) * means
        if found is None:
            return None
        most = np.argsort(-rise, kind="stable")[:NAMED]
        return Drift(*found, tuple((names[v], float(rise[v])) for v in most))

    def copy(self) -> Watch:
        """The same detectors, to be updated on their own."""
        out = Watch(self.watch, self.delta, max(0, len(self.detectors) - 1))
        out.unpack(*self.pack())
        return out

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """The detectors, for a checkpoint."""
        arrays: Arrays = {} if self.usual is None else {"usual": self.usual}
        states = []
        for k, detector in enumerate(self.detectors):
            arrays[f"adwin{k}"] = np.frombuffer(detector._helper.__getstate__(), dtype=np.uint8)
            states.append(bool(detector._drift_detected))
        return {"watch": self.watch, "detected": states}, arrays

    def unpack(self, tree: dict[str, Any], arrays: Arrays) -> None:
        """Take up what `pack` gave, if it came from the same kind of detectors."""
        self.usual = None if "usual" not in arrays else check_array(arrays, "usual", "f", None)
        if tree["watch"] != self.watch or len(tree["detected"]) != len(self.detectors):
            return
        for k, (detector, detected) in enumerate(zip(self.detectors, tree["detected"], strict=True)):
            try:
                detector._helper.__setstate__(arrays[f"adwin{k}"].tobytes())
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                raise ValueError(f"a detector's state is damaged ({error})") from None  # river's own panics are no Exception
            detector._drift_detected = bool(detected)
