"""Every registered method through one grid: its floor, its bias, its count, its trajectory, its state, its errors."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import reference
import torch
from quadratic import Quadratic, closure, parameter, quadratic, run, smoothness, steps, subsets

import vcsg
from vcsg import FiniteSumOptimizer
from vcsg.method import weights
from vcsg.method.weights import Constant, Weights
from vcsg.run.estimator import combine

METHODS = sorted(vcsg.methods())

# Where a method's default leaves nothing to test at this size: SGD and those that end like it would take the whole of
# a small n as their mini-batch; VCSG is asked for a target below the floor of the grid, so that it must end in its
# second regime.
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {"b": 2},
    "growing-svrg": {"b": 2},
    "storm": {"b": 2},
    "alpha-svrg": {"b": 2, "epochs": 2},
    "vcsg": {"eps": 1e-12},
    **{name: {"b": 2} for name in reference.REMEMBERING},
}

ALG_4: list[dict[str, Any]] = [
    {"paper": True, "comparison": comparison, "eps": 0.05, "B_min": 8, **more}
    for comparison in ("norm", "lemma", "elementwise", "never")
    for more in ({}, {"first_epoch": False, "sigma": 1.0, "rho": 0.99, "K": 3.0, "b_min": 2})
]
CASES = [(name, OPTIONS.get(name, {})) for name in METHODS]
STEADY: list[dict[str, Any]] = [
    {},
    {"B_min": 4, "b_min": 2, "memory": 2},
    {"eps": 0.5, "B_min": 4, "b_min": 3, "first_epoch": True},
    {"eps": 1e-3, "B_min": 8, "b_min": 2, "bounded": False, "memory": 1},
]
CASES += [("vcsg", options) for options in (*ALG_4, {"paper": True}, *STEADY)]
CASES += [("alpha-svrg", {"epochs": 3, "b": 5}), ("spider", {"b": 3}), ("storm", {"a": 0.3, "b": 2})]
CASES += [
    ("saga", {"b": 7}),
    ("svrg", {"b": 3}),
    ("scsg", {"b": 3}),
    ("batching-svrg", {"B": 20, "b": 2}),
    ("growing-svrg", {"B": 8, "growth": 2.0, "b": 3}),
    ("biased-svrg", {"B": 33}),
    ("momentum", {"beta": 0.5}),
    ("adam", {"beta": 0.6, "beta2": 0.9, "eps": 1e-3, "b": 7}),
    ("mars", {"beta": 0.8, "scaling": 0.5, "beta2": 0.95, "b": 3}),
    ("auto", {}),
]


def make(
    name: str, p: torch.nn.Parameter, n: int, L: float | None = None, lr: float | None = None, **options: Any
) -> FiniteSumOptimizer:
    return FiniteSumOptimizer([p], n, name, lr=lr, **smoothness(name, L), **options)


# --- the floor on least squares -----------------------------------------------------


def vanishing(method: vcsg.Method) -> bool:
    """v = 0 at x = y = x* with a full anchor."""
    second = [method.weights["second"]] if "second" in method.weights else list(method.weights.values())
    return all(w.vanishing for rule in second for w in rule.choices)


@pytest.mark.parametrize("name", [m for m in METHODS if vanishing(vcsg.methods()[m])])
def test_converges_where_the_estimator_vanishes_at_the_minimum(name: str) -> None:
    problem, p = quadratic(), parameter()
    optimizer = make(name, p, problem.n, L=problem.L, **OPTIONS.get(name, {}))
    x = run(problem, optimizer, p, until=lambda _: problem.norm2(p.detach().numpy()) <= 1e-9, passes=2000)
    assert problem.norm2(x) <= 1e-8


def test_the_two_kinds_of_floor_cover_all_methods() -> None:
    noisy = {m for m in METHODS if not vanishing(vcsg.methods()[m])}
    assert noisy == {"sgd", "paper-sgd", "weighted-svrg", "alpha-svrg", "storm", *reference.REMEMBERING}


Maps = list[tuple[np.ndarray, np.ndarray]]
"""z ← Mz + k, one (M, k) for each equally likely mini-batch."""


def covariances(steps: Iterable[Maps], size: int) -> Iterator[np.ndarray]:
    """E zzᵀ after each step from z = 0, exactly."""
    cov = np.zeros((size, size))
    for maps in steps:
        cov = np.mean([M @ cov @ M.T + np.outer(k, k) for M, k in maps], 0)
        yield cov


def minibatches(problem: Quadratic, b: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(H_I, ∇f_I(x*)) of every mini-batch: ∇f_I(x* + z) = H_I z + ∇f_I(x*)."""
    gradients = problem.gradients(problem.minimum)
    return [(problem.A[g].T @ problem.A[g] / b, gradients[g].mean(0)) for g in subsets(problem.n, b)]


