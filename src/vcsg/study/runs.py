"""One run of a study: a method on a workload into a folder of records, whatever becomes of it."""

from __future__ import annotations

import logging
import os
import platform
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

import vcsg
from vcsg import workloads
from vcsg.files import replacing
from vcsg.run import Record
from vcsg.sampling import seeded
from vcsg.study import methods
from vcsg.study.baselines import BASELINES
from vcsg.study.budgets import Budget
from vcsg.study.records import Row, RunConfig, RunRecord, RunWriter
from vcsg.training.clock import Clock
from vcsg.training.evaluation import gradient_norm2, means, mode
from vcsg.training.interrupt import Wish
from vcsg.training.loop import Loop
from vcsg.training.progress import Silent
from vcsg.training.sources import TensorSource
from vcsg.training.stepper import Stepper
from vcsg.workloads import Workload

EARLY = 3
"""Evaluations before the first of those at equal distances: curves are steep at their beginning."""
BATCH, GRADIENT_BATCH = 1000, 250
"""Samples that are evaluated at once, without a graph and with one."""
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
    """Do the run and leave its records. It fails alone: an error is noted there, and raised no further."""
    config = order.config
    workload = load_workload(config.workload, order.data_dir, config.device)
    with threads(config.threads):
        warm_up(config.workload, order.data_dir, config.device, config.method if config.method in BASELINES else "svrg")
        model = initial_model(workload, config.seed)
        record = _record(order, workload, model)
        writer = RunWriter(order.path, record)
        try:
            with warnings_kept() as warned:
                stopped = _train(order, workload, model, writer, wish, show)
            writer.note(stopped=stopped, **({"warnings": warned} if warned else {}))
            if config.role == "run":
                with replacing(order.path / "weights.safetensors") as path:
                    safetensors.torch.save_model(model, str(path))
            writer.close("interrupted" if stopped == "interrupted" else "finished")
        except Exception as error:
            writer.note(**({"diverged": True} if _diverged(error) else {"traceback": traceback.format_exc()}))
            writer.close("failed", _message(error))
        except BaseException:
            writer.close("interrupted")
            raise
    return record


def _train(order: Order, workload: Workload, model: nn.Module, writer: RunWriter, wish: Wish, show: Show) -> str:
    config, clock = order.config, Clock(torch.device(order.config.device))

    def tell(record: Record) -> None:
        with clock.paused():
            writer.epoch(record)

    optimizer = methods.make(config.method, model, workload.n, config.options, config.seed, tell)
    train = TensorSource("train", workload.train, torch.device(config.device))
    evaluation = Evaluation(order, workload, model, optimizer, train, writer)
    limits = Budget(**config.budget).limits()
    early = EARLY if config.role == "run" else 0
    loop = Loop(
        optimizer, evaluation.objective, train, evaluation, limits, every=config.every, early=early, clock=clock
    )
    with mode(model, True), show(order.title, optimizer, limits.measured) as display:
        return loop.run(wish, display)


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
        "vcsg": vcsg.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
    }


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def _diverged(error: Exception) -> bool:
    """Whether the method is to blame: it gave up after its roll-backs, or came to what is not finite."""
    return isinstance(error, FloatingPointError) or str(error).startswith("gave up after")


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


@contextmanager
def warnings_kept() -> Iterator[list[str]]:
    """What the library warns of, such as a step that diverged and was taken back, kept for the record."""
    kept: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record.getMessage())

    handler, before = Keep(logging.WARNING), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield kept
    finally:
        logger.propagate = before
        logger.removeHandler(handler)


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
