"""What the framework that calls `step` tells of its loop: how many batches make a step, and how long its data set is.

It is found on the stack, at the first step, by the objects whose methods are being called; none is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sized
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from vcsg.ordinary_loops import check_samples
from vcsg.run.course import Course
from vcsg.run.feeding import PhaseSampler

FRAMEWORKS = {"accelerate", "lightning", "pytorch_lightning", "skorch", "transformers"}
DEEPEST = 20
"""How many callers are looked at; between a framework's optimizer and ours are a few of hooks and wrappers."""


def check_caller(course: Course, with_closure: bool) -> None:
    """Refuse a step that a framework asks for where it leaves others out, or whose data set has another length."""
    callers = list(_callers())
    for caller, known in callers:
        kinds = {kind.__name__ for kind in type(caller).__mro__}
        if "AcceleratedOptimizer" in kinds:
            trainers = [getattr(other, "args", None) for other, _ in callers]
            by_trainer = [getattr(args, "gradient_accumulation_steps", 1) for args in trainers]  # of transformers
            batches = max(caller.gradient_state.num_steps, *by_trainer, 1)
            _check_accelerate(caller, batches, course, with_closure)
            return
        if "LightningOptimizer" in kinds:
            _check_lightning(caller, course)
            return
        if "NeuralNet" in kinds and isinstance(known.get("iterator"), DataLoader):  # a net of skorch in its epoch
            _check_data(known["iterator"], course)
            return


def _callers() -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The objects of frameworks whose methods have called the optimizer, innermost first, and what those know by name.

    Variables of other callers are not read: a frame would keep what they are for as long as it runs.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEEPEST):
        if frame is None:
            return
        if str(frame.f_globals.get("__name__")).split(".")[0] in FRAMEWORKS:
            known = frame.f_locals
            yield known.get("self"), known
        frame = frame.f_back


def check_accumulation(batches: int) -> None:
    """Refuse that Accelerate makes one step of several batches, where a step evaluates a closure."""
    if batches != 1:
        raise ValueError(
            f"gradient_accumulation_steps = {batches}: Accelerate then leaves out the steps in between, closures and "
            "all. Leave it at 1, and take a larger batch_size"
        )


def _check_accelerate(caller: Any, batches: int, course: Course, with_closure: bool) -> None:
    """The optimizer that `accelerator.prepare` has wrapped around ours, which gets a step for so many batches."""
    loader = caller.gradient_state.active_dataloader
    ranks, batch_size = caller.accelerator_state.num_processes, course.options.batch_size
    if with_closure or batch_size is None:
        check_accumulation(batches)
    if not isinstance(loader, DataLoader):
        return
    _check_data(loader, course)
    size = getattr(loader, "total_batch_size", None)
    if batches != 1 and size and batch_size and size * batches != batch_size * ranks:
        wanted = size * batches // ranks
        raise ValueError(
            f"gradient_accumulation_steps = {batches}, so that a step has {wanted} samples, and the optimizer was made "
            f"with batch_size = {batch_size}: make it with batch_size={wanted}"
        )


def _check_lightning(caller: Any, course: Course) -> None:
    """Lightning's optimizer around ours; its Trainer has the loader, of which it may read a part alone."""
    trainer = getattr(getattr(getattr(caller, "_strategy", None), "lightning_module", None), "_trainer", None)
    loader = getattr(trainer, "train_dataloader", None)
    if not isinstance(loader, DataLoader) or not isinstance(loader.dataset, Sized):
        return
    if getattr(trainer, "num_training_batches", None) == len(loader):
        _check_data(loader, course)


def _check_data(loader: DataLoader[Any], course: Course) -> None:
    if not isinstance(loader.batch_sampler, PhaseSampler):
        check_samples(loader, course)