def sgd_maps(problem: Quadratic, b: int, step: float) -> Maps:
    eye = np.eye(problem.A.shape[1])
    return [(eye - step * H, -step * g) for H, g in minibatches(problem, b)]


def moving_maps(problem: Quadratic, b: int, eta: np.ndarray, weights: Weights) -> Maps:
    """z = (x_t − x*, x_{t−1} − x*, d_{t−1}), with d_t = a∇f_I(x_t) + b∇f_I(x_{t−1}) + cd_{t−1} and x − diag(η)d_t."""
    d, maps = problem.A.shape[1], []
    eye, zero, scale = np.eye(d), np.zeros((d, d)), np.diag(eta)
    for H, g in minibatches(problem, b):
        direction = np.hstack([weights.now * H, weights.anchor * H, weights.mean * eye])
        M = np.vstack([np.hstack([eye, zero, zero]) - scale @ direction, np.hstack([eye, zero, zero]), direction])
        noise = (weights.now + weights.anchor) * g
        maps.append((M, np.concatenate([-scale @ noise, np.zeros(d), noise])))
    return maps


def level(problem: Quadratic, cov: np.ndarray) -> float:
    """E‖∇f(x* + z)‖²."""
    d = problem.A.shape[1]
    return float(np.trace(problem.hessian @ cov[:d, :d] @ problem.hessian))


