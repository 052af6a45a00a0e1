"""What tests with a small network share: the ordinary closure of a classifier, and its parameters as one vector."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def net_closure(model: torch.nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    def evaluate() -> Tensor:
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return evaluate


def vector(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])
