"""The interface of an optimizer that the loop runs: that of this library, or torch's own behind an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn

from vcsg.gpu.graphs import Samples
from vcsg.run.feeding import PhaseSampler
from vcsg.run.record import Record, Until
from vcsg.run.sampling import Phase


class Stepper(Protocol):
    """An optimizer that draws its own batches, in phases; a step uses one batch. `vcsg.FiniteSumOptimizer` is one."""

    @property
    def n(self) -> int:
        """The number of samples."""

    @property
    def sampler(self) -> PhaseSampler:
        """The `batch_sampler` for a DataLoader: it yields what remains of the current phase."""

    @property
    def ifo(self) -> int:
        """Gradients of single samples evaluated so far."""

    @property
    def passes(self) -> float:
        """`ifo` in units of n."""

    @property
    def epoch(self) -> int:
        """The number of the current epoch, counted from 1."""

    @property
    def phase(self) -> Phase:
        """The phase that the next batch belongs to."""

    @property
    def record(self) -> Record | None:
        """The record of the current epoch; None where there is none yet."""

    def batches(self, data: Any, *, passes: float | None, ifo: float | None, until: Until | None) -> Iterator[Any]:
        """The batches to call `step` with, until a limit is reached."""

    def stop(self) -> None:
        """End `batches` after this step."""

    def step(self, closure: Callable[[], Any], *, samples: int | None = None) -> Any:
        """Use the last batch, of so many samples, whose loss and gradient the closure computes; returns the loss."""

    def graphed(self, model: nn.Module, objective: Callable[[Any], Tensor], samples: Samples) -> Any:
        """An engine that takes many steps at once; `vcsg.gpu.graphs.Uncapturable` says why there is none."""

    def advance(self, engine: Any, most: int, limit: float) -> tuple[int, float]:
        """Take up to `most` steps by the engine, until `limit` gradients are counted.

        Returns the number of samples used and the sum of their losses; 0 samples: call `step` for the next one.
        """

    def zero_grad(self) -> None: ...

    def at_output(self) -> AbstractContextManager[bool]:
        """A context with the model at the point that the method would return now; whether that is not the last one."""

    def load_output(self) -> bool:
        """Put the model at the point that the method returns; returns whether that moved it."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a run needs to continue from here, except the model."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...
