"""Doing pieces of work one after the other or in worker processes, with progress shown, until done or interrupted."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vcsg.experiments.pieces import Piece, Row, begin_worker, do, do_in_worker, record_path
from vcsg.files import locked, sweep, write_text
from vcsg.study.plan import check_place
from vcsg.training.interrupt import Interrupt
from vcsg.version import __version__

PATIENCE = 10.0
"""Seconds between two lines of progress, where there is no terminal."""
INTERVAL = 0.2
"""The most seconds until Ctrl-C is noticed."""
DESIGN = "design.json"


class Meter:
    """Shows how many pieces of work are done: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self._console, self._total, self._done, self._told = console, total, done, time.monotonic()
        text = TextColumn("{task.description}", markup=False)
        columns = BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), text
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=total, completed=done)

    def __enter__(self) -> Meter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def did(self, name: str) -> None:
        """Take note that a piece is done."""
        self._done += 1
        self._bar.update(self._task, completed=self._done, description=name)
        due = time.monotonic() - self._told > PATIENCE or self._done == self._total
        if due and not self._console.is_terminal:
            self._told = time.monotonic()
            self._console.print(f"{self._done} of {self._total} done, last {name}", highlight=False, markup=False)


def conduct(
    pieces: Sequence[Piece],
    design: Any,
    identity: Row,
    folder: Path,
    jobs: int,
    console: Console,
    interrupt: Interrupt,
) -> bool:
    """Do the pieces that have no record yet; returns whether all are done.

    Args:
        pieces: the work, in the order in which it is begun; a piece that needs others waits for them.
        design: what is handed to every piece.
        identity: what must be the same where a folder is continued.
        folder: where the records are.
        jobs: how many pieces are done at a time, each in a process of its own.
        console: where progress is shown.
        interrupt: Ctrl-C and SIGTERM; a piece that is under way then is made again by the next call.
    """
    if jobs < 1:
        raise ValueError(f"jobs = {jobs}: give a whole number, at least 1")
    with locked(folder):
        begin(folder, identity)
        for place in {record_path(folder, piece.name).parent for piece in pieces}:
            sweep(place)
        todo = [piece for piece in pieces if not record_path(folder, piece.name).exists()]
        with Meter(console, len(pieces), len(pieces) - len(todo)) as meter, interrupt:
            if jobs == 1 or len(todo) < 2:
                return _one_by_one(todo, design, folder, meter, interrupt)
            try:
                return _side_by_side(todo, design, folder, min(jobs, len(todo)), meter, interrupt)
            except BrokenProcessPool as error:
                if interrupt.asked:  # it came while a worker process was starting
                    return False
                raise ChildProcessError(
                    "a worker process ended by itself; it may have run out of memory: give the command again to go on"
                ) from error


def begin(folder: Path, identity: Row) -> None:
    """Write what is measured into the folder; what is there already has to be the same."""
    path = folder / DESIGN
    check_place(folder, DESIGN)
    identity = dict(json.loads(json.dumps({**identity, "vcsg": __version__})))
    if path.exists():
        earlier = read_design(folder)
        differing = [name for name, value in identity.items() if earlier.get(name) != value]
        if differing:
            raise ValueError(
                f"{folder} holds another experiment (it differs in {', '.join(differing)}): give another folder for "
                "--out, or remove it"
            )
    write_text(path, json.dumps(identity, indent=1) + "\n")


def read_design(folder: Path) -> Row:
    """What the folder says was measured."""
    path = folder / DESIGN
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the design of an experiment ({error}): remove the folder") from error


def _one_by_one(todo: Sequence[Piece], design: Any, folder: Path, meter: Meter, interrupt: Interrupt) -> bool:
    left = list(todo)
    while left:
        piece = _ready(left, {one.name for one in left})
        if interrupt.asked:
            return False
        try:
            do(piece, design, folder, lambda: interrupt.asked)
        except KeyboardInterrupt:
            return False
        left.remove(piece)
        meter.did(piece.name)
    return True


def _ready(left: Sequence[Piece], missing: set[str]) -> Piece:
    return next(piece for piece in left if not missing & set(piece.needs))


def _side_by_side(
    todo: Sequence[Piece], design: Any, folder: Path, jobs: int, meter: Meter, interrupt: Interrupt
) -> bool:
    left, running = list(todo), dict[Future[bool], Piece]()
    with _workers(jobs) as (pool, flag):
        while (left or running) and not interrupt.asked:
            missing = {piece.name for piece in (*left, *running.values())}
            free = [piece for piece in left if not missing & set(piece.needs)]
            for piece in free[: jobs - len(running)]:
                left.remove(piece)
                running[pool.submit(do_in_worker, piece, design, folder)] = piece
            for future in wait(running, INTERVAL, FIRST_COMPLETED).done:
                piece = running.pop(future)
                future.result()  # an error in a piece ends all
                meter.did(piece.name)
        flag.set()
        for future in wait(running).done:
            future.result()
    return not left and not running


@contextmanager
def _workers(jobs: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Worker processes, and the flag that asks them to stop; they have ended when the block ends."""
    context = multiprocessing.get_context("spawn")
    flag = context.Event()
    with ProcessPoolExecutor(jobs, context, initializer=begin_worker, initargs=(flag,)) as pool:
        try:
            yield pool, flag
        except BaseException:
            flag.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
