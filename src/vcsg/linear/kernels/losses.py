"""The losses φ(z, y) of a linear model z = aᵀw + c, compiled, and numbered so that one compiled loop serves them all.

∇f_i = φ'(a_iᵀw)·a_i: a row contributes to a gradient through its slope φ', one number (one for each class of the
multinomial loss). The curvature bound |φ''| ≤ κ gives L = κ·max_i(‖a_i‖² + 1) in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import types

from vcsg.linear.kernels.compiled import inlined, pasted
from vcsg.linear.kernels.emitted import LANES, Traced, chosen, emitted, spread
from vcsg.linear.kernels.lanes import fma, load, scale_by_power, store, take, where_negative

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
    def quadratic(self) -> bool:
        """Whether the loss is squared, so that a quadratic model of it is the loss itself."""
        return self.code == SQUARED

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


PAIR = types.UniTuple(LANES, 2)


@emitted(LANES)
def decay(t: Traced) -> Traced:
    """e^{−|t|} of eight numbers, to 4e-16 of its value; below e^{−700}, that.

    −|t| = k·ln 2 + r with |r| ≤ ln 2/2: the series of e^r to the twelfth power, times 2^k.
    """
    t = where_negative(t, t, -t)
    t = where_negative(t + 700.0, -700.0, t)
    shifted = fma(t, 1.4426950408889634, 6755399441055744.0)  # rounds: the last bit of 1.5·2⁵² is 1
    # A flag of its own keeps numba from allowing LLVM to reorder it, which without FMA would take the rounding back.
    k = Traced(t.builder, t.builder.fsub(shifted.value, shifted.same(6755399441055744.0), flags=("nsz",)))
    r = fma(k, -0.6931471803691238, t)
    r = fma(k, -1.9082149292705877e-10, r)
    r2 = r * r
    r4 = r2 * r2
    a, b = fma(r, 1 / 6, 1 / 2), fma(r, 1 / 120, 1 / 24)
    c, d = fma(r, 1 / 5040, 1 / 720), fma(r, 1 / 362880, 1 / 40320)
    e = fma(r2, 1 / 479001600, fma(r, 1 / 39916800, 1 / 3628800))
    high = fma(r4, e, fma(r2, d, c))
    p = fma(r2, fma(r4, high, fma(r2, b, a)), r)
    found: Traced = scale_by_power(p + 1.0, shifted)
    return found


@emitted(PAIR)
def logistic(z: Traced, y: Traced) -> tuple[Traced, Traced]:
    """φ and φ' of the logistic loss for eight rows.

    φ = max(0, −t) + log(1 + e) with t = yz and e = e^{−|t|}, and log(1 + e) = 2·artanh(s), s = e/(2 + e) ≤ 1/3, by its
    series.
    """
    t = y * z
    e = decay(t)
    u = e + 1.0
    q = 1.0 / (u * (u + 1.0))
    s = e * q * u
    s2 = s * s
    s4 = s2 * s2
    a, b = fma(s4, 1 / 33, 1 / 29), fma(s4, 1 / 31, 1 / 27)
    for k in range(25, 4, -4):
        a, b = fma(a, s4, 1 / k), fma(b, s4, 1 / (k - 2))
    series = fma(b, s2, fma(a, s4, 1.0))
    loss = fma(s + s, series, where_negative(t, -t, 0.0))
    return loss, -y * where_negative(t, 1.0, e) * q * (u + 1.0)


def power(t: Traced) -> Traced:
    """e^t of eight numbers, for t of either sign, within e^{−700} and e^{700}."""
    e = decay(t)
    found: Traced = where_negative(t, e, 1.0 / e)
    return found


def tweedie(p: Traced, z: Traced, y: Traced) -> tuple[Traced, Traced]:
    """φ and φ' = μ^(2−p) − y·μ^(1−p) of the Tweedie loss for eight rows, with μ = e^z."""
    a, b = 2.0 - p, p - 1.0
    up, down = power(a * z), power(-b * z)
    value = a.compare(">", 0.0).choose((up - 1.0) / a, z)
    return value + y * b.compare(">", 0.0).choose((down - 1.0) / b, -z), up - y * down


