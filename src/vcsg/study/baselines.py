"""Optimizers from outside the family, as yardsticks: torch's own, with the face that the training loop asks for.

Every pass goes through all samples once, reshuffled, in ⌈n/b⌉ mini-batches of nearly equal size. The order is a
function of (seed, pass), as all randomness here, so that the place of a run is one integer.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from vcsg.gpu.graphs import Graph, Replays, Samples, Uncapturable, equal
from vcsg.run.feeding import PhaseSampler, feed
from vcsg.run.randomness import seeded
from vcsg.run.record import Record, Until
from vcsg.run.sampling import Indices, Phase, Share, draw_batch, stream
from vcsg.run.vectors import all_finite

Params = Iterable[Tensor]

STEPS = 16
"""In one graph."""


class Pass(Phase):
    """All n samples once, in random order."""

    @cached_property
    def indices(self) -> Indices:
        return draw_batch(stream(self.seed, "samples", self.number), self.n, self.n)


class Baseline:
    """A torch optimizer that draws its own mini-batches and counts its gradients; a `Stepper`."""

    record: Record | None = None
    """It has no epochs to tell of."""

    def __init__(self, optimizer: Optimizer, n: int, b: int, seed: int) -> None:
        if isinstance(b, bool) or not isinstance(b, int) or b < 1:
            raise ValueError(f"b = {b!r}: give a whole number, at least 1")
        self.n, self._optimizer, self._seed = n, optimizer, seed
        self._count = math.ceil(n / b)
        self._steps = self._position = 0
        self._stopping = False
        self.phase: Phase = self._pass(0)
        self.sampler = PhaseSampler(lambda: (Share(), self.phase, self._position))

    def _pass(self, number: int) -> Pass:
        return Pass("inner", number, self._count, self.n, self.n, self._seed)

    def _go_to(self, steps: int) -> None:
        """The state after that many steps, but for the tensors."""
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
            raise ValueError("until= tests the records of epochs, which an optimizer of torch has not: give passes=")
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

    def step(self, closure: Callable[[], Any]) -> Any:
        """The gradient of the batch and one step of the optimizer; the closure's randomness is seeded."""
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
        return GraphedBaseline(self._optimizer, objective, samples)

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

    def load_output(self) -> None:
        """The last point, which has to be finite."""
        if not all_finite(self._params):
            raise FloatingPointError(f"diverged: step {self._steps} is not finite; take a smaller lr")

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer.state_dict(), **self._settings(), "steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in self._settings().items():
            if state_dict[name] != value:
                raise ValueError(
                    f"the state was saved with {name} = {state_dict[name]!r}, this optimizer has {value!r}: "
                    "make it with the same options"
                )
        self._optimizer.load_state_dict(state_dict["optimizer"])
        self._go_to(state_dict["steps"])

    def _settings(self) -> dict[str, Any]:
        kind = type(self._optimizer).__name__
        return {"kind": kind, "n": self.n, "batches_per_pass": self._count, "seed": self._seed}

    @property
    def _params(self) -> list[Tensor]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]


class GraphedBaseline:
    """Steps of a torch optimizer as CUDA graphs, as those of the family are (`vcsg.gpu.executor`)."""

    def __init__(self, optimizer: Optimizer, objective: Callable[[Any], Tensor], samples: Samples) -> None:
        self._optimizer, self._objective = optimizer, objective
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
        """Do so many steps of a phase; their losses."""
        sizes = [phase.size(k) for k in range(first, first + count)]

        def choose(k: int) -> tuple[Graph, int]:
            return self._replays.series(sizes[k], equal(sizes[k : k + STEPS]), STEPS, lambda _: self._steps, sizes[k])

        return [loss for loss, _ in self._replays.run(phase, first, count, choose)]

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


def sgd_momentum(
    params: Params,
    n: int,
    *,
    lr: float | None = None,
    L: float | None = None,
    b: int = 64,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    seed: int = 0,
) -> Baseline:
    """torch.optim.SGD with momentum β.

    Args:
        lr: the step size; None is that of `momentum_step`.
        L: the smoothness constant, where `lr` is not given.
        b: the mini-batch size.
        momentum: β.
        weight_decay: as torch has it.
    """
    if (lr is None) == (L is None):
        raise ValueError(f"lr = {lr!r} and L = {L!r}: give one of them")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum = {momentum!r}: give a number, at least 0 and below 1")
    step = lr if lr is not None else momentum_step(_positive("L", L), momentum)
    optimizer = torch.optim.SGD(params, lr=_positive("lr", step), momentum=momentum, weight_decay=weight_decay)
    return Baseline(optimizer, n, b, seed)


def momentum_step(L: float, momentum: float) -> float:
    """(1 − β)/(3L), with which momentum β moves as far in the long run as plain SGD does with its 1/(3L)."""
    return (1 - momentum) / (3 * L)


def adamw(
    params: Params, n: int, *, lr: float = 1e-3, b: int = 64, weight_decay: float = 0.01, seed: int = 0
) -> Baseline:
    """torch.optim.AdamW.

    Args:
        lr: the step size.
        b: the mini-batch size.
        weight_decay: as torch has it: decoupled, and by default not 0.
    """
    params = list(params)
    on_gpu = all(p.is_cuda for p in params)
    optimizer = torch.optim.AdamW(params, lr=_positive("lr", lr), weight_decay=weight_decay, capturable=on_gpu)
    return Baseline(optimizer, n, b, seed)


BASELINES: dict[str, Callable[..., Baseline]] = {"sgd-momentum": sgd_momentum, "adamw": adamw}
"""By the names that a study calls them."""


def _positive(name: str, value: float | None) -> float:
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{name} = {value!r}: give a finite number above 0")
    return float(value)
