"""`fit`: a model, a loss and data to a result."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from vcsg.method import Method
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run.record import Record
from vcsg.training import numerics
from vcsg.training.clock import Clock
from vcsg.training.engine import Engine, check_engine
from vcsg.training.evaluation import means, mode
from vcsg.training.interrupt import Interrupt
from vcsg.training.limits import Limits
from vcsg.training.loop import Loop
from vcsg.training.numerics import autocast, check_precision, lay_out
from vcsg.training.progress import choose
from vcsg.training.result import COLUMNS, Result
from vcsg.training.saving import SECONDS, Generators, Part, check_seconds, saver
from vcsg.training.sources import DatasetSource, make_source
from vcsg.training.task import Task


def fit(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor] | None,
    data: Any,
    method: str | Method = "vcsg",
    *,
    passes: float | None = None,
    seconds: float | None = None,
    ifo: float | None = None,
    until: Callable[[Record], bool] | None = None,
    objective: Callable[[nn.Module, Any], Tensor] | None = None,
    test: Any = None,
    metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    every: float = 1.0,
    test_batch_size: int = 1000,
    workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    device: torch.device | str | None = None,
    engine: str = "auto",
    precision: str | None = None,
    channels_last: bool | None = None,
    state: dict[str, Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = SECONDS,
    resume: bool = False,
    progress: bool | None = None,
    seed: int = 0,
    callback: Callable[[Record], None] | None = None,
    **options: Any,
) -> Result:
    """Minimise the mean loss of a model over data, in place.

    Ctrl-C ends the run after the step in hand and returns what there is; a second one ends it at once.

    Args:
        model: trained in mode train(), evaluated in mode eval(), its own modes put back at the end.
        loss: (outputs, targets) → the mean loss of a batch, which is then a pair (inputs, targets).
        data: tensors with the samples along the first axis, as (X, Y), as one tensor or as a dict; or a dataset with
            `__getitem__` and `__len__`.
        method: a registered name (`vcsg.methods()` lists them), or a `vcsg.Method`.
        passes: stop when that many gradients have been evaluated, in units of the number of samples.
        seconds: stop after this time, evaluations not counted.
        ifo: stop when that many gradients of single samples have been evaluated.
        until: stop when this returns True for the record of an epoch; see `vcsg.stationary`.
        objective: (model, batch) → the mean loss of a batch of any shape; then `loss` is None.
        test: held-out samples, of the same kinds as `data`.
        metrics: by name, (outputs, targets) → a number, averaged over the test samples; with `objective`
            (model, batch) → a number. Classification has "error", the share of wrong predictions, by itself.
        every: passes between two evaluations. The last point is always evaluated.
        test_batch_size: the samples evaluated at once.
        workers: processes that read a dataset.
        collate_fn: makes a batch of a list of the dataset's samples; None is torch's own.
        device: where model and batches go; None is where the model is.
        engine: how steps are executed. "graphed": many at once as CUDA graphs, for tensors on a GPU; where a model
            cannot be captured, a warning says why, and it goes on as "eager": one by one. "auto" is "graphed" on a
            GPU, without a warning. See docs/performance.md.
        precision: "bfloat16" evaluates the model in autocast, its parameters stay float32; "tf32" and "float32" are for
            products and convolutions of float32 on a GPU; None leaves it to torch's settings.
        channels_last: whether weights of convolutions are laid out so, which makes them faster on a GPU or slower;
            None decides by their sizes.
        state: `result.state` of an earlier run of this model, to continue it. Limits then count from the start of
            that run; `seconds` counts from this call.
        checkpoint: a folder for checkpoints of the run, the last two of them and the end. While there is one, SIGTERM
            writes one more and ends the program.
        checkpoint_seconds: between two checkpoints; half of that where a phase ends.
        resume: go on from the last checkpoint in the folder, where there is one; then as if the run had never stopped,
            `history` and `records` included. It has to be of the same method, options, n and seed; limits may differ.
        progress: True shows a bar on a terminal (needs rich) and a line per evaluation elsewhere, on stderr; False
            shows nothing; None is True on a terminal alone.
        seed: of all sampling, and of the model's randomness in training.
        callback: called with the `Record` of every epoch.
        options: those of `FiniteSumOptimizer` and of the method: lr, L, weight_decay, b, eps, …

    Returns:
        A `Result`, its model at the point that the method returns.

    Example:
        result = vcsg.fit(model, cross_entropy, (X, Y), "svrg", b=64, lr=2.9, passes=30, test=(X_test, Y_test))
        print(result)
        result.plot("run.png")
    """
    limits = Limits(passes, seconds, ifo, until)
    check_precision(precision)
    place = _place(model, device)
    task = Task(model, loss, objective, dict(metrics or {}), lambda: autocast(precision, place))
    train = make_source("data", data, task, place, workers, collate_fn)
    held_out = None if test is None else make_source("test", test, task, place, workers, collate_fn)
    _check(task, held_out is not None, every, test_batch_size, options)
    check_engine(engine)
    check_seconds(checkpoint_seconds)
    if resume and checkpoint is None:
        raise ValueError("resume=True without a folder to go on from: give checkpoint=")
    if (workers or collate_fn is not None) and not any(isinstance(s, DatasetSource) for s in (train, held_out)):
        raise ValueError("the data are tensors, which nothing has to load: leave workers= and collate_fn= out")
    told = Told(callback)
    model.to(place)
    lay_out(model, channels_last, place)
    optimizer = FiniteSumOptimizer(
        model.parameters(), train.n, method, buffers=model.buffers(), seed=seed, callback=told, **options
    )
    if state is not None:
        optimizer.load_state_dict(state)

    def evaluate(row: dict[str, float], last: bool) -> None:
        row["test_loss"] = math.nan
        if held_out is not None:
            row |= means(model, held_out, test_batch_size, task.measure)

    clock, tested = Clock(place), held_out is not None
    with mode(model, True), numerics.precision(precision):
        executes = Engine(engine, optimizer, model, task.value, train)
    loop = Loop(optimizer, task.value, train, evaluate, limits, every=every, first=tested, clock=clock, engine=executes)
    parts: dict[str, Part] = {"model": model, "loop": loop, "records": told, "generators": Generators()}
    signals = (signal.SIGINT,) if checkpoint is None else (signal.SIGINT, signal.SIGTERM)
    shown = choose(progress)(optimizer.method.name, optimizer, limits.measured)
    with (
        saver(checkpoint, _config(optimizer, seed, precision, options), parts, checkpoint_seconds, resume) as saves,
        mode(model, True),
        numerics.precision(precision),
        Interrupt(*signals) as interrupt,
        shown as display,
        closing(executes),
    ):
        stopped = loop.run(interrupt, display, saves)
    if interrupt.terminated:
        raise SystemExit(interrupt.status)
    return Result(
        model=model,
        method=optimizer.method.name,
        options={**options, "seed": seed},
        n=train.n,
        history=loop.history,
        records=told.records,
        seconds=clock.seconds,
        ifo=optimizer.ifo,
        passes=optimizer.passes,
        stopped=stopped,
        engine=executes.notes,
        state=optimizer.state_dict(),
    )


class Told:
    """The records of a run, each handed on to the caller's function as it comes."""

    def __init__(self, callback: Callable[[Record], None] | None) -> None:
        self.records: list[Record] = []
        self._callback = callback

    def __call__(self, record: Record) -> None:
        self.records.append(record)
        if self._callback is not None:
            self._callback(record)

    def state_dict(self) -> dict[str, Any]:
        return {"records": [record.state_dict() for record in self.records]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.records[:] = map(Record.from_state_dict, state_dict["records"])


def _config(
    optimizer: FiniteSumOptimizer, seed: int, precision: str | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """What has to be the same for a checkpoint to be continued."""
    plain = (bool, int, float, str, type(None))
    given = {name: v if isinstance(v, plain) else repr(v) for name, v in options.items() if name != "group"}
    numbers = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    fixed = {"method": repr(optimizer.method), "n": optimizer.n, "number of parameters": numbers, "seed": seed}
    fixed |= {} if precision is None else {"precision": precision}
    return fixed | {f"option {name}": value for name, value in given.items()}


def _place(model: nn.Module, device: torch.device | str | None) -> torch.device:
    first = next(model.parameters(), None)
    if first is None:
        raise ValueError("the model has no parameters: there is nothing to fit")
    return first.device if device is None else torch.device(device)


def _check(task: Task, tested: bool, every: float, test_batch_size: int, options: Mapping[str, Any]) -> None:
    if not every > 0:
        raise ValueError(f"every = {every!r}: give the passes between evaluations, above 0; math.inf for the last only")
    if isinstance(test_batch_size, bool) or not isinstance(test_batch_size, int) or test_batch_size < 1:
        raise ValueError(f"test_batch_size = {test_batch_size!r}: give a whole number of samples, at least 1")
    if task.metrics and not tested:
        raise ValueError(f"metrics {', '.join(task.metrics)} are measured on test samples: give test= as well")
    if taken := set(COLUMNS) & set(task.metrics):
        raise ValueError(f"a metric is called {taken.pop()!r}, as a column of the history is: choose another name")
    if known := {"params", "n", "buffers"} & set(options):
        raise TypeError(f"{known.pop()}= is known from the model and the data: leave it out")
