"""Doing the tasks of a study: one after the other in this process, or several at a time in worker processes."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event as Flag

from vcsg.study import imports
from vcsg.study.plan import Study
from vcsg.study.running.board import Board, Event, Reporter
from vcsg.study.running.tasks import StudyTask
from vcsg.training.interrupt import DEFAULT_HANDLERS, Interrupt

INTERVAL = 0.2
"""The most seconds until Ctrl-C is noticed."""


@dataclass
class Outcome:
    """What became of the tasks."""

    interrupted: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    """Why tasks could not be done, by name. A run that diverged is done: its record tells of it."""


def perform(
    study: Study, tasks: list[StudyTask], board: Board, interrupt: Interrupt, before: Outcome | None = None
) -> Outcome:
    """Do all tasks that are not done yet. Ctrl-C ends runs after the current step, a second Ctrl-C at once.

    `before` is the outcome of tasks that these need; theirs is added to it.
    """
    todo, outcome = [task for task in tasks if not task.done(study)], before or Outcome()
    if study.jobs == 1 or len(todo) < 2:
        return _one_by_one(study, todo, board, interrupt, outcome)
    return _side_by_side(study, todo, board, interrupt, outcome)


def _one_by_one(study: Study, todo: list[StudyTask], board: Board, interrupt: Interrupt, outcome: Outcome) -> Outcome:
    show = partial(Reporter, partial(board.tell, 0))
    for task in todo:
        if interrupt.asked:
            outcome.interrupted = True
            break
        if blocked(task, outcome):
            continue
        try:
            task.perform(study, interrupt, show)
        except KeyboardInterrupt:
            outcome.interrupted = True
            break
        except Exception as error:
            outcome.failures[task.name] = str(error) or type(error).__name__
    return outcome


def blocked(task: StudyTask, outcome: Outcome) -> bool:
    """Whether a task cannot be done because one that it needs failed; it is then noted as failed too."""
    for need in task.needs:
        if need in outcome.failures:
            outcome.failures[task.name] = f"it needs {need}, where {outcome.failures[need]}"
            return True
    return False


# --- several at once


@dataclass(frozen=True)
class Finished:
    """What a worker sends when it is finished with a task."""

    failure: str = ""
    interrupted: bool = False


@dataclass
class Worker:
    process: SpawnProcess
    connection: Connection[StudyTask | None, Event | Finished]
    task: StudyTask | None = None


@dataclass(frozen=True)
class StopFlag:
    """A request to stop that comes from another process."""

    flag: Flag

    @property
    def asked(self) -> bool:
        return self.flag.is_set()


def serve(study: Study, connection: Connection[Event | Finished, StudyTask | None], flag: Flag) -> None:
    """Do tasks until none is left, as a worker process; the main process handles Ctrl-C and SIGTERM."""
    for number in DEFAULT_HANDLERS:
        signal.signal(number, signal.SIG_IGN)
    imports.load(study.imports)
    show = partial(Reporter, connection.send)
    try:
        while (task := connection.recv()) is not None:
            try:
                task.perform(study, StopFlag(flag), show)
                connection.send(Finished())
            except KeyboardInterrupt:
                connection.send(Finished(interrupted=True))
            except Exception as error:
                connection.send(Finished(failure=str(error) or type(error).__name__))
    except (EOFError, OSError):
        return  # the main process is gone


def _side_by_side(study: Study, todo: list[StudyTask], board: Board, interrupt: Interrupt, outcome: Outcome) -> Outcome:
    with _workers(study, min(study.jobs, len(todo))) as (workers, flag):
        waiting = list(todo)
        try:
            while True:
                if interrupt.asked and not flag.is_set():
                    outcome.interrupted = True
                    flag.set()
                if not outcome.interrupted:
                    _assign(workers, waiting, outcome)
                busy = {worker.connection: place for place, worker in enumerate(workers) if worker.task}
                if not busy:
                    lost = {} if outcome.interrupted else {task.name: "no process is left for it" for task in waiting}
                    outcome.failures |= lost
                    return outcome
                for ready in wait(list(busy), INTERVAL):
                    place = busy[ready]  # type: ignore[index]
                    _listen(place, workers[place], board, outcome)
        except KeyboardInterrupt:
            outcome.interrupted = True
            return outcome


def _assign(workers: list[Worker], waiting: list[StudyTask], outcome: Outcome) -> None:
    """Give every idle worker the first task whose needs are met."""
    for worker in workers:
        if worker.task is not None or not worker.process.is_alive():
            continue
        pending = {task.name for task in waiting} | {w.task.name for w in workers if w.task}
        for task in list(waiting):
            if blocked(task, outcome):
                waiting.remove(task)
            elif not pending & set(task.needs):
                waiting.remove(task)
                worker.task = task
                worker.connection.send(task)
                break


def _listen(place: int, worker: Worker, board: Board, outcome: Outcome) -> None:
    assert worker.task is not None
    try:
        message = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        code = worker.process.exitcode
        message = Finished(failure=f"its process ended with status {code}; it may have run out of memory")
    if not isinstance(message, Finished):
        board.tell(place, message)
        return
    if message.failure:
        outcome.failures[worker.task.name] = message.failure
    outcome.interrupted = outcome.interrupted or message.interrupted
    worker.task = None


@contextmanager
def _workers(study: Study, count: int) -> Iterator[tuple[list[Worker], Flag]]:
    """Worker processes, which have ended when the block ends; an error ends them at once."""
    context = multiprocessing.get_context("spawn")
    flag = context.Event()
    workers = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(study, theirs, flag), daemon=True)
            with _ignoring_interrupts():
                process.start()
            theirs.close()
            workers.append(Worker(process, ours))
        yield workers, flag
    finally:
        for worker in workers:
            if worker.task is None and worker.process.is_alive():
                worker.connection.send(None)
            else:
                worker.process.kill()  # a file that it writes is complete, or does not exist
        for worker in workers:
            worker.process.join()
            worker.connection.close()


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Ignore signals while a process is started: it inherits that, and so is not interrupted during its imports."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in DEFAULT_HANDLERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
