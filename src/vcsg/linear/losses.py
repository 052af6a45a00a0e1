"""The losses φ(z, y) of a linear model z = aᵀw + c, compiled; by number, so that one compiled loop serves them all.

∇f_i = φ'(a_iᵀw)·a_i: all that a row contributes to a gradient is its slope φ', one number (one for each class of the
multinomial loss). The curvature bound |φ''| ≤ κ gives L = κ·max_i(‖a_i‖² + 1) in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcsg.linear.compiled import inlined, njit

SQUARED, HUBER, GEMAN_MCCLURE, WELSCH, LOGISTIC, SQUARED_HINGE, MULTINOMIAL = range(7)


@dataclass(frozen=True)
class Loss:
    """One loss: what the compiled code calls it, and the bound κ of |φ''|."""

    code: int
    curvature: float
    classifies: bool = False
    """Whether targets are −1 and 1 (or the number of the class) in place of real numbers."""
    convex: bool = True


LOSSES = {
    "squared": Loss(SQUARED, 1.0),
    "huber": Loss(HUBER, 1.0),
    "geman-mcclure": Loss(GEMAN_MCCLURE, 1.0, convex=False),
    "welsch": Loss(WELSCH, 1.0, convex=False),
    "logistic": Loss(LOGISTIC, 0.25, classifies=True),
    "squared-hinge": Loss(SQUARED_HINGE, 1.0, classifies=True),
    "multinomial": Loss(MULTINOMIAL, 0.5, classifies=True),
}
"""With r = z − y and a scale σ:

squared        r²/2
huber          r²/2 where |r| ≤ σ, else σ|r| − σ²/2
geman-mcclure  r²/2 / (1 + r²/σ²)
welsch         σ²/2·(1 − exp(−r²/σ²))
logistic       log(1 + exp(−yz)), y = ±1
squared-hinge  max(0, 1 − yz)²/2, y = ±1
multinomial    log Σ_k exp(z_k) − z_y, y the number of the class
"""


@inlined
def slope(code: int, scale: float, z: float, y: float) -> float:
    """φ'(z, y) of every loss but the multinomial."""
    if code == LOGISTIC:
        return -y / (1.0 + math.exp(min(y * z, 700.0)))
    if code == SQUARED_HINGE:
        return -y * max(0.0, 1.0 - y * z)
    r = z - y
    if code == HUBER:
        return min(max(r, -scale), scale)
    if code == GEMAN_MCCLURE:
        q = 1.0 + (r / scale) ** 2
        return r / (q * q)
    if code == WELSCH:
        return r * math.exp(-((r / scale) ** 2))
    return r


@inlined
def value(code: int, scale: float, z: float, y: float) -> float:
    """φ(z, y) of every loss but the logistic ones, which have loops of their own."""
    if code == SQUARED_HINGE:
        return 0.5 * max(0.0, 1.0 - y * z) ** 2
    r = z - y
    if code == HUBER:
        return 0.5 * r * r if abs(r) <= scale else scale * abs(r) - 0.5 * scale * scale
    if code == GEMAN_MCCLURE:
        return 0.5 * r * r / (1.0 + (r / scale) ** 2)
    if code == WELSCH:
        return 0.5 * scale * scale * -math.expm1(-((r / scale) ** 2))
    return 0.5 * r * r


@njit
def slopes(code: int, scale: float, z: Any, y: float) -> None:
    """z ← φ'(z, y) for the margins z of one row, one for each output."""
    if code != MULTINOMIAL:
        z[0] = slope(code, scale, z[0], y)
        return
    top, total = -math.inf, 0.0
    for k in range(z.size):
        top = max(top, z[k])
    for k in range(z.size):
        z[k] = math.exp(z[k] - top)
        total += z[k]
    for k in range(z.size):
        z[k] /= total
    z[int(y)] -= 1.0


@njit
def loss_and_slopes(code: int, scale: float, z: Any, y: float) -> Any:
    """φ(z, y), and z ← φ'(z, y)."""
    if code != MULTINOMIAL:
        loss = value(code, scale, z[0], y)
        z[0] = slope(code, scale, z[0], y)
        return loss
    top, total = -math.inf, 0.0
    for k in range(z.size):
        top = max(top, z[k])
    chosen = z[int(y)]
    for k in range(z.size):
        z[k] = math.exp(z[k] - top)
        total += z[k]
    for k in range(z.size):
        z[k] /= total
    z[int(y)] -= 1.0
    return top + math.log(total) - chosen


@njit
def logistic_block(z: Any, y: Any, weight: Any, index: Any, power: Any, bits: Any) -> Any:
    """Σ w_i φ_i of the logistic loss over a block of rows, and z ← w_i φ'_i, in loops that vectorise.

    exp(−|t|) = 2^k·e^r with |r| ≤ ln 2/2: a polynomial, and k put into the exponent of `power`, which shares its memory
    with `bits`. The logarithms of 1 + e^{−|t|} ≤ 2 are one of their product where the weights are all the same.
    """
    total, product, same = 0.0, 1.0, True
    for i in range(index.size):
        t = max(-abs(z[i, 0]), -700.0)
        k = math.floor(t * 1.4426950408889634 + 0.5)
        r = (t - k * 0.6931471803691238) - k * 1.9082149292705877e-10
        p = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * (
            1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r / 479001600)))))))))))  # fmt: skip
        bits[i, 0] = (np.int64(k) + 1023) << 52
        power[i, 1] = p
    for i in range(index.size):
        w, label = weight[index[i]], y[index[i]]
        t, e = label * z[i, 0], power[i, 0] * power[i, 1]
        z[i, 0] = -label * w * (e if t > 0.0 else 1.0) / (1.0 + e)
        power[i, 1] = 1.0 + e
        total += w * max(0.0, -t)
        same = same and w == weight[index[0]]
    if same:
        for i in range(index.size):
            product *= power[i, 1]
        return total + weight[index[0]] * math.log(product)
    for i in range(index.size):
        total += weight[index[i]] * math.log(power[i, 1])
    return total


def bends(code: int, scale: float, z: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """φ'' at the margins z, one line per row, for a quadratic model: where φ is not convex, φ'/r in its place."""
    if code == LOGISTIC:
        p = 1 / (1 + np.exp(-np.abs(z)))
        return np.asarray(p * (1 - p))
    if code == MULTINOMIAL:
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return np.asarray(p * (1 - p))
    target = y[:, None]
    if code == SQUARED_HINGE:
        return np.where(target * z < 1, 1.0, 0.0)
    r = z - target
    if code == HUBER:
        return np.where(np.abs(r) <= scale, 1.0, 0.0)
    if code == GEMAN_MCCLURE:
        return np.asarray((1 + (r / scale) ** 2) ** -2.0)
    return np.exp(-((r / scale) ** 2)) if code == WELSCH else np.ones_like(z)
