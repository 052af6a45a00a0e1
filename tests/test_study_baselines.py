"""Optimizers of torch and of other packages in the study: the run of a plain loop, exact counts, resumed bit by bit."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from prodigyopt import Prodigy
from schedulefree import AdamWScheduleFree
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vcsg.run.randomness import seeded
from vcsg.run.sampling import stream
from vcsg.study import methods
from vcsg.study.adapter import Baseline
from vcsg.study.baselines import (
    BASELINES,
    adamw,
    prodigy,
    register_baseline,
    schedule_free_adamw,
    sgd_momentum,
    torch_muon,
)
from vcsg.study.protocols import Entry, default_step, smoothness_method

N, B = 50, 8


class Both:
    """torch.optim.Muon and torch.optim.AdamW side by side, as the documentation of Muon has them."""

    def __init__(self, params: list[Tensor]) -> None:
        matrices, others = [p for p in params if p.ndim == 2], [p for p in params if p.ndim != 2]
        self.muon = torch.optim.Muon(matrices, lr=0.01, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
        self.adamw = torch.optim.AdamW(others, lr=0.01)

    def zero_grad(self) -> None:
        self.muon.zero_grad()
        self.adamw.zero_grad()

    def step(self) -> None:
        self.muon.step()
        self.adamw.step()


def schedule_free(params: list[Tensor]) -> Any:
    optimizer = AdamWScheduleFree(params, lr=0.01)
    optimizer.train()
    return optimizer


OPTIMIZERS: dict[str, Callable[[list[Tensor]], Any]] = {
    "sgd-momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01),
    "torch-muon": Both,
    "schedule-free-adamw": schedule_free,
    "prodigy": lambda params: Prodigy(params, lr=2.0),
}
LR = {"sgd-momentum": 0.05, "adamw": 0.01, "torch-muon": 0.01, "schedule-free-adamw": 0.01, "prodigy": 2.0}


def samples() -> tuple[Tensor, Tensor]:
    X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
    return X, (X[:, 0] > 0).long()


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 2))


def vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def train(baseline: Baseline, model: nn.Module, passes: float) -> None:
    for x, y in baseline.batches(samples(), passes=passes):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss.detach()

        baseline.step(closure)


def by_hand(name: str, seed: int, passes: int, returned: bool = False) -> nn.Module:
    """A loop over shuffled batches as everyone writes it; the dropout of a step is seeded as the library does it."""
    X, Y = samples()
    model = net()
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    parts = math.ceil(N / B)
    for epoch in range(passes):
        order = torch.from_numpy(stream(seed, "samples", epoch).permutation(N))
        dropout = stream(seed, "closure", epoch).integers(2**62, size=parts + 1)
        for k in range(parts):
            batch = order[k * N // parts : (k + 1) * N // parts]
            optimizer.zero_grad()
            with seeded(int(dropout[k])):
                cross_entropy(model(X[batch]), Y[batch]).backward()
            optimizer.step()
    if returned:
        optimizer.eval()
    return model


@pytest.mark.parametrize("name", BASELINES)
def test_it_is_the_plain_loop_bit_by_bit(name: str) -> None:
    model = net()
    baseline = BASELINES[name](model.parameters(), N, lr=LR[name], b=B, seed=3)
    train(baseline, model, 4)
    assert torch.equal(vector(model), vector(by_hand(name, 3, 4)))
    assert (baseline.ifo, baseline.passes, baseline.epoch) == (4 * N, 4.0, 5)


def test_every_pass_has_every_sample_once_in_another_order() -> None:
    baseline = sgd_momentum(net().parameters(), N, lr=0.1, b=B)
    passes = [baseline._pass(k).indices.tolist() for k in range(3)]
    assert all(sorted(order) == list(range(N)) for order in passes)
    assert passes[0] != passes[1] != passes[2]


def test_counts_are_exact_at_every_step() -> None:
    """Seven batches of 7 or 8 samples."""
    model = net()
    baseline = sgd_momentum(model.parameters(), N, lr=0.1, b=B)
    seen = 0
    for x, y in baseline.batches(samples(), ifo=130):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            return cross_entropy(model(x), y).detach()

        baseline.step(closure)
        seen += len(x)
        assert baseline.ifo == seen
    assert 130 <= seen < 130 + B
    assert baseline.passes == seen / N


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("cut", [0.3, 1.0, 2.4])
def test_a_state_continues_the_run_bit_by_bit(name: str, cut: float) -> None:
    whole, model = net(), net()
    train(BASELINES[name](whole.parameters(), N, lr=LR[name], b=B, seed=3), whole, 4)
    first = BASELINES[name](model.parameters(), N, lr=LR[name], b=B, seed=3)
    train(first, model, cut)
    state = copy.deepcopy(first.state_dict())
    second = BASELINES[name](model.parameters(), N, lr=LR[name], b=B, seed=3)
    second.load_state_dict(state)
    assert second.ifo == first.ifo
    train(second, model, 4)
    assert torch.equal(vector(model), vector(whole))


def test_a_schedule_free_optimizer_is_evaluated_at_its_average_and_steps_as_if_it_had_not_been() -> None:
    """A context before every step changes no bit; inside it, and at the end, the model is where eval() puts it."""
    model = net()
    baseline = schedule_free_adamw(model.parameters(), N, lr=0.01, b=B, seed=3)
    with baseline.at_output() as moved:
        assert not moved  # nothing has been averaged yet
    for part in range(1, 9):
        train(baseline, model, part / 2)
        before = vector(model)
        with baseline.at_output() as moved:
            assert moved
            inside = vector(model)
            assert not torch.equal(inside, before)
        assert torch.equal(vector(model), before)
    assert torch.equal(before, vector(by_hand("schedule-free-adamw", 3, 4)))
    assert torch.equal(inside, vector(by_hand("schedule-free-adamw", 3, 4, returned=True)))
    assert baseline.load_output()
    assert torch.equal(vector(model), inside)
    with baseline.at_output() as moved:
        assert not moved
        assert torch.equal(vector(model), inside)
    assert not baseline.load_output()
    train(baseline, model, 5)
    assert baseline.passes == 5


def test_a_schedule_free_state_of_the_output_goes_on_from_it() -> None:
    one, other = net(), net()
    first = schedule_free_adamw(one.parameters(), N, lr=0.01, b=B, seed=3)
    train(first, one, 2)
    first.load_output()
    other.load_state_dict(one.state_dict())
    second = schedule_free_adamw(other.parameters(), N, lr=0.01, b=B, seed=3)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for baseline, model in ((first, one), (second, other)):
        train(baseline, model, 3)
    assert torch.equal(vector(one), vector(other))


def test_muon_leaves_convolutions_and_vectors_to_adamw() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    muon, others = torch_muon(model.parameters(), N, lr=0.02, adamw_lr=3e-4)._optimizer.param_groups
    assert ([p.ndim for p in muon["params"]], muon["lr"], muon["adjust_lr_fn"]) == ([2], 0.02, "match_rms_adamw")
    assert ([p.ndim for p in others["params"]], others["lr"]) == ([4, 1, 1], 3e-4)
    assert [g["lr"] for g in torch_muon(nn.Linear(2, 2).parameters(), N, lr=0.1)._optimizer.param_groups] == [0.1, 0.1]
    assert torch_muon([nn.Parameter(torch.zeros(3))], N, lr=0.1).lr == 0.1


@pytest.mark.parametrize(("name", "package"), [("schedule-free-adamw", "schedulefree"), ("prodigy", "prodigyopt")])
def test_a_missing_package_is_named_with_the_way_to_get_it(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=f"{name} needs the package {package}: pip install {package}, or"):
        BASELINES[name](net().parameters(), N, seed=0)
    assert "b" in methods.parameters(name)


def test_prodigy_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    prodigy(net().parameters(), N, weight_decay=0.1)
    assert capsys.readouterr().out == ""


def test_the_state_of_other_options_is_refused() -> None:
    state = sgd_momentum(net().parameters(), N, lr=0.1, b=B).state_dict()
    with pytest.raises(ValueError, match="batches_per_pass = 7, this optimizer has 5"):
        sgd_momentum(net().parameters(), N, lr=0.1, b=10).load_state_dict(state)
    with pytest.raises(ValueError, match="kind = 'SGD'"):
        adamw(net().parameters(), N, b=B).load_state_dict(state)


def test_what_is_not_finite_is_said_to_have_diverged() -> None:
    model = net()
    baseline = sgd_momentum(model.parameters(), N, lr=1e30, b=B)
    with pytest.raises(FloatingPointError, match=r"diverged: the loss is (inf|nan) in step \d; take a smaller lr"):
        train(baseline, model, 1)
    model[0].weight.data.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="is not finite"):
        baseline.load_output()


def test_the_step_of_momentum_follows_from_L() -> None:
    baseline = sgd_momentum(net().parameters(), N, L=2.0, momentum=0.8)
    assert baseline._optimizer.param_groups[0]["lr"] == pytest.approx(0.2 / 6)


REFUSED: dict[str, tuple[Callable[..., Baseline], dict[str, Any], str]] = {
    "no step": (sgd_momentum, {}, "lr = None and L = None: give one of them"),
    "two steps": (sgd_momentum, {"lr": 0.1, "L": 1.0}, "lr = 0.1 and L = 1.0: give one of them"),
    "negative lr": (sgd_momentum, {"lr": -1.0}, "lr = -1.0: give a finite number above 0"),
    "L": (sgd_momentum, {"L": 0.0}, "L = 0.0: give a finite number above 0"),
    "momentum": (sgd_momentum, {"lr": 0.1, "momentum": 1.0}, "momentum = 1.0: give a number, at least 0 and below 1"),
    "b": (adamw, {"b": 0}, "b = 0: give a whole number, at least 1"),
    "muon lr": (torch_muon, {"lr": 0.0}, "lr = 0.0: give a finite number above 0"),
    "muon's adamw_lr": (torch_muon, {"adamw_lr": -1.0}, "adamw_lr = -1.0: give a finite number above 0"),
    "adjust_lr": (torch_muon, {"adjust_lr": "much"}, "adjust_lr = 'much': choose 'match_rms_adamw' or 'original'"),
    "prodigy lr": (prodigy, {"lr": math.inf}, "lr = inf: give a finite number above 0"),
    "schedule-free b": (schedule_free_adamw, {"b": 1.5}, "b = 1.5: give a whole number, at least 1"),
    "adamw lr": (adamw, {"lr": math.nan}, "lr = nan: give a finite number above 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_options_are_refused(case: str) -> None:
    make, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make(net().parameters(), N, **options)


def test_there_are_no_records_to_wait_for() -> None:
    baseline = adamw(net().parameters(), N)
    with pytest.raises(ValueError, match="give passes="):
        next(baseline.batches(samples(), until=lambda record: True))


def test_a_baseline_of_ones_own() -> None:
    def adagrad(params: Any, n: int, *, lr: float = 0.05, b: int = 8, seed: int = 0) -> Baseline:
        return Baseline(torch.optim.Adagrad(params, lr=lr), n, b, seed)

    with patch.dict(BASELINES):
        register_baseline("adagrad", adagrad)
        assert methods.names()[-1] == "adagrad"
        assert list(methods.parameters("adagrad")) == ["lr", "b"]
        entry = Entry("tuned", "adagrad", {"b": 4})
        assert default_step(entry, None) == 0.05
        assert smoothness_method(entry, [entry]) is None
        with pytest.raises(ValueError, match="there is a baseline 'adagrad' already: choose another name, or replace"):
            register_baseline("adagrad", adagrad)
        register_baseline("adagrad", adagrad, replace=True)
    with pytest.raises(ValueError, match="'svrg' is a method of the family: choose another name"):
        register_baseline("svrg", adagrad)
    with pytest.raises(TypeError, match="the baseline 'bare' takes no n, lr, seed: the function of a baseline needs"):
        register_baseline("bare", lambda params: adagrad(params, 1))
