"""Runs on f_i(x) = h_i·x²/2 − g_i·x, in one dimension, whose moments are known exactly: no simulation, no bound.

The h_i may be negative: f_i is then concave, and f is convex all the same. Σg_i = 0, so ∇f(x) = Hx, H the mean of h_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vcsg.method.schedules import Plan
from vcsg.method.weights import Weights


@dataclass(frozen=True)
class Terms:
    """The f_i."""

    h: np.ndarray
    g: np.ndarray

    @classmethod
    def draw(cls, seed: int, n: int = 6) -> Terms:
        rng = np.random.default_rng(seed)
        h = rng.uniform(-0.6, 1.0, n)
        h += max(0.0, 0.15 - h.mean())
        g = rng.standard_normal(n) * 10.0 ** rng.uniform(-1.5, 0.5)
        return cls(h, g - g.mean())

    @property
    def n(self) -> int:
        return len(self.h)

    @property
    def L(self) -> float:
        return float(abs(self.h).max())

    @property
    def H(self) -> float:
        return float(self.h.mean())

    def means(self, b: int) -> list[tuple[float, float]]:
        """(h_I, g_I) of every mini-batch."""
        return [(self.h[list(i)].mean(), self.g[list(i)].mean()) for i in combinations(range(self.n), b)]

    def variance(self, second: float, first: float) -> float:
        """E S*(x) for E x² and E x."""
        h, g = self.h - self.h.mean(), self.g
        return float(np.mean(h * h) * second - 2 * np.mean(h * g) * first + np.mean(g * g))


def resting(terms: Terms, weights: Weights, y: float, B: int, b: int, eta: float, steps: int) -> np.ndarray:
    """E x² and E x before each inner step from the anchor y and after the last, over every anchor and mini-batch."""
    a, w, c = weights
    mean = np.array([h * y - g for h, g in terms.means(B)])[:, None]
    h, g = np.array(terms.means(b)).T
    scale, shift = 1 - eta * a * h, -eta * (w * (h * y - g) - a * g + c * mean)  # x′ = scale·x + shift
    second, first, found = np.full(len(mean), y * y), np.full(len(mean), y), []
    for _ in range(steps + 1):
        found.append((second.mean(), first.mean()))
        second = np.mean(scale**2) * second + 2 * np.mean(scale * shift, 1) * first + np.mean(shift**2, 1)
        first = np.mean(scale) * first + np.mean(shift, 1)
    return np.array(found)


def moving(
    terms: Terms, weights: Weights, start: float, b: int, eta: float, steps: int, renewed: float = 0.0
) -> list[np.ndarray]:
    """E zzᵀ for z = (x, v, 1) before each step; v is exact at first, and with probability `renewed` at each step."""
    a, w, c = weights
    z = np.array([start, terms.H * start, 1.0])
    moments, found = np.outer(z, z), []
    exact = np.array([[1, -eta, 0], [terms.H, -eta * terms.H, 0], [0, 0, 1.0]])
    maps = [
        np.array([[1, -eta, 0], [(a + w) * h, c - eta * a * h, -(a + w) * g], [0, 0, 1.0]]) for h, g in terms.means(b)
    ]
    for _ in range(steps + 1):
        found.append(moments)
        drawn = np.mean([m @ moments @ m.T for m in maps], 0)
        moments = (1 - renewed) * drawn + renewed * exact @ moments @ exact.T
    return found


def nested(terms: Terms, plan: Plan, start: float, eta: float) -> list[float]:
    """E x² before each step of nested anchors and after the last, by all mini-batches of all steps."""
    levels = {0: (start, terms.H * start)}
    states = [(1.0, start - eta * terms.H * start, levels)]
    found = [start**2]
    for level, size in zip(plan.levels, plan.sizes, strict=True):
        found.append(sum(p * x * x for p, x, _ in states))
        after = []
        for p, x, known in states:
            y, m = known[max(key for key in known if key < level)]
            batches = terms.means(size)
            for h, _ in batches:
                v = h * (x - y) + m
                kept = {key: value for key, value in known.items() if key < level} | {level: (x, v)}
                after.append((p / len(batches), x - eta * v, kept))
        states = after
    return [*found, sum(p * x * x for p, x, _ in states)]
