"""How steps are executed: one after the other, or many at once as CUDA graphs where model and data are on a GPU."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from vcsg.gpu.graphs import Uncapturable
from vcsg.training.sources import Source, TensorSource
from vcsg.training.stepper import Stepper

ENGINES = ("auto", "eager", "graphed")
MOST = 256
"""Steps at once: after them, limits, Ctrl-C and checkpoints are looked at."""

logger = logging.getLogger("vcsg")


def check_engine(name: str) -> None:
    if name not in ENGINES:
        raise ValueError(f"engine = {name!r}: choose {', '.join(map(repr, ENGINES[:-1]))} or {ENGINES[-1]!r}")


class Engine:
    """Executes the steps of an optimizer.

    Args:
        name: "graphed" where that is possible, with a warning where it is not; "eager"; "auto" is "graphed" where the
            data are tensors on a CUDA device, without a warning.
        optimizer: whose steps they are.
        model: what it trains.
        objective: batch → its mean loss.
        train: where batches come from.
    """

    def __init__(
        self, name: str, optimizer: Stepper, model: nn.Module, objective: Callable[[Any], Tensor], train: Source
    ) -> None:
        check_engine(name)
        self._optimizer, self._wanted = optimizer, name == "graphed"
        self._graphed: Any = None
        self.reason = "it was asked for"
        """Why the steps are executed one by one, where they are."""
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
        logger.log(level, "steps are executed one by one, not as CUDA graphs: %s", reason)

    def close(self) -> None:
        """Give the memory of the graphs back, which would else be held until Python collects its garbage."""
        if self._graphed is not None:
            self._graphed.close()

    @property
    def notes(self) -> dict[str, Any]:
        """What it was, for the records of a run."""
        if self._graphed is None:
            return {"engine": "eager", "engine_reason": self.reason}
        graphs, seconds = self._graphed.captured
        return {"engine": "graphed", "graphs": graphs, "capture_seconds": round(seconds, 3)}

    def advance(self, most: int = MOST, limit: float = math.inf) -> tuple[int, float]:
        """Up to `most` steps at once, to where `limit` gradients are counted: samples, and the sum of their losses.

        0 samples: none was done, and the next step is to be done by itself.
        """
        if self._graphed is None:
            return 0, 0.0
        try:
            return self._optimizer.advance(self._graphed, most, limit)
        except Uncapturable as fault:
            self._give_up(str(fault))
            return 0, 0.0
