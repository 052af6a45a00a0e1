"""In which precision a model is evaluated on a GPU, and how its images lie in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

PRECISIONS = ("float32", "tf32", "bfloat16")
TILE = 8
"""Tensor cores take channels in multiples of so many where the images are laid out channels last."""


def check_precision(name: str | None) -> None:
    if name is not None and name not in PRECISIONS:
        raise ValueError(
            f"precision = {name!r}: choose {', '.join(map(repr, PRECISIONS))}, or None for torch's settings"
        )


@contextmanager
def precision(name: str | None) -> Iterator[None]:
    """Products of float32 matrices and convolutions in TF32, in full, or (None, "bfloat16") as torch is set."""
    if name not in ("float32", "tf32"):
        yield
        return
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def autocast(name: str | None, device: torch.device) -> torch.autocast:
    """A context for one evaluation. Nothing is kept from one to the next: weights change, and a graph would too."""
    return torch.autocast(device.type, torch.bfloat16, enabled=name == "bfloat16", cache_enabled=False)


def lay_out(model: nn.Module, channels_last: bool | None, device: torch.device) -> None:
    """Lay out the weights of convolutions, and so the images between them, channels last where that is asked for.

    None: on a GPU, where it is faster. That is for channels in multiples of 8, those of the input aside: VGG-16 then
    takes 3/4 of the time, but LeNet-5, of 20 and 50 channels, 3/2 of it (docs/performance.md).
    """
    if channels_last is None:
        channels_last = device.type == "cuda" and _tiled(model)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _tiled(model: nn.Module) -> bool:
    """Whether it has convolutions of images, all but the first with channels that tensor cores take."""
    found = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    channels = [m.out_channels for m in found] + [m.in_channels for m in found[1:]]
    return bool(found) and all(count % TILE == 0 for count in channels)
