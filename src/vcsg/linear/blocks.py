"""Rows that are not in memory, as blocks: a memory map, a Parquet or Arrow dataset, a function that yields them, dask.

A source maps a function over its blocks, which reads all of them once, and counts these reads. With dask the function
runs where the blocks are, and only its results travel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

LARGE = 256 << 20
"""The size in bytes from which on a memory map is read by blocks; below, it is taken as an array in memory."""
BLOCK = 16 << 20
"""The size in bytes of a block of a memory map."""
BATCH = 65_536
"""The rows of a block of a dataset."""

Work = Callable[[int, Any, Any, Any], Any]
"""What is done with a block: its number, rows, targets and weights (None for 1) give a result."""


class BlockSource(Protocol):
    """All blocks of some rows, to be read as often as asked."""

    reads: int
    """How often all blocks were read."""

    names: list[str] | None
    """The names of the features, where they have any."""

    @property
    def count(self) -> int | None:
        """The number of blocks; None where it is not known beforehand."""
        ...

    def map(self, work: Work) -> Iterator[Any]:
        """Read all blocks once: the results of `work` in the order of the blocks."""
        ...


@dataclass
class MappedBlocks:
    """The rows of an array on disk, by slices."""

    rows: Any
    y: Any
    weight: Any = None
    reads: int = 0
    names: list[str] | None = None

    @property
    def size(self) -> int:
        """The number of rows of a block."""
        return max(1, BLOCK // max(1, int(self.rows[:1].nbytes)))

    @property
    def count(self) -> int:
        """The number of blocks."""
        return -(-len(self.rows) // self.size)

    def map(self, work: Work) -> Iterator[Any]:
        """Read the array once from its beginning to its end."""
        self.reads += 1
        for number in range(self.count):
            part = slice(number * self.size, (number + 1) * self.size)
            yield work(number, self.rows[part], self.y[part], None if self.weight is None else self.weight[part])


@dataclass
class YieldedBlocks:
    """What a function yields each time it is called: (rows, y), or (rows, y, weights)."""

    blocks: Callable[[], Any]
    reads: int = 0
    names: list[str] | None = None
    count = None

    def map(self, work: Work) -> Iterator[Any]:
        """Call the function, and take its blocks in turn."""
        self.reads += 1
        for number, block in enumerate(self.blocks()):
            if not isinstance(block, tuple) or len(block) not in (2, 3):
                raise ValueError(f"block {number} is a {type(block).__name__}: yield (rows, y) or (rows, y, weights)")
            yield work(number, *block, *([None] if len(block) == 2 else []))


def features(names: list[str], target: str, weight: str | None) -> list[str]:
    """The columns but those of targets and weights; refused where there are no such."""
    for name in (target, weight):
        if name is not None and name not in names:
            raise ValueError(f"the column {name!r} is not among {', '.join(map(repr, names))}: name one of them")
    return [name for name in names if name not in (target, weight)]


@dataclass
class ArrowBlocks:
    """The record batches of an Arrow dataset; its columns but those of targets and weights are the features."""

    dataset: Any
    target: str
    weight: str | None = None
    reads: int = 0
    count = None

    def __post_init__(self) -> None:
        self.names: list[str] | None = features(list(self.dataset.schema.names), self.target, self.weight)

    def map(self, work: Work) -> Iterator[Any]:
        """Scan the dataset once."""
        self.reads += 1
        batches = (batch for batch in self.dataset.to_batches(batch_size=BATCH) if batch.num_rows)
        for number, batch in enumerate(batches):
            columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
            rows = np.column_stack([columns[name] for name in self.names or ()])
            yield work(number, rows, columns[self.target], None if self.weight is None else columns[self.weight])


@dataclass
class DaskBlocks:
    """The chunks of dask arrays or the partitions of a dask dataframe, as delayed rows, targets and weights."""

    parts: list[tuple[Any, Any, Any]]
    names: list[str] | None = None
    reads: int = 0

    @property
    def count(self) -> int:
        """The number of blocks."""
        return len(self.parts)

    def map(self, work: Work) -> Iterator[Any]:
        """Let dask do the work on every block, on its workers; one that is lost is done again by another."""
        import dask

        self.reads += 1
        tasks = [dask.delayed(work, pure=False)(number, *part) for number, part in enumerate(self.parts)]
        yield from dask.compute(*tasks)


def _split(frame: Any, target: str, weight: str | None) -> tuple[Any, Any, Any]:
    """The features, targets and weights of a partition of a dataframe."""
    rows = frame[features(list(frame.columns), target, weight)].to_numpy()
    return rows, frame[target].to_numpy(), None if weight is None else frame[weight].to_numpy()


def _dask_blocks(X: Any, y: Any, weight: Any) -> DaskBlocks:
    import dask
    from dask import array

    if hasattr(X, "to_delayed") and hasattr(X, "columns"):
        if not isinstance(y, str):
            raise ValueError(f"y is a {type(y).__name__} beside a dask dataframe: give the name of its target's column")
        names = features(list(X.columns), y, weight)
        split = [dask.delayed(_split, nout=3)(part, y, weight) for part in X.to_delayed()]
        return DaskBlocks([tuple(part) for part in split], names)
    if y is None or len(y) != len(X):
        found = "None" if y is None else f"{len(y)} targets"
        raise ValueError(f"y is {found} beside {len(X)} rows of a dask array: give an array with a target for each row")
    rows = X.rechunk({1: -1})
    cut = {0: rows.chunks[0]}
    lines = [None if a is None else array.asarray(a).rechunk(cut).to_delayed().ravel().tolist() for a in (y, weight)]
    blocks = rows.to_delayed().ravel().tolist()
    targets, weights = (line or [None] * len(blocks) for line in lines)
    return DaskBlocks(list(zip(blocks, targets, weights, strict=True)))


def blocks_of(X: Any, y: Any, weight: Any) -> BlockSource | None:
    """The blocks of what X is; None for rows in memory."""
    if type(X) is np.ndarray or sparse.issparse(X):
        return None
    if isinstance(X, np.memmap):
        if X.ndim != 2 or X.nbytes < LARGE:
            return None
        for name, given in (("y", np.asarray(y)), ("sample_weight", weight)):
            if given is not None and np.shape(given) != (len(X),):
                raise ValueError(f"{name} has the shape {np.shape(given)}, X {len(X)} rows: give a number for each row")
        return MappedBlocks(X, np.asarray(y), weight)
    module = type(X).__module__.split(".")[0]
    if module == "dask" or module == "dask_expr":
        return _dask_blocks(X, y, weight)
    if module == "pyarrow" or (isinstance(X, str | os.PathLike) and str(X).endswith((".parquet", ".arrow"))):
        if not isinstance(y, str):
            raise ValueError(f"y is a {type(y).__name__} beside a dataset: give the name of its target's column")
        return ArrowBlocks(_dataset(X), y, weight)
    if callable(X) and not hasattr(X, "__array__") and not hasattr(X, "shape"):
        if y is not None or weight is not None:
            raise ValueError("X is a function that yields (rows, y) or (rows, y, weights): give y=None beside it")
        return YieldedBlocks(X)
    return None


def _dataset(X: Any) -> Any:
    """A dataset of pyarrow's: as it is, of a table, or of the files of this name."""
    import pyarrow
    import pyarrow.dataset

    if isinstance(X, pyarrow.Table):
        return pyarrow.dataset.dataset(X)
    return pyarrow.dataset.dataset(str(X)) if isinstance(X, str | os.PathLike) else X
