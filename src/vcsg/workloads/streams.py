"""Files that may be compressed, read from their beginning: the format is seen in the content, not in the name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vcsg.workloads.dataset import DataError

SUFFIXES = ("", ".gz", ".bz2", ".xz")
LIMIT = 4 << 30
"""The bytes that a compressed file may unpack to: far above any set here, and below what fills a memory or a disk."""


class Stream:
    """The content of one file, read in order; a compressed one ends in an error at `LIMIT`."""

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile, limited: bool) -> None:
        self._path, self._file, self._limited, self._count = path, file, limited, 0

    def read(self, size: int) -> bytes:
        """The next bytes: `size` of them, fewer at the end of the file."""
        content = self._file.read(size)
        self._count += len(content)
        if self._limited and self._count > LIMIT:
            raise too_large(self._path)
        return content

    def finish(self) -> None:
        """Read what is left: only at its end does a compressed file compare its checksum."""
        while self.read(1 << 20):
            pass


@contextmanager
def unpacked(path: Path) -> Iterator[Stream]:
    """The content of a file, uncompressed where it is a .gz, .bz2 or .xz. Errors of reading it are `DataError`s."""
    with named(path), path.open("rb") as plain:
        file = _decompressed(plain)
        yield Stream(path, file, limited=file is not plain)


def _decompressed(file: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if start.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(file)
    return file


@contextmanager
def named(path: Path) -> Iterator[None]:
    """What the standard library raises at a broken file becomes a `DataError` that names it."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}): it may be cut off; fetch or copy it again") from error


def too_large(path: Path) -> DataError:
    """The error of a file that unpacks to more than `LIMIT`."""
    return DataError(
        f"{path} unpacks to more than {LIMIT >> 30} GiB, more than any data set here: do not trust it; "
        "if it is what you want, unpack it yourself"
    )


def present(folder: Path, name: str) -> Path | None:
    """The file `name` of a folder, plain or compressed."""
    return next((path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)
