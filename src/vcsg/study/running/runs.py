"""One run of a study: a method on a workload into a folder of records, whatever becomes of it."""

from __future__ import annotations

import logging
import os
import platform
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from vcsg import workloads
from vcsg.files import locked, replacing, sweep
from vcsg.run.sampling import seeded
from vcsg.run.state import Diverged, Record
from vcsg.study import methods
from vcsg.study.baselines import BASELINES
from vcsg.study.budgets import Budget
from vcsg.study.records import WEIGHTS, Row, RunConfig, RunRecord, load
from vcsg.study.running import torchrun
from vcsg.study.running.writing import RunWriter, check_free
from vcsg.training.checkpoints import Checkpoints, check_same
from vcsg.training.checkpoints import logger as checkpoint_logger
from vcsg.training.clock import Clock
from vcsg.training.engine import Engine
from vcsg.training.evaluation import gradient_norm2, means, mode
from vcsg.training.interrupt import Wish
from vcsg.training.loop import Loop
from vcsg.training.numerics import lay_out
from vcsg.training.progress import Silent
from vcsg.training.saving import SECONDS, Generators, Part, Saver
from vcsg.training.sources import TensorSource
from vcsg.training.stepper import Stepper
from vcsg.version import __version__
from vcsg.workloads import Workload

EARLY = 3
"""Evaluations before the first of those at equal distances: curves are steep at their beginning."""
BATCH, GRADIENT_BATCH = 1000, 250
"""Samples that are evaluated at once, without a graph and with one."""
DONE, BEGUN, RESUMED = 0, 1, 2
"""What the first rank tells the others of a run."""
WARM_UP = 128
"""Samples of the short run before the first one of a process, while torch loads what it needs."""

logger = logging.getLogger("vcsg")

Show = Callable[[str, Stepper, bool], Silent]
"""(name, optimizer, whether its length is known) → what shows the run."""


@dataclass(frozen=True)
class Order:
    """A run to do."""

    config: RunConfig
    path: Path
    data_dir: str | None = None
    notes: Row = field(default_factory=dict)
    gradients: bool = False
    """Whether ‖∇f‖² is measured at every evaluation, and not only the last."""
    resume: bool = False
    """Whether to go on with a run that is in the folder."""
    checkpoint_seconds: float = SECONDS

    @property
    def title(self) -> str:
        config, notes = self.config, self.notes
        if config.role == "search":
            return f"search for {config.label}, {notes['trial']} of {notes['trials']}, step × {notes['factor']:.3g}"
        return ", ".join(filter(None, (config.protocol, config.label, f"seed {config.seed}")))


@lru_cache(maxsize=1)
def load_workload(name: str, data_dir: str | None, device: str) -> Workload:
    """Kept, for the runs of a study are all on the same."""
    return workloads.load(name, data_dir=data_dir, device=device)


def initial_model(workload: Workload, seed: int) -> nn.Module:
    """The same for every method that is run with this seed."""
    with seeded(seed):
        return workload.make_model()


def execute(order: Order, wish: Wish, show: Show) -> RunRecord:
    """Do the run, or what is left of it, and leave its records.

    It fails alone: an error is noted there, and raised no further. But a folder that is in use or holds another run is
    refused, and left as it is.
    """
    config = order.config
    if config.method in BASELINES and torchrun.count() > 1:
        raise ValueError(f"{config.method} is torch's own and runs in one process: choose a method of the family")
    workload = load_workload(config.workload, order.data_dir, config.device)
    with threads(config.threads), locked(order.path) if torchrun.rank() == 0 else nullcontext():
        if not order.resume and torchrun.rank() == 0:
            check_free(order.path)
        warm_up(config.workload, order.data_dir, config.device, config.method if config.method in BASELINES else "svrg")
        execution = Execution(order, workload)
        if torchrun.rank() == 0:
            return execution.take_up() or execution.perform(wish, show)
        return execution.assist(wish)


