"""What `auto` chooses for a model, its data and its device, and that it chooses the same again."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from nets import vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gaussian_nll_loss, mse_loss, poisson_nll_loss
from torch.utils.data import Dataset

import vcsg
from vcsg.method import Adaptive, Orthogonal, make
from vcsg.training.cautions import tell_of_other_units
from vcsg.training.choosing import (
    ChosenOptions,
    adaptive_step,
    choose_options,
    gradient_operations,
    mini_batch,
    orthogonal_step,
    polar_operations,
)
from vcsg.training.sources import DatasetSource, TensorSource
from vcsg.training.task import Task
from vcsg.workloads.models import models

N = 320
CPU = torch.device("cpu")


def net(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), *(layers or (nn.Tanh(),)), nn.Linear(16, 3))


class Last(nn.Module):
    """The outputs of a recurrent net, without its state."""

    def forward(self, found: tuple[Tensor, Tensor]) -> Tensor:
        return found[0]


def data(n: int = N) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 20, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


class Pairs(Dataset[Any]):
    """The same samples as a dataset, read one by one."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        X, Y = data()
        return X[index], Y[index]


def choose(model: nn.Module, source: Any = None, **given: Any) -> ChosenOptions:
    source = source or TensorSource("data", data(), CPU)
    return choose_options(model, lambda batch: cross_entropy(model(batch[0]), batch[1]), source, given)


def counted(model: nn.Module, source: Any) -> float:
    return gradient_operations(model, lambda batch: cross_entropy(model(batch[0]), batch[1]), source)


RATE = 0.002 * math.sqrt(784 / 20 * 3 / 2)
"""The rate of two matrices, of 20 columns at most."""
GRADIENT = 2 * (2 * (20 * 16 + 16 * 3)) + 2 * 16 * 3
"""Per sample: both products forward, both for the weights, and one for the hidden layer."""
POLAR = 5 * (4 * 16**2 * 20 + 2 * 16**3) + 5 * (4 * 3**2 * 16 + 2 * 3**3)
"""Five iterations of XXᵀ, A² and (…)X, for the matrices 16 × 20 and 3 × 16."""


def test_operations_against_a_count_by_hand() -> None:
    model = net()
    assert counted(model, TensorSource("data", data(), CPU)) == GRADIENT
    assert counted(model, DatasetSource(Pairs(), CPU, 0, None)) == GRADIENT
    assert counted(model, TensorSource("data", data(1), CPU)) == GRADIENT
    assert polar_operations([tuple(p.shape) for p in model.parameters()]) == POLAR
    assert polar_operations([(16, 4, 5), (7,), (), (1000, 3)], iterations=1) == POLAR_OF_A_CONVOLUTION


POLAR_OF_A_CONVOLUTION = 4 * 16**2 * 20 + 2 * 16**3
"""Of 16 channels of 4 × 5 weights; vectors, numbers and tables of vectors take no polar factor."""


def test_the_step_follows_the_ratio_and_is_chosen_again() -> None:
    small = choose(net())
    assert small == choose(net()) == choose(net(), DatasetSource(Pairs(), CPU, 0, None))
    assert small.options == {"b": 8, "step": Adaptive(rate=RATE, beta2=0.99)}
    assert small.reason == (
        f"b = 8 for n = {N} on cpu; the adaptive step, {RATE:.2g} for such matrices: polar factors "
        f"take {POLAR / GRADIENT / 8:.2g} times the operations of the gradient; a decoupled weight decay of 0.1"
    )
    large = choose(net(), b=512)
    assert large.options == {"step": Orthogonal(rate=0.028)}
    assert "b = 512" in large.reason
    assert "the orthogonal step, 0.028 for such matrices" in large.reason
    assert choose(net(), b=300).options == {"step": Orthogonal(rate=0.028)}
    assert POLAR / GRADIENT / 300 < 0.5 < POLAR / GRADIENT / 8


