"""Random numbers as hashes, which any kernel can make at any time."""

from __future__ import annotations


class RandomStream:
    """Random numbers as hashes of (seed, element, draw), the same as the native kernel's."""

    def __init__(self, seed: int, element: int) -> None:
        self.base = _mix(seed ^ _mix(element))

    def below(self, draw: int, n: int) -> int:
        return int(float(_mix((self.base + draw) & _MASK) >> 11) * 2.0**-53 * float(n))


_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
