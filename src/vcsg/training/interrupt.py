"""Ctrl-C and SIGTERM: a run stops after the current step, where its state is complete."""

from __future__ import annotations

import signal
import threading
from typing import Any, Protocol

DEFAULT_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
"""The signals that can ask a run to stop, each with the handler that Python starts with."""


class StopRequest(Protocol):
    """Tells a run whether it is to stop after the current step."""

    @property
    def asked(self) -> bool:
        """Whether a stop was requested."""


class Interrupt:
    """Turns a signal into a request to stop after the current step; a second signal raises KeyboardInterrupt.

    Only signals with Python's default handler are handled. One that the program handles itself, or that the process
    ignores (a background job of a shell, `nohup`), is left as it is.

    Args:
        signals: the signals to handle; both SIGINT and SIGTERM where none is given.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        self.asked = False
        self.signal = signal.SIGINT
        """The signal that asked."""
        main = threading.current_thread() is threading.main_thread()
        wanted = signals or tuple(DEFAULT_HANDLERS)
        self._handled = [s for s in wanted if main and signal.getsignal(s) is DEFAULT_HANDLERS[s]]

    @property
    def status(self) -> int:
        """The exit status of a program that was asked to end: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.signal

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM asked: then the program is to end, and not the run alone."""
        return self.asked and self.signal is signal.SIGTERM

    def __enter__(self) -> Interrupt:
        for number in self._handled:
            signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._handled:
            signal.signal(number, DEFAULT_HANDLERS[number])

    def _ask(self, number: int, _: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked, self.signal = True, signal.Signals(number)
