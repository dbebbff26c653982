"""Coordinate descent for very many features: sweeps over single weights, steps along the last sweeps, a certificate in double precision.

A sweep visits features in a fresh random order. Each takes the step of its own weight that its slope and curvature ask for, and the
odds of the rows that it touches are multiplied accordingly, so that a visit costs as much as the feature touches, and no more. After a
sweep the weights move along the sweep's own step and along the last few moves, as conjugate gradients do: logits are linear in the
weights, so that the images of these directions are known, and the best amounts come from a Newton method in four dimensions. Both are
needed: a fixed order, or sweeps alone, take many times as long.

Sweeps are in single precision. Where that does not suffice for the tolerance, the quasi-Newton solver goes on from where they end.
The result is the same to the bit for any number of threads: features that share a variable are visited in the same order by any.
"""

from __future__ import annotations

import numpy as np

from undirected.kernels.types import Array
from undirected.weights.objective import CoordinateObjective, CoordinateState, check_needs
from undirected.weights.outcome import Judge, Outcome, SolverStep
from undirected.weights.penalty import Penalty
from undirected.weights.preconditioner import MAIN_ROWS, suits_main_matrix
from undirected.weights.quasi_newton import QuasiNewton
from undirected.weights.thread_choice import ThreadChoice
from undirected.work import Stopped, StoppedBy, Work

# Where the quasi-Newton solver and its matrices come first:
LEAST_FEATURES, LEAST_WITH_L1 = 5_000, 400  # with fewer features; the second number holds under L1 with a weak ridge
WEAK_RIDGE = 0.5  # below which weights that L1 keeps may become large, which takes many quasi-Newton steps
LONG_SHARE = 0.05  # with fewer features of three literals or more, unless that is so: pairs are easy
LEAST_TO_TAKE_OVER, PATIENCE_WITH_STEPS = 1_000, 300  # features from which on sweeps take over after so many quasi-Newton steps
DIRECTIONS = 4  # along which the weights move after a sweep
NEWTON_STEPS, HALVINGS = 2, 3  # in those dimensions
LEAST_EXPECTED = 2e-10  # part of the objective that a step along them must promise: less is rounding
STREAMS = 32  # parts of the order that are visited side by side
SLICE = 40_000_000  # groups of rows that are visited between questions whether the time is over
ALL_EVERY, ALL_FIRST = 8, 3  # all features are visited in every eighth sweep, and in the first three
CURVATURE_EVERY, CURVATURE_FIRST = 4, 8  # curvatures are computed anew in every fourth sweep, and in the first eight
REBUILD_EVERY, REBUILD_FIRST = 32, 3  # the state is computed anew from the weights after so many sweeps, and after this one
VISITS_AGAIN, AGAIN_SLOPE, AGAIN_COST = 4, 0.2, 0.1  # further visits after a sweep to features with more than this part of the largest
# slope, at most as many as cost this part of the sweep
LONGEST_REST = 4  # sweeps that a feature which has hardly anything to gain is left out
SMALL_GAIN, SMALL_SLOPE = 0.1, 0.1  # of the mean gain, and of the largest slope
ZEROS_FOR_REST = 0.2  # share of weights at zero from which on other weights may rest, too
GAIN_SPAN = 4  # sweeps whose gain is compared with that of as many before
JUDGE_EVERY = 4  # sweeps between questions whether to give up
NEAR, SINGLE_SURE = 2.0, 1e-6  # times the tolerance, and violations, up to which that of a start is found in double precision
CERTIFICATES, FAR, VISITS_TO_FAILED = 3, 3.0, 3  # tries of a certificate in a row, unless it fails by this factor, and visits between them
CERTIFY_EVERY, MOST_MISSES = 3, 4  # sweeps to the next such tries for each that failed, and the most that count
PATIENCE, DROWNED, FLATTER = 12, 2e-8, 0.8  # sweeps that gain less than this part of the objective in all, and do not lower the slopes to
# this part of the lowest so far: the end of single precision


