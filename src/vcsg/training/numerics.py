"""The precision that a model is evaluated in, and the memory layout of its images on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

PRECISIONS = ("float32", "tf32", "bfloat16")
CHANNEL_MULTIPLE = 8
"""Tensor cores need numbers of channels that are multiples of this, where images are laid out channels last."""


def check_precision(name: str | None) -> None:
    """Raise a ValueError unless there is a precision of this name."""
    if name is not None and name not in PRECISIONS:
        raise ValueError(
            f"precision = {name!r}: choose {', '.join(map(repr, PRECISIONS))}, or None for torch's settings"
        )


@contextmanager
def precision(name: str | None) -> Iterator[None]:
    """Set TF32 or full float32 for matrix products and convolutions; None and "bfloat16" keep torch's settings."""
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
    """The context for one evaluation. Casts are not cached from one to the next: the weights change in between."""
    return torch.autocast(device.type, torch.bfloat16, enabled=name == "bfloat16", cache_enabled=False)


def lay_out(model: nn.Module, channels_last: bool | None, device: torch.device) -> None:
    """Lay out the weights of convolutions channels last, and so the images between them.

    None decides: on a GPU, where the numbers of channels (but those of the input) are multiples of 8. VGG-16 then takes
    3/4 of the time, while LeNet-5, with 20 and 50 channels, would take 3/2 of it (docs/performance.md).
    """
    if channels_last is None:
        channels_last = device.type == "cuda" and _suits_tensor_cores(model)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _suits_tensor_cores(model: nn.Module) -> bool:
    """Whether there are convolutions of images, and all their channels, those of the input aside, suit tensor cores."""
    found = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    channels = [m.out_channels for m in found] + [m.in_channels for m in found[1:]]
    return bool(found) and all(count % CHANNEL_MULTIPLE == 0 for count in channels)
