"""Records of a run in TensorBoard, MLflow, Weights & Biases or a framework's own logger: one callback for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import Logger
from typing import Any

import torch.distributed as dist

from vcsg.run.record import Record

Write = Callable[[Mapping[str, float], int], None]
"""(numbers by name, gradients evaluated so far) → written."""


class Tracker:
    """A `callback=` for `vcsg.fit` and every optimizer that writes each record's scalars to an experiment tracker.

    They are written at the number of gradients evaluated so far (`ifo`), which only grows, also where a run goes back.
    Of several ranks the first one writes.

    Args:
        to: a TensorBoard `SummaryWriter`, the module `mlflow` with a run active, a run of `wandb` (online or offline),
            a logger of Lightning, or an `Accelerator` with trackers.
        prefix: what the names begin with.

    Example:
        writer = SummaryWriter("runs")
        vcsg.fit(model, cross_entropy, (X, y), passes=6, callback=Tracker(writer))
    """

    def __init__(self, to: Any, prefix: str = "vcsg/") -> None:
        self.prefix = prefix
        self._write = _writer(to, prefix)

    def __call__(self, record: Record) -> None:
        if dist.is_available() and dist.is_initialized() and dist.get_rank() > 0:
            return
        self._write({f"{self.prefix}{name}": value for name, value in record.scalars().items()}, record.ifo)


def _writer(to: Any, prefix: str) -> Write:
    """How numbers are written to a tracker, told by the method that it has for that."""
    if hasattr(to, "add_scalar"):

        def add(numbers: Mapping[str, float], step: int) -> None:
            for name, value in numbers.items():
                to.add_scalar(name, value, step)

        return add
    if hasattr(to, "define_metric"):
        # Wandb's own step counts its calls of `log`, the user's included. So the axis is one of the numbers.
        to.define_metric(f"{prefix}*", step_metric=f"{prefix}ifo")
        return lambda numbers, _: to.log(dict(numbers))
    for name in ("log_metrics", "log") if not isinstance(to, Logger) else ():
        if callable(log := getattr(to, name, None)):
            return lambda numbers, step: log(dict(numbers), step=step)
    raise TypeError(
        f"to is a {type(to).__name__}: give a SummaryWriter, the module mlflow, a run of wandb, a logger of Lightning, "
        "or an Accelerator"
    )
