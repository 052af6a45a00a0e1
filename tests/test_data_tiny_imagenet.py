"""Tiny ImageNet: small JPEGs in every packing, what is wrong with broken ones, and the real set."""

import io
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from vcsg.workloads import DataError, load_data_set
from vcsg.workloads.tiny_imagenet import MEAN, STD, find, read

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: no JPEG can be written or read")
WNIDS = [f"n{90000000 - 7 * k:08d}" for k in range(200)]
"""Not in sorted order, as in the official file."""

REAL = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("VCSG_DATA"), reason="VCSG_DATA is not set: the real set is not there"),
]
Content = dict[str, bytes]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    yield
    shutil.rmtree(tmp_path)


def jpeg(colour: int, mode: str = "RGB", size: tuple[int, int] = (64, 64), format: str = "JPEG") -> bytes:
    """An image of one colour, which JPEG keeps to within a few levels."""
    file = io.BytesIO()
    Image.new(mode, size, colour if mode == "L" else (colour, 10, 200)).save(file, format, quality=95)
    return file.getvalue()


def small_set() -> Content:
    """Images 9, 10 and 2 of the last class and one of the first, one of them grey; three to test."""
    first, last = min(WNIDS), max(WNIDS)
    return {
        "wnids.txt": "\n".join(WNIDS).encode(),
        "words.txt": b"n00000000\tnothing\n",
        f"train/{last}/images/{last}_9.JPEG": jpeg(90),
        f"train/{last}/images/{last}_10.JPEG": jpeg(100),
        f"train/{last}/images/{last}_2.JPEG": jpeg(20),
        f"train/{last}/{last}_boxes.txt": b"",
        f"train/{first}/images/{first}_0.JPEG": jpeg(150, "L"),
        "val/val_annotations.txt": "".join(
            f"val_{i}.JPEG\t{w}\t0\t0\t62\t62\n" for i, w in enumerate(WNIDS[:3])
        ).encode(),
        **{f"val/images/val_{i}.JPEG": jpeg(50 * i) for i in (2, 0, 1)},
        "test/images/test_0.JPEG": b"not looked at",
    }


def tree(folder: Path, content: Content) -> None:
    for name, raw in content.items():
        path = folder / "tiny-imagenet-200" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


def packed(folder: Path, content: Content) -> None:
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
        archive.mkdir("tiny-imagenet-200/")
        for name, raw in content.items():
            archive.writestr(f"tiny-imagenet-200/{name}", raw)


def parts(folder: Path, content: Content) -> None:
    """Two archives, with the lists in the second."""
    names = sorted(content)
    for i, some in enumerate((names[:5], names[5:]), 1):
        with tarfile.open(folder / f"tiny-imagenet-200.part{i}.tar.xz", "w:xz") as archive:
            for name in some:
                member = tarfile.TarInfo(f"tiny-imagenet-200/{name}")
                member.size = len(content[name])
                archive.addfile(member, io.BytesIO(content[name]))


PACKINGS: dict[str, Callable[[Path, Content], None]] = {"tree": tree, "zip": packed, "parts": parts}


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_packing_gives_the_same(tmp_path: Path, packing: str) -> None:
    PACKINGS[packing](tmp_path, small_set())
    (tmp_path / "cache").mkdir()
    files = find(tmp_path)
    for data in (read(files), read(files)):
        assert data.train[1].tolist() == [0, 199, 199, 199]
        assert data.test[1].tolist() == [sorted(WNIDS).index(wnid) for wnid in WNIDS[:3]]
        pixels = data.train[0] * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
        assert pixels.shape == (4, 3, 64, 64)
        colours = [[150, 150, 150], [20, 10, 200], [90, 10, 200], [100, 10, 200]]
        np.testing.assert_allclose(255 * pixels.mean((2, 3)).numpy(), colours, atol=3)
        reds = 255 * (data.test[0][:, 0].mean((1, 2)) * STD[0] + MEAN[0])
        np.testing.assert_allclose(reds.numpy(), [0, 50, 100], atol=3)
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 1


