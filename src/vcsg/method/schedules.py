"""How large the anchor, how large the mini-batch, how long the step: pure functions of what an epoch knows.

A schedule maps `Facts` (j, n, the variance S* just measured) to a `Plan` (B, b, step factor, regime). The step
size is η = lr · (γ/L) · factor; γ belongs to the method and L to the run, so a schedule never sees either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Facts:
    """The facts that are known when epoch j is planned."""

    epoch: int
    """j, from 1."""
    n: int
    variance: float
    """S*, measured at this epoch's anchor; NaN without an anchor or with an anchor of one sample."""
    first_variance: float
    """S* at the first anchor of the run."""
    anchor: int | None = None
    """The size of this epoch's anchor; None where it is not known."""
    recent: tuple[float, ...] = ()
    """S* at the last anchors, at most `RECENT` of them, this epoch's last; empty where they are not known."""
    settled_variance: float = math.nan
    """S* at the second anchor of the run, the first that is not at the starting point; NaN before it."""


RECENT = 8
"""How many of the last S* a schedule is told."""


@dataclass(frozen=True)
class Plan:
    """The sizes of one epoch."""

    B: int
    """The batch size in the formulas for η and, without `loop_B`, the number of inner steps."""
    b: int
    """The mini-batch size."""
    factor: float
    """The factor of a plain step size: η = lr · γ/L · factor."""
    next_B: int
    """The size of the next anchor."""
    regime: str = ""
    eps: float | None = None
    """The target ε, where the schedule has one."""
    levels: tuple[int, ...] = ()
    """The level r that each inner step renews, for nested anchors; it starts from the anchor of level r − 1."""
    sizes: tuple[int, ...] = ()
    """The mini-batch size of each inner step, for nested anchors."""
    loop_B: int | None = None
    """The batch size in the formula for the number of inner steps, where it is not `B`."""

    @property
    def steps_B(self) -> int:
        """The batch size B in the mean B/b of the number of inner steps."""
        return self.B if self.loop_B is None else self.loop_B


class Schedule(Protocol):
    """Plans every epoch. One that names regimes in its plans lists them in an attribute `regimes`."""

    def first(self, n: int) -> int:
        """The size of the first anchor; raises ValueError if the schedule's sizes do not fit n."""
        ...

    def __call__(self, facts: Facts) -> Plan: ...


class BatchSize(Protocol):
    """How B_j is chosen."""

    def first(self, n: int) -> int:
        """The size of the first anchor."""
        ...

    def __call__(self, facts: Facts) -> tuple[int, int]:
        """B_j, and the size of the next anchor."""
        ...


@dataclass(frozen=True)
class Given:
    """B_j = B, or all n samples when B is None."""

    B: int | None = None

    def first(self, n: int) -> int:
        return n if self.B is None else fitting("B", self.B, n)

    def __call__(self, facts: Facts) -> tuple[int, int]:
        B = self.first(facts.n)
        return B, B


@dataclass(frozen=True)
class Growing:
    """B_j = min(⌈j^power⌉, n)."""

    power: float = 1.5

    def first(self, n: int) -> int:
        return 1

    def __call__(self, facts: Facts) -> tuple[int, int]:
        return self._at(facts.epoch, facts.n), self._at(facts.epoch + 1, facts.n)

    def _at(self, epoch: int, n: int) -> int:
        return min(math.ceil(math.pow(epoch, self.power)), n)


@dataclass(frozen=True)
class Bounded:
    """B_j = K·S*/ε within [B_min, n], measured at the anchor of epoch j; the first anchor takes all n."""

    eps: float
    K: float
    B_min: int

    def first(self, n: int) -> int:
        return n

    def __call__(self, facts: Facts) -> tuple[int, int]:
        variance = facts.variance if facts.variance > 0 else 0.0
        B = clamped(self.K * variance / self.eps, self.B_min, facts.n)
        return B, B


