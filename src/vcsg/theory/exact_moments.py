"""Runs that can be solved exactly: f_i(x) = (x − a_i)²/2, where every estimator is a linear recursion.

∇f_i(x) = x − a_i, so L = 1, S* is the variance of the a_i, ∇f(x) = x with their mean at 0, and ‖∇f‖² = x². The f_i are
smooth and convex and meet every condition of the paper's theorems, so one of these runs is enough to refute a bound.

N is geometric on {0, 1, …} with mean B/b; E r^N = 1/(1 + (1−r)B/b).
"""

from __future__ import annotations

import math

from vcsg.theory.anchor_noise import mean_variance


def mean_power(r: float, B: float, b: float) -> float:
    """E r^N for the geometric N with mean B/b."""
    return 1 / (1 + (1 - r) * B / b)


def weighted_noise(lam: float, variance: float, n: int, b: int) -> float:
    """The variance of Alg 2's v at x = y: (1−2λ)²·S*(n−b)/((n−1)b). It does not depend on the anchor."""
    return (1 - 2 * lam) ** 2 * mean_variance(variance, n, b)


def weighted_floor(lam: float, eta: float, variance: float, n: int, b: int) -> float:
    """lim E x² of Alg 2 with full anchors: η²·noise/(1−r²), r = 1 − η(1−λ); a run that began above stays above."""
    r = 1 - eta * (1 - lam)
    return eta**2 * weighted_noise(lam, variance, n, b) / (1 - r**2)


def biased_epoch(lam: float, eta: float, B: float, b: float = 1) -> tuple[float, float]:
    """An epoch of Alg 3 from x̃: (p, q) in E x̃′² = p·x̃² + q·E‖g − ∇f‖².

    x moves by −η((1−λ)(x − y) + λm) with m = x̃ + (g − ∇f): after N steps x̃′ = x̃ − λ/(1−λ)·(1 − r^N)·m.
    """
    r = 1 - eta * (1 - lam)
    once, twice = mean_power(r, B, b), mean_power(r * r, B, b)
    ratio = lam / (1 - lam)
    moved, spread = ratio * (1 - once), ratio**2 * (1 - 2 * once + twice)
    return 1 - 2 * moved + spread, spread


def biased_floor(lam: float, eta: float, variance: float, n: int, B: float, b: float = 1) -> float:
    """lim E x̃² of Alg 3 with anchors of B samples."""
    shrink, noise = biased_epoch(lam, eta, B, b)
    return noise * mean_variance(variance, n, B) / (1 - shrink) if shrink < 1 else math.inf


def biased_mean(lam: float, eta: float, start: float, B: float, T: int, b: float = 1) -> float:
    """The mean of E‖∇f(x̃_j)‖² over j = 1 … T for Alg 3 with full anchors, from ‖∇f(x̃_0)‖² = `start`."""
    shrink, _ = biased_epoch(lam, eta, B, b)
    return start * shrink * (1 - shrink**T) / (1 - shrink) / T
