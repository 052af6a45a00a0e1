"""Ordinary loops, which hand over batches of their own: what a loader tells, and which steps they may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from vcsg.run.closures import ClosureExecutor
from vcsg.run.course import Course
from vcsg.run.feeding import PhaseSampler, check_length, sized_batches

CLOSURE_HELP = """step() needs a closure, because {method} evaluates gradients at two points, or at one anchor:
    def closure():
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        return loss
    optimizer.step(closure)
In the Trainer of transformers, use vcsg.integrations.FiniteSumTrainer, which does that."""


def sizes_of(loader: Any, n: int | None, batch_size: int | None) -> tuple[int, int]:
    """n and the batch size of a run over this loader, each as it was given, or else that of the loader."""
    samples = samples_of(loader)
    n = len(samples) if n is None and isinstance(samples, Sized) else n
    batch_size = batch_size or getattr(loader, "batch_size", None)
    if n is None or batch_size is None:
        raise ValueError(
            f"{'n' if n is None else 'batch_size'} is not to be had from this {type(loader).__name__}: make "
            "the optimizer with n=len(dataset), batch_size=..."
        )
    return n, batch_size


def samples_of(loader: Any) -> Any:
    """What has as many samples as a pass of the loader: its dataset, or the part that it is confined to."""
    sampler = _sampler_of(loader)
    return sampler if isinstance(sampler, SubsetRandomSampler) else getattr(loader, "dataset", None)


def _sampler_of(loader: Any) -> Any:
    """What draws the samples of an ordinary loader; None where batches are put together in a way of their own."""
    batches: Any = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):  # Accelerate's, around that of the loader
        batches = batches.batch_sampler
    return batches.sampler if type(batches) is BatchSampler else None


def in_order(loader: Any) -> bool:
    """Whether a loader reads its samples in the order of the data set."""
    return isinstance(_sampler_of(loader), SequentialSampler)


def check_loader(loader: Any, course: Course) -> None:
    """Refuse a loader of other samples or batches than those that the optimizer was made for."""
    n, batch_size = course.n, course.options.batch_size
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        raise TypeError(f"the loader is a {type(loader).__name__}, which yields samples: give a DataLoader of it")
    if batch_size is None:
        raise ValueError(
            f"the optimizer was made with n = {n} and no batch_size, to draw the samples itself: give "
            "batch_size= for an ordinary loader, or make the loader with batch_sampler=optimizer.sampler"
        )
    check_samples(loader, course)
    size = getattr(loader, "batch_size", None)
    if size is not None and size != batch_size:
        raise ValueError(
            f"the loader has batches of {size} samples, the optimizer was made with batch_size = "
            f"{batch_size}: make it with batch_size={size}"
        )


def check_samples(loader: Any, course: Course) -> None:
    """Refuse a loader whose data set has another length than n, or that draws it with repetitions for an anchor."""
    check_length(samples_of(loader), course.n)
    sampler = _sampler_of(loader)
    repeats = isinstance(sampler, WeightedRandomSampler) or getattr(sampler, "replacement", False) is True
    if repeats and not course.needs_one_point:
        raise ValueError(
            f"the {type(sampler).__name__} of the loader draws samples more than once: an anchor of "
            f"{course.method.name} stands for the mean over all n = {course.n} samples, each once. Give shuffle=True, "
            "and weigh the losses of samples in the closure, or choose a method without an anchor, such as adam"
        )


@dataclass
class HandedBatch:
    """A batch that `loop` has handed over, which is to be used once."""

    samples: int | None
    used: bool = False

    def check_unused(self) -> None:
        if self.used:
            raise RuntimeError(
                "a second step for one batch of optimizer.loop(loader): call step once for each batch that it yields"
            )

    def check_used(self) -> None:
        if not self.used:
            raise RuntimeError(
                "the last batch of optimizer.loop(loader) was not used: call step once for each batch that it yields, "
                "before the next one is read, ahead of time or not. To leave batches out, or for a step of several, "
                "loop over the loader itself, with batch_size= for all samples of a step"
            )


def one_pass(loader: Iterable[Any], n: int, hold: Callable[[HandedBatch | None], None]) -> Iterator[Any]:
    """The batches of a pass, as long as they are no more than n samples; `hold` is given what is known of each.

    A data set of known length was looked at before; a sampler may well draw some of its samples again.
    """
    total, known = 0, isinstance(getattr(loader, "dataset", None), Sized)
    try:
        for batch, size in sized_batches(loader):
            total += size or 0
            if total > n and not known:
                raise ValueError(
                    f"{total} samples and perhaps more in one pass of the loader, the optimizer was made for n = {n}: "
                    "make it with the number of samples as n"
                )
            held = HandedBatch(size)
            hold(held)
            yield batch
            del batch  # or it would be held while the next one is read
            held.check_used()
    finally:
        hold(None)


def check_closure(closure: Any, course: Course) -> None:
    """Refuse what is no closure, and a step without one where the gradient at x is not all that is needed."""
    if callable(closure):
        return
    if closure is not None:
        raise TypeError(
            f"step was given a {type(closure).__name__}: give a function that evaluates the batch and returns its loss"
            + (", or nothing after loss.backward()" if course.needs_one_point else "")
        )
    if not course.needs_one_point:
        raise TypeError(CLOSURE_HELP.format(method=course.method.name))
    if course.state.L is None:
        raise TypeError(
            f"{course.method.name} without lr= and L= estimates L, for which it calls a closure: give lr=, the step "
            "size, or call step(closure)"
        )


def check_source(samples: int | None, sampler: PhaseSampler) -> None:
    """Refuse a batch that was not drawn by the optimizer, or of which the loop says another size than was drawn."""
    if not sampler.has_drawn:
        raise RuntimeError(
            "this batch was not drawn by the optimizer, which was made without batch_size=: make it with "
            "batch_size= where an ordinary loop hands over the batches, or read them from "
            "optimizer.batches(data, passes=...) and call step once for each"
        )
    if samples is not None and samples != sampler.size:
        raise ValueError(
            f"samples = {samples!r}: {sampler.size} samples were drawn for this step, and all are to be evaluated; "
            "leave samples= out, or give the optimizer batch_size= where a loop has batches of its own"
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
