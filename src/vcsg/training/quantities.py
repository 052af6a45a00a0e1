"""Targets that are quantities: their size, their form beside that of outputs, and whether a loss has their units."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vcsg.training.task import Task


def is_quantity(targets: Tensor) -> bool:
    """Whether the targets may be those of a regression, by their kind of numbers."""
    return not targets.is_complex() and targets.dtype != torch.bool


def size(values: Tensor) -> float:
    """The root of the mean square of the values, without those that are missing: NaN."""
    return float(values.double().square().nanmean().sqrt())


def moments(rows: Tensor) -> tuple[Tensor, float]:
    """The mean of the rows, and how far they are spread about it, without values that are missing."""
    mean = rows.nanmean(0).nan_to_num()
    return mean, size(rows - mean)


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
    assert task.loss is not None
    away = equal.abs().nanmean()
    equal = equal.nan_to_num(0.0, math.inf, -math.inf)  # the loss is to leave out targets that are missing
    try:
        with torch.no_grad():
            least, *others = (
                float(task.loss(t, targets)) for t in (equal, 2 * equal, equal / 2, equal + away, equal - away)
            )
    except Exception:  # a loss may refuse such outputs, by an error of any kind
        return False
    return all(other > least for other in others)
