"""A list of tensors as one long vector: the parameters of a model, or its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]


def norm2(vector: Tensors) -> Tensor:
    """‖v‖² as a 0-dim float64 tensor; half-precision tensors are measured in float32."""
    half = any(t.dtype in (torch.float16, torch.bfloat16) for t in vector)
    return _gather(torch._foreach_norm(list(vector), 2, torch.float32 if half else None)).square().sum()


def dot(left: Tensors, right: Tensors) -> Tensor:
    """⟨u, v⟩ as a 0-dim float64 tensor."""
    return _gather([(a * b).sum() for a, b in zip(left, right, strict=True)]).sum()


def all_finite(vector: Tensors) -> bool:
    """Whether every entry is finite, read off one sum per tensor (an overflowing sum counts as not finite)."""
    return bool(torch.isfinite(_gather([t.sum() for t in vector]).sum()))


def copy_to(target: Tensors, source: Tensors) -> None:
    torch._foreach_copy_(list(target), list(source))


def _gather(scalars: Tensors) -> Tensor:
    """0-dim tensors, possibly on several devices, as one float64 vector on the first one's device."""
    device = scalars[0].device
    return torch.stack([s if s.device == device else s.to(device) for s in scalars]).double()
