"""One run of a study: a method on a workload, with its records in a folder, whatever becomes of it."""

from __future__ import annotations

import logging
import os
import platform
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from vcsg.files import locked, replacing, room_beside, sweep
from vcsg.run.record import Record
from vcsg.run.watch import Diverged
from vcsg.study import methods
from vcsg.study.baselines import BASELINES
from vcsg.study.budgets import Budget
from vcsg.study.records import WEIGHTS, Row, RunConfig, RunRecord, load
from vcsg.study.running import torchrun
from vcsg.study.running.miniature import initial_model, load_workload, warm_up
from vcsg.study.running.writing import RunWriter, check_free
from vcsg.study.targets import Target
from vcsg.training.checkpoints import Checkpoints, check_same
from vcsg.training.checkpoints import logger as checkpoint_logger
from vcsg.training.choosing import choose_options
from vcsg.training.evaluation import gradient_norm2, means, mode
from vcsg.training.interrupt import StopRequest
from vcsg.training.numerics import lay_out
from vcsg.training.progress import Show as Show
from vcsg.training.progress import Silent
from vcsg.training.saving import CHECKPOINT_SECONDS
from vcsg.training.session import Session, SessionOptions
from vcsg.training.sources import TensorSource
from vcsg.training.stepper import Stepper
from vcsg.version import __version__
from vcsg.workloads import Workload

EARLY_EVALUATIONS = 3
"""Evaluations before the first of those at equal distances: curves are steep at their beginning."""
BATCH, GRADIENT_BATCH = 1000, 250
"""Samples that are evaluated at once: for losses alone, and with gradients."""
DONE, BEGUN, RESUMED = 0, 1, 2
"""What the first rank tells the others: the run is done already, begins, or continues from a checkpoint."""

logger = logging.getLogger("vcsg")


