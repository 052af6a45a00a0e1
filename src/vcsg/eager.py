"""The tensors of a run, and how a closure is evaluated at the current point x or at the anchor y.

The optimizer decides, this executes, one evaluation after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from vcsg.sampling import seeded
from vcsg.vectors import all_finite, copy_to

Closure = Callable[[], Any]


class Eager:
    """x is in the parameters themselves; "anchor" (y), "mean" (m) and "output" are in the optimizer's state."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def params(self) -> list[Tensor]:
        return [p for group in self._optimizer.param_groups for p in group["params"] if p.requires_grad]

    def vector(self, name: str) -> list[Tensor]:
        """The tensors of that name, one per parameter, made on first use: "mean" zero, the others equal to x."""
        state = self._optimizer.state
        vector = []
        for p in self.params:
            held = state[p]
            if name not in held:
                held[name] = torch.zeros_like(p) if name == "mean" else p.detach().clone()
            vector.append(held[name])
        return vector

    def store(self, name: str) -> None:
        """Copy x to the vector of that name."""
        copy_to(self.vector(name), self.params)

    def restore(self, name: str) -> None:
        """Copy the vector of that name to x."""
        copy_to(self.params, self.vector(name))

    @property
    def finite(self) -> bool:
        return all_finite(self.params)

    def evaluate(self, closure: Closure, seed: int) -> tuple[Any, list[Tensor]]:
        """The loss of the closure and its gradient where the parameters are, its randomness seeded."""
        params = self.params
        for p in params:
            p.grad = None
        with seeded(seed, params), torch.enable_grad():
            loss = closure()
        gradient = [p.grad for p in params]
        for p in params:
            p.grad = None
        if not isinstance(loss, (Tensor, float, int)) or (isinstance(loss, Tensor) and loss.numel() != 1):
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
            raise TypeError(f"the closure returned {got}: return the mean loss of the batch, one number")
        if all(g is None for g in gradient):
            raise RuntimeError("the closure left no gradient: call loss.backward() in it before it returns the loss")
        return loss, [torch.zeros_like(p) if g is None else g for p, g in zip(params, gradient, strict=True)]

    def evaluate_at_anchor(self, closure: Closure, seed: int) -> tuple[Any, list[Tensor]]:
        """The same at y: for the while, every parameter points at its snapshot; nothing is copied."""
        params = self.params
        here = [p.data for p in params]
        try:
            _point(params, self.vector("anchor"))
            return self.evaluate(closure, seed)
        finally:
            _point(params, here)

    def descend(self, v: list[Tensor], step_size: Callable[[dict[str, Any]], float]) -> None:
        """x ← x − ηv, with the step size of each parameter group."""
        start = 0
        for group in self._optimizer.param_groups:
            params = [p for p in group["params"] if p.requires_grad]
            if params:
                torch._foreach_add_(params, v[start : start + len(params)], alpha=-step_size(group))
            start += len(params)

    def show(self, v: list[Tensor]) -> None:
        """Let `p.grad` hold v."""
        for p, direction in zip(self.params, v, strict=True):
            p.grad = direction


def _point(params: list[Tensor], tensors: list[Tensor]) -> None:
    for p, t in zip(params, tensors, strict=True):
        p.data = t
    torch.clear_autocast_cache()
