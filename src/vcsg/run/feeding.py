"""How the batches of a phase are read: by a DataLoader on the optimizer's sampler, or from tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vcsg.run.randomness import seeded
from vcsg.run.sampling import Phase, Share


class PhaseSampler(Sampler[list[int]]):
    """The `batch_sampler` of a DataLoader: one iteration is what remains of the optimizer's current phase."""

    def __init__(self, remaining: Callable[[], tuple[Share, Phase, int]]) -> None:
        self._remaining = remaining
        self._drawn = (0, 0)
        self._ended: tuple[Phase, int] | None = None
        """The phase of which all batches were asked for one by one, and the position where that began."""

    @property
    def share(self) -> Share:
        return self._remaining()[0]

    def __iter__(self) -> Iterator[list[int]]:
        share, phase, position = self._remaining()
        self._check_used(phase, position)
        start, one_by_one = position, _check_reader(phase.n, self)
        while position < phase.count and self._remaining()[1] is phase:
            own = share.part(phase, position)[0]
            self.hand_over(phase, position)
            yield phase.indices[own].tolist()
            position += share.width(phase, position)
        if one_by_one and position >= phase.count:
            self._ended = phase, start

    def _check_used(self, phase: Phase, position: int) -> None:
        """Refuse to go on with a phase whose batches were all read before, where only some of them were used.

        One more than was used is no fault, as who reads a batch ahead may have ended there.
        """
        ended, self._ended = self._ended, None
        left = len(self)
        if ended is not None and ended[0] is phase and position > ended[1] and left > 1:
            raise RuntimeError(
                f"{left} of the batches that optimizer.sampler drew were read and not used: call step once for each, "
                "in their order, or read them from optimizer.batches(loader, passes=...), which tells at once"
            )

    def hand_over(self, phase: Phase, position: int) -> None:
        """The batch at this place is drawn, and the loop has it, or will."""
        self._drawn = phase.number, position

    @property
    def has_drawn(self) -> bool:
        """Whether the batch that the next step is for was drawn here."""
        _, phase, position = self._remaining()
        return self._drawn[0] == phase.number and position <= self._drawn[1]

    @property
    def size(self) -> int:
        """How many samples this rank has of the batch that the next step is for."""
        share, phase, position = self._remaining()
        own = share.part(phase, position)[0]
        return int(own.stop - own.start)

    def __len__(self) -> int:
        share, phase, position = self._remaining()
        return share.steps(phase, position)


def _check_reader(n: int, sampler: PhaseSampler) -> bool:
    """Refuse to draw from n samples for a loader whose dataset has another number: it is the one that asks.

    And for one that would make a batch of several batches, as if each of them were the number of a sample. Returns
    whether it is a loader without workers, which reads no batch before it is asked for it.
    """
    frame: FrameType | None = sys._getframe(2)
    for _ in range(8):  # a few, for samplers that wrap this one
        reader = frame.f_locals.get("self") if frame else None
        if isinstance(reader, _BaseDataLoaderIter):
            check_length(reader._dataset, n)
            asked: Any = reader._index_sampler
            if isinstance(asked, BatchSampler) and getattr(asked, "sampler", None) is sampler:
                raise ValueError(
                    f"the DataLoader was made with sampler=optimizer.sampler, and puts {asked.batch_size} of its "
                    "batches into one: give batch_sampler=optimizer.sampler, and no batch_size"
                )
            return reader._num_workers == 0
        frame = frame.f_back if frame else None
    return False


def check_length(dataset: Any, n: int) -> None:
    """Refuse a dataset of another length than n."""
    size = len(dataset) if isinstance(dataset, Sized) else n
    if size != n:
        raise ValueError(
            f"the dataset holds {size} samples, the optimizer was made for n = {n}: "
            "make the optimizer with n=len(dataset)"
        )


def sized_batches(loader: Iterable[Any]) -> Iterator[tuple[Any, int | None]]:
    """The batches of one pass of a loader, each with its number of samples; None where that is not known.

    A loader that cuts its samples into equal batches tells it; of others, the length of a batch's first tensor does.
    """
    b, sampler = getattr(loader, "batch_size", None), getattr(loader, "sampler", None)
    total = len(sampler) if b and isinstance(sampler, Sized) else None
    for k, batch in enumerate(loader):
        yield batch, _rows(batch) if total is None or not b else min(b, total - k * b)


def _rows(batch: Any) -> int | None:
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if isinstance(batch, (tuple, list)):
        return next((rows for rows in map(_rows, batch) if rows is not None), None)
    return len(batch) if isinstance(batch, Tensor) and batch.dim() else None


