"""The files in a folder, a tar or a zip, as bytes. Nothing is unpacked to disk, so no file can be written elsewhere.

An archive with a link, a device, or a path that leads out of its folder is refused as a whole: the official archives
have none.
"""

from __future__ import annotations

import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from vcsg.workloads.dataset import DataError
from vcsg.workloads.streams import UNPACKED_LIMIT, named, too_large, unpacked

Member = tuple[str, bytes]
Keep = Callable[[str], object]


def members(path: Path, keep: Keep, largest: int) -> Iterator[Member]:
    """Yield the name and the content of every file whose name `keep` accepts.

    Args:
        path: a folder, a tar (plain, .gz, .bz2 or .xz) or a zip. Names are relative to it, with forward slashes.
        keep: name → whether its content is wanted.
        largest: the most bytes that one of the wanted files may have.
    """
    if path.is_dir():
        return _from_folder(path, keep, largest)
    with named(path), path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    return (_from_zip if is_zip else _from_tar)(path, keep, largest)


def _from_folder(folder: Path, keep: Keep, largest: int) -> Iterator[Member]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if keep(name):
            with named(path):
                _check_size(path, name, path.stat().st_size, largest)
                content = path.read_bytes()
            yield name, content


def _from_tar(path: Path, keep: Keep, largest: int) -> Iterator[Member]:
    with unpacked(path) as stream, tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar:
        for member in tar:
            plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
            _check_name(path, member.name, plain or member.isdir())
            if plain and keep(member.name):
                _check_size(path, member.name, member.size, largest)
                yield member.name, cast("IO[bytes]", tar.extractfile(member)).read()
        stream.finish()


def _from_zip(path: Path, keep: Keep, largest: int) -> Iterator[Member]:
    try:
        with named(path), zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > UNPACKED_LIMIT:
                raise too_large(path)
            for entry in entries:
                kind = stat.S_IFMT(entry.external_attr >> 16)
                _check_name(path, entry.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
                if not entry.is_dir() and keep(entry.filename):
                    _check_size(path, entry.filename, entry.file_size, largest)
                    yield entry.filename, archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        # zipfile raises a RuntimeError for an encrypted member, a NotImplementedError for an unknown compression.
        raise DataError(f"{path} cannot be read ({error}): fetch or copy it again") from error


def _check_name(path: Path, name: str, plain: bool) -> None:
    local = PurePosixPath(name.replace("\\", "/"))
    if plain and not local.is_absolute() and ".." not in local.parts and ":" not in name:
        return
    what = "leads out of its folder" if plain else "is a link or a device"
    raise DataError(f"{path} is refused, since its member {name!r} {what}: fetch the official file")


def _check_size(path: Path, name: str, size: int, largest: int) -> None:
    if size > largest:
        raise DataError(f"{name!r} in {path} has {size:,} bytes, more than the {largest:,} allowed: fetch it again")
