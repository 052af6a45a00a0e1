"""`fit`, and the loop that it runs: steps, evaluations outside the clock, limits, Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vcsg.family import Method
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run import Record
from vcsg.sampling import seeded
from vcsg.training.progress import Silent, choose
from vcsg.training.result import COLUMNS, Result
from vcsg.training.sources import DatasetSource, Source, make_source
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
    state: dict[str, Any] | None = None,
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
        state: `result.state` of an earlier run of this model, to continue it. Limits then count from the start of
            that run; `seconds` counts from this call.
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
    task = Task(model, loss, objective, dict(metrics or {}))
    place = _place(model, device)
    train = make_source("data", data, task, place, workers, collate_fn)
    held_out = None if test is None else make_source("test", test, task, place, workers, collate_fn)
    _check(task, held_out is not None, every, test_batch_size, options)
    if (workers or collate_fn is not None) and not any(isinstance(s, DatasetSource) for s in (train, held_out)):
        raise ValueError("the data are tensors, which nothing has to load: leave workers= and collate_fn= out")
    records: list[Record] = []

    def tell(record: Record) -> None:
        records.append(record)
        if callback is not None:
            callback(record)

    model.to(place)
    optimizer = FiniteSumOptimizer(
        model.parameters(), train.n, method, buffers=model.buffers(), seed=seed, callback=tell, **options
    )
    if state is not None:
        optimizer.load_state_dict(state)
    loop = Loop(optimizer, task, train, held_out, limits, every, test_batch_size)
    shown = choose(progress)(optimizer, limits.measured)
    with _mode(model, True), Interrupt() as interrupt, shown as display:
        stopped = loop.run(interrupt, display)
    return Result(
        model=model,
        method=optimizer.method.name,
        options={**options, "seed": seed},
        n=train.n,
        history=loop.history,
        records=records,
        seconds=loop.seconds,
        ifo=optimizer.ifo,
        passes=optimizer.passes,
        stopped=stopped,
        state=optimizer.state_dict(),
    )


@dataclass(frozen=True)
class Limits:
    passes: float | None
    seconds: float | None
    ifo: float | None
    until: Callable[[Record], bool] | None

    def __post_init__(self) -> None:
        numbers = {"passes": self.passes, "seconds": self.seconds, "ifo": self.ifo}
        for name, limit in numbers.items():
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} = {limit!r}: give a number above 0")
        if self.until is None and all(limit is None for limit in numbers.values()):
            raise ValueError("fit() would never end: give passes= (over the data), seconds=, ifo= or until=")
        if self.until is not None and not callable(self.until):
            raise TypeError(f"until = {self.until!r}: give a function of a record, such as vcsg.stationary(1e-4)")

    @property
    def measured(self) -> bool:
        """Whether it can be known how much of a run is done."""
        return any(limit is not None for limit in (self.passes, self.seconds, self.ifo))


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


# --- the run ----------------------------------------------------------------------------------


class Loop:
    """From batch to batch, with an evaluation now and then outside the clock."""

    def __init__(
        self,
        optimizer: FiniteSumOptimizer,
        task: Task,
        train: Source,
        test: Source | None,
        limits: Limits,
        every: float,
        test_batch_size: int,
    ) -> None:
        self.optimizer, self._limits = optimizer, limits
        self.history: list[dict[str, float]] = []
        self._task, self._train, self._test = task, train, test
        self._every, self._test_batch_size = every, test_batch_size
        self._due = optimizer.passes if test is not None else self._next()
        self._losses, self._samples = 0.0, 0
        self._reached = False
        self._start, self._idle = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """In training so far."""
        return time.monotonic() - self._start - self._idle

    @property
    def share(self) -> float:
        """How much of the run is done, as far as its limits tell."""
        limits = self._limits
        parts = (
            (self.optimizer.ifo, limits.ifo),
            (self.optimizer.passes, limits.passes),
            (self.seconds, limits.seconds),
        )
        return max((done / limit for done, limit in parts if limit is not None), default=0.0)

    def run(self, interrupt: Interrupt, display: Silent) -> str:
        """Train until a limit is reached, evaluate what came of it, and return which limit it was."""
        with interrupt.absorbed():
            self._descend(interrupt, display)
        self.optimizer.load_output()
        self.optimizer.zero_grad()
        with interrupt.absorbed():
            display.evaluated(self._evaluate())
        return "interrupted" if interrupt.asked else self._reason()

    def _descend(self, interrupt: Interrupt, display: Silent) -> None:
        limits, draws = self._limits, self._train.draws(self.optimizer)
        until = None if limits.until is None else self._until
        budget = math.inf if limits.passes is None else limits.passes
        for drawn in self.optimizer.batches(draws, passes=budget, ifo=limits.ifo, until=until):
            # Before the step and not after it: the last point is evaluated anyway.
            if self.optimizer.passes >= self._due:
                display.evaluated(self._evaluate())
            loss = self._step(self._train.batch(drawn))
            display.stepped(loss, self.share)
            if interrupt.asked or (limits.seconds is not None and self.seconds >= limits.seconds):
                self.optimizer.stop()

    def _reason(self) -> str:
        limits, optimizer = self._limits, self.optimizer
        if self._reached:
            return "until"
        if limits.passes is not None and optimizer.ifo >= limits.passes * optimizer.n:
            return "passes"
        return "ifo" if limits.ifo is not None and optimizer.ifo >= limits.ifo else "seconds"

    def _until(self, record: Record) -> bool:
        assert self._limits.until is not None
        self._reached = bool(self._limits.until(record))
        return self._reached

    def _step(self, batch: Any) -> float:
        def closure() -> Tensor:
            value = self._task.evaluate(batch)[0]
            value.backward()  # type: ignore[no-untyped-call]
            return value.detach()

        phase, left = self.optimizer.phase, len(self.optimizer.sampler)
        loss = float(self.optimizer.step(closure))
        if phase.kind != "smoothness":  # whose losses are of points beside x
            size = phase.size(phase.count - left)
            self._losses, self._samples = self._losses + size * loss, self._samples + size
        return loss

    def _evaluate(self) -> dict[str, float]:
        row: dict[str, float] = {
            "passes": self.optimizer.passes,
            "ifo": self.optimizer.ifo,
            "seconds": self.seconds,
            "train_loss": self._losses / self._samples if self._samples else math.nan,
            "test_loss": math.nan,
        }
        before = time.monotonic()
        try:
            row |= self._tested()
        finally:
            self._idle += time.monotonic() - before
        self._losses, self._samples = 0.0, 0
        self._due = self._next()
        self.history.append(row)
        return row

    def _next(self) -> float:
        return self._every * (self.optimizer.passes // self._every + 1)

    def _tested(self) -> dict[str, float]:
        """The means over all test samples."""
        if self._test is None:
            return {}
        model, sums = self._task.model, dict[str, float]()
        with torch.no_grad(), _mode(model, False), seeded(0, model.parameters()):
            for size, batch in self._test.parts(self._test_batch_size):
                for name, value in self._task.measure(batch).items():
                    sums[name] = sums.get(name, 0.0) + value * size / self._test.n
        return sums


@contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in mode train() or eval(), then every module back in its own."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class Interrupt:
    """Ctrl-C asks a run to stop after the step in hand, so that its state is whole; a second one raises."""

    def __init__(self) -> None:
        self.asked = False
        main = threading.current_thread() is threading.main_thread()
        self._ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def __enter__(self) -> Interrupt:
        if self._ours:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def absorbed(self) -> Iterator[None]:
        """Where a KeyboardInterrupt that was raised all the same is taken for the wish to stop."""
        try:
            yield
        except KeyboardInterrupt:
            self.asked = True

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
