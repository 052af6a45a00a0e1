"""What one epoch is proved to achieve where the anchor moves with the steps: SPIDER, PAGE, STORM, momentum, SNVRG.

Here v itself estimates ∇f(x), with the error ε = v − ∇f(x). For all L-smooth f_i, convex or not, a step x′ = x − ηv has

    f(x′) ≤ f(x) − (η/2)‖∇f(x)‖² − (η/2)(1 − Lη)‖v‖² + (η/2)‖ε‖²,

so that the errors have to be paid for by the ‖v‖². With weights (a, b, c), a + b + c = 1, and φ = (n−β)/((n−1)β) for
mini-batches of β samples,

    E‖ε′‖² ≤ (|c|·‖ε‖ + |b+c|Lη‖v‖)² + φ(|a+b|√S* + |b|Lη‖v‖)².

With Young's inequality that is E‖ε′‖² ≤ keep·‖ε‖² + pay·‖v‖² + noise, and each error of size ‖ε‖² is worth k:

- drawn once, k = (η/2)/(1 − keep); drawn anew with probability p at each step, k = (η/2)/(1 − (1−p)·keep);
- drawn for each epoch of M steps, k_M = 0 and k_t = η/2 + keep·k_{t+1}.

The proof goes through where k·pay ≤ (η/2)(1 − Lη). A step then gains (η/2)ε − k·noise (ε: the target), and as soon as
all gains reach f(x_0) − inf f, a point drawn evenly has E‖∇f‖² ≤ ε. Nested anchors (SNVRG) have no noise: their errors
are independent level by level, E‖ε_t‖² summed over an epoch is at most L²η²Σ_r φ_r·M_r²·Σ‖v‖², with M_r the steps
between two renewals of level r − 1.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from vcsg.method.schedules import Plan
from vcsg.method.weights import Weights
from vcsg.theory.anchor_noise import mean_variance
from vcsg.theory.resting_anchor import Array, EpochSizes

SPLITS = np.exp(np.linspace(-9, 9, 181))
"""The values that are tried for each number of Young's inequality."""


def gain(weights: Weights, sizes: EpochSizes, n: int, L: float, variance: float, eps: float, anchors: str) -> float:
    """What an epoch gains; −inf where the proof does not go through.

    Args:
        weights: (a, b, c), of sum 1.
        sizes: those of the epoch; `steps` does not count the step along the anchor's own gradient.
        anchors: "epoch" for a full anchor and a step along it in every epoch, "once" for one at the start.
    """
    if not math.isclose(sum(weights), 1.0) or sizes.anchor < n:
        return -math.inf
    eta, scaled = sizes.eta, L * sizes.eta
    keep, pay, noise = error_split(weights, scaled, mean_variance(1.0, n, sizes.b), variance)
    with np.errstate(divide="ignore", over="ignore"):
        worth = _worth(keep, sizes, anchors == "epoch") * eta / 2
        valid = (worth > 0) & (worth * pay <= eta / 2 * (1 - scaled))
        steps = sizes.steps + (anchors == "epoch")
        found = np.where(valid, steps * eps * eta / 2 - sizes.steps * worth * noise, -math.inf)
    return float(found.max())


def error_split(weights: Weights, scaled: float, phi: float, variance: float) -> tuple[Array, Array, Array]:
    """keep, pay and noise in E‖ε′‖² ≤ keep·‖ε‖² + pay·‖v‖² + noise, for all pairs of `SPLITS`; `scaled` is Lη."""
    a, y, c = weights
    moved, fresh = SPLITS[:, None], SPLITS[None, :]  # one split for each of the two squares
    keep = c * c * (1 + moved if y + c and c else 1.0)
    pay = ((y + c) * scaled) ** 2 * (1 + 1 / moved) + phi * (y * scaled) ** 2 * (1 + fresh if a + y else 1.0)
    noise = phi * (a + y) ** 2 * variance * (1 + 1 / fresh if y else 1.0)
    keep, pay, noise = np.broadcast_arrays(keep, pay, noise)
    return keep, pay, noise


def _worth(keep: Array, sizes: EpochSizes, drawn: bool) -> Array:
    """The most that an error counts for, in units of η/2; not positive where errors grow without end."""
    if drawn and sizes.geometric:
        return 1 / (1 - keep * sizes.steps / (sizes.steps + 1))
    if not drawn:
        return 1 / (1 - keep)
    same = np.isclose(keep, 1.0, rtol=1e-12)
    return np.where(same, sizes.steps, (1 - keep**sizes.steps) / np.where(same, 1.0, 1 - keep))


def nested_gain(plan: Plan, eta: float, n: int, L: float, eps: float) -> float:
    """What an epoch of nested anchors gains; −inf where the proof does not go through."""
    steps, scaled = len(plan.levels) + 1, L * eta
    sizes = dict(zip(plan.levels, plan.sizes, strict=True))
    spread = 0.0
    for level, size in sizes.items():
        renewals = [0, *(t for t, other in enumerate(plan.levels, 1) if other < level), steps]
        longest = max(after - before for before, after in pairwise(renewals))
        spread += mean_variance(1.0, n, size) * longest**2
    return steps * eps * eta / 2 if scaled**2 * spread <= 1 - scaled else -math.inf