class Execution:
    """A run with all that belongs to it."""

    def __init__(self, order: Order, workload: Workload) -> None:
        config, device = order.config, torch.device(order.config.device)
        self._order, self._model, self._clock = order, initial_model(workload, config.seed), Clock(device)
        lay_out(self._model, None, device)
        self._record = _record(order, workload, self._model)
        self._writer = RunWriter(order.path, self._record)
        self._optimizer = methods.make(config.method, self._model, workload.n, config.options, config.seed, self._tell)
        self._limits, self._warnings = Budget(**config.budget).limits(), Warnings()
        train = TensorSource("train", workload.train, device)
        evaluation = Evaluation(order, workload, self._model, self._optimizer, train, self._writer)
        with mode(self._model, True):
            self._engine = Engine("auto", self._optimizer, self._model, evaluation.objective, train)
        self._loop = Loop(
            self._optimizer,
            evaluation.objective,
            train,
            evaluation if torchrun.rank() == 0 else _leave_out,
            self._limits,
            every=config.every,
            early=EARLY if config.role == "run" else 0,
            clock=self._clock,
            engine=self._engine,
        )
        self._checkpoints = Checkpoints(order.path, identity(self._record))
        parts: dict[str, Part] = {"model": self._model, "loop": self._loop, "generators": Generators()}
        if torchrun.rank() == 0:
            parts = {"records": self._writer, "warnings": self._warnings, **parts}
        self._saver = Saver(self._checkpoints, parts, order.checkpoint_seconds)

    def take_up(self) -> RunRecord | None:
        """Go on where the run was broken off that is in the folder; begin where there is none, or no checkpoint.

        A run that is done is returned.
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
        resumed = self._saver.load()
        if resumed and earlier is not None:
            self._record.started, self._record.environment = earlier.started, earlier.environment
        elif not resumed and earlier is not None:
            message = "%s holds a run that was broken off before a checkpoint that is sound: it begins anew"
            checkpoint_logger.warning(message, self._order.path)
        self._writer.begin(resumed)
        torchrun.from_rank_0(RESUMED if resumed else BEGUN)
        return None

    def assist(self, wish: Wish) -> RunRecord:
        """On another rank than the first: take part in the run that it begins or takes up."""
        word = torchrun.from_rank_0()
        if word == RESUMED and not self._saver.load():
            raise FileNotFoundError(
                f"rank {torchrun.rank()} finds no checkpoint in {self._order.path}, where rank 0 does: give a folder "
                "that all ranks share"
            )
        if word != DONE:
            with mode(self._model, True):
                self._loop.run(wish, Silent(self._order.title, self._optimizer, self._limits.measured))
        self._record.status = "interrupted" if wish.asked else "finished"
        return self._record

    def perform(self, wish: Wish, show: Show) -> RunRecord:
        try:
            with self._warnings.kept():
                stopped = self._train(wish, show)
            if self._order.config.role == "run":
                _save_weights(self._model, self._order.path / WEIGHTS)
            ended = "interrupted" if stopped == "interrupted" else "finished"
            self._writer.close(ended, stopped=stopped, **self._warnings.notes, **self._executed)
        except Exception as error:
            notes = {"diverged": True} if _diverged(error) else {"traceback": traceback.format_exc()}
            try:
                self._writer.close("failed", _message(error), **notes)
            except OSError:
                raise error from None  # there is no room to note it, so it is for the caller to tell
        except BaseException:
            self._writer.close("interrupted")
            raise
        if is_complete(self._record):
            self._checkpoints.clear()
        return self._record

    def _train(self, wish: Wish, show: Show) -> str:
        shown = show(self._order.title, self._optimizer, self._limits.measured)
        with mode(self._model, True), shown as display, closing(self._engine):
            return self._loop.run(wish, display, self._saver)

    @property
    def _executed(self) -> Row:
        """How the steps were, on a device where there is a choice."""
        return self._engine.notes if self._order.config.device.startswith("cuda") else {}

    def _tell(self, record: Record) -> None:
        if torchrun.rank():
            return
        with self._clock.paused():
            self._writer.epoch(record)


def _leave_out(row: dict[str, float], last: bool) -> None:
    """What is evaluated on another rank than the first."""


class Evaluation:
    """What is measured of a run beside it. A search sees the training loss alone, and never test samples."""

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
    """What a time was measured on and with."""
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
    """What has to be the same for a run to be continued. Its budget may be another."""
    names = ("workload", "n", "method", "seed", "every", "protocol", "role", "device", "threads")
    options = {f"option {name}": value for name, value in record.config.options.items()}
    versions = {f"{name} version": str(record.environment[name]) for name in ("vcsg", "torch")}
    return {name: getattr(record.config, name) for name in names} | options | versions


def run_in(path: Path) -> RunRecord | None:
    """The run in a folder."""
    return load(path)[0] if (path / "run.json").exists() else None


def is_complete(record: RunRecord) -> bool:
    """Whether the run is not to be done again: it came to its end, or diverged, as it would again."""
    return record.status == "finished" or (record.status == "failed" and bool(record.notes.get("diverged")))


def _save_weights(model: nn.Module, path: Path) -> None:
    try:
        with replacing(path) as new:
            safetensors.torch.save_model(model, str(new))
    except safetensors.SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


def _diverged(error: Exception) -> bool:
    """Whether the method is to blame: it gave up after its roll-backs, or came to what is not finite."""
    return isinstance(error, (FloatingPointError, Diverged))


def _message(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"diverged: {text}" if _diverged(error) and not text.startswith("diverged") else text


# --- around a run


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch with that many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Warnings:
    """What the library warns of in a run, such as a step that diverged and was taken back, kept for the record."""

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
    def kept(self) -> Iterator[None]:
        """Instead of shown. Those of checkpoints are no part of a run, and shown as ever."""
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


@cache
def warm_up(name: str, data_dir: str | None, device: str, method: str) -> None:
    """Torch loads parts of itself at the first steps of a process: that is no method's time."""
    workload = load_workload(name, data_dir, device)
    n = min(WARM_UP, workload.n)
    model = initial_model(workload, 0)
    optimizer = methods.make(method, model, n, {"lr": 1e-6, "b": min(16, n)}, 0)
    head = [tensor[:n] for tensor in workload.train]
    for batch in optimizer.batches(head, passes=3, ifo=None, until=None):

        def closure(batch: Any = batch) -> Tensor:
            loss = workload.objective(model, tuple(batch))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        optimizer.step(closure)
