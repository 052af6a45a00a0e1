"""The one formula behind every method, and the rules that choose its weights.

    v = a·∇f_I(x) + b·∇f_I(y) + c·m

x is the current point, y the anchor point, m the anchor's mean gradient and I a mini-batch, the same at x and y.
A method's estimator is a `Rule`: `Constant` weights, `Tested` weights that depend on the two mini-batch gradients of
the step (l.300 of the paper), or `Fading` ones that change with the epoch. SVRG is `Constant(Weights(1, -1, 1))`,
SGD `Constant(Weights(1, 0, 0))`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from vcsg.run.vectors import Tensors, add, add_to, dot, lerp, norm2, norms, scale


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
    """Chooses the weights of one inner step and forms v."""

    @property
    def choices(self) -> tuple[Weights, ...]:
        """Every triple of weights the rule can choose."""
        ...

    def at(self, epoch: int) -> Rule:
        """The rule of epoch j; most are the same in all."""
        ...

    def combine(self, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
        """now ← a·now + b·anchor + c·mean, in place; empty `anchor` or `mean` where their weight is 0.

        `anchor` is used up.
        """
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

    def combine(self, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
        a, b, c = self.weights
        if b and c and 0 < a < 1 and a + c == 1:
            # (1 − c)·now + c·(mean + b/c·anchor) takes one pass less, and all rules of VCSG are of this form.
            add_to(anchor, mean, b / c)
            lerp(now, anchor, c)
            return
        if a != 1:
            scale(now, a)
        if b:
            add(now, anchor, b)
        if c:
            add(now, mean, c)


def _norm(now: Tensors, anchor: Tensors, lam: float) -> Tensor:
    """‖∇f_I(x)‖ < ‖∇f_I(y)‖: the reading of l.300 that makes it a statement about two numbers."""
    return torch.lt(*norms(now, anchor))


def _lemma(now: Tensors, anchor: Tensors, lam: float) -> Tensor:
    """‖∇f_I(y)‖² ≥ 2(1−λ)⟨∇f_I(x), ∇f_I(y)⟩: when ‖(1−λ)x − λy‖ ≤ (1−λ)‖x − y‖ really holds, for λ < ½."""
    return norm2(anchor) >= 2 * (1 - lam) * dot(now, anchor)


def _elementwise(now: Tensors, anchor: Tensors, lam: float) -> Iterator[Tensor]:
    """∇f_I(x) < ∇f_I(y) coordinate by coordinate: l.300 to the letter."""
    return (x < y for x, y in zip(now, anchor, strict=True))


Test = Callable[[Tensors, Tensors, float], Tensor | Iterator[Tensor]]
"""(∇f_I(x), ∇f_I(y), λ) → one truth value for the whole vector, or one per coordinate, tensor by tensor."""

TESTS: Mapping[str, Test] = {"norm": _norm, "lemma": _lemma, "elementwise": _elementwise}


@dataclass(frozen=True)
class Tested:
    """`passed` where the test named `test` holds for the two mini-batch gradients, `failed` elsewhere."""

    test: str
    passed: Weights
    failed: Weights

    @property
    def choices(self) -> tuple[Weights, ...]:
        return (self.passed, self.failed)

    def at(self, epoch: int) -> Tested:
        return self

    def combine(self, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
        outcome = TESTS[self.test](now, anchor, self.passed.mean)
        if isinstance(outcome, Tensor):
            Constant(self.passed if outcome else self.failed).combine(now, anchor, mean)
            return
        now, anchor, mean = _pieces(now), _pieces(anchor), _pieces(mean)
        outcome = TESTS[self.test](now, anchor, self.passed.mean)
        for x, y, m, holds in zip(now, anchor, mean, outcome, strict=True):
            otherwise = x.clone()
            Constant(self.failed).combine([otherwise], [y.clone()], [m])
            Constant(self.passed).combine([x], [y], [m])
            x.copy_(torch.where(holds, x, otherwise))


def _pieces(vector: Tensors, size: int = 2**13) -> list[Tensor]:
    """Views of some rows of the tensors at a time, about `size` numbers each, so that temporaries are small."""
    pieces: list[Tensor] = []
    for t in vector:
        row = t.numel() // max(1, len(t)) if t.dim() else 0
        pieces += torch.split(t, max(1, size // max(1, row))) if t.dim() else [t]
    return pieces


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

    def combine(self, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
        self.at(1).combine(now, anchor, mean)
