"""Step rules and averaging: against torch's own optimizers, published formulas and exact polar factors."""

from __future__ import annotations

import copy
import logging
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.method import Adaptive, Constant, Method, Orthogonal, Plain, Weights, make
from vcsg.method.step_rules import is_matrix, step_rule
from vcsg.run import preconditioning, vectors
from vcsg.run.preconditioning import grouped, newton_schulz, polar_factors

N = 96
REMEMBERING = ("momentum", "adam", "muon", "mars", "auto")


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 3, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 7),
        nn.Tanh(),
        nn.Linear(7, 3),
    ).double()


def data() -> tuple[Tensor, Tensor]:
    X = torch.randn(N, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(
    ("step", "told"),
    [("adaptive", "adaptive steps.*times shorter. Leave"), ("orthogonal", "for all but matrices. Leave")],
)
def test_clipping_that_leaves_next_to_nothing_of_steps_is_told_once(
    step: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such steps have a length of their own, and only clipping makes them shorter with the gradient."""
    X, y = data()
    for clip_norm, steps in ((1e-6, 100), (1e-6, 31), (1e6, 100), (None, 100)):
        model = net()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="vcsg"):
            vcsg.fit(model, cross_entropy, (X, y), step=step, b=8, clip_norm=clip_norm, passes=8 * steps / N)
        messages = [record.getMessage() for record in caplog.records if "clip_norm" in record.getMessage()]
        if (clip_norm, steps) == (1e-6, 100):
            [message] = messages
            assert message.startswith("clip_norm = 1e-06, and v was ")
            assert re.search(told, message)
        else:
            assert not messages
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        vcsg.fit(net(), cross_entropy, (X, y), "sgd", b=8, lr=0.1, clip_norm=1e-6, passes=10)
    assert "clip_norm" not in caplog.text  # plain steps are as long as v is, and a bound of them is what was asked for


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_polar_factors_of_what_decays_to_nothing_stay_finite(dtype: torch.dtype) -> None:
    """As momentum does where a layer is dead. The squares of its entries vanish before they do, and not all at once."""
    matrix = torch.randn(20, 300, dtype=dtype, generator=torch.Generator().manual_seed(0))
    whole = polar_factors([matrix])[0]
    smallest = math.log10(torch.finfo(dtype).tiny)
    for k in range(0, round(-smallest) + 10):
        [found] = polar_factors([matrix * 10.0**-k])
        assert torch.linalg.matrix_norm(found, 2) < 1.3
        if k < -smallest / 2 - 3:
            assert (found - whole).abs().max() < 1e-4


def test_an_average_has_nothing_of_points_that_are_gone_back_from() -> None:
    """A loss may be finite where its gradient is not. The next step shows it; the average has that point by then."""
    calls = 0

    def objective(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        nonlocal calls
        calls += torch.is_grad_enabled()
        loss = cross_entropy(model(batch[0]), batch[1])
        return loss + (0 * loss.detach() * loss).sqrt() if calls == 30 else loss

    model = net()
    result = vcsg.fit(model, None, data(), objective=objective, b=8, passes=5)
    assert calls > 60
    assert torch.isfinite(vector(model)).all()
    assert math.isfinite(result.history[-1]["train_loss"])


def walk(optimizer: vcsg.FiniteSumOptimizer, model: nn.Module, passes: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Run, yielding the batch of every step after it was taken."""
    for x, y in optimizer.batches(data(), passes=passes):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        yield x, y


def beside(
    name: str, options: dict[str, Any], rival: Callable[[nn.Module], torch.optim.Optimizer], steps: int = 40
) -> tuple[Tensor, Tensor]:
    """Our point and that of a torch optimizer after the same mini-batches."""
    ours, theirs = net(), net()
    other = rival(theirs)
    optimizer = vcsg.FiniteSumOptimizer(ours.parameters(), N, name, **options)
    for k, (x, y) in enumerate(walk(optimizer, ours, passes=1000), 1):
        other.zero_grad()
        cross_entropy(theirs(x), y).backward()
        other.step()
        if k == steps:
            break
    return vector(ours), vector(theirs)


def test_momentum_is_torchs_sgd() -> None:
    found, expected = beside(
        "momentum", {"lr": 0.2, "b": 8}, lambda m: torch.optim.SGD(m.parameters(), 0.02, momentum=0.9)
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"beta": 0.8, "beta2": 0.95, "eps": 1e-4}], ids=str)
def test_adam_is_torchs_adam(options: dict[str, float]) -> None:
    betas, eps = (options.get("beta", 0.9), options.get("beta2", 0.999)), options.get("eps", 1e-8)
    found, expected = beside(
        "adam", {"lr": 0.01, "b": 8, **options}, lambda m: torch.optim.Adam(m.parameters(), 0.01, betas=betas, eps=eps)
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_decoupled_decay_is_that_of_adamw() -> None:
    found, expected = beside(
        "adam",
        {"lr": 0.01, "b": 8, "decoupled_weight_decay": 0.3},
        lambda m: torch.optim.AdamW(m.parameters(), 0.01, weight_decay=0.3),
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_muon_is_torchs_muon_on_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.optim.Muon is for 2-D parameters, and iterates in bfloat16: here in float64, as ours does on a CPU."""
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)
    monkeypatch.setattr(torch, "bfloat16", torch.float64)
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(16, 12, bias=False), nn.Tanh(), nn.Linear(12, 3, bias=False)).double()
    theirs = copy.deepcopy(ours)
    other = torch.optim.Muon(theirs.parameters(), lr=0.02, momentum=0.95, nesterov=False, weight_decay=0.3)
    optimizer = vcsg.Muon(ours.parameters(), N, lr=0.02, b=8, decoupled_weight_decay=0.3)
    for k, (x, y) in enumerate(walk(optimizer, ours, passes=1000), 1):
        other.zero_grad()
        cross_entropy(theirs(x), y).backward()
        other.step()
        if k == 30:
            break
    torch.testing.assert_close(vector(ours), vector(theirs), rtol=1e-7, atol=1e-9)


def test_mars_is_its_published_formula() -> None:
    """c_t = g + γβ/(1−β)(g − g(y)), m ← βm + (1−β)c_t, then Adam's step (Yuan et al. 2024, not clipped)."""
    model, plain = net(), net()
    beta, gamma, beta2, lr, eps = 0.95, 0.025, 0.99, 0.003, 1e-8
    optimizer = vcsg.MARS(model.parameters(), N, lr=lr, b=8)
    x_now = [p.detach().clone() for p in plain.parameters()]
    before, m, s = x_now, [torch.zeros_like(p) for p in x_now], [torch.zeros_like(p) for p in x_now]

    def gradient(at: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
        for p, value in zip(plain.parameters(), at, strict=True):
            p.data = value
        return list(torch.autograd.grad(cross_entropy(plain(x), y), list(plain.parameters())))

    for t, (x, y) in enumerate(walk(optimizer, model, passes=1000), 1):
        here, there = gradient(x_now, x, y), gradient(before, x, y)
        c = [g + gamma * beta / (1 - beta) * (g - h) for g, h in zip(here, there, strict=True)]
        m = [beta * a + (1 - beta) * b for a, b in zip(m, c, strict=True)]
        s = [beta2 * a + (1 - beta2) * b * b for a, b in zip(s, c, strict=True)]
        hats = [(a / (1 - beta**t), b / (1 - beta2**t)) for a, b in zip(m, s, strict=True)]
        before, x_now = x_now, [p - lr * a / (b.sqrt() + eps) for p, (a, b) in zip(x_now, hats, strict=True)]
        torch.testing.assert_close(vector(model), torch.cat([p.flatten() for p in x_now]), rtol=1e-9, atol=1e-11)
        if t == 30:
            break
    assert optimizer.ifo == 8 + 29 * 16  # the first step has no point before it


@pytest.mark.parametrize("name", ["adam", "auto"])
def test_the_fused_step_is_the_one_of_many_operations(name: str) -> None:
    """Also from groups of different lr, with decay and an average; foreach=False takes the operations one by one."""
    ends = []
    for fused in (True, False):
        model = net()
        first, *rest = model.parameters()
        groups = [{"params": [first], "lr": 0.5, "decoupled_weight_decay": 0.2}, {"params": rest}]
        optimizer = vcsg.FiniteSumOptimizer(groups, N, name, b=8, step="adaptive", output="average", foreach=fused)
        for _ in walk(optimizer, model, passes=3):
            with vectors.foreach(fused):
                assert optimizer._executor._fused() == fused
        optimizer.load_output()
        ends.append(vector(model))
    torch.testing.assert_close(*ends, rtol=1e-10, atol=1e-12)


# --- polar factors


@pytest.mark.parametrize("shape", [(5, 5), (3, 40), (40, 3), (30, 77)])
def test_polar_factors_are_nearly_orthogonal(shape: tuple[int, int]) -> None:
    """The singular vectors are those of the matrix; the singular values come within the quintic's band about 1."""
    stack = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, values, w = torch.linalg.svd(stack, full_matrices=False)
    assert (values.min() / values.max()) > 1e-3
    scale = math.sqrt(max(1, shape[0] / shape[1]))
    core = u.mT @ torch.stack(polar_factors(list(stack))) @ w.mT / scale
    off = core - torch.diag_embed(torch.diagonal(core, dim1=-2, dim2=-1))
    assert off.abs().max() < 1e-9
    assert 0.6 < torch.diagonal(core, dim1=-2, dim2=-1).min()
    assert torch.diagonal(core, dim1=-2, dim2=-1).max() < 1.25


@pytest.mark.parametrize("mixed", [False, True])
def test_matrices_of_all_shapes_keep_their_places(mixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where small ones are filled up with zeros and iterated together, as on a GPU."""
    monkeypatch.setattr(preconditioning, "grouped", lambda shapes, mixed=mixed: grouped(shapes, mixed))
    shapes = [(4, 6), (6, 4), (4, 6), (3, 2, 2, 2), (4, 3, 2), (40, 50)]
    generator = torch.Generator().manual_seed(2)
    made = [torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes]
    found = polar_factors(made)
    assert [t.shape for t in found] == [t.shape for t in made]
    for matrix, factor in zip(made, found, strict=True):
        rows, columns = len(matrix), matrix[0].numel()
        flat = matrix.reshape(1, rows, columns)
        expected = newton_schulz(flat, 5)[0] if rows <= columns else newton_schulz(flat.mT, 5)[0].mT
        expected = expected * math.sqrt(max(1, rows / columns))
        torch.testing.assert_close(factor.reshape(rows, columns), expected)
    assert torch.equal(polar_factors([torch.zeros(3, 5)])[0], torch.zeros(3, 5))


def test_only_small_matrices_are_filled_up() -> None:
    shapes = [(6, 75), (16, 150), (400, 120), (512, 4608), (512, 4608), (10, 84)]
    assert grouped(shapes, mixed=True) == {(512, 4608): [3, 4], (120, 400): [0, 1, 2, 5]}
    assert len(grouped(shapes, mixed=False)) == 5
    assert grouped([], mixed=True) == {}


def test_what_is_taken_for_a_matrix() -> None:
    assert is_matrix((300, 784))
    assert is_matrix((6, 3, 5, 5))
    assert not any(map(is_matrix, [(), (7,), (1, 9), (9, 1), (0, 4), (10_000, 64)]))


# --- any estimator with any step rule, and averages


@pytest.mark.parametrize("step", ["adaptive", "orthogonal"])
@pytest.mark.parametrize("name", ["gd", "svrg", "scsg", "spider", "storm", "saga", "snvrg", "vcsg"])
def test_any_estimator_with_any_step_rule_descends(name: str, step: str) -> None:
    model, records = net(), []
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), N, name, step=step, callback=records.append)
    X, Y = data()
    before = cross_entropy(model(X), Y).item()
    for _ in walk(optimizer, model, passes=40):
        pass
    assert records[0].L == 1.0  # nothing was spent on an estimate of it
    assert cross_entropy(model(X), Y).item() < before
    assert all(record.step_size == optimizer.method.base / record.L for record in records)


def test_the_average_is_the_polynomial_one() -> None:
    """x̄_t = Σ w_s x_s with w_s ∝ (s+1)…(s+k)… : by the recursion x̄ ← x̄ + (1+k)/(t+k)(x − x̄), k = 8, from the start."""
    model = net()
    optimizer = vcsg.Momentum(model.parameters(), N, lr=0.1, b=8, output="average")
    mean = torch.zeros(0, dtype=torch.float64)
    for t, _ in enumerate(walk(optimizer, model, passes=3), 1):
        x = vector(model)
        mean = x.clone() if t == 1 else mean + 9 / (t + 8) * (x - mean)
    last = vector(model)
    optimizer.load_output()
    torch.testing.assert_close(vector(model), mean, rtol=1e-12, atol=1e-12)
    assert not torch.equal(vector(model), last)
    assert optimizer.phase.kind == "inner"


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_run_goes_on_exactly_from_any_step(name: str) -> None:
    model = net()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), N, name, b=16, seed=3)
    ends = []
    for k, _ in enumerate(walk(optimizer, model, passes=4 if name == "mars" else 2)):
        ends.append((vector(model), optimizer.ifo))
        if k == 4:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    again = net(5)
    resumed = vcsg.FiniteSumOptimizer(again.parameters(), N, name, b=16, seed=3)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    for (x, ifo), _ in zip(ends[5:], walk(resumed, again, passes=4 if name == "mars" else 2), strict=True):
        assert torch.equal(vector(again), x)
        assert resumed.ifo == ifo
    for one in (optimizer, resumed):
        one.load_output()
    assert torch.equal(vector(again), vector(model))


def test_epochs_of_one_step_are_all_told() -> None:
    """The first has its record before its only step."""
    told: list[vcsg.Record] = []
    model = net()
    for _ in walk(vcsg.Adam(model.parameters(), N, b=N, callback=told.append), model, passes=3):
        pass
    assert [(r.epoch, r.ifo) for r in told] == [(1, 0), (2, N), (3, 2 * N), (4, 3 * N)]


def test_after_a_divergence_the_step_is_halved_and_moments_begin_anew() -> None:
    model = net()
    optimizer = vcsg.Adam(model.parameters(), N, lr=0.01, b=8)
    for k, _ in enumerate(walk(optimizer, model, passes=30)):
        if k == 20:
            with torch.no_grad():
                next(model.parameters()).fill_(math.nan)
            break
    optimizer.load_output()
    assert torch.isfinite(vector(model)).all()
    assert optimizer.L == pytest.approx(2 * 0.001 / 0.01)
    assert (optimizer._state.moments, optimizer._state.averaged, optimizer._state.depth) == (0, 0, -1)
    X, Y = data()
    for _ in walk(optimizer, model, passes=60):
        pass
    assert cross_entropy(model(X), Y).item() < 0.5


def test_frozen_parameters_and_scalars_are_stepped_too() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.ones(())), net()

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * self.inner(x)  # type: ignore[no-any-return]

    model = Odd().double()
    frozen = model.inner[1].weight.requires_grad_(False)
    before = frozen.clone()
    for _ in walk(vcsg.Muon(model.parameters(), N, b=8), model, passes=2):
        pass
    assert torch.equal(frozen, before)
    assert model.scale.item() != 1.0


# --- parameter groups and precision


def walk_along(optimizer: vcsg.FiniteSumOptimizer, tensors: list[nn.Parameter], slopes: list[Tensor], n: int) -> None:
    """n steps on the linear function Σ⟨slope, x⟩."""
    for k, _ in enumerate(optimizer.batches((torch.zeros(N),), passes=1000)):
        if k == n:
            return

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = torch.stack([(t * g).sum() for t, g in zip(tensors, slopes, strict=True)]).sum()
            loss.backward()
            return loss

        optimizer.step(closure)


def test_decoupled_decay_is_that_of_each_group() -> None:
    p, q = (nn.Parameter(torch.full((3, 4), 2.0, dtype=torch.float64)) for _ in range(2))
    groups = [{"params": [p], "decoupled_weight_decay": 0.5}, {"params": [q]}]
    zero = torch.zeros(3, 4, dtype=torch.float64)
    walk_along(vcsg.Muon(groups, N, lr=0.1, b=8), [p, q], [zero, zero], 6)
    torch.testing.assert_close(p.detach(), torch.full_like(p, 2 * 0.95**6))
    assert torch.equal(q, torch.full_like(q, 2.0))


def test_what_steps_by_a_share_of_the_rate_decays_by_that_share() -> None:
    matrix, bias = (nn.Parameter(torch.full(shape, 2.0, dtype=torch.float64)) for shape in ((3, 4), (4,)))
    zeros = [torch.zeros_like(matrix), torch.zeros_like(bias)]
    walk_along(vcsg.Muon([matrix, bias], N, lr=0.1, b=8, decoupled_weight_decay=0.5), [matrix, bias], zeros, 6)
    torch.testing.assert_close(matrix.detach(), torch.full_like(matrix, 2 * 0.95**6))
    torch.testing.assert_close(bias.detach(), torch.full_like(bias, 2 * (1 - 0.05 / 30) ** 6))


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 0.1), ({"decoupled_weight_decay": 0.0}, 0), ({"decoupled_weight_decay": 0.3}, 0.3), ({"weight_decay": 1}, 0)],
)
@pytest.mark.parametrize("n", [N, None])
def test_auto_decays_where_no_weight_decay_is_given(n: int | None, given: dict[str, float], expected: float) -> None:
    parameter = nn.Parameter(torch.zeros(3, 4))
    for optimizer in (vcsg.Auto([parameter], n, **given), vcsg.FiniteSumOptimizer([parameter], n, "auto", **given)):
        assert [group["decoupled_weight_decay"] for group in optimizer.param_groups] == [expected]
    assert vcsg.Adam([parameter], n).param_groups[0]["decoupled_weight_decay"] == 0


def test_groups_with_another_lr_have_longer_orthogonal_steps() -> None:
    slope = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bias = torch.ones(4, dtype=torch.float64)
    given = [nn.Parameter(torch.zeros_like(t)) for t in (slope, bias, slope, bias)]
    optimizer = vcsg.Muon([{"params": given[:2]}, {"params": given[2:], "lr": 0.06}], N, lr=0.02, b=8)
    walk_along(optimizer, given, [slope, bias, slope, bias], 5)
    torch.testing.assert_close(given[0].detach(), -5 * 0.02 * polar_factors([slope])[0])
    torch.testing.assert_close(given[1].detach(), -5 * 0.02 / 30 * bias)
    for short, long in ((given[0], given[2]), (given[1], given[3])):
        torch.testing.assert_close(3 * short.detach(), long.detach())


@pytest.mark.parametrize("name", REMEMBERING)
def test_bfloat16_parameters_keep_wide_moments_and_averages(name: str) -> None:
    """Along a constant slope, in steps that bfloat16 can hold: x = −kη·P, and the average is that of these points."""
    p, q = (nn.Parameter(torch.zeros(4, 4, dtype=dtype)) for dtype in (torch.bfloat16, torch.float32))
    slope = torch.eye(4)
    for x in (p, q):
        options = {"lr": 2.0**-6, "b": 32, "output": "average"}
        optimizer = vcsg.FiniteSumOptimizer([x], N, name, **options)
        walk_along(optimizer, [x], [slope.to(x.dtype)], 40)
        held = {key: value.dtype for key, value in optimizer.state[x].items()}
        assert {held[key] for key in held if key.startswith(("mean", "second", "output"))} == {torch.float32}
        with optimizer.at_output() as elsewhere:
            assert elsewhere
            assert x.dtype == (torch.bfloat16 if x is p else torch.float32)
        optimizer.load_output()
    torch.testing.assert_close(p.detach().float(), q.detach(), rtol=0.02, atol=1e-3)


# --- what is refused


@pytest.mark.parametrize("name", ["adam", "muon", "mars", "auto"])
def test_a_rule_with_a_step_size_of_its_own_refuses_L(name: str) -> None:
    with pytest.raises(ValueError, match=r"L = 2.0: the step rule \w+ has a step size of its own; leave L out"):
        vcsg.FiniteSumOptimizer(net().parameters(), N, name, L=2.0)
    with pytest.raises(ValueError, match="the step rule Adaptive has"):
        vcsg.SVRG(net().parameters(), N, L=2.0, step="adaptive")
    assert vcsg.FiniteSumOptimizer(net().parameters(), N, name, L=2.0, step="plain").L == 2.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("orthogonl", "did you mean 'orthogonal'"),
        (3, "step = 3"),
    ],
)
def test_an_unknown_step_rule_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match="step = ") as caught:
        vcsg.SVRG(net().parameters(), N, step=given)
    assert message in str(caught.value)


def test_rules_check_their_options() -> None:
    for make_rule, message in (
        (lambda: Adaptive(rate=0), "rate = 0"),
        (lambda: Adaptive(beta2=1), "beta2 = 1"),
        (lambda: Orthogonal(share=-1), "share = -1"),
        (lambda: Orthogonal(iterations=0), "iterations = 0"),
        (lambda: make("momentum", beta=1), "beta = 1"),
    ):
        with pytest.raises(ValueError, match=message):
            make_rule()
    assert step_rule("plain") == Plain()


def test_a_method_that_draws_no_anchor_moves_with_every_step() -> None:
    schedule = make("momentum").schedule
    with pytest.raises(ValueError, match="moves='step', no anchor_step, no table"):
        Method("mine", {"": Constant(Weights(0.1, 0, 0.9))}, schedule, "fixed", drawn="never")


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_what_is_remembered_of_gradients_that_vanished_does_not_become_subnormal(name: str) -> None:
    """The first coordinate has a gradient in one sample of 1000 alone; numbers below 1.2e-38 would slow a CPU down."""
    p = nn.Parameter(torch.ones(2))
    optimizer = vcsg.FiniteSumOptimizer([p], 1000, name, b=1, lr=1e-3)
    features = torch.ones(1000, 2)
    features[1:, 0] = 0
    for (row,) in optimizer.batches((features,), passes=2):

        def closure(row: Tensor = row) -> Tensor:
            optimizer.zero_grad()
            loss = 0.5 * (row @ p).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        held = optimizer.state[p]["mean1"]
        assert ((held == 0) | (held.abs() > torch.finfo(held.dtype).tiny)).all()
