"""Ctrl-C: a run ends where its state is whole."""

from __future__ import annotations

import signal
import threading
from typing import Protocol


class Wish(Protocol):
    """Whether a run is to stop after the step in hand."""

    @property
    def asked(self) -> bool: ...


class Interrupt:
    """Ctrl-C asks a run to stop after the step in hand, so that its state is whole; a second one raises."""

    def __init__(self) -> None:
        self.asked = False
        main = threading.current_thread() is threading.main_thread()
        self._ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def __enter__(self) -> Interrupt:
        if self._ours:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
