"""Data sets by name: where they are looked for, names that are wrong, files that are another set's."""

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from vcsg.workloads import (
    DataError,
    Source,
    data_sets,
    datasets,
    load_data_set,
    mnist_mini,
    register_data_set,
    where,
)

ROWS = b"1 1:1 2:2\n-1 1:3\n1 2:1\n"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VCSG_DATA", raising=False)


@pytest.fixture
def small_a9a(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(data_sets()["a9a"], n=3, shape=(2,), downloads=())
    monkeypatch.setattr(datasets, "_SOURCES", {**data_sets(), "a9a": small})


def write(folder: Path, name: str, content: bytes = ROWS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.usefixtures("small_a9a")
@pytest.mark.parametrize("inside", ["", "libsvm"])
@pytest.mark.parametrize("how", ["argument", "VCSG_DATA", "download"])
def test_where_files_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, how: str) -> None:
    folder = tmp_path / "cache" / "data" if how == "download" else tmp_path / "data"
    files = [write(folder / inside, "a9a"), write(folder / inside, "a9a.t.gz", gzip.compress(ROWS))]
    if how == "VCSG_DATA":
        monkeypatch.setenv("VCSG_DATA", str(folder))
    given = folder if how == "argument" else None
    assert where("a9a", given) == files
    data = load_data_set("a9a", data_dir=given)
    assert (len(data.train[0]), len(data.test[0]), data.name) == (3, 3, "a9a")


@pytest.mark.usefixtures("small_a9a")
def test_the_folder_that_was_given_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a9a", "a9a.t"):
        write(tmp_path / "data", name)
    monkeypatch.setenv("VCSG_DATA", str(tmp_path / "data"))
    assert where("a9a", tmp_path / "other") is None
    with pytest.raises(DataError, match=r"the files of a9a are not in .*other, or not all of them"):
        load_data_set("a9a", data_dir=tmp_path / "other")


def test_the_embedded_set_needs_no_files() -> None:
    assert where("mnist-mini") == []
    assert load_data_set("mnist-mini").train[0].equal(mnist_mini().train[0])


@pytest.mark.parametrize("name", ["libsvm:w8a", "libsvm:w8a.bz2", "libsvm:{}/libsvm/w8a"])
def test_any_libsvm_file(tmp_path: Path, name: str) -> None:
    import bz2

    write(tmp_path / "libsvm", "w8a.bz2", bz2.compress(ROWS))
    write(tmp_path / "libsvm", "w8a.t", b"1 3:1\n")
    name = name.format(tmp_path)
    data = load_data_set(name, data_dir=None if "/" in name else tmp_path)
    assert data.name == name
    assert data.train[0].shape == (3, 3)
    assert len(data.test[0]) == 1


def test_a_path_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "some", "rows")
    monkeypatch.chdir(tmp_path)
    assert load_data_set("libsvm:some/rows").classes == 2


@pytest.mark.parametrize("name", ["libsvm:", "libsvm:nothing", "libsvm:/nothing"])
def test_a_libsvm_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: there is no file '{name[7:]}' here, nor in .*: give its path"):
        load_data_set(name, data_dir=tmp_path)


@pytest.mark.parametrize("name", ["cifar", "minst", ""])
def test_unknown_names(name: str) -> None:
    near = {"cifar": "did you mean 'cifar10'[?] ", "minst": "did you mean 'mnist'[?] ", "": ""}[name]
    for function in (load_data_set, where, datasets.fetch):
        with pytest.raises(ValueError, match=f"no data set '{name}': {near}There are mnist-mini, mnist, cifar10"):
            function(name)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS + b"1 1:1\n", r"a9a have 4 samples of shape \(2,\) in 2 classes, not 3 of \(2,\) in 2"),
        (b"1 1:1 3:2\n-1 1:3\n1 2:1\n", r"3 samples of shape \(3,\)"),
        (b"1 1:1 2:2\n2 1:3\n3 2:1\n", r"in 0 classes, not 3 of \(2,\) in 2"),
    ],
)
@pytest.mark.usefixtures("small_a9a")
def test_files_of_another_set(tmp_path: Path, rows: bytes, message: str) -> None:
    write(tmp_path, "a9a", rows)
    write(tmp_path, "a9a.t", rows)
    with pytest.raises(DataError, match=message):
        load_data_set("a9a", data_dir=tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "a:b"])
def test_names_that_a_set_cannot_have(name: str) -> None:
    with pytest.raises(ValueError, match=f"the name '{name}'"):
        register_data_set(Source(name, 1, (1,), 2, lambda files, device: mnist_mini(device)))


def test_a_set_without_downloads_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("mine", 1, (1,), 2, lambda files, device: mnist_mini(device), find=lambda folder: [])
    monkeypatch.setattr(datasets, "_SOURCES", data_sets())
    register_data_set(source)
    with pytest.raises(DataError, match=r"mine are not in .*: copy them there, or give the folder"):
        load_data_set("mine")


def test_nothing_was_written(tmp_path: Path) -> None:
    """Looking for sets makes no folder."""
    for name in data_sets():
        where(name)
    assert os.listdir(tmp_path) == []
