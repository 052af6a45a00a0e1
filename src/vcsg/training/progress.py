"""The display of a run on stderr: nothing, a line per evaluation, or a bar."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from vcsg.training.result import cell, label
from vcsg.training.stepper import Stepper

REFRESH_SECONDS = 0.1
"""The least time between two updates of a bar."""


@dataclass(frozen=True)
class Status:
    """The state of a run, as a bar shows it."""

    share: float
    """The share of the run that is done."""
    passes: float
    epoch: int
    phase: str
    plan: str
    """B, b and the regime of the epoch; "" where there is no record of it."""
    loss: float
    """The loss of the last batch."""
    error: float
    """The error on the test samples at the last evaluation; NaN where there are none."""

    def __str__(self) -> str:
        plan = f" {self.plan}" if self.plan else ""
        error = "" if math.isnan(self.error) else f", error {cell('error', self.error)}"
        return f"{self.passes:.1f} passes, j={self.epoch} {self.phase}{plan}, loss {self.loss:.3g}{error}"


class Silent:
    """Shows nothing. The other displays extend it."""

    def __init__(self, name: str, optimizer: Stepper, measured: bool) -> None:
        """`measured` says whether the share of the run that is done can be known."""
        self._name, self._optimizer = name, optimizer

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stepped(self, loss: float, share: float) -> None:
        """Take note of a step: the loss of its batch, and the share of the run that is done."""

    def evaluated(self, row: dict[str, float]) -> None:
        """Take note of a new row of the history."""


Show = Callable[[str, Stepper, bool], Silent]
"""Makes the display of a run from its title, its optimizer, and whether the share that is done can be known."""


class Lines(Silent):
    """Prints a line per evaluation."""

    def evaluated(self, row: dict[str, float]) -> None:
        cells = [f"{label(name)} {cell(name, value)}" for name, value in row.items() if not math.isnan(value)]
        print(self._name, *cells, sep="  ", file=sys.stderr)


class Watched(Silent, ABC):
    """Calls `show` with the status of the run, at most ten times a second."""

    def __init__(self, name: str, optimizer: Stepper, measured: bool) -> None:
        super().__init__(name, optimizer, measured)
        self._shown, self._loss, self._share, self._error = -math.inf, math.nan, 0.0, math.nan

    def __exit__(self, *_: object) -> None:
        self.show(self.status())

    def stepped(self, loss: float, share: float) -> None:
        self._loss, self._share = loss, share
        now = time.monotonic()
        if now - self._shown > REFRESH_SECONDS:
            self._shown = now
            self.show(self.status())

    def evaluated(self, row: dict[str, float]) -> None:
        self._error = row.get("test_error", row.get("error", math.nan))

    def status(self) -> Status:
        optimizer, record = self._optimizer, self._optimizer.record
        plan = f"B={record.B} b={record.b} {record.regime}".rstrip() if record else ""
        return Status(
            share=self._share,
            passes=optimizer.passes,
            epoch=optimizer.epoch,
            phase=optimizer.phase.kind,
            plan=plan,
            loss=self._loss,
            error=self._error,
        )

    @abstractmethod
    def show(self, status: Status) -> None: ...


class Bar(Watched):
    """Draws a bar on a terminal, with the phase, the plan of the epoch, the last loss and error, and the time left."""

    def __init__(self, name: str, optimizer: Stepper, measured: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__(name, optimizer, measured)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=12), TimeRemainingColumn(True))
        # What the program prints meanwhile appears above the bar, unless stdout is a file.
        self._bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty())
        self._task = self._bar.add_task(name, total=1.0 if measured else None)

    def __enter__(self) -> Silent:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._bar.stop()

    def show(self, status: Status) -> None:
        self._bar.update(self._task, completed=status.share, description=f"{self._name} {status}")


def choose(progress: bool | None) -> Show:
    """The display that `fit(progress=…)` asks for.

    True is a bar on a terminal where rich is installed, else lines; None is True on a terminal, else False.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if progress is False or (progress is None and not terminal):
        return Silent
    if not terminal:
        return Lines
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError:
        return Lines
    return Bar
