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
    "growing-svrg": (1, -1, 1),
    "batching-svrg": (1, -1, 1),
    "paper-svrg": (0.5, -0.5, 0.5),
    "weighted-svrg": (1 - LAM, -LAM, LAM),
    "biased-svrg": (3 / 8, -3 / 8, 5 / 8),
    "spider": (1, -1, 1),
    "page": (1, -1, 1),
    "storm": (1, -0.7, 0.7),
}
REMEMBERING = {
    "momentum": {"beta": 0.9},
    "adam": {"beta": 0.9, "beta2": 0.999, "rate": 1e-3},
    "muon": {"beta": 0.95, "beta2": 0.999, "rate": 0.01 / 30},
    "mars": {"beta": 0.95, "beta2": 0.99, "rate": 1e-3, "scaling": 0.025},
    "auto": {"beta": 0.9, "beta2": 0.999, "rate": 0.01 / 30, "decay": 0.1},
}
"""Methods whose memory is the last v, with their constants; without a `rate` the step is 1/(3L)."""


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
    if name in ("spider", "page"):
        return n, b or round(math.sqrt(n)), 1 / 2
    if name in ("storm", "alpha-svrg"):
        return n, b or min(64, n), 1 / 3
    if name == "saga":
        return n, b or 1, 1 / 3
    B = options.get("B") or n
    b = b or max(1, round(B**0.25))
    return B, b, math.sqrt(b / B) / 3


def vcsg_sizes(j: int, n: int, found: list[float], options: dict) -> tuple[int, int, float, str, int]:
    """(B_j, b_j, η_j·L, regime, size of the next anchor) of Alg 4, from the S* of all anchors so far."""
    paper = options.get("paper", False)
    K, rho = options.get("K", 12), options.get("rho", 0.9)
    S, S1 = max(found[-options.get("memory", 1 if paper else 4) :]), found[0]
    fixing = S1 if paper else found[min(1, j - 1)]
    eps = options.get("eps") or K * fixing / (n / 100)
    sigma = options["sigma"] if options.get("sigma") is not None else fixing
    term1 = K * S / eps
    term2 = n * S / (S + 0.14 * math.sqrt(n) * sigma * rho ** (2 * j))
    B = math.ceil(min(term1, term2))
    B = min(max(B, options.get("B_min", 32 if paper else max(32, math.ceil(n / 10)))), n)
    floor, gamma = options.get("b_min", 1 if paper else min(16, n)), 1 / 3 if paper else 2 / 3
    if j == 1 and options.get("first_epoch", paper):
        b = round(n**0.25)
        return n, max(b, floor), gamma * min(1.0, max(b, floor) / b / math.sqrt(n)), "start", B
    if term1 <= term2:
        return B, max(round(B**0.25), floor), gamma, "first", B
    return B, max(1, floor), gamma * min(1.0, max(1, floor) / math.sqrt(B)), "second", B


def growing_sizes(j: int, n: int, ratio: float, options: dict) -> tuple[int, int, float, int]:
    """(B_j, b_j, η_j·L, size of the next anchor) of growing SVRG."""
    first, growth = options.get("B", 1024), options.get("growth", 4)
    sizes = [first * growth**k * ratio for k in (j - 1, j)]
    B, following = (n if s > n / 2 else max(math.ceil(s), min(first, n)) for s in sizes)
    return B, min(options.get("b", 8), n), 1.0, following


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
    if name == "saga":
        yield from replay_saga(problem, x, L, log, options.get("b", 1))
    elif name == "snvrg":
        yield from replay_snvrg(problem, x, L, log)
    elif name in REMEMBERING:
        yield from replay_remembering(problem, name, x, L, log, **options)
    else:
        yield from replay_anchored(problem, name, x, L, log, **options)


