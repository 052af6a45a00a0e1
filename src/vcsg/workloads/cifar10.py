"""CIFAR-10, binary version: 50,000 training and 10,000 test images of 32 × 32 in colour, by Krizhevsky et al.

A record has 3,073 bytes: the label, then the red, green and blue planes, row after row. Five training files and one
test file of 10,000 records each are read from a folder or from archives. The Python version is not read: it is a
pickle, which can run any code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from vcsg.workloads.archives import Member, members
from vcsg.workloads.cache import Arrays, cached
from vcsg.workloads.dataset import DataError, DataSet, Device, image_set
from vcsg.workloads.download import Download
from vcsg.workloads.source import Source
from vcsg.workloads.streams import named

MEAN = (0.49139968, 0.48215841, 0.44653091)
STD = (0.24703223, 0.24348513, 0.26158784)
"""Mean and standard deviation of each channel of the training images, scaled to [0, 1]."""

BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
RECORD = 1 + 3 * 32 * 32
"""The bytes of one record."""
RECORDS = 10_000
"""The number of records in each file."""


def find(folder: Path) -> list[Path]:
    """The six .bin files, the official archive, or the archive in parts; [] if there is none of these."""
    for place in (folder / "cifar-10-batches-bin", folder):
        files = [place / name for name in BATCHES]
        if all(path.is_file() for path in files):
            return files
    if (official := folder / "cifar-10-binary.tar.gz").is_file():
        return [official]
    return sorted(folder.glob("cifar-10-batches-bin.part*.tar.xz"))


def read(files: list[Path], device: Device = None) -> DataSet:
    """Read the data set from the files that `find` found; archives are decoded once and cached."""
    plain = files[0].suffix == ".bin"
    arrays = decode(files) if plain else cached("cifar10", files, lambda: decode(files))
    return image_set("cifar10", arrays, 10, MEAN, STD, device)


def decode(files: list[Path]) -> Arrays:
    """Images of shape (N, 3, 32, 32) and labels, in the order of the files."""
    contents = {PurePosixPath(name).name: content for name, content in _contents(files)}
    if missing := [name for name in BATCHES if name not in contents]:
        raise DataError(f"{', '.join(missing)} not found in {_list(files)}: add the part of the set that has it")
    records = {name: _records(name, contents[name], files) for name in BATCHES}
    train, test = np.concatenate([records[name] for name in BATCHES[:5]]), records[BATCHES[5]]
    return {
        f"{part}_{key}": np.ascontiguousarray(array)
        for part, whole in (("train", train), ("test", test))
        for key, array in (("images", whole[:, 1:].reshape(-1, 3, 32, 32)), ("labels", whole[:, 0]))
    }


def _contents(files: list[Path]) -> Iterator[Member]:
    for path in files:
        if path.suffix == ".bin":
            with named(path):
                yield path.name, path.read_bytes()
        else:
            yield from members(path, lambda name: PurePosixPath(name).name in BATCHES, RECORDS * RECORD)


def _records(name: str, content: bytes, files: list[Path]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    if len(content) != RECORDS * RECORD:
        raise DataError(
            f"{name} of {_list(files)} has {len(content):,} bytes, not {RECORDS:,} records of {RECORD:,}: "
            "fetch the binary version again"
        )
    records = np.frombuffer(content, np.uint8).reshape(RECORDS, RECORD)
    if records[:, 0].max() > 9:
        raise DataError(f"{name} of {_list(files)} has a label above 9: fetch the binary version of CIFAR-10 again")
    return records


def _list(files: list[Path]) -> str:
    return ", ".join(map(str, files))


SOURCE = Source(
    name="cifar10",
    folder="cifar10",
    n=50_000,
    shape=(3, 32, 32),
    classes=10,
    find=find,
    read=read,
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            ("md5:c32a1d4ab5d03f1284b67883e8d87530",),
        ),
    ),
)
