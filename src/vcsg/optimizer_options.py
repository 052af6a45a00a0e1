"""The options of an optimizer: those that every method has, and what is refused of them before any work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sized
from numbers import Integral, Real
from typing import Any, NamedTuple, TypedDict

from torch import Tensor, nn
from torch.distributed import ProcessGroup

from vcsg.method.definition import OUTPUTS, Method
from vcsg.method.step_rules import StepRule
from vcsg.method.whole_batches import DRAW
from vcsg.run.buffers import Buffers
from vcsg.run.course_options import CourseOptions
from vcsg.run.record import Record

GROUP_OPTIONS = ("lr", "weight_decay", "decoupled_weight_decay", "maximize")
"""The options that a parameter group has of its own."""


NOT_OF_GROUPS = {
    *("L", "batch_size", "clip_norm", "foreach", "buffers", "method", "variance", "chunk", "b_min"),
    *("beta", "beta2", "betas", "eps", "momentum", "dampening", "nesterov", "amsgrad", "learning_rate"),
}
"""The options of an optimizer, here or in torch.optim, that a parameter group has not."""


class CommonOptions(TypedDict, total=False):
    """The options that every method has; `FiniteSumOptimizer` explains them."""

    batch_size: int | None
    lr: float | None
    L: float | None
    step: str | StepRule | None
    weight_decay: float
    decoupled_weight_decay: float | None
    maximize: bool
    clip_norm: float | None
    foreach: bool | None
    buffers: nn.Module | Iterable[Tensor]
    output: str | None
    variance: str
    chunk: int
    seed: int
    group: ProcessGroup | None
    callback: Callable[[Record], None] | None


class RunOptions(NamedTuple):
    """The options with which a run is made, once n is known."""

    n: int | None
    batch_size: int | None
    method: Method | str | None
    options: dict[str, Any]
    step: StepRule | None
    lr: float | None
    L: float | None
    clip_norm: float | None
    output: str | None
    variance: str
    chunk: int
    seed: int
    group: ProcessGroup | None
    buffers: Buffers

    def check_batch_size(self, n: int, batch_size: int | None, ranks: int) -> None:
        """Refuse batches of a loop that n samples on so many ranks do not have, or that other options rule out."""
        if batch_size is None:
            return
        share = math.ceil(n / ranks)
        if batch_size > share:
            raise ValueError(
                f"batch_size = {batch_size}: a loop over n = {n} samples on {ranks} rank{'s'[: ranks > 1]} has batches "
                f"of 1 to {share}; give the batch size of the loop and n=len(dataset)"
            )
        if self.variance == "exact":
            raise ValueError(f"variance = 'exact': single samples are not to be had from batches of a loop; {DRAW}")
        if self.chunk < batch_size and self.chunk != CourseOptions.chunk:
            raise ValueError(
                f"chunk = {self.chunk}: the batches of the loop, of {batch_size} samples, are evaluated as they come; "
                "give the loop smaller ones"
            )
        if self.buffers and batch_size == 1:
            raise ValueError("batch_size = 1: BatchNorm has no statistics of one sample; give batches of 2 or more")


def check_group(group: dict[str, Any]) -> None:
    """Refuse a parameter group that cannot be optimised as it stands.

    Names that nobody knows are left alone, as torch does: schedulers and users keep what they like in a group. So is
    what an optimizer of torch has written into it before.
    """
    for name in group if "differentiable" not in group else ():
        if name in NOT_OF_GROUPS:
            raise ValueError(
                f"a parameter group has {name} = {group[name]!r}, which would have no effect: groups have "
                f"{', '.join(GROUP_OPTIONS)} of their own. Give the optimizer what is to hold for all of them"
            )
    for p in group["params"]:
        if hasattr(p, "device_mesh") or hasattr(p, "_fsdp_flattened"):
            raise TypeError(
                "a parameter is sharded (FSDP, fully_shard or a DTensor): every rank needs whole parameters, to "
                "evaluate them at the anchor. Give the plain model, or one in DistributedDataParallel"
            )
        if p.is_complex():
            raise TypeError("a parameter is complex: optimise torch.view_as_real of it")
        if not p.is_floating_point():
            raise TypeError(f"a parameter is {p.dtype}: give floating-point parameters")
    for name in GROUP_OPTIONS[:3]:
        _check_number(name, group[name])
        if not 0 <= group[name] < math.inf:
            raise ValueError(f"{name} = {group[name]!r}: give a finite number, at least 0")


def _check_number(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, (Real, Tensor)):
        raise TypeError(f"{name} = {value!r}: give a number")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"{name} = {value!r}: Tensor {name} must be 1-element; give one number")


def _meant(name: str, value: Any) -> str:
    """What may have been meant by something that is no number of samples."""
    if name == "n" and isinstance(value, float):
        return f", and a step size by its name: n=len(dataset), lr={value!r}"
    return f": {name}=len(...) of it" if isinstance(value, Sized) else ""


def check_options(
    n: int | None,
    batch_size: int | None,
    lr: float | None,
    L: float | None,
    clip_norm: float | None,
    output: str | None,
    variance: str,
    chunk: int,
    seed: int,
) -> None:
    """Refuse values out of range."""
    for name, value in (("n", n), ("batch_size", batch_size), ("chunk", chunk)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} = {value!r}: give a whole number of samples, at least 1{_meant(name, value)}")
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"seed = {seed!r}: give a whole number, at least 0")
    for name, step in (("lr", lr), ("L", L), ("clip_norm", clip_norm)):
        _check_number(name, step)
        if step is not None and not 0 < step < math.inf:
            raise ValueError(f"{name} = {step!r}: give a finite number above 0, or None")
    for name, choice, known in (
        ("output", output or "last", OUTPUTS),
        ("variance", variance, ("chunks", "exact")),
    ):
        if choice not in known:
            raise ValueError(f"{name} = {choice!r}: choose {' or '.join(map(repr, known))}")
