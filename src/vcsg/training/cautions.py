"""What `fit` tells of before a run that it can make, and that may not be what was meant."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from vcsg.run.randomness import seeded
from vcsg.training.evaluation import LOOKED_AT, mode, some_outputs, untouched
from vcsg.training.quantities import (
    alike,
    extreme,
    grows_with_distance,
    heeded,
    in_units_of,
    is_quantity,
    moments,
    size,
)
from vcsg.training.sources import SampleSource, TensorSource
from vcsg.training.task import Task, pair, without_gradients

LARGE = 100.0
"""How many times what the model returns targets may be before a warning, and one spread another."""
TINY = 0.03
"""How small the largest of all inputs may be before a warning."""
VANISHING = 1e-8
"""The spread of targets below which the layers before the last one cannot follow a squared loss in float32."""
OFF = 8.0
"""How far from 0, in units of 1 and of their spread over the samples, inputs may be before a warning."""
COLUMNS = 8
"""How many targets a sample may have for their spreads to be compared; pixels and coefficients are more."""
CONSTANT = 1e-5
"""The spread of a target, beside its size, that may be the rounding of a constant."""
PAIR = 2
"""How many samples a loss with gradients is looked at with: few, for all that they need is kept."""

logger = logging.getLogger("vcsg")


def tell_of_other_parameters(task: Task, train: SampleSource) -> None:
    """Warn where the loss depends on parameters that are none of the model's: they stay as they are.

    Other tensors with a gradient are left alone: a loss may make them itself, as for derivatives by the inputs.
    """
    batch = train.take(0, min(PAIR, train.n))
    own = {id(p) for p in task.model.parameters()}
    try:
        with torch.enable_grad(), untouched(task.model), seeded(0, list(task.model.parameters())):
            others = [p for p in _parameters_of(task.value(batch)) if id(p) not in own]
    except Exception:  # it may be a loss of batches of one size alone
        return
    if others:
        logger.warning(
            "the loss depends on parameters that are not the model's, of the shapes %s: they are not trained. Put them "
            "into the model, as in one module of both that returns the loss (with loss=None and objective=); or set "
            "their requires_grad to False where they are to stay as they are",
            ", ".join(str(tuple(p.shape)) for p in others[:3]) + (", …" if len(others) > 3 else ""),
        )


def _parameters_of(value: Tensor) -> list[nn.Parameter]:
    """The parameters that a value has a gradient for."""
    found: dict[int, nn.Parameter] = {}
    seen, left = set[Any](), [value.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, nn.Parameter):
            found[id(variable)] = variable
        left += [function for function, _ in node.next_functions]
    return list(found.values())


def tell_of_other_units(task: Task, train: SampleSource) -> None:
    """Warn where the targets of a regression are far larger or far smaller than what the model returns.

    Steps that are as long whatever the gradient is take as many more of them to get there, or miss it by more.
    """
    if task.loss is None:
        return
    # In mode eval(), for a loss may be one of what the model returns in training alone.
    with untouched(task.model), mode(task.model, False):
        outputs, targets = some_outputs(task, train)
    if not isinstance(targets, Tensor):
        return
    parts = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    returned = max((size(t) for t in parts if isinstance(t, Tensor)), default=0.0)
    wanted = _size_wanted(task, outputs, targets)
    if LARGE * max(1.0, returned) < wanted < math.inf:
        logger.warning(
            "the targets are about %.2g and the model returns about %.2g before its first step: if it is to return "
            "such numbers, auto takes many steps of its fixed length to get there. Then standardise the targets, or "
            "give lr= for longer steps",
            wanted,
            returned,
        )
    elif 0 < LARGE * wanted < returned:
        logger.warning(
            "the targets are about %.2g and the model returns about %.2g before its first step: if it is to return "
            "such numbers, the steps of auto, of a fixed length, are longer than these are large. Then standardise the "
            "targets, or give lr= for shorter steps",
            wanted,
            returned,
        )


def tell_of_uneven_targets(task: Task, train: SampleSource) -> None:
    """Warn where a sample has several targets, and some are spread over the samples far more than others."""
    if task.loss is None:
        return
    with untouched(task.model):
        outputs, targets = some_outputs(task, train)
    equal = alike(targets, outputs) if isinstance(outputs, Tensor) and isinstance(targets, Tensor) else None
    if equal is None or not is_quantity(targets) or not 1 < equal[0].numel() <= COLUMNS:
        return
    equal = equal.to(outputs.dtype)
    if not in_units_of(task, targets, equal):
        return
    rows, returned = (t.double().reshape(len(equal), -1) for t in (equal, outputs))
    if 0 <= float(returned.min()) and float(returned.max()) <= 1:
        return  # shares of a whole, which have these units whatever they are spread by
    found = [(moments(own)[1], size(own), size(other)) for own, other in zip(rows.T, returned.T, strict=True)]
    varied = [(spread, other) for spread, own, other in found if spread > CONSTANT * own]
    if len(varied) < 2:
        return
    (least, narrow), (most, wide) = min(varied), max(varied)
    uneven = wide / narrow if narrow > 0 else 1.0  # as of a model that multiplies what it returns
    if most > LARGE * least * max(uneven, 1.0):
        logger.warning(
            "the targets of a sample are spread over the samples by %.2g to %.2g, and the steps of auto have one "
            "length for all of them: those of the least spread are learned badly. Standardise each: less its mean, "
            "divided by its standard deviation",
            least,
            most,
        )


def tell_of_vanishing_targets(spread: float) -> None:
    """Warn where squares of the errors of a regression are so small that gradients cannot be told from 0."""
    if 0 < spread < VANISHING:
        logger.warning(
            "the targets are spread by %.2g alone: with a loss that grows with the square of the distance, gradients "
            "of all layers but the last can hardly be told from 0. Give the targets in other units, times %.0e",
            spread,
            1 / spread,
        )


def tell_of_extreme_targets(task: Task, train: SampleSource) -> None:
    """Warn where a squared loss follows a few targets that are extremely far from all others.

    All targets are looked at where they are a tensor, and else some.
    """
    if task.loss is None:
        return
    with untouched(task.model):
        outputs, targets = some_outputs(task, train)
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or not is_quantity(targets):
        return
    equal = alike(targets, outputs)
    if equal is None:
        return
    equal = equal.to(outputs.dtype)
    if not in_units_of(task, targets, equal) or grows_with_distance(task, targets, equal):
        return
    found = extreme(pair(train.take(0, train.n))[1] if isinstance(train, TensorSource) else targets)
    if found is not None:
        far, low, high = found
        logger.warning(
            "a target is %.2g, where half of all lie from %.2g to %.2g (so far off: %d). A loss that grows with the "
            "square of the distance has next to nothing of the others. Look at it, or give a loss for data with "
            "outliers, such as torch.nn.functional.smooth_l1_loss",
            float(far[far.abs().argmax()]),
            low,
            high,
            far.numel(),
        )


def tell_of_inputs(task: Task, train: SampleSource) -> None:
    """Warn where the first layer is given numbers far from 0, beside their spread over the samples or altogether.

    A step of a fixed length then moves all outputs by as many times more, and the layers that follow may be left
    without a gradient: the model returns a constant from then on. It does so, too, where all numbers are tiny, for
    it takes as many steps more until they count beside the biases.
    """
    found = _first_inputs(task, train)
    if found is None:
        return
    layer, rows = found
    mean, spread = moments(rows)
    tiny = 0 < float(rows.abs().max()) < TINY
    if size(rows) > LARGE or size(mean) > max(OFF, OFF * spread) or tiny:
        logger.warning(
            "the first layer, %s, is given inputs of %.2g ± %.2g: the steps of auto are made for inputs of 0 ± 1, and "
            "may lead to a model that returns a constant. Standardise the inputs: less their mean, divided by their "
            "standard deviation",
            layer,
            size(mean),
            spread,
        )


def _first_inputs(task: Task, train: SampleSource) -> tuple[str, Tensor] | None:
    """The first layer with weights that is evaluated, by its class, and what it is given for some samples."""
    found: list[tuple[str, Tensor]] = []

    def look(layer: nn.Module, given: tuple[Any, ...]) -> None:
        if not found and given and isinstance(given[0], Tensor):
            found.append((type(layer).__name__, given[0].detach().double()))

    layers = [layer for layer in task.model.modules() if isinstance(layer, (nn.Linear, _ConvNd, nn.RNNBase))]
    hooks = [layer.register_forward_pre_hook(look) for layer in layers]
    batch = train.some(LOOKED_AT)
    try:
        with untouched(task.model), seeded(0, list(task.model.parameters())):
            without_gradients(lambda: task.value(batch))
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def _size_wanted(task: Task, outputs: Any, targets: Tensor) -> float:
    """The size of what outputs are to come to: 0 where that is logarithms of the targets, or classes."""
    equal = alike(targets, outputs) if isinstance(outputs, Tensor) and is_quantity(targets) else None
    if equal is None or not isinstance(outputs, Tensor):
        return size(targets) if targets.is_floating_point() else 0.0
    equal = equal.to(outputs.dtype)
    if not in_units_of(task, targets, equal):
        return 0.0
    return size(heeded(task, targets, equal, equal.double().reshape(len(equal), -1)))