def test_nothing_is_found_in_an_empty_folder(tmp_path: Path) -> None:
    assert find(tmp_path) == find(tmp_path / "nowhere") == []


LAST = max(WNIDS)
IMAGE = f"train/{LAST}/images/{LAST}_9.JPEG"
BROKEN: dict[str, tuple[str, bytes | None, str]] = {
    "an image cut off": (IMAGE, jpeg(90)[:-200], f"{LAST}_9.JPEG in .* is not a complete JPEG image"),
    "an empty image": (IMAGE, b"", "is not a complete JPEG image"),
    "a web page": (IMAGE, b"<html>", "is not a complete JPEG image"),
    "another format": (IMAGE, jpeg(1, format="PNG"), "is not a complete JPEG image"),
    "another size": (IMAGE, jpeg(1, size=(64, 63)), "has 64 × 63 pixels, not 64 × 64"),
    "a huge image": (IMAGE, jpeg(1, "L", size=(5000, 5000)), "has 5000 × 5000 pixels"),
    "an image of many bytes": (IMAGE, bytes((1 << 20) + 1), "has 1,048,577 bytes, more than"),
    "a test image cut off": ("val/images/val_1.JPEG", jpeg(9)[:300], r"val_1.JPEG in .* is not a complete JPEG"),
    "a test image that is not there": ("val/images/val_1.JPEG", None, r"lists \['val_1.JPEG', '.*'\]: no such image"),
    "no list of test images": ("val/val_annotations.txt", None, "has no val/val_annotations.txt"),
    "a list without classes": ("val/val_annotations.txt", b"val_0.JPEG\n", r"lists \['val_0.JPEG'\]"),
    "a class that is none": ("val/val_annotations.txt", b"val_0.JPEG\tn1\n", r"lists \['val_0.JPEG', 'n1'\]"),
    "no list of classes": ("wnids.txt", None, "0 classes in its wnids.txt, not 200"),
    "too few classes": ("wnids.txt", "\n".join(WNIDS[:-1]).encode(), "199 classes in its wnids.txt"),
    "an unknown class": ("wnids.txt", "\n".join(["n00000001", *WNIDS[1:]]).encode(), f"training images of '{LAST}'"),
}


@pytest.mark.parametrize("packing", ["zip", "parts"])
@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named(tmp_path: Path, packing: str, case: str) -> None:
    name, raw, message = BROKEN[case]
    content = {**small_set(), name: raw}
    PACKINGS[packing](tmp_path, {key: value for key, value in content.items() if value is not None})
    with pytest.raises(DataError, match=f"tiny-imagenet-200.*{message}|{message}.*"):
        read(find(tmp_path))


def test_no_training_images(tmp_path: Path) -> None:
    packed(tmp_path, {name: raw for name, raw in small_set().items() if not name.startswith("train")})
    with pytest.raises(DataError, match="has no training images"):
        read(find(tmp_path))


@pytest.mark.parametrize("packing", ["zip", "parts"])
def test_an_archive_cut_off(tmp_path: Path, packing: str) -> None:
    PACKINGS[packing](tmp_path, small_set())
    last = find(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"{last.name} cannot be read"):
        read(find(tmp_path))


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path, small_set())
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match="pip install pillow"):
        read(find(tmp_path))


class TestReal:
    pytestmark = REAL

    def test_counts_and_means(self) -> None:
        data = load_data_set("tiny-imagenet")
        counts = data.train[1].bincount()
        assert counts.shape == (200,)
        assert counts.min() == counts.max()
        assert data.test[1].bincount().tolist() == [50] * 200
        # The means are those of all 100,000; 17,000 of them are off by less than 0.01 of a deviation.
        assert data.train[0].mean((0, 2, 3)).abs().max().item() < 0.01
        assert torch.equal(load_data_set("tiny-imagenet").test[0], data.test[0])
