"""The registry of data sets by name: which there are, where their files are, and how they are fetched."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from vcsg.names import check_new, suggestion
from vcsg.workloads import cifar10, libsvm, mnist, tiny_imagenet
from vcsg.workloads.dataset import DataError, DataSet, Device
from vcsg.workloads.download import download
from vcsg.workloads.folders import data_folders, download_folder
from vcsg.workloads.mnist_mini import mnist_mini
from vcsg.workloads.source import Files, Source
from vcsg.workloads.streams import present

Folder = str | os.PathLike[str] | None
LIBSVM = "libsvm:"
"""The prefix of the name of a LIBSVM file that is not registered: a path, or a name in the data folder."""

_MNIST_MINI = Source("mnist-mini", 10_000, (1, 28, 28), 10, lambda _, device: mnist_mini(device))
_SOURCES: dict[str, Source] = {}


def register_data_set(source: Source, *, replace: bool = False) -> None:
    """Make a data set known by its name. A name that exists already is refused unless `replace` is true."""
    if not source.name or set(source.name) & set("/:"):
        raise ValueError(f"the name {source.name!r} is empty or has a '/' or ':', which end the name of a data set")
    check_new("data set", source.name, _SOURCES, replace)
    _SOURCES[source.name] = source


for _source in (_MNIST_MINI, mnist.SOURCE, cifar10.SOURCE, tiny_imagenet.SOURCE, *libsvm.SOURCES):
    register_data_set(_source)


def data_sets() -> dict[str, Source]:
    """Every registered data set by name."""
    return dict(_SOURCES)


def source(name: str) -> Source:
    """The registered data set `name`."""
    if name not in _SOURCES:
        others = "or libsvm:PATH of a file, or synthetic:n=2000,d=50"
        raise ValueError(f"no data set {name!r}: {suggestion(name, _SOURCES)}, {others}")
    return _SOURCES[name]


def where(name: str, data_dir: Folder = None) -> Files | None:
    """The paths of the files of a data set: [] if it needs none, None if `load` would download them."""
    return source(name).where(data_folders(data_dir))


def samples_on_disk(name: str, data_dir: Folder = None) -> int | None:
    """The number of training samples that `load` would find; None where it would download them.

    Files of a set that is accepted as a whole only are not opened: they have all samples, or `load` refuses them.
    """
    wanted, files = source(name), where(name, data_dir)
    if files is None:
        return None
    return wanted.count(files) if wanted.count else wanted.n


def fetch(name: str, data_dir: Folder = None, progress: bool | None = None) -> Files:
    """The paths of the files of a data set, which are downloaded if they are missing.

    Args:
        name: a registered data set.
        data_dir: the folder to look in and to download to; None looks where `load` does, and downloads to the cache.
        progress: whether to show progress on stderr; None is True on a terminal alone.
    """
    wanted = source(name)
    files = wanted.where(data_folders(data_dir))
    if files is None:
        folder = (download_folder() if data_dir is None else Path(data_dir).expanduser()) / wanted.folder
        for file in wanted.downloads:
            download(file, folder, progress)
        files = wanted.where([folder])
    if files is None:
        raise _missing(wanted, data_dir)
    return files


def load_data_set(name: str, *, data_dir: Folder = None, device: Device = None) -> DataSet:
    """Load the data set `name`, or any LIBSVM file as `libsvm:PATH`.

    Args:
        name: a registered name (see `data_sets`), or libsvm:PATH.
        data_dir: the folder of the data; None looks in `VCSG_DATA`, then in the downloads, and downloads what is in
            neither.
        device: the device of the tensors; None is the CPU.
    """
    if name.startswith(LIBSVM):
        return replace(libsvm.read_set(_any_libsvm(name, data_dir), device), name=name)
    wanted = source(name)
    if data_dir is not None and wanted.where(data_folders(data_dir)) is None:
        raise _missing(wanted, data_dir)
    data = wanted.read(fetch(name, data_dir), device)
    _check(wanted, data)
    return data


def _any_libsvm(name: str, data_dir: Folder) -> Files:
    path = name.removeprefix(LIBSVM)
    places = [Path(), *(place for folder in data_folders(data_dir) for place in (folder / "libsvm", folder))]
    found = next((file for place in places if path and (file := present(place, path))), None)
    if found is None:
        raise DataError(
            f"{name}: there is no file {path!r} here, nor in {', '.join(map(str, places[1:]))}: give its path"
        )
    return libsvm.with_test(found)


def _missing(wanted: Source, data_dir: Folder) -> DataError:
    places = ", ".join(map(str, data_folders(data_dir)))
    where = "" if data_dir is None else f", data_dir={str(data_dir)!r}"
    remedy = f"copy them there, or download them: vcsg.workloads.fetch({wanted.name!r}{where})"
    return DataError(
        f"the files of {wanted.name} are not in {places}, or not all of them: "
        + (remedy if wanted.downloads else "copy them there, or give the folder that has them")
    )


def _check(wanted: Source, data: DataSet) -> None:
    """Raise a DataError where readable files are those of another set, or only a part of this one."""
    n, shape = len(data.train[0]), tuple(data.train[0].shape[1:])
    if (shape, data.classes) == (wanted.shape, wanted.classes) and (n == wanted.n or (wanted.partial and n < wanted.n)):
        return
    raise DataError(
        f"the files of {wanted.name} have {n:,} samples of shape {shape} in {data.classes} classes, not {wanted.n:,} "
        f"of {wanted.shape} in {wanted.classes}: fetch or copy them again"
    )
