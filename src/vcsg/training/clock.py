"""The time spent in training, without evaluations and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Measures wall time from `start` to `stop`, less what happens inside `paused`.

    A CUDA device works asynchronously: when the clock is stopped, the work already queued there is waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._seconds = device, 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """The seconds measured so far."""
        return self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    def take_up(self, seconds: float) -> None:
        """Continue from the seconds that an earlier part of the run took."""
        self._seconds = seconds

    def start(self) -> None:
        self._since = time.monotonic()

    def stop(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._seconds, self._since = self.seconds, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of the block out."""
        running = self._since is not None
        self.stop()
        try:
            yield
        finally:
            if running:
                self.start()
