"""The same on a GPU: data on the device, dropout's mask at x and y, checkpoints, BatchNorm, compiled models."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
import torch
from nets import net_closure, vector
from torch import Tensor

import vcsg
from vcsg.training.saving import Generators

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def net(batchnorm: bool = False) -> torch.nn.Sequential:
    torch.manual_seed(0)
    norm = [torch.nn.BatchNorm1d(16)] if batchnorm else []
    return (
        torch.nn.Sequential(
            torch.nn.Linear(5, 16), *norm, torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 3)
        )
        .double()
        .cuda()
    )


def data(n: int = 96) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return X.cuda(), ((X[:, 0] > 0).long() + (X[:, 1] > 0).long()).cuda()


@pytest.mark.parametrize("name", sorted(vcsg.methods()))
def test_every_method_runs_and_resumes_bit_for_bit(name: str) -> None:
    model, source = net(), data()
    optimizer = vcsg.FiniteSumOptimizer(model.parameters(), 96, name, output="weighted")
    for x, y in optimizer.batches(source, passes=3):
        assert x.is_cuda
        optimizer.step(net_closure(model, x, y))
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=True)
    other = net()
    other.load_state_dict(saved["model"])
    resumed = vcsg.FiniteSumOptimizer(other.parameters(), 96, name, output="weighted")
    resumed.load_state_dict(saved["optimizer"])
    for m, o in ((model, optimizer), (other, resumed)):
        for x, y in o.batches(source, passes=6):
            o.step(net_closure(m, x, y))
        o.load_output()
    assert torch.equal(vector(model), vector(other))
    assert torch.isfinite(vector(model)).all()


def test_dropout_has_the_same_mask_at_both_points_and_the_generator_is_put_back() -> None:
    model, source = net(), data()
    optimizer = vcsg.SVRG(model.parameters(), n=96, L=1.0)
    torch.cuda.manual_seed(4)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(4)
    for x, y in optimizer.batches(source, passes=math.inf):
        first = optimizer.phase.kind == "inner"
        optimizer.step(net_closure(model, x, y))
        if first:
            break
    for p in model.parameters():
        torch.testing.assert_close(p.grad, optimizer.state[p]["mean"], rtol=0, atol=1e-14)
    assert torch.equal(torch.rand(3, device="cuda"), expected)


@pytest.mark.parametrize("name", ["svrg", "vcsg"])
def test_compiled_batchnorm(name: str) -> None:
    ends = []
    for compiled in (False, True):
        model, source = net(batchnorm=True), data()
        model[3].p = 0.0  # the compiled dropout draws other masks
        call = torch.compile(model, backend="aot_eager", dynamic=True) if compiled else model
        optimizer = vcsg.FiniteSumOptimizer(model.parameters(), 96, name, buffers=model.buffers(), L=4.0)
        for x, y in optimizer.batches(source, passes=3):
            optimizer.step(net_closure(call, x, y))
        ends.append(torch.cat([t.detach().double().flatten() for t in (*model.parameters(), *model.buffers())]))
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)


def test_lenet_learns_on_the_device() -> None:
    from vcsg.workloads import lenet_300_100, mnist_mini

    images = mnist_mini(device="cuda")
    torch.manual_seed(0)
    model = lenet_300_100().cuda()
    optimizer = vcsg.VCSG(model.parameters(), n=len(images.train[0]))
    for x, y in optimizer.batches(images.train, passes=6):
        optimizer.step(net_closure(model, x, y))
    with torch.no_grad():
        error = (model(images.test[0]).argmax(1) != images.test[1]).double().mean().item()
    assert error < 0.25


def test_fit_goes_on_from_its_checkpoints_bit_for_bit(tmp_path: Path) -> None:
    def crash(record: vcsg.Record) -> None:
        if record.epoch == 3:
            raise InterruptedError

    rules = {"passes": 8, "test": data(), "checkpoint_seconds": 0, "L": 5.0}
    loss = torch.nn.functional.cross_entropy
    whole = vcsg.fit(net(True), loss, data(), "svrg", b=8, **rules)
    with pytest.raises(InterruptedError):
        vcsg.fit(net(True), loss, data(), "svrg", b=8, checkpoint=tmp_path, callback=crash, **rules)
    found = vcsg.fit(net(True), loss, data(), "svrg", b=8, checkpoint=tmp_path, resume=True, **rules)
    assert all(
        torch.equal(a, b)
        for a, b in zip(whole.model.state_dict().values(), found.model.state_dict().values(), strict=True)
    )
    assert [row["test_loss"] for row in found.history] == [row["test_loss"] for row in whole.history]
    assert found.records == whole.records


def test_the_generators_of_devices_are_kept() -> None:
    state = Generators().state_dict()
    expected = torch.rand(3, device="cuda")
    Generators().load_state_dict(state)
    assert torch.equal(torch.rand(3, device="cuda"), expected)
