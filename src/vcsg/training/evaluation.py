"""Measurements of a model that leave no trace in its run: mode eval(), and torch's generators put back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vcsg.run.buffers import Buffers
from vcsg.run.randomness import seeded
from vcsg.training.sources import SampleSource
from vcsg.training.task import Fraction, Task, pair, without_gradients

LOOKED_AT = 32
"""How many samples are looked at before a run."""


def means(
    model: nn.Module, source: SampleSource, size: int, measure: Callable[[Any], Mapping[str, float | Fraction]]
) -> dict[str, float]:
    """The means over all samples of the numbers that `measure` returns for a batch, `size` samples at once."""
    sums = dict[str, Fraction]()
    with mode(model, False), seeded(0, model.parameters()):
        for count, batch in source.parts(size):
            for name, value in without_gradients(partial(measure, batch)).items():
                part, whole = value if isinstance(value, Fraction) else (value * count, count)
                before = sums.get(name, Fraction(0.0, 0.0))
                sums[name] = Fraction(before.part + part, before.whole + whole)
    return {name: share.part / share.whole if share.whole else math.nan for name, share in sums.items()}


def gradient_norm2(model: nn.Module, source: SampleSource, size: int, objective: Callable[[Any], Tensor]) -> float:
    """‖∇f‖² of the mean objective over all samples, summed in float64; the parameters' `grad` is left as it is."""
    params = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p, dtype=torch.float64) for p in params]
    with torch.enable_grad(), mode(model, False), seeded(0, params):
        for count, batch in source.parts(size):
            found = torch.autograd.grad(objective(batch), params, allow_unused=True)
            for t, g in zip(total, found, strict=True):
                if g is not None:
                    t.add_(g, alpha=count / source.n)
    return sum(float(t.square().sum()) for t in total)


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put the model in mode train() or eval() for the block, and every module back in its own mode after it."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, before in modes:
            module.training = before


def some_outputs(task: Task, source: SampleSource) -> tuple[Any, Any]:
    """What the model returns for some samples, and their targets."""
    inputs, targets = pair(source.some(LOOKED_AT))
    with seeded(0, list(task.model.parameters())):
        return task.outputs(inputs), targets


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """The model in mode train(), as its loss has it; its buffers are copies for the while."""
    buffers = Buffers(model)
    with buffers.pointed_at(buffers.copies()), mode(model, True):
        yield


@contextmanager
def unless_refused(model: nn.Module) -> Iterator[None]:
    """The model begins a run without gradients; an error in the block leaves it as it was.

    Gradients, buffers and the memory of the parameters are put back, so that a call that is refused has not moved the
    model to another device or laid it out in another way.
    """
    before = [
        (module._parameters, name, p, p.data, p.grad)
        for module in model.modules()
        for name, p in module._parameters.items()
        if p is not None and not is_lazy(p)
    ]
    model.zero_grad()  # what an earlier loop left would pass for gradients to be accumulated
    try:
        with Buffers(model).kept():
            yield
    except BaseException:
        for held, name, p, data, gradient in before:
            held[name] = p  # some devices have other parameters
            p.data, p.grad = data, gradient
        raise
