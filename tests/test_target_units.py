"""The last layer of a regression in the units of its targets: which layer, which units, and the runs with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import torch
from nets import vector
from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
)

import vcsg
from vcsg.training.sources import TensorSource, spread
from vcsg.training.target_units import TargetUnits, target_units
from vcsg.training.task import Task

N, CPU = 64, torch.device("cpu")


def inputs(n: int = N) -> Tensor:
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(1))


def targets(scale: float = 1.0, offset: float = 0.0, n: int = N) -> Tensor:
    """Of the mean `offset` and the standard deviation `scale`."""
    x = inputs(n).double()
    y = (x[:, :1] * x[:, 1:2]).sin() + 0.5 * x[:, 2:3]
    return (scale * (y - y.mean()) / y.std(correction=0) + offset).float()


def net(*last: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), *(last or (nn.Linear(16, 1),)))


def look(model: nn.Module, y: Tensor, loss: Callable[..., Tensor] = mse_loss) -> TargetUnits | None:
    return target_units(Task(model, loss, None, {}), TensorSource("data", (inputs(len(y)), y), CPU))


def found(model: nn.Module, y: Tensor, loss: Callable[..., Tensor] = mse_loss) -> TargetUnits:
    units = look(model, y, loss)
    assert units is not None
    return units


# --- which layer, and which units


class Denormalised(nn.Module):
    """A model that has the units of the targets itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Tensor) -> Tensor:
        return 5000 * self.inner(x) + 300_000


class WithGain(nn.Module):
    """A model that has a parameter of its own beside its layers, and is called after them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(5))
        self.inner = net()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.weight * x + self.bias)


@pytest.mark.parametrize("loss", [mse_loss, l1_loss, smooth_l1_loss])
def test_scale_and_mean_are_those_of_the_targets(loss: Callable[..., Tensor]) -> None:
    units = found(net(), targets(1000.0, 5000.0), loss)
    assert (units.scale, units.far, units.shrunk) == (1024.0, True, 1.0)
    assert units.gain == pytest.approx(1, rel=1e-4)
    assert units.mean.item() == pytest.approx(5000, rel=1e-5)
    assert units.spread == pytest.approx(1000, rel=1e-5)
    assert units.reason == "targets of 5e+03 ± 1e+03: steps of the last layer 1024 times as long, no decay of its bias"
    assert found(net(), targets(), loss).reason == ""


@pytest.mark.parametrize(
    ("model", "last"),
    [
        (net(), lambda m: m[-1]),
        (net(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)), lambda m: m[-1]),
        (net(nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 1)), lambda m: m[-1]),
        (net(nn.Unflatten(1, (1, 16)), nn.Conv1d(1, 1, 16), nn.Flatten()), lambda m: m[-2]),
        (WithGain(), lambda m: m.inner[-1]),
        (nn.Linear(5, 1), lambda m: m),
    ],
)
def test_the_last_layer_is_found(model: nn.Module, last: Callable[[Any], nn.Module]) -> None:
    before = {name: t.clone() for name, t in model.state_dict().items()}
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    assert found(model.eval(), targets(2.0**10)).layer is last(model)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    assert all(not module._forward_hooks for module in model.modules())


def test_a_model_that_has_the_units_itself_is_left_alone() -> None:
    units = found(Denormalised(), targets(5000.0, 300_000.0))
    assert units.gain == pytest.approx(5000, rel=1e-4)
    assert units.scale == 1.0
    before = vector(units.layer)
    units.begin()
    assert torch.equal(vector(units.layer), before)


class Tied(nn.Module):
    """A layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


def frozen() -> nn.Module:
    model = net()
    model[-1].requires_grad_(False)
    return model


