"""Tiny ImageNet: 200 classes of ImageNet at 64 × 64, 500 training and 50 validation images each, from CS231n.

Any part of the training images will do; the validation images are the test set, since the test labels were never
published. Images are decoded to RGB, grey ones too. Training images come by class and number, whatever the archives'
order; classes are numbered by sorted WordNet id.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from vcsg.workloads.archives import members
from vcsg.workloads.cache import Arrays, cached
from vcsg.workloads.dataset import Bytes, DataError, DataSet, Device, image_set
from vcsg.workloads.download import Download
from vcsg.workloads.source import Source

MEAN = (0.4802, 0.4481, 0.3975)
STD = (0.2302, 0.2265, 0.2262)
"""Mean and deviation of each channel of the 100,000 training images, scaled to [0, 1]: the figures in common use for
this set. The deviations are means over the images of the deviation within one image; the deviation of all pixels is
about 1.2 times as large."""

PIXELS = 64
LARGEST_FILE = 1 << 20
"""The most bytes that one file may have; the JPEGs have about 2,000, the longest list 350,000."""

_WANTED = re.compile(
    r"(?:^|/)(?:train/(?P<wnid>n\d{8})/images/(?P=wnid)_(?P<number>\d{1,3})\.JPEG"
    r"|val/images/(?P<val>val_\d{1,4}\.JPEG)|(?P<list>wnids\.txt|val/val_annotations\.txt))$"
)


def find(folder: Path) -> list[Path]:
    """The unpacked folder, the official zip, or the archives in parts; [] if there is none of these."""
    if (tree := folder / "tiny-imagenet-200" / "wnids.txt").is_file():
        return [tree.parent]
    if (official := folder / "tiny-imagenet-200.zip").is_file():
        return [official]
    # Only compressed archives: they have checksums, while a truncated plain tar would pass for a part of the set.
    return sorted(folder.glob("tiny-imagenet-200*.tar.?z*"))


def read(files: list[Path], device: Device = None) -> DataSet:
    """Read the data set from the files that `find` found; they are decoded once and cached."""
    arrays = cached("tiny-imagenet", files, lambda: decode(files))
    return image_set("tiny-imagenet", arrays, 200, MEAN, STD, device)


def count(files: list[Path]) -> int:
    """The number of training images in the files that `find` found: archives are read through once, and remembered."""

    def counted() -> Arrays:
        return {"count": np.array([len(_train_names(files))], np.int64).view(np.uint8)}

    return int(cached("tiny-imagenet-count", files, counted)["count"].view(np.int64)[0])


def _train_names(files: list[Path]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()

    def note(name: str) -> bool:
        match = _WANTED.search(name)
        if match and match["wnid"]:
            found.add((match["wnid"], int(match["number"])))
        return False  # the name is enough: no content is read

    for path in files:
        for _ in members(path, note, LARGEST_FILE):
            pass
    return found


def decode(files: list[Path]) -> Arrays:
    """Images of shape (N, 3, 64, 64) and labels, from a folder or from archives."""
    train: dict[tuple[str, int], Bytes] = {}
    val: dict[str, Bytes] = {}
    lists: dict[str, str] = {}
    for path in files:
        for name, content in members(path, _WANTED.search, LARGEST_FILE):
            found = _WANTED.search(name)
            assert found
            if found["list"]:
                lists[found["list"]] = content.decode("utf-8", errors="replace")
            elif found["val"]:
                val[found["val"]] = _pixels(content, name, path)
            else:
                train[found["wnid"], int(found["number"])] = _pixels(content, name, path)
    where = ", ".join(map(str, files))
    classes = _classes(lists, where)
    return _train(train, classes, where) | _test(val, classes, lists, where)


def _train(images: dict[tuple[str, int], Bytes], classes: dict[str, int], where: str) -> Arrays:
    if unknown := {wnid for wnid, _ in images} - set(classes):
        raise DataError(f"{where} has training images of {min(unknown)!r}, which its wnids.txt does not list")
    if not images:
        raise DataError(f"{where} has no training images: give it train/<wnid>/images/*.JPEG")
    order = sorted(images)
    labels = np.array([classes[wnid] for wnid, _ in order], np.uint8)
    return {"train_images": np.stack([images[key] for key in order]), "train_labels": labels}


def _test(images: dict[str, Bytes], classes: dict[str, int], lists: dict[str, str], where: str) -> Arrays:
    rows = [line.split()[:2] for line in lists.get("val/val_annotations.txt", "").splitlines() if line.strip()]
    if not rows:
        raise DataError(f"{where} has no val/val_annotations.txt, which names the classes of the test images")
    for row in rows:
        if len(row) < 2 or row[0] not in images or row[1] not in classes:
            raise DataError(f"val_annotations.txt in {where} lists {row}: no such image or class is there")
    labels = np.array([classes[wnid] for _, wnid in rows], np.uint8)
    return {"test_images": np.stack([images[name] for name, _ in rows]), "test_labels": labels}


def _classes(lists: dict[str, str], where: str) -> dict[str, int]:
    wnids = sorted(set(lists.get("wnids.txt", "").split()))
    if len(wnids) != 200:
        raise DataError(f"{where} has {len(wnids)} classes in its wnids.txt, not 200: add that file of the set")
    return {wnid: label for label, wnid in enumerate(wnids)}


def _pixels(content: bytes, name: str, path: Path) -> Bytes:
    """The pixels of a JPEG, channels first."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(f"{path} has JPEG images, which Pillow decodes: pip install pillow") from error
    try:
        # Only JPEG: Pillow's other decoders are not needed, and files from elsewhere should not reach them.
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            size = image.size
            pixels = np.asarray(image.convert("RGB")) if size == (PIXELS, PIXELS) else None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} in {path} is not a complete JPEG image ({error}): fetch or copy it again") from error
    if pixels is None:
        raise DataError(f"{name} in {path} has {size[0]} × {size[1]} pixels, not {PIXELS} × {PIXELS}: fetch it again")
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


SOURCE = Source(
    name="tiny-imagenet",
    folder="tiny-imagenet",
    n=100_000,
    shape=(3, PIXELS, PIXELS),
    classes=200,
    find=find,
    read=read,
    partial=True,
    count=count,
    downloads=(
        Download(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            248_100_043,
            ("md5:90528d7ca1a48142e341f4ef8d21d0de",),
        ),
    ),
)
