"""v from the gradients of a step, by the rule of a method: the torch side of `vcsg.method.weights`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from vcsg.method.weights import Constant, Rule, Tested, Weights
from vcsg.run.vectors import Tensors, add, add_to, dot, lerp, norm2, norms, scale


def combine(rule: Rule, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
    """now ← a·now + b·anchor + c·mean, in place, with the weights that the rule chooses.

    `anchor` and `mean` are empty where their weight is 0; `anchor` is used up. A rule that is neither `Constant` nor
    `Tested` does it by its own method `combine`.
    """
    if type(rule) is Constant:
        weigh(rule.weights, now, anchor, mean)
    elif type(rule) is Tested:
        _combine_tested(rule, now, anchor, mean)
    else:
        rule.combine(now, anchor, mean)  # type: ignore[attr-defined]


def weigh(weights: Weights, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
    """now ← a·now + b·anchor + c·mean, in place; `anchor` is used up."""
    a, b, c = weights
    if b and c and mean and 0 < a < 1 and a + c == 1:
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


def _combine_tested(rule: Tested, now: Tensors, anchor: Tensors, mean: Tensors) -> None:
    test = _TESTS[rule.test]
    outcome = test(now, anchor, rule.passed.mean)
    if isinstance(outcome, Tensor):
        weigh(rule.passed if outcome else rule.failed, now, anchor, mean)
        return
    now, anchor, mean = _pieces(now), _pieces(anchor), _pieces(mean)
    for x, y, m, holds in zip(now, anchor, mean, test(now, anchor, rule.passed.mean), strict=True):
        otherwise = x.clone()
        weigh(rule.failed, [otherwise], [y.clone()], [m])
        weigh(rule.passed, [x], [y], [m])
        x.copy_(torch.where(holds, x, otherwise))


def _norm(now: Tensors, anchor: Tensors, lam: float) -> Tensor:
    return torch.lt(*norms(now, anchor))


def _lemma(now: Tensors, anchor: Tensors, lam: float) -> Tensor:
    return norm2(anchor) >= 2 * (1 - lam) * dot(now, anchor)


def _elementwise(now: Tensors, anchor: Tensors, lam: float) -> Iterator[Tensor]:
    return (x < y for x, y in zip(now, anchor, strict=True))


_TESTS: Mapping[str, Callable[[Tensors, Tensors, float], Tensor | Iterator[Tensor]]] = {
    "norm": _norm,
    "lemma": _lemma,
    "elementwise": _elementwise,
}
"""(∇f_I(x), ∇f_I(y), λ) → one truth value for the whole vector, or one per coordinate, tensor by tensor."""


def _pieces(vector: Tensors, size: int = 2**13) -> list[Tensor]:
    """Views of some rows of the tensors at a time, about `size` numbers each, so that temporaries are small."""
    pieces: list[Tensor] = []
    for t in vector:
        row = t.numel() // max(1, len(t)) if t.dim() else 0
        pieces += torch.split(t, max(1, size // max(1, row))) if t.dim() else [t]
    return pieces