Y = targets(1000.0)
OTHERS: dict[str, tuple[nn.Module, Callable[..., Tensor], Tensor]] = {
    "classes": (net(nn.Linear(16, 3)), cross_entropy, torch.arange(N) % 3),
    "probabilities of classes": (net(nn.Linear(16, 3)), cross_entropy, torch.eye(3)[torch.arange(N) % 3]),
    "yes or no": (net(), binary_cross_entropy_with_logits, (Y > 0).float()),
    "counts by their logarithm": (net(), poisson_nll_loss, Y.abs().round()),
    "a loss of the angle": (net(nn.Linear(16, 2)), lambda a, b: -torch.cosine_similarity(a, b).mean(), Y.repeat(1, 2)),
    "no bias": (net(nn.Linear(16, 1, bias=False)), mse_loss, Y),
    "no layer at the end": (net(nn.Linear(16, 1), nn.Softplus()), mse_loss, Y.abs()),
    "no constant gain": (net(nn.Linear(16, 1), nn.Dropout(0.5)), mse_loss, Y),
    "frozen": (frozen(), mse_loss, Y),
    "tied": (Tied(), mse_loss, Y.repeat(1, 5)),
    "parametrised": (net(nn.utils.parametrizations.weight_norm(nn.Linear(16, 1))), mse_loss, Y),
    "nothing but 0": (net(), mse_loss, 0 * Y),
    "not finite": (net(), mse_loss, Y / 0),
}


@pytest.mark.parametrize(("model", "loss", "y"), OTHERS.values(), ids=OTHERS)
def test_what_is_no_regression_in_units_of_a_last_layer(
    model: nn.Module, loss: Callable[..., Tensor], y: Tensor
) -> None:
    before = vector(model)
    assert look(model, y, loss) is None
    assert torch.equal(vector(model), before)


def test_groups_of_the_last_layer() -> None:
    model = WithGain()
    units, layer = found(model, targets(1024.0, 5000.0)), model.inner[-1]
    first, weights, bias = units.groups(model, 0.1)
    assert [id(p) for p in first["params"]] == [id(p) for p in (model.weight, model.bias, *model.inner[0].parameters())]
    assert set(first) == {"params"}
    assert weights["params"][0] is layer.weight
    assert (weights["lr"], weights["decoupled_weight_decay"]) == (1024.0, 0.1 / 1024)
    assert bias["params"][0] is layer.bias
    assert (bias["lr"], bias["decoupled_weight_decay"]) == (1024.0, 0.0)
    assert found(model, targets(1024.0)).groups(model, 0.1)[2]["decoupled_weight_decay"] == 0.1 / 1024


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 3.0), (1000.0, 1e5), (2.0**-10, 1.0), (2.0**-10, 0.0)])
def test_a_run_begins_at_the_mean_of_the_targets(scale: float, offset: float) -> None:
    """And no further from it than they are."""
    model, y = net(), targets(scale, offset)
    found(model, y).begin()
    outputs = model(inputs())
    assert abs(outputs.mean().item() - offset) < 1.0001 * scale
    assert outputs.std().item() < 1.5 * scale
    before = vector(model)
    found(model, y).begin()  # what has the units is left alone, but for weights that were not trained in between
    assert torch.equal(vector(model), before) is (scale >= 1)


def test_the_mean_of_each_output_and_channel() -> None:
    model, y = net(nn.Linear(16, 3)), targets() + torch.tensor([10.0, -20.0, 30.0])
    found(model, y).begin()
    assert (model(inputs()).mean(0) - torch.tensor([10.0, -20.0, 30.0])).abs().max() < 1e-4
    image = nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3, padding=1))
    found(image, (y[:, :2, None] + torch.zeros(5))).begin()
    assert (image(inputs()).mean((0, 2)) - torch.tensor([10.0, -20.0])).abs().max() < 1e-4


def test_a_trained_model_keeps_its_weights() -> None:
    model, y = net(), targets(2.0**-10, 0.01)
    vcsg.fit(model, mse_loss, (inputs(), y), passes=100)
    units = found(model, y)
    assert units.scale == 2.0**-10
    before = vector(model)
    units.begin()
    assert torch.equal(vector(model), before)


# --- runs


