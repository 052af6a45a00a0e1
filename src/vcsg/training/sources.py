"""The samples of a run: tensors on the device, or a dataset that a DataLoader reads."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from vcsg.gpu.graphs import Samples
from vcsg.run.feeding import PhaseSampler
from vcsg.training.task import Task, pair


class TensorSource:
    """Samples that are tensors on the device. A batch has the form of the data: a tensor, a tuple or a dict."""

    def __init__(self, role: str, data: Any, device: torch.device) -> None:
        self._names = list(data) if isinstance(data, Mapping) else None
        self._single = isinstance(data, Tensor)
        self._tensors = [t.to(device) for t in _values(data)]
        lengths = [len(t) if t.dim() else 0 for t in self._tensors]
        self.n = lengths[0]
        if min(lengths) != max(lengths) or self.n == 0:
            raise ValueError(f"the tensors of {role} hold {lengths} samples: give equal numbers, at least 1")

    @property
    def samples(self) -> Samples:
        """The tensors, for an engine that gathers batches on the device."""
        return Samples(self._tensors, self.batch)

    def draws(self, sampler: PhaseSampler) -> Any:
        return self._tensors

    def batch(self, drawn: Any) -> Any:
        """The drawn tensors in the form of the data."""
        if self._names is not None:
            return dict(zip(self._names, drawn, strict=True))
        return drawn[0] if self._single else tuple(drawn)

    def take(self, start: int, count: int = 1) -> Any:
        """A batch of so many samples from `start` on."""
        return self.batch([t[start : start + count] for t in self._tensors])

    def some(self, count: int) -> Any:
        """A batch of up to so many samples, spread over all."""
        chosen = spread(self.n, count)
        return self.batch([t[chosen] for t in self._tensors])

    def parts(self, size: int) -> Iterator[tuple[int, Any]]:
        """All samples in their order, `size` at once, as pairs (number of samples, batch)."""
        for start in range(0, self.n, size):
            yield min(size, self.n - start), self.batch([t[start : start + size] for t in self._tensors])


class DatasetSource:
    """Samples of a dataset, which a DataLoader reads by index.

    Its workers persist: a loader is started again at every phase, and would else start new processes each time. Where
    there are workers, no sample is read in this process: those that are looked at before a run, one worker reads.
    """

    def __init__(self, dataset: Any, device: torch.device, workers: int, collate_fn: Any) -> None:
        self.n = len(dataset)
        self._dataset, self._device = dataset, device
        self._loaders: dict[int, DataLoader[Any]] = {}
        self._chosen: list[list[int]] = []
        self._reader: DataLoader[Any] | None = None
        self._some: dict[int, Any] = {}
        self._options: dict[str, Any] = {
            "num_workers": workers,
            "persistent_workers": workers > 0,
            "worker_init_fn": _ignore_interrupts,
            "collate_fn": collate_fn,
            "pin_memory": device.type == "cuda",
        }

    def draws(self, sampler: PhaseSampler) -> Any:
        self._reader, self._some = None, {}  # the worker ends before those of the run begin
        return DataLoader(self._dataset, batch_sampler=sampler, **self._options)

    def batch(self, drawn: Any) -> Any:
        return _move(drawn, self._device)

    def parts(self, size: int) -> Iterator[tuple[int, Any]]:
        if size not in self._loaders:
            self._loaders[size] = DataLoader(self._dataset, size, **self._options)
        for start, drawn in zip(range(0, self.n, size), self._loaders[size], strict=True):
            yield min(size, self.n - start), self.batch(drawn)

    def take(self, start: int, count: int = 1) -> Any:
        """A batch of so many samples from `start` on."""
        return self._read(range(start, start + count))

    def some(self, count: int) -> Any:
        """A batch of up to so many samples, spread over all; read once before a run."""
        if count not in self._some:
            self._some[count] = self._read(spread(self.n, count))
        return self._some[count]

    def _read(self, chosen: Sequence[int]) -> Any:
        if self._options["num_workers"]:
            return self._read_by_worker(chosen)
        collate = self._options["collate_fn"] or default_collate
        return self.batch(collate([self._dataset[i] for i in chosen]))

    def _read_by_worker(self, chosen: Sequence[int]) -> Any:
        """The batch of these samples, by a worker that stays for the next ones; torch's generator is left alone."""
        if self._reader is None:
            own = {"num_workers": 1, "generator": torch.Generator().manual_seed(0)}
            self._reader = DataLoader(self._dataset, batch_sampler=self._chosen, **(self._options | own))
        self._chosen[:] = [list(chosen)]
        [drawn] = self._reader
        return self.batch(drawn)


