"""Buffers that a forward pass assigns anew are those that it changes in place; a refused call changes nothing."""

from __future__ import annotations

import copy
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from nets import net_closure, vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import Dataset

import vcsg
from vcsg.run.buffers import Buffers
from vcsg.run.watch import BadSamples

N = 96
RUNS: dict[str, dict[str, Any]] = {
    "sgd": {"b": 8, "lr": 0.1},
    "svrg": {"b": 8, "lr": 0.5},
    "vcsg": {"b_min": 8},  # L is estimated
    "storm": {"b": 8, "lr": 0.1},
    "adam": {"b": 8},
    "auto": {"step": "orthogonal"},
}


class Counting(nn.Module):
    """Counts its forward passes in training, in place or by a new tensor."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.in_place = nn.Linear(5, 3), in_place
        self.register_buffer("k", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            if self.in_place:
                self.k.add_(1)
            else:
                self.k = self.k + 1
        return self.layer(x)


class OwnNorm(nn.Module):
    """BatchNorm by hand: its statistics are those of torch's, changed in place or by new tensors."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("running_mean", torch.zeros(8, dtype=torch.float64))
        self.register_buffer("running_var", torch.ones(8, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = x.mean(0), x.var(0)
            if self.in_place:
                with torch.no_grad():
                    self.running_mean.lerp_(mean, 0.1)
                    self.running_var.lerp_(var, 0.1)
            else:
                self.running_mean = torch.lerp(self.running_mean, mean.detach(), 0.1)
                self.running_var = torch.lerp(self.running_var, var.detach(), 0.1)
        return (x - mean) / (var + 1e-5).sqrt()


def normed(in_place: bool) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), OwnNorm(in_place), nn.ReLU(), nn.Linear(8, 3)).double()


def data(n: int = N, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return X.to(dtype), (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def whole(model: nn.Module) -> Tensor:
    return torch.cat([t.detach().double().flatten() for t in model.state_dict().values()])


def without_times(result: vcsg.Result) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in result.history]


# --- fit


@pytest.mark.parametrize("in_place", [True, False])
def test_a_refused_call_does_not_run_into_the_buffers(in_place: bool) -> None:
    model = Counting(in_place)
    with pytest.raises(TypeError):
        vcsg.fit(model, cross_entropy, data(dtype=torch.float32), passes=1, foo=1)
    assert model.k == 0


@pytest.mark.parametrize("in_place", [True, False])
def test_a_buffer_counts_the_steps_and_nothing_else(in_place: bool) -> None:
    """96 samples: 12 steps of 8 in a pass of sgd; in svrg an anchor of 96, ⌈96/8⌉ steps of two gradients, an anchor."""
    for name, passes in (("sgd", 1), ("svrg", 3)):
        model = Counting(in_place)
        vcsg.fit(model, cross_entropy, data(dtype=torch.float32), name, b=8, lr=0.1, passes=passes)
        assert model.k == 12


def test_a_run_of_sgd_is_that_of_torch() -> None:
    """The same batches in a loop of torch's own leave the same weights and the same statistics."""
    model, twin, drawn = normed(False), normed(False), list[Tensor]()
    X, Y = data()
    optimizer = vcsg.SGD(model.parameters(), N, b=8, lr=0.1, buffers=model)
    for x, y, i in optimizer.batches((X, Y, torch.arange(N)), passes=2):
        drawn.append(i.clone())
        optimizer.step(net_closure(model, x, y))
    plain = torch.optim.SGD(twin.parameters(), 0.1)
    for i in drawn:
        net_closure(twin, X[i], Y[i])()
        plain.step()
    torch.testing.assert_close(whole(model), whole(twin), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", RUNS)
def test_statistics_by_assignment_are_those_in_place(name: str) -> None:
    found = []
    for in_place in (True, False):
        model = normed(in_place)
        result = vcsg.fit(model, cross_entropy, data(), name, passes=5, test=data(20), every=0.5, **RUNS[name])
        found.append((without_times(result), [str(record) for record in result.records], whole(model).tolist()))
    assert found[0] == found[1]
    assert len(found[0][0]) > 5


def test_naming_bad_samples_leaves_the_buffers() -> None:
    X, Y = data(dtype=torch.float32)
    X[17] = math.nan
    found = []
    for in_place in (True, False):
        model = Counting(in_place)
        with pytest.raises(BadSamples, match="17"):
            vcsg.fit(model, cross_entropy, (X, Y), "svrg", b=8, lr=0.1, passes=2)
        found.append(float(model.k))
    assert found == [0, 0]


def test_a_resumed_run_has_the_same_statistics(tmp_path: Path) -> None:
    def fitted(passes: float, folder: Path | None = None) -> Tensor:
        model = normed(False)
        how = {} if folder is None else {"checkpoint": folder, "resume": True}
        vcsg.fit(model, cross_entropy, data(), "svrg", b=8, lr=0.5, passes=passes, **how)
        return whole(model)

    fitted(1.5, tmp_path)
    assert torch.equal(fitted(4, tmp_path), fitted(4))


def test_a_buffer_that_holds_nothing_yet_is_made_by_the_first_pass() -> None:
    class Late(Counting):
        def forward(self, x: Tensor) -> Tensor:
            if self.scale is None:
                self.scale = x.std()
            return super().forward(x / self.scale)

    model = Late(False)
    model.register_buffer("scale", None)
    vcsg.fit(model, cross_entropy, data(dtype=torch.float32), "svrg", b=8, lr=0.1, passes=3)
    assert float(model.scale) > 0
    assert model.k == 12


# --- an optimizer in a loop


def walked(in_place: bool, by_module: bool, name: str = "svrg", **options: Any) -> nn.Module:
    model = normed(in_place)
    buffers: Any = model if by_module else model.buffers()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), N, name, b=8, lr=0.1, buffers=buffers, **options)
    for x, y in optimizer.batches(data(), passes=4):
        optimizer.step(net_closure(model, x, y))
    return model


