"""P(v) of the step rules on tensors: second moments, and polar factors of matrices by Newton–Schulz iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vcsg.method.step_rules import Adaptive, Orthogonal, is_matrix

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The quintic of Jordan et al. 2024: steep at 0, and within [0.7, 1.2] on (0, 1] after a few iterations."""

SMALL = 2**25
"""rows² · columns of a matrix that may be filled up with zeros to be iterated with others."""


@dataclass(frozen=True)
class Correction:
    """The factors 1/(1 − βᵗ) that make up for running means that began at 0, of the first and the second moment."""

    first: float | Tensor
    second: float | Tensor


def correction(step: int, memory: float, beta2: float) -> Correction:
    """The corrections at step t, from 1, of a direction that remembers `memory` of itself."""
    first = 1 / (1 - memory**step) if 0 < memory < 1 else 1.0
    return Correction(first, 1 / (1 - beta2**step))


def precondition(
    rule: Adaptive | Orthogonal, v: list[Tensor], added: list[Tensor], second: list[Tensor], correct: Correction
) -> list[Tensor]:
    """P(v), as new tensors. `second` takes in the square of `added`, the gradient of this step.

    Both are of those parameters alone that are stepped adaptively.
    """
    if isinstance(rule, Adaptive):
        return adapted(rule, v, added, second, correct)
    matrices = [k for k, t in enumerate(v) if is_matrix(tuple(t.shape))]
    found = dict(zip(matrices, polar_factors([v[k] for k in matrices], rule.iterations), strict=True))
    rest = [k for k in range(len(v)) if k not in found]
    if rest:
        own = adapted(rule, [v[k] for k in rest], added, second, correct)
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
    """√max(1, rows/columns) · UWᵀ of every matrix UΣWᵀ, nearly.

    Those of one shape are iterated together. On a GPU small ones of different shapes are too, filled up with zeros,
    which stay zeros: there a product costs its launch.
    """
    flat = [as_matrix(m) for m in matrices]
    found = [torch.empty_like(m) for m in matrices]
    for (rows, columns), places in grouped([m.shape for m in flat], mixed=bool(flat) and flat[0].is_cuda).items():
        stack = flat[places[0]].new_zeros(len(places), rows, columns)
        for k, part in zip(places, stack, strict=True):
            _lying(part, flat[k]).copy_(flat[k])
        for k, factor in zip(places, newton_schulz(stack, iterations), strict=True):
            torch.mul(_lying(factor, flat[k]), polar_size(*flat[k].shape), out=as_matrix(found[k]))
    return found


def polar_size(rows: int, columns: int) -> float:
    """√max(1, rows/columns), the factor of UWᵀ in the orthogonal step."""
    return math.sqrt(max(1.0, rows / columns))


def as_matrix(tensor: Tensor) -> Tensor:
    """A parameter as a matrix of its first axis, a view of its numbers in the order in which they lie in memory.

    The polar factor does not depend on the order of columns, and a convolution may be laid out with its channels last.
    """
    if tensor.dim() > 2 and not tensor.is_contiguous():
        rest = sorted(range(1, tensor.dim()), key=tensor.stride, reverse=True)
        tensor = tensor.permute(0, *rest)
    return tensor.reshape(len(tensor), -1)


def _lying(part: Tensor, like: Tensor) -> Tensor:
    """The corner of a matrix that is wider than high where another one lies, turned if it is higher than wide."""
    rows, columns = like.shape
    return part[:rows, :columns] if rows <= columns else part[:columns, :rows].mT


def grouped(shapes: Sequence[Sequence[int]], mixed: bool) -> dict[tuple[int, int], list[int]]:
    """The places of matrices that are iterated together, by the (smaller, larger) dimensions that all of them fit."""
    groups: dict[tuple[int, int], list[int]] = {}
    for k, shape in enumerate(shapes):
        groups.setdefault((min(shape), max(shape)), []).append(k)
    small = [shape for shape in groups if mixed and shape[0] ** 2 * shape[1] <= SMALL]
    if len(small) > 1:
        places = [k for shape in small for k in groups.pop(shape)]
        groups[max(r for r, _ in small), max(c for _, c in small)] = places
    return groups


def newton_schulz(stack: Tensor, iterations: int) -> Tensor:
    """UWᵀ of every matrix UΣWᵀ of a stack, nearly; they have no more rows than columns.

    X ← aX + (bA + cA²)X with A = XXᵀ raises all singular values towards 1. In bfloat16 on a GPU, where products of it
    are fast.
    """
    x = stack.to(torch.bfloat16) if stack.is_cuda and stack.dtype == torch.float32 else stack
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    return iterate(x / norm.clamp_min(least_norm(x.dtype)), iterations)


def least_norm(dtype: torch.dtype) -> float:
    """The least norm that is known: squares of smaller entries vanish, as where the gradient of a dead layer decays."""
    return 8 * math.sqrt(torch.finfo(dtype).tiny)


def iterate(x: Tensor, iterations: int) -> Tensor:
    """The same of matrices that have the norm 1."""
    a, b, c = COEFFICIENTS
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
