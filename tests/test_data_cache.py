"""The cache of decoded sets: read again, made again when sources or file change, whole or not there."""

import logging
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from vcsg.workloads import cache
from vcsg.workloads.cache import Arrays, cached
from vcsg.workloads.folders import cache_folder, data_folders


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "decoded"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"source")
    return path


class Decoder:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Arrays:
        self.count += 1
        return arrays()


def arrays() -> Arrays:
    return {"images": np.arange(600, dtype=np.uint8).reshape(2, 3, 10, 10), "labels": np.array([3, 1], np.uint8)}


def check(found: Arrays) -> None:
    assert found.keys() == arrays().keys()
    for key, array in arrays().items():
        assert found[key].dtype == np.uint8
        assert np.array_equal(found[key], array)


def test_decoded_once(source: Path, folder: Path) -> None:
    decode = Decoder()
    for _ in range(3):
        check(cached("set", [source], decode))
    assert decode.count == 1
    assert len(list(folder.iterdir())) == 1


def test_changed_sources_are_decoded_again(tmp_path: Path, source: Path) -> None:
    decode = Decoder()
    cached("set", [source], decode)
    source.write_bytes(b"source, longer")
    cached("set", [source], decode)
    os.utime(source, ns=(1, 1))
    cached("set", [source], decode)
    more = tmp_path / "tree"
    (more / "deep").mkdir(parents=True)
    cached("set", [source, more], decode)
    (more / "deep" / "file").write_bytes(b"")
    cached("set", [source, more], decode)
    cached("other", [source, more], decode)
    assert decode.count == 6
    cached("set", [source, more], decode)
    assert decode.count == 6


def test_a_moved_source_is_the_same(tmp_path: Path, source: Path) -> None:
    decode = Decoder()
    cached("set", [source], decode)
    (tmp_path / "elsewhere").mkdir()
    cached("set", [source.rename(tmp_path / "elsewhere" / "source")], decode)
    assert decode.count == 1


def test_a_damaged_file_is_made_again(source: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One bit anywhere: the arrays are right all the same, and from a whole file after that."""
    decode = Decoder()
    cached("set", [source], decode)
    [path] = folder.iterdir()
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        check(cached("set", [source], decode))
        check(cached("set", [source], decode))
    assert decode.count > len(arrays()["images"].tobytes()) // 7
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == decode.count - 1
    assert {r.name for r in warnings} == {"vcsg"}
    assert str(path) in warnings[0].getMessage()
    assert "set is decoded again" in warnings[0].getMessage()


@pytest.mark.parametrize("keep", [0, 1, 100, -1, -30])
def test_a_file_cut_off_is_made_again(source: Path, folder: Path, keep: int) -> None:
    decode = Decoder()
    cached("set", [source], decode)
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes()[:keep])
    check(cached("set", [source], decode))
    assert decode.count == 2


def test_a_pickle_is_never_loaded(source: Path, folder: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(folder / "evil"),)

    decode = Decoder()
    cached("set", [source], decode)
    [path] = folder.iterdir()
    np.savez(path, images=np.array([Evil()], dtype=object), labels=np.zeros(1))
    check(cached("set", [source], decode))
    assert decode.count == 2
    assert not (folder / "evil").exists()


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("moment", ["replace", "fsync"])
def test_stopped_before_the_file_is_in_place(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, moment: str
) -> None:
    def stop(*_: object) -> None:
        raise error

    decode = Decoder()
    with monkeypatch.context() as patch:
        patch.setattr(os, moment, stop)
        if isinstance(error, OSError):
            check(cached("set", [source], decode))
        else:
            with pytest.raises(KeyboardInterrupt):
                cached("set", [source], decode)
    assert list(folder.iterdir()) == []
    check(cached("set", [source], decode))
    check(cached("set", [source], decode))
    assert decode.count == 2


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "file"))
    check(cached("set", [source], Decoder()))
    assert "cannot be written" in caplog.text
    assert "set VCSG_CACHE to a folder with free space" in caplog.text


def test_writers_at_the_same_time(source: Path, folder: Path) -> None:
    """All have decoded before the first writes, and every reader finds whole arrays."""
    together = threading.Barrier(8)
    found: list[Arrays] = []

    def decode() -> Arrays:
        together.wait()
        return arrays()

    def work() -> None:
        found.append(cached("set", [source], decode))
        found.append(cached("set", [source], Decoder()))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 16
    for result in found:
        check(result)
    assert len(list(folder.iterdir())) == 1


def test_an_error_in_decoding_leaves_nothing(source: Path, folder: Path) -> None:
    def decode() -> Arrays:
        raise ValueError("broken source")

    with pytest.raises(ValueError, match="broken source"):
        cached("set", [source], decode)
    assert not folder.exists()


def test_a_new_format_is_another_file(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.identity([source])
    monkeypatch.setattr(cache, "FORMAT", 2)
    assert cache.identity([source]) != before


def test_the_usual_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VCSG_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/someone/.cache/vcsg")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/someone")
    assert cache_folder() == Path("/var/someone/vcsg")
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == Path("/home/someone/Library/Caches/vcsg")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_folder() == Path("/local/vcsg")


def test_where_sets_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCSG_CACHE", "/cache")
    monkeypatch.delenv("VCSG_DATA", raising=False)
    assert data_folders() == [Path("/cache/data")]
    monkeypatch.setenv("VCSG_DATA", "/data")
    assert data_folders() == [Path("/data"), Path("/cache/data")]
    assert data_folders("/given") == [Path("/given")]
