"""The execution of steps: one by one, or many at once as CUDA graphs where model and data are on a GPU."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from vcsg.gpu.graphs import Uncapturable
from vcsg.training.sources import SampleSource, TensorSource
from vcsg.training.stepper import Stepper

ENGINES = ("auto", "eager", "graphed")
STEPS_AT_ONCE = 256
"""The most steps that are taken before limits, Ctrl-C and checkpoints are looked at again."""

logger = logging.getLogger("vcsg")


def check_engine(name: str) -> None:
    """Raise a ValueError unless there is an engine of this name."""
    if name not in ENGINES:
        raise ValueError(f"engine = {name!r}: choose {', '.join(map(repr, ENGINES[:-1]))} or {ENGINES[-1]!r}")


class StepEngine:
    """Takes the steps of an optimizer.

    Args:
        name: "graphed" takes many steps at once as CUDA graphs, and warns where that is not possible; "auto" does the
            same without the warning; "eager" takes them one by one.
        optimizer: the optimizer that takes the steps.
        model: the model that it trains.
        objective: batch → its mean loss.
        train: the source of the batches.
    """

    def __init__(
        self, name: str, optimizer: Stepper, model: nn.Module, objective: Callable[[Any], Tensor], train: SampleSource
    ) -> None:
        check_engine(name)
        self._optimizer, self._wanted = optimizer, name == "graphed"
        self._graphed: Any = None
        self.reason = "it was asked for"
        """Why steps are taken one by one, where they are."""
        if name == "eager":
            return
        try:
            if not isinstance(train, TensorSource):
                raise Uncapturable("the data are read by a loader, and not tensors on the device")
            self._graphed = optimizer.graphed(model, objective, train.samples)
        except Uncapturable as fault:
            self._give_up(str(fault))

    def _give_up(self, reason: str) -> None:
        self._graphed, self.reason = None, reason
        level = logging.WARNING if self._wanted else logging.DEBUG
        logger.log(level, "steps are taken one by one, not as CUDA graphs: %s", reason)

    def close(self) -> None:
        """Free the memory of the graphs, which would else be held until Python's garbage collection."""
        if self._graphed is not None:
            self._graphed.close()

    @property
    def notes(self) -> dict[str, Any]:
        """How steps were taken, for the records of a run."""
        if self._graphed is None:
            return {"engine": "eager", "engine_reason": self.reason}
        graphs, seconds = self._graphed.captured
        notes = {"engine": "graphed", "graphs": graphs, "capture_seconds": round(seconds, 3)}
        return notes | ({"gradients_alone": self._graphed.outside} if self._graphed.outside else {})

    def advance(self, most: int = STEPS_AT_ONCE, limit: float = math.inf) -> tuple[int, float]:
        """Take up to `most` steps at once, until `limit` gradients are counted.

        Returns the number of samples used and the sum of their losses; 0 samples: no step was taken, and the next one
        is to be taken by itself.
        """
        if self._graphed is None:
            return 0, 0.0
        try:
            return self._optimizer.advance(self._graphed, most, limit)
        except Uncapturable as fault:
            self._give_up(str(fault))
            return 0, 0.0