def suits_descent(objective: CoordinateObjective, penalty: Penalty) -> bool:
    """Whether sweeps should be faster than quasi-Newton steps, and there is room for what they take."""
    if not len(objective) or not has_room(objective):
        return False
    weak = float(np.median(penalty.ridge)) < WEAK_RIDGE
    if penalty.has_l1 and weak:
        return len(objective) > LEAST_WITH_L1
    if not penalty.has_l1 and not weak and objective.n_rows <= MAIN_ROWS and suits_main_matrix(objective):
        return False  # a matrix made of all rows is as good as sweeps
    long = np.diff(objective.feature_terms[1]) > 2
    return len(objective) > LEAST_FEATURES and float(long.mean()) > LONG_SHARE


def has_room(objective: CoordinateObjective) -> bool:
    """Whether what sweeps keep up to date fits into memory."""
    return objective.state_bytes <= objective.memory


class CoordinateDescent:
    """A solver for one objective and several penalties: the state is built once."""

    def __init__(self, objective: CoordinateObjective) -> None:
        check_needs(objective, CoordinateObjective, "coordinate descent")
        self.objective = objective
        self.finisher = QuasiNewton(objective)
        self._state: CoordinateState | None = None
        self.costs = np.zeros(0, dtype=np.int64)  # of visits to each feature, once there is a state
        self.threads = ThreadChoice(objective.threads)

    def find_state(self, work: Work) -> CoordinateState:
        """What sweeps keep up to date, built when it is first needed."""
        if self._state is None:
            self._state = self.objective.start_descent(work.watch(f"preparing sweeps over {len(self.objective):,} features"))
            self.costs = self._state.costs()
        return self._state

    def solve(
        self, penalty: Penalty, start: Array, tol: float, work: Work, max_iterations: int = 10_000, judge: Judge | None = None
    ) -> Outcome:
        """Minimise the objective with this penalty from these weights. Each iteration is a sweep."""
        if judge is not None:
            judge.begin(start)
        run = _Run(self, penalty, np.array(start, dtype=float), tol, work)
        out = run.solve(max_iterations, judge)
        if out is not None:
            return out
        rest = self.finisher.solve(penalty, run.best, tol, work, max(0, max_iterations - run.sweeps), judge)
        rest.iterations += run.sweeps
        return rest

    def solve_either_way(
        self, penalty: Penalty, start: Array, tol: float, work: Work, max_iterations: int = 10_000, judge: Judge | None = None
    ) -> Outcome:
        """Minimise by sweeps or by quasi-Newton steps, whichever should be faster.

        Where steps come first and are many, the problem is badly conditioned: sweeps, which do not care as much, take over.
        """
        if suits_descent(self.objective, penalty):
            return self.solve(penalty, start, tol, work, max_iterations, judge)
        may_take_over = len(self.objective) > LEAST_TO_TAKE_OVER and has_room(self.objective)
        most = min(PATIENCE_WITH_STEPS, max_iterations) if may_take_over else max_iterations
        out = self.finisher.solve(penalty, start, tol, work, most, judge)
        if out.stopped_by is not StoppedBy.ITERATIONS or out.iterations < most or most == max_iterations:
            return out
        rest = self.solve(penalty, out.weights, tol, work, max_iterations - most, judge)
        rest.iterations += most
        return rest


