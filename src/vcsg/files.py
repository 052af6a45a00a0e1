"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside `path` to write to, which takes its place when the block ends well.

    Whoever reads `path`, after a crash too, finds the old content or the new, never a part: the new file is on disk
    before it is renamed, and the folder after it. It keeps the suffix, for writers that choose a format by it.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    new = Path(name)
    try:
        yield new
        new.chmod(0o666 & ~_umask())
        _sync(new)
        os.replace(new, path)
        _sync(path.parent)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """The file at `path` holds `text`, in UTF-8."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8")


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """A folder for one process alone; another that asks for it is refused. The lock ends with its process."""
    path = Path(folder) / ".lock"
    with open(path, "a+", encoding="ascii") as file:
        try:
            _lock(file.fileno())
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise BlockingIOError(
                f"{folder} is in use by process {holder}: wait for it, or give another folder"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _lock(handle: int) -> None:
    """Without waiting; a kernel releases it when the process is gone, killed or not."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
