"""L, which no paper gives for a net: the largest curvature that a mini-batch of the size in use sees.

The top eigenvalue, in absolute value, of the Hessian of f_I by power iteration. A closure leaves no graph for a
second derivative, so Hu comes from central differences of two mini-batch gradients, 2b IFO calls per iteration. The
estimate is made once, at the first anchor, and the median is taken over a few mini-batches. (Estimating again at
later anchors fails on nets: a smaller step lets the sharpness rise, so the step falls further.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vcsg.run.vectors import Tensors, add, copy_to, norm, scale

DRAWS = 5
"""The most mini-batches whose curvature is measured; their median is L."""
ITERATIONS = 8
"""Power iterations per mini-batch."""
CALLS = 2 * ITERATIONS
"""Gradients per sample of each mini-batch."""


def plan(b: int, chunk: int, n: int) -> tuple[int, int]:
    """How many mini-batches of how many samples to measure: `DRAWS` of size b, but at most about one pass in all.

    A smaller mini-batch has the larger curvature on average (the top eigenvalue is convex in the Hessian), so a
    cut of its size errs on the safe side.
    """
    size = min(b, chunk, max(1, n // CALLS))
    return max(1, min(DRAWS, n // (CALLS * size))), size


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
