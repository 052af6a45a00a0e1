"""Claimed complexities, as data: the IFO calls to ‖∇f‖² ≤ ε as powers of n and 1/ε, and the line that claims them.

"l." is a line of the paper's source. All constants (L, the gap to the minimum, the variance) are 1 in a claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ClaimedPowers:
    """A claimed number of IFO calls: the least, or the sum, of terms n^p·ε^(−q)."""

    text: str
    source: str
    terms: tuple[tuple[float, float], ...]
    """(p, q) of every term."""
    adds: bool = False
    """Whether the terms are added; else the least counts."""

    def calls(self, n: float, eps: float) -> float:
        """The claimed calls with all constants 1."""
        values = [math.pow(n, p) * math.pow(eps, -q) for p, q in self.terms]
        return sum(values) if self.adds else min(values)


RATES = {
    "gd": ClaimedPowers("n/ε", "Table 1, l.109", ((1, 1),)),
    "sgd": ClaimedPowers("ε^−2", "Table 1, l.110", ((0, 2),)),
    "svrg": ClaimedPowers("n + n^⅔/ε", "Table 1, l.111", ((1, 0), (2 / 3, 1)), adds=True),
    "scsg": ClaimedPowers("ε^−5/3 ∧ n^⅔/ε", "Table 1, l.112", ((0, 5 / 3), (2 / 3, 1))),
    "vcsg": ClaimedPowers("ε^−3/2 ∧ n^¼/ε", "Table 1, l.113", ((0, 3 / 2), (1 / 4, 1))),
    "spider": ClaimedPowers("ε^−3/2 ∧ n^½/ε", "l.90; Fang et al. 2018", ((0, 3 / 2), (1 / 2, 1))),
    "page": ClaimedPowers("n + n^½/ε", "Li et al. 2021", ((1, 0), (1 / 2, 1)), adds=True),
}
"""The claims by the name of the method in the catalogue. Growing SVRG has none for non-convex sums."""
