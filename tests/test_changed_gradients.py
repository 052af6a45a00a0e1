"""Gradients that a closure or a hook changes, from the start or later, and those that are left alone."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from nets import net_closure, vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.run import gradient_guard
from vcsg.run.gradient_guard import STEPS_PER_READING

N, B, BETWEEN = 60, 4, 99


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look every 99 steps, so that the tests are short."""
    monkeypatch.setattr(gradient_guard, "BETWEEN", BETWEEN)


def data() -> tuple[Tensor, Tensor]:
    X = torch.randn(N, 5, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


def made(model: nn.Module, draws: bool = True) -> vcsg.FiniteSumOptimizer:
    return vcsg.SVRG(model.parameters(), n=N, lr=0.1, **({"b": B} if draws else {"batch_size": B}))


def run(model: nn.Module, change: Callable[[int], None], steps: int = 350, draws: bool = True) -> int:
    """Steps until a change after backward() was refused, or all; `change` is given the number of the step."""
    optimizer = made(model, draws)
    handed = [part for _ in range(steps) for part in zip(*(t.split(B) for t in data()), strict=True)]
    batches: Iterator[Any] = optimizer.batches(data(), passes=1e9) if draws else iter(handed)
    for k, (x, y) in zip(range(steps), batches, strict=False):
        evaluate = net_closure(model, x, y)

        def closure(evaluate: Callable[[], Tensor] = evaluate, k: int = k) -> Tensor:
            loss = evaluate()
            change(k)
            return loss

        try:
            optimizer.step(closure)
        except ValueError as error:
            return k if "clip_norm=" in str(error) else -1
    return steps


def replaced(p: Tensor) -> None:
    p.grad = p.grad.clamp(-1e-3, 1e-3)


CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "clip_grad_norm_": lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1e-3),
    "clip_grad_value_": lambda model: nn.utils.clip_grad_value_(model.parameters(), 1e-3),
    "data": lambda model: [p.grad.data.clamp_(-1e-3, 1e-3) for p in model.parameters()],
    "another tensor": lambda model: [replaced(p) for p in model.parameters()],
    "the last parameter alone": lambda model: list(model.parameters())[-1].grad.mul_(0.5),
}
AT_ONCE = {"clip_grad_norm_", "clip_grad_value_", "the last parameter alone"}


@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize("first", [0, 50])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_that_begin_late_are_seen(name: str, first: int, draws: bool) -> None:
    """After a few evaluations where torch's count of operations in place tells, else at the next look."""
    model = net()
    seen = run(model, lambda k: CHANGES[name](model) if k >= first else None, draws=draws)
    late = STEPS_PER_READING if name in AT_ONCE else BETWEEN
    assert first <= seen <= first + (late if first else 0)


def test_a_change_now_and_then_is_seen() -> None:
    """One evaluation of 24: at the first the versions are new, and those that follow are looked at."""
    model, evaluations = net(), itertools.count(1)

    def change(_: int) -> None:
        if next(evaluations) % 24 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    assert run(model, change) < 50
    assert next(evaluations) == 49


def test_a_bound_that_is_reached_late_is_seen() -> None:
    model = net()
    seen = run(model, lambda k: nn.utils.clip_grad_norm_(model.parameters(), 1e3 if k < 300 else 1e-3))
    assert seen == 300


def clamped(g: Tensor) -> Tensor:
    return g.clamp(-1e-3, 1e-3)


def masked(p: Tensor) -> None:
    p.grad.mul_(torch.arange(p.numel()).view_as(p) % 2)


@pytest.mark.parametrize("first", [0, 50])
def test_hooks_that_change_gradients_are_seen(first: int) -> None:
    model = net()

    def hook(k: int) -> None:
        if k == first and not getattr(model, "hooked", False):
            model.hooked = True
            for p in model.parameters():
                p.register_hook(clamped)

    assert first <= run(model, hook) <= first + BETWEEN


