"""A data set in memory, and how the bytes of images become tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bytes = NDArray[np.uint8]
Device = torch.device | str | None


class DataError(ValueError):
    """A data set is missing, or one of its files is damaged or the wrong one. The message names it and the remedy."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set in memory; `train` and `test` are (inputs, labels), with the samples along the first axis.

    Attributes:
        test: the test samples, of length 0 where a set has none.
        classes: the number of classes, whose int64 labels are 0 … classes − 1; 0 where the labels are real numbers.
    """

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int


def image_set(
    name: str,
    arrays: Mapping[str, Bytes],
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    device: Device = None,
) -> DataSet:
    """Make a data set from uint8 arrays "train_images", "train_labels", "test_images" and "test_labels".

    Images of shape (N, C, H, W) or (N, H, W) become float32 of shape (N, C, H, W), (x/255 − mean)/std by channel.
    """
    train, test = (
        (_images(arrays[f"{part}_images"], mean, std, device), _labels(arrays[f"{part}_labels"], device))
        for part in ("train", "test")
    )
    return DataSet(name, train, test, classes)


def _images(pixels: Bytes, mean: Sequence[float], std: Sequence[float], device: Device) -> Tensor:
    # Bytes are moved and converted on the device: that is a quarter of the transfer.
    images = torch.from_numpy(pixels).to(device)
    images = (images.unsqueeze(1) if images.ndim == 3 else images).float().div_(255)
    for channel, (m, s) in enumerate(zip(mean, std, strict=True)):
        images[:, channel].sub_(m).div_(s)
    return images


def _labels(labels: Bytes, device: Device) -> Tensor:
    return torch.from_numpy(labels).to(device).long()
