"""The progress of a study on stderr: on a terminal a bar for each run under way, elsewhere a few plain lines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from vcsg.training.progress import Silent, Status, Watched
from vcsg.training.stepper import Stepper

PATIENCE = 10.0
"""Seconds between two lines about a run, where there is no terminal."""


@dataclass(frozen=True)
class Began:
    """A run has begun."""

    title: str
    counted: bool
    """Whether the run is one of the study's runs, and not a preparation."""


@dataclass(frozen=True)
class Evaluated:
    """A run was evaluated."""

    row: dict[str, float]


@dataclass(frozen=True)
class Ended:
    """A run has ended; the row is its last evaluation, if it had one."""

    row: dict[str, float]


Event = Began | Evaluated | Ended | Status
Tell = Callable[[Event], None]


class Reporter(Watched):
    """Reports the progress of a run, from whichever process makes it."""

    def __init__(self, tell: Tell, title: str, optimizer: Stepper, measured: bool) -> None:
        super().__init__(title, optimizer, measured)
        self._tell, self._measured, self._row = tell, measured, dict[str, float]()

    def __enter__(self) -> Silent:
        self._tell(Began(self._name, self._measured))
        return self

    def __exit__(self, *_: object) -> None:
        self._tell(Ended(self._row))

    def evaluated(self, row: dict[str, float]) -> None:
        super().evaluated(row)
        self._row = row
        self._tell(Evaluated(row))

    def show(self, status: Status) -> None:
        self._tell(status)


class Board:
    """Shows plain lines: one at the end of a run, and some during a long one."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        """The study has `total` runs, of which `done` are complete already."""
        self._console, self._total, self._begun = console, total, done
        self._titles: dict[int, str] = {}
        """The run under way in each place."""
        self._told: dict[int, float] = {}
        self._lines: dict[int, str] = {}
        """The last line printed for each place."""

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None: ...

    def tell(self, place: int, event: Event) -> None:
        """Take note of an event in one of the places where runs are made."""
        match event:
            case Began(title, counted):
                self._begun += counted
                count = f"run {self._begun} of {self._total}, " if counted else ""
                self._titles[place], self._told[place] = count + title, time.monotonic()
                self.began(place, counted)
            case Evaluated(row):
                self.evaluated(place, row)
            case Ended(row):
                self.ended(place, row)
            case Status():
                self.stepped(place, event)

    def began(self, place: int, counted: bool) -> None: ...

    def stepped(self, place: int, status: Status) -> None: ...

    def evaluated(self, place: int, row: dict[str, float]) -> None:
        if time.monotonic() - self._told[place] > PATIENCE:
            self._told[place] = time.monotonic()
            self._print(place, row)

    def ended(self, place: int, row: dict[str, float]) -> None:
        if row:
            self._print(place, row)

    def _print(self, place: int, row: dict[str, float]) -> None:
        text = f"{self._titles[place]}: {words(row)}"
        if text != self._lines.get(place):  # the last evaluation of a run may have been told already
            self._lines[place] = text
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class Bars(Board):
    """Shows a bar for each run under way, and one for the whole study."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        super().__init__(console, total, done)
        # The text comes last, for it is what a narrow terminal cuts off.
        text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._progress = Progress(BarColumn(bar_width=12), TimeRemainingColumn(True), text, console=console)
        self._bars: dict[int, TaskID] = {}
        self._shares: dict[int, float] = {}
        """The completed share of each run under way."""
        self._all = self._progress.add_task("", total=max(1, total))
        self._show_all()

    def __enter__(self) -> Board:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def began(self, place: int, counted: bool) -> None:
        self._bars[place] = self._progress.add_task(self._titles[place], total=1.0 if counted else None)
        if counted:
            self._shares[place] = 0.0
        self._show_all()

    def stepped(self, place: int, status: Status) -> None:
        text = f"{self._titles[place]}: {status}"
        self._progress.update(self._bars[place], completed=status.share, description=text)
        if place in self._shares:
            self._shares[place] = min(1.0, status.share)
        self._show_all()

    def evaluated(self, place: int, row: dict[str, float]) -> None: ...

    def ended(self, place: int, row: dict[str, float]) -> None:
        self._progress.remove_task(self._bars.pop(place))
        self._shares.pop(place, None)
        self._show_all()
        super().ended(place, row)

    def _show_all(self) -> None:
        done = self._begun - len(self._shares)
        text = f"{done} of {self._total} runs done"
        self._progress.update(self._all, completed=done + sum(self._shares.values()), description=text)


def board(console: Console, total: int, done: int) -> Board:
    return (Bars if console.is_terminal else Board)(console, total, done)


def words(row: dict[str, float]) -> str:
    """An evaluation as a line of text."""
    parts = [f"{row['passes']:.1f} passes", f"{row['seconds']:.1f} s"]
    if not math.isnan(row["train_loss"]):
        parts.append(f"training loss {row['train_loss']:.3g}")
    if "test_error" in row:
        parts.append(f"test error {row['test_error']:.2%}")
    if "grad_norm2" in row:
        parts.append(f"‖∇f‖² {row['grad_norm2']:.2g}")
    return ", ".join(parts)
