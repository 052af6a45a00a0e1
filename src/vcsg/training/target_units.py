"""The last layer of a regression, in the units of its targets.

Steps of a fixed length reach outputs of about 1 soon, and outputs of 300,000 late. Where a model ends with a layer
whose bias is added to its outputs, that layer alone decides their units: its steps can be as many times longer as the
targets are larger, and its bias can begin at their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from vcsg.method.step_rules import Adaptive, Orthogonal, StepRule
from vcsg.run.randomness import seeded
from vcsg.training.evaluation import untouched
from vcsg.training.quantities import alike, heeded, in_units_of, is_quantity, losses_of, moments, present, size
from vcsg.training.sources import SampleSource
from vcsg.training.task import Task, pair

LOOKED_AT = 64
"""How many samples are looked at, spread over all."""
LAYERS = 4
"""How many of the layers that were evaluated last are asked whether they are the last one."""
ACCURACY = 0.02
"""What the outputs may differ in by how much a bias adds to them; more than bfloat16 rounds."""
LEAST = 128
"""The least change of a bias that is tried, in units of what outputs are rounded to."""
WORSE = 2.0
"""How many times the loss of outputs at the mean of the targets may be that of outputs without the last layer."""
LEAST_EPS = 1e-18
"""The least eps of a step: where squares of gradients vanish in float32, it keeps steps from growing without bound."""


@dataclass(frozen=True)
class TargetUnits:
    """How the last layer of a model comes to the units of the targets."""

    layer: nn.Module
    gain: float
    """What 1 more in its bias adds to the outputs."""
    scale: float
    """The spread of the targets in units of the gain, as a power of two."""
    mean: Tensor
    """The mean of the targets, one number for each of the bias; less what the model returns without the layer."""
    far: bool
    """Whether the mean of the targets is further from 0 than they are spread; then the bias does not decay."""
    spread: float
    """The standard deviation of the same about their means."""
    shrunk: float
    """What the weights of the layer are multiplied by at the start of a run: 1, or less where the targets are small."""
    missing: Tensor
    """What the outputs of the model then lack on the mean to that of the targets."""

    @property
    def reason(self) -> str:
        """What is done, in words; empty where the targets have such units already."""
        words = [] if self.scale == 1 else [f"steps of the last layer {self.scale:.4g} times as long"]
        words += ["no decay of its bias"] if self.far else []
        return f"targets of {size(self.mean):.2g} ± {self.spread:.2g}: {', '.join(words)}" if words else ""

    def groups(self, model: nn.Module, decay: float) -> list[dict[str, Any]]:
        """The parameters in groups, the last layer in those of its own. `decay` is the decoupled one of all others.

        A decay shrinks the last layer by what it shrinks the others, whatever the length of its steps.
        """
        bias, own = _bias(self.layer), list(self.layer.parameters(recurse=False))
        others = [p for p in model.parameters() if all(p is not q for q in own)]
        steps = {"lr": self.scale, "decoupled_weight_decay": decay / self.scale}
        found: list[dict[str, Any]] = [
            {"params": others},
            {"params": [p for p in own if p is not bias], **steps},
            {"params": [bias], **steps, **({"decoupled_weight_decay": 0.0} if self.far else {})},
        ]
        return [group for group in found if group["params"]]

    def step(self, rule: StepRule | None) -> dict[str, StepRule]:
        """The option of a step rule whose eps is as small beside the gradients as where targets are about 1; or none.

        By the weights of the last layer and by the errors, those of a squared loss go with the square of the targets.
        """
        if self.scale >= 1 or not isinstance(rule, (Adaptive, Orthogonal)):
            return {}
        return {"step": replace(rule, eps=max(LEAST_EPS, rule.eps * self.scale**2))}

    def begin(self) -> None:
        """Put the mean of the outputs at that of the targets, where it is further away than these are spread."""
        weight, bias = _weight(self.layer), _bias(self.layer)
        with torch.no_grad():
            weight *= self.shrunk
            if size(self.missing) > self.spread:
                bias += (self.missing / self.gain).reshape(bias.shape).to(bias.dtype)


def target_units(task: Task, train: SampleSource) -> TargetUnits | None:
    """How the last layer comes to the units of the targets; None without such a layer, or for no regression."""
    if task.loss is None:
        return None
    inputs, targets = pair(train.some(LOOKED_AT))
    if not isinstance(targets, Tensor) or not is_quantity(targets) or not 0 < size(targets) < math.inf:
        return None
    with untouched(task.model):
        outputs, layers = _evaluated(task, inputs)
        wanted = alike(targets, outputs) if isinstance(outputs, Tensor) else None
        if wanted is None:
            return None
        seen = LEAST * torch.finfo(outputs.dtype).eps * size(outputs) if outputs.is_floating_point() else 0.0
        delta = 2.0 ** round(math.log2(max(size(targets), seen)))
        gains = ((layer, _gain(task, inputs, outputs, layer, delta)) for layer in layers)
        layer, gain = next(((layer, gain) for layer, gain in gains if gain is not None), (None, math.nan))
        if layer is None or not in_units_of(task, targets, wanted.to(outputs.dtype)):
            return None
        without = _shrunk_outputs(task, inputs, layer, 0.0, 0.0)
        others = _rows(without, layer)
        mean, spread = moments(heeded(task, targets, wanted.to(outputs.dtype), _rows(wanted, layer) - others))
        ends = wanted.to(outputs.dtype), without, _moved(without, mean, layer)
        losses = losses_of(task, targets, *map(present, ends))
        if losses and losses[2] - losses[0] > WORSE * (losses[1] - losses[0]):
            return None  # as of relative errors of targets of many sizes, for which their mean is no good constant
        scale = 2.0 ** round(math.log2(spread / gain)) if spread else 1.0
        shrunk = min(1.0, scale) if _is_untrained(outputs, wanted, layer) else 1.0
        begun = _rows(_shrunk_outputs(task, inputs, layer, shrunk), layer)
        missing = mean - moments(begun - others)[0]
    return TargetUnits(layer, gain, scale, mean, size(mean) > spread, spread, shrunk, missing)


def _moved(outputs: Tensor, by: Tensor, layer: nn.Module) -> Tensor:
    """The outputs with so much added to all of them, one number for each of the bias of the layer."""
    axis = _axis(outputs, layer)
    return (outputs.movedim(axis, -1) + by).movedim(-1, axis).to(outputs.dtype)


def _is_untrained(outputs: Tensor, targets: Tensor, layer: nn.Module) -> bool:
    """Whether the outputs are no better than a constant."""
    rows = _rows(targets, layer)
    return moments(rows - _rows(outputs, layer))[1] >= moments(rows)[1]


def _shrunk_outputs(task: Task, inputs: Any, layer: nn.Module, factor: float, of_bias: float = 1.0) -> Tensor:
    """The outputs with the weights of the layer, and its bias, multiplied by a factor."""
    weight, bias = _weight(layer), _bias(layer)
    with _put_back(weight), _put_back(bias):
        weight *= factor
        bias *= of_bias
        outputs: Tensor = _outputs(task, inputs)
    return outputs


def _evaluated(task: Task, inputs: Any) -> tuple[Any, list[nn.Module]]:
    """The outputs, and the layers that could be the last, the latest first: those with weight and bias of their own."""
    called: list[nn.Module] = []
    hooks = [
        module.register_forward_hook(lambda module, _, __: called.append(module))
        for module in task.model.modules()
        if _is_layer(module)
    ]
    try:
        outputs = _outputs(task, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    owners = [id(p) for module in task.model.modules() for p in module.parameters(recurse=False)]
    alone = [m for m in called if all(owners.count(id(p)) == 1 for p in m.parameters(recurse=False))]
    return outputs, list(dict.fromkeys(reversed(alone)))[:LAYERS]


def _is_layer(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):  # it takes no hooks
        return False
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    return weight is not None and bias is not None and weight.requires_grad and bias.requires_grad


def _outputs(task: Task, inputs: Any) -> Any:
    with seeded(0, list(task.model.parameters())):
        return task.outputs(inputs)


def _gain(task: Task, inputs: Any, outputs: Tensor, layer: nn.Module, delta: float) -> float | None:
    """What 1 more in a bias adds to every output; None where it is not the same for all."""
    bias, parts = _bias(layer), []
    if not outputs.is_floating_point() or bias.numel() not in (1, _numbers(outputs, layer)):
        return None
    for change in (delta, -delta):
        with _put_back(bias):
            bias += change
            parts.append((_outputs(task, inputs).double() - outputs.double()) / change)
    added = torch.stack(parts)
    gain = float(added.mean())
    return gain if gain > 0 and float((added - gain).abs().max()) <= ACCURACY * gain else None


def _rows(values: Tensor, layer: nn.Module) -> Tensor:
    """The values as rows of as many numbers as the bias has."""
    return values.double().movedim(_axis(values, layer), -1).reshape(-1, _bias(layer).numel())


def _axis(values: Tensor, layer: nn.Module) -> int:
    """The axis of outputs that the bias of the layer is along, where it has more than one number."""
    return 1 if isinstance(layer, (_ConvNd, _NormBase, nn.GroupNorm)) and values.dim() > 2 else -1


def _numbers(outputs: Tensor, layer: nn.Module) -> int:
    """How many numbers of a sample lie along that axis."""
    return outputs.shape[_axis(outputs, layer)] if outputs.dim() > 1 else 1


def _weight(layer: nn.Module) -> Tensor:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight


def _bias(layer: nn.Module) -> Tensor:
    bias = layer.bias
    assert isinstance(bias, Tensor)
    return bias


@contextmanager
def _put_back(values: Tensor) -> Iterator[None]:
    """Without gradients; what is done to the values is undone."""
    before = values.clone()
    with torch.no_grad():
        try:
            yield
        finally:
            values.copy_(before)
