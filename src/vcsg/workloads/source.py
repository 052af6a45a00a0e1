"""Where a data set comes from: what it is, how its files are found in a folder, read, and downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vcsg.workloads.dataset import DataSet, Device
from vcsg.workloads.download import Download

Files = list[Path]


@dataclass(frozen=True)
class Source:
    """A data set by name, before anything of it is read.

    Attributes:
        n: training samples of the complete set.
        shape: of one sample.
        classes: as in `DataSet`.
        read: (files, device) → the data set.
        find: folder → the files of the set in it, none where it is not complete; None for a set that needs no files.
        partial: a part of the training samples is a set as well.
        folder: where below the data folder its files may lie, besides directly in it.
        downloads: the official files.
    """

    name: str
    n: int
    shape: tuple[int, ...]
    classes: int
    read: Callable[[Files, Device], DataSet]
    find: Callable[[Path], Files] | None = None
    partial: bool = False
    folder: str = ""
    downloads: tuple[Download, ...] = ()

    def where(self, folders: list[Path]) -> Files | None:
        """Its files, in the first of the folders that has them; None where none has."""
        if self.find is None:
            return []
        places = [place for folder in folders for place in (folder / self.folder, folder)]
        return next((files for place in places if (files := self.find(place))), None)
