"""A problem as the theory sees it: five numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A finite sum to minimise, and how far.

    Attributes:
        n: the number of terms of the sum.
        eps: the target ε for ‖∇f‖².
        L: the smoothness constant of every term.
        variance: S*, the variance of the gradients, at the points where a run goes.
        gap: Δ = f(x_0) − inf f.
    """

    n: int
    eps: float
    L: float
    variance: float
    gap: float

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n = {self.n!r}: give the number of samples, a whole number, at least 1")
        for name, meaning in (
            ("eps", "the target ε for ‖∇f‖²"),
            ("L", "the smoothness constant"),
            ("gap", "f at the start less its infimum"),
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)!r}: give {meaning}, a finite number above 0")
        if not 0 <= self.variance < math.inf:
            raise ValueError(
                f"variance = {self.variance!r}: give the variance S* of the gradients, a finite number, at least 0"
            )

    @property
    def work(self) -> float:
        """LΔ/ε, the number of gradient steps that any of these methods needs, but for a constant."""
        return self.L * self.gap / self.eps
