"""How far sampled chains can be trusted: standard errors, R-hat, effective sample size, whether starts agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undirected.kernels.types import Array

MAX_R_HAT = 1.05
ROUNDING = 2e-5  # sums in single precision are not better than this
EXPECTED_MOVES = 10  # of a chain that would draw independently
STANDS_APART = 0.02  # from the mean of all chains
APART = 3.8  # standard errors between two kinds of starts that count as disagreement


@dataclass
class Diagnosis:
    """By quantity: mean, standard error, R-hat, effective sample size and whether the chains agree about it."""

    mean: Array
    standard_error: Array
    r_hat: Array
    effective: Array
    agree: Array


def diagnose(
    sums: Array, squares: Array, n: int, kinds: Array | None = None, before: Array | None = None, left_out: float = 0.0
) -> Diagnosis:
    """From each chain's sum and sum of squares of ``n`` values between 0 and 1, ``[chains][quantities]``.

    Chains are independent, so the spread of their means gives the error of the overall mean whatever their autocorrelation.
    ``kinds`` tells how each chain was started, ``before`` is an earlier estimate of the means. The chains do not agree where R-hat is
    large; where the kinds of starts, or then and now, differ by more than chance; and where some chains stand still while others move.
    ``left_out`` is the probability of modes at which no chain was started; no error is smaller.
    """
    means = sums / n
    chains = len(means)
    mean = means.mean(axis=0)
    between = means.var(axis=0, ddof=1) if chains > 1 else np.full(means.shape[1], np.nan)
    spread = np.maximum(squares / n - means**2, 0)
    within = spread.mean(axis=0) * n / max(n - 1, 1)
    error = np.sqrt(between / chains)
    steady = np.sqrt(between) < ROUNDING
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.where(steady, 1.0, np.sqrt((n - 1) / n + between / within))
        effective = np.where(steady, chains * n, np.minimum(chains * n, mean * (1 - mean) / error**2))
    agree = ((r_hat <= MAX_R_HAT) | steady) & ~_stand_still(means, spread, n)
    for kind in np.unique(kinds) if kinds is not None else ():
        mine = kinds == kind
        if min(mine.sum(), (~mine).sum()) > 1:
            a, b = means[mine], means[~mine]
            noise = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
            agree &= np.abs(a.mean(axis=0) - b.mean(axis=0)) <= APART * noise + ROUNDING
    if before is not None:
        agree &= np.abs(mean - before) <= APART * np.sqrt(3) * error + ROUNDING  # the earlier run was half as long
    return Diagnosis(mean, np.maximum(error, ROUNDING + left_out), r_hat, effective, agree)


def _stand_still(means: Array, spread: Array, n: int) -> Array:
    """Quantities on which some chain has not moved at all, far from where the others are, although they move enough for it to have."""
    middle = means.mean(axis=0)
    moving = n * np.median(spread, axis=0) > EXPECTED_MOVES
    still = (spread <= ROUNDING**2) & (np.abs(means - middle) > STANDS_APART)
    return np.asarray(moving & still.any(axis=0))
