"""A list of tensors as one long vector: the parameters of a model, or its gradient.

The operations in place go tensor by tensor or, as torch's own optimizers do by default, in one call for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
HALF = (torch.float16, torch.bfloat16)

_FOREACH = ContextVar("foreach", default=True)


class foreach:
    """A context in which the operations below use torch's multi-tensor calls, or do without."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def __enter__(self) -> None:
        self._token = _FOREACH.set(self._on)

    def __exit__(self, *_: object) -> None:
        _FOREACH.reset(self._token)


def uses_foreach() -> bool:
    """Whether operations use torch's multi-tensor calls here."""
    return _FOREACH.get()


def copy_to(target: Tensors, source: Tensors) -> None:
    """target ← source."""
    if _FOREACH.get():
        torch._foreach_copy_(list(target), list(source))
    else:
        for t, s in zip(target, source, strict=True):
            t.copy_(s)


def clear(target: Tensors) -> None:
    """target ← 0, whatever it holds: 0 times what is not finite would not be 0."""
    if _FOREACH.get():
        torch._foreach_zero_(list(target))
    else:
        for t in target:
            t.zero_()


def scale(target: Tensors, factor: float) -> None:
    """target ← factor·target."""
    if _FOREACH.get():
        torch._foreach_mul_(list(target), factor)
    else:
        for t in target:
            t.mul_(factor)


def add(target: Tensors, other: Tensors, factor: float = 1.0) -> None:
    """target ← target + factor·other."""
    if _FOREACH.get():
        torch._foreach_add_(list(target), list(other), alpha=factor)
    else:
        for t, o in zip(target, other, strict=True):
            t.add_(o, alpha=factor)


def add_to(target: Tensors, other: Tensors, factor: float = 1.0) -> None:
    """target ← other + factor·target."""
    for t, o in zip(target, other, strict=True):
        torch.add(o, t, alpha=factor, out=t)


def lerp(target: Tensors, other: Tensors, share: float) -> None:
    """target ← (1 − share)·target + share·other."""
    if _FOREACH.get():
        torch._foreach_lerp_(list(target), list(other), share)
    else:
        for t, o in zip(target, other, strict=True):
            t.lerp_(o, share)


def norms(*vectors: Tensors) -> Tensor:
    """The norm of each vector, of as many tensors, in float64; half-precision tensors are measured in float32."""
    tensors = [t for vector in vectors for t in vector]
    dtype = torch.float32 if any(t.dtype in HALF for t in tensors) else None
    if _FOREACH.get():
        parts: Tensors = torch._foreach_norm(tensors, 2, dtype)
    else:
        parts = [torch.linalg.vector_norm(t, dtype=dtype) for t in tensors]
    found: Tensor = torch.linalg.vector_norm(_gather(parts).view(len(vectors), -1), dim=1)
    return found


def norm(vector: Tensors) -> Tensor:
    """‖v‖ as a 0-dim tensor."""
    return norms(vector)[0]


def norm2(vector: Tensors) -> Tensor:
    """‖v‖² as a 0-dim tensor."""
    return norm(vector).square()


def dot(left: Tensors, right: Tensors) -> Tensor:
    """⟨u, v⟩ as a 0-dim float64 tensor."""
    return _gather([torch.dot(a.reshape(-1), b.reshape(-1)) for a, b in zip(left, right, strict=True)]).sum()


def all_finite(vector: Tensors) -> bool:
    """Whether every entry is finite, read off one sum per tensor (an overflowing sum counts as not finite)."""
    return bool(torch.isfinite(_gather([t.sum() for t in vector]).sum()))


def _gather(scalars: Tensors) -> Tensor:
    """0-dim tensors, possibly on several devices, as one float64 vector on the first one's device."""
    device = scalars[0].device
    return torch.stack([s if s.device == device else s.to(device) for s in scalars]).double()
