"""The lemmas of the paper's appendix, and what it says of the estimators, each with its check."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vcsg.method.catalogue import LAMBDA_FIRST, LAMBDA_SECOND
from vcsg.method.weights import Weights, biased, weighted
from vcsg.theory.anchor_noise import biased_error, mean_variance, printed_biased_error
from vcsg.theory.exact_moments import mean_power, weighted_noise
from vcsg.theory.statements import Evidence, claim, of_bound, of_equality

Array = NDArray[np.float64]


def lemma_sides(x: Array, y: Array, lam: float) -> tuple[Array, Array]:
    """The two sides of l.415, ‖(1−λ)x − λy‖² and (1−λ)²‖x−y‖², along the last axis."""
    return np.sum(((1 - lam) * x - lam * y) ** 2, -1), (1 - lam) ** 2 * np.sum((x - y) ** 2, -1)


def lemma_condition(x: Array, y: Array, lam: float) -> Array:
    """‖y‖² − 2(1−λ)⟨x, y⟩: for λ < ½, l.415 holds exactly where it is not negative."""
    return np.asarray(np.sum(y * y, -1) - 2 * (1 - lam) * np.sum(x * y, -1))


@claim(
    "mean-of-a-batch",
    "l.396",
    "E‖mean of m of M vectors of sum 0‖² = (M−m)/((M−1)m) of their mean square",
    "holds",
    "Sampling is without replacement.",
)
def _mean_of_a_batch() -> Evidence:
    """Every batch of 3 of 7 vectors."""
    vectors = _centred(np.random.default_rng(0), 7, 2)
    means = [np.sum(vectors[list(batch)].mean(0) ** 2) for batch in combinations(range(7), 3)]
    found, printed = float(np.mean(means)), mean_variance(float(np.mean(np.sum(vectors**2, 1))), 7, 3)
    return of_equality(found, printed, {"enumerated": found, "formula": printed})


@claim(
    "geometric-length",
    "l.406",
    "E(D_N − D_{N+1}) = (1/γ − 1)(D_0 − E D_N) for N geometric on 0, 1, 2, …",
    "holds",
    "With γ = B/(B+b) the factor is b/B.",
)
def _geometric_length() -> Evidence:
    """A drawn sequence, constant from term 4000 on, at B = 20 and b = 2: the rest weighs 1e-165."""
    B, b = 20, 2
    D = np.append(np.random.default_rng(1).standard_normal(4000), np.zeros(1))
    weight = (B / (B + b)) ** np.arange(4000) * b / (B + b)
    left, right = float(weight @ (D[:-1] - D[1:])), b / B * float(D[0] - weight @ D[:-1])
    return of_equality(left, right, {"left": left, "right": right})


@claim(
    "lemma",
    "l.415",
    "‖(1−λ)x − λy‖² ≤ (1−λ)²‖x−y‖² for λ ≤ ½ if x ≤ y, for λ ≥ ½ if x ≥ y",
    "false",
    "For λ < ½ it holds if and only if ‖y‖² ≥ 2(1−λ)⟨x, y⟩; near the anchor it never does.",
)
def _lemma() -> Evidence:
    """x = y = 1; and the share of drawn pairs with x ≤ y, coordinate by coordinate, for which it fails."""
    one = np.ones(1)
    left, right = (float(side) for side in lemma_sides(one, one, 0.32))
    x, y = np.random.default_rng(0).standard_normal((2, 200_000, 3))
    below, fails = np.all(x <= y, -1), lemma_condition(x, y, LAMBDA_FIRST) < 0
    shares = {"fails_where_below": float(fails[below].mean()), "fails": float(fails.mean())}
    return of_bound(left, right, {"left": left, "right": right} | shares)


@claim(
    "variance-zero",
    "l.293",
    "S* ← (∇f_I(x̃) − g)², with g = ∇f_I(x̃)",
    "false",
    "It is 0, whatever the data. Meant is the variance over the samples of I (l.501).",
)
def _variance_zero() -> Evidence:
    """The letter of l.293, and the variance, for 8 drawn gradients."""
    gradients = np.random.default_rng(2).standard_normal((8, 3))
    g = gradients.mean(0)
    printed, variance = float(np.sum((gradients.mean(0) - g) ** 2)), float(np.mean(np.sum((gradients - g) ** 2, 1)))
    return of_equality(variance, printed, {"printed": printed, "variance": variance})


@claim(
    "unbiased",
    "l.172, l.320",
    "Alg 2 is an unbiased estimator of ∇f(x)",
    "false",
    "E v = (1−λ)∇f(x): a gradient scaled by 0.68 at the paper's λ. The test of l.300 adds a bias.",
)
def _unbiased() -> Evidence:
    """E v over every mini-batch, in units of ∇f(x), with a full anchor."""
    H, t, x, y = _quadratics(3)
    v = [_estimate(weighted(LAMBDA_FIRST), H, t, x, y, batch) for batch in combinations(range(len(H)), 2)]
    full = np.mean(H * (x - t), 0)
    scale = float(np.mean(v, 0) @ full / (full @ full))
    return of_equality(scale, 1.0, {"scale": scale})


@claim(
    "error-of-the-anchor",
    "l.490",
    "E‖e_j‖² ≤ λ²·I(B<n)·S*/B for Alg 2, e_j = λ(g − ∇f)",
    "holds",
    "Exactly λ²·S*(n−B)/((n−1)B).",
)
def _error_of_the_anchor() -> Evidence:
    """Every anchor of 3 of 9 gradients."""
    gradients, lam, B, n = np.random.default_rng(4).standard_normal((9, 2)), LAMBDA_FIRST, 3, 9
    errors = gradients - gradients.mean(0)
    found = lam**2 * float(np.mean([np.sum(errors[list(i)].mean(0) ** 2) for i in combinations(range(n), B)]))
    bound = lam**2 / B * float(np.mean(np.sum(errors**2, 1)))
    return of_bound(found, bound, {"found": found, "bound": bound})


@claim(
    "error-biased",
    "l.747",
    "E‖e_j‖² ≤ (1−λ)²·I(B<n)·S*/B + (1−2λ)²‖∇f‖² for Alg 3, e_j = λg − (1−λ)∇f",
    "false",
    "λ² takes the place of (1−λ)²: l.756 has swapped the two.",
)
def _error_biased() -> Evidence:
    """At a stationary point, λ = 5/8, anchors of 10 of 1000 samples, S* = 1."""
    found = biased_error(LAMBDA_SECOND, 1.0, 0.0, 1000, 10)
    bound = printed_biased_error(LAMBDA_SECOND, 1.0, 0.0, 1000, 10)
    return of_bound(found, bound, {"found": found, "bound": bound, "ratio": found / bound})


@claim(
    "second-moment-weighted",
    "l.454",
    "E‖v‖² ≤ (L²/b)‖x−x_0‖² + 2(1−λ)²‖∇f(x)‖² + 2λ²‖e_j‖² for Alg 2",
    "false",
    "At x = x_0 = x* with a full anchor the right is 0 and the left (1−2λ)²·S*(n−b)/((n−1)b).",
)
def _second_moment_weighted() -> Evidence:
    """At a stationary point with a full anchor, S* = 1, b = 2 of n = 16."""
    found = weighted_noise(LAMBDA_FIRST, 1.0, 16, 2)
    return of_bound(found, 0.0, {"found": found, "bound": 0.0})


@claim(
    "second-moment-biased",
    "l.710, l.737",
    "E‖v‖² ≤ ((1−λ)²L²/b)‖x−x_0‖² + 2(1−λ)²‖∇f(x)‖² + 2‖e_j‖² for Alg 3",
    "holds",
    "l.710 lacks the square of ‖x−x_0‖; the proof has it.",
)
def _second_moment_biased() -> Evidence:
    """The largest ratio of the two sides over 100 drawn sums of quadratics, every mini-batch, one anchor each."""
    ratios = []
    for seed in range(100):
        H, t, x, y = _quadratics(seed)
        x = y + (x - y) * 10.0 ** (seed % 5 - 3)
        batches = list(combinations(range(len(H)), 2))
        v = np.array([_estimate(biased(LAMBDA_SECOND), H, t, x, y, batch, anchor=4) for batch in batches])
        full, at_y = np.mean(H * (x - t), 0), np.mean(H * (y - t), 0)
        e = LAMBDA_SECOND * np.mean((H * (y - t))[:4], 0) - (1 - LAMBDA_SECOND) * at_y
        scale = (1 - LAMBDA_SECOND) ** 2
        bound = scale * H.max() ** 2 / 2 * np.sum((x - y) ** 2) + 2 * scale * full @ full + 2 * e @ e
        ratios.append(float(np.mean(np.sum(v**2, 1)) / bound))
    return of_bound(max(ratios), 1.0, {"largest_ratio": max(ratios)})


@claim(
    "mean-length",
    "l.149",
    "the mean of the number of inner steps N is the batch size",
    "false",
    "It is γ/(1−γ) (l.136), that is B/b: the batch size at b = 1 alone.",
)
def _mean_length() -> Evidence:
    """By the derivative of E r^N at r = 1, B = 1000 and b = 6."""
    B, b, small = 1000.0, 6.0, 1e-9
    found = (1 - mean_power(1 - small, B, b)) / small
    return of_equality(found, B, {"found": found, "B": B}, tolerance=1e-4)


def _centred(rng: np.random.Generator, count: int, d: int) -> Array:
    drawn = rng.standard_normal((count, d))
    return np.asarray(drawn - drawn.mean(0))


def _quadratics(seed: int) -> tuple[Array, Array, Array, Array]:
    """f_i(x) = Σ_k H_ik(x_k − t_ik)²/2 for i = 1 … 7 in 3 dimensions, and two points."""
    rng = np.random.default_rng(seed)
    H, t = rng.uniform(0.5, 2, (7, 3)), rng.standard_normal((7, 3))
    x, y = rng.standard_normal((2, 3))
    return H, t, x, y


def _estimate(
    weights: Weights, H: Array, t: Array, x: Array, y: Array, batch: tuple[int, ...], anchor: int | None = None
) -> Array:
    """v for one mini-batch; the anchor has the first `anchor` samples, or all."""
    own = list(batch)
    here, there = (H * (x - t))[own].mean(0), (H * (y - t))[own].mean(0)
    mean = (H * (y - t))[:anchor].mean(0)
    return np.asarray(weights.now * here + weights.anchor * there + weights.mean * mean)
