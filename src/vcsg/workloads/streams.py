"""Reading of files that may be compressed. The format is detected from the content, not from the name."""

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
UNPACKED_LIMIT = 4 << 30
"""The most bytes that a compressed file may unpack to: far more than any data set here, and less than a disk holds."""


class Stream:
    """The content of one file, read in order; a compressed file longer than `UNPACKED_LIMIT` is an error."""

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile, limited: bool) -> None:
        self._path, self._file, self._limited, self._count = path, file, limited, 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the file."""
        content = self._file.read(size)
        self._count += len(content)
        if self._limited and self._count > UNPACKED_LIMIT:
            raise too_large(self._path)
        return content

    def finish(self) -> None:
        """Read the rest: the checksum of a compressed file is compared at its end only."""
        while self.read(1 << 20):
            pass


@contextmanager
def unpacked(path: Path) -> Iterator[Stream]:
    """Open a file, decompressing .gz, .bz2 and .xz. Errors while it is read become `DataError`s."""
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
    """Turn the errors that the standard library raises for a damaged file into a `DataError` that names it."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}): it may be cut off; fetch or copy it again") from error


def too_large(path: Path) -> DataError:
    """The error for a file that unpacks to more than `UNPACKED_LIMIT`."""
    return DataError(
        f"{path} unpacks to more than {UNPACKED_LIMIT >> 30} GiB, more than any data set here: do not trust it; "
        "if it is what you want, unpack it yourself"
    )


def present(folder: Path, name: str) -> Path | None:
    """The path of the file `name` in a folder, plain or compressed; None where there is none."""
    return next((path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)