@pytest.mark.parametrize(
    ("operations", "sizes"),
    [(1e6, [3, 8, 16, 32, 64, 64]), (1e5, [3, 8, 16, 32, 128, 128]), (100.0, [3, 8, 16, 32, 128, 256])],
)
def test_the_mini_batch_leaves_32_steps_in_a_pass_and_keeps_a_cpu_busy(operations: float, sizes: list[int]) -> None:
    """Up to 64 samples, or the power of two that has ten million operations, 256 at most."""
    assert [mini_batch(n, "cpu", operations) for n in (3, 100, 1023, 1024, 5000, 50_000)] == sizes
    assert mini_batch(50_000, "cpu", 0.0) == 64  # nothing could be counted
    assert [mini_batch(n, "cuda", math.inf) for n in (3, 1023, 10_000, 50_000)] == [3, 16, 256, 512]


@pytest.mark.parametrize(
    ("shapes", "rate"),
    [
        ([(300, 784), (300,), (100, 300), (10, 100)], 0.002),
        ([(300, 784), *[(300, 300)] * 10, (10, 300)], 0.001),
        ([(10, 3000)] * 3, 0.002),
        ([(48, 196), (48,), (48, 48), (10, 48)], 0.004),
        ([(32, 4, 7, 7), (32, 32), (10, 32)], 0.004),
        ([(10, 147)], 0.008),
        ([(8, 16)], 0.016),
        ([(1000, 3), (7,), ()], 0.002 * 3**0.5),
    ],
)
def test_the_adaptive_step_follows_from_columns_and_the_number_of_matrices(
    shapes: list[tuple[int, ...]], rate: float
) -> None:
    """0.002 for three matrices of 784 columns and more, 1/√columns and 1/√matrices, and √b from b = 64 on."""
    for b, times in ((8, 1), (64, 1), (256, 2)):
        assert adaptive_step(shapes, b).rate == pytest.approx(times * rate, rel=1e-12)


