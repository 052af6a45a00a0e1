"""Targets that are quantities: their size, their form beside that of outputs, and whether a loss has their units."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from vcsg.training.task import Task

FAR, LINEAR, MANY = 8.0, 8.0, 1_000_000
"""How many quartile ranges off a target is far, and the growth of a loss over four times the distance, 4 or 16;
and how many numbers quartiles are taken of."""
EXTREME = 1000.0
"""How many quartile ranges off a target is extreme: a squared loss is then that of such targets, and of no others."""
WIDER = (0.05, 0.95)
"""The quantiles that take the place of quartiles where these are equal, as where most targets are 0. Of other targets
they are about three times as far apart."""


def is_quantity(targets: Tensor) -> bool:
    """Whether the targets may be those of a regression, by their kind of numbers."""
    return not targets.is_complex() and targets.dtype != torch.bool


def size(values: Tensor) -> float:
    """The root of the mean square of the values, without those that are missing: NaN."""
    return float(values.detach().double().square().nanmean().sqrt())


def moments(rows: Tensor) -> tuple[Tensor, float]:
    """The mean of the rows, and how far they are spread about it, without values that are missing."""
    mean = rows.nanmean(0).nan_to_num()
    return mean, size(rows - mean)


def heeded(task: Task, targets: Tensor, equal: Tensor, rows: Tensor) -> Tensor:
    """The rows of targets, far ones brought nearer where the loss grows with the distance alone, as absolute values do.

    A loss is chosen so for its outliers not to count for much, and one in a sample would else be all of its spread.
    """
    if not grows_with_distance(task, targets, equal):
        return rows
    some = rows[:: 1 + rows.numel() // MANY]
    at = torch.tensor([0.25, 0.75, *WIDER], dtype=rows.dtype, device=rows.device)
    low, high, lower, higher = torch.nanquantile(some, at, 0)
    apart = high > low
    room = torch.where(apart, FAR * (high - low), FAR / 3 * (higher - lower))
    low, high = torch.where(apart, low, lower), torch.where(apart, high, higher)
    room = torch.where(high > low, room, math.inf)
    return torch.maximum(torch.minimum(rows, high + room), low - room)


def grows_with_distance(task: Task, targets: Tensor, equal: Tensor) -> bool:
    """Whether the loss grows with the distance of outputs from targets alone, and not with its square."""
    away, equal = equal.abs().nanmean(), present(equal)
    losses = losses_of(task, targets, *(equal + k * away for k in (0, 1, 4)))
    return bool(losses) and losses[2] - losses[0] < LINEAR * (losses[1] - losses[0])


def extreme(targets: Tensor) -> tuple[Tensor, float, float] | None:
    """The targets that are more than `EXTREME` quartile ranges off, and the quartiles of all; None without any."""
    rows = targets[:: 1 + targets.numel() // MANY].double().reshape(-1, targets[0].numel())
    at = torch.tensor([0.25, 0.75], dtype=rows.dtype, device=rows.device)
    low, high = torch.nanquantile(rows, at, 0)
    all_low, all_high = (float(t) for t in torch.nanquantile(rows, at))
    spread = (high - low).clamp_min(all_high - all_low)
    off = torch.maximum(rows - high, low - rows)
    far = rows[(off > EXTREME * spread) & (spread > 0)]
    return (far, all_low, all_high) if far.numel() else None


def present(values: Tensor) -> Tensor:
    """The values, with 0 for those that are missing."""
    return values.nan_to_num(0.0, math.inf, -math.inf)


def alike(targets: Tensor, outputs: Tensor) -> Tensor | None:
    """The targets in the form of the outputs; None where these differ by more than axes of length 1."""
    theirs, own = ([length for length in t.shape if length != 1] for t in (targets, outputs))
    if not targets.dim() or not outputs.dim() or len(targets) != len(outputs) or theirs != own:
        return None
    return targets.reshape(outputs.shape)


def in_units_of(task: Task, targets: Tensor, equal: Tensor) -> bool:
    """Whether the loss is least where outputs are equal to the targets, as of a regression, and of no other link.

    Args:
        task: has the loss.
        targets: as the loss has them.
        equal: the same numbers, in the form of outputs.
    """
    away, equal = equal.abs().nanmean(), present(equal)  # the loss is to leave out targets that are missing
    losses = losses_of(task, targets, equal, 2 * equal, equal / 2, equal + away, equal - away)
    return bool(losses) and all(other > losses[0] for other in losses[1:])


def losses_of(task: Task, targets: Tensor, *outputs: Tensor) -> list[float]:
    """The losses of these outputs; none where one of them is refused, by an error of any kind."""
    assert task.loss is not None
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the losses of the run tell what there is to tell
            return [float(task.loss(t, targets)) for t in outputs]
    except Exception:
        return []