SampleSource = TensorSource | DatasetSource


def spread(n: int, count: int) -> list[int]:
    """The indices of up to so many of n samples: one, drawn at random, of each of as many parts of the data.

    At equal distances all of them would be of one phase where the data are periodic, as by hours or by rows of a grid.
    """
    count = min(count, n)
    edges = [i * n // count for i in range(count + 1)]
    drawn = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    return [low + int(u * (high - low)) for (low, high), u in zip(pairwise(edges), drawn, strict=True)]


def make_source(role: str, data: Any, task: Task, device: torch.device, workers: int, collate_fn: Any) -> SampleSource:
    """The source that reads `data`; `role` is the name of the argument, for messages."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise ValueError(f"workers = {workers!r}: give a whole number of processes, at least 0")
    if isinstance(data, TensorDataset) and not workers and collate_fn is None:
        data = data.tensors
    values = _values(data)
    if values and all(isinstance(t, Tensor) for t in values):
        if task.loss is not None:
            pair(data)
        return TensorSource(role, data, device)
    _check_dataset(role, data, values)
    return DatasetSource(data, device, workers, collate_fn)


def _values(data: Any) -> list[Any]:
    """The values that `data` is made of: tensors, where it is made of tensors."""
    if isinstance(data, Mapping):
        return list(data.values())
    return list(data) if isinstance(data, (tuple, list)) else [data]


def _check_dataset(role: str, data: Any, values: list[Any]) -> None:
    if any(isinstance(value, (Tensor, np.ndarray)) for value in values):
        kinds = ", ".join(type(value).__name__ for value in values[:4])
        remedy = "torch.from_numpy(array) makes one of an array"
        if not any(isinstance(value, np.ndarray) for value in values):
            remedy = "of several inputs (A, B, Y), with loss=None and objective=lambda model, batch: ..."
        raise TypeError(f"{role} is of {kinds}: give tensors alone; {remedy}")
    parts = values if isinstance(data, (tuple, Mapping)) else [data]
    columns = [type(value).__name__ for value in parts if _is_column(value)]
    if columns:
        raise TypeError(f"{role} is of {', '.join(columns)}: give tensors; torch.tensor(column.to_numpy()) makes one")
    if isinstance(data, tuple) and 0 < len(data) <= 3 and all(isinstance(value, list) for value in data):
        raise TypeError(f"{role} is a tuple of lists: give tensors; torch.tensor(values) makes one of a list")
    if isinstance(data, DataLoader):
        raise TypeError(f"{role} is a DataLoader: give its dataset, and workers= and collate_fn= where it needs them")
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping)
    if isinstance(data, IterableDataset) or not indexed:
        raise TypeError(
            f"{role} is a {type(data).__name__}: give tensors such as (X, Y), a dict of tensors, or a dataset with "
            "__getitem__ and __len__: samples are fetched by index"
        )
    if not len(data):
        raise ValueError(f"{role} holds 0 samples: give at least 1")


def _is_column(value: Any) -> bool:
    """Whether this is a column of a table, or a table, as those of pandas."""
    return hasattr(value, "to_numpy") and not isinstance(value, Dataset)


def _move(batch: Any, device: torch.device) -> Any:
    """The batch, whatever its form, with all its tensors on the device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _move(value, device) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        moved = [_move(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch


def _ignore_interrupts(_: int) -> None:
    """In a worker, ignore Ctrl-C, which reaches it too: the main process handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
