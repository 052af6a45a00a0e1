"""The running statistics of BatchNorm, measured at the point where the model is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vcsg.run.randomness import seeded
from vcsg.training.sources import SampleSource
from vcsg.training.task import without_gradients

SAMPLES, BATCH = 8192, 512
"""The most samples that statistics are measured from, and how many at once."""


def measure_statistics(model: nn.Module, objective: Callable[[Any], Tensor], train: SampleSource) -> None:
    """Replace running means and variances by those of training samples at the model's parameters.

    A point that is a mean of others has statistics of its own, which no step has seen. The model is in mode train().
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats and m.training]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean over batches
        seen = 0
        with seeded(0, model.parameters()):
            for count, batch in train.parts(BATCH):
                if count == 1 and seen:
                    break  # the last one, alone: it has no variance
                without_gradients(partial(objective, batch))
                seen += count
                if seen >= SAMPLES:
                    break
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
