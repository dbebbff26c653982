"""Grids: the values of each parameter that a tuning tries."""

from __future__ import annotations

from typing import Any

import numpy as np

from undirected.errors import ParameterError
from undirected.structure.learner import Grid, Learner

GRIDS = ("quick", "paper")


def check_grid(learner: Learner, grid: Grid | str) -> Grid:
    """A grid by parameter name, from the name of one of the learner's own or from lists."""
    if isinstance(grid, str):
        if grid not in GRIDS:
            raise ParameterError(f"grid={grid!r} is not known; choose one of {', '.join(GRIDS)}, or give lists by parameter name")
        chosen: Grid = learner.paper_grid if grid == "paper" else learner.quick_grid
    else:
        chosen = grid
    for name, values in chosen.items():
        if name not in learner.get_params():
            raise ParameterError(f"the grid names {name!r}, but {type(learner).__name__} has {', '.join(learner.get_params())}")
        if not isinstance(values, list | tuple) or not len(values):
            raise ParameterError(f"the grid's {name!r} must be a list of at least one value, not {values!r}")
    return {name: [_unwrap(value) for value in values] for name, values in chosen.items()}


def _unwrap(value: Any) -> Any:
    """A plain number in place of one of NumPy's, so that it can be written."""
    return value.item() if isinstance(value, np.generic) else value
