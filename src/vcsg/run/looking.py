"""What can be seen of a closure from outside: how large its batch is, and whether it changes gradients on its own."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from vcsg.run.vectors import norm

LOOKS = 2
"""How many evaluations of a run are looked at; more where a closure touches gradients without changing them."""


class RowCounter:
    """Counts the rows that the first module called in a closure is given, which are the samples of its batch.

    That module is remembered: from the second time on it alone is looked at, and a compiled model runs as ever.
    """

    def __init__(self) -> None:
        self.rows: int | None = None
        """The length of the first tensor that a module was given in this step; None where none was."""
        self._module: weakref.ref[nn.Module] | None = None

    def counted(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure of a step, counted at its first evaluation."""
        self.rows = None
        first = True

        def evaluate() -> Any:
            nonlocal first
            if not first:
                return closure()
            first = False
            return self._evaluate(closure)

        return evaluate

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        module = None if self._module is None else self._module()
        with ExitStack() as stack:
            if module is None:
                stack.enter_context(warnings.catch_warnings())
                # That it fires an extra time, as torch says of compiled models, does no harm.
                warnings.filterwarnings("ignore", message="Using `torch.compile", category=UserWarning)
                handle = register_module_forward_pre_hook(self._look)
            else:
                handle = module.register_forward_pre_hook(self._look)
            stack.callback(handle.remove)
            self._remove: Callable[[], None] = handle.remove
            try:
                return closure()
            finally:
                self._remove = _nothing
                if self.rows is None:
                    self._module = None

    def _look(self, module: nn.Module, given: Any) -> None:
        tensors = [t for t in given if isinstance(t, Tensor) and t.dim()]
        if tensors and self.rows is None:
            self.rows, self._module = len(tensors[0]), weakref.ref(module)
        if tensors or hasattr(module, "_orig_mod"):
            self._remove()  # so that the modules inside, compiled ones above all, are called as ever

    def __getstate__(self) -> dict[str, Any]:
        return {"rows": None, "_module": None}


def _nothing() -> None:
    """Do nothing: there is no hook to remove."""


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
        made: dict[int, tuple[int, int, float]] = {}

        def note(p: Tensor) -> None:
            if p.grad is not None and p.grad.layout is torch.strided:
                made[id(p)] = id(p.grad), p.grad._version, norm([p.grad]).item()

        handles = [p.register_post_accumulate_grad_hook(note) for p in params]  # type: ignore[no-untyped-call]
        try:
            loss = closure()
        finally:
            for handle in handles:
                handle.remove()
        touched = [
            (made[id(p)][2], norm([p.grad]).item())
            for p in params
            if p.grad is not None and id(p) in made and (id(p.grad), p.grad._version) != made[id(p)][:2]
        ]
        for before, after in touched:
            if before != after and not math.isnan(before):  # a wrapper may have written the same numbers once more
                raise ValueError(
                    f"the closure changes gradients after backward() has made them: the norm of one was {before:.4g} "
                    f"and is {after:.4g}. Clipped or rescaled gradients of two points do not compare: give the "
                    "optimizer clip_norm=, which shortens the step, and scale the loss in place of its gradient "
                    "(Lightning: leave gradient_clip_val out)"
                )
        if not touched:
            self.looks -= 1
        return loss
