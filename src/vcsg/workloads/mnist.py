"""MNIST: 60,000 training and 10,000 test digits of 28 × 28, by LeCun, Cortes and Burges, in four IDX files."""

from __future__ import annotations

from pathlib import Path

from vcsg.workloads.dataset import DataError, DataSet, Device, image_set
from vcsg.workloads.download import Download
from vcsg.workloads.idx import read_idx
from vcsg.workloads.source import Source
from vcsg.workloads.streams import present

MEAN, STD = (0.1307,), (0.3081,)
"""Mean and standard deviation of all pixels of the 60,000 training images, scaled to [0, 1]."""

FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def find(folder: Path) -> list[Path]:
    """The four files, plain or compressed, in the order of `FILES`; [] if one is missing."""
    found = [present(folder, name) for name in FILES.values()]
    return [path for path in found if path] if all(found) else []


def read(files: list[Path], device: Device = None) -> DataSet:
    """Read the data set from its four files."""
    arrays = {key: read_idx(path, 3 if "images" in key else 1) for key, path in zip(FILES, files, strict=True)}
    for part, images, labels in (("train", files[0], files[1]), ("test", files[2], files[3])):
        count, shape = len(arrays[f"{part}_labels"]), arrays[f"{part}_images"].shape
        if shape != (count, 28, 28):
            raise DataError(
                f"{images} holds an array of {shape}, and {labels} holds {count} labels: they do not belong together; "
                "fetch or copy both again"
            )
        if count == 0 or arrays[f"{part}_labels"].max() > 9:
            raise DataError(f"{labels} should hold digits 0 to 9: fetch or copy it again")
    return image_set("mnist", arrays, 10, MEAN, STD, device)


SOURCE = Source(
    name="mnist",
    folder="mnist",
    n=60_000,
    shape=(1, 28, 28),
    classes=10,
    find=find,
    read=read,
    downloads=(
        Download(
            f"{_URL}train-images-idx3-ubyte.gz",
            9_912_422,
            ("sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",),
        ),
        Download(
            f"{_URL}train-labels-idx1-ubyte.gz",
            28_881,
            ("sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",),
        ),
        Download(
            f"{_URL}t10k-images-idx3-ubyte.gz",
            1_648_877,
            ("sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",),
        ),
        Download(
            f"{_URL}t10k-labels-idx1-ubyte.gz",
            4_542,
            ("sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",),
        ),
    ),
)