def squared_hinge(z: Traced, y: Traced) -> tuple[Traced, Traced]:
    """φ and φ' of the squared hinge loss for eight rows."""
    short = 1.0 - y * z
    short = where_negative(short, 0.0, short)
    return 0.5 * short * short, -y * short


def quantile(level: Traced, r: Traced) -> tuple[Traced, Traced]:
    """φ and φ' of the quantile loss for eight residuals."""
    slope = where_negative(r, -level, 1.0 - level)
    return slope * r, slope


def huber(width: Traced, r: Traced) -> tuple[Traced, Traced]:
    """φ and φ' of Huber's loss for eight residuals."""
    inside = where_negative(r + width, -width, r)
    inside = where_negative(width - inside, width, inside)
    return inside * (r - 0.5 * inside), inside


def geman_mcclure(width: Traced, r: Traced) -> tuple[Traced, Traced]:
    """φ and φ' of the loss of Geman and McClure for eight residuals."""
    u = r / width
    q = u * u + 1.0
    return 0.5 * r * r / q, r / (q * q)


def welsch(width: Traced, r: Traced) -> tuple[Traced, Traced]:
    """φ and φ' of Welsch's loss for eight residuals."""
    u = r / width
    e = decay(u * u)
    return 0.5 * width * width * (1.0 - e), r * e


@emitted(PAIR)
def loss_and_slope(code: Traced, scale: Traced, z: Traced, y: Traced) -> list[Traced]:
    """φ and φ' for eight rows, of every loss but the multinomial."""
    width, r = spread(scale), z - y
    cases = {
        LOGISTIC: lambda: logistic(z, y),
        TWEEDIE: lambda: tweedie(scale, z, y),
        SQUARED_HINGE: lambda: squared_hinge(z, y),
        QUANTILE: lambda: quantile(width, r),
        HUBER: lambda: huber(width, r),
        GEMAN_MCCLURE: lambda: geman_mcclure(width, r),
        WELSCH: lambda: welsch(width, r),
    }
    return chosen(code, cases, lambda: (0.5 * r * r, r))


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


@emitted(LANES)
def second_derivative(code: Traced, scale: Traced, z: Traced, y: Traced) -> Traced:
    """φ'' for eight rows, as a quadratic model uses it; for a φ that is not convex, φ'/r."""
    width, r = spread(scale), z - y
    zero, one = z.constant(0.0), z.constant(1.0)

    def logistic_one() -> tuple[Traced]:
        e = decay(z)
        return (e / ((1.0 + e) * (1.0 + e)),)

    def tweedie_one() -> tuple[Traced]:
        a, b = 2.0 - scale, scale - 1.0
        return (a * power(a * z) + b * y * power(-b * z),)

    def geman_mcclure_one() -> tuple[Traced]:
        q = 1.0 + (r / width) * (r / width)
        return (1.0 / (q * q),)

    cases: dict[int, Callable[[], tuple[Traced, ...]]] = {
        LOGISTIC: logistic_one,
        TWEEDIE: tweedie_one,
        SQUARED_HINGE: lambda: (where_negative(y * z - 1.0, one, zero),),
        QUANTILE: lambda: (zero,),
        HUBER: lambda: (where_negative(width - where_negative(r, -r, r), zero, one),),
        GEMAN_MCCLURE: geman_mcclure_one,
        WELSCH: lambda: (decay((r / width) * (r / width)),),
    }
    return chosen(code, cases, lambda: (one,))[0]


@pasted
def class_curvatures(z: Any, first: int, outputs: int) -> None:
    """z ← the diagonal of φ'' of the multinomial loss, p(1 − p), for the margins z[first:] of one row."""
    class_slopes(z, first, outputs, 0.0)
    z[first] += 1.0
    for k in range(first, first + outputs):
        z[k] *= 1.0 - z[k]
