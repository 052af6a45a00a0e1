"""The one formula behind every method, and the rules that choose its weights.

    v = a·∇f_I(x) + b·∇f_I(y) + c·m

x is the current point, y the anchor point, m the anchor's mean gradient and I a mini-batch, the same at x and y.
A method's estimator is a `Rule`: `Constant` weights, `Tested` weights that depend on the two mini-batch gradients of
the step (l.300 of the paper), or `Fading` ones that change with the epoch. SVRG is `Constant(Weights(1, -1, 1))`,
SGD `Constant(Weights(1, 0, 0))`. Rules are data; `vcsg.run.estimator` forms v from tensors by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Weights(NamedTuple):
    """The weights (a, b, c) of the gradient here, the gradient at the anchor, and the anchor's mean."""

    now: float
    anchor: float
    mean: float

    @property
    def unbiased(self) -> bool:
        """With a full anchor E v = a∇f(x) + (b + c)∇f(y), so a = 1 and b + c = 0 make v unbiased."""
        return self.now == 1 and self.anchor + self.mean == 0

    @property
    def vanishing(self) -> bool:
        """At x = y = x* with a full anchor v = (a + b)∇f_I(x*): without noise exactly when a + b = 0."""
        return self.now + self.anchor == 0

    def __str__(self) -> str:
        return f"({', '.join(f'{w:.4g}' for w in self)})".replace("-", "−")


def weighted(lam: float) -> Weights:
    """Alg 2 (l.176), (1−λ, −λ, λ). The paper calls it unbiased; E v = (1−λ)∇f(x) with a full anchor."""
    return Weights(1 - lam, -lam, lam)


def biased(lam: float) -> Weights:
    """Alg 3 (l.198), (1−λ, −(1−λ), λ)."""
    return Weights(1 - lam, -(1 - lam), lam)


class Rule(Protocol):
    """Chooses the weights of one inner step.

    A rule of another kind than those below forms v by itself, with a method `combine(now, anchor, mean)` that leaves v
    in `now`; see `vcsg.run.estimator`.
    """

    @property
    def choices(self) -> tuple[Weights, ...]:
        """Every triple of weights the rule can choose."""
        ...

    def at(self, epoch: int) -> Rule:
        """The rule of epoch j; most are the same in all."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same weights at every step."""

    weights: Weights

    @property
    def choices(self) -> tuple[Weights, ...]:
        return (self.weights,)

    def at(self, epoch: int) -> Constant:
        return self


TESTS: Mapping[str, str] = {
    "norm": "‖∇f_I(x)‖ < ‖∇f_I(y)‖: the reading of l.300 that makes it a statement about two numbers",
    "lemma": "‖∇f_I(y)‖² ≥ 2(1−λ)⟨∇f_I(x), ∇f_I(y)⟩: when ‖(1−λ)x − λy‖ ≤ (1−λ)‖x − y‖ really holds, for λ < ½",
    "elementwise": "∇f_I(x) < ∇f_I(y) coordinate by coordinate: l.300 to the letter",
}
"""The tests of the two mini-batch gradients of a step, by name; λ is the weight of the mean where the test holds."""


@dataclass(frozen=True)
class Tested:
    """`passed` where the test named `test` holds for the two mini-batch gradients, `failed` elsewhere."""

    test: str
    passed: Weights
    failed: Weights

    def __post_init__(self) -> None:
        if self.test not in TESTS:
            raise ValueError(f"test = {self.test!r}: choose one of {', '.join(TESTS)}")

    @property
    def choices(self) -> tuple[Weights, ...]:
        return (self.passed, self.failed)

    def at(self, epoch: int) -> Tested:
        return self


@dataclass(frozen=True)
class Fading:
    """(1, −α, α) with α falling linearly from `alpha` in epoch 1 to 0 after `epochs` of them."""

    alpha: float
    epochs: int

    @property
    def choices(self) -> tuple[Weights, ...]:
        return self.at(1).choices

    def at(self, epoch: int) -> Constant:
        alpha = self.alpha * max(0.0, 1 - (epoch - 1) / self.epochs)
        return Constant(Weights(1, -alpha, alpha))


def is_standard(rule: Rule) -> bool:
    """Whether v follows from the rule's data alone, so that every executor can form it; a subclass may do otherwise."""
    return type(rule) is Constant or type(rule) is Tested
