"""Torch's random generators, seeded for an evaluation and put back after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Randomness:
    """torch's CPU generator and those of the `tensors`' CUDA devices: seeded at will in a context, then put back."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        indices = {t.device.index for t in tensors if t.is_cuda}
        self._generators = [torch.default_generator, *(torch.cuda.default_generators[i] for i in indices)]

    def seed(self, seed: int) -> None:
        """Evaluating twice under one seed gives dropout the same mask twice."""
        for generator in self._generators:
            generator.manual_seed(seed)

    def __enter__(self) -> None:
        self._states = [g.get_state() for g in self._generators]

    def __exit__(self, *_: object) -> None:
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)


@contextmanager
def seeded(seed: int, tensors: Iterable[Tensor] = ()) -> Iterator[None]:
    """A context with the generators of `Randomness` at `seed`."""
    randomness = Randomness(tensors)
    with randomness:
        randomness.seed(seed)
        yield