def test_an_optimizer_that_is_given_the_model_knows_the_places() -> None:
    expected = whole(walked(True, False))
    assert torch.equal(whole(walked(True, True)), expected)
    assert torch.equal(whole(walked(False, True)), expected)


@pytest.mark.parametrize("by_module", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", ["svrg", "adam"])
def test_tensors_that_are_assigned_anew_are_told_once(
    name: str, in_place: bool, by_module: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="vcsg"):
        walked(in_place, by_module, name)
    told = [record.message for record in caplog.records if "assigns its buffer 1.running_mean anew" in record.message]
    assert len(told) == (name == "svrg" and not in_place and not by_module)
    assert all("buffers=model" in words for words in told)


def test_an_error_in_a_closure_puts_assigned_buffers_back() -> None:
    model = normed(False)
    optimizer = vcsg.SVRG(model.parameters(), N, b=8, lr=0.1, buffers=model)
    for step, (x, y) in enumerate(optimizer.batches(data(), passes=2)):
        if step == 1:
            before = whole(model).clone()

            def failing(x: Tensor = x, y: Tensor = y) -> Tensor:
                net_closure(model, x, y)()
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                optimizer.step(failing)
            assert torch.equal(whole(model), before)
        optimizer.step(net_closure(model, x, y))


def test_a_copy_of_model_and_optimizer_goes_on_alike() -> None:
    model = normed(False)
    optimizer = vcsg.SVRG(model.parameters(), N, b=8, lr=0.1, buffers=model)
    for x, y in optimizer.batches(data(), passes=2):
        optimizer.step(net_closure(model, x, y))
    pairs = (model, optimizer), copy.deepcopy((model, optimizer))
    for own, its in pairs:
        for x, y in its.batches(data(), passes=4):
            its.step(net_closure(own, x, y))
    assert torch.equal(whole(pairs[0][0]), whole(pairs[1][0]))


# --- places


def test_places_hold_their_tensors_again() -> None:
    model = nn.Module()
    same = torch.zeros(2)
    for name, b in {"a": torch.ones(2), "b": torch.full((2,), 2.0), "c": same, "d": same, "e": torch.ones(2)}.items():
        model.register_buffer(name, b)
    buffers = Buffers(model)
    before = buffers.tensors
    model.a, model.b = model.b, model.a
    model.c, model.e = torch.full((2,), 3.0), torch.ones(5)
    buffers.hold(before)
    assert (model.a is before[0], model.b is before[1]) == (True, True)
    assert (model.a.tolist(), model.b.tolist()) == ([2, 2], [1, 1])
    assert (model.c.tolist(), model.d.tolist(), len(model.e)) == ([3, 3], [0, 0], 5)


def test_a_context_puts_back_what_was_resized_and_assigned() -> None:
    model = nn.Module()
    model.register_buffer("a", torch.ones(2))
    model.register_buffer("b", torch.ones(2))
    before, places = list(model.buffers()), [b.data_ptr() for b in model.buffers()]
    buffers = Buffers(model)
    with buffers.pointed_at(buffers.copies()):
        model.a.resize_(7).zero_()
        model.b = model.b + 1
    assert all(b is old for b, old in zip(model.buffers(), before, strict=True))
    assert [b.data_ptr() for b in model.buffers()] == places
    assert [b.tolist() for b in model.buffers()] == [[1, 1], [1, 1]]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_compiled_scripts_have_places() -> None:
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.register_buffer("k", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.k = self.k + 1
            return self.layer(x)

    model = torch.jit.script(Scripted())
    vcsg.fit(model, cross_entropy, data(dtype=torch.float32), "svrg", b=8, lr=0.1, passes=3)
    assert model.k == 12


# --- a call that is refused


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown option": ("svrg", {"foo": 1}),
    "unknown option of auto": ("auto", {"foo": 1}),
    "too large b": ("svrg", {"b": N + 1}),
    "unknown method": ("svgr", {}),
    "output": ("svrg", {"output": "best"}),
    "clip_norm": ("svrg", {"clip_norm": -1}),
    "state": ("svrg", {"state": {"state": {}, "param_groups": []}}),
    "rule": ("sgd", {"passes": None, "until": vcsg.stationary(0.1)}),
    "data": ("auto", {"loss": lambda outputs, targets: cross_entropy(outputs, targets, reduction="sum")}),
    "device": ("svrg", {"device": "meta"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_call_leaves_the_model_as_it_was(case: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Unflatten(1, (1, 1, 5)), nn.Conv2d(1, 4, (1, 2)), nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3)]
    model = nn.Sequential(*layers).double().eval()
    net_closure(model, *data())()
    model[4].bias.grad = None
    tensors = [*model.parameters(), *model.buffers()]
    gradients = [p.grad for p in model.parameters()]
    values = [None if g is None else g.clone() for g in gradients]
    forms = [(t.data_ptr(), t.stride(), t.device, t.detach().clone()) for t in tensors]
    name, options = REFUSED[case]
    options = {"passes": 1, "loss": cross_entropy, "channels_last": True, **options}
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        vcsg.fit(model, data=data(), method=name, **options)
    assert not any(module.training for module in model.modules())
    assert all(a is b for a, b in zip(tensors, [*model.parameters(), *model.buffers()], strict=True))
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(g is None or torch.equal(g, v) for g, v in zip(gradients, values, strict=True))
    for t, (place, stride, device, value) in zip(tensors, forms, strict=True):
        assert (t.data_ptr(), t.stride(), t.device) == (place, stride, device)
        assert torch.equal(t.detach(), value)


def test_a_folder_of_another_run_is_refused_alike(tmp_path: Path) -> None:
    options: dict[str, Any] = {"b": 8, "passes": 1, "checkpoint": tmp_path}
    vcsg.fit(normed(False), cross_entropy, data(), "sgd", lr=0.1, **options)
    model = normed(False)
    net_closure(model, *data())()
    before, gradients = whole(model), [p.grad for p in model.parameters()]
    for more in ({"lr": 0.1}, {"lr": 0.2, "resume": True}):
        with pytest.raises((FileExistsError, ValueError)):
            vcsg.fit(model, cross_entropy, data(), "sgd", **options, **more)
    assert torch.equal(whole(model), before)
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))


def test_gradients_of_an_earlier_loop_do_not_enter_a_run() -> None:
    ends = []
    for earlier in (False, True):
        model = normed(False)
        if earlier:
            for p in model.parameters():
                p.grad = torch.full_like(p, 7.0)
        vcsg.fit(model, cross_entropy, data(), "svrg", b=8, lr=0.1, passes=3)
        ends.append(vector(model))
    assert torch.equal(*ends)


# --- workers


class Noisy(Dataset[Any]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.randn(2), torch.ones(1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_that_draws_is_the_same_run_with_as_many_workers(workers: int) -> None:
    ends = []
    for _ in range(2):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        vcsg.fit(model, mse_loss, Noisy(), "sgd", b=8, lr=0.1, passes=2, workers=workers)
        ends.append(vector(model))
    assert torch.equal(*ends)