class LlamaRMSNorm(nn.Module):
    """A norm that is not torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / x.square().mean(-1, keepdim=True).sqrt()


@pytest.mark.parametrize(
    ("layer", "rate"), [(nn.BatchNorm1d(16), 0.04), (nn.LayerNorm(16), 0.02), (nn.GroupNorm(2, 16), 0.02),
                        (LlamaRMSNorm(), 0.02), (nn.Sequential(nn.BatchNorm1d(16), nn.LayerNorm(16)), 0.02)],
)  # fmt: skip
def test_a_net_that_normalises_has_the_longer_orthogonal_step(layer: nn.Module, rate: float) -> None:
    chosen = choose(net(layer), b=256)
    assert chosen.options == {"step": Orthogonal(rate=rate, share=0.1)}
    assert f"the orthogonal step, {rate} for such matrices: polar factors take" in chosen.reason


@pytest.mark.parametrize("layer", [nn.PReLU(16), nn.Softmax(-1), nn.LayerNorm(16, elementwise_affine=False)])
def test_other_layers_are_no_norms(layer: nn.Module) -> None:
    assert choose(net(layer), b=512).options == {"step": Orthogonal(rate=0.028)}


@pytest.mark.parametrize(
    ("matrices", "b", "plain", "normed", "over_batch"),
    [
        (2, 16, 0.014, 0.02, 0.02),
        (8, 64, 0.007, 0.02 * math.sqrt(0.5), 0.02 * math.sqrt(0.5)),
        (16, 64, 0.005, 0.01, 0.01),
        (100, 16, 0.005, 0.005, 0.005),
        (4, 256, 0.014, 0.02, 0.04),
        (3, 512, 0.01 * math.sqrt(2), 0.02, 0.04 * math.sqrt(2)),
        (5, 512, 0.01 * math.sqrt(2), 0.02 * math.sqrt(0.8), 0.04 * math.sqrt(1.6)),
        (16, 512, 0.01 * math.sqrt(2), 0.01 * math.sqrt(2), 0.02 * math.sqrt(2)),
        (100, 512, 0.01 * math.sqrt(2), 0.01 * math.sqrt(2), 0.01 * math.sqrt(2)),
    ],
)
def test_the_orthogonal_step_is_that_of_auto_or_longer_for_few_matrices(
    matrices: int, b: int, plain: float, normed: float, over_batch: float
) -> None:
    """LeNet-300-100, LeNet-5 and VGG-16, of 3, 4 and 16 matrices without norms, have that of `auto` with b = 512."""
    shapes: list[tuple[int, ...]] = [(8, 800), (8,)] * matrices
    found = [orthogonal_step(shapes, b, norms) for norms in ("none", "other", "batch")]
    assert [step.rate for step in found] == pytest.approx([plain, normed, over_batch], rel=1e-12)
    assert [step.share for step in found] == [1 / 30, 0.1, 0.1]
    assert b < 512 or found[0] == make("auto", b=b).step


@pytest.mark.parametrize(
    ("name", "shape", "small"),
    [
        ("lenet-300-100", (1, 28, 28), 0.014),
        ("lenet-5", (1, 28, 28), 0.014),
        ("lenet-5", (3, 32, 32), 0.014),
        ("vgg-16", (3, 32, 32), 0.005),
        ("vgg-16", (3, 64, 64), 0.005),
    ],
)
def test_nets_of_the_records_have_the_steps_of_their_records(name: str, shape: tuple[int, ...], small: float) -> None:
    """They are not narrow: the orthogonal step is 0.014 or what `auto` has, and that of `auto` with b = 512."""
    shapes = [tuple(p.shape) for p in models()[name](shape, 10).parameters()]
    assert orthogonal_step(shapes, 64, "none") == Orthogonal(rate=small)
    assert orthogonal_step(shapes, 512, "none") == make("auto", b=512).step


@pytest.mark.parametrize(
    ("shapes", "rate"),
    [
        ([(8, 196), (8, 8)], 0.028),
        ([(8, 16), (8, 8)], 0.028),
        ([(8, 4, 7, 10), (10, 400)], 0.014 * 1.4),
        ([(8, 196)] * 8, 0.014),
        ([(8, 784)] * 3, 0.014),
    ],
)
def test_the_orthogonal_step_of_narrow_nets_is_longer(shapes: list[tuple[int, ...]], rate: float) -> None:
    """It goes with 1/√columns, as the adaptive one does, up to twice as long; not where layers normalise."""
    assert orthogonal_step(shapes, 64, "none").rate == pytest.approx(rate, rel=1e-12)
    few = 4 / max(4, len(shapes))
    assert orthogonal_step(shapes, 64, "other").rate == pytest.approx(0.02 * few**0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("shapes", "share"),
    [
        ([(64, 10), (64, 64), (1, 64), (1,)], 0.25),
        ([(64, 10), (64, 64), (1, 16)], 0.3),
        ([(64, 10), (64, 64), (1, 400)], 0.1),
        ([(64, 10), (64, 64), (1, 4000)], 1 / 30),
        ([(64, 10), (64, 64), (1, 4, 64)], 1 / 30),
    ],
)
def test_the_share_of_a_weight_of_one_row(shapes: list[tuple[int, ...]], share: float) -> None:
    """Entries of a row of length 1 are 1/√columns; twice that, and between a 30th and 0.3."""
    assert orthogonal_step(shapes, 64, "none").share == pytest.approx(share, rel=1e-12)
    assert orthogonal_step(shapes, 64, "batch").share == 0.1


def test_one_matrix_is_stepped_adaptively() -> None:
    """Also where polar factors would cost little."""
    model = nn.Linear(20, 3)
    chosen = choose(model, b=320)
    step = adaptive_step([(3, 20), (3,)], 320)
    assert chosen.options == {"step": step}
    assert (
        f"the adaptive step, {step.rate:.2g} for such matrices: polar factors are for nets of layers" in chosen.reason
    )


def test_operations_of_an_lstm_against_a_count_by_hand() -> None:
    """Four gates of 12 units over 7 steps of 8 inputs: both products forward, and twice that backward."""
    model = nn.LSTM(8, 12, batch_first=True)
    source = TensorSource("data", torch.randn(10, 7, 8), CPU)
    found = gradient_operations(model, lambda batch: model(batch)[0].mean(), source)
    assert found == 3 * 7 * 2 * 4 * 12 * (8 + 12)


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_parametrized_models_are_fitted(norm: Any) -> None:
    """The counter of operations refuses autograd.grad() for them."""
    torch.manual_seed(0)
    model = nn.Sequential(norm(nn.Linear(20, 16)), nn.ReLU(), nn.Linear(16, 3))
    result = vcsg.fit(model, cross_entropy, data(), passes=3, test=data())
    assert result.history[-1]["test_loss"] < 0.9 * result.history[0]["test_loss"]


def test_what_is_given_is_not_chosen() -> None:
    assert choose(net(), b=7).options == {"step": Adaptive(rate=RATE, beta2=0.99)}
    assert choose(net(), step="plain").options == {"b": 8}
    assert choose(net(), b=7, step="orthogonal").options == {}


class Scaled(nn.Module):
    """A net that brings its inputs to unit scale itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner((x - 100) / 10)


