"""A list of tensors as one long vector: the parameters of a model, or its gradient.

The operations in place go tensor by tensor or, as torch's own optimizers do by default, in one call for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
HALF = (torch.float16, torch.bfloat16)

_FOREACH = ContextVar("foreach", default=True)


@contextmanager
def foreach(on: bool) -> Iterator[None]:
    """A context in which the operations below use torch's multi-tensor calls, or do without."""
    token = _FOREACH.set(on)
    try:
        yield
    finally:
        _FOREACH.reset(token)


def copy_to(target: Tensors, source: Tensors) -> None:
    """target ← source."""
    if _FOREACH.get():
        torch._foreach_copy_(list(target), list(source))
    else:
        for t, s in zip(target, source, strict=True):
            t.copy_(s)


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


def norm2(vector: Tensors) -> Tensor:
    """‖v‖² as a 0-dim float64 tensor; half-precision tensors are measured in float32."""
    half = any(t.dtype in HALF for t in vector)
    dtype = torch.float32 if half else None
    if _FOREACH.get():
        norms: Tensors = torch._foreach_norm(list(vector), 2, dtype)
    else:
        norms = [torch.linalg.vector_norm(t, dtype=dtype) for t in vector]
    return _gather(norms).square().sum()


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
