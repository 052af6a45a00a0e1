"""The arguments of `fit`, checked before any work is done, and what of them a checkpoint has to agree with."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run.randomness import seeded
from vcsg.training.evaluation import mode, some_outputs, untouched
from vcsg.training.quantities import (
    alike,
    is_quantity,
    losses_of,
)
from vcsg.training.result import COLUMNS
from vcsg.training.sources import DatasetSource, SampleSource
from vcsg.training.task import Task, number, pair, without_gradients

SUM, RANDOM_SUM = 1e-3, 0.1
"""How far the loss of a batch may be from that of its halves together for a sum; and for one that is random."""
DRAWS, SURE = 16, 5.0
"""How often a random loss is drawn, and the standard errors by which the mean of the draws tells a sum from a mean."""


def device_of(model: nn.Module, device: torch.device | str | None) -> torch.device:
    """The device that a run is to use: the one given, or the one that the model is on."""
    if not isinstance(model, nn.Module):
        made = f", such as {model.__name__}(...)" if isinstance(model, type) else ""
        raise TypeError(f"model = {reprlib.repr(model)}: give a torch.nn.Module{made}")
    first = next(model.parameters(), None)
    if first is None:
        raise ValueError("the model has no parameters: there is nothing to fit")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("all parameters of the model are frozen: set requires_grad of those that are to be fitted")
    place = first.device if device is None else torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device = {device!r}: torch finds no CUDA device here; leave device= out, or give 'cpu'")
    return place


def check_mean(task: Task, train: SampleSource) -> None:
    """Refuse a loss that is the sum over a batch and not its mean: the loss of a batch is that of its halves together.

    Where in training the loss of the same samples is another each time, or depends on the batch in other ways
    (dropout, BatchNorm), it is looked at in mode eval(), if it can be evaluated there.
    """
    half = min(16, train.n // 2)
    if not half:
        return
    parts = [train.take(start, count) for start, count in ((0, half), (half, half), (0, 2 * half))]
    found = [] if any(True for _ in task.model.buffers()) else _draws(task, parts, 2)
    if len(found) != 1:
        try:
            with untouched(task.model), mode(task.model, False):
                found = _draws(task, parts, DRAWS)
        except Exception:  # it may be a loss of what the model returns in training alone
            return
    if _are_sums(found):
        first, second, whole = found[0]
        raise ValueError(
            f"the loss of {2 * half} samples is {whole:.4g}, and those of its halves are {first:.4g} and {second:.4g}: "
            "it is the sum over the samples, and the methods need the mean; give a loss with reduction='mean'"
        )


def _draws(task: Task, batches: list[Any], most: int) -> list[list[float]]:
    """The losses of these batches; where the last one is random, for so many seeds."""
    found: list[list[float]] = []
    for seed in range(most):
        with seeded(seed, list(task.model.parameters())):
            last = number(without_gradients(partial(task.value, batches[-1])))
        if seed and last == found[0][-1]:
            return found[:1]
        others = []
        for batch in batches[:-1]:
            with seeded(seed, list(task.model.parameters())):
                others.append(number(without_gradients(partial(task.value, batch))))
        found.append([*others, last])
    return found


def _are_sums(found: list[list[float]]) -> bool:
    """Whether losses of two halves and of both are those of a sum, and cannot be those of a mean.

    A mean over some of the samples, such as those with a label, is that of one half where the other has none.
    """
    losses = torch.tensor(found, dtype=torch.float64)
    first, second, whole = map(float, losses.mean(0))
    together, accuracy = first + second, SUM if len(found) == 1 else RANDOM_SUM
    if not 0 < abs(together) < math.inf or min(first / together, second / together) <= 2 * accuracy:
        return False
    if len(found) > 1:  # of a mean they are about half of what the halves are together
        beyond = (losses[:, 2] - losses[:, :2].mean(1)) * math.copysign(1.0, together)
        if float(beyond.mean()) <= SURE * float(beyond.std()) / math.sqrt(len(found)):
            return False
    return abs(whole - together) <= accuracy * abs(together)


def make_lazy_parameters(task: Task, train: SampleSource) -> None:
    """Evaluate the model once where it has parameters that are made then, from torch's generator as others are."""
    if not any(is_lazy(p) for p in [*task.model.parameters(), *task.model.buffers()]):
        return
    batch = train.take(0, min(2, train.n))
    with mode(task.model, False):  # statistics of batches stay as they are
        if task.loss is None:
            without_gradients(partial(task.value, batch))
        else:
            task.outputs(pair(batch)[0])


