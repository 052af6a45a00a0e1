"""What a loop asks of an optimizer, so that it runs those of other makes as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from vcsg.gpu.graphs import Samples
from vcsg.run.feeding import PhaseSampler
from vcsg.run.record import Record
from vcsg.run.sampling import Phase


class Stepper(Protocol):
    """`vcsg.FiniteSumOptimizer` is one. The batches are drawn by it, in phases, and a step uses one of them."""

    n: int
    """The number of samples."""
    sampler: PhaseSampler
    """The `batch_sampler` for a DataLoader: what remains of the current phase."""

    @property
    def ifo(self) -> int:
        """Gradients of single samples evaluated so far."""

    @property
    def passes(self) -> float:
        """`ifo` in units of n."""

    @property
    def epoch(self) -> int:
        """From 1."""

    @property
    def phase(self) -> Phase:
        """The phase that the next batch belongs to."""

    @property
    def record(self) -> Record | None:
        """Of the current epoch; None where there is none."""

    def batches(
        self, data: Any, *, passes: float | None, ifo: float | None, until: Callable[[Record], bool] | None
    ) -> Iterator[Any]:
        """The batches to call `step` with, until a limit is reached."""

    def stop(self) -> None:
        """End `batches` after this step."""

    def step(self, closure: Callable[[], Any]) -> Any:
        """Use the last batch; returns its loss. The closure computes loss and gradient of it."""

    def graphed(self, model: nn.Module, objective: Callable[[Any], Tensor], samples: Samples) -> Any:
        """An engine for many steps at once, or `vcsg.gpu.graphs.Uncapturable` with the reason why there is none."""

    def advance(self, engine: Any, most: int, limit: float) -> tuple[int, float]:
        """Up to `most` steps by the engine: the samples that they had, and the sum of their losses; 0: use `step`."""

    def zero_grad(self) -> None: ...

    def load_output(self) -> None:
        """Put the model at the point that the method returns."""

    def state_dict(self) -> dict[str, Any]:
        """All that a run needs to go on from here, but the model."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...
