"""The laws of every draw, tested as distributions, and the exactness of what an anchor's chunks estimate.

Each chi-square test fails a correct implementation with probability 1e-6 for a random seed; the seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from quadratic import quadratic

import vcsg
from vcsg.run.randomness import seeded
from vcsg.run.sampling import Phase, draw_batch, draw_geometric, draw_minibatches, stream
from vcsg.run.variance import AnchorSum, chunks


def take(total: AnchorSum, mean: torch.Tensor, size: int, loss: float, gradient: torch.Tensor) -> torch.Tensor:
    """Count a chunk, and return the mean gradient with it."""
    deviation = gradient - mean
    total.take(size, loss, deviation.square().sum().item())
    return mean + deviation * size / total.samples


def fits(observed: dict, expected: dict[object, float]) -> bool:
    """Pearson's chi-square at the level 1e-6, by the Wilson–Hilferty approximation of its quantile."""
    total = sum(observed.values())
    assert not set(observed) - set(expected)
    statistic = sum((observed.get(k, 0) - total * q) ** 2 / (total * q) for k, q in expected.items())
    freedom = len(expected) - 1
    quantile = freedom * (1 - 2 / (9 * freedom) + 4.753 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic < quantile


def test_the_test_of_fit_rejects_a_wrong_law() -> None:
    rng = np.random.default_rng(0)
    assert not fits(Counter(rng.integers(6, size=20_000) // 1), {k: (k + 10) / 75 for k in range(6)})


@pytest.mark.parametrize(("B", "b"), [(1, 1), (10, 1), (7, 3), (2, 5)])
def test_geometric_law(B: int, b: int) -> None:
    """P(N = k) = γ^k(1−γ), γ = B/(B+b), from 0 on; the tail from 12 on in one cell."""
    rng = np.random.default_rng(1)
    draws = Counter(min(draw_geometric(rng, B, b), 12) for _ in range(20_000))
    gamma = B / (B + b)
    law = {k: gamma**k * (1 - gamma) for k in range(12)} | {12: gamma**12}
    assert fits(draws, {k: q for k, q in law.items() if 20_000 * q > 1} | {k: q for k, q in law.items() if draws[k]})


@pytest.mark.parametrize(("n", "size"), [(5, 2), (4, 3), (3, 1), (9, 3)])
def test_minibatches_are_uniform_without_replacement(n: int, size: int) -> None:
    """Both branches: rejection where size² ≤ n, permutations elsewhere. All ordered samples are equally likely."""
    rows = draw_minibatches(np.random.default_rng(2), n, 30_000, size)
    law = {p: 1 / math.perm(n, size) for p in itertools.permutations(range(n), size)}
    assert fits(Counter(map(tuple, rows.tolist())), law)


@pytest.mark.parametrize(("n", "size"), [(4, 2), (4, 4), (5, 3)])
def test_batches_are_uniform_without_replacement(n: int, size: int) -> None:
    rng = np.random.default_rng(3)
    law = {p: 1 / math.perm(n, size) for p in itertools.permutations(range(n), size)}
    assert fits(Counter(tuple(draw_batch(rng, n, size).tolist()) for _ in range(20_000)), law)


def test_reservoir_law() -> None:
    """x̃_j is returned with probability ∝ η_j·B_j/b_j. SCSG has unequal weights; the point is set to j in epoch j, so
    that the output tells its epoch. After three epochs B = 1, 3, 6 and η ∝ B^{-2/3}: weights B^{1/3}."""
    outputs: Counter[int] = Counter()
    for seed in range(1200):
        p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = vcsg.SCSG([p], n=8, L=1.0, output="weighted", seed=seed)

        def closure(p: torch.nn.Parameter = p) -> torch.Tensor:
            loss = 1 + 0 * p.sum()
            loss.backward()
            return loss

        while optimizer.epoch < 4:
            before = optimizer.epoch
            next(iter(optimizer.sampler))
            optimizer.step(closure)
            if optimizer.epoch != before:
                p.data.fill_(before)
        optimizer.load_output()
        outputs[int(p.item())] += 1
    weights = [1.0, 3 ** (1 / 3), 6 ** (1 / 3)]
    assert fits(outputs, {j + 1: w / sum(weights) for j, w in enumerate(weights)})


def test_streams_are_distinct_and_repeatable() -> None:
    draws = [stream(s, purpose, c).integers(2**62) for s in (0, 1) for purpose in ("samples", "output") for c in (0, 1)]
    assert len(set(draws)) == 8
    assert draws[0] == stream(0, "samples", 0).integers(2**62)


def test_a_phase_is_cut_into_nearly_equal_batches() -> None:
    for count, total in ((8, 60), (3, 3), (7, 50), (1, 9)):
        phase = Phase("anchor", 1, count, total, n=60, seed=0)
        parts = [phase.indices[phase.bounds(k)].tolist() for k in range(count)]
        assert [len(q) for q in parts] == [phase.size(k) for k in range(count)]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert len(set(itertools.chain(*parts))) == total


def test_seeded_repeats_and_puts_back() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(9):
        first = torch.rand(3)
    with seeded(9):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.rand(3), expected)


# --- S* and ‖∇f‖² from chunks


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 1, 1), (2, 2), (3, 1), (2, 2, 1), (1,) * 5])
def test_chunk_estimates_are_unbiased_by_enumeration(sizes: tuple[int, ...]) -> None:
    """Over all ordered draws of B of 5 samples, the mean of S* and of the estimate of ‖∇f‖² is the true one."""
    problem, x = quadratic(n=5, d=3, seed=7), np.array([1.0, -0.5, 0.3])
    gradients = problem.gradients(x)
    found = []
    for order in itertools.permutations(range(5), sum(sizes)):
        total, mean = AnchorSum(), torch.zeros(3, dtype=torch.float64)
        start = 0
        for size in sizes:
            part = torch.from_numpy(gradients[list(order[start : start + size])].mean(0))
            mean = take(total, mean, size, 1.0, part)
            start += size
        anchor = total.close(5, mean.square().sum().item())
        np.testing.assert_allclose(mean, gradients[list(order)].mean(0), rtol=1e-12)
        found.append((anchor.variance, anchor.gradient_norm2))
    variance, norm2 = np.mean(found, 0)
    np.testing.assert_allclose(variance, np.trace(problem.covariance(x)), rtol=1e-10)
    np.testing.assert_allclose(norm2, problem.norm2(x), rtol=1e-10)
    if sizes == (1,) * 5:
        np.testing.assert_allclose(found, [(np.trace(problem.covariance(x)), problem.norm2(x))] * 120, rtol=1e-10)


