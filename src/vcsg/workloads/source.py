"""The description of a data set: its shape, and how its files are found in a folder, read, and downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vcsg.workloads.dataset import DataSet, Device
from vcsg.workloads.download import Download

Files = list[Path]


@dataclass(frozen=True)
class Source:
    """A data set that can be read: its name and size, its files, and the function that reads them.

    Attributes:
        n: the number of training samples of the complete set.
        shape: the shape of one sample.
        classes: the number of classes, as in `DataSet`.
        read: (files, device) → the data set.
        find: folder → the files of the set in it, [] if they are not complete; None for a set that needs no files.
        partial: whether a part of the training samples is accepted as well.
        count: files → the number of training samples in them, for a set that may be there in part.
        folder: the subfolder of the data folder that its files may be in, besides the data folder itself.
        downloads: the official files.
    """

    name: str
    n: int
    shape: tuple[int, ...]
    classes: int
    read: Callable[[Files, Device], DataSet]
    find: Callable[[Path], Files] | None = None
    partial: bool = False
    count: Callable[[Files], int] | None = None
    folder: str = ""
    downloads: tuple[Download, ...] = ()

    def where(self, folders: list[Path]) -> Files | None:
        """The files of the set, in the first of the folders that has them; None if none has."""
        if self.find is None:
            return []
        places = [place for folder in folders for place in (folder / self.folder, folder)]
        return next((files for place in places if (files := self.find(place))), None)
