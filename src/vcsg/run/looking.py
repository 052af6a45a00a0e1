"""What can be seen of a closure from outside: how large its batch is, and whether it changes gradients on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from vcsg.run.vectors import norm

LOOKS = 2
"""How many evaluations of a run are looked at; more where a closure touches gradients without changing them."""


class RowCounter:
    """A closure that notes how many rows the first module is given that it calls.

    Args:
        closure: the closure to call.
    """

    def __init__(self, closure: Callable[[], Any]) -> None:
        self._closure = closure
        self.rows: int | None = None
        """The length of the first tensor that a module was given; None where none was."""
        self._looked = False

    def __call__(self) -> Any:
        if self._looked:
            return self._closure()
        self._looked = True
        handle = register_module_forward_pre_hook(self._look)
        self._remove: Callable[[], None] | None = handle.remove
        try:
            return self._closure()
        finally:
            handle.remove()

    def _look(self, _: nn.Module, given: Any) -> None:
        tensors = [t for t in given if isinstance(t, Tensor) and t.dim()]
        if tensors and self._remove is not None:
            self.rows = len(tensors[0])
            self._remove()  # so that the modules inside the model are called as ever
            self._remove = None


class GradientGuard:
    """Refuses a closure that changes gradients after backward() has made them, in the first evaluations of a run.

    A method with an anchor compares gradients of two points, or means of many; clipped or rescaled ones do not compare.
    """

    def __init__(self) -> None:
        self.looks = LOOKS

    def guarded(self, closure: Callable[[], Any], params: Sequence[Tensor]) -> Callable[[], Any]:
        """The closure, looked at as long as there is reason to."""
        return (lambda: self._look(closure, params)) if self.looks else closure

    def _look(self, closure: Callable[[], Any], params: Sequence[Tensor]) -> Any:
        made: dict[int, tuple[Tensor, int, Tensor]] = {}

        def keep(p: Tensor) -> None:
            if p.grad is not None and p.grad.layout is torch.strided:
                made[id(p)] = p.grad, p.grad._version, p.grad.detach().clone()

        handles = [p.register_post_accumulate_grad_hook(keep) for p in params]  # type: ignore[no-untyped-call]
        try:
            loss = closure()
        finally:
            for handle in handles:
                handle.remove()
        touched = [
            (kept, p.grad)
            for p in params
            if p.grad is not None and id(p) in made
            for grad, version, kept in [made[id(p)]]
            if p.grad is not grad or p.grad._version != version
        ]
        for before, after in touched:
            # A wrapper may have written the same numbers once more.
            if not torch.equal(torch.nan_to_num(before), torch.nan_to_num(after.to(before))):
                raise ValueError(
                    f"the closure changes gradients after backward() has made them: the norm of one was "
                    f"{norm([before]).item():.4g} and is {norm([after]).item():.4g}. Clipped or rescaled gradients of "
                    "two points do not compare: give the optimizer clip_norm=, which shortens the step, and scale the "
                    "loss in place of its gradient (Lightning: leave gradient_clip_val out)"
                )
        if not touched:
            self.looks -= 1
        return loss
