"""The cache of decoded data sets: uncompressed .npz files, whose CRC-32 sums are compared when they are read.

The name of a file has the set and a digest of its sources, so changed sources are decoded again. A file is written
under another name and renamed, so it is complete or absent, even if several processes write it. The folder may be
deleted at any time.
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
"""The version of the arrays; raise it when a decoder returns others for the same files."""

Arrays = dict[str, Bytes]
logger = logging.getLogger("vcsg")


def cached(name: str, sources: list[Path], decode: Callable[[], Arrays]) -> Arrays:
    """The arrays of a data set, from the cache, or else decoded and stored there."""
    path = cache_folder() / "decoded" / f"{name}-{identity(sources)}.npz"
    try:
        return _read(path)
    except FileNotFoundError:
        logger.info("decoding %s; the result is kept in %s", name, path)
    except Exception as error:  # whatever is wrong with it, the sources can be decoded
        logger.warning("%s cannot be used (%s: %s), and %s is decoded again", path, type(error).__name__, error, name)
    arrays = decode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new, new.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        logger.warning("%s cannot be written (%s): set VCSG_CACHE to a folder with free space", path, error)
    return arrays


def identity(sources: list[Path]) -> str:
    """A digest of the names, sizes and times of files; folders stand for all files in them."""
    files = [f for source in sources for f in (sorted(source.rglob("*")) if source.is_dir() else [source])]
    described = [(f.name, (status := f.stat()).st_size, status.st_mtime_ns) for f in files]
    return hashlib.sha256(repr((FORMAT, described)).encode()).hexdigest()[:16]


def _read(path: Path) -> Arrays:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
