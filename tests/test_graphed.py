"""Runs through CUDA graphs against the same runs step by step: equal decisions, and points equal up to rounding."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from nets import vector
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.gpu import executor as graphed_module
from vcsg.gpu.executor import GraphExecutor
from vcsg.study import baselines
from vcsg.study.adapter import Baseline
from vcsg.training.clock import Clock
from vcsg.training.engine import StepEngine
from vcsg.training.limits import Limits
from vcsg.training.loop import Loop
from vcsg.training.progress import Silent
from vcsg.training.sources import TensorSource

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
N = 240
GRAPHED = sorted(name for name in vcsg.methods() if name != "saga")


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    """Else two runs of the same engine differ too."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before


def net(*extra: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 12), *extra, nn.Tanh(), nn.Linear(12, 3)]
    return nn.Sequential(*layers).double().cuda()


def data() -> tuple[Tensor, Tensor]:
    X = torch.randn(N, 1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return X.cuda(), ((X[:, 0, 0, 0] > 0).long() + (X[:, 0, 1, 1] > 0).long()).cuda()


def fitted(engine: str, model: nn.Module, method: Any, **options: Any) -> vcsg.Result:
    options = {"passes": 12, "test": data(), "seed": 3} | options
    return vcsg.fit(model, cross_entropy, data(), method, engine=engine, **options)


def assert_same(graphed: vcsg.Result, eager: vcsg.Result, tolerance: float = 1e-8) -> None:
    assert graphed.engine["engine"] == "graphed"
    assert eager.engine["engine"] == "eager"
    assert graphed.ifo == eager.ifo
    told = [[(r.epoch, r.regime, r.B, r.b, r.length, r.ifo) for r in result.records] for result in (graphed, eager)]
    assert told[0] == told[1]
    for a, b in zip(graphed.model.state_dict().values(), eager.model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    for row, other in zip(graphed.history, eager.history, strict=True):
        assert row["ifo"] == other["ifo"]
        assert row["train_loss"] == pytest.approx(other["train_loss"], rel=1e-7, nan_ok=True)
        assert row["test_loss"] == pytest.approx(other["test_loss"], rel=1e-7)


@contextmanager
def variant(streams: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Two streams, or graphs of 4 steps with all gradients at the anchor in one pass, which are counted."""
    passes: list[int] = []
    all_at = GraphExecutor._all_at

    def counted(self: GraphExecutor, name: str, batches: list[Any]) -> Any:
        passes.append(len(batches))
        return all_at(self, name, batches)

    with monkeypatch.context() as patch:
        patch.setattr(graphed_module, "STEPS", 4)
        patch.setattr(graphed_module, "AHEAD", 0 if streams else 2**26)
        patch.setattr(GraphExecutor, "_all_at", counted)
        yield passes


@pytest.mark.parametrize("streams", [False, True], ids=["ahead", "streams"])
@pytest.mark.parametrize("name", GRAPHED)
def test_every_method_takes_the_steps_of_the_eager_run(
    name: str, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with variant(streams, monkeypatch):
        graphed = fitted("graphed", net(), name)
    assert graphed.engine["graphs"] > 0 or name == "gd"
    assert_same(graphed, fitted("eager", net(), name))


@pytest.mark.parametrize("streams", [False, True], ids=["ahead", "streams"])
@pytest.mark.parametrize("comparison", ["norm", "lemma", "elementwise"])
def test_two_hundred_steps_with_a_test(comparison: str, streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"comparison": comparison, "paper": True, "L": 20.0, "weight_decay": 1e-2}
    options |= {"output": "weighted", "passes": 30}
    with variant(streams, monkeypatch) as passes:
        graphed = fitted("graphed", net(), "vcsg", **options)
    assert (4 in passes) != streams
    assert sum(record.length for record in graphed.records) > 200
    assert_same(graphed, fitted("eager", net(), "vcsg", **options))


@pytest.mark.parametrize("name", ["svrg", "spider", "sgd"])
def test_groups_have_their_own_step_sizes_and_schedulers(name: str) -> None:
    ends = []
    for engine in ("graphed", "eager"):
        model = net()
        groups = [{"params": model[0].parameters(), "lr": 0.5, "maximize": False}, {"params": model[3:].parameters()}]
        optimizer = vcsg.FiniteSumOptimizer(groups, N, name, L=10.0, lr=1.0, weight_decay=0.1, b=4)
        source = TensorSource("data", data(), torch.device("cuda"))
        objective = lambda batch, model=model: cross_entropy(model(batch[0]), batch[1])  # noqa: E731
        run = Loop(
            model, optimizer, objective, source, lambda row, last: None, Limits(passes=6), every=2.5,
            clock=Clock(torch.device("cuda")), engine=StepEngine(engine, optimizer, model, objective, source),
        )  # fmt: skip
        run.run(Never(), Silent("", optimizer, True))
        ends.append(vector(model))
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)


class Never:
    asked = False


def test_frozen_parameters_stay() -> None:
    models = [net(), net()]
    for model in models:
        model[0].weight.requires_grad_(False)
    start = models[0][0].weight.clone()
    results = [fitted(engine, model, "svrg") for engine, model in zip(("graphed", "eager"), models, strict=True)]
    assert_same(*results)
    assert torch.equal(models[0][0].weight, start)


@pytest.mark.parametrize(("name", "options"), [("svrg", {"b": 8}), ("vcsg", {"b_min": 8}), ("scsg", {"b": 8})])
def test_batchnorm_buffers_change_at_x_alone(name: str, options: dict[str, int]) -> None:
    # With mini-batches of 2, BatchNorm makes ±1 of everything and gradients of rounding: no two runs are equal.
    results = [fitted(engine, net(nn.BatchNorm1d(12)), name, L=30.0, **options) for engine in ("graphed", "eager")]
    assert_same(*results)
    assert int(results[0].model[4].num_batches_tracked) > 0


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.k = self.k + 1
        return x


@pytest.mark.parametrize("name", ["svrg", "sgd"])
def test_buffers_that_are_assigned_anew_count_as_in_the_eager_run(name: str) -> None:
    results = [fitted(engine, net(Counting()), name, L=30.0, b=8) for engine in ("graphed", "eager")]
    assert_same(*results)
    assert results[0].model[4].k == results[1].model[4].k > 0


def test_a_step_that_is_too_long_is_taken_back_as_in_the_eager_run(caplog: pytest.LogCaptureFixture) -> None:
    """With an L a little too small: with one far too small points reach 1e80, and rounding grows with them."""
    torch.manual_seed(0)
    wild = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)).double()
    X = torch.randn(N, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).cuda()
    results, told = [], []
    for engine in ("graphed", "eager"):
        model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)).double().cuda()
        model.load_state_dict(wild.state_dict())
        caplog.clear()
        results.append(
            vcsg.fit(model, lambda o, t: o.pow(4).mean() + (o - t).square().mean(), (X, X[:, :3]), "svrg", L=2.0,
                     passes=8, engine=engine)
        )  # fmt: skip
        told.append([record.message for record in caplog.records if "back to" in record.message])
    assert told[0]
    assert len(told[0]) == len(told[1])
    assert results[0].ifo == results[1].ifo
    torch.testing.assert_close(vector(results[0].model), vector(results[1].model), rtol=1e-6, atol=1e-8)


def test_a_run_that_overflows_counts_as_the_eager_run_does(caplog: pytest.LogCaptureFixture) -> None:
    X = torch.randn(N, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).cuda()
    counts = []
    for engine in ("graphed", "eager"):
        torch.manual_seed(0)
        model = nn.Linear(6, 3).double().cuda()
        caplog.clear()
        result = vcsg.fit(model, lambda o, t: (o - t).pow(4).mean(), (X, X[:, :3]), "batching-svrg", B=64, b=4, L=1e-3,
                          passes=6, engine=engine, seed=1)  # fmt: skip
        counts.append((result.ifo, [r.ifo for r in result.records], len(caplog.records)))
    assert caplog.records
    assert counts[0] == counts[1]


def test_dropout_is_left_to_the_eager_engine_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    results = [fitted(engine, net(nn.Dropout(0.3)), "svrg", passes=4) for engine in ("graphed", "auto", "eager")]
    for result in results:
        assert result.engine["engine"] == "eager"
        assert torch.equal(vector(result.model), vector(results[0].model))
    assert "dropout" in results[0].engine["engine_reason"]
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "dropout" in warnings[0].message


class Branching(nn.Module):
    """Looks at numbers of the device."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().sum()) < 1e9 else -x


@pytest.mark.parametrize("name", ["svrg", "vcsg", "sgd"])
def test_a_model_that_cannot_be_captured_goes_on_eagerly(name: str) -> None:
    result = fitted("graphed", net(Branching()), name, passes=5)
    assert result.engine["engine"] == "eager"
    assert "captured" in result.engine["engine_reason"]
    assert torch.rand(3, device="cuda").isfinite().all()  # the generator is as it was
    torch.testing.assert_close(vector(result.model), vector(fitted("eager", net(), name, passes=5).model))


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    def crash(record: vcsg.Record) -> None:
        if record.epoch == 4:
            raise InterruptedError

    options = {"checkpoint_seconds": 0, "L": 20.0, "b": 4}
    whole = fitted("graphed", net(), "svrg", **options)
    with pytest.raises(InterruptedError):
        fitted("graphed", net(), "svrg", checkpoint=tmp_path, callback=crash, **options)
    found = fitted("graphed", net(), "svrg", checkpoint=tmp_path, resume=True, **options)
    assert found.ifo == whole.ifo
    torch.testing.assert_close(vector(found.model), vector(whole.model), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("sgd-momentum", ""),
        ("adamw", ""),
        ("torch-muon", ""),
        ("schedule-free-adamw", "counts its steps in Python"),
        ("prodigy", "on the host"),
    ],
)
def test_baselines(name: str, outside: str) -> None:
    """Those whose steps a graph cannot repeat have their gradients from graphs, and take their own steps."""
    make: Any = baselines.BASELINES[name]
    ends = []
    for engine in ("graphed", "eager"):
        model = net()
        optimizer = make(model.parameters(), N, lr=1e-2, b=7, seed=2)
        source = TensorSource("data", data(), torch.device("cuda"))
        objective = lambda batch, model=model: cross_entropy(model(batch[0]), batch[1])  # noqa: E731
        executes = StepEngine(engine, optimizer, model, objective, source)
        run = Loop(
            model, optimizer, objective, source, lambda row, last: None, Limits(passes=8), every=2.5,
            clock=Clock(torch.device("cuda")), engine=executes,
        )  # fmt: skip
        run.run(Never(), Silent("", optimizer, True))
        assert executes.notes["engine"] == engine
        if engine == "graphed":
            assert executes.notes["graphs"] > 0
            assert outside in executes.notes.get("gradients_alone", "")
            assert bool(outside) == ("gradients_alone" in executes.notes)
        ends.append(vector(model))
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)


class Moving(torch.optim.SGD):
    """An optimizer that puts its parameters into new memory."""

    def step(self, closure: Any = None) -> None:
        super().step()
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data.clone()


def test_an_optimizer_that_moves_its_parameters_is_left_to_single_steps() -> None:
    model = net()
    optimizer = Baseline(Moving(model.parameters(), lr=1e-2), N, 7, 2, uncapturable="its parameters move")
    source = TensorSource("data", data(), torch.device("cuda"))
    executes = StepEngine("auto", optimizer, model, lambda batch: cross_entropy(model(batch[0]), batch[1]), source)
    assert executes.advance(5)[0] == optimizer.phase.size(0)  # the first step alone
    assert executes.advance(5) == (0, 0.0)
    assert "other memory" in executes.notes["engine_reason"]


def test_single_precision_learns() -> None:
    from vcsg.workloads import lenet_300_100, mnist_mini

    images = mnist_mini(device="cuda")
    torch.manual_seed(0)
    result = vcsg.fit(lenet_300_100().cuda(), cross_entropy, images.train, "vcsg", passes=8, test=images.test)
    assert result.engine["engine"] == "graphed"
    assert result.history[-1]["error"] < 0.2
