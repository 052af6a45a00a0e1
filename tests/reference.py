"""Every method once more, written plainly in numpy and apart from the package, for a run on the same samples.

`replay` is given which samples each phase held (and so how long each inner loop was) and finds all else by itself:
S* from the chunks, B_j, b_j, η_j, the regime and the weights of every step. Sizes that differ from those given fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

Log = list[tuple[str, list[list[int]]]]
"""The phases of a run, each with its batches of sample indices."""

LAM = (15 - math.sqrt(97)) / 16
WEIGHTS = {
    "gd": (0, 0, 1),
    "sgd": (1, 0, 0),
    "paper-sgd": (0.5, 0, 0),
    "svrg": (1, -1, 1),
    "scsg": (1, -1, 1),
    "batching-svrg": (1, -1, 1),
    "paper-svrg": (0.5, -0.5, 0.5),
    "weighted-svrg": (1 - LAM, -LAM, LAM),
    "biased-svrg": (3 / 8, -3 / 8, 5 / 8),
}


def sizes(name: str, j: int, n: int, options: dict) -> tuple[int, int, float]:
    """(B_j, b_j, η_j·L) of the methods that do not look at S*, as the table of defaults has them."""
    b = options.get("b")
    if name == "gd":
        return n, n, 1.0
    if name == "sgd":
        return n, b or min(64, n), 1 / 3
    if name == "paper-sgd":
        return n, max(1, round(n**0.25)), 1 / 3 / math.sqrt(n) / j
    if name == "paper-svrg":
        return n, max(1, round(n**0.25)), 1 / 3 / math.sqrt(n)
    if name == "svrg":
        b = b or 1
        return n, b, (b / n) ** (2 / 3) / 3
    if name == "scsg":
        B, b = min(math.ceil(j**1.5), n), b or 1
        return B, b, (b / B) ** (2 / 3) / 3
    B = options.get("B") or n
    b = b or max(1, round(B**0.25))
    return B, b, math.sqrt(b / B) / 3


def vcsg_sizes(j: int, n: int, S: float, S1: float, options: dict) -> tuple[int, int, float, str, int]:
    """(B_j, b_j, η_j·L, regime, size of the next anchor) of Alg 4."""
    K, rho = options.get("K", 12), options.get("rho", 0.9)
    eps = options.get("eps") or K * S1 / (n / 100)
    sigma = options["sigma"] if options.get("sigma") is not None else S1
    term1 = K * S / eps
    term2 = n * S / (S + 0.14 * math.sqrt(n) * sigma * rho ** (2 * j))
    B = math.ceil(min(term1, term2))
    B = min(max(B, options.get("B_min", 32)), n)
    floor = options.get("b_min", 1)
    if j == 1 and options.get("first_epoch", True):
        return n, max(round(n**0.25), floor), 1 / 3 / math.sqrt(n), "start", B
    if term1 <= term2:
        return B, max(round(B**0.25), floor), 1 / 3, "first", B
    return B, max(1, floor), 1 / 3 / math.sqrt(B), "second", B


def vcsg_direction(regime: str, comparison: str, gx: np.ndarray, gy: np.ndarray, m: np.ndarray) -> np.ndarray:
    half = 0.5 * (gx - gy + m)
    alg2 = (1 - LAM) * gx - LAM * (gy - m)
    if regime != "first":
        return 3 / 8 * (gx - gy) + 5 / 8 * m
    if comparison == "norm":
        return alg2 if np.linalg.norm(gx) < np.linalg.norm(gy) else half
    if comparison == "lemma":
        return alg2 if gy @ gy >= 2 * (1 - LAM) * (gx @ gy) else half
    if comparison == "elementwise":
        return np.where(gx < gy, alg2, half)
    return half


def chunk_variance(chunks: list[np.ndarray], n: int) -> float:
    """S* from chunk means by the sum of squares Σ m_k‖g_k‖² − B‖g‖²."""
    m = np.array([len(c) for c in chunks])
    means = np.array([c.mean(0) for c in chunks])
    g = np.concatenate(chunks).mean(0)
    s2 = ((m[:, None] * means**2).sum() - m.sum() * (g @ g)) / (len(chunks) - 1)
    return (n - 1) / n * s2


def replay(problem, name: str, x: np.ndarray, L: float, log: Log, **options) -> Iterator[np.ndarray]:
    """The point after every inner step (for GD, after every anchor)."""
    n, x, S1 = problem.n, x.copy(), None
    gradients = problem.gradients
    anchored = WEIGHTS.get(name, (1, 1, 1))[1:] != (0, 0)
    phases, j, expected = list(log), 0, None
    while phases:
        j += 1
        y, m, S = x.copy(), np.zeros_like(x), None
        if anchored:
            kind, chunks = phases.pop(0)
            samples = [i for chunk in chunks for i in chunk]
            assert kind == "anchor"
            assert len(set(samples)) == len(samples) == (expected or len(samples))
            m = gradients(y)[samples].mean(0)
            S = chunk_variance([gradients(y)[c] for c in chunks], n) if len(chunks) > 1 else None
            S1 = S if S1 is None else S1
        if name == "vcsg":
            B, b, eta, regime, expected = vcsg_sizes(j, n, S, S1, options)
        else:
            B, b, eta = sizes(name, j, n, options)
            expected = sizes(name, j + 1, n, options)[0]
            assert not anchored or len(samples) == B
        eta /= L
        if name == "gd":
            x = x - eta * m
            yield x.copy()
            continue
        if phases and phases[0][0] == "inner":
            for batch in phases.pop(0)[1]:
                assert len(set(batch)) == len(batch) == b
                gx, gy = gradients(x)[batch].mean(0), gradients(y)[batch].mean(0)
                if name == "vcsg":
                    v = vcsg_direction(regime, options.get("comparison", "norm"), gx, gy, m)
                else:
                    a, w, c = WEIGHTS[name]
                    v = a * gx + w * gy + c * m
                x = x - eta * v
                yield x.copy()
