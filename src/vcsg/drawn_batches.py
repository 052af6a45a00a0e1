"""The batches that an optimizer draws for a loop over `batches`: when they end, and what is refused beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from vcsg.method.definition import Method
from vcsg.method.whole_batches import DRAW
from vcsg.run.closures import ClosureExecutor
from vcsg.run.feeding import Feed, PhaseSampler
from vcsg.run.record import Record, Stationary, UnmeasuredRecord, Until


def check_draws(name: str, batch_size: int | None) -> None:
    """Refuse what `name` offers where a loop hands over batches of its own."""
    if batch_size is not None:
        raise ValueError(
            f"{name} is for samples that the optimizer draws, and it was made for a loop that hands over its own, "
            f"batch_size = {batch_size}: call step for every batch of the loop, or {DRAW}"
        )


def check_limits(limits: dict[str, float | None], until: Until | None, method: Method) -> None:
    """Refuse limits of a loop that are out of range, or with which it would never end."""
    for name, limit in limits.items():
        if limit is not None and not limit >= 0:
            raise ValueError(f"{name} = {limit!r}: give a number, at least 0")
    if until is None and all(limit is None for limit in limits.values()):
        raise ValueError("batches() would never end: give passes=, seconds=, ifo= or until=")
    if all(limit is None for limit in limits.values()):
        check_ends(until, method)


def check_ends(until: Until | None, method: Method) -> None:
    """Refuse `vcsg.stationary` as the only limit of a method whose epochs have no anchor to measure ‖∇f‖² at."""
    if isinstance(until, Stationary) and not draws_anchors(method):
        raise ValueError(
            f"until = {until!r}: {method.name} draws no anchor in every epoch, so the run would never end; "
            "choose a method that does, such as svrg or vcsg, or give passes= or seconds="
        )


def draws_anchors(method: Method) -> bool:
    """Whether an anchor is drawn in every epoch, at which its record is measured."""
    return method.drawn == "epoch" and method.anchored(1)


def as_asked(record: Record, method: Method) -> Record:
    """The record as a rule for `until` is to be asked about it, which may not compare what is never measured."""
    return record if record.anchor or draws_anchors(method) else UnmeasuredRecord(**vars(record))


def drawn_batches(
    executor: ClosureExecutor, sampler: PhaseSampler, read: Feed, budget: float, finished: Callable[[], bool]
) -> Iterator[Any]:
    """The batches of phase after phase, until it is finished, which is asked after each; every one is to be used."""
    course = executor.course
    try:
        course.limit(budget)
        while not finished():
            phase = course.state.phase
            for batch in read(phase, course.state.position):
                taken = course.state.steps
                sampler.hand_over(phase, course.state.position)
                yield batch
                del batch  # or it would be held while the next one is gathered
                if course.state.steps == taken:
                    raise RuntimeError("the last batch was not used: call optimizer.step(closure) once per batch")
                if finished():
                    return
                if course.state.phase is not phase or course.state.steps > taken + 1:
                    break
    finally:
        course.certifies = False
        executor.ranks.forget()
        with torch.no_grad():
            executor.settle()
