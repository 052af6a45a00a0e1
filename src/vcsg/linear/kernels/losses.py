"""The losses φ(z, y) of a linear model z = aᵀw + c, compiled, and numbered so that one compiled loop serves them all.

∇f_i = φ'(a_iᵀw)·a_i: a row contributes to a gradient through its slope φ', one number (one for each class of the
multinomial loss). The curvature bound |φ''| ≤ κ gives L = κ·max_i(‖a_i‖² + 1) in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vcsg.linear.kernels.compiled import inlined, pasted
from vcsg.linear.kernels.lanes import fma, load, scale_by_power, splat, store, take, where_negative

SQUARED, HUBER, GEMAN_MCCLURE, WELSCH, LOGISTIC, SQUARED_HINGE, MULTINOMIAL, TWEEDIE, QUANTILE = range(9)


@dataclass(frozen=True)
class Loss:
    """A loss: its number in compiled code, and the bound κ ≥ |φ''|, infinite where there is none."""

    code: int
    curvature: float
    classifies: bool = False
    """Whether targets are −1 and 1 (or the number of the class) in place of real numbers."""
    convex: bool = True
    """Whether φ is convex in z."""
    kinked: bool = False
    """Whether φ is piecewise linear, so that it is not curved where it has a derivative."""

    @property
    def bounded(self) -> bool:
        """Whether φ'' has a bound, and with it the steps of stochastic methods."""
        return self.curvature < math.inf


LOSSES = {
    "squared": Loss(SQUARED, 1.0),
    "huber": Loss(HUBER, 1.0),
    "geman-mcclure": Loss(GEMAN_MCCLURE, 1.0, convex=False),
    "welsch": Loss(WELSCH, 1.0, convex=False),
    "logistic": Loss(LOGISTIC, 0.25, classifies=True),
    "squared-hinge": Loss(SQUARED_HINGE, 1.0, classifies=True),
    "multinomial": Loss(MULTINOMIAL, 0.5, classifies=True),
    "tweedie": Loss(TWEEDIE, math.inf),
    "quantile": Loss(QUANTILE, math.inf, kinked=True),
}
"""The losses by name; with r = z − y and a scale σ:

squared        r²/2
huber          r²/2 where |r| ≤ σ, else σ|r| − σ²/2
geman-mcclure  r²/2 / (1 + r²/σ²)
welsch         σ²/2·(1 − exp(−r²/σ²))
logistic       log(1 + exp(−yz)), y = ±1
squared-hinge  max(0, 1 − yz)²/2, y = ±1
multinomial    log Σ_k exp(z_k) − z_y, y the number of the class
tweedie        half the deviance of y ≥ 0 from μ = exp(z), for a variance μ^p with the power p = σ from 1 to 2, up to a
               number that does not depend on z: (μ^(2−p) − 1)/(2 − p) + y(μ^(1−p) − 1)/(p − 1), with log μ for
               (μ^0 − 1)/0; p = 1 is Poisson's, p = 2 the gamma distribution's
quantile       −σ·r where r < 0, (1 − σ)·r elsewhere: for a constant z the mean is least at y's quantile of level σ
"""


@inlined
def decay(t: Any) -> Any:
    """e^{−|t|} of eight numbers, to 4e-16 of its value; below e^{−700}, that.

    −|t| = k·ln 2 + r with |r| ≤ ln 2/2: the series of e^r to the twelfth power, times 2^k.
    """
    low = splat(-700.0)
    t = where_negative(t, t, splat(0.0) - t)
    t = where_negative(t - low, low, t)
    shifted = fma(t, splat(1.4426950408889634), splat(6755399441055744.0))  # rounds: the last bit of 1.5·2⁵² is 1
    k = shifted - splat(6755399441055744.0)
    r = fma(k, splat(-0.6931471803691238), t)
    r = fma(k, splat(-1.9082149292705877e-10), r)
    r2 = r * r
    r4 = r2 * r2
    a, b = fma(r, splat(1 / 6), splat(1 / 2)), fma(r, splat(1 / 120), splat(1 / 24))
    c, d = fma(r, splat(1 / 5040), splat(1 / 720)), fma(r, splat(1 / 362880), splat(1 / 40320))
    e = fma(r2, splat(1 / 479001600), fma(r, splat(1 / 39916800), splat(1 / 3628800)))
    high = fma(r4, e, fma(r2, d, c))
    p = fma(r2, fma(r4, high, fma(r2, b, a)), r)
    return scale_by_power(splat(1.0) + p, shifted)


@inlined
def logistic(z: Any, y: Any) -> Any:
    """φ and φ' of the logistic loss for eight rows.

    φ = max(0, −t) + log(1 + e) with t = yz and e = e^{−|t|}, and log(1 + e) = 2·artanh(s), s = e/(2 + e) ≤ 1/3, by its
    series.
    """
    zero, one = splat(0.0), splat(1.0)
    t = y * z
    e = decay(t)
    u = one + e
    q = one / (u * (u + one))
    s = e * q * u
    s2 = s * s
    s4 = s2 * s2
    a, b = fma(splat(1 / 33), s4, splat(1 / 29)), fma(splat(1 / 31), s4, splat(1 / 27))
    a, b = fma(a, s4, splat(1 / 25)), fma(b, s4, splat(1 / 23))
    a, b = fma(a, s4, splat(1 / 21)), fma(b, s4, splat(1 / 19))
    a, b = fma(a, s4, splat(1 / 17)), fma(b, s4, splat(1 / 15))
    a, b = fma(a, s4, splat(1 / 13)), fma(b, s4, splat(1 / 11))
    a, b = fma(a, s4, splat(1 / 9)), fma(b, s4, splat(1 / 7))
    a, b = fma(a, s4, splat(1 / 5)), fma(b, s4, splat(1 / 3))
    series = fma(b, s2, fma(a, s4, one))
    loss = fma(s + s, series, where_negative(t, zero - t, zero))
    return loss, (zero - y) * where_negative(t, one, e) * q * (u + one)


@inlined
def power(t: Any) -> Any:
    """e^t of eight numbers, for t of either sign, within e^{−700} and e^{700}."""
    e = decay(t)
    return where_negative(t, e, splat(1.0) / e)


@inlined
def tweedie(p: float, z: Any, y: Any) -> Any:
    """φ and φ' = μ^(2−p) − y·μ^(1−p) of the Tweedie loss for eight rows, with μ = e^z."""
    a, b, one = 2.0 - p, p - 1.0, splat(1.0)
    up, down = power(splat(a) * z), power(splat(-b) * z)
    value = (up - one) / splat(a) if a > 0.0 else z
    value = value + y * ((down - one) / splat(b) if b > 0.0 else splat(0.0) - z)
    return value, up - y * down


