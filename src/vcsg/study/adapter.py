"""An optimizer from outside the family behind the interface that the training loop asks for.

Every pass goes through all samples once, reshuffled, in ⌈n/b⌉ mini-batches of nearly equal size. The order is a
function of (seed, pass), as all randomness here, so that the place of a run is one integer.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vcsg.gpu.graphs import Call, Graph, Replays, Samples, Uncapturable, equal
from vcsg.run.feeding import PhaseSampler, feed
from vcsg.run.randomness import seeded
from vcsg.run.record import Record, Until
from vcsg.run.sampling import Indices, Phase, Share, draw_batch, stream
from vcsg.run.vectors import all_finite

STEPS = 16
"""The steps in one CUDA graph."""
COUNTS_IN_PYTHON = "the optimizer counts its steps in Python, and a CUDA graph would repeat the same count"
MOVED = "the optimizer gives its parameters other memory, where a CUDA graph does not find them"


class Steps(Protocol):
    """What an optimizer has to offer: every one of torch does."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...

    def step(self) -> Any: ...

    def zero_grad(self) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@runtime_checkable
class Switching(Protocol):
    """An optimizer that steps at one point and returns another, as those of the package `schedulefree` do.

    train() puts the parameters at the point of the next step, eval() at the one that is returned.
    """

    def train(self) -> None: ...

    def eval(self) -> None: ...


class Pass(Phase):
    """All n samples once, in random order."""

    @cached_property
    def indices(self) -> Indices:
        return draw_batch(stream(self.seed, "samples", self.number), self.n, self.n)


