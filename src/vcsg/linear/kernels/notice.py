"""Tells on the standard error stream that functions are being compiled, where that takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from numba.core import event

EXPECTED = 14
"""About how many functions a first fit compiles, which the progress bar takes for the whole."""
LENGTH = 20
"""The length of the progress bar."""
PATIENCE = 2.0
"""The seconds of compilation after which it is told."""
TEXT = (
    "vcsg.linear compiles its loops for this kind of data, once per installation: [{bar}] {done} functions in "
    "{seconds:.0f} s"
    " (`python -m vcsg.linear.precompile` does all of it ahead)"
)


@dataclass
class CompileNotice(event.Listener):  # type: ignore[misc]
    """Counts functions while numba compiles them, and keeps one line up to date; in a file, it writes one line."""

    done: int = 0
    seconds: float = 0.0
    depth: int = 0
    began: float = 0.0
    told: bool = False

    def on_start(self, event: Any) -> None:
        """Take the time when an outermost function begins."""
        if self.depth == 0:
            self.began = time.perf_counter()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        """Count a function, and tell of it after a while."""
        self.depth -= 1
        self.done += 1
        so_far = self.seconds + time.perf_counter() - self.began
        if self.depth == 0:
            self.seconds = so_far
        if so_far >= PATIENCE and sys.stderr is not None:
            self.tell(so_far)

    def tell(self, seconds: float) -> None:
        """Write the line: again over itself on a terminal, once elsewhere."""
        terminal = sys.stderr.isatty()
        if terminal or not self.told:
            full = min(LENGTH, LENGTH * self.done // EXPECTED)
            bar = "█" * full + "·" * (LENGTH - full)
            text = TEXT.format(bar=bar, done=self.done, seconds=seconds)
            print(text, end="\r" if terminal else "\n", file=sys.stderr)
            sys.stderr.flush()
        self.told = True


NOTICE = CompileNotice()
event.register("numba:compile", NOTICE)
