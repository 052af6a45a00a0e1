"""Ctrl-C and SIGTERM: a run ends where its state is whole."""

from __future__ import annotations

import signal
import threading
from typing import Any, Protocol

UNTOUCHED: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals that can be handled here, where nobody else does."""


class Wish(Protocol):
    """Whether a run is to stop after the step in hand."""

    @property
    def asked(self) -> bool: ...


class Interrupt:
    """A signal asks a run to stop after the step in hand, so that its state is whole; a second one raises.

    Args:
        signals: which; a signal that the program handles itself is left to it.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        self.asked = False
        self.signal = signal.SIGINT
        """By which it was asked."""
        main = threading.current_thread() is threading.main_thread()
        wanted = signals or tuple(UNTOUCHED)
        self._ours = [s for s in wanted if main and signal.getsignal(s) is UNTOUCHED[s]]

    @property
    def status(self) -> int:
        """With which a program ends that was asked to: 130 or 143."""
        return 128 + self.signal

    @property
    def terminated(self) -> bool:
        """Whether it was asked by SIGTERM: not only the run is to end."""
        return self.asked and self.signal is signal.SIGTERM

    def __enter__(self) -> Interrupt:
        for number in self._ours:
            signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._ours:
            signal.signal(number, UNTOUCHED[number])

    def _ask(self, number: int, _: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked, self.signal = True, signal.Signals(number)
