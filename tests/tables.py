"""What tests of tables share."""

from __future__ import annotations


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def states(data, name):
    return data.domain[data.domain.index(name)].states