class _Run:
    """One minimisation: from a start, with one penalty, to a tolerance."""

    def __init__(self, owner: CoordinateDescent, penalty: Penalty, weights: Array, tol: float, work: Work) -> None:
        self.owner, self.objective, self.penalty, self.tol, self.work = owner, owner.objective, penalty, tol, work
        n = len(weights)
        self.weights = weights
        self.best, self.best_value, self.best_sweep = weights.copy(), np.inf, 0
        self.sure, self.sure_value, self.has_drifted = self.best, np.inf, False  # where the state was last computed anew
        self.least_violation = np.inf
        self.values: list[float] = []  # of the objective, after the last sweeps
        self.has_l1 = penalty.has_l1
        self.l1 = np.broadcast_to(np.asarray(penalty.l1, dtype=float), n).copy()
        self.ridge = np.broadcast_to(np.asarray(penalty.ridge, dtype=float), n).copy()
        self.centre = np.zeros(n) if penalty.centre is None else np.asarray(penalty.centre, dtype=float)
        self.slope, self.gain, self.curvature = np.zeros(n), np.zeros(n), np.zeros(n)
        self.wakes = np.zeros(n, dtype=np.int64)  # the sweep from which on a feature is visited again
        self.rests = np.zeros(n, dtype=np.int64)  # how long its last rest was
        self.least_gain, self.least_slope = 0.0, 0.0
        self.steps = np.zeros((0, n))  # of the directions
        self.random = np.random.default_rng(0)
        self.sweeps = 0
        self.misses, self.next_certificate, self.been_near = 0, 0, False

    def solve(self, max_iterations: int, judge: Judge | None) -> Outcome | None:
        """Sweep until something ends it; None where single precision ends before the tolerance is met."""
        stopped_by = StoppedBy.ITERATIONS
        try:
            value, violation, gradient = self.find_violation(NEAR) if max_iterations > 0 else self.certify()
            self.best_value = value
            if violation <= self.tol or max_iterations == 0:
                reached = violation <= self.tol
                return Outcome(self.weights, value, violation, StoppedBy.TOLERANCE if reached else stopped_by, 0)
            self.wakes[(self.weights == 0) & (gradient == 0)] = 1  # no use in visiting these first
            self.work.check()
            self.state = self.owner.find_state(self.work)
            self.state.set_weights(self.weights, self.objective.threads)
            while self.sweeps < max_iterations:
                violation = self.sweep()
                if violation <= self.tol and self.sweeps >= self.next_certificate:
                    out = self.try_certificate()
                    if out is not None:
                        return out
                value = self.accelerate()
                self.work.emit(SolverStep(self.sweeps, value, violation))
                self.values = [*self.values[-2 * GAIN_SPAN :], value]
                if judge is not None and self.is_hopeless(judge, violation):
                    stopped_by = StoppedBy.GIVEN_UP
                    break
                if judge is not None and self.estimate_gap() < judge.gap:
                    stopped_by = StoppedBy.CLOSE
                    break
                if self.has_drowned(value, violation):
                    self.choose_best()
                    return None
                self.rebuild_state()
        except Stopped as stop:
            stopped_by = stop.why
        except KeyboardInterrupt:
            stopped_by = StoppedBy.INTERRUPT
        value, violation, _ = self.certify()
        if violation <= self.tol and stopped_by is not StoppedBy.INTERRUPT:
            stopped_by = StoppedBy.TOLERANCE
        return Outcome(self.weights, value, violation, stopped_by, self.sweeps)

    def certify(self, single: bool = False) -> tuple[float, float, Array]:
        """Value, violation and smallest subgradient over all features, in double precision unless a first look will do."""
        self.objective.restrict(None)
        loss, gradient, _ = self.objective.evaluate(self.weights, single)
        gradient = self.penalty.subgradient(self.weights, self.penalty.add_gradient(gradient, self.weights))
        violation = float(np.abs(gradient).max(initial=0.0)) / self.objective.total_weight
        return self.penalty.add_value(loss, self.weights), violation, gradient

    def find_violation(self, near: float) -> tuple[float, float, Array]:
        """The same in single precision, which takes half the time, unless that is within this factor of the tolerance, or tells nothing."""
        found = self.certify(single=True)
        return self.certify() if found[1] <= max(near * self.tol, SINGLE_SURE) else found

    def try_certificate(self) -> Outcome | None:
        """The outcome, if the tolerance is met, perhaps after some more visits to the features that fail it."""
        for _ in range(CERTIFICATES):
            value, violation, gradient = self.find_violation(1.0)
            if violation <= self.tol:
                self.work.emit(SolverStep(self.sweeps, value, violation))
                return Outcome(self.weights, value, violation, StoppedBy.TOLERANCE, self.sweeps)
            self.wakes[np.abs(gradient) > 0.5 * self.tol * self.objective.total_weight] = 0
            if violation > FAR * self.tol:
                break
            self.slope = gradient
            self.revisit(np.arange(len(self.weights)), VISITS_TO_FAILED, self.objective.threads, refresh=True)
        self.misses += 1
        self.next_certificate = self.sweeps + CERTIFY_EVERY * min(self.misses, MOST_MISSES)
        return None

    def is_hopeless(self, judge: Judge, violation: float) -> bool:
        """Ask the judge every few sweeps, and once when the end is near."""
        near = violation <= judge.tol
        if not (near and not self.been_near) and self.sweeps % JUDGE_EVERY:
            return False
        self.been_near = self.been_near or near
        return judge.is_hopeless(self.weights, near)

    def has_drowned(self, value: float, violation: float) -> bool:
        """Whether single precision leads no further: objective and slopes have stopped falling, or only seemed to fall."""
        if value < self.best_value - DROWNED * abs(value):
            self.best_value, self.best_sweep = value, self.sweeps
            self.best = self.weights.copy()
        elif violation < FLATTER * self.least_violation and value < self.best_value + DROWNED * abs(value):
            self.least_violation, self.best_sweep = violation, self.sweeps
            self.best = self.weights.copy()
        return self.has_drifted or self.sweeps - self.best_sweep >= PATIENCE

    def check_drift(self) -> None:
        """Compare the value of a state that was just computed anew with the last such value.

        Rounding adds up, and steps along directions that are hardly more than rounding can make the objective seem to fall while it rises.
        """
        value = self.penalty.add_value(self.state.measure(np.zeros(0), self.objective.threads)[0], self.weights)
        self.has_drifted = value > self.sure_value - DROWNED * abs(value)
        if not self.has_drifted:
            self.sure, self.sure_value = self.weights.copy(), value
        self.best, self.best_value = self.sure, self.sure_value

    def choose_best(self) -> None:
        """Keep the best of the weights at hand, in double precision."""
        candidates = (self.weights, self.best, self.sure)
        self.best = min(candidates, key=lambda w: self.penalty.add_value(self.objective.evaluate(w)[0], w))

    def estimate_gap(self) -> float:
        """The part of the objective that is still to gain if gains go on falling as in the last sweeps: an estimate, not a bound."""
        if self.sweeps <= 3 * GAIN_SPAN:  # the first sweeps gain much, and tell nothing of the later ones
            return np.inf
        earlier, later = self.values[0] - self.values[GAIN_SPAN], self.values[GAIN_SPAN] - self.values[-1]
        if not 0 <= later < earlier:
            return np.inf
        return later**2 / (earlier - later) / abs(self.values[-1])

    # -- one sweep
    def sweep(self) -> float:
        """Visit the features that are awake, in a fresh order; the largest slope found, over the total weight."""
        number = self.sweeps
        everyone = 0 < number < ALL_FIRST or (number > 0 and number % ALL_EVERY == 0)
        awake = np.arange(len(self.weights)) if everyone else np.flatnonzero(self.wakes <= number)
        refresh = number < CURVATURE_FIRST or number % CURVATURE_EVERY == 0
        self.before = self.weights.copy()
        order = self.order_features(awake.astype(np.int32))
        for part, threads in self.owner.threads.share_out(order):
            began = self.work.now()
            self.visit(part, refresh, self.least_gain, self.least_slope, threads)
            self.owner.threads.learn(threads, self.work.now() - began, float(self.owner.costs[part].sum()))
        self.sweeps += 1
        gain = self.gain.copy()  # of the first visits, which decide on rest
        self.revisit(awake, VISITS_AGAIN, threads)
        self.gain = gain
        largest = float(np.abs(self.slope[awake]).max(initial=0.0))
        if self.has_l1:
            self.choose_rest(awake, largest)
        return largest / self.objective.total_weight

    def visit(self, order: Array, refresh: bool, least_gain: float, least_slope: float, threads: int) -> None:
        """Visit features in this order; their steps are taken where they gain as much, or have such a slope."""
        for part in self.slice_order(order):
            self.work.check()
            self.state.sweep(
                part, self.l1, self.ridge, self.centre, self.weights, self.curvature, self.slope, self.gain,
                refresh, least_gain, least_slope, threads,
            )  # fmt: skip

    def revisit(self, features: Array, times: int, threads: int, refresh: bool = False) -> None:
        """Visit those with the largest slopes again and again, one feature at least.

        Slopes of features that hold in many rows are changed by every step of the features beside them: a few visits more keep these few
        features from lagging behind the many.
        """
        most = AGAIN_COST * float(self.owner.costs[features].sum())
        for _ in range(times):
            slopes = np.abs(self.slope[features])
            steep = features[slopes > AGAIN_SLOPE * slopes.max(initial=0.0)]
            steep = steep[np.argsort(-np.abs(self.slope[steep]), kind="stable")]
            steep = steep[: max(1, int(np.searchsorted(np.cumsum(self.owner.costs[steep]), most, side="right")))]
            if not len(steep):
                return
            self.visit(self.order_features(steep.astype(np.int32)), refresh, 0.0, 0.0, threads)

    def order_features(self, features: Array) -> Array:
        """A random order in which neighbours touch the same variables, cut into streams that run side by side.

        Within a stream what a feature reads is still in the cache from the one before; features of different streams seldom share a
        variable, so that threads do not wait for each other.
        """
        terms, start = self.objective.feature_terms
        rank = self.random.permutation(int(terms.max(initial=0)) + 1)
        rank = rank.astype(np.uint16) if len(rank) <= 1 << 16 else rank  # small numbers are sorted by their digits, which is faster
        lengths = start[features + 1] - start[features]
        ends = np.cumsum(lengths)
        own = rank[terms[np.arange(int(lengths.sum())) + np.repeat(start[features] - (ends - lengths), lengths)]]
        lowest, filled = np.zeros(len(features), dtype=rank.dtype), lengths > 0
        lowest[filled] = np.minimum.reduceat(own, (ends - lengths)[filled]) if filled.any() else 0
        shuffled = self.random.permutation(len(features))
        features = features[shuffled[np.argsort(lowest[shuffled], kind="stable")]]
        length = -(-len(features) // STREAMS)
        grid = np.full(length * STREAMS, -1, dtype=np.int32)
        grid[: len(features)] = features
        mixed = grid.reshape(STREAMS, length).T.ravel()
        return np.asarray(self.state.spread_out(np.ascontiguousarray(mixed[mixed >= 0])))

    def slice_order(self, order: Array) -> list[Array]:
        """The order in pieces that do not take long each; the sizes of features decide, not the clock."""
        piece = np.cumsum(self.owner.costs[order]) // SLICE
        return np.split(order, np.flatnonzero(np.diff(piece)) + 1)

    def choose_rest(self, visited: Array, largest: float) -> None:
        """Features that have hardly anything to gain are left out for one, two, then four sweeps."""
        moved = visited[self.weights[visited] != self.before[visited]]
        self.least_gain = SMALL_GAIN * float(self.gain[moved].mean()) if len(moved) else 0.0
        self.least_slope = max(self.tol * self.objective.total_weight, SMALL_SLOPE * largest)
        small = (self.gain[visited] < self.least_gain) & (np.abs(self.slope[visited]) < self.least_slope)
        if np.mean(self.weights == 0) < ZEROS_FOR_REST:
            small &= self.weights[visited] == 0
            self.least_gain = 0.0
        tired, keen = visited[small], visited[~small]
        self.rests[tired] = np.clip(2 * self.rests[tired], 1, LONGEST_REST)
        self.wakes[tired] = self.sweeps + self.rests[tired]
        self.rests[keen] = self.wakes[keen] = 0

    # -- the move after a sweep
    def accelerate(self) -> float:
        """Move along the sweep's step and the last moves as far as that lowers the objective; its value then.

        The sweep's direction becomes the whole move of this round: that makes the rounds behave like conjugate gradients.
        """
        threads = self.objective.threads
        slot = (self.sweeps - 1) % DIRECTIONS
        self.state.keep_image(slot, threads)
        step = self.weights - self.before
        if slot == len(self.steps):
            self.steps = np.vstack([self.steps, step])
        else:
            self.steps[slot] = step
        if self.has_l1:  # weights that have come to zero stay there
            self.leave_out((self.weights == 0) & (self.l1 > 0))
        amounts, value = self.find_amounts()
        if not amounts.any():
            return value
        moved = self.weights + amounts @ self.steps
        clipped = np.where((moved * self.weights < 0) & (self.l1 > 0), -moved, 0.0)  # weights stop at zero here, too
        self.state.move(amounts, slot, clipped, threads)
        self.steps[slot] += moved + clipped - self.weights
        self.weights = moved + clipped
        self.weights[clipped != 0] = 0.0
        return value

    def leave_out(self, features: Array) -> None:
        """Take the features marked out of all directions."""
        for k, step in enumerate(self.steps):
            gone = np.where(features, step, 0.0)
            if gone.any():
                self.state.correct_image(k, gone, self.objective.threads)
                self.steps[k] = step - gone

    def find_amounts(self) -> tuple[Array, float]:
        """The amounts of the directions that minimise the objective, by Newton steps that are halved until they lower it.

        A step that is good for nearly all weights may carry a few across zero, where L1 turns around, which would spoil it: these few are
        left out of the directions first.
        """
        amounts = np.zeros(len(self.steps))
        value, slope, hessian = self.measure(amounts)
        step, expected = find_newton_step(slope, hessian)
        if self.has_l1 and expected > abs(value) * LEAST_EXPECTED:
            crossing = ((self.weights + step @ self.steps) * self.weights < 0) & (self.l1 > 0)
            if crossing.any():
                self.leave_out(crossing)
                value, slope, hessian = self.measure(amounts)
        for _ in range(NEWTON_STEPS):
            step, expected = find_newton_step(slope, hessian)
            if expected <= abs(value) * LEAST_EXPECTED:
                break
            for halving in range(HALVINGS):
                found = self.measure(amounts + step / 2**halving)
                if found[0] < value:
                    break
            else:
                break
            gained = value - found[0]
            amounts = amounts + step / 2**halving
            value, slope, hessian = found
            if halving == 0 and gained > 0.7 * expected:
                break  # the model is good, so that the next step would be small
        return amounts, value

    def measure(self, amounts: Array) -> tuple[float, Array, Array]:
        """The objective along the directions, with its gradient and its Hessian."""
        loss, slope, hessian = self.state.measure(amounts, self.objective.threads)
        weights = self.weights + amounts @ self.steps
        slope = slope + self.steps @ (self.ridge * (weights - self.centre) + self.l1 * np.sign(weights))
        return self.penalty.add_value(loss, weights), slope, hessian + (self.steps * self.ridge) @ self.steps.T

    def rebuild_state(self) -> None:
        """From time to time, compute the state and the images anew: every multiplication has rounded them."""
        late = self.sweeps % REBUILD_EVERY == 0
        if self.sweeps != REBUILD_FIRST and not late:
            return
        self.state.set_weights(self.weights, self.objective.threads)
        self.check_drift()
        if not late:
            return
        for k, step in enumerate(self.steps):
            self.state.set_image(k, step, self.objective.threads)


def find_newton_step(slope: Array, hessian: Array) -> tuple[Array, float]:
    """The step to the minimum of a quadratic model, and how much it should gain there; nothing, where no step can be found."""
    scale = np.sqrt(np.maximum(hessian.diagonal(), 1e-30))
    scaled = hessian / scale / scale[:, None] + 1e-7 * np.eye(len(scale))
    try:
        step = -np.linalg.solve(scaled, slope / scale) / scale
    except np.linalg.LinAlgError:  # where rounding is all there is
        return np.zeros(len(slope)), 0.0
    return (step, -0.5 * float(slope @ step)) if np.isfinite(step).all() else (np.zeros(len(slope)), 0.0)
