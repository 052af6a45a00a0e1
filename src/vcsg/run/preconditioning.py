"""P(v) of the step rules on tensors: second moments, and polar factors of matrices by Newton–Schulz iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vcsg.method.step_rules import Adaptive, Orthogonal, is_matrix

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic of Jordan et al. 2024: steep at 0, and within [0.7, 1.2] on (0, 1] after a few iterations."""


@dataclass(frozen=True)
class Correction:
    """What makes up for the start of running means at 0: 1/(1 − βᵗ) of the first and of the second moment."""

    first: float | Tensor
    second: float | Tensor


def correction(step: int, memory: float, beta2: float) -> Correction:
    """The corrections at step t, from 1, of a direction that remembers `memory` of itself."""
    first = 1 / (1 - memory**step) if 0 < memory < 1 else 1.0
    return Correction(first, 1 / (1 - beta2**step))


def precondition(
    rule: Adaptive | Orthogonal, v: list[Tensor], added: list[Tensor], second: list[Tensor], correct: Correction
) -> list[Tensor]:
    """P(v), as new tensors; `second` takes in the square of `added`, the gradient of this step."""
    if isinstance(rule, Adaptive):
        return adapted(rule, v, added, second, correct)
    matrices = [k for k, t in enumerate(v) if is_matrix(tuple(t.shape))]
    found = dict(zip(matrices, polar_factors([v[k] for k in matrices], rule.iterations), strict=True))
    rest = [k for k in range(len(v)) if k not in found]
    if rest:
        own = adapted(rule, [v[k] for k in rest], [added[k] for k in rest], [second[k] for k in rest], correct)
        torch._foreach_mul_(own, rule.share)
        found |= zip(rest, own, strict=True)
    return [found[k] for k in range(len(v))]


def adapted(
    rule: Adaptive | Orthogonal, v: list[Tensor], added: list[Tensor], second: list[Tensor], correct: Correction
) -> list[Tensor]:
    """v̂ / (√ŝ + eps), with s ← β₂s + (1−β₂)·added² first."""
    torch._foreach_mul_(second, rule.beta2)
    torch._foreach_addcmul_(second, added, added, 1 - rule.beta2)
    size = torch._foreach_mul(second, correct.second)
    torch._foreach_sqrt_(size)
    torch._foreach_add_(size, rule.eps)
    found = list(torch._foreach_div(v, size))
    torch._foreach_mul_(found, correct.first)
    return found


def polar_factors(matrices: Sequence[Tensor], iterations: int = 5) -> list[Tensor]:
    """√max(1, rows/columns) · UWᵀ of every matrix UΣWᵀ, nearly; those of one shape together."""
    found: list[Tensor | None] = [None] * len(matrices)
    for shape in dict.fromkeys(_flat(m) for m in matrices):
        same = [k for k, m in enumerate(matrices) if _flat(m) == shape]
        stack = torch.stack([matrices[k].reshape(shape) for k in same])
        factors = newton_schulz(stack, iterations).mul_(math.sqrt(max(1.0, shape[0] / shape[1])))
        for k, factor in zip(same, factors, strict=True):
            found[k] = factor.reshape(matrices[k].shape).to(matrices[k].dtype)
    return [t for t in found if t is not None]


def _flat(matrix: Tensor) -> tuple[int, int]:
    return matrix.shape[0], math.prod(matrix.shape[1:])


def newton_schulz(stack: Tensor, iterations: int) -> Tensor:
    """UWᵀ of every matrix of a stack, nearly. In bfloat16 on a GPU, where products of it are fast.

    The iteration X ← aX + (bA + cA²)X, A = XXᵀ, raises all singular values towards 1. It is taken on the side of the
    smaller dimension.
    """
    wide = stack.shape[-2] <= stack.shape[-1]
    x = stack if wide else stack.mT
    x = x.to(torch.bfloat16) if x.is_cuda and x.dtype == torch.float32 else x
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + torch.finfo(x.dtype).tiny)
    a, b, c = COEFFICIENTS
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