HOOKS: dict[str, Callable[[Tensor], Callable[[Tensor], Tensor | None]]] = {
    "nothing": lambda p: lambda g: None,
    "a mask": lambda p: lambda g: g * (torch.arange(g.numel()).view_as(g) % 2),
    "a projection": lambda p: lambda g: g - g.mean(),
    "a penalty": lambda p: lambda g: g + 0.1 * p.detach(),
    "a bound that is far": lambda p: lambda g: g.clamp(-1e3, 1e3),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_that_keep_proportions_are_left_alone(kind: str) -> None:
    model = net()
    for p in model.parameters():
        p.register_hook(HOOKS[kind](p))
    assert run(model, lambda k: None) == 350
    assert all(len(p._backward_hooks) == 1 for p in model.parameters())


def test_masks_after_accumulation_are_left_alone() -> None:
    model = net()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(masked)
    assert run(model, lambda k: None) == 350


def test_hooks_are_tried_once_and_those_that_draw_or_count_are_left_alone() -> None:
    """A penalty in bfloat16, noise, a factor that grows; and no hook is called more than a few times beside its own."""
    calls: list[int] = []

    def noisy(g: Tensor) -> Tensor:
        return g + 1e-3 * torch.randn_like(g)

    def growing(g: Tensor) -> Tensor:
        calls.append(1)
        return g * min(1.0, len(calls) / 50)

    for hook in (noisy, growing):
        model = net()
        model[0].weight.register_hook(hook)
        assert run(model, lambda k: None) == 350
    evaluations = len(calls)
    model, calls[:] = net(), []
    model[0].weight.register_hook(lambda g: calls.append(1))
    assert run(model, lambda k: None) == 350
    assert 0 <= evaluations - len(calls) <= 4
    rounded = net().to(torch.bfloat16)
    for p in rounded.parameters():
        p.register_hook(lambda g, p=p: g + 0.1 * p.detach())
    optimizer = vcsg.SVRG(rounded.parameters(), n=N, b=B, lr=0.1)
    for _, (x, y) in zip(range(40), optimizer.batches(data(), passes=1e9), strict=False):
        optimizer.step(lambda x=x, y=y: in_parts(rounded, x.bfloat16(), y, 1))


def frozen(model: nn.Sequential) -> None:
    model[0].requires_grad_(False)


def in_parts(model: nn.Module, x: Tensor, y: Tensor, parts: int) -> Tensor:
    model.zero_grad()
    total = torch.zeros(())
    for own, targets in zip(x.chunk(parts), y.chunk(parts), strict=True):
        loss = cross_entropy(model(own), targets) * len(own) / len(x)
        loss.backward()
        total = total + loss.detach()
    return total


def test_what_changes_no_gradient_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, frozen parameters, batches in more or fewer parts, a compiled model, bfloat16, unused parameters."""
    looks = count_looks(monkeypatch)
    for kind in ("groups", "frozen", "parts", "compiled", "bfloat16", "unused"):
        model = net().to(torch.bfloat16 if kind == "bfloat16" else torch.float32)
        called = torch.compile(model, backend="aot_eager") if kind == "compiled" else model
        if kind == "frozen":
            frozen(model)
        params: Any = [{"params": [p]} for p in model.parameters()] if kind == "groups" else list(model.parameters())
        if kind == "unused":
            params.append(nn.Parameter(torch.zeros(3)))
        optimizer = vcsg.SVRG(params, n=N, b=B, lr=0.1)
        looks.clear()
        for k, (x, y) in zip(range(300), optimizer.batches(data(), passes=1e9), strict=False):
            x = x.to(next(model.parameters()).dtype)
            with torch.autocast("cpu", torch.bfloat16) if kind == "bfloat16" else contextlib.nullcontext():
                optimizer.step(
                    lambda called=called, x=x, y=y, k=k, kind=kind: in_parts(
                        called, x, y, 1 + k // 50 % 2 if kind == "parts" else 1
                    )
                )
        assert 2 <= len(looks) <= 2 + 2 * (300 // BETWEEN) + (33 if kind == "parts" else 0)


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    looks: list[int] = []
    look = gradient_guard.GradientGuard._look

    def counting(self: gradient_guard.GradientGuard, *arguments: Any) -> Any:
        looks.append(1)
        return look(self, *arguments)

    monkeypatch.setattr(gradient_guard.GradientGuard, "_look", counting)
    return looks


def test_a_look_changes_nothing() -> None:
    ends = []
    for between in (1, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gradient_guard, "BETWEEN", between)
            model = net()
            assert run(model, lambda k: None) == 350
            assert all(not p._backward_hooks and not p._post_accumulate_grad_hooks for p in model.parameters())
            ends.append(vector(model))
    assert torch.equal(*ends)
