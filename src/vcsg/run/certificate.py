"""What can be promised of ‖∇f‖² at the point of an anchor, and how surely.

An anchor of all n samples is exact. A smaller one proves nothing by itself: a few samples that it missed may carry the
gradient. It does where a bound G of every ‖∇f_i‖ is known. Then the mean g of B samples, drawn without replacement, has

    P(‖g − ∇f‖ ≥ 2G·√(2·ln(2/δ)/B)) ≤ δ

(Pinelis 1994, theorem 3.5, for martingales in a Hilbert space with steps of at most 2G/B. Its proof bounds the mean of
a convex function of the sum, which is no larger without replacement than with it: Hoeffding 1963, theorem 4.) A run
looks at many anchors. The look after m gradients has δ_m = δ/(m(m + 1)), and no two looks have the same m, so that all
of them together fail with probability δ at most, however many there are and however a run was continued.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vcsg.run.variance import Anchor


@dataclass(frozen=True)
class Certificate:
    """‖∇f‖² ≤ bound at the point of an anchor."""

    estimate: float
    """‖g‖² of the anchor's samples; ‖∇f‖² itself where it took all of them."""
    bound: float
    """What ‖∇f‖² is at most."""
    confidence: float
    """The probability that no certificate of the run is false; 1 where the anchor took all samples."""
    samples: int
    """The size of the anchor."""


def certify(anchor: Anchor, ifo: int, confidence: float, largest: float | None) -> Certificate | None:
    """The certificate of an anchor that was complete after `ifo` gradients; None where nothing can be promised.

    `largest` is a bound of every ‖∇f_i‖; None where none is known.
    """
    if anchor.whole:
        return Certificate(anchor.g_norm2, anchor.g_norm2, 1.0, anchor.B)
    if largest is None or confidence == 1 or anchor.overlap != 1:  # else samples are not without replacement
        return None
    if anchor.g_norm2 > largest**2 * (1 + 1e-6):
        raise ValueError(
            f"largest_gradient = {largest!r} is false: the mean gradient of an anchor has the norm "
            f"{math.sqrt(anchor.g_norm2):.4g}; give a true bound of every ‖∇f_i‖, or none"
        )
    looks = math.log(2 / (1 - confidence)) + math.log(ifo) + math.log(ifo + 1)
    error = 2 * largest * math.sqrt(2 * looks / anchor.B)
    return Certificate(anchor.g_norm2, (math.sqrt(anchor.g_norm2) + error) ** 2, confidence, anchor.B)
