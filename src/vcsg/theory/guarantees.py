"""The expected cost of reaching ε, as far as it is proved, for every method at the sizes and steps that it has here.

A proof is one of `vcsg.theory.resting_anchor` and `vcsg.theory.moving_anchor`; where neither goes through, the reason
is given. What the paper claims, and others have proved up to constants, is in `vcsg.theory.rates`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from vcsg.method.definition import Method
from vcsg.method.step_rules import Plain
from vcsg.method.weights import Constant, Weights
from vcsg.theory import moving_anchor, resting_anchor
from vcsg.theory.planned_epochs import LIMIT, PlannedEpoch, epochs, settled
from vcsg.theory.resting_anchor import EpochSizes
from vcsg.theory.setting import Setting


@dataclass(frozen=True)
class Guarantee:
    """What is proved of a run.

    Attributes:
        proved: whether a proof goes through at the sizes and steps of the run.
        epochs: the epochs after which a random point of the run has E‖∇f‖² ≤ ε; infinite where no number is proved.
        calls: the expected number of gradients of single samples until then.
        floor: the least ε that the proof reaches, where it does not reach the one that was asked for; else 0.
        reason: why there is no number, in words; "" where there is one.
    """

    proved: bool
    epochs: float
    calls: float
    floor: float = 0.0
    reason: str = ""


def guarantee(method: Method, setting: Setting) -> Guarantee:
    """The epochs and the gradients to ε that are proved for a method on every problem of this setting."""
    if reason := _excluded(method):
        return Guarantee(False, math.inf, math.inf, reason=reason)
    gained = calls = 0.0
    for planned in epochs(method, setting):
        if reason := _tested(method, planned):
            return Guarantee(False, math.inf, math.inf, reason=reason)
        gain = epoch_gain(method, planned, setting, setting.eps)
        if gain == -math.inf:
            return Guarantee(False, math.inf, math.inf, reason=_too_long(planned))
        missing = setting.gap - gained
        if planned.base == 0 and gain > 0 and (gain >= missing or settled(method, setting, planned)):
            # Without anchors an epoch is a count of steps, and a run may end within it.
            more = missing / gain
            return Guarantee(True, planned.epoch - 1 + more, calls + more * planned.calls)
        if gain >= missing:
            return Guarantee(True, planned.epoch, calls + planned.calls)
        if settled(method, setting, planned):
            if gain <= 0:
                floor = _floor(method, planned, setting)
                return Guarantee(True, math.inf, math.inf, floor, f"proved down to ε = {floor:.2g} only, by its noise")
            # A whole number of epochs: the last one may gain more than is missing.
            more = math.ceil(missing / gain)
            return Guarantee(True, planned.epoch - 1 + more, calls + more * planned.calls)
        if planned.epoch == LIMIT:
            return Guarantee(True, math.inf, math.inf, reason=f"not within {LIMIT:,} epochs")
        gained, calls = gained + gain, calls + planned.calls
    raise AssertionError("a method has no last epoch")


def epoch_gain(method: Method, planned: PlannedEpoch, setting: Setting, eps: float) -> float:
    """What the epoch is proved to gain towards ε; −inf where the proof does not go through."""
    n, L, S = setting.n, setting.L, setting.variance
    if method.moves == "nested":
        return moving_anchor.nested_gain(planned.plan, planned.eta, n, L, eps)
    weights, b = planned.rule.choices[0], planned.plan.b
    if weights.now == weights.anchor == 0 and planned.steps == 1 and planned.base == n:
        weights, b = Weights(weights.mean, 0, 0), n  # gradient descent
    sizes = EpochSizes(planned.base or n, b, planned.eta, planned.steps, method.length == "geometric")
    if method.moves == "step":
        return moving_anchor.gain(weights, sizes, n, L, S, eps, method.drawn)
    return _resting(weights, sizes, n, L, S, eps)


_resting = lru_cache(maxsize=4096)(resting_anchor.gain)


def _excluded(method: Method) -> str:
    """Why nothing is proved of a method, whatever its sizes."""
    if not isinstance(method.step, Plain):
        return "no proof: its step is no multiple of v"
    if method.table:
        return "no proof for non-convex f_i at this step"
    if method.drawn == "never":
        return "no proof at this step: m begins at 0"
    return ""


def _tested(method: Method, planned: PlannedEpoch) -> str:
    if isinstance(planned.rule, Constant):
        return ""
    regime = f" of the {planned.regime} regime" if planned.regime else ""
    return f"no proof: the weights{regime} depend on the mini-batch"


def _too_long(planned: PlannedEpoch) -> str:
    regime = f" of the {planned.regime} regime" if planned.regime else ""
    return f"no proof: the steps{regime} are too long for {planned.steps:,.0f} of them on one anchor"


def _floor(method: Method, planned: PlannedEpoch, setting: Setting) -> float:
    """The least ε at which an epoch like this one still gains, by bisection."""
    low, high = setting.eps, max(setting.eps, setting.variance)
    while epoch_gain(method, planned, setting, high) <= 0:
        high *= 4
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epoch_gain(method, planned, setting, middle) <= 0 else (low, middle)
    return high
