"""MNIST: the IDX format on small files, what is wrong with broken ones, and the real set."""

import bz2
import gzip
import lzma
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from vcsg.workloads import DataError, load_data_set, mnist_mini
from vcsg.workloads.idx import read_idx
from vcsg.workloads.mnist import FILES, find, read

REAL = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("VCSG_DATA"), reason="VCSG_DATA is not set: the real set is not there"),
]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)


def write_set(folder: Path, pack: Callable[[bytes], bytes] = lambda raw: raw, suffix: str = "") -> list[np.ndarray]:
    arrays = [*digits(5, 0), *digits(3, 1)]
    for name, array in zip(FILES.values(), arrays, strict=True):
        (folder / f"{name}{suffix}").write_bytes(pack(idx(array)))
    return arrays


@pytest.mark.parametrize(
    ("pack", "suffix"),
    [(bytes, ""), (gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz"), (gzip.compress, "")],
)
def test_files_plain_or_compressed(tmp_path: Path, pack: Callable[[bytes], bytes], suffix: str) -> None:
    images, labels, test_images, test_labels = write_set(tmp_path, pack, suffix)
    data = read(find(tmp_path))
    for (x, y), pixels, digit in ((data.train, images, labels), (data.test, test_images, test_labels)):
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        assert x.shape == (len(pixels), 1, 28, 28)
        np.testing.assert_allclose(x[:, 0].numpy(), (pixels / 255 - 0.1307) / 0.3081, atol=1e-6)
        assert y.tolist() == digit.tolist()
    assert data.classes == 10


def test_an_incomplete_set_is_not_found(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / FILES["test_labels"]).unlink()
    assert find(tmp_path) == []


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_idx_of_any_rank(tmp_path: Path, rank: int) -> None:
    array = np.arange(24, dtype=np.uint8).reshape([24, 4, 6, 2, 3, 4][rank * (rank - 1) // 2 :][:rank])
    path = tmp_path / "array"
    path.write_bytes(idx(array))
    assert np.array_equal(read_idx(path, rank), array)


GOOD = idx(np.zeros((4, 28, 28), np.uint8))
BROKEN = {
    "empty": (b"", "it is not an IDX file"),
    "a page of a web server": (b"<html>404</html>" * 9, "it is not an IDX file"),
    "other numbers": (b"\0\0\x0d" + GOOD[3:], "it is not an IDX file"),
    "labels for images": (idx(np.zeros(4, np.uint8)), "it is not an IDX file"),
    "head cut off": (GOOD[:9], "it is not an IDX file"),
    "cut off": (GOOD[:-1], "holds only 3,135"),
    "longer": (GOOD + b"\0", "holds more"),
    "a count beyond all": (GOOD[:4] + b"\xff" * 12, "more than 1,073,741,824 bytes"),
    "gzip cut off": (gzip.compress(GOOD)[:-4], "cannot be read"),
    "gzip with a wrong checksum": (gzip.compress(GOOD)[:-8] + bytes(8), "cannot be read"),
    "xz cut off": (lzma.compress(GOOD)[:-20], "cannot be read"),
    "bz2 damaged": (bz2.compress(GOOD)[:20] + bytes(10), "cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named(tmp_path: Path, case: str) -> None:
    content, message = BROKEN[case]
    write_set(tmp_path)
    path = tmp_path / FILES["train_images"]
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path.name}.*{message}"):
        read(find(tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing cannot be read .*No such file"):
        read_idx(tmp_path / "nothing", 1)


@pytest.mark.parametrize(
    ("key", "array", "message"),
    [
        ("train_labels", np.zeros(4, np.uint8), r"\(5, 28, 28\), and .* holds 4 labels: they do not belong"),
        ("train_images", np.zeros((5, 28, 27), np.uint8), "they do not belong"),
        ("test_labels", np.array([1, 2, 10], np.uint8), "should hold digits 0 to 9"),
    ],
)
def test_files_that_do_not_belong_together(tmp_path: Path, key: str, array: np.ndarray, message: str) -> None:
    write_set(tmp_path)
    (tmp_path / FILES[key]).write_bytes(idx(array))
    with pytest.raises(DataError, match=message):
        read(find(tmp_path))


def test_an_empty_set_is_refused(tmp_path: Path) -> None:
    write_set(tmp_path)
    for key, shape in (("train_images", (0, 28, 28)), ("train_labels", (0,))):
        (tmp_path / FILES[key]).write_bytes(idx(np.zeros(shape, np.uint8)))
    with pytest.raises(DataError, match="should hold digits"):
        read(find(tmp_path))


class TestReal:
    pytestmark = REAL

    def test_counts_and_pixels(self) -> None:
        data, mini = load_data_set("mnist"), mnist_mini()
        counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        test_counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        assert data.train[1].bincount().tolist() == counts
        assert data.test[1].bincount().tolist() == test_counts
        assert data.train[0].mean().item() == pytest.approx(0, abs=1e-3)
        assert data.train[0].std().item() == pytest.approx(1, abs=1e-3)
        for (x, y), (x_mini, y_mini) in ((data.train, mini.train), (data.test, mini.test)):
            assert torch.equal(x[: len(x_mini)], x_mini)
            assert torch.equal(y[: len(y_mini)], y_mini)