@dataclass(frozen=True)
class PowerLaw:
    """The paper's general form (l.183): η_j = (γ/L)(b_j/B_j)^α with b_j given, or else min(B_j^β, b_max)."""

    batch: BatchSize
    b: int | None = None
    beta: float = 0.25
    b_max: int | None = None
    alpha: float = 0.5

    def first(self, n: int) -> int:
        if self.b is not None:
            fitting("b", self.b, n)
        return self.batch.first(n)

    def __call__(self, facts: Facts) -> Plan:
        B, next_B = self.batch(facts)
        b = self.b or min(root(B, self.beta), self.b_max or B)
        return Plan(B=B, b=b, factor=(b / B) ** self.alpha, next_B=next_B)


@dataclass(frozen=True)
class PaperBaseline:
    """The paper's own settings of SGD and SVRG (l.377): b = n^{1/4} and η_j = 1/(3L√n)/j^decay."""

    decay: float = 0.0

    def first(self, n: int) -> int:
        return n

    def __call__(self, facts: Facts) -> Plan:
        n = facts.n
        return Plan(B=n, b=root(n, 0.25), factor=n**-0.5 / facts.epoch**self.decay, next_B=n)


@dataclass(frozen=True)
class VarianceControlled:
    """VCSG's schedule (Alg 4, l.288): B_j = min(K·S*/ε, n·S*/(S* + 0.14·√n·σ·ρ^{2j})), within [B_min, n].

    The term that attains the minimum is the regime ("first" or "second"); the paper tests the float equality
    B_j = S*/ε (l.296), which is never meant. In the first, b = B^{1/4} and η = γ/L; in the second, b = 1 and
    η = γ/(L√B). With `first_epoch`, epoch 1 is that of the experiments (l.377, regime "start"): B = n,
    b = n^{1/4}, η = γ/(L√n).

    ε = None takes ε = K·S*/(n/100) at the first anchor, so that the next anchor has n/100 samples (B_min
    permitting); σ = None takes the first S*, which makes the second term dimensionless.

    A floor `b_min` above the printed b makes an epoch of fewer steps, by that ratio. In the second regime and the start
    the step is then longer by the same ratio, so that an epoch goes as far as the printed one, but not beyond the γ/L
    of the first regime.

    The defaults of the fields are the printed algorithm; `bounded`, `memory`, `settle` and `measure_again` are not.
    """

    eps: float | None = None
    K: float = 12.0
    sigma: float | None = None
    rho: float = 0.9
    B_min: int | None = 32
    """The smallest B_j; None is n/10, and at least 32."""
    b_min: int | None = 1
    """The smallest b; None is 16, or n where n is smaller."""
    first_epoch: bool = True
    bounded: bool = False
    """Whether the number of inner steps is drawn with min(B_j, the anchor in hand) in place of B_j."""
    memory: int = 1
    """S* in the formula for B_j is the largest of that many last anchors."""
    settle: bool = False
    """Whether ε = None and σ = None take the S* of the second anchor from there on, not that of the starting point."""
    measure_again: bool = False
    """Whether an L that was measured is measured once more, after a pass, and replaced where it was far larger."""

    @property
    def regimes(self) -> tuple[str, ...]:
        """The regimes that plans can name."""
        return ("start", "first", "second") if self.first_epoch else ("first", "second")

    def first(self, n: int) -> int:
        if self.b_min is not None:
            fitting("b_min", self.b_min, n)
        return n

    def __call__(self, facts: Facts) -> Plan:
        n, (bound, regime), eps = facts.n, self.bound(facts), self.target(facts)
        if self.first_epoch and facts.epoch == 1:
            B, b, factor, regime = n, root(n, 0.25), n**-0.5, "start"
        elif regime == "first":
            B, b, factor = bound, root(bound, 0.25), 1.0
        else:
            B, b, factor = bound, 1, bound**-0.5
        floor = min(16, n) if self.b_min is None else self.b_min
        if b < floor:
            factor, b = min(1.0, factor * floor / b), floor
        loop_B = min(B, facts.anchor or B) if self.bounded else None
        return Plan(B, b, factor, next_B=bound, regime=regime, eps=eps, loop_B=loop_B)

    def bound(self, facts: Facts) -> tuple[int, str]:
        """B_j by the formula, and the regime."""
        n, variance = facts.n, max((facts.variance, *facts.recent[-self.memory :]))
        low = max(32, math.ceil(n / 10)) if self.B_min is None else self.B_min
        if not variance > 0:  # none, or not known
            return clamped(0.0, low, n), "first"
        sigma = self.reference(facts) if self.sigma is None else self.sigma
        eps = self.target(facts)
        target = self.K * variance / eps if eps else math.inf
        decaying = 0.14 * math.sqrt(n) * sigma * self.rho ** (2 * facts.epoch)
        full = n * variance / (variance + decaying)
        return clamped(min(target, full), low, n), "first" if target <= full else "second"

    def target(self, facts: Facts) -> float:
        """ε."""
        return self.K * self.reference(facts) * 100 / facts.n if self.eps is None else self.eps

    def reference(self, facts: Facts) -> float:
        """The S* that ε and σ are relative to, where they are not given."""
        return facts.settled_variance if self.settle and facts.settled_variance > 0 else facts.first_variance


