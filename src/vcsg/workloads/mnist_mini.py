"""A real data set that needs no download: the first images of MNIST, embedded in the package.

10,000 training and 2,000 test digits are enough to see a method work on real data, on a laptop and offline.
Results quoted for "MNIST" need all 60,000: this set is named `mnist-mini` so that the two are not confused.
Its origin and terms are in `mnist_mini.txt` beside it.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from vcsg.workloads.dataset import Bytes, DataSet, Device, image_set
from vcsg.workloads.mnist import MEAN, STD


def mnist_mini(device: Device = None) -> DataSet:
    """The first 10,000 training and 2,000 test images of MNIST, in their original order.

    Images are float32 of shape (N, 1, 28, 28), standardised to (x/255 − 0.1307)/0.3081; labels are int64.
    """
    return image_set("mnist-mini", _arrays(), 10, MEAN, STD, device)


def _arrays() -> dict[str, Bytes]:
    path = files(__package__).joinpath("mnist_mini.npz")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