@inlined
def loss_and_slope(code: int, scale: float, z: Any, y: Any) -> Any:
    """φ and φ' for eight rows, of every loss but the multinomial."""
    if code == LOGISTIC:
        return logistic(z, y)
    if code == TWEEDIE:
        return tweedie(scale, z, y)
    zero, half, one, width = splat(0.0), splat(0.5), splat(1.0), splat(scale)
    if code == SQUARED_HINGE:
        short = one - y * z
        short = where_negative(short, zero, short)
        return half * short * short, zero - y * short
    r = z - y
    if code == QUANTILE:
        slope = where_negative(r, zero - width, one - width)
        return slope * r, slope
    if code == HUBER:
        inside = where_negative(r + width, zero - width, r)
        inside = where_negative(width - inside, width, inside)
        return inside * (r - half * inside), inside
    u = r / width
    if code == GEMAN_MCCLURE:
        q = one + u * u
        return half * r * r / q, r / (q * q)
    if code == WELSCH:
        e = decay(u * u)
        return half * width * width * (one - e), r * e
    return half * r * r, r


@inlined
def class_slopes(z: Any, first: int, outputs: int, y: float) -> Any:
    """φ(z, y) of the multinomial loss, and z ← φ'(z, y), for the margins z[first:] of one row."""
    top, total, chosen = -math.inf, 0.0, z[first + int(y)]
    for k in range(outputs):
        top = max(top, z[first + k])
    for k in range(outputs):
        z[first + k] = math.exp(z[first + k] - top)
        total += z[first + k]
    for k in range(outputs):
        z[first + k] /= total
    z[first + int(y)] -= 1.0
    return top + math.log(total) - chosen


@pasted
def batch_slopes(code: int, scale: float, z: Any, index: Any, first: int, size: int, outputs: int, y: Any) -> None:
    """z ← φ'(z, y) for the margins of a batch."""
    if code == MULTINOMIAL:
        for i in range(size):
            class_slopes(z, i * outputs, outputs, y[index[first + i]])
    else:
        for i in range(0, size, 8):
            _, slope = loss_and_slope(code, scale, load(z, i), take(y, index, first + i, min(8, size - i)))
            store(z, i, slope)


@inlined
def second_derivative(code: int, scale: float, z: Any, y: Any) -> Any:
    """φ'' for eight rows, as a quadratic model uses it; for a φ that is not convex, φ'/r."""
    zero, one, width = splat(0.0), splat(1.0), splat(scale)
    if code == LOGISTIC:
        e = decay(z)
        return e / ((one + e) * (one + e))
    if code == TWEEDIE:
        a, b = splat(2.0 - scale), splat(scale - 1.0)
        return a * power(a * z) + b * y * power((zero - b) * z)
    if code == SQUARED_HINGE:
        return where_negative(y * z - one, one, zero)
    r = z - y
    if code == QUANTILE:
        return zero
    if code == HUBER:
        return where_negative(width - where_negative(r, zero - r, r), zero, one)
    u = r / width
    if code == GEMAN_MCCLURE:
        return one / ((one + u * u) * (one + u * u))
    if code == WELSCH:
        return decay(u * u)
    return one


@pasted
def class_curvatures(z: Any, first: int, outputs: int) -> None:
    """z ← the diagonal of φ'' of the multinomial loss, p(1 − p), for the margins z[first:] of one row."""
    class_slopes(z, first, outputs, 0.0)
    z[first] += 1.0
    for k in range(first, first + outputs):
        z[k] *= 1.0 - z[k]
