"""The time spent in training, apart from all else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Wall time from `start` to `stop`, less what happens inside `paused`.

    A CUDA device works behind the program's back: what it has in hand when the clock is stopped is waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._seconds = device, 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """So far."""
        return self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    def take_up(self, seconds: float) -> None:
        """That many were spent before."""
        self._seconds = seconds

    def start(self) -> None:
        self._since = time.monotonic()

    def stop(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._seconds, self._since = self.seconds, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What the block takes is not counted."""
        running = self._since is not None
        self.stop()
        try:
            yield
        finally:
            if running:
                self.start()