@dataclass(frozen=True)
class Order:
    """A run that is to be done, and where its records go."""

    config: RunConfig
    path: Path
    data_dir: str | None = None
    notes: Row = field(default_factory=dict)
    gradients: bool = False
    """Whether ‖∇f‖² is measured at every evaluation, and not at the last one alone."""
    resume: bool = False
    """Whether to continue a run that the folder holds."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    ends_at: tuple[Target, ...] = ()
    """The targets at which the run ends, at the evaluation by which it has reached all of them."""

    @property
    def title(self) -> str:
        config, notes = self.config, self.notes
        if config.role == "search":
            size = f"b = {notes['b']}, " if "b" in notes else ""
            place = f"{notes['trial']} of {notes['trials']}"
            return f"search for {config.label}, {place}, {size}step × {notes['factor']:.3g}"
        return ", ".join(filter(None, (config.protocol, config.label, f"seed {config.seed}")))


def execute(order: Order, stop: StopRequest, show: Show) -> RunRecord:
    """Do the run, or what is left of it, and write its records.

    An error in the run is noted in its record and not raised, so that other runs continue. A folder that is in use or
    holds another run is refused, and left as it is.
    """
    config = order.config
    if config.method in BASELINES and torchrun.count() > 1:
        raise ValueError(f"{config.method} is a baseline and runs in one process: choose a method of the family")
    workload = load_workload(config.workload, order.data_dir, config.device)
    with threads(config.threads), locked(order.path) if torchrun.rank() == 0 else nullcontext():
        if not order.resume and torchrun.rank() == 0:
            check_free(order.path)
        warm_up(config.workload, order.data_dir, config.device, config.method, config.options.get("step"))
        execution = Execution(order, workload)
        if torchrun.rank() == 0:
            return execution.take_up() or execution.perform(stop, show)
        return execution.assist(stop)


class Execution:
    """One run of a study: its session, and the folder of its records."""

    def __init__(self, order: Order, workload: Workload) -> None:
        config, device = order.config, torch.device(order.config.device)
        self._order, self._model = order, initial_model(workload, config.seed)
        lay_out(self._model, None, device)
        self._record = _record(order, workload, self._model)
        self._writer, self._warnings = RunWriter(order.path, self._record), Warnings()
        train = TensorSource("train", workload.train, device)
        options = config.options | self._chosen(workload, train)
        optimizer = methods.make(config.method, self._model, workload.n, options, config.seed, self._tell)
        evaluation = Evaluation(order, workload, self._model, optimizer, train, self._writer)
        first = torchrun.rank() == 0
        self._session = Session(
            self._model,
            optimizer,
            evaluation.objective,
            train,
            evaluation if first else _leave_out,
            replace(Budget(**config.budget).limits(), enough=self._enough if order.ends_at else None),
            SessionOptions(
                every=config.every,
                early=EARLY_EVALUATIONS if config.role == "run" else 0,
                checkpoint_seconds=order.checkpoint_seconds,
            ),
            {"records": self._writer, "warnings": self._warnings} if first else {},
        )
        self._checkpoints = Checkpoints(order.path, identity(self._record))
        self._session.save_to(self._checkpoints)

    def _chosen(self, workload: Workload, train: TensorSource) -> Row:
        """The options that `auto` leaves open, chosen as `fit` chooses them; the notes of the run say why."""
        if self._order.config.method != "auto":
            return {}
        with mode(self._model, True):
            choice = choose_options(
                self._model, lambda batch: workload.objective(self._model, batch), train, self._order.config.options
            )
        self._record.notes["chosen"] = choice.reason
        return choice.options

    def take_up(self) -> RunRecord | None:
        """Continue the run that the folder holds; begin a new one where it holds none, or no sound checkpoint.

        Returns the record of a run that is done already.
        """
        earlier = run_in(self._order.path)
        if earlier is not None:
            check_same(earlier.path / "run.json", identity(earlier), identity(self._record))
            if is_complete(earlier):
                budgets = ({"budget": run.config.budget} for run in (earlier, self._record))
                check_same(earlier.path / "run.json", *budgets)
                self._checkpoints.clear()
                checkpoint_logger.warning("%s holds this run already, and it is %s", earlier.path, earlier.status)
                torchrun.from_rank_0(DONE)
                return earlier
        sweep(self._order.path)
        resumed = self._session.load()
        if resumed and earlier is not None:
            self._record.started, self._record.environment = earlier.started, earlier.environment
        elif not resumed and earlier is not None:
            message = "%s holds a run that ended before it had a sound checkpoint: it starts again from the beginning"
            checkpoint_logger.warning(message, self._order.path)
        self._writer.begin(resumed)
        torchrun.from_rank_0(RESUMED if resumed else BEGUN)
        return None

    def assist(self, stop: StopRequest) -> RunRecord:
        """Take part, on any rank but the first, in the run that the first rank begins or continues."""
        word = torchrun.from_rank_0()
        if word == RESUMED and not self._session.load():
            raise FileNotFoundError(
                f"rank {torchrun.rank()} finds no checkpoint in {self._order.path}, where rank 0 does: give a folder "
                "that all ranks share"
            )
        if word != DONE:
            self._session.run(self._order.title, Silent, stop)
        self._record.status = "interrupted" if stop.asked else "finished"
        return self._record

    def perform(self, stop: StopRequest, show: Show) -> RunRecord:
        """Do the run and close its record, whatever becomes of it."""
        try:
            with self._warnings.collected():
                stopped = self._session.run(self._order.title, show, stop)
            if self._order.config.role == "run":
                _save_weights(self._model, self._order.path / WEIGHTS)
            ended = "interrupted" if stopped == "interrupted" else "finished"
            self._writer.close(ended, stopped=stopped, **self._warnings.notes, **self._engine_notes)
        except Exception as error:
            notes = {"diverged": True} if _diverged(error) else {"traceback": traceback.format_exc()}
            try:
                self._writer.close("failed", _message(error), **notes)
            except OSError:
                raise error from None  # the record cannot be written, so the caller has to report the error
        except BaseException:
            self._writer.close("interrupted")
            raise
        if is_complete(self._record):
            self._checkpoints.clear()
        return self._record

    def _enough(self) -> bool:
        """Whether every target at which the run ends was reached, in this evaluation or before."""
        so_far = replace(self._record, evaluations=self._session.history)
        return all(so_far.reach(one.metric, one.value) is not None for one in self._order.ends_at)

    @property
    def _engine_notes(self) -> Row:
        """How steps were taken, on a device where there is a choice."""
        return self._session.engine_notes if self._order.config.device.startswith("cuda") else {}

    def _tell(self, record: Record) -> None:
        if torchrun.rank():
            return
        with self._session.clock.paused():
            self._writer.epoch(record)


def _leave_out(row: dict[str, float], last: bool) -> None:
    """Evaluate nothing, on any rank but the first."""


class Evaluation:
    """The measurements at each evaluation. A search sees the training loss alone, and never test samples."""

    def __init__(
        self,
        order: Order,
        workload: Workload,
        model: nn.Module,
        optimizer: Stepper,
        train: TensorSource,
        writer: RunWriter,
    ) -> None:
        self._order, self._workload, self._model, self._optimizer = order, workload, model, optimizer
        self._train, self._writer = train, writer
        device = torch.device(order.config.device)
        search = order.config.role == "search"
        tested = workload.test is not None and not search
        self._test = TensorSource("test", workload.test, device) if tested else None
        self._measured = not search

    def objective(self, batch: Any) -> Tensor:
        return self._workload.objective(self._model, batch)

    def __call__(self, row: dict[str, float], last: bool) -> None:
        model, workload = self._model, self._workload
        row["epoch"] = self._optimizer.epoch
        row |= means(model, self._train, BATCH, lambda batch: {"train_loss": float(self.objective(batch))})
        if self._test is not None:
            row |= means(model, self._test, BATCH, lambda batch: workload.measure(model, batch))
        if self._measured and (last or self._order.gradients):
            row["grad_norm2"] = gradient_norm2(model, self._train, GRADIENT_BATCH, self.objective)
        self._writer.evaluation(row)


def _record(order: Order, workload: Workload, model: nn.Module) -> RunRecord:
    numbers = sum(p.numel() for p in model.parameters())
    tests = 0 if workload.test is None else len(workload.test[0])
    config = replace(order.config, n=workload.n, tests=tests, parameters=numbers)
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    return RunRecord(order.path, config, environment(config.device), started, "running", notes=dict(order.notes))


def environment(device: str) -> Row:
    """The machine and the versions that times were measured with."""
    return {
        "vcsg": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "ranks": torchrun.count(),
    }


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def identity(record: RunRecord) -> Row:
    """What has to be the same for a run to be continued. Its budget may differ."""
    names = ("workload", "n", "method", "seed", "every", "protocol", "role", "device", "threads")
    options = {f"option {name}": value for name, value in record.config.options.items()}
    versions = {f"{name} version": str(record.environment[name]) for name in ("vcsg", "torch")}
    return {name: getattr(record.config, name) for name in names} | options | versions


def run_in(path: Path) -> RunRecord | None:
    """The record of the run in a folder; None where there is none."""
    return load(path)[0] if (path / "run.json").exists() else None


def is_complete(record: RunRecord) -> bool:
    """Whether the run need not be done again: it finished, or it diverged, as it would again."""
    return record.status == "finished" or (record.status == "failed" and bool(record.notes.get("diverged")))


def _save_weights(model: nn.Module, path: Path) -> None:
    try:
        with replacing(path) as new, room_beside(path) as room:  # safetensors has a partial file of its own
            safetensors.torch.save_model(model, str(room / path.name))
            os.replace(room / path.name, new)
    except safetensors.SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


def _diverged(error: Exception) -> bool:
    """Whether the method is to blame: it gave up after its roll-backs, or reached values that are not finite."""
    return isinstance(error, (FloatingPointError, Diverged))


def _message(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"diverged: {text}" if _diverged(error) and not text.startswith("diverged") else text


# --- around a run


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of threads that torch uses in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Warnings:
    """The warnings of a run, such as a step that diverged and was undone, kept for its record."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @property
    def notes(self) -> Row:
        return {"warnings": self._messages} if self._messages else {}

    def state_dict(self) -> dict[str, Any]:
        return {"messages": list(self._messages)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._messages[:] = state_dict["messages"]

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep the warnings of the block instead of showing them; those about checkpoints are shown as usual."""
        handler, before = logging.Handler(logging.WARNING), logger.propagate
        handler.emit = self._emit  # type: ignore[method-assign]
        logger.addHandler(handler)
        logger.propagate = False
        try:
            yield
        finally:
            logger.propagate = before
            logger.removeHandler(handler)

    def _emit(self, record: logging.LogRecord) -> None:
        if record.name == logger.name:
            self._messages.append(record.getMessage())
        else:
            logging.root.handle(record)
