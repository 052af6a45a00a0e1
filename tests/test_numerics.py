"""Precision and layout of a fit: what is set, what is put back, and that the model still learns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.training.numerics import lay_out, precision
from vcsg.workloads import lenet_5, lenet_300_100, vgg_16

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]


def data(device: str) -> tuple[Tensor, Tensor]:
    X = torch.randn(96, 8, generator=torch.Generator().manual_seed(1))
    return X.to(device), (X[:, 0] > 0).long().to(device)


def fitted(device: str, **options: str | bool | None) -> vcsg.Result:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    source = data(device)
    return vcsg.fit(model, cross_entropy, source, "svrg", b=8, lr=0.3, passes=40, test=source, **options)


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_evaluates_in_half_precision_and_keeps_parameters_in_float32(device: str) -> None:
    seen = set()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.add(outputs.dtype)
        return cross_entropy(outputs, targets)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    source = data(device)
    half = vcsg.fit(model, loss, source, "svrg", b=8, lr=0.3, passes=40, test=source, precision="bfloat16")
    full = fitted(device)
    assert seen == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert half.history[-1]["test_loss"] != full.history[-1]["test_loss"]
    assert half.history[-1]["test_loss"] == pytest.approx(full.history[-1]["test_loss"], abs=0.02)
    assert half.history[-1]["test_loss"] < 0.5 * half.history[0]["test_loss"]
    if device == "cuda":
        assert half.engine["engine"] == full.engine["engine"] == "graphed"


@pytest.mark.parametrize("name", ["float32", "tf32"])
def test_what_torch_was_set_to_is_put_back(name: str) -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    assert before[0] != before[1]
    with precision(name):
        assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == (name == "tf32")
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before
    with precision(None):
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_a_precision_that_there_is_not_is_refused_before_work_starts() -> None:
    with pytest.raises(ValueError, match="'float32', 'tf32', 'bfloat16', or None"):
        fitted("cpu", precision="half")


def is_channels_last(model: nn.Module) -> bool:
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d)]
    return bool(weights) and all(w.is_contiguous(memory_format=torch.channels_last) for w in weights[1:])


@pytest.mark.parametrize(
    ("build", "expected"),
    [(lambda: vgg_16(3, 32, 10), True), (lambda: lenet_5(3, 32, 10), False), (lenet_300_100, False)],
)
def test_channels_last_on_a_gpu_where_channels_fill_tensor_cores(build, expected: bool) -> None:  # type: ignore[no-untyped-def]
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    for wanted, device, result in ((None, cuda, expected), (None, cpu, False), (False, cuda, False)):
        model = build()
        lay_out(model, wanted, device)
        assert is_channels_last(model) == result
    model = build()
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    lay_out(model, True, cpu)
    assert torch.equal(torch.cat([p.detach().contiguous().flatten() for p in model.parameters()]), before)


def test_channels_last_is_the_same_run() -> None:
    X = torch.randn(48, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    Y = (X[:, 0, 0, 0] > 0).long()
    ends = []
    for wanted in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(128, 2)).double()
        vcsg.fit(model, cross_entropy, (X, Y), "vcsg", L=20.0, passes=6, channels_last=wanted)
        ends.append(torch.cat([p.detach().contiguous().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*ends, rtol=1e-10, atol=1e-12)
