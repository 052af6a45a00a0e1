"""The paper's bounds as printed: θ and Θ, the bound of one epoch for each estimator, and the theorem of VCSG.

"l." is a line of the paper's source. These are its formulas, right or wrong: `vcsg.theory.claims` says which is which.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from vcsg.theory.setting import Setting

LOST = 1.16
"""1/0.86, what l.680 has for b³/(b³ − …) of l.660; it rests on l.672."""
KEPT = 0.86
"""The least value of `kept` that l.672 promises."""


class Powers(NamedTuple):
    """α and β in η = (γ/L)(b/B)^α and b = B^β (l.183)."""

    alpha: float
    beta: float


FIRST = Powers(0.0, 0.25)
"""The first regime (l.242): η = γ/L, b = B^{1/4}."""
SECOND = Powers(0.5, 0.0)
"""The second regime (l.268): η = γ/(L√B), b = 1."""


def curvature_weight(gamma: float, B: float, powers: Powers, lost: float = LOST) -> float:
    """c in θ = 2(1−λ) − c(1−λ)² (l.190): 2γB^{αβ−α} + 2B^{β−1} + 1.16."""
    alpha, beta = powers
    return 2 * gamma * math.pow(B, alpha * beta - alpha) + 2 * math.pow(B, beta - 1) + lost


def theta(lam: float, gamma: float, B: float, powers: Powers, lost: float = LOST) -> float:
    """θ of Alg 2, the weighted "unbiased" estimator (l.190)."""
    return 2 * (1 - lam) - curvature_weight(gamma, B, powers, lost) * (1 - lam) ** 2


def big_theta(lam: float, gamma: float, B: float, powers: Powers, L: float, lost: float = LOST) -> float:
    """Θ of Alg 3, the biased estimator (l.212): θ and a term 4LB^{2α−2}(1−λ)² that has the unit of L."""
    return theta(lam, gamma, B, powers, lost) + 4 * L * math.pow(B, 2 * powers.alpha - 2) * (1 - lam) ** 2


def kept(lam: float, gamma: float, B: float, b: float, alpha: float) -> float:
    """What l.671 leaves of b³, as a share; the proof needs it positive, and l.672 says at least 0.86."""
    once = gamma**2 * math.pow(b, 2 * alpha - 2) * math.pow(B, 1 - 2 * alpha)
    twice = gamma**3 * math.pow(b, 3 * alpha - 3) * math.pow(B, 2 - 3 * alpha)
    return 1 - (1 - lam) ** 2 * (once + twice)


def weighted_bound(setting: Setting, lam: float, gamma: float, B: float, T: float, powers: Powers = FIRST) -> float:
    """The bound of E‖∇f‖² for Alg 2 after T epochs with anchors of B samples (l.186)."""
    return _bound(setting, theta(lam, gamma, B, powers), 2 * lam**4, gamma, B, T, powers)


def biased_bound(setting: Setting, lam: float, gamma: float, B: float, T: float, powers: Powers = SECOND) -> float:
    """The bound of E‖∇f‖² for Alg 3 after T epochs with anchors of B samples (l.208)."""
    return _bound(setting, big_theta(lam, gamma, B, powers, setting.L), 2 * (1 - lam) ** 2, gamma, B, T, powers)


def _bound(s: Setting, divisor: float, noise: float, gamma: float, B: float, T: float, powers: Powers) -> float:
    """(2L/γ)Δ/(θΣ) + noise·I(B<n)·S*/(θB^{1−2α}); infinite where θ is not positive, as it then says nothing."""
    if divisor <= 0:
        return math.inf
    alpha, beta = powers
    epochs = T * math.pow(B, (1 - alpha) * (1 - beta))
    return (2 * s.L / gamma * s.gap / epochs + (B < s.n) * noise * s.variance / math.pow(B, 1 - 2 * alpha)) / divisor


def theorem_first(setting: Setting, gamma: float, B: float, T: float) -> float:
    """VCSG's theorem in the first regime (l.323): 15.7(L/γ)Δ/ΣB^{3/4} + 0.17·I(B<n)·S*/B."""
    shrinking = 15.7 * setting.L / gamma * setting.gap / (T * math.pow(B, 0.75))
    return shrinking + (B < setting.n) * 0.17 * setting.variance / B


def theorem_second(setting: Setting, gamma: float, B: float, T: float) -> float:
    """VCSG's theorem in the second regime (l.329): 5.3(L/γ)Δ/ΣB^{1/2} + 0.75·S*."""
    return 5.3 * setting.L / gamma * setting.gap / (T * math.sqrt(B)) + 0.75 * setting.variance
