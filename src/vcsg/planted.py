"""Planted data: the rows, targets and starting points that the analytic problems draw, by NumPy alone.

All draws come from one `numpy.random.default_rng(seed)`, in this order: rows, the planted w, the targets. Before rows
are scaled to unit norm, column k = 1 … d is N(0, 1)·k^(−1/2), plus 0.3 in the first; w = 2·N(0, 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class PlantedData(NamedTuple):
    """Rows of unit norm, their targets, and the point to begin from, on the far side of the solution."""

    rows: Array
    targets: Array
    start: Array


def planted_regression(n: int, d: int, seed: int) -> PlantedData:
    """Targets y = Aw + ½·N(0, 1); the start is −w."""
    rng, rows, w = _draw(n, d, seed)
    return PlantedData(rows, rows @ w + 0.5 * rng.standard_normal(n), -w)


def planted_outliers(n: int, d: int, seed: int) -> PlantedData:
    """Targets y = Aw + ½·N(0, 1), and one in ten, drawn at random, is off by a further 10·N(0, 1); the start is −w."""
    rng, rows, w = _draw(n, d, seed)
    targets = rows @ w + 0.5 * rng.standard_normal(n)
    targets += np.where(rng.random(n) < 0.1, 10 * rng.standard_normal(n), 0.0)
    return PlantedData(rows, targets, -w)


def planted_classes(n: int, d: int, seed: int) -> PlantedData:
    """Labels in {−1, 1} with P(y = 1) = σ(3 a·w), each then flipped with probability 0.1; the start is −2w."""
    rng, rows, w = _draw(n, d, seed)
    labels = np.where(rng.random(n) < 1 / (1 + np.exp(-3 * rows @ w)), 1.0, -1.0)
    flipped = rng.random(n) < 0.1
    return PlantedData(rows, np.where(flipped, -labels, labels), -2 * w)


def _draw(n: int, d: int, seed: int) -> tuple[np.random.Generator, Array, Array]:
    """Rows of unit norm and the planted w, with the generator for what is drawn next."""
    for name, value, meaning in (("n", n, "rows"), ("d", d, "columns")):
        if value < 1:
            raise ValueError(f"{name} = {value} must be ≥ 1; give the number of {meaning} to draw")
    rng = np.random.default_rng(seed)
    try:
        rows = rng.standard_normal((n, d))
    except (MemoryError, ValueError) as error:
        size = f"{n:,} × {d:,} numbers take {8 * n * d / 2**30:,.0f} GiB"
        raise ValueError(f"n = {n}, d = {d}: {size}, more than can be had; give fewer") from error
    rows /= np.sqrt(np.arange(1, d + 1))
    rows[:, 0] += 0.3
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rng, rows, 2 * rng.standard_normal(d)
