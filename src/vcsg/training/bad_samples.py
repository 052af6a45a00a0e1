"""Which samples of a batch have a loss or a gradient that is not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vcsg.run.buffers import Buffers
from vcsg.run.watch import BadSamples
from vcsg.training.sources import SampleSource


def name_samples(
    error: BadSamples, model: nn.Module, objective: Callable[[Any], Tensor], source: SampleSource
) -> BadSamples:
    """The same error with the bad ones among its samples, each evaluated by itself where the model is.

    It stays as it is where that tells nothing: all or none are bad there, or the model takes no single sample, as one
    with BatchNorm in training mode.
    """
    params = [p for p in model.parameters() if p.requires_grad]
    buffers = Buffers(model)
    try:
        with buffers.pointed_at(buffers.copies()):
            bad = [i for i in error.samples if not _sound(objective, params, source.take(i))]
    except (RuntimeError, ValueError):
        return error
    return BadSamples(error.fault, bad) if 0 < len(bad) < max(2, len(error.samples)) else error


def _sound(objective: Callable[[Any], Tensor], params: list[nn.Parameter], batch: Any) -> bool:
    """Whether the loss of a batch and its gradient are finite."""
    with torch.enable_grad():
        loss = objective(batch)
        gradient = torch.autograd.grad(loss, params, allow_unused=True)
    return all(bool(torch.isfinite(t).all()) for t in (loss, *gradient) if t is not None)