class Baseline:
    """An optimizer that draws its own mini-batches and counts its gradients; a `Stepper`.

    Args:
        optimizer: one of torch's, or one that has the same methods. One that is `Switching` is evaluated at the point
            that it returns.
        n: the number of samples.
        b: the mini-batch size.
        seed: the seed of the order of the samples.
        uncapturable: why a CUDA graph cannot repeat its steps, but only the gradients before them; "" where it can.
    """

    record: Record | None = None
    """A baseline has no epochs, and so no record of one."""

    def __init__(self, optimizer: Steps, n: int, b: int, seed: int, uncapturable: str = "") -> None:
        if isinstance(b, bool) or not isinstance(b, int) or b < 1:
            raise ValueError(f"b = {b!r}: give a whole number, at least 1")
        self.n, self._optimizer, self._seed = n, optimizer, seed
        self._switching = optimizer if isinstance(optimizer, Switching) else None
        self._uncapturable = uncapturable or ("" if self._switching is None else COUNTS_IN_PYTHON)
        self._at_output = False
        self._count = math.ceil(n / b)
        self._steps = self._position = 0
        self._stopping = False
        self.phase: Phase = self._pass(0)
        self.sampler = PhaseSampler(lambda: (Share(), self.phase, self._position))
        if self._switching is not None:
            self._switching.train()

    def _pass(self, number: int) -> Pass:
        return Pass("inner", number, self._count, self.n, self.n, self._seed)

    def _go_to(self, steps: int) -> None:
        """Set the state after a number of steps, except for the tensors."""
        self._steps = steps
        number, self._position = divmod(steps, self._count)
        if number != self.phase.number:
            self.phase = self._pass(number)

    @property
    def ifo(self) -> int:
        return self.phase.number * self.n + (self.phase.bounds(self._position - 1).stop if self._position else 0)

    @property
    def passes(self) -> float:
        return self.ifo / self.n

    @property
    def lr(self) -> float:
        """The step size, that of the first group of parameters."""
        return float(self._optimizer.param_groups[0]["lr"])

    @property
    def epoch(self) -> int:
        """The number of the pass, from 1."""
        return self.phase.number + 1

    def batches(
        self,
        data: Any,
        *,
        passes: float | None = None,
        ifo: float | None = None,
        until: Until | None = None,
    ) -> Iterator[Any]:
        if until is not None:
            raise ValueError("until= tests the records of epochs, and an optimizer of torch has none: give passes=")
        read = feed(data, self.n, self.sampler)
        budget = min(math.inf if passes is None else passes * self.n, math.inf if ifo is None else ifo)
        self._stopping = False
        while self.ifo < budget and not self._stopping:
            phase = self.phase
            for batch in read(phase, self._position):
                taken = self._steps
                yield batch
                if self.phase is not phase or self.ifo >= budget or self._stopping or self._steps > taken + 1:
                    break

    def stop(self) -> None:
        self._stopping = True

    def step(self, closure: Callable[[], Any], *, samples: int | None = None) -> Any:
        """Take the gradient of the batch and one step of the optimizer; the closure's randomness is seeded."""
        self._leave_output()
        self._optimizer.zero_grad()
        with seeded(self.phase.seeds[self._position], self._params), torch.enable_grad():
            loss = closure()
        value = float(loss)
        if not math.isfinite(value):
            raise FloatingPointError(f"diverged: the loss is {value} in step {self._steps + 1}; take a smaller lr")
        self._optimizer.step()
        self._go_to(self._steps + 1)
        return loss

    def graphed(self, model: nn.Module, objective: Callable[[Any], Tensor], samples: Samples) -> GraphedBaseline:
        made = GraphedBaseline if not self._uncapturable else GraphedGradients
        return made(self._optimizer, objective, samples, self._uncapturable)

    @torch.no_grad()
    def advance(self, engine: GraphedBaseline, most: int, limit: float) -> tuple[int, float]:
        phase, first = self.phase, self._position
        wanted = phase.bounds(first).start + limit - self.ifo
        within = range(first, min(phase.count, first + most) - 1)
        count = 1 + bisect.bisect_left(within, wanted, key=lambda k: float(phase.bounds(k).stop))
        losses = engine.run(phase, first, count)
        sizes = [phase.size(k) for k in range(first, first + len(losses))]
        if not all(map(math.isfinite, losses)):
            bad = next(k for k, loss in enumerate(losses) if not math.isfinite(loss))
            raise FloatingPointError(
                f"diverged: the loss is {losses[bad]} in step {self._steps + bad + 1}; take a smaller lr"
            )
        self._go_to(self._steps + len(losses))
        return sum(sizes), sum(size * loss for size, loss in zip(sizes, losses, strict=True))

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    @contextmanager
    def at_output(self) -> Iterator[bool]:
        """A context with the model at the point that the optimizer would return now; yields whether it moved there.

        Afterwards the parameters are what they were, bit by bit: an evaluation changes nothing.
        """
        if self._switching is None or self._at_output or not self._steps:
            yield False
            return
        before = [p.detach().clone() for p in self._params]
        self._switching.eval()
        try:
            yield True
        finally:
            self._switching.train()
            self._restore(before)

    @torch.no_grad()
    def _restore(self, values: list[Tensor]) -> None:
        for p, value in zip(self._params, values, strict=True):
            p.copy_(value)

    def load_output(self) -> bool:
        """Put the model at the point that the optimizer returns, which has to be finite; returns whether it moved."""
        moved = False
        if self._switching is not None and not self._at_output:
            self._switching.eval()
            self._at_output, moved = True, self._steps > 0
        if not all_finite(self._params):
            raise FloatingPointError(f"diverged: step {self._steps} is not finite; take a smaller lr")
        return moved

    def _leave_output(self) -> None:
        """Go back to the point of the next step, after `load_output`."""
        if self._at_output and self._switching is not None:
            self._switching.train()
        self._at_output = False

    def state_dict(self) -> dict[str, Any]:
        state = {"optimizer": self._optimizer.state_dict(), **self._settings(), "steps": self._steps}
        return state | ({"at_output": self._at_output} if self._switching is not None else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in self._settings().items():
            if state_dict[name] != value:
                raise ValueError(
                    f"the state was saved with {name} = {state_dict[name]!r}, this optimizer has {value!r}: "
                    "make it with the same options"
                )
        self._optimizer.load_state_dict(state_dict["optimizer"])
        self._at_output = state_dict.get("at_output", False)
        self._go_to(state_dict["steps"])

    def _settings(self) -> dict[str, Any]:
        kind = type(self._optimizer).__name__
        return {"kind": kind, "n": self.n, "batches_per_pass": self._count, "seed": self._seed}

    @property
    def _params(self) -> list[Tensor]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]


