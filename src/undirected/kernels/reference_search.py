"""The search kernels in NumPy: a network's logits, what one feature more, less or other would do to them, tests of independence."""

from __future__ import annotations

import numpy as np

from undirected.kernels.types import Array

NOTHING = 1e-9  # of a count, after rounding
FARTHEST = 30.0  # weights stay within, where neither prior nor data hold them back
Part = tuple[int, Array]  # a variable and the states that a feature allows it


class Search:
    """Scores of every (literal, row), and gains of single features with all other weights held.

    A row matters to a feature where the feature matches (for all of its variables), and where exactly one variable fails (for
    that one). Everything follows from those two sets of rows.
    """

    def __init__(self, columns: Array, n_states: Array, row_weight: Array) -> None:
        self.row_weight = np.asarray(row_weight, float)
        self.n_states = np.asarray(n_states)
        self.base = np.concatenate([[0], np.cumsum(n_states)])
        self.truth = np.unpackbits(columns.view(np.uint8), axis=1, bitorder="little", count=len(row_weight)).astype(bool)
        self.variable = np.repeat(np.arange(len(n_states)), n_states)
        self.scores = np.zeros(self.truth.shape)

    def _parts(self, literals: Array) -> list[Part]:
        n = len(self.variable)
        literals = np.asarray(literals)
        out = []
        for v in dict.fromkeys(self.variable[literals % n].tolist()):
            allowed = np.ones(self.n_states[v], bool)
            for literal in literals[self.variable[literals % n] == v]:
                state = np.arange(self.n_states[v]) == literal % n - self.base[v]
                allowed &= state if literal < n else ~state
            out.append((v, allowed))
        return out

    def _missed(self, part: Part) -> Array:
        v, allowed = part
        return np.asarray(self.truth[self.base[v] : self.base[v + 1]][~allowed].any(axis=0))

    def _spot(self, parts: list[Part]) -> tuple[Array, Array, list[Array]]:
        """Where a feature matches, where one variable alone fails, and where each does."""
        missed = [self._missed(part) for part in parts]
        failures = np.sum(missed, axis=0) if parts else np.zeros(self.truth.shape[1], int)
        return failures == 0, failures == 1, missed

    def load(self, start: Array, literals: Array, weights: Array, threads: int) -> None:
        self.scores[:] = 0
        for a, b, w in zip(start[:-1], start[1:], weights, strict=True):
            self.change(literals[a:b], w)

    def change(self, literals: Array, by: float) -> None:
        parts = self._parts(literals)
        match, near, missed = self._spot(parts)
        for (v, allowed), miss in zip(parts, missed, strict=True):
            self.scores[self.base[v] + np.flatnonzero(allowed)] += by * (match | (near & miss))

    def logits(self) -> Array:
        """One column a binary variable (state 1 against state 0), one a state of the others."""
        lanes = []
        for a, b in zip(self.base[:-1], self.base[1:], strict=True):
            lanes += [self.scores[a + 1] - self.scores[a]] if b - a == 2 else list(self.scores[a:b])
        return np.array(lanes).T.copy()

    def _log_probabilities(self) -> Array:
        out = self.scores.copy()
        for a, b in zip(self.base[:-1], self.base[1:], strict=True):
            out[a:b] -= np.logaddexp.reduce(out[a:b], axis=0)
        return out

    def loss(self, threads: int) -> float:
        return -float((self._log_probabilities() * self.truth).sum(axis=0) @ self.row_weight)

    def _odds(self, part: Part) -> Array:
        """Log-odds of the allowed states against the others."""
        v, allowed = part
        scores = self.scores[self.base[v] : self.base[v + 1]]
        return np.asarray(np.logaddexp.reduce(scores[allowed], axis=0) - np.logaddexp.reduce(scores[~allowed], axis=0))

    def _entries(self, literals: Array, without: Array | None, weight: float) -> tuple[Array, Array, Array]:
        """Margins of the rows in all contexts, the sign with which the feature's weight enters them, and row weights."""
        parts = self._parts(literals)
        match, near, missed = self._spot(parts)
        shared = (match & False, near & False) if without is None else self._spot(self._parts(without))[:2]
        margin: list[Array] = [np.zeros(0)]
        sign: list[Array] = [np.zeros(0)]
        counts: list[Array] = [np.zeros(0)]
        for part, miss in zip(parts, missed, strict=True):
            if part[1].all():
                continue  # nothing to choose between
            odds = self._odds(part)
            for s, rows, own in ((1.0, match, shared[0]), (-1.0, near & miss, shared[1])):
                margin.append(s * (odds - weight * own)[rows])
                sign.append(np.full(rows.sum(), s))
                counts.append(self.row_weight[rows])
        return np.concatenate(margin), np.concatenate(sign), np.concatenate(counts)

    def gains(
        self, start: Array, literals: Array, owner: Array, owner_start: Array, owner_literals: Array, owner_weight: Array,
        min_rows: float, l1: float, ridge: float, price: Array, all: bool, threads: int,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        owners = [owner_literals[a:b] for a, b in zip(owner_start[:-1], owner_start[1:], strict=True)]
        present = [_gain(self._entries(own, own, w), w, l1, ridge) - price[len(own)] for own, w in zip(owners, owner_weight, strict=True)]
        weight, gain = np.zeros(len(owner)), np.zeros(len(owner))
        for c, o in enumerate(owner):
            replaced = (None, 0.0) if o < 0 else (owners[o], owner_weight[o])
            own = literals[start[c] : start[c + 1]]
            if self._spot(self._parts(own))[0] @ self.row_weight < min_rows:
                gain[c] = -np.inf
                continue
            entries = self._entries(own, *replaced)
            weight[c] = _best_weight(entries, l1, ridge)
            gain[c] = _gain(entries, weight[c], l1, ridge) - price[len(own)]
            if not all and gain[c] < (0.0 if o < 0 else max(0.0, present[o])):
                weight[c], gain[c] = 0.0, -np.inf
        return weight, gain, np.array(present)

    def _apart(self, parts: list[Part], p: int, state: int, together: Array | None, power: int) -> np.float32:
        """How far a state is from those that a feature allows its variable, seen from the feature's other variables."""
        if together is None:
            return np.float32(1)
        v, allowed = parts[p]
        inside, total, other = self.base[v] + np.flatnonzero(allowed), 0.0, self.base[v] + state
        for q, (c, _) in enumerate(parts):
            if q == p:
                continue
            of = slice(self.base[c], self.base[c + 1])
            count = together[inside, of].sum(axis=0) + 1 / self.n_states[c]
            mine = count / (1 + together[inside, inside].sum())
            theirs = (together[other, of] + 1 / self.n_states[c]) / (1 + together[other, other])
            for difference in np.abs(mine - theirs):
                total += difference**power
        return np.float32(total)

    def generalise(
        self, start: Array, literals: Array, together: Array | None, power: int, sizes: Array, threads: int
    ) -> tuple[Array, Array, Array]:
        n = len(self.variable)
        found: list[Array] = []
        owner: list[int] = []
        for j in range(len(start) - 1):
            own = literals[start[j] : start[j + 1]]
            parts = self._parts(own)
            if len(parts) < 3:
                continue  # two variables less one are an atomic feature
            match, _, missed = self._spot(parts)
            distance = np.zeros(len(self.row_weight), np.float32)
            for p, (v, allowed) in enumerate(parts):
                for s in np.flatnonzero(~allowed):
                    distance += self.truth[self.base[v] + s] * self._apart(parts, p, int(s), together, power)
            rows = np.flatnonzero(~match)
            rows = rows[np.lexsort((rows, distance[rows]))]
            reached = np.cumsum(self.row_weight[rows])
            told = len(parts)
            for size in sizes:
                nearest = rows[: np.searchsorted(reached, size) + 1]
                kept = [v for (v, _), miss in zip(parts, missed, strict=True) if not miss[nearest].any()]
                if 2 <= len(kept) < told:
                    told = len(kept)
                    found.append(own[np.isin(self.variable[own % n], kept)])
                    owner.append(j)
        lengths = [len(literals) for literals in found]
        flat = np.concatenate([np.zeros(0, np.int32), *found]).astype(np.int32)
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat, np.array(owner, dtype=np.int32)

    def join(
        self,
        start: Array,
        literals: Array,
        first: int,
        last: int,
        most: int,
        min_rows: float,
        l1: float,
        ridge: float,
        price: Array,
        threads: int,
    ) -> tuple[Array, Array, Array, Array, int]:
        features = [literals[a:b] for a, b in zip(start[:-1], start[1:], strict=True)]
        found: list[tuple[Array, float, float]] = []
        n_scored = 0
        for j in range(first, last):
            for other in features[:j]:
                both = np.union1d(other, features[j])
                distinct = len(np.unique(self.variable[both % len(self.variable)])) == len(both)
                if not distinct or len(both) > most or len(both) - max(len(other), len(features[j])) < 2:
                    continue
                n_scored += 1
                if self._spot(self._parts(both))[0] @ self.row_weight < min_rows:
                    continue
                entries = self._entries(both, None, 0.0)
                weight = _best_weight(entries, l1, ridge)
                gain = _gain(entries, weight, l1, ridge) - price[len(both)]
                if gain > 0:
                    found.append((both, weight, gain))
        flat = np.concatenate([np.zeros(0, np.int32), *(both for both, _, _ in found)]).astype(np.int32)
        ends = np.cumsum([0, *(len(both) for both, _, _ in found)]).astype(np.int64)
        return ends, flat, np.array([w for _, w, _ in found]), np.array([g for _, _, g in found]), n_scored

    def screen(self, start: Array, literals: Array, extra: Array, threads: int) -> tuple[Array, Array, Array]:
        p = np.exp(self._log_probabilities()[extra])
        held = self.truth[extra].astype(float)
        residual, variance = (held - p) * self.row_weight, p * (1 - p) * self.row_weight
        out = np.zeros((3, len(start) - 1, len(extra)))
        for j in range(len(start) - 1):
            parts = self._parts(literals[start[j] : start[j + 1]])
            match, near, missed = self._spot(parts)
            pull, stiff = np.zeros(len(match)), np.zeros(len(match))
            for part, miss in zip(parts, missed, strict=True):
                if part[1].all():
                    continue
                at = 1 / (1 + np.exp(-self._odds(part)))
                context = match | (near & miss)
                pull += context * (match - at)
                stiff += context * at * (1 - at)
            out[0, j] = held @ (pull * self.row_weight) + residual @ match
            out[1, j] = held @ (stiff * self.row_weight) + variance @ match
            out[2, j] = held @ (match * self.row_weight)
        return out[0], out[1], out[2]


def _gain(entries: tuple[Array, Array, Array], weight: float, l1: float, ridge: float) -> float:
    margin, sign, counts = entries
    moved = np.logaddexp(0, -margin) - np.logaddexp(0, -margin - sign * weight)
    return float(counts @ moved) - l1 * abs(weight) - 0.5 * ridge * weight * weight


def _best_weight(entries: tuple[Array, Array, Array], l1: float, ridge: float) -> float:
    """Newton's method within a bracket that shrinks."""
    margin, sign, counts = entries

    def slope(w: float) -> tuple[float, float]:
        p = 1 / (1 + np.exp(np.clip(margin + sign * w, -700, 700)))
        return float(counts @ (sign * p)) - ridge * w, float(counts @ (p * (1 - p))) + ridge

    low, high, w, side = -FARTHEST, FARTHEST, 0.0, 0.0
    if l1 > 0:
        first, _ = slope(0.0)
        if abs(first) <= l1:
            return 0.0
        side = np.sign(first)
        low, high = (0.0, high) if side > 0 else (low, 0.0)
    last = before = np.inf  # lengths of the two last steps
    for _ in range(60):
        first, second = slope(w)
        first -= l1 * side
        low, high = (w, high) if first > 0 else (low, w)
        step = first / max(second, 1e-12)
        inside = low < w + step < high
        close = inside and abs(step) < 1e-7 * (1 + abs(w))
        if not close and (not inside or abs(step) > before / 2):  # steps that do not shrink go to and fro
            step = ((high if first > 0 else low) - w) / 2
        before, last = last, abs(step)
        w += step
        if close or high - low < 1e-9:
            break
    return w


def combine(a: Array, n_a: int, b: Array, n_b: int) -> tuple[Array, int]:
    """Rows with the same pair of numbers get the same number, from 0 on; and how many there are."""
    pairs, out = np.unique(b.astype(np.int64) * n_a + a, return_inverse=True)
    return out.astype(np.int32), len(pairs)


class Strata:
    """Chi-square tests of one variable against others, within strata of the rows."""

    def __init__(self, codes: Array, n_states: Array, row_weight: Array) -> None:
        self.codes, self.n_states, self.row_weight = codes, n_states, row_weight

    def test(
        self, stratum: Array, n_strata: int, target: int, others: Array, least_expected: float, enough_seen: float
    ) -> tuple[Array, Array]:
        """Chi-square and degrees of freedom of the target with each of the others.

        Strata in which fewer than two states of the target have twice ``least_expected`` rows are passed over. Degrees of freedom
        count the states seen in each stratum; cells with fewer rows expected than ``least_expected`` and fewer seen than
        ``enough_seen`` say nothing and cost one.
        """
        k = int(self.n_states[target])
        group = stratum * k + self.codes[target]
        own = np.bincount(group, self.row_weight, n_strata * k).reshape(n_strata, k, 1)
        useful = (own >= 2 * least_expected).sum(axis=(1, 2)) > 1
        chi, free = np.zeros(len(others)), np.zeros(len(others), dtype=np.int64)
        for i, v in enumerate(others.tolist()):
            n = int(self.n_states[v])
            counts = np.bincount(group * n + self.codes[v], self.row_weight, n_strata * k * n).reshape(n_strata, k, n)
            by_state = counts.sum(axis=1, keepdims=True)
            expected = own * by_state / np.maximum(own.sum(axis=1, keepdims=True), NOTHING)
            there = (own > NOTHING) & (by_state > NOTHING)
            mute = there & (expected < least_expected) & (counts < enough_seen)
            terms = np.divide((counts - expected) ** 2, expected, out=np.zeros_like(counts), where=there & ~mute).sum(axis=(1, 2))
            seen, own_states = (by_state > NOTHING).sum(axis=(1, 2)), (own > NOTHING).sum(axis=(1, 2))
            freedom = (seen - 1) * (own_states - 1) - mute.sum(axis=(1, 2))
            used = useful & (freedom > 0)
            chi[i], free[i] = terms[used].sum(), freedom[used].sum()
        return chi, free
