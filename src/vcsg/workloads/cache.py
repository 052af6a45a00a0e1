"""Decoded data sets, kept as uncompressed .npz files: reading one compares the CRC-32 of every array.

A file's name has the set and a digest of its sources, so changed sources are decoded anew. It is written beside its
place and renamed, so it is whole or not there, whoever else writes it. The folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vcsg.files import replacing
from vcsg.workloads.dataset import Bytes
from vcsg.workloads.folders import cache_folder

FORMAT = 1
"""Of the arrays; raise it when a decoder gives others for the same files."""

Arrays = dict[str, Bytes]
logger = logging.getLogger("vcsg")


def cached(name: str, sources: list[Path], decode: Callable[[], Arrays]) -> Arrays:
    """The arrays of a data set, from the cache, or decoded and put there."""
    path = cache_folder() / "decoded" / f"{name}-{identity(sources)}.npz"
    try:
        return _read(path)
    except FileNotFoundError:
        logger.info("decoding %s; the result is kept in %s", name, path)
    except Exception as error:  # whatever is wrong with it, the sources are there
        logger.warning("%s cannot be used (%s: %s): %s is decoded again", path, type(error).__name__, error, name)
    arrays = decode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new, new.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        logger.warning("%s cannot be written (%s): set VCSG_CACHE to a folder with room", path, error)
    return arrays


def identity(sources: list[Path]) -> str:
    """A digest of names, sizes and times of files, and of all files in folders."""
    files = [f for source in sources for f in (sorted(source.rglob("*")) if source.is_dir() else [source])]
    told = [(f.name, (status := f.stat()).st_size, status.st_mtime_ns) for f in files]
    return hashlib.sha256(repr((FORMAT, told)).encode()).hexdigest()[:16]


def _read(path: Path) -> Arrays:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
