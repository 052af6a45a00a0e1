"""The folders that data sets are read from, and the folder that this library writes to."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder of downloads and decoded sets: `VCSG_CACHE`, or the usual cache folder of the platform."""
    if chosen := os.environ.get("VCSG_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "vcsg"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vcsg"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vcsg"


def download_folder() -> Path:
    """The folder of downloads, unless another is given."""
    return cache_folder() / "data"


def data_folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders to look for data sets in: the one given alone, or else `VCSG_DATA` and the downloads."""
    if data_dir is not None:
        return [Path(data_dir).expanduser()]
    chosen = os.environ.get("VCSG_DATA")
    return [*([Path(chosen).expanduser()] if chosen else []), download_folder()]