X, Y = data()
INPUTS: dict[str, tuple[nn.Module, Tensor, dict[str, Any], str]] = {
    "of unit scale": (net(), X, {}, ""),
    "ten times that": (net(), 10 * X + 30, {}, ""),
    "off 0": (net(), X + 100, {}, "the first layer, Linear, is given inputs of 1e.02 ± 1: "),
    "large": (net(), 300 * X, {}, "the first layer, Linear, is given inputs of .* ± 3e.02: .* Standardise the inputs"),
    "of a recurrent net": (nn.Sequential(nn.GRU(20, 3), Last()), X + 100, {}, "the first layer, GRU, is given"),
    "normalised first": (nn.Sequential(nn.BatchNorm1d(20), net()), X + 100, {}, ""),
    "scaled by the model": (Scaled(), 10 * X + 100, {}, ""),
    "of an embedding": (nn.Sequential(nn.EmbeddingBag(900, 20), net()), (X.abs() * 100).long(), {}, ""),
    "with a step that is given": (net(), X + 100, {"lr": 0.001}, ""),
    "tiny": (net(), 1e-4 * X, {}, "Linear, is given inputs of .* ± 0.0001: .* Standardise the inputs"),
    "few that are not 0": (net(), nn.functional.one_hot(X[:, 0].abs().mul(6).long().clamp(max=19), 20).float(), {}, ""),
    "all of them 0": (net(), 0 * X, {}, ""),
}


