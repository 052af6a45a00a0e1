"""Files that are there whole or not at all, and folders that one process has for itself."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"
"""In the names of files that are being written."""

_held: set[Path] = set()
"""The folders that this process has locked."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside `path` to write to, which takes its place when the block ends well.

    Whoever reads `path`, after a crash too, finds the old content or the new, never a part: the new file is on disk
    before it is renamed, and the folder after it. It keeps the suffix, for writers that choose a format by it. An
    OSError names `path`.
    """
    path = Path(path)
    new = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=PARTIAL + path.suffix, dir=path.parent)
        os.close(handle)
        new = Path(name)
        yield new
        new.chmod(0o666 & ~_umask())
        _sync(new)
        os.replace(new, path)
        _sync(path.parent)
    except BaseException as error:
        if new is not None:
            with suppress(OSError):
                new.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def sweep(folder: str | os.PathLike[str]) -> None:
    """Remove what writers that were killed left in a folder; for the one that has locked it."""
    for path in Path(folder).glob(f".*{PARTIAL}*"):
        path.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """The file at `path` holds `text`, in UTF-8."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


def append(path: str | os.PathLike[str], line: bytes) -> None:
    """A line at the end of a file: a reader may find the last one cut off, never two mixed. An OSError names `path`."""
    with open(path, "ab", buffering=0) as file:
        try:
            if (written := file.write(line)) < len(line):  # a disk that is almost full takes what fits
                file.write(line[written:])
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def synced_size(path: str | os.PathLike[str]) -> int:
    """How many bytes of a file are on disk: all that were written; 0 where there is none."""
    if not Path(path).exists():
        return 0
    _sync(Path(path))
    return os.stat(path).st_size


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """A folder for one process alone, which is made where it is not there; another that asks for it is refused.

    The lock ends with its process, killed or not. Processes that are forked off do not have it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder.resolve()
    # Asked first: to close a second handle of the file would end a lock of the first.
    if place in _held:
        raise BlockingIOError(f"{folder} is in use by this process already: give another folder")
    with open(place / ".lock", "a+", encoding="ascii") as file:
        try:
            _lock(file.fileno())
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise BlockingIOError(
                f"{folder} is in use by process {holder}: wait for it, or give another folder"
            ) from error
        _held.add(place)
        try:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield
        finally:
            _held.remove(place)


def _lock(handle: int) -> None:
    """Without waiting."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        # Of the process, and not of the open file as by flock, which the workers of a loader would inherit.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        return  # which cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    """The mode that new files are to have: mkstemp makes them for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
