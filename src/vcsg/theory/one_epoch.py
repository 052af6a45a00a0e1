"""The paper's bounds as printed: θ and Θ, the bound of one epoch for each estimator, and the theorem of VCSG.

"l." is a line of the paper's source. These are its formulas, right or wrong: `vcsg.theory.claims` says which is which.
α and β are the powers in η = (γ/L)(b/B)^α and b = B^β (l.183).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LOST = 1.16
"""1/0.86, what l.680 has for b³/(b³ − …) of l.660; it rests on l.672."""
KEPT = 0.86
"""The least value of `kept` that l.672 promises."""
FIRST = (0.0, 0.25)
"""(α, β) of the first regime (l.242): η = γ/L, b = B^{1/4}."""
SECOND = (0.5, 0.0)
"""(α, β) of the second regime (l.268): η = γ/(L√B), b = 1."""


def curvature_weight(gamma: float, B: float, alpha: float, beta: float, lost: float = LOST) -> float:
    """c in θ = 2(1−λ) − c(1−λ)² (l.190): 2γB^{αβ−α} + 2B^{β−1} + 1.16."""
    return 2 * gamma * B ** (alpha * beta - alpha) + 2 * B ** (beta - 1) + lost


def theta(lam: float, gamma: float, B: float, alpha: float, beta: float, lost: float = LOST) -> float:
    """θ of Alg 2, the weighted "unbiased" estimator (l.190)."""
    return 2 * (1 - lam) - curvature_weight(gamma, B, alpha, beta, lost) * (1 - lam) ** 2


def big_theta(lam: float, gamma: float, B: float, alpha: float, beta: float, L: float, lost: float = LOST) -> float:
    """Θ of Alg 3, the biased estimator (l.212): θ with the term 4LB^{2α−2} of the bias, which has a unit."""
    return theta(lam, gamma, B, alpha, beta, lost) + 4 * L * B ** (2 * alpha - 2) * (1 - lam) ** 2


def kept(lam: float, gamma: float, B: float, b: float, alpha: float) -> float:
    """What l.671 leaves of b³, as a share; the proof needs it positive, and l.672 says at least 0.86."""
    spread = gamma**2 * b ** (2 * alpha - 2) * B ** (1 - 2 * alpha)
    return 1 - (1 - lam) ** 2 * (spread + gamma**3 * b ** (3 * alpha - 3) * B ** (2 - 3 * alpha))


def epochs_sum(sizes: Sequence[tuple[float, float]], alpha: float) -> float:
    """Σ b_j^{α−1}·B_j^{1−α} over the epochs (B_j, b_j), by which the first term of every bound is divided."""
    return math.fsum(b ** (alpha - 1) * B ** (1 - alpha) for B, b in sizes)


def weighted_bound(
    lam: float,
    gamma: float,
    L: float,
    gap: float,
    variance: float,
    n: int,
    B: float,
    T: float,
    alpha: float,
    beta: float,
) -> float:
    """The bound of E‖∇f‖² for Alg 2 after T epochs with anchors of B samples (l.186)."""
    divisor = theta(lam, gamma, B, alpha, beta)
    return _bound(divisor, 2 * lam**4, gamma, L, gap, variance, n, B, T, alpha, beta)


def biased_bound(
    lam: float,
    gamma: float,
    L: float,
    gap: float,
    variance: float,
    n: int,
    B: float,
    T: float,
    alpha: float,
    beta: float,
) -> float:
    """The bound of E‖∇f‖² for Alg 3 after T epochs with anchors of B samples (l.208)."""
    divisor = big_theta(lam, gamma, B, alpha, beta, L)
    return _bound(divisor, 2 * (1 - lam) ** 2, gamma, L, gap, variance, n, B, T, alpha, beta)


def _bound(
    divisor: float,
    noise: float,
    gamma: float,
    L: float,
    gap: float,
    variance: float,
    n: int,
    B: float,
    T: float,
    alpha: float,
    beta: float,
) -> float:
    """(2L/γ)Δ/(θΣ) + noise·I(B<n)·S*/(θB^{1−2α}); infinite where θ is not positive, as it then says nothing."""
    if divisor <= 0:
        return math.inf
    epochs = T * B ** ((1 - alpha) * (1 - beta))
    return (2 * L / gamma * gap / epochs + (B < n) * noise * variance / B ** (1 - 2 * alpha)) / divisor


def theorem_first(gamma: float, L: float, gap: float, variance: float, n: int, B: float, T: float) -> float:
    """VCSG's theorem in the first regime (l.323): 15.7(L/γ)Δ/ΣB^{3/4} + 0.17·I(B<n)·S*/B."""
    return 15.7 * L / gamma * gap / (T * B**0.75) + (B < n) * 0.17 * variance / B


def theorem_second(gamma: float, L: float, gap: float, variance: float, B: float, T: float) -> float:
    """VCSG's theorem in the second regime (l.329): 5.3(L/γ)Δ/ΣB^{1/2} + 0.75·S*."""
    return 5.3 * L / gamma * gap / (T * B**0.5) + 0.75 * variance
