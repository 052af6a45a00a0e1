"""The networks: parameters by closed form, shapes, initial signal, and what they refuse."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from vcsg.workloads import lenet_5, lenet_300_100, register_model, vgg_16
from vcsg.workloads.models import VGG_16, models


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def lenet_5_by_hand(channels: int, left: int, classes: int) -> int:
    """Weights and biases of four layers; `left` pixels remain of an edge."""
    convolutions = (25 * channels + 1) * 20 + (25 * 20 + 1) * 50
    return convolutions + (50 * left**2 + 1) * 500 + 501 * classes


@pytest.mark.parametrize(
    ("channels", "pixels", "classes", "left"),
    [(1, 28, 10, 4), (3, 32, 10, 5), (1, 32, 10, 5), (3, 64, 200, 13), (3, 28, 7, 4)],
)
def test_lenet_5(channels: int, pixels: int, classes: int, left: int) -> None:
    model = lenet_5(channels, pixels, classes)
    assert parameters(model) == lenet_5_by_hand(channels, left, classes)
    assert model(torch.zeros(2, channels, pixels, pixels)).shape == (2, classes)
    kinds = [type(layer) for layer in model]
    assert kinds.count(nn.Conv2d) == kinds.count(nn.Linear) == 2


def test_lenet_5_has_the_size_that_is_quoted_for_it() -> None:
    assert parameters(lenet_5()) == 431_080


def vgg_16_by_hand(channels: int, left: int, classes: int) -> int:
    widths = [channels, 64, 64, 128, 128, *[256] * 3, *[512] * 6]
    convolutions = sum((9 * before + 1) * after for before, after in pairwise(widths))
    return convolutions + (512 * left**2 + 1) * 512 + 513 * 512 + 513 * classes


@pytest.mark.parametrize(("channels", "pixels", "classes"), [(3, 32, 10), (3, 64, 200), (1, 32, 10), (1, 64, 3)])
def test_vgg_16(channels: int, pixels: int, classes: int) -> None:
    with torch.device("meta"):
        model = vgg_16(channels, pixels, classes)
        assert model(torch.zeros(2, channels, pixels, pixels)).shape == (2, classes)
    assert parameters(model) == vgg_16_by_hand(channels, pixels // 32, classes)
    kinds = [type(layer) for layer in model]
    assert (kinds.count(nn.Conv2d), kinds.count(nn.Linear), kinds.count(nn.MaxPool2d)) == (13, 3, 5)
    assert not {nn.BatchNorm2d, nn.Dropout} & set(kinds)


def test_vgg_16_has_the_sizes_that_are_documented() -> None:
    assert vgg_16_by_hand(3, 1, 10) == 15_245_130
    assert vgg_16_by_hand(3, 2, 200) == 16_129_032
    assert sum(map(len, VGG_16)) == 13


def test_vgg_16_passes_the_signal_on() -> None:
    """With variance 2/fan-in the logits of noise are of order 1; with torch's default they would all but agree."""
    torch.manual_seed(0)
    model, images = vgg_16(3, 32, 10), torch.randn(8, 3, 32, 32)
    with torch.no_grad():
        spread = model(images).std(0).mean().item()
        for p in model.parameters():
            if p.ndim > 1:
                bound = math.sqrt(6 / p[0].numel())
                assert p.abs().max().item() <= bound
                assert p.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
            else:
                assert not p.any()
        for layer in model:
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                layer.reset_parameters()
        default = model(images).std(0).mean().item()
    assert 0.02 < spread < 20
    assert default < 1e-3 * spread


def test_the_seed_gives_the_weights() -> None:
    for make in (lenet_300_100, lenet_5, lambda: vgg_16(3, 32, 10)):
        torch.manual_seed(3)
        first = make()
        torch.manual_seed(3)
        for a, b in zip(first.parameters(), make().parameters(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: vgg_16(3, 28, 10), "28 × 28 pixels are too few, give at least 32"),
        (lambda: lenet_5(3, 15, 10), "at least 16 × 16 pixels, not 15 × 15"),
    ],
)
def test_images_that_are_too_small(build: type, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (2, 3, 28, 28), (2, 784)])
def test_images_of_another_size_than_built_for(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"came to a network for \(1, 28, 28\): build it with their channels"):
        lenet_5(1, 28, 10)(torch.zeros(shape))


@pytest.mark.parametrize("name", ["lenet-5", "vgg-16"])
@pytest.mark.parametrize("shape", [(123,), (3, 32, 64), (32, 32)])
def test_samples_that_are_no_square_images(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"{name} needs square images"):
        models()[name](shape, 10)


@pytest.mark.parametrize("name", ["", "a/b"])
def test_names_that_a_model_cannot_have(name: str) -> None:
    with pytest.raises(ValueError, match=f"the name '{name}'"):
        register_model(name, models()["lenet-5"])
