"""What the method `auto` leaves open, chosen for a model, its data and its device: the mini-batch and the step rule.

The choice follows from counted operations and not from a stopwatch, so that the same run is chosen again, on resuming
and on another machine of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vcsg.method.catalogue import auto
from vcsg.method.step_rules import Adaptive, StepRule, is_matrix
from vcsg.run.randomness import seeded
from vcsg.training.sources import SampleSource

SIZES = {"cuda": 512, "cpu": 64}
"""The largest mini-batch by kind of device: one that keeps it busy, and no larger."""
STEPS_PER_PASS = 64
"""The fewest steps in a pass over the data that the mini-batch has to leave."""
SHARE = 0.5
"""The orthogonal step may take this many times the operations of the gradient, on a CPU."""
ADAPTIVE = Adaptive(rate=0.002, beta2=0.99)
"""The adaptive step of `auto`, whose second moments are those of the last hundred steps or so."""


@dataclass(frozen=True)
class ChosenOptions:
    """The options of `auto` that were chosen, and why."""

    options: dict[str, Any]
    reason: str


def choose_options(
    model: nn.Module, objective: Callable[[Any], Tensor], train: SampleSource, given: dict[str, Any]
) -> ChosenOptions:
    """Choose b and the step rule, as far as they are not given."""
    device = next(model.parameters()).device.type
    fitting = 2 ** int(math.log2(max(1, train.n // STEPS_PER_PASS)))
    b = given.get("b") or min(SIZES.get(device, SIZES["cpu"]), max(fitting, min(8, train.n)))
    options: dict[str, Any] = {} if given.get("b") else {"b": b}
    words = [f"b = {b} for n = {train.n} on {device}"]
    if "step" not in given:
        step, reason = _step(model, objective, train, b, device)
        options |= {} if step is None else {"step": step}
        words.append(reason)
    if not given.get("weight_decay") and given.get("decoupled_weight_decay") is None:
        words.append(f"a decoupled weight decay of {auto().decay}")
    return ChosenOptions(options, "; ".join(words))


def _step(
    model: nn.Module, objective: Callable[[Any], Tensor], train: SampleSource, b: int, device: str
) -> tuple[StepRule | None, str]:
    """None for the orthogonal step of `auto`, or another one; and the reason."""
    if device != "cpu":
        return None, "the orthogonal step, whose products are cheap on this device"
    gradient = b * gradient_operations(model, objective, train)
    polar = polar_operations([tuple(p.shape) for p in model.parameters() if p.requires_grad])
    ratio = polar / gradient if gradient else math.inf
    told = f"polar factors take {ratio:.2g} times the operations of the gradient"
    if ratio <= SHARE:
        return None, f"the orthogonal step: {told}"
    return ADAPTIVE, f"the adaptive step: {told}"


def gradient_operations(model: nn.Module, objective: Callable[[Any], Tensor], train: SampleSource) -> float:
    """Operations of a gradient per sample, counted on the first two samples."""
    params = [p for p in model.parameters() if p.requires_grad]
    buffers = [b.clone() for b in model.buffers()]
    count = min(2, train.n)
    batch = train.take(0, count)
    with seeded(0, params), torch.enable_grad(), FlopCounterMode(display=False) as counter:
        torch.autograd.grad(objective(batch), params, allow_unused=True)
    with torch.no_grad():
        for b, before in zip(model.buffers(), buffers, strict=True):
            b.copy_(before)
    return float(counter.get_total_flops()) / count


def polar_operations(shapes: list[tuple[int, ...]], iterations: int = 5) -> float:
    """Operations of the polar factors of all matrices: per iteration XXᵀ, A² and one more product with X."""
    total = 0.0
    for shape in filter(is_matrix, shapes):
        small, large = sorted((shape[0], math.prod(shape[1:])))
        total += iterations * (4 * small**2 * large + 2 * small**3)
    return total