def fitted(y: Tensor, passes: float = 5, **options: Any) -> tuple[Tensor, vcsg.Result]:
    """What a net whose last layer begins at 0 returns after a run, in float64."""
    torch.manual_seed(1)
    model = net(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    x = inputs(len(y)).double()
    result = vcsg.fit(model, mse_loss, (x, y.double()), passes=passes, **options)
    return model(x).detach(), result


@pytest.mark.parametrize(
    ("b", "one", "other"),
    [(8, 1.0, 2.0**17), (8, 1.0, 2.0**-3), (8, 1.0, 2.0**-17), (256, 2.0**10, 2.0**17), (256, 2.0**10, 2.0**-10)],
    ids=str,
)
def test_a_run_is_the_same_in_other_units(b: int, one: float, other: float) -> None:
    """With b = 256 by the orthogonal step, and the adaptive one for the last layer; its ε alone has units."""
    (first, told), (second, told_too) = (
        fitted(unit * targets(n=256), b=b, passes=max(5, b / 8)) for unit in (one, other)
    )
    assert first.std() > 0.2 * one
    assert (second / other - first / one).abs().max() < 2e-4
    words = told.chosen.split("; targets of ")[0]
    assert ("the orthogonal step" in words) is (b == 256)
    assert told_too.chosen.startswith(f"{words}; targets of ")
    assert told_too.chosen.endswith(f": steps of the last layer {other:.4g} times as long")


def test_a_run_is_the_same_about_another_mean() -> None:
    """Where nothing decays; else the bias does, if the mean of the targets is 0 or so."""
    one, _ = fitted(targets(), decoupled_weight_decay=0)
    other, _ = fitted(8 * targets() + 2000, decoupled_weight_decay=0)
    assert ((other - 2000) / 8 - one).abs().max() < 1e-4


def test_large_targets_are_met_as_soon_as_small_ones() -> None:
    """By hand: the same run on standardised targets, and its outputs in the units of the others."""
    y = targets().double()
    (by_hand, _), (own, _) = fitted(y, passes=30), fitted(2.0**17 * y + 3e5, passes=30)
    error = mse_loss((own - 3e5) / 2.0**17, y)
    assert error < 1.1 * mse_loss(by_hand, y)
    assert error < 0.05


def deep() -> nn.Sequential:
    torch.manual_seed(1)
    return net(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


@pytest.mark.parametrize("power", [-10, -14, -20, -26])
def test_small_targets_are_met_as_soon_as_those_about_1(power: int) -> None:
    """In float32, where a bias that takes a step of the targets' size may leave the outputs as they are."""
    x, y = inputs(256), targets(n=256)
    errors = []
    for unit in (1.0, 2.0**power):
        model = deep()
        result = vcsg.fit(model, mse_loss, (x, unit * y), passes=10)
        errors.append(mse_loss(model(x) / unit, y).item())
    assert errors[0] < 0.3
    assert errors[1] == pytest.approx(errors[0], rel=0.3)
    again = deep()
    vcsg.fit(again, mse_loss, (x, unit * y), result.method, passes=10, **result.options)
    assert torch.equal(vector(again), vector(model))


@pytest.mark.parametrize(("unit", "options", "told"), [
    (1e-10, {}, "the targets are spread by 1.* alone: .* in other units, times 1e.10"),
    (1e-4, {"step": "orthogonal"}, "the targets are about 0.0001.* of a fixed length, are longer"),
    (1e-4, {}, None),
])  # fmt: skip
def test_targets_that_are_too_small_are_told_of(
    unit: float, options: dict[str, Any], told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    vcsg.fit(net(), mse_loss, (inputs(), unit * targets()), passes=1, **options)
    assert "the targets are" not in caplog.text if told is None else re.search(told, caplog.text)


def test_steps_that_are_given_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    for given in ({"lr": 0.01}, {"step": "adaptive"}):
        caplog.clear()
        _, result = fitted(1e5 * targets(), passes=1, **given)
        assert "last layer" not in result.chosen
        assert "the targets are about 1.2e+05" in caplog.text
    assert len(result.state["param_groups"]) == 1


def run(model: nn.Module, passes: float, **options: Any) -> vcsg.Result:
    y = targets(1e5, 3e5)
    return vcsg.fit(model, mse_loss, (inputs(), y), passes=passes, test=(inputs(), y), seed=3, **options)


def test_a_run_in_other_units_that_is_resumed_is_the_one_that_never_stopped(tmp_path: Path) -> None:
    whole = run(net(), 5)
    assert len(whole.state["param_groups"]) == 3
    begun = run(net(), 2.2, checkpoint=tmp_path)
    again = run(begun.model, 5, checkpoint=tmp_path, resume=True)
    assert torch.equal(vector(whole.model), vector(again.model))
    assert again.chosen == whole.chosen


def test_a_run_in_other_units_goes_on_from_its_state() -> None:
    """The model is at the average then, and the run goes on from its last point; the start is not put anywhere anew."""
    first = run(net(), 3)
    second = run(first.model, 6, state=first.state)
    assert second.passes >= 6
    assert second.history[-1]["test_loss"] < first.history[-1]["test_loss"]
    assert [group["lr"] for group in second.state["param_groups"]] == [1.0, 2.0**17, 2.0**17]


@pytest.mark.parametrize("b", [None, 8, 64])
def test_a_run_with_the_options_of_a_result_is_the_same_run(b: int | None) -> None:
    """The step rule among them is the one that `auto` chose, and does not count as one that is given."""
    first = run(net(), 2, **({} if b is None else {"b": b}))
    assert "step" in first.options
    second = run_with(net(), 2, first.options)
    assert (second.chosen, second.options) == (first.chosen, first.options)
    assert torch.equal(vector(first.model), vector(second.model))
    further = run_with(second.model, 4, second.options, state=second.state)
    assert further.passes >= 4


def run_with(model: nn.Module, passes: float, options: dict[str, Any], **others: Any) -> vcsg.Result:
    y = targets(1e5, 3e5)
    return vcsg.fit(model, mse_loss, (inputs(), y), passes=passes, test=(inputs(), y), **options, **others)


def sorted_data(scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Samples in the order of their targets, which are linear in them."""
    X = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    y = scale * (X @ torch.arange(1.0, 9.0))[:, None]
    order = y[:, 0].argsort()
    return X[order], y[order]


def test_a_model_that_fits_sorted_data_is_left_as_it_is() -> None:
    """The first samples have the least targets: outputs and targets are looked at over the whole of the data."""
    X, y = sorted_data()
    model = nn.Sequential(nn.Linear(8, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.arange(1.0, 9.0)[None])
        model[0].bias.zero_()
    units = target_units(Task(model, mse_loss, None, {}), TensorSource("data", (X, y), CPU))
    assert units is not None
    units.begin()
    assert mse_loss(model(X), y).item() < 1e-8


def test_losses_that_refuse_outputs_and_frozen_layers_are_left_alone() -> None:
    X, y = sorted_data(1e-3)
    model = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
    vcsg.fit(model, nn.BCELoss(), (X, (y > 0).float()), passes=1)

    def not_below(outputs: Tensor, targets: Tensor) -> Tensor:
        if float((outputs - targets).abs().max()) > 0 and float(outputs.min()) < float(targets.min()):
            raise ValueError("outputs below all targets")
        return mse_loss(outputs, targets)

    task = Task(nn.Linear(8, 1), not_below, None, {})
    assert target_units(task, TensorSource("data", (X, y), CPU)) is None
    frozen = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    frozen[2].weight.requires_grad_(False)
    before = frozen[2].weight.clone()
    vcsg.fit(frozen, mse_loss, (X, y), passes=1)
    assert torch.equal(frozen[2].weight, before)


def test_a_state_without_groups_goes_on_without() -> None:
    """A function at the end that cut outputs off at first, and does so no longer."""
    X, y = sorted_data(0.05 / 14)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.ReLU())
    nn.init.constant_(model[2].bias, 0.5)
    result = vcsg.fit(model, mse_loss, (X, y + 2.8), passes=30)
    assert vcsg.fit(model, mse_loss, (X, y + 2.8), passes=31, state=result.state).passes > 30


# --- which samples are looked at, and which targets


def sine_by_hour(days: int = 64) -> tuple[Tensor, Tensor]:
    """A quantity that depends on the hour alone, hour by hour."""
    angle = torch.arange(24 * days) * (2 * torch.pi / 24)
    return torch.stack([angle.sin(), angle.cos()], 1), 1e5 * angle.sin()[:, None]


def test_periodic_targets_are_not_looked_at_in_one_phase() -> None:
    X, y = sine_by_hour()
    units = target_units(Task(nn.Linear(2, 1), mse_loss, None, {}), TensorSource("data", (X, y), CPU))
    assert units is not None
    assert units.scale == 2.0**16


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 127, 1000])
def test_samples_are_spread_over_all(n: int) -> None:
    chosen = spread(n, 64)
    assert len(chosen) == min(n, 64)
    assert chosen == sorted(set(chosen))
    assert all(i * n // len(chosen) <= j < (i + 1) * n // len(chosen) for i, j in enumerate(chosen))


def outputs_as_numbers(outputs: Tensor, targets: Tensor) -> Tensor:
    return mse_loss(outputs.squeeze(1), targets)


def zero_elsewhere(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.where(targets.isnan(), 0 * outputs, outputs - targets.nan_to_num()).square().mean()


def known_alone(outputs: Tensor, targets: Tensor, loss: Callable[..., Tensor] = mse_loss) -> Tensor:
    """The loss over those targets that are known."""
    known = ~targets.isnan()
    return loss(outputs[known], targets[known])


def test_targets_of_another_form_or_kind_have_units_too() -> None:
    y = targets(1000.0, 5000.0)
    plain = found(net(), y)
    assert found(net(), y[:, 0], outputs_as_numbers) == replace(plain, layer=ANY, mean=ANY, missing=ANY)
    assert found(net(), y.long()).scale == plain.scale
    assert found(net(), y.long()).mean.item() == pytest.approx(5000, rel=1e-3)
    some = torch.where(torch.arange(N)[:, None] % 5 == 0, torch.nan, y)
    assert found(net(), some, known_alone).scale == found(net(), some, zero_elsewhere).scale == plain.scale
    assert look(net(), some) is None


def test_a_call_that_is_refused_leaves_the_last_layer_alone(tmp_path: Path) -> None:
    model, y = net(), targets(1e-4, 7.0)
    before = vector(model)
    with pytest.raises(TypeError, match="no option 'learning_rate'"):
        vcsg.fit(model, mse_loss, (inputs(), y), passes=1, learning_rate=0.1)
    vcsg.fit(net(), mse_loss, (inputs(), y), passes=1, checkpoint=tmp_path)
    with pytest.raises(FileExistsError, match="resume=True"):
        vcsg.fit(model, mse_loss, (inputs(), y), passes=1, checkpoint=tmp_path)
    assert torch.equal(vector(model), before)


def test_what_goes_on_has_to_have_the_same_units(tmp_path: Path) -> None:
    y = targets(1e5)
    first = vcsg.fit(net(), mse_loss, (inputs(), y), passes=1, checkpoint=tmp_path)
    for other, factor in ((y / 1e5, "None"), (y / 1e3, "128.0")):
        with pytest.raises(ValueError, match=f"steps of the last layer is 131072.0, here it is {factor}"):
            vcsg.fit(net(), mse_loss, (inputs(), other), passes=2, checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"a run with lr = 1, 1.311e\+05, 1.311e\+05, and here it is 1: a run goes on"):
        vcsg.fit(net(), mse_loss, (inputs(), y / 1e5), passes=2, state=first.state)
    with pytest.raises(ValueError, match=r"a run with lr = 1, 1.311e\+05, 1.311e\+05, and here it is 0.01: a run goes"):
        vcsg.fit(net(), mse_loss, (inputs(), y), passes=2, state=first.state, lr=0.01)


class Forecast(nn.Module):
    """What was before, and a change that a net adds to it."""

    def __init__(self) -> None:
        super().__init__()
        self.change = net(nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.change(x)


def test_the_units_are_of_what_the_layer_has_to_add() -> None:
    X = 1000 * inputs() + 5000
    y = X + 8 * inputs().roll(1, 1) + 100
    units = target_units(Task(Forecast(), mse_loss, None, {}), TensorSource("data", (X, y), CPU))
    assert units is not None
    assert units.scale == 8.0
    assert units.mean.tolist() == pytest.approx([100] * 5, abs=3)


@pytest.mark.parametrize("missing", [False, True])
def test_a_loss_for_data_with_outliers_has_the_units_of_the_others(missing: bool) -> None:
    y = targets(4.0, 20.0)
    y[5] = 1e6
    y[7] = torch.nan if missing else -1e6
    for loss in (l1_loss, smooth_l1_loss):
        units = found(net(), y, partial(known_alone, loss=loss))
        assert (units.scale in (4.0, 8.0), units.far) == (True, True)
        assert units.mean.item() == pytest.approx(20, abs=2)
    assert found(net(), y, known_alone).scale > 1e5


def test_outliers_among_targets_of_which_most_are_equal() -> None:
    """There quartiles tell nothing."""
    y = torch.where(targets(4.0) > 4, targets(4.0), 0.0)
    assert 0.1 < (y > 0).float().mean() < 0.25
    expected = found(net(), y, l1_loss).scale
    y[(y == 0).nonzero()[0, 0]] = 1e9
    assert found(net(), y, l1_loss).scale in (expected, 2 * expected)


def test_extreme_targets_are_told_of_where_the_loss_is_a_square(caplog: pytest.LogCaptureFixture) -> None:
    """All of a tensor are looked at."""
    y = targets(n=2000)
    for value, loss, told in ((1e5, mse_loss, True), (1e5, l1_loss, False), (30.0, mse_loss, False)):
        caplog.clear()
        y[1234] = value
        vcsg.fit(net(), loss, (inputs(2000), y), passes=0.1)
        assert ("a target is 1e+05, where half of all lie from -0.7" in caplog.text) is told
        assert ("a target is" in caplog.text) is told
    caplog.clear()
    mostly_0 = torch.where(y > 2, 1e5, 0.0)
    vcsg.fit(net(), mse_loss, (inputs(2000), mostly_0), passes=0.1)
    of_other_units = torch.cat([targets(n=2000), targets(n=2000), targets(n=2000), targets(1e6, n=2000)], 1)
    vcsg.fit(net(nn.Linear(16, 4)), mse_loss, (inputs(2000), of_other_units), passes=0.1)
    assert "a target is" not in caplog.text


def test_large_targets_are_not_told_of_for_an_outlier_that_the_loss_does_not_heed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    y = targets()
    y[spread(N, 32)[3]] = 1e9
    model = net(nn.Linear(16, 1, bias=False))
    vcsg.fit(model, l1_loss, (inputs(), y), passes=1)
    assert "the targets are about" not in caplog.text
    vcsg.fit(model, l1_loss, (inputs(), 1e5 * targets()), passes=1)
    assert "the targets are about 1.2e+05" in caplog.text


UNEVEN = "the targets of a sample are spread over the samples by"


@pytest.mark.parametrize(("ratio", "told"), [(300.0, True), (30.0, False)])
def test_targets_of_uneven_spread_are_told_of(ratio: float, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A target that is the same for all samples, but for rounding, has no spread to compare."""
    around = 273.15 * (1 + 1e-7 * targets())
    y = torch.cat([targets(), ratio * targets(), torch.ones(N, 1), around], 1)
    vcsg.fit(net(nn.Linear(16, 4)), mse_loss, (inputs(), y), passes=0.5)
    assert (UNEVEN in caplog.text) is told


class InUnits(nn.Module):
    """A layer whose outputs have the units of the targets already."""

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs * torch.tensor([1000.0, 1.0])


UNTOLD: dict[str, tuple[nn.Module, Callable[..., Tensor], Tensor]] = {
    "classes": (net(nn.Linear(16, 3)), cross_entropy, torch.arange(N) % 3),
    "one target": (net(), mse_loss, 300 * targets()),
    "a model in their units": (
        net(nn.Linear(16, 2), InUnits()),
        mse_loss,
        torch.cat([1000 * targets(), targets()], 1),
    ),
    "shares": (net(nn.Linear(16, 2), nn.Softmax(1)), mse_loss, torch.cat([targets().sigmoid(), 1e-4 * targets()], 1)),
    "images": (net(nn.Linear(16, 49)), mse_loss, torch.cat([targets().repeat(1, 48), 1e-4 * targets()], 1)),
}


@pytest.mark.parametrize("kind", UNTOLD)
def test_targets_are_not_told_of_for_an_uneven_spread(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    model, loss, y = UNTOLD[kind]
    vcsg.fit(model, loss, (inputs(), y), passes=0.5)
    assert UNEVEN not in caplog.text
