"""How a run shows itself, on stderr: not at all, by a line per evaluation, or by a bar."""

from __future__ import annotations

import math
import sys
import time

from vcsg.optimizer import FiniteSumOptimizer
from vcsg.training.result import cell, label


class Silent:
    """Shows nothing; the others show more."""

    def __init__(self, optimizer: FiniteSumOptimizer, measured: bool) -> None:
        """`measured` says whether it is known how much of the run is done."""
        self._optimizer = optimizer

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
        print(self._optimizer.method.name, *cells, sep="  ", file=sys.stderr)


class Bar(Silent):
    """A bar on a terminal, with the phase, the plan of the epoch, the last loss and error, and the time left."""

    def __init__(self, optimizer: FiniteSumOptimizer, measured: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__(optimizer, measured)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=12), TimeRemainingColumn(True))
        # What is printed meanwhile appears above the bar; into a file it goes as ever.
        self._bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=sys.stdout.isatty())
        self._task = self._bar.add_task(optimizer.method.name, total=1.0 if measured else None)
        self._shown, self._loss, self._share, self._error = -math.inf, math.nan, 0.0, ""

    def __enter__(self) -> Silent:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._show()
        self._bar.stop()

    def stepped(self, loss: float, share: float) -> None:
        self._loss, self._share = loss, share
        if time.monotonic() - self._shown > 0.1:
            self._show()

    def evaluated(self, row: dict[str, float]) -> None:
        self._error = f", error {cell('error', row['error'])}" if "error" in row else ""

    def _show(self) -> None:
        self._shown = time.monotonic()
        self._bar.update(self._task, completed=self._share, description=self._text())

    def _text(self) -> str:
        optimizer, record = self._optimizer, self._optimizer.record
        plan = f" B={record.B} b={record.b} {record.regime}".rstrip() if record else ""
        return (
            f"{optimizer.method.name} {optimizer.passes:.1f} passes, j={optimizer.epoch} {optimizer.phase.kind}{plan}, "
            f"loss {self._loss:.3g}{self._error}"
        )


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
