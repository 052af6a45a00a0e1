"""S* and ‖∇f‖² from the gradient of every single sample: the exact reference for what anchors estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vcsg.run.vectors import norm2


@dataclass(frozen=True)
class PerSample:
    """The exact statistics of f at the model's parameters, from the gradient of every single sample."""

    gradient: dict[str, Tensor]
    """∇f, by parameter name."""
    variance: float
    """S* = (1/n) Σ‖∇f_i − ∇f‖²."""
    gradient_norm2: float
    """‖∇f‖²."""


def per_sample(
    model: torch.nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Tensor, Tensor],
    chunk: int = 256,
) -> PerSample:
    """S* and ‖∇f‖² by per-sample gradients (torch.func), two passes over `data`, `chunk` gradients in memory.

    The reference for what an optimizer estimates from anchor chunks. The model must be deterministic: call
    `model.eval()` first where it has dropout or BatchNorm.

    Args:
        model: maps a batch of inputs to outputs.
        loss: maps (outputs, targets) of a batch to their mean loss.
        data: (inputs, targets) with the samples along the first axis.
        chunk: how many samples are differentiated at once.
    """
    pair = isinstance(data, (tuple, list)) and len(data) == 2 and all(isinstance(t, Tensor) for t in data)
    if not pair or not len(data[0]) == len(data[1]) > 0:
        raise TypeError(f"data is a {type(data).__name__}: give (inputs, targets), two tensors of as many samples")
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def sample_loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(torch.func.functional_call(model, values, (x[None],)), y[None])

    gradients = torch.func.vmap(torch.func.grad(sample_loss), in_dims=(None, 0, 0))
    n = len(data[0])
    parts = [slice(i, i + chunk) for i in range(0, n, chunk)]
    mean = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in parameters.items()}
    for part in parts:
        for name, g in gradients(parameters, data[0][part], data[1][part]).items():
            mean[name] += g.double().sum(0) / n
    total = 0.0
    for part in parts:
        for name, g in gradients(parameters, data[0][part], data[1][part]).items():
            total += (g.double() - mean[name]).square().sum().item()
    return PerSample(mean, total / n, norm2(list(mean.values())).item())
