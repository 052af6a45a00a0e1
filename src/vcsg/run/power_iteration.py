"""The curvature that a mini-batch sees: the top eigenvalue, in absolute value, of the Hessian of f_I.

It comes by power iteration. A closure leaves no graph for a second derivative, so Hu comes from central differences of
two mini-batch gradients, 2b gradients per iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vcsg.run.smoothness import ITERATIONS
from vcsg.run.vectors import Tensors, add, copy_to, norm, scale


def curvature(gradient: Callable[[], list[Tensor]], point: Tensors, centre: Tensors, seed: int) -> float:
    """The top |eigenvalue| at `centre` of the Hessian whose gradient at `point` is `gradient()`.

    `point` is moved about in place and ends as it began, equal to `centre`. No direction is stored: it is the
    displacement of `point`, so the only memory is one gradient.
    """
    # The error of a central difference is least near (machine epsilon)^(1/3), relative to the scale of x.
    width = math.cbrt(torch.finfo(point[0].dtype).eps) * (1 + norm(centre).item())
    direction = _random_direction(point, seed)
    value = 0.0
    try:
        for _ in range(ITERATIONS):
            _displace(point, centre, direction, width)
            direction = []
            plus = gradient()
            scale(point, -1)
            add(point, centre, 2)
            direction = plus
            add(direction, gradient(), -1)
            value = norm(direction).item() / (2 * width)
            if value == 0 or not math.isfinite(value):
                return value
        return value
    finally:
        copy_to(point, centre)


def _random_direction(like: Tensors, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype).to(t.device) for t in like]


def _displace(point: Tensors, centre: Tensors, direction: Tensors, width: float) -> None:
    """point ← centre + width · direction/‖direction‖; `direction` is used up."""
    scale(direction, width / norm(direction).item())
    copy_to(point, centre)
    add(point, direction)
