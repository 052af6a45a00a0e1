"""What one epoch is proved to achieve where the anchor rests: SGD, SVRG, SCSG, Alg 1 to 3, and VCSG without its test.

The proof is one for all weights (a, b, c), for all L-smooth f_i, convex or not, and every number here is exact for the
sizes and steps that a run has; nothing is asymptotic. With y the anchor, d = ‖x − y‖, u = ‖∇f(x)‖, e = m − ∇f(y),
s = a + b + c and q = |b + c|, the mini-batch (of size β, without replacement) gives

    E v = s∇f(x) − (b + c)(∇f(x) − ∇f(y)) + c·e           so ‖E v‖ ≤ s·u + qL·d + |c|·‖e‖,
    E‖v − E v‖² ≤ (A·d + Z)²                              A = |b|L√φ, Z = |a+b|√(S*φ), φ = (n−β)/((n−1)β).

Smoothness bounds f(x′) − f(x), and x′ = x − ηv gives d′² − d². Both are quadratic in (u, d, ‖e‖, Z). Young's inequality
with free positive numbers t₁ … t₄ splits the mixed products, so that for every k ≥ 0

    E f(x′) + k·E d′² ≤ f(x) + (h + k(1 + κ))·d² − Γ(k)·u² + P(k)·‖e‖² + Q(k)·Z²,

Γ, P and Q linear in k. Over an epoch the terms in d² have to cancel:

- N geometric with mean B/β: E(d²_{N+1} − d²_N) = (β/B)·E d²_N (Lemma A.2), so k = h/(β/B − κ), where κ < β/B;
- N = M fixed: k_M = 0 and k_t = h + (1 + κ)k_{t+1}, a geometric sum.

What is left is Δf ≥ Σ(Γu² − P‖e‖² − QZ²), E‖e‖² by Lemma A.1. So an epoch *gains* G = Σ(Γε − P·E‖e‖² − QZ²), and as
soon as the gains of all epochs reach f(x_0) − inf f, a point drawn with weights Γ has E‖∇f‖² ≤ ε. Any t are valid; the
best of a grid are taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vcsg.method.weights import Weights
from vcsg.theory.anchor_noise import mean_variance

Array = NDArray[np.float64]
SHARES = np.array([0.005, 0.03, 0.12, 0.3, 0.6])
"""The shares of what is there to be had that the grid gives to each of Young's numbers."""
ROUNDS = 6
"""How often the grid is drawn again, each time closer around the best."""


@dataclass(frozen=True)
class EpochSizes:
    """The sizes of an epoch: the anchor in hand, the mini-batch, the step size and the mean number of inner steps."""

    anchor: int
    b: int
    eta: float
    steps: float
    """E N where N is geometric, N where it is fixed."""
    geometric: bool


@dataclass(frozen=True)
class Quadratic:
    """A bound that is quadratic in (u, d, w, Z), w = ‖e‖, by its coefficients; of E f(x′) − f(x), or of E d′² − d²."""

    uu: float
    ud: float
    uw: float
    dd: float
    dw: float
    ww: float
    dz: float
    zz: float

    def at(self, u: float, d: float, w: float, z: float) -> float:
        """Its value."""
        squares = self.uu * u * u + self.dd * d * d + self.ww * w * w + self.zz * z * z
        return squares + self.ud * u * d + self.uw * u * w + self.dw * d * w + self.dz * d * z


def gain(weights: Weights, sizes: EpochSizes, n: int, L: float, variance: float, eps: float) -> float:
    """G of one epoch; −inf where the proof does not go through at these sizes."""
    noise = variance * _spread(n, sizes.b)
    z2 = (weights.now + weights.anchor) ** 2 * noise
    w2 = mean_variance(variance, n, sizes.anchor) if weights.mean else 0.0
    of_f, of_d = step_forms(weights, sizes, n, L)
    if weights.anchor == weights.mean == 0:  # without an anchor d counts for nothing: k = 0
        return sizes.steps * (-of_f.uu * eps - of_f.zz * z2) if of_f.uu < 0 else -math.inf
    best, centre = -math.inf, None
    for width in (2 * 0.6**k for k in range(ROUNDS)):
        grid = _grid(centre, width, of_d, z2 > 0)
        found = _gains(grid, weights, sizes, of_f, of_d, eps, w2, z2)
        place = int(np.argmax(found))
        if not found[place] > best:
            break
        best, centre = float(found[place]), grid[:, place]
    return best


def _spread(n: int, b: int) -> float:
    """φ = (n−b)/((n−1)b)."""
    return mean_variance(1.0, n, b)


