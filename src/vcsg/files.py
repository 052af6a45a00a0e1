"""Files that are complete or absent, and folders that one process has to itself."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"
"""The part of a file name that marks a file as still being written."""

_held: set[Path] = set()
"""The folders that this process has locked."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new file beside `path` to write to; it replaces `path` when the block ends without an error.

    A reader of `path` finds the old content or the new one, never a part of it, even after a crash: the new file is
    synced to disk before it is renamed, and the folder afterwards. It has the suffix of `path`, for writers that choose
    a format by it. An OSError names `path`.
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


@contextmanager
def room_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new folder beside `path`, which is removed at the end: for writers that leave files of their own beside
    what they write when they are killed.
    """
    with tempfile.TemporaryDirectory(prefix=f".{Path(path).stem}-", suffix=PARTIAL, dir=Path(path).parent) as room:
        yield Path(room)


def sweep(folder: str | os.PathLike[str]) -> None:
    """Remove what killed writers left unfinished in a folder. The caller has to have locked it."""
    for path in Path(folder).glob(f".*{PARTIAL}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to the file at `path`, in UTF-8."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


def append(path: str | os.PathLike[str], line: bytes) -> None:
    """Append a line to a file. A reader may find the last line cut off, never two mixed. An OSError names `path`."""
    with open(path, "ab", buffering=0) as file:
        try:
            if (written := file.write(line)) < len(line):  # an almost full disk takes a part of it
                file.write(line[written:])
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def synced_size(path: str | os.PathLike[str]) -> int:
    """Sync a file to disk and return its size in bytes; 0 where there is no such file."""
    if not Path(path).exists():
        return 0
    _sync(Path(path))
    return os.stat(path).st_size


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a folder for this process alone, creating it if needed; a second process that asks for it is refused.

    The lock ends with the process, even if that is killed. Forked processes do not inherit it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder.resolve()
    # This is checked first: closing a second handle of the file would end the lock of the first.
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
    """Lock an open file without waiting."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        # lockf locks for the process. flock would lock for the open file, which the workers of a loader inherit.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    """The umask of the process, for the mode of new files: mkstemp makes them for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
