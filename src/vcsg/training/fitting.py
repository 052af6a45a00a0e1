"""`fit`: trains a model on data and returns a result."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vcsg.method import Method
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.optimizer_options import GROUP_OPTIONS
from vcsg.run.record import Record, Stationary, Until
from vcsg.training.arguments import (
    check_evaluation,
    check_loading,
    check_mean,
    check_options,
    check_pairs,
    device_of,
    identity,
    make_lazy_parameters,
)
from vcsg.training.cautions import (
    tell_of_extreme_targets,
    tell_of_inputs,
    tell_of_other_parameters,
    tell_of_other_units,
    tell_of_uneven_targets,
    tell_of_vanishing_targets,
)
from vcsg.training.choosing import ChosenOptions, choose_options, decay_of
from vcsg.training.evaluation import means, mode, unless_refused
from vcsg.training.interrupt import Interrupt
from vcsg.training.limits import Limits
from vcsg.training.numerics import autocast, lay_out
from vcsg.training.progress import choose
from vcsg.training.result import Result
from vcsg.training.saving import CHECKPOINT_SECONDS
from vcsg.training.session import Session, SessionOptions
from vcsg.training.sources import SampleSource, TensorSource, make_source
from vcsg.training.target_units import TargetUnits, target_units
from vcsg.training.task import Task


def fit(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor] | None,
    data: Any,
    method: str | Method = "auto",
    *,
    passes: float | None = None,
    seconds: float | None = None,
    ifo: float | None = None,
    until: Until | None = None,
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
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    resume: bool = False,
    progress: bool | None = None,
    seed: int = 0,
    callback: Callable[[Record], None] | None = None,
    **options: Any,
) -> Result:
    """Minimise the mean loss of a model over data, in place.

    Ctrl-C ends the run after the current step and returns the result so far; a second one ends it at once. Where the
    process ignores SIGINT, it stays ignored.

    Args:
        model: the model, trained in mode train() and evaluated in mode eval(); its own modes are put back at the end.
        loss: (outputs, targets) → the mean loss of a batch; batches are then pairs (inputs, targets).
        data: tensors with the samples along the first axis, as (X, Y), as one tensor or as a dict; or a dataset with
            `__getitem__` and `__len__`.
        method: a registered name (`vcsg.methods()` lists them), or a `vcsg.Method`.
        passes: stop when this many gradients have been evaluated, in units of the number of samples.
        seconds: stop after this time in training; evaluations and checkpoints are not counted.
        ifo: stop when this many gradients of single samples have been evaluated.
        until: stop when this returns True for the record of an epoch; see `vcsg.stationary`.
        objective: (model, batch) → the mean loss of a batch of any form; then `loss` is None.
        test: held-out samples, of the same kinds as `data`.
        metrics: functions (outputs, targets) → a number by name, averaged over the test samples; with `objective`
            (model, batch) → a number. Classification has "error", the share of wrong predictions, without asking.
        every: the number of passes between two evaluations. The last point is always evaluated.
        test_batch_size: the number of test samples evaluated at once.
        workers: the number of processes that read a dataset. It changes nothing in the run but its speed, unless the
            dataset draws random numbers in `__getitem__`: each number of workers then gives other samples.
        collate_fn: makes a batch from a list of the dataset's samples; None is torch's own.
        device: the device that model and batches are moved to; None is the one that the model is on.
        engine: how steps are executed. "graphed" takes many at once as CUDA graphs, for tensors on a GPU; where a model
            cannot be captured, a warning says why, and steps are taken one by one as with "eager". "auto" is
            "graphed" on a GPU, without the warning. See docs/performance.md.
        precision: "bfloat16" evaluates the model in autocast, while its parameters stay float32; "tf32" and "float32"
            set how float32 matrix products and convolutions are computed on a GPU; None keeps torch's settings.
        channels_last: whether weights of convolutions are laid out channels last, which makes them faster or slower on
            a GPU; None decides by their sizes.
        state: `result.state` of an earlier run of this model, to continue it. Limits then count from the start of that
            run; `seconds` counts from this call. Where the output is an average, as that of "auto" is, the run goes on
            from there, not from the last point: `checkpoint` and `resume` continue as if it had never stopped.
        checkpoint: a folder for checkpoints of the run. The last two are kept, and one of the end. With such a folder,
            SIGTERM writes a last checkpoint and ends the program.
        checkpoint_seconds: the time between two checkpoints; half of that at the end of a phase.
        resume: continue from the last checkpoint in the folder, if it holds one, as if the run had never stopped,
            `history` and `records` included. Method, options, n and seed have to be the same; limits may differ.
        progress: True shows a bar on a terminal (needs rich) and a line per evaluation elsewhere, on stderr; False
            shows nothing; None is True on a terminal alone.
        seed: the seed of all sampling, and of the model's randomness in training.
        callback: a function that is called with the `Record` of every epoch.
        options: options of `FiniteSumOptimizer` and of the method: lr, L, weight_decay, b, eps, …

    Returns:
        A `Result`, with the model at the point that the method returns.

    Example:
        result = vcsg.fit(model, cross_entropy, (X, Y), "svrg", b=64, lr=2.9, passes=30, test=(X_test, Y_test))
        print(result)
        result.plot("run.png")
    """
    check_options(options)
    limits = Limits(passes, seconds, ifo, until)
    how = SessionOptions(
        every=every,
        first=test is not None,
        engine=engine,
        precision=precision,
        checkpoint_seconds=checkpoint_seconds,
    )
    place = device_of(model, device)
    task = Task(model, loss, objective, metrics or {}, lambda: autocast(precision, place))
    train = make_source("data", data, task, place, workers, collate_fn)
    held_out = None if test is None else make_source("test", test, task, place, workers, collate_fn)
    check_evaluation(task, held_out, test_batch_size)
    check_loading([train, held_out], workers, collate_fn)
    if resume and checkpoint is None:
        raise ValueError("resume=True without a folder to continue from: give checkpoint=")

    def evaluate(row: dict[str, float], last: bool) -> None:
        row["test_loss"] = math.nan
        if held_out is not None:
            row |= means(model, held_out, test_batch_size, task.measure)

    records = RecordList(callback)
    chosen, units = ChosenOptions({}, ""), None
    with ExitStack() as running:
        with unless_refused(model):
            model.to(place)
            lay_out(model, channels_last, place)
            with mode(model, True):
                make_lazy_parameters(task, train)
                check_pairs(task, train)
                if isinstance(held_out, TensorSource):  # of a dataset a worker might have to be started for it
                    check_pairs(task, held_out, "test ")
                check_mean(task, train)
                tell_of_other_parameters(task, train)
                if method == "auto":
                    chosen = choose_options(model, task.value, train, options)
            if method == "auto":
                own_steps = chosen.own_step and "lr" not in options
                units = _units_of(task, train, own_steps, state)
                if own_steps and state is None:
                    tell_of_inputs(task, train)
                    tell_of_extreme_targets(task, train)
                    tell_of_uneven_targets(task, train)
            if units is not None:
                chosen = chosen.because(units.reason)
                if options.get("step") is None:
                    chosen = replace(chosen, options=chosen.options | units.step(chosen.step))
            optimizer = FiniteSumOptimizer(
                _parameters(model, units, options), train.n, method, buffers=model, seed=seed, callback=records,
                **(options | chosen.options),
            )  # fmt: skip
            if not limits.measured:
                optimizer.check_ends(until)
            optimizer.heed_certificates(until)
            if state is not None:
                _go_on(optimizer, state)
            session = Session(model, optimizer, task.value, train, evaluate, limits, how, {"records": records})
            saved = session.saved_in(checkpoint, identity(optimizer, seed, precision, options), resume)
            resumed = running.enter_context(saved)
        signals = (signal.SIGINT,) if checkpoint is None else (signal.SIGINT, signal.SIGTERM)
        interrupt = running.enter_context(Interrupt(*signals))
        if units is not None and state is None and not resumed:
            units.begin()  # once nothing can be refused any more
        stopped = session.run(optimizer.method.name, choose(progress), interrupt)
    if interrupt.terminated:
        raise SystemExit(interrupt.status)
    return Result(
        model=model,
        method=optimizer.method.name,
        options={**options, **chosen.options, "seed": seed},
        n=train.n,
        history=session.history,
        records=records.all,
        seconds=session.clock.seconds,
        ifo=optimizer.ifo,
        passes=optimizer.passes,
        stopped=stopped,
        certificate=until.certificate(records.all[-1])
        if stopped == "until" and isinstance(until, Stationary)
        else None,
        chosen=chosen.reason,
        engine=session.engine_notes,
        state=optimizer.state_dict(),
    )


def _units_of(task: Task, train: SampleSource, own_steps: bool, state: Mapping[str, Any] | None) -> TargetUnits | None:
    """How the last layer comes to the units of the targets, where the steps are those that `auto` chooses."""
    apart = state is None or len(state.get("param_groups", ())) != 1
    found = target_units(task, train) if apart and own_steps else None
    if found is None:
        tell_of_other_units(task, train)
    else:
        tell_of_vanishing_targets(found.spread)
    return found


def _parameters(model: nn.Module, units: TargetUnits | None, options: Mapping[str, Any]) -> Any:
    """The parameters, in groups where the last layer has steps of its own."""
    return units.groups(model, decay_of(options)) if units is not None and units.reason else model.parameters()


def _go_on(optimizer: FiniteSumOptimizer, state: dict[str, Any]) -> None:
    """Load the state of an earlier run; refused where its groups of parameters have other options than this run's.

    torch would take those of the state, and say nothing.
    """
    own = optimizer.param_groups
    for name in GROUP_OPTIONS:
        default = optimizer.defaults[name]  # the state may be older than the option
        theirs, ours = ([g.get(name, default) for g in groups] for groups in (state.get("param_groups", own), own))
        if theirs != ours:
            raise ValueError(
                f"state= is of a run with {name} = {_told(theirs)}, and here it is {_told(ours)}: a run goes on with "
                "the same options and targets; or leave state= out to begin a new one with this model"
            )
    optimizer.load_state_dict(state)


def _told(values: list[Any]) -> str:
    """The option of each group of parameters, or that of the only one."""
    return ", ".join(f"{value:.4g}" if isinstance(value, float) else repr(value) for value in values)


class RecordList:
    """The records of a run, in order. Called with a new one, it passes that on to the caller's function too."""

    def __init__(self, callback: Callable[[Record], None] | None) -> None:
        self.all: list[Record] = []
        self._callback = callback

    def __call__(self, record: Record) -> None:
        self.all.append(record)
        if self._callback is not None:
            self._callback(record)

    def state_dict(self) -> dict[str, Any]:
        return {"records": [record.state_dict() for record in self.all]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.all[:] = map(Record.from_state_dict, state_dict["records"])
