"""Bit columns: one bit a row for every literal, in words of 64."""

from __future__ import annotations

import numpy as np

from undirected.kernels.types import Array


def pack(codes: Array, n_states: Array) -> Array:
    """Pack codes into the bit columns of all literals, ``[n_literals][words]``; a missing cell (-1) is in no column."""
    n_rows, n_variables = codes.shape
    n_words = (n_rows + 63) // 64
    columns = np.zeros((int(np.sum(n_states)), n_words * 8), dtype=np.uint8)
    at = 0
    for v in range(n_variables):
        column = np.ascontiguousarray(codes[:, v])
        for state in range(int(n_states[v])):
            bits = np.packbits(column == state, bitorder="little")
            columns[at, : len(bits)] = bits
            at += 1
    return columns.view(np.uint64)


def unpack(columns: Array, n_rows: int) -> Array:
    """Unpack bit columns into an array of truth values, ``[...][n_rows]``."""
    return np.unpackbits(columns.view(np.uint8), axis=-1, bitorder="little", count=n_rows).astype(bool)
