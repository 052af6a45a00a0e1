"""Ordinary loops, which hand over batches of their own: what a loader tells, and which steps they may ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from torch import Tensor
from torch.utils.data import SubsetRandomSampler

from vcsg.run.closures import ClosureExecutor
from vcsg.run.course import Course
from vcsg.run.feeding import check_length

CLOSURE_HELP = """step() needs a closure, because {method} evaluates gradients at two points, or at one anchor:
    def closure():
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        return loss
    optimizer.step(closure)"""


def sizes_of(loader: Any, n: int | None, batch_size: int | None) -> tuple[int, int]:
    """n and the batch size of a run over this loader, each as it was given, or else that of the loader."""
    samples = _samples_of(loader)
    n = len(samples) if n is None and isinstance(samples, Sized) else n
    batch_size = batch_size or getattr(loader, "batch_size", None)
    if n is None or batch_size is None:
        raise ValueError(
            f"{'n' if n is None else 'batch_size'} is not to be had from this {type(loader).__name__}: make "
            "the optimizer with n=len(dataset), batch_size=..."
        )
    return n, batch_size


def _samples_of(loader: Any) -> Any:
    """What has as many samples as a pass of the loader: its dataset, or the part that it is confined to."""
    sampler = getattr(loader, "sampler", None)
    return sampler if isinstance(sampler, SubsetRandomSampler) else getattr(loader, "dataset", None)


def check_loader(loader: Any, n: int, batch_size: int | None) -> None:
    """Refuse a loader of other samples or batches than those that the optimizer was made for."""
    if batch_size is None:
        raise ValueError(
            f"the optimizer was made with n = {n} and no batch_size, to draw the samples itself: give "
            "batch_size= for an ordinary loader, or make the loader with batch_sampler=optimizer.sampler"
        )
    check_length(_samples_of(loader), n)
    size = getattr(loader, "batch_size", None)
    if size is not None and size != batch_size:
        raise ValueError(
            f"the loader has batches of {size} samples, the optimizer was made with batch_size = "
            f"{batch_size}: make it with batch_size={size}"
        )


def counted(batches: Iterator[tuple[Any, int | None]], loader: Any, n: int) -> Iterator[tuple[Any, int | None]]:
    """The batches of a pass with their sizes, as long as they are no more than n samples.

    A data set of known length was looked at before; a sampler may well draw some of its samples again.
    """
    total, known = 0, isinstance(getattr(loader, "dataset", None), Sized)
    for batch, size in batches:
        total += size or 0
        if total > n and not known:
            raise ValueError(
                f"{total} samples and perhaps more in one pass of the loader, the optimizer was made for n = {n}: "
                "make it with the number of samples as n"
            )
        yield batch, size


def check_closureless(course: Course) -> None:
    """Refuse a step without a closure where the gradient at x is not all that is needed."""
    if not course.needs_one_point:
        raise TypeError(CLOSURE_HELP.format(method=course.method.name))
    if course.state.L is None:
        raise TypeError(
            f"{course.method.name} without lr= and L= estimates L, for which it calls a closure: give lr=, the step "
            "size, or call step(closure)"
        )


def check_source(samples: int | None, drawn: bool) -> None:
    """Refuse a batch that was neither drawn by the optimizer nor comes from a loop that was announced."""
    if samples is not None:
        raise ValueError(f"samples = {samples!r} is for the batches of a loop: give the optimizer its batch_size=")
    if not drawn:
        raise RuntimeError(
            "this batch was not drawn by the optimizer, which was made without batch_size=: make it with "
            "batch_size= where an ordinary loop hands over the batches, or read them from "
            "optimizer.batches(data, passes=...) and call step once for each"
        )


def step_with_gradients(
    executor: ClosureExecutor, samples: int | None, scale: Tensor | None, found_inf: Tensor | None
) -> bool:
    """A step without a closure, from what backward() has left in the parameters; returns whether it was taken.

    A GradScaler tells the scale of the gradients, and with `found_inf` that it was too large.
    """
    if found_inf is not None and found_inf.item():
        executor.pass_over(samples)
        return False
    if scale is not None:
        for p in executor.point.all_params:
            if p.grad is not None:
                p.grad.div_(scale.to(p.grad.device))
    executor.step_with_gradients(samples)
    return True