def test_small_variance_does_not_cancel() -> None:
    """Gradients of norm 1e4 that differ by 1e-2, in float32: Σ‖g_k‖² − K‖g‖² would be all rounding."""
    rng = np.random.default_rng(0)
    deviations = rng.normal(size=(64, 100)) * 1e-2
    gradients = torch.from_numpy(1e3 + deviations).float()
    total, mean = AnchorSum(), torch.zeros(100)
    for g in gradients:
        mean = take(total, mean, 1, 0.0, g)
    expected = gradients.double().var(0, unbiased=False).sum().item()
    assert total.close(64, mean.square().sum().item()).variance == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("least", [1, 2, 5])
@pytest.mark.parametrize("largest", [1, 7, 256, 1000])
def test_chunks_cover_an_anchor(largest: int, least: int) -> None:
    most = max(largest, least)
    for B in range(1, 9 * most + 50):
        sizes = chunks(B, largest, least)
        assert sum(sizes) == B
        assert min(least, B) <= min(sizes) <= max(sizes) < most + least
        assert 8 <= len(sizes) <= max(9, B // most + 1) if B >= 8 * least else len(sizes) == max(1, B // least)
        if max(sizes) >= 4 * least:  # the largest are at most twice as large as the others, but for the last two
            assert min(sizes) >= max(sizes) // 4
            assert min(sizes[:-2]) >= max(sizes) // 2


def test_chunks_of_all_anchors_have_few_sizes() -> None:
    """But for the last one, which takes what is left."""
    assert chunks(1000, 1024) == (*[128] * 7, 64, 40)
    assert chunks(8200, 1024) == (*[1024] * 7, 512, 520)
    assert chunks(60_000, 1024) == (*[1024] * 58, 608)
    assert {size for B in range(1, 60_001) for size in chunks(B, 1024)[:-1]} == {2**k for k in range(11)}


@pytest.mark.parametrize("chunk", [3, 256])
def test_per_sample_against_one_gradient_at_a_time(chunk: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).double()
    X, Y = torch.randn(10, 4, dtype=torch.float64), torch.randint(0, 3, (10,))
    loss = torch.nn.functional.cross_entropy
    rows = []
    for i in range(10):
        found = torch.autograd.grad(loss(model(X[i : i + 1]), Y[i : i + 1]), list(model.parameters()))
        rows.append(torch.cat([g.flatten() for g in found]))
    G = torch.stack(rows)
    exact = vcsg.per_sample(model, loss, (X, Y), chunk)
    torch.testing.assert_close(torch.cat([g.flatten() for g in exact.gradient.values()]), G.mean(0))
    assert exact.variance == pytest.approx(G.var(0, unbiased=False).sum().item())
    assert exact.gradient_norm2 == pytest.approx(G.mean(0).square().sum().item())


def test_the_optimizer_measures_what_per_sample_finds() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3)).double()
    X, Y = torch.randn(40, 4, dtype=torch.float64), torch.randint(0, 3, (40,))
    exact = vcsg.per_sample(model, torch.nn.functional.cross_entropy, (X, Y))
    optimizer = vcsg.SVRG(model.parameters(), n=40, variance="exact", L=1.0)
    for x, y in optimizer.batches((X, Y), passes=1):

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert optimizer.record is not None
    assert optimizer.record.variance == pytest.approx(exact.variance, rel=1e-9)
    assert optimizer.record.gradient_norm2 == pytest.approx(exact.gradient_norm2, rel=1e-9)
