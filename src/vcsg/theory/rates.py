"""Table 1 of the paper (l.109–113): the IFO calls that it claims for five methods, and the lower bound that it quotes.

The rates have no constants. LΔ/ε and S* are put back where the text has them (l.229–234, l.278, l.358), so that a rate
can be evaluated at a problem; the result is an order of magnitude and no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vcsg.theory.setting import Setting

VCSG_SHARE = 0.14
"""(1 − 5/8)², rounded, in the second term of VCSG's batch size (l.288)."""


@dataclass(frozen=True)
class Rate:
    """A row of Table 1.

    Attributes:
        claimed: the row as printed.
        n_power: the power of n where n binds.
        eps_power: the power of 1/ε where ε binds; None where the row has no such branch.
        calls: the row at a problem, with L, Δ and S* put back and no constant.
    """

    claimed: str
    n_power: float
    eps_power: float | None
    calls: Callable[[Setting], float]


def vcsg_batch(setting: Setting) -> float:
    """B of the corollary (l.355), with σρ^{2j} = S*, a constant, as l.361 takes it: S*/ε ∧ n/(1 + 0.14√n)."""
    n = setting.n
    return max(1.0, min(setting.variance / setting.eps, n / (1 + VCSG_SHARE * math.sqrt(n))))


def _scsg(setting: Setting) -> float:
    B = max(1.0, min(setting.variance / setting.eps, setting.n))
    return B + setting.work * math.pow(B, 2 / 3)


def _vcsg(setting: Setting) -> float:
    B = vcsg_batch(setting)
    return B + setting.work * math.sqrt(B)


TABLE_1: Mapping[str, Rate] = {
    "gd": Rate("n/ε", 1.0, None, lambda s: s.n * s.work),
    "sgd": Rate("1/ε²", 0.0, 2.0, lambda s: s.work * max(1.0, s.variance / s.eps)),
    "svrg": Rate("n + n^{2/3}/ε", 2 / 3, None, lambda s: s.n + math.pow(s.n, 2 / 3) * s.work),
    "scsg": Rate("ε^{−5/3} ∧ n^{2/3}/ε", 2 / 3, 5 / 3, _scsg),
    "vcsg": Rate("ε^{−3/2} ∧ n^{1/4}/ε", 1 / 4, 3 / 2, _vcsg),
}
"""Table 1 by the names of the methods here."""


def claimed_rate(n: float, eps: float) -> float:
    """VCSG's claimed rate (l.364): ε^{−3/2} ∧ n^{1/4}/ε."""
    return min(math.pow(eps, -1.5), math.pow(n, 0.25) / eps)


def lower_bound(n: float, eps: float) -> float:
    """The lower bound that l.90 quotes for smoothness on average over the samples: ε^{−3/2} ∧ n^{1/2}/ε."""
    return min(math.pow(eps, -1.5), math.sqrt(n) / eps)
