"""Models with BatchNorm whose output is an average: their statistics are those of the averaged point."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from nets import net_closure, vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.training import batch_norm
from vcsg.training.sources import TensorSource

N = 60


def net(momentum: float | None = 0.1) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8, momentum=momentum), nn.ReLU(), nn.Linear(8, 3)).double()


def data(n: int = N) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def fitted(model: nn.Module, **options: Any) -> vcsg.Result:
    options = {"b": 6, "step": "orthogonal", "passes": 4, **options}
    return vcsg.fit(model, cross_entropy, data(), "auto", test=data(20), **options)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_statistics_at_the_end_are_those_of_the_averaged_point(momentum: float | None) -> None:
    model = net(momentum)
    result = fitted(model)
    inside = model[0](data()[0]).detach()
    torch.testing.assert_close(model[1].running_mean, inside.mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model[1].running_var, inside.var(0), rtol=1e-12, atol=1e-12)
    assert model[1].momentum == momentum
    X, Y = data(20)
    model.eval()
    assert result.history[-1]["test_loss"] == pytest.approx(cross_entropy(model(X), Y).item(), rel=1e-6)


def test_evaluations_at_the_average_leave_the_run_as_it_is() -> None:
    """The statistics that every step of training begins with are the same with many evaluations and with one."""
    seen: list[list[Tensor]] = []
    ends = []
    for every in (0.1, math.inf):
        model, own = net(), []

        def look(layer: nn.Module, _: Any, own: list[Tensor] = own) -> None:
            if torch.is_grad_enabled() and layer.training:
                own.append(torch.cat([b.detach().double().flatten() for b in layer.buffers()]))

        model[1].register_forward_pre_hook(look)
        result = fitted(model, every=every)
        seen.append(own)
        ends.append((vector(model), *model.buffers()))
        assert len(result.history) > 10 or every == math.inf
    assert len(seen[0]) == len(seen[1]) > 20
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_an_evaluation_in_between_is_one_of_the_average() -> None:
    """The row of a run that goes on is the last row of a run that ends there."""
    long = fitted(net(), passes=4, every=2.0)
    short = fitted(net(), passes=2, every=2.0)
    row = next(row for row in long.history if row["passes"] == 2)
    assert row["test_loss"] == pytest.approx(short.history[-1]["test_loss"], rel=1e-12)
    assert row["error"] == short.history[-1]["error"]


def measured(model: nn.Module, n: int) -> None:
    def objective(batch: Any) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    batch_norm.measure_statistics(model, objective, TensorSource("data", data(n), torch.device("cpu")))


def test_a_sample_that_is_left_over_alone_has_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_norm, "BATCH", 10)
    model = net()
    measured(model, 31)
    parts = model[0](data(31)[0][:30]).detach().split(10)
    torch.testing.assert_close(model[1].running_mean, torch.stack([p.mean(0) for p in parts]).mean(0))
    torch.testing.assert_close(model[1].running_var, torch.stack([p.var(0) for p in parts]).mean(0))
    assert model[1].num_batches_tracked == 3


def test_no_more_samples_than_needed_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_norm, "BATCH", 10)
    monkeypatch.setattr(batch_norm, "SAMPLES", 20)
    model = net()
    measured(model, 50)
    assert model[1].num_batches_tracked == 2


def test_layers_in_mode_eval_keep_their_statistics() -> None:
    model = net()
    model[1].eval()
    before = copy.deepcopy(list(model.buffers()))
    measured(model, N)
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))


# --- the optimizer's own context


def walked(**options: Any) -> tuple[vcsg.FiniteSumOptimizer, nn.Sequential]:
    model = net()
    optimizer = vcsg.Muon(model.parameters(), N, b=6, buffers=model.buffers(), **options)
    for x, y in optimizer.batches(data(), passes=2):
        optimizer.step(net_closure(model, x, y))
    return optimizer, model


def everything(model: nn.Module) -> Tensor:
    return torch.cat([t.detach().double().flatten() for t in model.state_dict().values()])


@pytest.mark.parametrize("fails", [False, True])
def test_at_output_puts_x_and_buffers_back(fails: bool) -> None:
    optimizer, model = walked(output="average")
    before = everything(model).clone()
    places = [t.data_ptr() for t in model.state_dict().values()]

    def look() -> Tensor:
        with optimizer.at_output() as elsewhere:
            assert elsewhere
            assert not torch.equal(everything(model), before)
            model(data()[0])  # in mode train(): the statistics change
            found = vector(model).clone()
            if fails:
                raise ZeroDivisionError
        return found

    if fails:
        with pytest.raises(ZeroDivisionError):
            look()
    else:
        average = look()
        optimizer.load_output()
        assert torch.equal(vector(model), average)
        return
    assert torch.equal(everything(model), before)
    assert [t.data_ptr() for t in model.state_dict().values()] == places


def test_at_output_is_x_itself_where_the_output_is_the_last_point() -> None:
    optimizer, model = walked()
    before = everything(model).clone()
    with optimizer.at_output() as elsewhere:
        assert not elsewhere
        assert torch.equal(everything(model), before)
    unused = vcsg.Auto(net().parameters(), N)
    with unused.at_output() as elsewhere:
        assert not elsewhere  # no step was taken
