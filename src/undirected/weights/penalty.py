"""Penalties of weights: L1, a ridge, and a centre towards which the ridge draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from undirected.errors import ParameterError, check_number
from undirected.kernels.types import Array

NARROWEST_SD = 1e-9


@dataclass(frozen=True)
class Penalty:
    """``sum l1 |w| + sum ridge (w - centre)^2 / 2``: ``l1`` and ``ridge`` are numbers for all features or arrays with one for each;
    ``centre`` is an array, or None for zero. The ridge draws weights towards the centre, L1 always towards zero."""

    l1: float | Array = 0.0
    ridge: float | Array = 0.0
    centre: Array | None = None

    @classmethod
    def from_prior(cls, l1: float | Array, sd: float | Array, centre: Array | None = None) -> Penalty:
        """The penalty of Gaussian priors with these deviations (infinite for none) and of L1."""
        if isinstance(sd, np.ndarray):
            return cls(l1, np.where(np.isinf(sd), 0.0, 1 / np.square(sd)), centre)
        return cls(l1, 0.0 if math.isinf(sd) else 1 / sd**2, centre)

    @property
    def has_l1(self) -> bool:
        """Whether any weight has an L1 penalty."""
        return bool(np.any(np.asarray(self.l1) > 0))

    @property
    def least_ridge(self) -> float:
        """The smallest ridge of all features."""
        return float(np.min(self.ridge, initial=np.inf)) if isinstance(self.ridge, np.ndarray) else float(self.ridge)

    def add_value(self, loss: float, weights: Array) -> float:
        """The loss with the penalty of the weights."""
        distance = weights if self.centre is None else weights - self.centre
        if isinstance(self.l1, np.ndarray):
            loss = loss + float(self.l1 @ np.abs(weights))
        else:
            loss = loss + self.l1 * float(np.abs(weights).sum())
        if isinstance(self.ridge, np.ndarray):
            return loss + 0.5 * float(self.ridge @ np.square(distance))
        return loss + 0.5 * self.ridge * float(distance @ distance)

    def add_gradient(self, gradient: Array, weights: Array) -> Array:
        """The gradient with that of the ridge; L1 has its part in `subgradient`."""
        return np.asarray(gradient + self.ridge * (weights if self.centre is None else weights - self.centre))

    def subgradient(self, weights: Array, gradient: Array) -> Array:
        """The subgradient of smallest norm, from a gradient that has the ridge's part."""
        if not np.any(self.l1):
            return gradient
        at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - self.l1, 0)
        return np.where(weights != 0, gradient + self.l1 * np.sign(weights), at_zero)

    def stop_at_zero(self, crossed: Array) -> Array:
        """Of the weights that would change sign, those that must stop at zero: those with an L1 penalty."""
        return np.asarray(crossed & (self.l1 > 0)) if isinstance(self.l1, np.ndarray) else crossed

    def check(self, n: int) -> None:
        """Raise unless the penalty is one for so many features."""
        for name in ("l1", "ridge", "centre"):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                if value.shape != (n,) or not np.isfinite(value).all():
                    raise ParameterError(f"{name} must be a number or {n} finite numbers, one a feature")
                if name != "centre" and (value < 0).any():
                    raise ParameterError(f"{name} has a negative entry; penalties are zero or more")
            elif value is not None:
                check_number(name, value, 0)


def check_prior(l1: Any, sd: Any, tol: Any) -> None:
    """Raise unless the settings of a fit make sense: an L1 penalty, a deviation, a tolerance."""
    check_number("l1", l1, 0)
    check_number("sd", sd, 0, above=True)
    check_number("tol", tol, 0, above=True)
    if math.isinf(l1):
        raise ParameterError(f"l1={l1}: the L1 penalty must be finite")
    if sd < NARROWEST_SD:
        raise ParameterError(f"sd={sd:g}: a Gaussian prior this narrow leaves every weight at zero; try 0.1")
