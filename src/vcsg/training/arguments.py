"""The arguments of `fit`, checked before any work is done, and what of them a checkpoint has to agree with."""

from __future__ import annotations

import logging
import math
import reprlib
from collections.abc import Mapping
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run.randomness import seeded
from vcsg.training.evaluation import mode, untouched
from vcsg.training.quantities import (
    alike,
    extreme,
    grows_with_distance,
    heeded,
    in_units_of,
    is_quantity,
    losses_of,
    moments,
    size,
)
from vcsg.training.result import COLUMNS
from vcsg.training.sources import DatasetSource, SampleSource, TensorSource
from vcsg.training.task import Task, number, pair, without_gradients

LOOKED_AT, LARGE = 32, 100.0
"""How many targets are looked at, and how many times what the model returns they may be before a warning."""
TINY = 0.03
"""How small the largest of all inputs may be before a warning."""
VANISHING = 1e-8
"""The spread of targets below which the layers before the last one cannot follow a squared loss in float32."""
SUM, RANDOM_SUM = 1e-3, 0.1
"""How far the loss of a batch may be from that of its halves together for a sum; and for one that is random."""
DRAWS, SURE = 16, 5.0
"""How often a random loss is drawn, and the standard errors by which the mean of the draws tells a sum from a mean."""
OFF = 8.0
"""How far from 0, in units of 1 and of their spread over the samples, inputs may be before a warning."""

logger = logging.getLogger("vcsg")


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
        outputs, targets = _looked_at(task, source)
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


def tell_of_other_units(task: Task, train: SampleSource) -> None:
    """Warn where the targets of a regression are far larger or far smaller than what the model returns.

    Steps that are as long whatever the gradient is take as many more of them to get there, or miss it by more.
    """
    if task.loss is None:
        return
    # In mode eval(), for a loss may be one of what the model returns in training alone.
    with untouched(task.model), mode(task.model, False):
        outputs, targets = _looked_at(task, train)
    if not isinstance(targets, Tensor):
        return
    parts = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    returned = max((size(t) for t in parts if isinstance(t, Tensor)), default=0.0)
    wanted = _size_wanted(task, outputs, targets)
    if LARGE * max(1.0, returned) < wanted < math.inf:
        logger.warning(
            "the targets are about %.2g and the model returns about %.2g before its first step: if it is to return "
            "such numbers, auto takes many steps of its fixed length to get there. Then standardise the targets, or "
            "give lr= for longer steps",
            wanted,
            returned,
        )
    elif 0 < LARGE * wanted < returned:
        logger.warning(
            "the targets are about %.2g and the model returns about %.2g before its first step: if it is to return "
            "such numbers, the steps of auto, of a fixed length, are longer than these are large. Then standardise the "
            "targets, or give lr= for shorter steps",
            wanted,
            returned,
        )


def tell_of_vanishing_targets(spread: float) -> None:
    """Warn where squares of the errors of a regression are so small that gradients cannot be told from 0."""
    if 0 < spread < VANISHING:
        logger.warning(
            "the targets are spread by %.2g alone: with a loss that grows with the square of the distance, gradients "
            "of all layers but the last can hardly be told from 0. Give the targets in other units, times %.0e",
            spread,
            1 / spread,
        )


def tell_of_extreme_targets(task: Task, train: SampleSource) -> None:
    """Warn where a squared loss follows a few targets that are extremely far from all others.

    All targets are looked at where they are a tensor, and else some.
    """
    if task.loss is None:
        return
    with untouched(task.model):
        outputs, targets = _looked_at(task, train)
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or not is_quantity(targets):
        return
    equal = alike(targets, outputs)
    if equal is None:
        return
    equal = equal.to(outputs.dtype)
    if not in_units_of(task, targets, equal) or grows_with_distance(task, targets, equal):
        return
    found = extreme(pair(train.take(0, train.n))[1] if isinstance(train, TensorSource) else targets)
    if found is not None:
        far, low, high = found
        logger.warning(
            "a target is %.2g, where half of all lie from %.2g to %.2g (so far off: %d). A loss that grows with the "
            "square of the distance has next to nothing of the others. Look at it, or give a loss for data with "
            "outliers, such as torch.nn.functional.smooth_l1_loss",
            float(far[far.abs().argmax()]),
            low,
            high,
            far.numel(),
        )


def tell_of_inputs(task: Task, train: SampleSource) -> None:
    """Warn where the first layer is given numbers far from 0, beside their spread over the samples or altogether.

    A step of a fixed length then moves all outputs by as many times more, and the layers that follow may be left
    without a gradient: the model returns a constant from then on. It does so, too, where all numbers are tiny, for
    it takes as many steps more until they count beside the biases.
    """
    found = _first_inputs(task, train)
    if found is None:
        return
    layer, rows = found
    mean, spread = moments(rows)
    tiny = 0 < float(rows.abs().max()) < TINY
    if size(rows) > LARGE or size(mean) > max(OFF, OFF * spread) or tiny:
        logger.warning(
            "the first layer, %s, is given inputs of %.2g ± %.2g: the steps of auto are made for inputs of 0 ± 1, and "
            "may lead to a model that returns a constant. Standardise the inputs: less their mean, divided by their "
            "standard deviation",
            layer,
            size(mean),
            spread,
        )


def _first_inputs(task: Task, train: SampleSource) -> tuple[str, Tensor] | None:
    """The first layer with weights that is evaluated, by its class, and what it is given for some samples."""
    found: list[tuple[str, Tensor]] = []

    def look(layer: nn.Module, given: tuple[Any, ...]) -> None:
        if not found and given and isinstance(given[0], Tensor):
            found.append((type(layer).__name__, given[0].detach().double()))

    layers = [layer for layer in task.model.modules() if isinstance(layer, (nn.Linear, _ConvNd, nn.RNNBase))]
    hooks = [layer.register_forward_pre_hook(look) for layer in layers]
    batch = train.some(LOOKED_AT)
    try:
        with untouched(task.model), seeded(0, list(task.model.parameters())):
            without_gradients(lambda: task.value(batch))
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def _looked_at(task: Task, train: SampleSource) -> tuple[Any, Any]:
    """What the model returns for some samples, and their targets."""
    inputs, targets = pair(train.some(LOOKED_AT))
    with seeded(0, list(task.model.parameters())):
        return task.outputs(inputs), targets


def _size_wanted(task: Task, outputs: Any, targets: Tensor) -> float:
    """The size of what outputs are to come to: 0 where that is logarithms of the targets, or classes."""
    equal = alike(targets, outputs) if isinstance(outputs, Tensor) and is_quantity(targets) else None
    if equal is None or not isinstance(outputs, Tensor):
        return size(targets) if targets.is_floating_point() else 0.0
    equal = equal.to(outputs.dtype)
    if not in_units_of(task, targets, equal):
        return 0.0
    return size(heeded(task, targets, equal, equal.double().reshape(len(equal), -1)))


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
