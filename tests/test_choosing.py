"""What `auto` chooses for a model, its data and its device, and that it chooses the same again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from nets import vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import vcsg
from vcsg.method import Adaptive, Orthogonal
from vcsg.training.choosing import ChosenOptions, choose_options, gradient_operations, polar_operations
from vcsg.training.sources import DatasetSource, TensorSource

N = 320
CPU = torch.device("cpu")


def net(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), *(layers or (nn.Tanh(),)), nn.Linear(16, 3))


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
    assert small.options == {"b": 8, "step": Adaptive(rate=0.002, beta2=0.99)}  # the least, for N / 64 is less
    assert small.reason == (
        f"b = 8 for n = {N} on cpu; the adaptive step: polar factors take {POLAR / GRADIENT / 8:.2g} times the "
        "operations of the gradient; a decoupled weight decay of 0.1"
    )
    large = choose(net(), b=300)
    assert large.options == {}  # the orthogonal step, which is that of `auto`
    assert "b = 300" in large.reason
    assert "the orthogonal step" in large.reason
    assert POLAR / GRADIENT / 300 < 0.5 < POLAR / GRADIENT / 8


def test_what_is_given_is_not_chosen() -> None:
    assert choose(net(), b=7).options == {"step": Adaptive(rate=0.002, beta2=0.99)}
    assert choose(net(), step="plain").options == {"b": 8}
    assert choose(net(), b=7, step="orthogonal").options == {}


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
    assert result.options == {"b": 8, "step": Adaptive(rate=0.002, beta2=0.99), "seed": 0}
    assert result.chosen == choose(net()).reason
    assert {(r.b, r.step_size) for r in result.records} == {(8, 0.002)}
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
