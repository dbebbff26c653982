"""Greedy growth: the candidate with the largest gain enters, again and again; old gains serve until a candidate comes up."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from undirected.structure.search_state import LEAST_GAIN, Feature, SearchState

AT_ONCE = 64  # stale candidates scored anew in one call
PIECE = 2_000  # candidates scored in one call
GUESSED = -1  # stands for the version of a gain that was guessed


class Candidate(NamedTuple):
    """A feature that may enter: scored on the network as it is, with a guess of its gain alone, or with nothing known of it."""

    feature: Feature
    gain: float | None = None
    weight: float | None = None


class CandidateSource(Protocol):
    """Where candidates come from."""

    def list_stages(self, search: SearchState) -> Iterable[Iterable[Candidate]]:
        """Every candidate of the network as it is, the costly ones last: a stage is looked at if those before it have nothing."""

    def list_after(self, search: SearchState, new: Feature) -> Iterable[Candidate]:
        """Those that a feature brings with it by entering."""


class Heap:
    """Candidates by gain, each with the version of the network on which it was scored."""

    def __init__(self, entries: Iterable[tuple[float, Feature, float, int]] = ()) -> None:
        self.entries = list(entries)  # minus the gain, candidate, weight, version
        self.known = {entry[1] for entry in self.entries}

    def add(self, search: SearchState, candidates: Iterable[Candidate]) -> None:
        """Take in candidates, and score those of which nothing is known."""
        candidates = iter(candidates)
        while piece := list(itertools.islice(candidates, PIECE)):
            new = {c.feature: c for c in piece if c.feature not in self.known and c.feature not in search.weights}
            for feature, gain, weight in new.values():
                if gain is not None and (weight is None or gain > LEAST_GAIN):
                    self._push(gain, feature, weight or 0.0, GUESSED if weight is None else search.version)
            self._score(search, [c.feature for c in new.values() if c.gain is None])
            search.work.check()

    def fill(self, search: SearchState, source: CandidateSource) -> None:
        """The candidates of the first stage that has one worth its price."""
        for stage in source.list_stages(search):
            self.add(search, stage)
            found = self.best(search)
            if found is not None:
                self._push(*found, search.version)
                return

    def best(self, search: SearchState) -> tuple[float, Feature, float] | None:
        """The candidate with the largest gain, scored on the network as it is; None where none improves the score."""
        while self.entries:
            gain, candidate, weight, version = self.entries[0]
            if version == search.version:
                self._pop()
                return -gain, candidate, weight
            stale: list[Feature] = []
            while self.entries and len(stale) < AT_ONCE and self.entries[0][3] != search.version:
                stale.append(self._pop())
            self._score(search, stale)
            search.work.check()
        return None

    def _pop(self) -> Feature:
        candidate = heapq.heappop(self.entries)[1]
        self.known.discard(candidate)
        return candidate

    def _score(self, search: SearchState, candidates: list[Feature]) -> None:
        weights, gains = search.find_gains(candidates)
        for candidate, weight, gain in zip(candidates, weights.tolist(), gains.tolist(), strict=True):
            if gain > LEAST_GAIN:
                self._push(gain, candidate, weight, search.version)

    def _push(self, gain: float, candidate: Feature, weight: float, version: int) -> None:
        heapq.heappush(self.entries, (-gain, candidate, weight, version))
        self.known.add(candidate)


def grow(search: SearchState, state: dict[str, Any] | None, source: CandidateSource, keep: dict[str, Any] | None = None) -> None:
    """Add the best candidate until none improves the score.

    A gain falls, as a rule, while others enter, so a candidate is scored anew only when its old gain puts it first. Where the
    heap is empty candidates are scored once more with weights learned anew, and the search ends if none at all improves the
    score. ``keep`` goes into every checkpoint.
    """
    if state is None:
        if not search.weights:
            search.begin()
        heap, fresh = Heap(), True
        heap.fill(search, source)
    else:
        heap, fresh = Heap((g, tuple(c), w, m) for g, c, w, m in state["heap"]), state["fresh"]
    while True:
        found = heap.best(search)
        search.work.check()
        if found is not None:
            gain, candidate, weight = found
            search.move(None, candidate, weight, gain)
            fresh = False
            heap.add(search, source.list_after(search, candidate))
            if not search.relearning_due:
                continue
        elif fresh:
            return
        search.relearn()
        if found is None:
            fresh = True
            heap.fill(search, source)
        search.save({"heap": heap.entries, "fresh": fresh, **(keep or {})})