@dataclass(frozen=True)
class GrowingAnchor:
    """B_j = B_1·growth^{j−1}·S*/S*_1 within [B_1, n], b given, a constant step.

    The anchor's mean has the error S*/B. Each epoch is to lower it by the factor `growth`; where the variance S* falls
    by itself, B need not grow for it. An anchor of more than half the samples takes them all.
    """

    first_B: int = 1024
    growth: float = 4.0
    b: int = 8

    def first(self, n: int) -> int:
        return min(self.first_B, n)

    def __call__(self, facts: Facts) -> Plan:
        ratio = facts.variance / facts.first_variance if facts.first_variance > 0 else 1.0
        B, next_B = (self._at(facts.epoch + ahead, facts.n, ratio) for ahead in (0, 1))
        return Plan(B=B, b=min(self.b, facts.n), factor=1.0, next_B=next_B)

    def _at(self, epoch: int, n: int, ratio: float) -> int:
        # Beyond 2^1000 the power has no float, and B is n long before.
        size = self.first_B * self.growth ** min(epoch - 1, 500 / math.log2(self.growth)) * ratio
        return n if size > n / 2 else clamped(size, self.first_B, n)


@dataclass(frozen=True)
class NestedLoops:
    """SNVRG's loops and batches (Zhou et al. 2018): K = ⌊log₂ log₂ n⌋ levels below the full anchor.

    T_1 = 2, T_l = 2^{2^{l−2}}, and an epoch has T = ΠT_l steps. Step t renews the highest level r whose loop begins
    anew at t, from B_r = 6^{K−r+1}(Π_{l≥r} T_l)² samples, at most n. Where n < 16 there is one level, and it is SVRG.
    """

    def first(self, n: int) -> int:
        return n

    def __call__(self, facts: Facts) -> Plan:
        loops = self.loops(facts.n)
        K = len(loops)
        batches = [min(facts.n, 6 ** (K - r) * math.prod(loops[r:]) ** 2) for r in range(K)]
        levels = tuple(self._level(t, loops) for t in range(1, math.prod(loops)))
        sizes = tuple(batches[r - 1] for r in levels)
        return Plan(facts.n, batches[-1], 1.0, next_B=facts.n, levels=levels, sizes=sizes)

    @staticmethod
    def loops(n: int) -> list[int]:
        K = max(1, math.floor(math.log2(max(2.0, math.log2(max(n, 2))))))
        return [2, *(2**2 ** (level - 2) for level in range(2, K + 1))]

    @staticmethod
    def _level(t: int, loops: list[int]) -> int:
        """The smallest r for which t is a multiple of Π_{l>r} T_l."""
        return next(r for r in range(len(loops) + 1) if t % math.prod(loops[r:]) == 0)


def root(size: int, power: float) -> int:
    """max(1, round(size^power))."""
    return max(1, round(math.pow(size, power)))


def clamped(size: float, low: int, n: int) -> int:
    """⌈size⌉ within [min(low, n), n]."""
    return max(min(low, n), math.ceil(min(size, n)))


def fitting(name: str, size: int, n: int) -> int:
    """`size` if it fits n samples."""
    if not 1 <= size <= n:
        raise ValueError(f"{name} = {size} does not fit n = {n} samples: choose {name} between 1 and {n}")
    return size