def check_pairs(task: Task, source: SampleSource, role: str = "") -> None:
    """Refuse a loss that compares every output with every target, as where (b, 1) and (b,) become (b, b).

    It does not change with the order of the targets, neither for outputs that are equal to them nor for small ones.
    `role` says of which targets, if not of those that the model is trained on.
    """
    if task.loss is None:
        return
    with untouched(task.model), mode(task.model, not role):
        outputs, targets = some_outputs(task, source)
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.shape == targets.shape:
        return
    equal = alike(targets, outputs) if is_quantity(targets) else None
    if equal is None:
        return
    equal = equal.to(outputs.dtype if outputs.is_floating_point() else torch.get_default_dtype())
    small = (equal - equal.mean()) / (equal - equal.mean()).abs().max()
    if all(_ignores_order(task, t, targets) for t in (equal, small)):
        raise ValueError(
            f"the model returns the shape {tuple(outputs.shape)} for {role}targets of the shape "
            f"{tuple(targets.shape)}, and the loss compares every output with every target: reshape the targets, or "
            "squeeze what the model returns, so that both have one shape"
        )


def _ignores_order(task: Task, outputs: Tensor, targets: Tensor) -> bool:
    """Whether the loss depends on the targets, but not on their order; False where it refuses them."""
    other = targets.roll(1, 0)
    if torch.equal(other, targets):
        return False
    losses = [loss for t in (targets, other, 2 * targets) for loss in losses_of(task, t, outputs)]
    same = [abs(loss - losses[0]) <= 1e-5 * abs(losses[0]) < math.inf for loss in losses[1:]]
    return same == [True, False]


def check_evaluation(task: Task, held_out: SampleSource | None, batch_size: int) -> None:
    """Raise an error unless the metrics can be measured on the test samples, `batch_size` at once."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"test_batch_size = {batch_size!r}: give a whole number of samples, at least 1")
    if task.metrics and held_out is None:
        raise ValueError(f"metrics {', '.join(task.metrics)} are measured on test samples: give test= as well")
    if taken := set(COLUMNS) & set(task.metrics):
        raise ValueError(f"a metric has the name {taken.pop()!r} of a column of the history: choose another name")


def check_loading(sources: list[SampleSource | None], workers: int, collate_fn: Any) -> None:
    """Raise a ValueError where workers or a collate_fn are given, and no source is a dataset that needs them."""
    if (workers or collate_fn is not None) and not any(isinstance(source, DatasetSource) for source in sources):
        raise ValueError("the data are tensors and need no loading: leave workers= and collate_fn= out")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise a TypeError for options of the optimizer that `fit` sets itself."""
    if known := {"params", "n", "buffers"} & set(options):
        raise TypeError(f"{known.pop()}= is known from the model and the data: leave it out")
    for name in ("weight_decay", "decoupled_weight_decay"):
        given = options.get(name)
        if given is not None and not (isinstance(given, (Real, Tensor)) and 0 <= float(given) < math.inf):
            raise ValueError(f"{name} = {given!r}: give a finite number, at least 0")
    if "epochs" in options:
        raise TypeError(f"epochs = {options['epochs']!r}: give passes= for the passes over the data")
    if "batch_size" in options:
        raise TypeError(
            "batch_size= is for a loop of your own, and `fit` draws the samples: give b= for the mini-batch"
        )


def identity(
    optimizer: FiniteSumOptimizer, seed: int, precision: str | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """What has to be the same for a run to continue from a checkpoint, as plain values by name."""
    plain = (bool, int, float, str, type(None))
    given = {name: v if isinstance(v, plain) else repr(v) for name, v in options.items() if name != "group"}
    numbers = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    fixed = {"n": optimizer.n, "number of parameters": numbers, "seed": seed}
    fixed |= {} if precision is None else {"precision": precision}
    if len(optimizer.param_groups) > 1:
        fixed["factor of the steps of the last layer"] = optimizer.param_groups[-1]["lr"]
    fixed |= {f"option {name}": value for name, value in given.items()}
    return fixed | {"method": repr(optimizer.method)}  # the last, for what it consists of says less of why
