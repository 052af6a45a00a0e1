"""How far the mean gradient of an anchor is from ∇f, and how many samples keep it within a bound (l.251–263)."""

from __future__ import annotations

import math


def mean_variance(variance: float, n: int, B: float) -> float:
    """E‖g − ∇f‖² for the mean g of B gradients drawn without replacement (Lemma A.1, l.396): S*(n−B)/((n−1)B)."""
    return variance * (n - B) / ((n - 1) * B) if n > 1 else 0.0


def printed_batch(lam: float, variance: float, n: int, noise: float) -> float:
    """The printed lower bound of B for Alg 2 (l.254): nS*/(S* + λ²√n·σρ^{2j}), `noise` being σρ^{2j}."""
    return n * variance / (variance + lam**2 * math.sqrt(n) * noise)


def printed_biased_batch(lam: float, variance: float, n: int, noise: float) -> float:
    """The printed lower bound of B for Alg 3 (l.261): as l.254, with (1−λ)², or (3λ²−2λ)² for λ above √½."""
    weight = (1 - lam) ** 2 if lam < math.sqrt(0.5) else (3 * lam**2 - 2 * lam) ** 2
    return n * variance / (variance + weight * math.sqrt(n) * noise)


def solved_batch(lam: float, variance: float, n: int, noise: float) -> float:
    """l.252 solved for B: it has λ^{−2} where l.254 has λ², and √(n−1) where l.254 has √n."""
    return n * variance / (variance + math.sqrt(n - 1) * noise / lam**2)


def least_batch(lam: float, variance: float, n: int, noise: float) -> float:
    """The least B with E‖λ(g − ∇f)‖² ≤ `noise`, by Lemma A.1 alone; it hardly grows with n."""
    return n * variance / (variance + (n - 1) * noise / lam**2)


def biased_error(lam: float, variance: float, gradient: float, n: int, B: float) -> float:
    """E‖e_j‖² for Alg 3, e_j = λg − (1−λ)∇f (l.258): λ²·E‖g − ∇f‖² + (2λ−1)²‖∇f‖². `gradient` is ‖∇f‖²."""
    return lam**2 * mean_variance(variance, n, B) + (2 * lam - 1) ** 2 * gradient


def printed_biased_error(lam: float, variance: float, gradient: float, n: int, B: float) -> float:
    """The paper's bound of the same (l.747): (1−λ)²·I(B<n)·S*/B + (1−2λ)²‖∇f‖²."""
    return (1 - lam) ** 2 * (B < n) * variance / B + (1 - 2 * lam) ** 2 * gradient