def replay_anchored(problem, name: str, x: np.ndarray, L: float, log: Log, **options) -> Iterator[np.ndarray]:
    n, x, variances = problem.n, x.copy(), []
    gradients = problem.gradients
    phases, j, expected = list(log), 0, None
    y = m = None
    while phases:
        j += 1
        if name == "alpha-svrg":
            alpha = options.get("alpha", 0.75) * max(0, 1 - (j - 1) / options.get("epochs", 30))
            weights = (1, -alpha, alpha)
        else:
            weights = WEIGHTS.get(name, (1, 1, 1))
        anchored = any(weights[1:]) and not (name == "storm" and j > 1)
        S = None
        if anchored:
            kind, chunks = phases.pop(0)
            samples = [i for chunk in chunks for i in chunk]
            assert kind == "anchor"
            assert len(set(samples)) == len(samples) == (expected or len(samples))
            y = x.copy()
            m = gradients(y)[samples].mean(0)
            S = chunk_variance([gradients(y)[c] for c in chunks], n) if len(chunks) > 1 else None
            variances.append(S)
        if name == "vcsg":
            B, b, eta, regime, expected = vcsg_sizes(j, n, variances, options)
        elif name == "growing-svrg":
            B, b, eta, expected = growing_sizes(j, n, S / variances[0], options)
        else:
            B, b, eta = sizes(name, j, n, options)
            expected = sizes(name, j + 1, n, options)[0]
            assert not anchored or len(samples) == B
        eta /= L
        if name == "gd" or (name in ("spider", "page", "storm") and anchored):
            x = x - eta * m
        if name == "gd":
            yield x.copy()
        if phases and phases[0][0] == "inner":
            for batch in phases.pop(0)[1]:
                assert len(set(batch)) == len(batch) == b
                gx = gradients(x)[batch].mean(0)
                gy = gradients(y)[batch].mean(0) if weights[1] else 0
                if name == "vcsg":
                    v = vcsg_direction(regime, options.get("comparison", "norm"), gx, gy, m)
                else:
                    v = weights[0] * gx + weights[1] * gy + (weights[2] * m if weights[2] else 0)
                if name in ("spider", "page", "storm"):
                    y, m = x, v
                x = x - eta * v
                yield x.copy()


def replay_saga(problem, x: np.ndarray, L: float, log: Log, b: int) -> Iterator[np.ndarray]:
    """The table is kept by sample, the mean recomputed from the whole table at every step."""
    n, x = problem.n, x.copy()
    (kind, blocks), *rest = log
    assert kind == "anchor"
    assert sorted(i for block in blocks for i in block) == list(range(n))
    assert max(map(len, blocks)) <= b
    table = problem.gradients(x).copy()
    for block in blocks:
        table[block] = table[block].mean(0)
    for _, batches in rest:
        for batch in batches:
            assert batch in blocks
            g = problem.gradients(x)[batch].mean(0)
            weight = len(batch) * len(blocks) / n
            v = weight * (g - table[batch[0]]) + table.mean(0)
            table[batch] = g
            x = x - v / (3 * L)
            yield x.copy()


def replay_remembering(problem, name: str, x: np.ndarray, L: float, log: Log, **options) -> Iterator[np.ndarray]:
    """Moments m and s of gradients c, which MARS corrects by the point before; vectors have no orthogonal step."""
    given = {**REMEMBERING[name], **options}
    beta, beta2, scaling = given["beta"], given.get("beta2", 0.0), given.get("scaling", 0.0)
    b, eps = given.get("b") or min(256 if name == "auto" else 64, problem.n), given.get("eps", 1e-8)
    rate = given.get("rate", 1 / (3 * L)) * (math.sqrt(max(64, given.get("b") or 256) / 256) if name == "auto" else 1)
    x, before, t = x.copy(), x.copy(), 0
    m, s = np.zeros_like(x), np.zeros_like(x)
    for kind, batches in log:
        assert kind == "inner"
        for batch in batches:
            assert len(set(batch)) == len(batch) == b
            t += 1
            g, there = (problem.gradients(point)[batch].mean(0) for point in (x, before))
            c = g + scaling * beta / (1 - beta) * (g - there)
            m = beta * m + (1 - beta) * c
            s = beta2 * s + (1 - beta2) * c**2
            before = x
            if name == "momentum":
                x = x - rate * m
            else:
                x = (1 - rate * given.get("decay", 0.0)) * x - rate * (m / (1 - beta**t)) / (
                    np.sqrt(s / (1 - beta2**t)) + eps
                )
            yield x.copy()


def replay_snvrg(problem, x: np.ndarray, L: float, log: Log) -> Iterator[np.ndarray]:
    """As its paper has it: reference points x^(l), reference gradients g^(l), v = Σ g^(l)."""
    n, x = problem.n, x.copy()
    K = int(math.log2(math.log2(n)))
    T = [2] + [2 ** (2 ** (level - 2)) for level in range(2, K + 1)]
    phases = list(log)
    while phases:
        assert phases.pop(0)[0] == "anchor"
        points, parts = [x] * (K + 1), [problem.gradient(x)] + [np.zeros_like(x)] * K
        x = x - sum(parts) / (6 * L)
        if not phases:
            return
        for t, batch in enumerate(phases.pop(0)[1], start=1):
            r = min(j for j in range(K + 1) if t % math.prod(T[j:]) == 0)
            assert len(set(batch)) == len(batch) == min(n, 6 ** (K - r + 1) * math.prod(T[r - 1 :]) ** 2)
            points = points[:r] + [x] * (K + 1 - r)
            difference = problem.gradients(points[r]) - problem.gradients(points[r - 1])
            parts = parts[:r] + [difference[batch].mean(0)] + [np.zeros_like(x)] * (K - r)
            x = x - sum(parts) / (6 * L)
            yield x.copy()
