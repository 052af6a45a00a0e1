"""How a run shows itself, on stderr: not at all, by a line per evaluation, or by a bar."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from vcsg.training.result import cell, label
from vcsg.training.stepper import Stepper

INTERVAL = 0.1
"""Seconds between two pictures of a run."""


@dataclass(frozen=True)
class Status:
    """Where a run is."""

    share: float
    """How much of it is done."""
    passes: float
    epoch: int
    phase: str
    plan: str
    """B, b and the regime of the epoch; "" where there is no record of it."""
    loss: float
    """Of the last batch."""
    error: float
    """On the test samples, at the last evaluation; NaN where there are none."""

    def __str__(self) -> str:
        plan = f" {self.plan}" if self.plan else ""
        error = "" if math.isnan(self.error) else f", error {cell('error', self.error)}"
        return f"{self.passes:.1f} passes, j={self.epoch} {self.phase}{plan}, loss {self.loss:.3g}{error}"


class Silent:
    """Shows nothing; the others show more."""

    def __init__(self, name: str, optimizer: Stepper, measured: bool) -> None:
        """`measured` says whether it is known how much of the run is done."""
        self._name, self._optimizer = name, optimizer

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stepped(self, loss: float, share: float) -> None:
        """A step was taken; `share` of the run is done."""

    def evaluated(self, row: dict[str, float]) -> None:
        """The history has a new row."""


class Lines(Silent):
    """A line per evaluation."""

    def evaluated(self, row: dict[str, float]) -> None:
        cells = [f"{label(name)} {cell(name, value)}" for name, value in row.items() if not math.isnan(value)]
        print(self._name, *cells, sep="  ", file=sys.stderr)


class Watched(Silent, ABC):
    """Calls `show` with where the run is, a few times a second."""

    def __init__(self, name: str, optimizer: Stepper, measured: bool) -> None:
        super().__init__(name, optimizer, measured)
        self._shown, self._loss, self._share, self._error = -math.inf, math.nan, 0.0, math.nan

    def __exit__(self, *_: object) -> None:
        self.show(self.status())

    def stepped(self, loss: float, share: float) -> None:
        self._loss, self._share = loss, share
        now = time.monotonic()
        if now - self._shown > INTERVAL:
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
    """A bar on a terminal, with the phase, the plan of the epoch, the last loss and error, and the time left."""

    def __init__(self, name: str, optimizer: Stepper, measured: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__(name, optimizer, measured)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=12), TimeRemainingColumn(True))
        # What is printed meanwhile appears above the bar; into a file it goes as ever.
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


def choose(progress: bool | None) -> type[Silent]:
    """True is a bar on a terminal where rich is installed, else lines; None is True on a terminal, else False."""
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
