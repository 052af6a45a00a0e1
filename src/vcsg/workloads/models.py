"""The networks of the experiments, and a registry of models by name. All return logits.

Their weights are drawn from torch's global generator (seed it with `torch.manual_seed`). None has dropout or
BatchNorm: with those, f would not be a fixed sum over samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from vcsg.names import check_new

Build = Callable[[tuple[int, ...], int], nn.Module]


def lenet_300_100(inputs: int = 784, classes: int = 10) -> nn.Sequential:
    """LeNet-300-100: fully connected, two hidden layers of 300 and 100 ReLU units.

    266,610 parameters for 784 inputs and 10 classes. Torch's default initialisation.

    References:
        LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998.
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 300),
        nn.ReLU(),
        nn.Linear(300, 100),
        nn.ReLU(),
        nn.Linear(100, classes),
    )


def lenet_5(channels: int = 1, pixels: int = 28, classes: int = 10) -> nn.Sequential:
    """LeNet-5 with two convolutional and two fully connected layers, the variant that came with Caffe.

    Convolution 5×5 to 20 channels, ReLU, max-pooling 2×2; convolution 5×5 to 50 channels, ReLU, max-pooling 2×2; 500
    ReLU units; classes. No padding: 28 pixels become 4 (431,080 parameters with one channel and ten classes), 32
    become 5, 64 become 13. Torch's default initialisation. (The original of 1998 has three fully connected layers.)

    References:
        LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998.
        Jia et al., "Caffe: convolutional architecture for fast feature embedding", 2014.
    """
    if pixels < 16:
        raise ValueError(f"LeNet-5 needs images of at least 16 × 16 pixels, not {pixels} × {pixels}: enlarge them")
    left = ((pixels - 4) // 2 - 4) // 2
    return nn.Sequential(
        Images(channels, pixels),
        nn.Conv2d(channels, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * left**2, 500),
        nn.ReLU(),
        nn.Linear(500, classes),
    )


VGG_16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""The channels of the convolutions of VGG-16, in five stages."""


def vgg_16(channels: int = 3, pixels: int = 64, classes: int = 200) -> nn.Sequential:
    """VGG-16 without BatchNorm, for small images: 13 convolutional and three fully connected layers.

    Thirteen convolutions 3×3 with padding, each with ReLU, and max-pooling 2×2 after each of five stages: 512 channels
    of 1×1 are left of 32 pixels, of 2×2 of 64. The classifier has two layers of 512 ReLU units, and the classes; the
    original, for 224 pixels, has 4,096 units and dropout. 15,245,130 parameters for CIFAR-10, 16,129,032 for Tiny
    ImageNet.

    Weights are uniform with variance 2/fan-in and biases are 0 (He et al.): with torch's default the signal fades
    over 16 layers without BatchNorm, and the network does not train.

    References:
        Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014.
        He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015.
    """
    if pixels < 32:
        raise ValueError(f"VGG-16 halves images five times: {pixels} × {pixels} pixels are too few, give at least 32")
    layers: list[nn.Module] = [Images(channels, pixels)]
    before = channels
    for stage in VGG_16:
        for after in stage:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            before = after
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(before * (pixels // 32) ** 2, 512), nn.ReLU()]
    layers += [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, classes)]
    return with_he_weights(nn.Sequential(*layers))


def with_he_weights(model: nn.Sequential) -> nn.Sequential:
    """The model with weights that are uniform with variance 2/fan-in, and biases of 0."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_uniform_(parameter, nonlinearity="relu")
        else:
            nn.init.zeros_(parameter)
    return model


class Images(nn.Module):
    """Passes images on unchanged, and refuses images of another size than the network was built for."""

    def __init__(self, channels: int, pixels: int) -> None:
        super().__init__()
        self.shape = (channels, pixels, pixels)

    def forward(self, images: Tensor) -> Tensor:
        """Return the images unchanged."""
        if images.shape[1:] != self.shape:
            raise ValueError(
                f"images of shape {tuple(images.shape[1:])} came to a network for {self.shape}: "
                "build it with their channels= and pixels="
            )
        return images


def _square(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """The channels and the pixels per side of square images."""
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ValueError(f"{name} needs square images (channels, pixels, pixels), not samples of shape {shape}")
    return shape[0], shape[1]


_MODELS: dict[str, Build] = {
    "lenet-300-100": lambda shape, classes: lenet_300_100(math.prod(shape), classes),
    "lenet-5": lambda shape, classes: lenet_5(*_square("lenet-5", shape), classes),
    "vgg-16": lambda shape, classes: vgg_16(*_square("vgg-16", shape), classes),
}


def register_model(name: str, build: Build, *, replace: bool = False) -> None:
    """Make a model known by name; build(shape of a sample, classes) raises a ValueError where it does not fit them.

    A name that exists already is refused unless `replace` is true.
    """
    if not name or "/" in name:
        raise ValueError(f"the name {name!r} is empty or has a '/', which stands before the name of a model")
    check_new("model", name, _MODELS, replace)
    _MODELS[name] = build


def models() -> dict[str, Build]:
    """Every registered model by name."""
    return dict(_MODELS)