def step_forms(weights: Weights, sizes: EpochSizes, n: int, L: float) -> tuple[Quadratic, Quadratic]:
    """The two quadratic forms of an inner step."""
    a, y, c = weights
    s, q, p, eta = a + y + c, abs(y + c) * L, abs(c), sizes.eta
    A = abs(y) * L * math.sqrt(_spread(n, sizes.b))
    # E‖v‖² ≤ (s·u + q·d + p·w)² + (A·d + Z)²
    square = Quadratic(s * s, 2 * s * q, 2 * s * p, q * q + A * A, 2 * q * p, p * p, 2 * A, 1.0)
    half = L * eta * eta / 2
    of_f = Quadratic(
        half * square.uu - eta * s,
        half * square.ud + eta * q,
        half * square.uw + eta * p,
        half * square.dd,
        half * square.dw,
        half * square.ww,
        half * square.dz,
        half,
    )
    full = eta * eta
    of_d = Quadratic(
        full * square.uu,
        full * square.ud + 2 * eta * s,
        full * square.uw,
        full * square.dd + 2 * eta * q,
        full * square.dw + 2 * eta * p,
        full * square.ww,
        full * square.dz,
        full,
    )
    return of_f, of_d


def _grid(centre: Array | None, width: float, of_d: Quadratic, noisy: bool) -> Array:
    """Shares (4 rows) for t₁ … t₄: all of `SHARES`, or a finer grid around a centre, in logarithms."""
    axes = []
    for row, used in enumerate((of_d.ud > 0, True, of_d.dw > 0, noisy and of_d.dz > 0)):
        if not used:
            axes.append(np.array([0.5]))
        elif centre is None:
            axes.append(SHARES)
        else:
            axes.append(centre[row] * np.exp(width * np.linspace(-1, 1, len(SHARES))))
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack([part.ravel() for part in mesh])


def _gains(
    shares: Array,
    weights: Weights,
    sizes: EpochSizes,
    of_f: Quadratic,
    of_d: Quadratic,
    eps: float,
    w2: float,
    z2: float,
) -> Array:
    """The gain for every choice of Young's numbers; −inf for those that prove nothing."""
    room = 1 / max(sizes.steps, 1.0)
    # t₁ and t₃, t₄ split what d² may grow by in a step, `room`; t₂ takes a share of the descent η·s.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t1 = of_d.ud / (2 * room * shares[0]) if of_d.ud else np.ones_like(shares[0])
        t2 = 2 * shares[1] * sum(weights) / max(abs(weights.mean), 1e-300) if weights.mean else np.ones_like(shares[1])
        t3 = 2 * room * shares[2] / of_d.dw if of_d.dw else np.ones_like(shares[2])
        t4 = 2 * room * shares[3] / of_d.dz if of_d.dz else np.ones_like(shares[3])

        def linear(form: Quadratic) -> tuple[Array, Array, Array, Array]:
            """The coefficients of d², −u², w² and Z² after Young."""
            mixed = form.ud / (2 * t1) + form.dw * t3 / 2 + (form.dz * t4 / 2 if z2 else 0.0)
            descent = -form.uu - form.ud * t1 / 2 - (form.uw * t2 / 2 if w2 else 0.0)
            error = form.ww + form.uw / (2 * t2) + form.dw / (2 * t3)
            return form.dd + mixed, descent, error, form.zz + form.dz / (2 * t4)

        h, down, wrong, noisy = linear(of_f)
        kappa, down_k, wrong_k, noisy_k = linear(of_d)
        least, total = multipliers(h, kappa, sizes)
        worst = down + least * down_k
        summed = (sizes.steps * down + total * down_k) * eps
        summed = summed - (sizes.steps * wrong + total * wrong_k) * w2 - (sizes.steps * noisy + total * noisy_k) * z2
    valid = np.isfinite(summed) & (worst >= 0) & (least >= 0)
    return np.where(valid, summed, -math.inf)


def multipliers(h: Array, kappa: Array, sizes: EpochSizes) -> tuple[Array, Array]:
    """The largest k of the epoch, and the sum of k over its steps; NaN where no k will do."""
    if sizes.geometric:
        k = np.where(kappa < 1 / sizes.steps, h / (1 / sizes.steps - kappa), math.nan)
        return k, k * sizes.steps
    M = sizes.steps
    log_growth = np.log1p(kappa)
    grown = np.expm1(np.minimum((M - 1) * log_growth, 700.0))
    largest = h * np.where(kappa > 0, grown / kappa, M - 1)
    # k_{t+1} for t = 0 … M−1 is h·((1+κ)^i − 1)/κ with i = M−1 … 0.
    whole = np.expm1(np.minimum(M * log_growth, 700.0))
    total = np.where(kappa > 0, h / kappa * (whole / kappa - M), h * M * (M - 1) / 2)
    return largest, total
