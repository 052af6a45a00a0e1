"""CIFAR-10: small batches in every packing, broken ones, and the real set."""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from vcsg.workloads import DataError, cifar10, load_data_set
from vcsg.workloads.cifar10 import BATCHES, RECORD, find, read

RECORDS = 3
REAL = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("VCSG_DATA"), reason="VCSG_DATA is not set: the real set is not there"),
]


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    if request.cls is None:
        monkeypatch.setattr(cifar10, "RECORDS", RECORDS)
    yield
    shutil.rmtree(tmp_path)


def batches() -> dict[str, bytes]:
    """Records with labels 0 to 9 in turn and random pixels."""
    rng = np.random.default_rng(0)
    content = {}
    for k, name in enumerate(BATCHES):
        records = rng.integers(0, 256, (RECORDS, RECORD), np.uint8)
        records[:, 0] = (k + np.arange(RECORDS)) % 10
        content[name] = records.tobytes()
    return content


def tar(path: Path, mode: str, content: dict[str, bytes]) -> Path:
    with tarfile.open(path, mode) as archive:
        for name, raw in content.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return path


def plain(folder: Path, content: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for name, raw in content.items():
        (folder / name).write_bytes(raw)


def parts(folder: Path, content: dict[str, bytes]) -> None:
    names = list(content)
    for i in range(3):
        some = {name: content[name] for name in names[2 * i : 2 * i + 2]}
        tar(folder / f"cifar-10-batches-bin.part{i + 1}.tar.xz", "w:xz", some)


PACKINGS: dict[str, Callable[[Path, dict[str, bytes]], object]] = {
    "files": plain,
    "folder": lambda folder, content: plain(folder / "cifar-10-batches-bin", content),
    "official": lambda folder, content: tar(folder / "cifar-10-binary.tar.gz", "w:gz", content),
    "parts": parts,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_packing_gives_the_same(tmp_path: Path, packing: str) -> None:
    content = batches()
    PACKINGS[packing](tmp_path, {**content, "batches.meta.txt": b"airplane\n"})
    files = find(tmp_path)
    first, again = read(files), read(files)
    records = np.frombuffer(b"".join(content.values()), np.uint8).reshape(-1, RECORD)
    expected = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32) / 255)
    mean, std = torch.tensor(cifar10.MEAN).view(3, 1, 1), torch.tensor(cifar10.STD).view(3, 1, 1)
    for data in (first, again):
        images, labels = torch.cat([data.train[0], data.test[0]]), torch.cat([data.train[1], data.test[1]])
        torch.testing.assert_close(images.double(), (expected - mean) / std, rtol=0, atol=1e-6)
        assert labels.tolist() == records[:, 0].tolist()
        assert len(data.train[0]) == 5 * RECORDS
        assert (data.train[0].dtype, data.train[1].dtype, data.classes) == (torch.float32, torch.int64, 10)
    cached = list((tmp_path / "cache").rglob("*.npz"))
    assert len(cached) == (packing in ("official", "parts"))


def test_nothing_is_found_in_an_empty_folder(tmp_path: Path) -> None:
    assert find(tmp_path) == find(tmp_path / "nowhere") == []
    plain(tmp_path, {"data_batch_1.bin": b""})
    assert find(tmp_path) == []


BROKEN: dict[str, tuple[dict[str, bytes | None], str]] = {
    "cut off": ({"data_batch_3.bin": bytes(RECORD * RECORDS - 1)}, r"data_batch_3.bin .* has 9,218 bytes, not 3 rec"),
    "a record short": ({"test_batch.bin": bytes(RECORD * (RECORDS - 1))}, r"test_batch.bin .* has 6,146 bytes"),
    "a label of 10": ({"data_batch_2.bin": b"\x0a" + bytes(RECORD * RECORDS - 1)}, "data_batch_2.bin .* label above 9"),
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("case", BROKEN)
def test_broken_batches_are_named(tmp_path: Path, packing: str, case: str) -> None:
    change, message = BROKEN[case]
    PACKINGS[packing](tmp_path, {**batches(), **{key: raw or b"" for key, raw in change.items()}})
    with pytest.raises(DataError, match=message):
        read(find(tmp_path))
    assert not list(tmp_path.rglob("*.npz"))


def test_a_longer_batch_is_refused_before_it_is_read(tmp_path: Path) -> None:
    PACKINGS["official"](tmp_path, {**batches(), "data_batch_1.bin": bytes(RECORD * RECORDS + 1)})
    with pytest.raises(DataError, match=r"data_batch_1.bin' in .*tar.gz has 9,220 bytes, more than the 9,219"):
        read(find(tmp_path))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts(tmp_path, batches())
    (tmp_path / "cifar-10-batches-bin.part2.tar.xz").unlink()
    with pytest.raises(DataError, match=r"data_batch_3.bin, data_batch_4.bin not found in .*part1.*part3"):
        read(find(tmp_path))


@pytest.mark.parametrize("keep", [0, 10, 200, -40, -4])
@pytest.mark.parametrize("packing", ["official", "parts"])
def test_an_archive_cut_off(tmp_path: Path, packing: str, keep: int) -> None:
    PACKINGS[packing](tmp_path, batches())
    last = find(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:keep])
    with pytest.raises(DataError, match=f"{last.name}.*(cannot be read|not found)"):
        read(find(tmp_path))


def test_another_archive_by_that_name(tmp_path: Path) -> None:
    tar(tmp_path / "cifar-10-binary.tar.gz", "w:gz", {"data_batch_1": b"a pickle, of the Python version"})
    with pytest.raises(DataError, match=r"data_batch_1.bin, .* not found"):
        read(find(tmp_path))


class TestReal:
    pytestmark = REAL

    def test_counts_checksums_and_means(self, tmp_path: Path) -> None:
        data = load_data_set("cifar10")
        assert data.train[1].bincount().tolist() == [5000] * 10
        assert data.test[1].bincount().tolist() == [1000] * 10
        for channel in range(3):
            assert data.train[0][:, channel].mean().item() == pytest.approx(0, abs=1e-5)
            assert data.train[0][:, channel].std().item() == pytest.approx(1, abs=1e-5)
        [decoded] = tmp_path.rglob("*.npz")
        arrays = np.load(decoded)
        # Written back as records, the first and the last batch have their published checksums.
        for part, digest in (
            ("train", "5dd7e06a14cb22eb9f671a540d1b7c25"),
            ("test", "803d5f7f4d78ea53de84dbe85f74fb6d"),
        ):
            labels, images = arrays[f"{part}_labels"][:10_000], arrays[f"{part}_images"][:10_000]
            records = np.concatenate([labels[:, None], images.reshape(10_000, -1)], axis=1)
            assert hashlib.md5(records.tobytes()).hexdigest() == digest
