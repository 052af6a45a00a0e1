"""The objective of a run and its metrics, as functions of a batch."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

Found = TypeVar("Found")


class Fraction(NamedTuple):
    """A part of a whole; of several batches the parts are added up, and the wholes."""

    part: float
    whole: float


@dataclass(frozen=True)
class Task:
    """What a run minimises, and what it measures on test samples."""

    model: nn.Module
    loss: Callable[[Any, Any], Tensor] | None
    objective: Callable[[nn.Module, Any], Tensor] | None
    metrics: Mapping[str, Callable[[Any, Any], Any]]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Makes the context in which the model is evaluated, such as autocast."""

    def __post_init__(self) -> None:
        if (self.loss is None) == (self.objective is None):
            raise TypeError(
                "give either loss, a function of (outputs, targets), or loss=None and objective=, one of (model, batch)"
            )

        for name, given in (("loss", self.loss), ("objective", self.objective)):
            if isinstance(given, type):
                raise TypeError(f"{name} = {given!r}: give a function, such as {given.__name__}()")
            if given is not None and not callable(given):
                told = reprlib.repr(given)
                raise TypeError(f"{name} = {told}: give a function, such as torch.nn.functional.cross_entropy")
        if not isinstance(self.metrics, Mapping) or not all(map(callable, self.metrics.values())):
            raise TypeError(f"metrics = {reprlib.repr(self.metrics)}: give a dict of functions by name")

    def evaluate(self, batch: Any) -> tuple[Tensor, Any, Any]:
        """The mean loss of a batch, and the two arguments of a metric: outputs and targets, or model and batch."""
        with self.context():
            if self.objective is not None:
                return scalar(self.objective(self.model, batch)), self.model, batch
            assert self.loss is not None
            inputs, targets = pair(batch)
            outputs = self.model(inputs)
            return scalar(self.loss(outputs, targets)), outputs, targets

    def value(self, batch: Any) -> Tensor:
        """The mean loss of a batch."""
        return self.evaluate(batch)[0]

    def outputs(self, inputs: Any) -> Any:
        """What the model returns, without gradients."""
        with self.context():
            found = without_gradients(lambda: self.model(inputs))
        return found.detach() if isinstance(found, Tensor) else found

    def measure(self, batch: Any) -> dict[str, float | Fraction]:
        """The mean loss of a batch of test samples, the error for classification, and the metrics."""
        value, outputs, targets = self.evaluate(batch)
        weight = None if self.loss is None else weight_of_mean(self.loss, targets)
        found: dict[str, float | Fraction] = {"test_loss": number(value)}
        if weight is not None:
            found["test_loss"] = Fraction(number(value) * weight if weight else 0.0, weight)
        if _classifies(outputs, targets):
            known = (targets >= 0) & (targets != _option(self.loss, "ignore_index", -100))  # others are no class
            found["error"] = Fraction(float((outputs.argmax(1) != targets)[known].sum()), float(known.sum()))
        return found | {name: _measured(name, metric(outputs, targets)) for name, metric in self.metrics.items()}


def weight_of_mean(loss: Callable[[Any, Any], Tensor], targets: Any) -> float | None:
    """What torch's mean of the cross entropies of a batch divides by, where that may be other than their number.

    Those of ignored targets have no part in it, and others that of their class. None for all other losses.
    """
    known = type(loss) in (nn.CrossEntropyLoss, nn.NLLLoss)  # one of a class of its own may have another mean
    known |= (loss.func if isinstance(loss, partial) else loss) in (cross_entropy, nll_loss)
    if not known or _option(loss, "reduction", "mean") != "mean":
        return None
    if not isinstance(targets, Tensor) or targets.is_floating_point():
        return None
    classes, weight = targets.long(), _option(loss, "weight", None)
    counted = classes[classes != _option(loss, "ignore_index", -100)]
    return float(counted.numel() if weight is None else weight[counted].sum())


def _option(loss: Any, name: str, default: Any) -> Any:
    """An option of a loss that is a module, or a function of which some arguments are given."""
    return loss.keywords.get(name, default) if isinstance(loss, partial) else getattr(loss, name, default)


def without_gradients(evaluate: Callable[[], Found]) -> Found:
    """What the function returns without gradients, or with them where the model or its objective takes some itself.

    Forces are gradients of an energy, and the residual of a differential equation has derivatives of the model.
    """
    try:
        with torch.no_grad():
            return evaluate()
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
    with torch.enable_grad():
        return evaluate()


def number(value: Any) -> float:
    """A loss or the value of a metric as a number, whether it has a gradient or not."""
    return float(value.detach() if isinstance(value, Tensor) else value)


def _measured(name: str, value: Any) -> float:
    """What a metric returned, as a number."""
    try:
        return number(value)
    except (TypeError, ValueError, RuntimeError):
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else reprlib.repr(value)
        raise TypeError(
            f"the metric {name!r} returned {got}: return one number, such as the mean over the batch"
        ) from None


def scalar(value: Any) -> Tensor:
    """The loss, checked to be a tensor with one number."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value
    got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
    raise TypeError(f"the loss of a batch is {got}: return the mean over its samples, a tensor with one number")


def pair(batch: Any) -> Any:
    """The batch, checked to be a pair (inputs, targets), as `loss` needs it."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch
    size = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
    raise TypeError(
        f"a batch is a {type(batch).__name__}{size}, and loss= needs pairs (inputs, targets): give loss=None and "
        "objective=lambda model, batch: ..., the mean loss of a batch"
    )


def _classifies(outputs: Any, targets: Any) -> bool:
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.dim() != 2 or targets.dim() != 1:
        return False
    whole = not (targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool)
    return whole and len(outputs) == len(targets) and outputs.shape[1] > 1
