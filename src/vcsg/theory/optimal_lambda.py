"""λ* as a true minimiser: the λ at which each term of the printed bounds is least, at a given (γ, B).

With u = 1−λ both bounds divide by θ = 2u − cu², so that every minimiser has a closed form. The paper's values,
(15−√97)/16 and 5/8, come out at B = 1 with the term 1.16 left out, and nowhere else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vcsg.theory.one_epoch import FIRST, LOST, SECOND, curvature_weight


@dataclass(frozen=True)
class OptimalLambda:
    """The λ in [0, 1) that minimises a term of a bound, and the coefficient of that term there."""

    lam: float
    value: float
    """The least value. Where `lam` is 0 it is approached as λ → 0: the paper asks for λ > 0."""


def first_regime(gamma: float, B: float, lost: float = LOST) -> OptimalLambda:
    """The minimiser of 2λ⁴/θ, the coefficient of S* in the bound of Alg 2 (l.186), at α = 0 and β = ¼ (l.249).

    Where θ is positive at λ = 0 (c < 2; for γ = 1/3 from B = 27 on) the minimum is approached as λ → 0. Otherwise the
    derivative vanishes where 2cλ² − (6c−6)λ + 4c − 8 = 0, and the smaller root is the minimiser.
    """
    c = curvature_weight(gamma, B, FIRST, lost)
    if c <= 2:
        return OptimalLambda(0.0, 0.0)
    middle = 6 * c - 6
    lam = (middle - math.sqrt(middle**2 - 8 * c * (4 * c - 8))) / (4 * c)
    return OptimalLambda(lam, 2 * lam**4 / (2 * (1 - lam) - c * (1 - lam) ** 2))


def second_regime(gamma: float, B: float, L: float = 0.0, lost: float = LOST) -> OptimalLambda:
    """The minimiser of 2/Θ, the coefficient of the gap in the bound of Alg 3 (l.208), at α = ½ and β = 0 (l.274).

    Θ = 2u − cu² is largest at u = 1/c, where it is 1/c; for c ≤ 1 it grows up to u = 1, that is λ → 0. The term 4L/B
    of l.212 counts where L is given.
    """
    c = curvature_weight(gamma, B, SECOND, lost) - 4 * L / B
    return OptimalLambda(1 - 1 / c, 2 * c) if c > 1 else OptimalLambda(0.0, 2 / (2 - c))