def check_rows(batch: Any, drawn: int) -> None:
    """Refuse a batch that shows fewer samples than were drawn for it, or more that are no multiple of them.

    That is certain where all its tensors have one length, which is another, and nothing in it has as many entries as
    were drawn, along any axis: sequences may come first, and rows be those of graphs. A single sample may be bare, and
    each may come several times, as augmented views do.
    """
    lengths: set[int] = set()
    certain = drawn > 1 and _are_rows(batch, drawn, lengths) and len(lengths) == 1
    rows = lengths.pop() if certain else drawn
    if rows < drawn or rows % drawn:
        raise ValueError(
            f"the batch has {rows} rows, and {drawn} samples were drawn for it: let dataset and collate_fn "
            "return all that are asked for, each once. Where rows are not samples, let the batch hold something with "
            "one entry for each sample too, such as their lengths"
        )


def _are_rows(item: Any, drawn: int, lengths: set[int]) -> bool:
    """Whether everything in a batch may be rows of another number of samples than drawn; notes the lengths."""
    if isinstance(item, Tensor):
        if item.is_nested or not item.dim() or drawn in item.shape:
            return False
        lengths.add(len(item))
        return True
    if isinstance(item, Mapping):
        return all(_are_rows(value, drawn, lengths) for value in item.values())
    if isinstance(item, (tuple, list)):
        return len(item) != drawn and all(_are_rows(value, drawn, lengths) for value in item)
    return item is None or isinstance(item, (str, int, float))


Feed = Callable[[Phase, int], Iterator[Any]]
"""(phase, position) → the batches of data from that position of the phase on."""


def feed(data: Any, n: int, sampler: PhaseSampler) -> Feed:
    """How to read phases from `data`: a DataLoader on `sampler`, a tensor, or a tuple or list of tensors."""
    if isinstance(data, DataLoader):
        return _loader_feed(data, n, sampler)
    tensors = [data] if isinstance(data, Tensor) else data
    if isinstance(tensors, (tuple, list)) and tensors and all(isinstance(t, Tensor) for t in tensors):
        return _tensor_feed(data, n, sampler.share)
    kinds = f" of {', '.join(type(t).__name__ for t in tensors[:4])}" if isinstance(tensors, (tuple, list)) else ""
    raise TypeError(
        f"data is a {type(data).__name__}{kinds}: give a DataLoader made with batch_sampler=optimizer.sampler, a "
        "tensor, or a tuple of tensors with the samples along the first axis (torch.from_numpy makes one of an array)"
    )


def not_finite(data: Any, samples: Sequence[int]) -> list[int]:
    """Those of the samples whose data have a number that is not finite, before any model sees them."""
    if isinstance(data, DataLoader):
        return [i for i in samples if not _finite(data.dataset[i])]
    tensors = [data] if isinstance(data, Tensor) else data
    return [i for i in samples if not _finite([t[i] for t in tensors])]


def _finite(sample: Any) -> bool:
    if isinstance(sample, Mapping):
        return all(map(_finite, sample.values()))
    if isinstance(sample, (tuple, list)):
        return all(map(_finite, sample))
    return not isinstance(sample, Tensor) or bool(torch.isfinite(sample).all())


def _tensor_feed(data: Tensor | Sequence[Tensor], n: int, share: Share) -> Feed:
    tensors = [data] if isinstance(data, Tensor) else list(data)
    for i, tensor in enumerate(tensors):
        rows = len(tensor) if tensor.dim() else 0
        if rows != n:
            raise ValueError(
                f"tensor {i} of the data holds {rows} samples, the optimizer was made for n = {n}: "
                "make the optimizer with n=len(data), the samples along the first axis"
            )

    def batches(phase: Phase, position: int) -> Iterator[Any]:
        for part in share.parts(phase, position):
            batch = tuple(t.index_select(0, indices_on(phase, t.device)[part]) for t in tensors)
            yield batch[0] if isinstance(data, Tensor) else batch
            del batch

    return batches


def _loader_feed(loader: DataLoader[Any], n: int, sampler: PhaseSampler) -> Feed:
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(
            "the DataLoader reads an IterableDataset: a finite-sum method must fetch samples by index; "
            "give a dataset with __getitem__ and __len__"
        )
    if loader.batch_sampler is not sampler:
        raise ValueError(
            "the DataLoader does not draw from this optimizer: "
            "make it with DataLoader(dataset, batch_sampler=optimizer.sampler)"
        )
    check_length(loader.dataset, n)

    def batches(phase: Phase, position: int) -> Iterator[Any]:
        # Opening a loader draws its workers' seed from the global generator, which is not ours to advance.
        with seeded(phase.seeds[-1]):
            iterator = iter(loader)
        parts = sampler.share.parts(phase, position)
        for batch in iterator:
            own = next(parts)
            check_rows(batch, own.stop - own.start)
            yield batch
            del batch  # or it would be held while the next one is read

    return batches


def indices_on(phase: Phase, device: torch.device) -> Tensor:
    """The samples of all batches of a phase, on a device, uploaded once."""
    placed: dict[torch.device, Tensor] = phase.__dict__.setdefault("_placed", {})
    if device not in placed:
        placed[device] = torch.from_numpy(phase.indices).to(device)
    return placed[device]