class GraphedBaseline:
    """Steps of an optimizer as CUDA graphs, as those of the family are (`vcsg.gpu.executor`).

    Args:
        optimizer: what takes the steps.
        objective: batch → its mean loss.
        samples: where batches come from.
        outside: why its steps are left out of the graphs, which then have the gradients alone; "" where they are not.
    """

    def __init__(
        self, optimizer: Steps, objective: Callable[[Any], Tensor], samples: Samples, outside: str = ""
    ) -> None:
        self._optimizer, self._objective, self.outside = optimizer, objective, outside
        self._params = [p for group in optimizer.param_groups for p in group["params"]]
        devices = {t.device for t in (*self._params, *samples.tensors)}
        if len(devices) > 1 or next(iter(devices)).type != "cuda":
            raise Uncapturable("model and data are not on one CUDA device")
        self._replays = Replays(next(iter(devices)), samples)
        self._replays.probe(lambda batches: self._gradient(batches[0]))

    @property
    def captured(self) -> tuple[int, float]:
        """How many graphs were captured, and the seconds that it took."""
        return self._replays.captured, self._replays.seconds

    def close(self) -> None:
        """Give the memory of all graphs back."""
        self._replays.clear()

    def run(self, phase: Phase, first: int, count: int) -> list[float]:
        """Take `count` steps of a phase; returns their losses."""
        sizes = [phase.size(k) for k in range(first, first + count)]
        found = self._replays.run(phase, first, count, lambda k: self._next(sizes[k : k + STEPS]))
        return [loss for loss, _ in found]

    def _next(self, sizes: list[int]) -> tuple[Call, int]:
        """What takes the next steps, with mini-batches of these sizes, and how many of them."""
        return self._replays.series(sizes[0], equal(sizes), STEPS, lambda _: self._steps, sizes[0])

    def _steps(self, batches: list[Any], measured: Tensor) -> None:
        for batch, row in zip(batches, measured, strict=True):
            loss, found = self._gradient(batch)
            for p, gradient in zip(self._params, found, strict=True):
                p.grad = gradient
            self._optimizer.step()
            self._optimizer.zero_grad()
            row[0].copy_(loss)

    def _gradient(self, batch: Any) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        with torch.enable_grad():
            loss = self._objective(batch)
            return loss.detach(), torch.autograd.grad(loss, self._params, allow_unused=True)


class GraphedGradients(GraphedBaseline):
    """CUDA graphs of the gradients of an optimizer whose steps no graph can repeat: it takes them in between."""

    def __init__(self, optimizer: Steps, objective: Callable[[Any], Tensor], samples: Samples, outside: str) -> None:
        super().__init__(optimizer, objective, samples, outside)
        self._places = [p.data_ptr() for p in self._params]
        self._gradients: list[Tensor | None] = [None] * len(self._params)

    def _next(self, sizes: list[int]) -> tuple[Call, int]:
        graph = self._replays.graph(sizes[0], lambda: self._leave_gradients, sizes[0])
        return partial(self._step, graph), 1

    def _step(self, graph: Graph, indices: Tensor, measured: Tensor) -> None:
        if [p.data_ptr() for p in self._params] != self._places:
            raise Uncapturable(MOVED)
        graph(indices, measured)
        for p, gradient in zip(self._params, self._gradients, strict=True):
            p.grad = gradient
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _leave_gradients(self, batches: list[Any], measured: Tensor) -> None:
        """Copy the gradients to places of their own, which the optimizer may overwrite, and graphs fill again."""
        loss, found = self._gradient(batches[0])
        for k, gradient in enumerate(found):
            if gradient is None:
                continue
            if (place := self._gradients[k]) is None:
                place = self._gradients[k] = torch.empty_like(self._params[k])
            place.copy_(gradient)
        measured[0, 0].copy_(loss)
