"""Places for the names of curves beside their ends: none covers another, and each is as near as it can be."""

from __future__ import annotations

from collections.abc import Sequence


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """The places nearest to those wanted, in the least squares, that keep their order and at least `gap` between them.

    Places that would be too close are moved to stand around their common mean: the method of pooling neighbours for a
    monotone regression, after k gaps are taken off the k-th place.
    """
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    pools: list[tuple[float, int]] = []
    for place, k in enumerate(order):
        total, size = wanted[k] - gap * place, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            before, count = pools.pop()
            total, size = total + before, size + count
        pools.append((total, size))
    levels = [total / size for total, size in pools for _ in range(size)]
    found = [0.0] * len(wanted)
    for place, k in enumerate(order):
        found[k] = levels[place] + gap * place
    return found


def within(places: Sequence[float], low: float, high: float) -> list[float]:
    """The places moved together so far that none lies below `low`, and, where there is room, none above `high`."""
    if not places:
        return []
    shift = min(0.0, high - max(places))
    shift = max(shift, low - min(places))
    return [place + shift for place in places]