@pytest.mark.parametrize(("model", "x", "options", "told"), INPUTS.values(), ids=INPUTS)
def test_inputs_far_from_0_are_told_of(
    model: nn.Module, x: Tensor, options: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    vcsg.fit(model, cross_entropy, (x, Y), passes=0.1, **options)
    assert "inputs of" not in caplog.text if not told else re.search(told, caplog.text)
    caplog.clear()
    objective = lambda m, batch: cross_entropy(m(batch[0]), batch[1])  # noqa: E731
    vcsg.fit(model, None, (x, Y), objective=objective, passes=0.1, **options)
    assert ("inputs of" in caplog.text) is bool(told)


def test_a_given_step_that_would_be_chosen_is_no_other_step() -> None:
    chosen = choose(net())
    assert chosen.own_step
    assert choose(net(), **chosen.options) == replace(chosen, options={"step": chosen.options["step"]})
    for other in ("adaptive", "orthogonal", "plain", replace(chosen.options["step"], rate=2 * RATE)):
        assert not choose(net(), step=other).own_step


def test_choosing_leaves_model_and_generators_as_they_were() -> None:
    model = net(nn.BatchNorm1d(16), nn.Dropout(0.5))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    choose(model)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_fit_takes_what_is_chosen_and_tells_it() -> None:
    result = vcsg.fit(net(), cross_entropy, data(), passes=1)
    assert result.method == "auto"
    assert result.options == {"b": 8, "step": Adaptive(rate=RATE, beta2=0.99), "seed": 0}
    assert result.chosen == choose(net()).reason
    assert {(r.b, r.step_size) for r in result.records} == {(8, RATE)}
    options: dict[str, Any] = {"b": 16, "step": Orthogonal(rate=0.03), "weight_decay": 1e-4}
    given = vcsg.fit(net(), cross_entropy, data(), passes=1, **options)
    assert given.chosen == f"b = 16 for n = {N} on cpu"
    assert {(r.b, r.step_size) for r in given.records} == {(16, 0.03)}
    assert vcsg.fit(net(), cross_entropy, data(), "svrg", b=8, lr=0.1, passes=1).chosen == ""
    with pytest.raises(ValueError, match="has a step size of its own; leave L out, or give lr="):
        vcsg.fit(net(), cross_entropy, data(), passes=1, L=1.0)


def test_a_run_of_auto_that_is_resumed_is_the_one_that_never_stopped(tmp_path: Path) -> None:
    """Weights, statistics of BatchNorm, history and records, bit by bit; the first part ends at another point."""

    def run(passes: float, **options: Any) -> vcsg.Result:
        model = net(nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        return vcsg.fit(
            model, cross_entropy, data(), passes=passes, test=data(40), every=0.7, seed=3, progress=False, **options
        )

    whole = run(5)
    run(2.2, checkpoint=tmp_path)
    resumed = run(5, checkpoint=tmp_path, resume=True)
    assert torch.equal(vector(whole.model), vector(resumed.model))
    for a, b in zip(whole.model.buffers(), resumed.model.buffers(), strict=True):
        assert torch.equal(a, b)
    assert resumed.chosen == whole.chosen
    assert [r.state_dict() for r in resumed.records] == [r.state_dict() for r in whole.records]
    for one, other in zip(whole.history, resumed.history, strict=True):
        assert all(
            torch.equal(torch.tensor(one[k]), torch.tensor(other[k])) or one[k] != one[k] for k in one if k != "seconds"
        )


@pytest.mark.parametrize(("scale", "told"), [(1.0, False), (50.0, False), (3e5, True)])
def test_targets_far_larger_than_what_the_model_returns_are_told(
    scale: float, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps of a fixed length take many to get there, where no last layer has the units of the targets."""
    model = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), nn.Linear(8, 1, bias=False))
    X, _ = data(64)
    vcsg.fit(model, mse_loss, (X, scale * torch.ones(64, 1)), ifo=64, b=64)
    found = [r.getMessage() for r in caplog.records if "targets" in r.getMessage()]
    assert bool(found) is told
    assert not told or found[0].startswith("the targets are about 3e+05 and the model returns about")
    caplog.clear()
    vcsg.fit(net(), cross_entropy, data(64), ifo=64)  # classes are no quantities
    assert not [r for r in caplog.records if "targets" in r.getMessage()]


def test_a_compiled_model_is_counted_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counted(torch.compile(net(), backend="eager"), TensorSource("data", data(), CPU)) > 0


class Pair(nn.Module):
    """A mean and its logarithmic deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(20, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = self.both(x).split(1, 1)
        return mean, deviation


def test_large_targets_are_told_where_outputs_are_to_come_to_them(caplog: pytest.LogCaptureFixture) -> None:
    X, _ = data(64)
    y = 1e6 * (1.5 + X[:, :1].tanh())

    def told(model: nn.Module, loss: Callable[..., Tensor], targets: Tensor) -> bool:
        caplog.clear()
        vcsg.fit(model, loss, (X, targets), passes=1)
        return "the targets are about" in caplog.text

    no_bias = nn.Linear(20, 1, bias=False)
    assert told(no_bias, mse_loss, y.long())
    assert told(Pair(), lambda outputs, targets: gaussian_nll_loss(outputs[0], targets, outputs[1].exp()), y)
    assert not told(no_bias, poisson_nll_loss, y.round())
    assert not told(no_bias, lambda outputs, targets: mse_loss(outputs, targets.log()), y)


def test_looking_at_the_targets_leaves_statistics_and_generators(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    task = Task(model, mse_loss, None, {})
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    tell_of_other_units(task, TensorSource("data", (data(64)[0], 1e6 * torch.ones(64, 1)), CPU))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert "the targets are about 1e+06" in caplog.text