@pytest.mark.parametrize("name", ["sgd", "paper-sgd"])
def test_sgd_has_the_noise_level_of_the_exact_covariance(name: str) -> None:
    """200 runs, averaged over 24 steps. ‖∇f‖² of one step spreads about as its mean and neighbouring steps are
    correlated, so the mean of 200 independent runs has a relative error of at most 1/√200 = 7 %: the factor 1.4
    is over five standard errors (failing probability below 1e-6), and a wrong a, b or η shifts the level by 2 or more.
    """
    problem, b = quadratic(n=12, d=2), 2
    scale = vcsg.methods()[name].choices[0].now / 3 / problem.L
    etas = [scale if name == "sgd" else scale / math.sqrt(problem.n) / (1 + k // 6) for k in range(24)]
    measured = []
    for seed in range(200):
        p = parameter(problem.minimum)
        optimizer = make(name, p, problem.n, L=problem.L, seed=seed, **OPTIONS.get(name, {}))
        measured += [problem.norm2(p.detach().numpy()) for _ in steps(problem, optimizer, p, ifo=24 * b)]
    expected = [level(problem, cov) for cov in covariances((sgd_maps(problem, b, eta) for eta in etas), 2)]
    assert 1 / 1.4 < np.mean(measured) / np.mean(expected) < 1.4


@pytest.mark.parametrize("name", ["storm", "alpha-svrg"])
def test_what_ends_like_sgd_has_the_stationary_noise_of_the_exact_covariance(name: str) -> None:
    """A long run against the fixed point of the covariance. The correlation time is below 10 steps, so the average of
    12,000 steps has a relative error of about √2/√1200 = 4 %: the factor 1.25 is over five of them.
    """
    problem, b = quadratic(n=12, d=2), 2
    p = parameter(problem.minimum)
    optimizer = make(name, p, problem.n, L=problem.L, **OPTIONS[name])
    cost = 2 * b if name == "storm" else b
    measured = [problem.norm2(p.detach().numpy()) for _ in steps(problem, optimizer, p, ifo=12_000 * cost)]
    eta = 1 / 3 / problem.L
    storm = Weights(1, -0.7, 0.7)
    maps = moving_maps(problem, b, np.full(2, eta), storm) if name == "storm" else sgd_maps(problem, b, eta)
    *_, cov = covariances(itertools.repeat(maps, 300), len(maps[0][1]))
    assert 1 / 1.25 < np.mean(measured[500:]) / level(problem, cov) < 1.25


@pytest.mark.parametrize("name", sorted(reference.REMEMBERING))
def test_memory_of_the_last_direction_has_the_stationary_noise_of_the_exact_covariance(name: str) -> None:
    """An adaptive step is, at a minimum, a plain one with η_i/√E(∇_i f_I)²; the second moment is that of the noise but
    for 1 + ηh/(2√s), 2 % here. The correlation time is below 40 steps, so the average of 10,000 steps in two dimensions
    has a relative error of about √2/√500 = 6 %: the factor 1.4 is over five of them.
    """
    problem, b = quadratic(n=12, d=2), 2
    p = parameter(problem.minimum)
    noise = np.sqrt(np.mean([g**2 for _, g in minibatches(problem, b)], 0))
    method = vcsg.make(name, **OPTIONS[name])
    step = 0.05 * noise.min() / np.linalg.eigvalsh(problem.hessian).max()
    share = 1 / 30 if name in ("muon", "auto") else 1.0
    optimizer = make(name, p, problem.n, lr=step / share, **OPTIONS[name])
    cost = 2 * b if name == "mars" else b
    measured = [problem.norm2(p.detach().numpy()) for _ in steps(problem, optimizer, p, ifo=10_000 * cost)]
    eta = np.full(2, step) if method.needs_L else step / noise
    maps = moving_maps(problem, b, eta, method.choices[0])
    *_, cov = covariances(itertools.repeat(maps, 1500), len(maps[0][1]))
    assert 1 / 1.4 < np.mean(measured[1000:]) / level(problem, cov) < 1.4


@pytest.mark.parametrize("lam", [0.1, (15 - math.sqrt(97)) / 16, 0.8])
def test_weighted_svrg_stalls_at_the_noise_of_its_weights(lam: float) -> None:
    """At x = y = x* Alg 2 leaves (1−2λ)∇f_I(x*), against a drift of (1−λ)H(x − x*). To first order in the step
    E‖∇f‖² = η(1−2λ)²tr(HC_b)/(2(1−λ)), with C_b the covariance of a mini-batch drawn without replacement. The time
    average over some thousand correlation times has an error of a few per cent; second order in η adds about ten more:
    within a factor 1.5.
    """
    problem = quadratic(n=12, d=2)
    p = parameter(problem.minimum)
    optimizer = make("weighted-svrg", p, problem.n, L=problem.L, lam=lam)
    levels = [problem.norm2(p.detach().numpy()) for _ in steps(problem, optimizer, p, passes=2500)]
    b, eta = 2, math.sqrt(2 / 12) / 3 / problem.L
    C = problem.covariance(problem.minimum) / b * (problem.n - b) / (problem.n - 1)
    expected = eta * (1 - 2 * lam) ** 2 * np.trace(problem.hessian @ C) / (2 * (1 - lam))
    assert 1 / 1.5 < np.mean(levels[500:]) / expected < 1.5


# --- the estimator ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_expectation_and_bias_by_enumeration(name: str, options: dict[str, Any]) -> None:
    """The step from one state for every mini-batch of a tiny problem: its mean, against the weights of the table."""
    problem = quadratic(n=7, d=3, seed=3)
    p = parameter(d=3)
    optimizer = make(name, p, 7, L=problem.L, **{**options, **({"B": 7} if "B" in options else {}), "seed": 4})
    if name == "gd":
        run(problem, optimizer, p, passes=1)
        np.testing.assert_allclose(p.detach(), 2 - problem.gradient(np.full(3, 2.0)) / problem.L, rtol=1e-12)
        return
    for _ in steps(problem, optimizer, p, passes=200):
        apart = optimizer._state.position or optimizer.method.anchor_step
        if optimizer.phase.kind == "inner" and apart and optimizer.epoch > 1:
            break
    state, x = saved(optimizer), p.detach().numpy().copy()
    place = state["vcsg"]["state"]
    position, depth = place["position"], place["depth"]
    level = min(place["plan"]["levels"][position] - 1, depth) if place["plan"]["levels"] else depth
    y, m = held(optimizer, p, "anchor", level), held(optimizer, p, "mean", level)
    b = optimizer.phase.size(position)
    groups = subsets(7, b) if not optimizer.method.table else table_blocks(optimizer)
    taken = []
    for k, group in enumerate(groups):
        optimizer.load_state_dict(state)
        if optimizer.method.table:
            optimizer.phase.__dict__["_blocks"] = np.full(optimizer.phase.count, k)
        with torch.no_grad():
            p.copy_(torch.from_numpy(x))
        next(iter(optimizer.sampler))
        optimizer.step(closure(p, tuple(t[group] for t in problem.data)))
        if optimizer.method.needs_L:
            eta = optimizer.method.gamma / problem.L * place["plan"]["factor"]
            taken.append((x - p.detach().numpy()) / eta)
        else:  # a step that is no multiple of v: v itself
            assert p.grad is not None
            taken.append(p.grad.numpy().copy())
    mean = np.mean(taken, 0)
    rule = optimizer.method.weights[place["plan"]["regime"]].at(place["epoch"])
    if optimizer.method.table:
        np.testing.assert_allclose(mean, problem.gradient(x), rtol=1e-9)
    elif isinstance(rule, Constant):
        a, w, c = rule.weights
        np.testing.assert_allclose(mean, a * problem.gradient(x) + w * problem.gradient(y) + c * m, rtol=1e-9)
        if optimizer.method.unbiased:
            np.testing.assert_allclose(mean, problem.gradient(x) + c * (m - problem.gradient(y)), rtol=1e-9)
    else:
        test, here, there = options.get("comparison", "norm"), problem.gradients(x), problem.gradients(y)
        expected = [reference.vcsg_direction("first", test, here[g].mean(0), there[g].mean(0), m) for g in groups]
        np.testing.assert_allclose(mean, np.mean(expected, 0), rtol=1e-9)


def held(optimizer: FiniteSumOptimizer, p: torch.nn.Parameter, name: str, level: int) -> np.ndarray:
    """The anchor point or mean of that level; zero where the method has none."""
    found = optimizer.state[p].get(f"{name}{level or ''}") if level >= 0 else None
    return np.zeros(len(p)) if found is None else found.numpy().copy()


def table_blocks(optimizer: FiniteSumOptimizer) -> list[list[int]]:
    phase = optimizer.phase
    ends = [k * phase.n // phase.blocks for k in range(phase.blocks + 1)]
    return [phase.indices[i:j].tolist() for i, j in itertools.pairwise(ends)]


# --- the count ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@pytest.mark.parametrize("L", [None, 1.0])
def test_every_gradient_is_counted(name: str, options: dict[str, Any], L: float | None) -> None:
    problem, p = quadratic(), parameter()
    optimizer = make(name, p, problem.n, L=L, **options)
    calls = 0
    for batch in optimizer.batches(problem.data, passes=12):
        inner = closure(p, batch)

        def counting(inner: Any = inner, size: int = len(batch[0])) -> torch.Tensor:
            nonlocal calls
            calls += size
            return inner()

        optimizer.step(counting)
        assert optimizer.ifo == calls
    assert optimizer.passes == calls / problem.n >= 12


# --- the trajectory -----------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_trajectory_of_the_plain_reference(name: str, options: dict[str, Any]) -> None:
    problem, p = quadratic(), parameter()
    optimizer = make(name, p, problem.n, L=problem.L, chunk=9, **options)
    log: reference.Log = []
    points: list[np.ndarray] = []
    number = None
    for batch in optimizer.batches(problem.data, passes=40):
        if optimizer.phase.number != number:
            number = optimizer.phase.number
            log.append((optimizer.phase.kind, []))
        log[-1][1].append(batch[2].tolist())
        complete = optimizer._state.position + 1 == optimizer.phase.count
        moved = log[-1][0] == "inner" or (name == "gd" and complete)
        optimizer.step(closure(p, batch))
        if moved:
            points.append(p.detach().numpy().copy())
    if log[-1][0] == "anchor" and not complete:
        log.pop()
    expected = list(reference.replay(problem, name, np.full(4, 2.0), problem.L, log, **options))
    assert len(points) >= 15
    np.testing.assert_allclose(points, expected, rtol=1e-9, atol=1e-12)


# --- the state ----------------------------------------------------------------------


def saved(optimizer: FiniteSumOptimizer) -> dict[str, Any]:
    """The state as it comes back from a file."""
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def same(left: Any, right: Any) -> bool:
    """Bit for bit, NaN equal to NaN."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right or (left != left and right != right)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@pytest.mark.parametrize("L", [None, 1.0])
def test_state_dict_round_trip_at_every_step_of_two_epochs(name: str, options: dict[str, Any], L: float | None) -> None:
    """From each state one step must lead to the very next one, which by induction is the whole run. Dropout and the
    weighted output bring in the closure's randomness and the reservoir."""
    problem = quadratic(n=36, d=3)
    options = {**options, "L": L, "output": "weighted"}
    p = parameter(d=3)
    optimizer = make(name, p, 36, **options)
    states, points = [saved(optimizer)], [p.detach().clone()]
    for _ in steps(problem, optimizer, p, dropout=0.3, until=lambda record: record.epoch == 3):
        states.append(saved(optimizer))
        points.append(p.detach().clone())
    optimizer.load_output()
    output = p.detach().clone()
    for state, x, next_state, next_x in zip(states, points, states[1:], points[1:], strict=False):
        q = torch.nn.Parameter(x.clone())
        resumed = make(name, q, 36, **options)
        resumed.load_state_dict(state)
        next(steps(problem, resumed, q, dropout=0.3, passes=math.inf))
        assert torch.equal(q, next_x)
        assert same(saved(resumed), next_state)
    resumed.load_output()
    assert torch.equal(q, output)


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (700, 300), (1, 90_000)])
@pytest.mark.parametrize("test", sorted(weights.TESTS))
def test_a_test_chooses_between_its_two_triples(test: str, shape: tuple[int, ...]) -> None:
    """v against the formula written out, for tensors that are combined whole and in pieces."""
    generator = torch.Generator().manual_seed(3)
    x, y, m = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    rule = weights.Tested(test, weights.weighted(0.3), Weights(0.5, -0.5, 0.5))
    holds = {
        "norm": x.square().sum() < y.square().sum(),
        "lemma": y.square().sum() >= 1.4 * (x * y).sum(),
        "elementwise": x < y,
    }[test]
    expected = torch.where(holds, 0.7 * x - 0.3 * y + 0.3 * m, 0.5 * x - 0.5 * y + 0.5 * m)
    v = x.clone()
    combine(rule, [v], [y.clone()], [m])
    torch.testing.assert_close(v, expected, rtol=0, atol=1e-14)
